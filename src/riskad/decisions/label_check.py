"""Do labelled rows resemble the unlabelled ones, and what if they do not?

`compare_labels` tests whether labelled rows are like those of their kind among the unlabelled rows.

`weigh_labelled` is for rows that were labelled because of their content (found by a rule,
suggested, or because they looked odd): preferred contents x are then too frequent among the
labelled rows. With

    w(x) = P(unlabelled | x) / P(labelled | x),

up to a factor, the weighted labelled rows are spread as the unlabelled ones are. P is estimated by
logistic regression on the standardised columns and their absolute values, by fits that have not
seen the row. The penalty is the one that predicts best, and w lies within 1/5 and 5. n rows are
then worth (sum w)^2 / sum w^2.

If the chance of a label depended on the kind instead, an AUC needs no weights. It is unknown which
was the case, and weights increase the uncertainty: so the estimate is unchanged, and its interval
is extended to that of the weighted one (`results/decisions/selected.json` has the bias and the
coverage of both). If many unlabelled rows are like hardly any labelled one, no weights can show how
these are ranked (`beyond`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import rankdata
from sklearn.preprocessing import StandardScaler
from sklearn.utils import _safe_indexing, check_array

from riskad.core.checks import check_in_interval
from riskad.core.labels import ANOMALY, KINDS, NORMAL, UNLABELLED, Codes
from riskad.decisions.anomaly_rate import RateEstimate
from riskad.decisions.score_line import ScoreLine
from riskad.metrics.ranking import Auc, like_interval

FEWEST_COMPARED = 20  # labelled normal rows
_CHECK_ROWS = 5_000  # of the unlabelled rows; enough to show a relevant difference
_RESAMPLES = 300  # the smallest p-value is then 1/301, below half of any level in use
_PENALTIES = (1e-3, 1e-2, 1e-1)  # of scikit-learn's C
_SPLITS = 5
_LARGEST = 5.0  # w; larger ones would let single rows decide a weighted mean
_FARTHEST = 4.0  # standard deviations, or a single far value would decide a logistic regression
_FEWEST = 20  # labelled rows that are compared
_CLEARLY = 2.0  # gain in log likelihood, of labelled rows, over a constant
_MOST_ROWS, _MOST_COLUMNS = 2_000, 100
_TAIL = 0.02  # of the labelled rows, beyond which an unlabelled one is unlike them


@dataclass(frozen=True)
class LabelCheck:
    """Whether labelled rows look like their kind among unlabelled ones; None is not computed."""

    normal_p_value: float | None
    anomaly_p_value: float | None
    column: str | int | None  # where labelled normal rows differ most
    verdict: str

    def __str__(self) -> str:
        return self.verdict


def compare_labels(
    X: Any,
    codes: Codes,
    scores: np.ndarray,
    rate: RateEstimate,
    *,
    names: Any = None,
    significance: float = 0.05,
    seed: int = 0,
) -> LabelCheck:
    """Test whether labelled rows resemble those of their kind among unlabelled rows.

    There are at least 2 labelled rows of each kind. `scores` are anomaly scores by fits that have
    not seen the row; rows with NaN are left out. `rate` is that of the unlabelled rows. `names` and
    `significance` are as in `riskad.app.anomaly_rate.check_labels`.
    """
    significance = check_in_interval("significance", significance, 0, 1)
    rng = np.random.default_rng(seed)
    kinds = [rng.permutation(np.flatnonzero((codes == k) & ~np.isnan(scores))) for k in KINDS]
    # In random order, so that ties between neighbours cause no bias.
    rows = rng.permutation(np.concatenate([kind[:_CHECK_ROWS] for kind in kinds]))
    codes, scores = codes[rows], scores[rows]
    features = check_array(_safe_indexing(X, rows), accept_sparse="csr", dtype=np.float64)
    # Sparse columns are not centred.
    features = StandardScaler(with_mean=not sparse.issparse(features)).fit_transform(features)
    labelled = codes != UNLABELLED
    line = ScoreLine.through(scores[labelled], codes[labelled] == ANOMALY)
    likely = line.at_rate(min(max(rate.value, 1e-6), 1 - 1e-6), scores[~labelled])
    normal, name = None, None
    if (codes == NORMAL).sum() >= FEWEST_COMPARED:
        normal, column = _normals_differ(features, codes, likely.probabilities(scores), rate, rng)
        name = column if names is None else str(names[column])
    flagged = line.probabilities(scores) > (codes[labelled] == ANOMALY).mean()
    anomaly = _anomalies_apart(features, codes, scores, flagged, rng)
    return LabelCheck(normal, anomaly, name, _verdict(normal, anomaly, name, significance / 2))


def _normals_differ(
    features: Any, codes: Codes, likely: np.ndarray, rate: RateEstimate, rng: np.random.Generator
) -> tuple[float, int]:
    """p-value of labelled normal rows being like unlabelled ones, and the column that differs most.

    With any weight w(s), here the probability of being normal, and phi a column or its square,

        D(pi) = mean_u w phi - (1 - pi) mean_p w phi - pi mean_n w phi

    is 0 at the true pi up to chance; w makes the last term small, so that the few anomalies matter
    little. The statistic is max |D| / error over columns, minimised over the interval of pi. Its
    distribution is found by resampling all three kinds of row.
    """
    w = 1 - likely
    # Means of these show location and spread of columns, and single values matter little.
    if sparse.issparse(features):
        bounded = features.tanh()
        phi = sparse.hstack([bounded, bounded.multiply(bounded)], format="csr")
        phi = (sparse.diags_array(w) @ phi).tocsr()
        square = phi.multiply(phi)
    else:
        bounded = np.tanh(features)
        phi = np.hstack([bounded, bounded**2]) * w[:, None]
        square = phi**2
    kinds = [(codes == kind).astype(float) for kind in KINDS]
    counts = [kind.sum() for kind in kinds]
    means = np.stack([(phi.T @ kind) / n for kind, n in zip(kinds, counts, strict=True)])
    pools = [kinds[0], kinds[1] + kinds[0] * w, kinds[2] + kinds[0] * likely]

    def sides(pi: float) -> np.ndarray:
        return np.array([1, pi - 1, -pi])

    # Draws from labelled rows alone would never contain what none of them has: each kind is
    # resampled from its pool, its labelled rows and the unlabelled ones with their probability.
    variances, weights = np.zeros(phi.shape[1]), np.zeros((_RESAMPLES, phi.shape[0]))
    for pool, n, side in zip(pools, counts, sides(rate.value), strict=True):
        share = pool / pool.sum()
        spread = np.maximum(square.T @ share - (phi.T @ share) ** 2, 0)
        variances += side**2 * spread / n
        weights += side * (rng.multinomial(int(n), share, _RESAMPLES) / n - share)
    noise = np.asarray((phi.T @ weights.T).T)
    # A rare level of a category is in one labelled row or in none: the effect of one row is part of
    # the error, since a single row would otherwise be a large distance.
    one_row = abs(phi).max(axis=0) * (1 - rate.value) / counts[1]
    one_row = np.ravel(one_row.toarray() if sparse.issparse(one_row) else one_row)
    error = np.sqrt(variances + one_row**2)
    error = np.where(variances > 0, error, np.inf)  # a constant column never differs
    # The rate is not known exactly: rows differ only if they do at every rate of its interval.
    rates = np.append(np.linspace(rate.low, rate.high, 21), rate.value)
    distances = [np.abs(sides(pi) @ means) / error for pi in rates]
    least = min(distances, key=lambda distance: distance.max())
    column = int(least.argmax()) % features.shape[1]
    return _p_value(least.max(), (np.abs(noise) / error).max(axis=1)), column


def _anomalies_apart(
    features: Any, codes: Codes, scores: np.ndarray, flagged: np.ndarray, rng: np.random.Generator
) -> float | None:
    """p-value of the labelled anomalies being neighbours of each other too often.

    m of the unlabelled rows explain how many more of them are flagged than of the labelled normal
    rows, also if a type is absent. If labelled anomalies are like these m, the nearest of all n_n -
    1 + m others is a labelled one with probability (n_n - 1) / (n_n - 1 + m), and normal rows in
    between make this rarer still. The distribution of the count of labelled neighbours is found by
    permuting labels over the anomalies and the m most anomalous unlabelled rows. None if m is 0.
    """
    n, u = (np.flatnonzero(codes == kind) for kind in (ANOMALY, UNLABELLED))
    share, false, true = (flagged[codes == kind].mean() for kind in KINDS)
    m = round(min(max((share - false) / max(true - false, 1e-12), 0.0), 1.0) * len(u))
    if m < 1:
        return None
    # Labelled anomalies come first among the others: a lower position is a labelled neighbour.
    count = (_nearest(features, n, np.concatenate([n, u])) < len(n)).sum()
    both = np.concatenate([n, u[np.argsort(-scores[u])[:m]]])
    neighbour = _nearest(features, both, both)
    labelled = np.zeros((_RESAMPLES, len(both)), dtype=bool)
    labelled[:, : len(n)] = True
    labelled = rng.permuted(labelled, axis=1)
    return _p_value(count, (labelled & labelled[:, neighbour]).sum(axis=1))


def _nearest(features: Any, rows: NDArray[Any], others: NDArray[Any]) -> NDArray[Any]:
    """Position in `others`, which begins with `rows`, of the nearest one that is not the row."""
    from sklearn.neighbors import NearestNeighbors

    order = np.argsort(others)  # a random order decides between several at the same place
    index = NearestNeighbors(n_neighbors=2).fit(features[others[order]])
    first, second = order[index.kneighbors(features[rows], return_distance=False)].T
    return np.where(first == np.arange(len(rows)), second, first)


def _p_value(observed: Any, draws: NDArray[Any]) -> float:
    return float((1 + (draws >= observed).sum()) / (1 + len(draws)))


def _verdict(
    normal: float | None, anomaly: float | None, column: str | int | None, significance: float
) -> str:
    doubts = []
    if normal is not None and normal <= significance:
        doubts.append(
            f"labelled normal rows differ from unlabelled normal rows (p = {normal:.2g}), most in "
            f"column {column!r}: were they picked at random?"
        )
    if anomaly is not None and anomaly <= significance:
        doubts.append(
            f"labelled anomalies have too few unlabelled neighbours (p = {anomaly:.2g}): some "
            "type of them seems to be absent from the unlabelled rows."
        )
    if doubts:
        return " ".join(["The anomaly rate may be off:", *doubts])
    few = f"fewer than {FEWEST_COMPARED} labelled, not compared"
    normals = few if normal is None else f"p = {normal:.2g}"
    anomalies = "too few unlabelled ones to tell" if anomaly is None else f"p = {anomaly:.2g}"
    return (
        "no sign that labelled rows differ from unlabelled rows of their kind "
        f"(normal rows: {normals}; anomalies: {anomalies})."
    )


@dataclass(frozen=True, eq=False)
class LabelWeights:
    """How labelled rows differ from unlabelled ones, by their columns."""

    weights: np.ndarray  # w of each labelled row, in their order
    clear: bool  # whether they differ clearly
    beyond: float  # share of unlabelled rows that 98 % of labelled rows are more like


def weigh_labelled(X: Any, codes: np.ndarray, seed: int = 0) -> LabelWeights | None:
    """Compare labelled rows with unlabelled ones, by columns of numbers; None for fewer than 20."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold

    labelled, others = np.flatnonzero(codes != UNLABELLED), np.flatnonzero(codes == UNLABELLED)
    if not isinstance(X, np.ndarray) or X.ndim != 2 or min(len(labelled), len(others)) < _FEWEST:
        return None
    rng = np.random.default_rng(seed)
    if len(others) > _MOST_ROWS:
        others = rng.choice(others, _MOST_ROWS, replace=False)
    rows = np.concatenate([labelled, others])
    columns = np.sort(rng.permutation(X.shape[1])[:_MOST_COLUMNS])
    is_labelled = np.arange(len(rows)) < len(labelled)
    some = np.asarray(X[np.ix_(rows, columns)], dtype=float)
    spread = some.std(axis=0)
    Z = np.nan_to_num((some - some.mean(axis=0)) / np.where(spread > 0, spread, 1.0))
    Z = np.clip(Z, -_FARTHEST, _FARTHEST)
    # Values at both ends may be preferred: the absolute value shows it to a linear model.
    F = np.hstack([Z, np.abs(Z) - np.abs(Z).mean(axis=0)])
    n = len(labelled)
    weight = np.where(is_labelled, 1.0, n / (len(F) - n))  # both sides count as n rows
    folds = list(StratifiedKFold(_SPLITS, shuffle=True, random_state=seed).split(F, is_labelled))
    best, gain = np.zeros(len(F)), 0.0  # log odds of a label; log likelihood over a constant
    for C in _PENALTIES:
        odds = np.empty(len(F))
        for train, held in folds:
            fit = LogisticRegression(C=C, tol=1e-3)
            fit.fit(F[train], is_labelled[train], weight[train])
            odds[held] = fit.decision_function(F[held])
        loss = weight @ np.logaddexp(0, np.where(is_labelled, -odds, odds))
        gain_here = float(weight.sum() * np.log(2) - loss)
        if gain_here > gain:
            best, gain = odds, gain_here
    labelled_odds = best[is_labelled]
    # Relative to the median, since a factor common to all weights has no effect.
    most = np.log(_LARGEST)
    w = np.exp(np.clip(np.median(labelled_odds) - labelled_odds, -most, most))
    beyond = float((best[~is_labelled] < np.quantile(labelled_odds, _TAIL)).mean())
    return LabelWeights(w, gain > _CLEARLY, beyond)


def auc_with_weights(
    auc: Auc, scores: np.ndarray, codes: np.ndarray, weights: np.ndarray
) -> tuple[Auc, Auc]:
    """The AUC of labelled rows with its interval extended, and the weighted one."""
    anomalous = codes == ANOMALY
    # Only the gap is used: the given AUC may be one of folds, each ranked by itself.
    equal = _weighted_auc(scores, anomalous, np.ones_like(weights))
    gap = _weighted_auc(scores, anomalous, weights) - equal
    value = min(max(auc.value + gap, 0.0), 1.0)
    m, n = (w.sum() ** 2 / (w**2).sum() / len(w) for w in (weights[anomalous], weights[~anomalous]))
    weighted = like_interval(auc, value, m * auc.n_anomaly, n * auc.n_normal)
    low, high = min(auc.low, weighted.low), max(auc.high, weighted.high)
    return replace(auc, low=low, high=high), weighted


def _weighted_auc(scores: np.ndarray, anomalous: np.ndarray, weights: np.ndarray) -> float:
    """The weight of pairs in which the anomaly is above; ties count half."""
    place = rankdata(scores, method="dense") - 1
    normal = np.bincount(place, weights * ~anomalous)
    below = np.cumsum(normal) - normal / 2
    anomaly = np.bincount(place, weights * anomalous)
    return float(anomaly @ below / (anomaly.sum() * normal.sum()))
