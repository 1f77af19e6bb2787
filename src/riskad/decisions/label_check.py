"""Do labelled rows resemble those of their kind among the unlabelled rows?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import _safe_indexing, check_array

from riskad.core.checks import check_in_interval
from riskad.core.labels import (
    ANOMALY,
    KINDS,
    UNLABELLED,
    Codes,
    count_labels,
)
from riskad.decisions.anomaly_rate import (
    N_SPLITS,
    PriorEstimate,
    check_table,
    cross_fit,
    find_anomaly_rate,
)
from riskad.decisions.mixture import (
    RESAMPLES,
    Floats,
    Histograms,
    log_ratio,
    shift,
)
from riskad.decisions.rates import RateEstimate

__all__ = ["LabelCheck", "compare_labels"]


FEWEST_COMPARED = 20  # labelled normal rows
_CHECK_ROWS = 5_000  # of the unlabelled rows; enough to show a relevant difference


@dataclass(frozen=True)
class LabelCheck:
    """Whether labelled rows look like their kind among the unlabelled rows; a p-value of None was
    not computed.

    `column` is where labelled normal rows differ most from those among the unlabelled rows.
    """

    normal_p_value: float | None
    anomaly_p_value: float | None
    column: str | int | None
    verdict: str

    def __str__(self) -> str:
        return self.verdict


def compare_labels(
    X: Any,
    y: Any,
    scorer: Any,
    *,
    estimate: PriorEstimate | RateEstimate | None = None,
    names: Any = None,
    significance: float = 0.05,
    seed: int = 0,
) -> LabelCheck:
    """Test whether labelled rows resemble those of their kind among unlabelled rows.

    Parameters
    ----------
    X, y, scorer, seed
        As in `riskad.decisions.anomaly_rate.find_anomaly_rate`.
    estimate : PriorEstimate or RateEstimate, optional
        The rate of these rows; computed if not given.
    names, significance
        As in `riskad.app.anomaly_rate.check_labels`.

    Returns
    -------
    LabelCheck
        p-values of both tests, and the verdict in words.
    """
    significance = check_in_interval("significance", significance, 0, 1)
    X, codes = check_table(X, y)
    labels = count_labels(codes)
    if min(labels.normal, labels.anomaly) < 2 or labels.unlabelled < N_SPLITS:
        reason = f"this takes 2 labelled rows of each kind and unlabelled rows; there are {labels}"
        return LabelCheck(None, None, None, f"not checked: {reason}.")
    if estimate is None:
        estimate = find_anomaly_rate(X, codes, scorer, seed=seed)
    scores = cross_fit(X, codes, scorer, seed)
    rng = np.random.default_rng(seed)
    rows = _sample(codes, rng)
    features = _standardised(_safe_indexing(X, rows))
    sample = _Sample(features, codes[rows], scores[rows], estimate)
    normal, column = None, None
    if labels.normal >= FEWEST_COMPARED:
        normal, column = _normals_differ(sample, rng)
    anomaly = _anomalies_apart(sample, rng)
    names = getattr(X, "columns", None) if names is None else names
    name = column if names is None or column is None else str(names[column])
    return LabelCheck(normal, anomaly, name, _verdict(normal, anomaly, name, significance / 2))


@dataclass(frozen=True)
class _Sample:
    """Labelled rows and some of the unlabelled rows, with standardised features and held-out
    scores.
    """

    features: Any
    codes: Codes
    scores: Floats
    estimate: PriorEstimate | RateEstimate

    @property
    def h(self) -> Histograms:
        return Histograms.of(self.scores, self.codes)


def _sample(codes: Codes, rng: np.random.Generator) -> NDArray[Any]:
    """Some rows of each kind, in random order: ties between neighbours then cause no bias."""
    kinds = [rng.permutation(np.flatnonzero(codes == kind)) for kind in np.unique(codes)]
    return rng.permutation(np.concatenate([rows[:_CHECK_ROWS] for rows in kinds]))


def _standardised(X: Any) -> Any:
    """Columns in standard deviations; sparse ones are not centred."""
    X = check_array(X, accept_sparse="csr", dtype=np.float64)
    if sparse.issparse(X):
        variance = X.multiply(X).mean(axis=0) - np.square(X.mean(axis=0))
        # Of a column that is nearly constant, rounding can leave less than nothing.
        scale = np.sqrt(np.maximum(np.asarray(variance).ravel(), 0))
        return (X @ sparse.diags_array(1 / np.where(scale > 0, scale, 1))).tocsr()
    scale = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(scale > 0, scale, 1)


def _with_squares(features: Any) -> Any:
    """Features whose means show location and spread of columns; single values matter little."""
    if sparse.issparse(features):
        bounded = features.tanh()
        return sparse.hstack([bounded, bounded.multiply(bounded)], format="csr")
    bounded = np.tanh(features)
    return np.hstack([bounded, bounded**2])


def _normals_differ(sample: _Sample, rng: np.random.Generator) -> tuple[float, int]:
    """p-value of the labelled normal rows being like those among the unlabelled rows, and the
    column that differs most.

    With any weight w(s), here proportional to the posterior of being normal, and phi a column or
    its square,

        D(pi) = mean_u w phi - (1 - pi) mean_p w phi - pi mean_n w phi

    is 0 at the true pi up to chance; w makes the last term small, so that the few anomalies matter
    little. The statistic is max |D| / error over columns, minimised over the interval of pi. Its
    distribution is found by resampling all three kinds of row (`_draws`).

    A rare level of a category is in one labelled row or in none: the effect of one row is added to
    the squared error, since a single row would otherwise be a large distance.
    """
    pi_n = sample.estimate.pi_n
    w = 1 / (1 - pi_n + pi_n * np.exp(np.interp(sample.scores, sample.h.s, log_ratio(sample.h))))
    phi = _times(_with_squares(sample.features), w)
    kinds = [(sample.codes == kind).astype(float) for kind in KINDS]
    counts = [kind.sum() for kind in kinds]
    means = np.stack([(phi.T @ kind) / n for kind, n in zip(kinds, counts, strict=True)])
    posterior = (1 - pi_n) * w
    pools = [kinds[0], kinds[1] + kinds[0] * posterior, kinds[2] + kinds[0] * (1 - posterior)]

    def sides(pi: float) -> Floats:
        return np.array([1, pi - 1, -pi])

    variances, noise = _draws(phi, pools, counts, sides(pi_n), rng)
    one_row = abs(phi).max(axis=0) * (1 - pi_n) / counts[1]
    one_row = np.ravel(one_row.toarray() if sparse.issparse(one_row) else one_row)
    error = np.sqrt(variances + one_row**2)
    error = np.where(variances > 0, error, np.inf)  # a constant column never differs
    distances = [np.abs(sides(pi) @ means) / error for pi in _through(sample.estimate)]
    nearest = min(distances, key=lambda distance: distance.max())
    column = int(nearest.argmax()) % sample.features.shape[1]
    return _p_value(nearest.max(), (np.abs(noise) / error).max(axis=1)), column


def _through(estimate: PriorEstimate | RateEstimate) -> Floats:
    return np.append(np.linspace(*estimate.interval, 21), estimate.pi_n)


def _times(features: Any, w: Floats) -> Any:
    """Each row times its weight."""
    if sparse.issparse(features):
        return (sparse.diags_array(w) @ features).tocsr()
    return features * w[:, None]


def _draws(
    phi: Any, pools: list[Floats], counts: list[float], sides: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Variance of sum_k side_k mean_k phi for each column, and draws of its error.

    Each kind is resampled from its pool: its labelled rows, and the unlabelled rows with their
    probability of being of this kind. Draws from labelled rows alone would never contain what none
    of them has.
    """
    square = phi.multiply(phi) if sparse.issparse(phi) else phi**2
    variance, weights = np.zeros(phi.shape[1]), np.zeros((RESAMPLES, phi.shape[0]))
    for pool, n, side in zip(pools, counts, sides, strict=True):
        share = pool / pool.sum()
        spread = np.maximum(square.T @ share - (phi.T @ share) ** 2, 0)
        variance += side**2 * spread / n
        weights += side * (rng.multinomial(int(n), share, RESAMPLES) / n - share)
    return variance, np.asarray((phi.T @ weights.T).T)


def _anomalies_apart(sample: _Sample, rng: np.random.Generator) -> float | None:
    """p-value of the labelled anomalies being neighbours of each other too often.

    The unlabelled rows hold m = pi_n n_u anomalies, estimated by "shift", which rows of an absent
    type mislead least: they are flagged as well. If labelled anomalies are like these, the nearest
    of all n_n - 1 + m others is a labelled one with probability (n_n - 1) / (n_n - 1 + m), and
    normal rows in between make this rarer still. The distribution of the count of labelled
    neighbours is found by permuting labels over the anomalies and the m most anomalous unlabelled
    rows. None if the unlabelled rows may hold no anomalies.
    """
    n, u = (np.flatnonzero(sample.codes == kind) for kind in (ANOMALY, UNLABELLED))
    m = round(shift(sample.h, 0.5)[0] * len(u))
    if m < 1:
        return None
    count = (_nearest(sample.features, n, np.concatenate([n, u])) < len(n)).sum()
    suspects = u[np.argsort(-sample.scores[u])[:m]]
    both = np.concatenate([n, suspects])
    neighbour = _nearest(sample.features, both, both)
    labelled = np.zeros((RESAMPLES, len(both)), dtype=bool)
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


def _p_value(observed: Any, drawn: NDArray[Any]) -> float:
    return float((1 + (drawn >= observed).sum()) / (1 + len(drawn)))


def _verdict(
    normal: float | None, anomaly: float | None, column: str | int | None, significance: float
) -> str:
    parts = []
    if normal is not None and normal <= significance:
        parts.append(
            f"labelled normal rows differ from unlabelled normal rows (p = {normal:.2g}), most in "
            f"column {column!r}: were they picked at random?"
        )
    if anomaly is not None and anomaly <= significance:
        parts.append(
            f"labelled anomalies have too few unlabelled neighbours (p = {anomaly:.2g}): some "
            "type of them seems to be absent from the unlabelled rows."
        )
    if parts:
        return " ".join(["The anomaly rate may be off:", *parts])
    normals = f"fewer than {FEWEST_COMPARED} labelled, not compared"
    if normal is not None:
        normals = f"p = {normal:.2g}"
    seen = "too few unlabelled ones to tell" if anomaly is None else f"p = {anomaly:.2g}"
    return (
        "no sign that labelled rows differ from unlabelled rows of their kind "
        f"(normal rows: {normals}; anomalies: {seen})."
    )
