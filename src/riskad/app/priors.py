r"""The anomaly rate of the pile, with an interval, from labelled normals, anomalies and the pile.

If labelled rows are like those of their kind in the pile, the pile is a mixture,

    p_u = pi_p p_p + pi_n p_n,    pi_p = 1 - pi_n,

and so are the scores s that a detector gives to rows it has not seen (`riskad.decisions.mixture`).
`check_labels` tests what this assumes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import t
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import _safe_indexing, check_array

from riskad.core.checks import DataWarning, InputError, check_choice, check_in_interval
from riskad.core.labels import (
    ANOMALY,
    NORMAL,
    UNLABELLED,
    Codes,
    LabelCounts,
    check_codes,
    check_rows_match,
    count_labels,
)
from riskad.decisions.held_out import fold_fits
from riskad.decisions.mixture import (
    RESAMPLES,
    Floats,
    Found,
    Histograms,
    find_rate,
    log_ratio,
    shift,
)
from riskad.detectors.shallow import ShallowRAD
from riskad.rows.columns import as_table

__all__ = ["METHODS", "LabelCheck", "PriorEstimate", "check_labels", "estimate_prior"]

METHODS = ("auto", "em", "divergence", "shift", "pu", "nu")

_SPLITS = 5
_FEW = 3  # labelled rows of a kind; the scores of so few may lie anywhere
_CANNOT_TELL = 0.5  # width of an interval that says next to nothing
_CUTS = np.arange(3, 11) / 10
FEWEST_COMPARED = 20  # labelled normals
_CHECK_ROWS = 5_000  # of the pile; so many show a difference that matters


@dataclass(frozen=True)
class PriorEstimate:
    """Shares of normal rows and of anomalies in the pile; `interval` is for pi_n.

    `pi_p` is what detectors call `prior`; `diagnostics` holds what the method saw on its way.
    """

    pi_p: float
    pi_n: float
    interval: tuple[float, float]
    method: str
    diagnostics: dict[str, float]
    labels: LabelCounts
    confidence: float = 0.95

    def __str__(self) -> str:
        low, high = self.interval
        normal = f"{self.labels.normal:,} normal" if self.method != "nu" else ""
        anomalous = f"{self.labels.anomaly:,} anomalous" if self.method != "pu" else ""
        return (
            f"anomaly rate {_percent(self.pi_n)} ({100 * self.confidence:g} % interval "
            f"{_percent(low)} to {_percent(high)}), by {self.method} from "
            f"{', '.join(filter(None, (normal, anomalous)))} and "
            f"{self.labels.unlabelled:,} unlabelled rows"
        )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def estimate_prior(
    X: Any,
    y: Any,
    *,
    method: str = "auto",
    estimator: Any = None,
    confidence: float = 0.95,
    random_state: int | None = None,
) -> PriorEstimate:
    """Estimate the share of anomalies in the unlabelled pile, with an interval.

    Parameters
    ----------
    X : array, sparse matrix or frame of shape (n_rows, n_features)
        All rows.
    y : array of shape (n_rows,)
        +1 normal, -1 anomaly, 0 unlabelled.
    method : {"auto", "em", "divergence", "shift", "pu", "nu"}, default="auto"
        "em" finds the likeliest rate given calibrated scores (Saerens, Latinne and Decaestecker,
        2002); "divergence" the mixture of labelled rows closest to the pile in Pearson divergence
        (du Plessis and Sugiyama, 2014); "shift" compares how often a row is flagged (Lipton, Wang
        and Smola, 2018). "pu" and "nu" do without labelled anomalies or normals: they find the
        largest share that the known kind can have in the pile (Blanchard, Lee and Scott, 2010),
        which is right only if the other kind leaves some region to it. "auto" is "em" if there are
        two labelled rows of each kind, otherwise "pu" or "nu".
    estimator : detector, optional
        What gives the scores: any estimator with `fit(X, y)` and `score_samples` (high = normal);
        cloned for each fold. By default a `ShallowRAD`. For "pu" and "nu" the pile stands in for
        the missing kind, labelled as such.
    confidence : float in (0, 1), default=0.95
        Of the interval.
    random_state : int, optional
        Seed of folds and resamples. None is 0: the same data gives the same estimate.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (1900, 2)), rng.normal(3, 1, (220, 2))])
    >>> y = np.zeros(2120, dtype=int)
    >>> y[:100], y[-20:] = 1, -1               # of the other 2,000 rows 10 % are anomalies
    >>> print(estimate_prior(X, y))
    anomaly rate 10.8 % (95 % interval 9.0 % to 12.9 %), by em from 100 normal, 20 anomalous and \
2,000 unlabelled rows
    """
    check_choice("method", method, METHODS)
    confidence = check_in_interval("confidence", confidence, 0, 1)
    X, codes = _check_rows(X, y)
    labels, seed = count_labels(codes), random_state or 0
    method = _resolve(method, labels)
    _check_kinds(method, labels)
    if method in ("pu", "nu"):
        found = _from_one_kind(X, codes, method, estimator, confidence, seed)
    else:
        scores = _cross_fit(X, codes, estimator or _default_scorer(), seed)
        found = find_rate(Histograms.of(scores, codes), method, confidence, seed)
    pi_n, (low, high), diagnostics = found
    _warn_if_vague(labels, high - low)
    return PriorEstimate(1 - pi_n, pi_n, (low, high), method, diagnostics, labels, confidence)


def _check_rows(X: Any, y: Any) -> tuple[Any, Codes]:
    X, codes = as_table(X), check_codes(y)
    check_rows_match(X, codes)
    return X.tocsr() if sparse.issparse(X) else X, codes


def _resolve(method: str, labels: LabelCounts) -> str:
    if method != "auto":
        return method
    if min(labels.normal, labels.anomaly) >= 2:
        return "em"
    return "pu" if labels.normal >= labels.anomaly else "nu"


def _check_kinds(method: str, labels: LabelCounts) -> None:
    needed = {"normal rows": (labels.normal, "nu"), "anomalies": (labels.anomaly, "pu")}
    for name, (count, instead) in needed.items():
        if method != instead and count < 2:
            other = f", or do without: method={instead!r}" if method not in ("pu", "nu") else ""
            raise InputError(
                f"method={method!r} needs at least 2 labelled {name}, got {labels}. Label more"
                f"{other}."
            )
    if labels.unlabelled < _SPLITS:
        raise InputError(
            f"the anomaly rate is that of the unlabelled rows, and there are too few: got {labels}."
            " Mark the rows that nobody checked with 0."
        )


def _warn_if_vague(labels: LabelCounts, width: float) -> None:
    counts = {"anomalies": labels.anomaly, "normal rows": labels.normal}
    few = [f"{count} labelled {kind}" for kind, count in counts.items() if 0 < count <= _FEW]
    if few or width >= _CANNOT_TELL:
        because = f" from {' and '.join(few)}" if few else ""
        warnings.warn(
            f"the data says little about the anomaly rate{because}: the interval is "
            f"{100 * width:.0f} points wide. Label more rows, or trust what else you know of it.",
            DataWarning,
            stacklevel=3,
        )


# --- scores ------------------------------------------------------------------------------


def _default_scorer() -> ShallowRAD:
    return ShallowRAD(lam="tight", tol=1e-3)


def _known_or_not() -> ShallowRAD:
    """The default scorer of two kinds; Theorem 1 has no lambda for it."""
    return ShallowRAD(risk="pn", prior=0.5, lam=0.01, tol=1e-3)


def _cross_fit(X: Any, codes: Codes, estimator: Any, seed: int) -> Floats:
    """Anomaly scores of all rows, each by a fit that has not seen it, of labelled spread 1.

    Every kind of row is dealt evenly to the folds: the pile is then the same mixture of the two
    kinds in each fold, whose scores have their own scale, and in all of them together.
    """
    if not (hasattr(estimator, "fit") and hasattr(estimator, "score_samples")):
        raise InputError(
            f"estimator must have fit(X, y) and score_samples(X), got {estimator!r}. Detectors of "
            "riskad do, and pipelines that end in one."
        )
    scores = np.empty(len(codes))
    with warnings.catch_warnings():
        # What a fold lacks by chance is not news about the data.
        warnings.simplefilter("ignore", DataWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        for fitted, held in fold_fits(estimator, X, codes, _folds(codes, seed)):
            scores[held] = -fitted.score_samples(_safe_indexing(X, held))
    if np.ptp(scores) == 0:
        raise InputError(
            f"all rows have the same score by {estimator!r}, which tells nothing about the anomaly "
            "rate. Give columns that vary, or another estimator."
        )
    known = scores[codes != UNLABELLED]
    return (scores - known.mean()) / (known.std() or 1.0)


def _folds(codes: Codes, seed: int) -> Iterator[NDArray[Any]]:
    """Row numbers to hold out, fold by fold."""
    rng = np.random.default_rng(seed)
    kinds = [np.flatnonzero(codes == kind) for kind in np.unique(codes)]
    n_splits = min(_SPLITS, *map(len, kinds))
    fold = np.empty(len(codes), dtype=int)
    for rows in kinds:
        fold[rng.permutation(rows)] = np.arange(len(rows)) % n_splits
    for k in range(n_splits):
        yield np.flatnonzero(fold == k)


# --- one kind of label --------------------------------------------------------------------


def _from_one_kind(
    X: Any, codes: Codes, method: str, estimator: Any, confidence: float, seed: int
) -> Found:
    """The rate from normals and the pile ("pu"), or from anomalies and the pile ("nu")."""
    kind = NORMAL if method == "pu" else ANOMALY
    rows = np.flatnonzero((codes == kind) | (codes == UNLABELLED))
    stand_in = np.where(codes[rows] == kind, kind, -kind).astype(np.int8)
    scores = _cross_fit(_safe_indexing(X, rows), stand_in, estimator or _known_or_not(), seed)
    likeness = -kind * scores
    shares, region = _largest_share(
        likeness[stand_in == kind], likeness[stand_in != kind], confidence
    )
    low, pi_n, high = map(float, 1 - shares[::-1] if method == "pu" else shares)
    return pi_n, (low, high), {"region": region}


def _largest_share(known: Floats, pile: Floats, confidence: float) -> tuple[Floats, float]:
    """The largest share pi_k that the known kind can have in the pile: low, estimate, high.

    In any region C the pile has at least the rows of the known kind, U(C) >= pi_k K(C), so that
    pi_k <= U(C) / K(C), with equality where the other kind has no rows. C is where rows look most
    like the known kind, with K(C) = 0.3, 0.4, ..., 1. If one of these regions is free of the other
    kind, pi_k is the least ratio, and lies between the least lower and the least upper limit of
    all; the limits hold together (Bonferroni). The estimate is the ratio with the least upper
    limit; its K(C) is returned as well.
    """
    n_k, n_u = len(known), len(pile)
    cuts = np.quantile(known, 1 - _CUTS, method="lower")
    K, U = ((rows[:, None] >= cuts).mean(axis=0) for rows in (known, pile))
    U = np.maximum(U, 1 / n_u)
    error = np.sqrt((1 - K) / (K * n_k) + (1 - U) / (U * n_u))  # of log U / K
    margin = np.exp(t.ppf(1 - (1 - confidence) / (2 * len(_CUTS)), n_k - 1) * error)
    ratio = U / K
    best = int(np.argmin(ratio * margin))
    shares = [(ratio / margin).min(), ratio[best], (ratio * margin).min()]
    return np.minimum(shares, 1), float(K[best])


# --- do labelled rows resemble the pile? --------------------------------------------------


@dataclass(frozen=True)
class LabelCheck:
    """Whether labelled rows look like their kind in the pile; a p-value of None was not computed.

    `column` is where labelled normals differ most from those of the pile.
    """

    normal_p_value: float | None
    anomaly_p_value: float | None
    column: str | int | None
    verdict: str

    def __str__(self) -> str:
        return self.verdict


def check_labels(
    X: Any,
    y: Any,
    *,
    estimate: PriorEstimate | None = None,
    estimator: Any = None,
    names: Any = None,
    significance: float = 0.05,
    random_state: int | None = None,
) -> LabelCheck:
    """Test whether labelled rows resemble those of their kind in the pile.

    Anomalies of a type that the pile lacks have each other for neighbours, and hardly any rows of
    the pile. Normals that were not picked at random have other column means than the normal rows of
    the pile. Both tests keep their level whatever the anomalies that nobody labelled look like, as
    long as the labelled ones are like them; either verdict is at half the significance. Fewer than
    20 labelled normals are not compared: their spread is then too uncertain to keep a level.

    Parameters
    ----------
    X, y, estimator, random_state
        As in `estimate_prior`.
    estimate : PriorEstimate, optional
        What `estimate_prior` found for these rows; computed if not given.
    names : sequence of str, optional
        Names of the columns for the verdict; by default those of a frame, or numbers.
    significance : float in (0, 1), default=0.05
        Chance of a false alarm, at most.
    """
    significance = check_in_interval("significance", significance, 0, 1)
    X, codes = _check_rows(X, y)
    labels = count_labels(codes)
    if min(labels.normal, labels.anomaly) < 2 or labels.unlabelled < _SPLITS:
        reason = f"this takes 2 labelled rows of each kind and a pile; there are {labels}"
        return LabelCheck(None, None, None, f"not checked: {reason}.")
    seed = random_state or 0
    if estimate is None:
        estimate = estimate_prior(X, codes, estimator=estimator, random_state=seed)
    scores = _cross_fit(X, codes, estimator or _default_scorer(), seed)
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
    """Labelled rows and some of the pile, with standardised features and held-out scores."""

    features: Any
    codes: Codes
    scores: Floats
    estimate: PriorEstimate

    @property
    def h(self) -> Histograms:
        return Histograms.of(self.scores, self.codes)


def _sample(codes: Codes, rng: np.random.Generator) -> NDArray[Any]:
    """So many rows of each kind, in random order: ties between neighbours then favour nobody."""
    kinds = [rng.permutation(np.flatnonzero(codes == kind)) for kind in np.unique(codes)]
    return rng.permutation(np.concatenate([rows[:_CHECK_ROWS] for rows in kinds]))


def _standardised(X: Any) -> Any:
    """Columns in standard deviations; sparse ones are not centred."""
    X = check_array(X, accept_sparse="csr", dtype=np.float64)
    if sparse.issparse(X):
        spread = np.sqrt(X.multiply(X).mean(axis=0) - np.square(X.mean(axis=0)))
        scale = np.asarray(spread).ravel()
        return (X @ sparse.diags_array(1 / np.where(scale > 0, scale, 1))).tocsr()
    scale = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(scale > 0, scale, 1)


def _with_squares(features: Any) -> Any:
    """Features whose means tell place and spread of columns; one value cannot do much to them."""
    if sparse.issparse(features):
        bounded = features.tanh()
        return sparse.hstack([bounded, bounded.multiply(bounded)], format="csr")
    bounded = np.tanh(features)
    return np.hstack([bounded, bounded**2])


def _normals_differ(sample: _Sample, rng: np.random.Generator) -> tuple[float, int]:
    """p-value of the labelled normals being like those of the pile, and the column that least is.

    With any weight w(s), here proportional to the posterior of being normal, and phi a column or
    its square,

        D(pi) = mean_u w phi - (1 - pi) mean_p w phi - pi mean_n w phi

    is 0 at the true pi up to chance; w makes the last term small, so that little depends on the few
    anomalies. The statistic is max |D| / error over columns, least over the interval of pi. Its
    distribution is seen by drawing all three kinds of row anew (`_draws`).

    A rare level of a category is in one labelled row or in none: to the error's square is added
    that of what one row changes, else a single row would be a large distance.
    """
    pi_n = sample.estimate.pi_n
    w = 1 / (1 - pi_n + pi_n * np.exp(np.interp(sample.scores, sample.h.s, log_ratio(sample.h))))
    phi = _times(_with_squares(sample.features), w)
    kinds = [(sample.codes == kind).astype(float) for kind in (UNLABELLED, NORMAL, ANOMALY)]
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
    error = np.where(variances > 0, error, np.inf)  # a constant column differs nowhere
    distances = [np.abs(sides(pi) @ means) / error for pi in _through(sample.estimate)]
    nearest = min(distances, key=lambda distance: distance.max())
    column = int(nearest.argmax()) % sample.features.shape[1]
    return _p_value(nearest.max(), (np.abs(noise) / error).max(axis=1)), column


def _through(estimate: PriorEstimate) -> Floats:
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

    Each kind is drawn anew from its pool, which has the rows of the pile with the probability that
    they are of this kind beside the labelled ones. Drawn from labelled rows alone, what none of
    them has would never come.
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
    """p-value of the labelled anomalies having each other for neighbours too often.

    The pile holds m = pi_n n_u anomalies, by "shift", which rows of an absent type mislead least:
    they are flagged as well. If labelled anomalies are like these, the nearest
    of all n_n - 1 + m others is a labelled one with probability (n_n - 1) / (n_n - 1 + m), and
    normal rows that come between make this rarer still. How the count of labelled neighbours
    spreads is seen by permuting labels over the anomalies and the m most anomalous rows of the
    pile. None if the pile may hold no anomalies.
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

    order = np.argsort(others)  # a random one: which of several at the same place comes first
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
            f"labelled normal rows differ from those of the pile (p = {normal:.2g}), most in "
            f"column {column!r}: were they picked at random?"
        )
    if anomaly is not None and anomaly <= significance:
        parts.append(
            f"labelled anomalies have too few neighbours in the pile (p = {anomaly:.2g}): some "
            "type of them seems to be absent from it."
        )
    if parts:
        return " ".join(["The anomaly rate may be off:", *parts])
    normals = f"fewer than {FEWEST_COMPARED} labelled, not compared"
    if normal is not None:
        normals = f"p = {normal:.2g}"
    seen = "too few of them in the pile to tell" if anomaly is None else f"p = {anomaly:.2g}"
    return (
        "nothing speaks against labelled rows being like their kind in the pile "
        f"(normal rows: {normals}; anomalies: {seen})."
    )
