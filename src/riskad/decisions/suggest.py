"""Which rows to label next: some likely anomalies, some borderline rows, and no two alike.

A fit treats labelled rows as typical of their kind, so they must be spread as their kind is. So
rows are chosen by kernel herding (Welling 2009). Let R be the unlabelled rows, B the tenth of them
whose scores are nearest to the threshold, and F the others that the model flags. A row weighs

    q_i = (1 - g) p_i + g [i in F] / |F|,    p_i = (1 - w) / |R| + w [i in B] / |B|,    w = 1/4

with the smallest g for which F weighs at least a tenth. With k(x, x') = exp(-|x - x'|^2 / h) on
standardised features, h the median of |x - x'|^2, the next row is

    argmax_i  sum_j q_j k(x_i, x_j)  -  1 / (|D| + 1) sum_{j in D} k(x_i, x_j)

where D are the rows that are already labelled or chosen. Together the terms keep the mean of k over
D close to that over q: they favour regions with many relevant rows, and avoid what is known.
Labelled rows count as at most 10 n rows, so that the chosen rows keep some influence. Rows within a
tenth of the median distance of a chosen one come after all others.

Rows of F are *likely anomalies*, and the first tenth of the choice is among them; rows of B are
*borderline*, and all others are chosen as *unlike what was labelled*. The first sum is over m rows
drawn with the probabilities q, which are also the candidates: a choice costs O(m^2 + m n)
distances, independent of the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics import pairwise_distances_chunked
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from riskad.core.checks import InputError
from riskad.core.labels import UNLABELLED, check_codes, check_rows_match
from riskad.rows.encoding import OneHotImputer
from riskad.rows.table import Table, as_table

Floats: TypeAlias = NDArray[np.float64]
Places: TypeAlias = NDArray[np.intp]

LIKELY, BORDERLINE, UNLIKE = "likely anomaly", "borderline", "unlike what was labelled"

# Found on root seeds 101 and 102 of the experiment `suggesting`.
_SHARE = 0.25  # w
_TENTH = 0.1  # share of rows that are borderline; least share of the weight and choice in F
_CANDIDATES = 1_000  # m: a million distances
_LATER = 2.0  # subtracted from rows that come later: values differ by less
_ALIKE = 0.1  # of the median distance
_MEMORY = 10  # times n: as how many rows labelled rows count at most


@dataclass(frozen=True, eq=False)
class Suggestion:
    """Rows to label, in the order to label them."""

    rows: Places  # positions in X, counted from 0
    reasons: tuple[str, ...]  # "likely anomaly", "borderline" or "unlike what was labelled"
    anomaly_score: Floats  # current ones

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        lines = zip(self.rows, self.reasons, self.anomaly_score, strict=True)
        return "\n".join(f"{row}: {reason}, score {score:.4g}" for row, reason, score in lines)


def suggest_rows(
    model: Any, X: Any, n: int = 20, *, y: Any = None, compared: Any = None, random_state: int = 0
) -> Suggestion:
    """Return the n rows of X whose labels would help the model most; all if there are fewer.

    Parameters
    ----------
    model
        A fitted detector, or a pipeline that ends in one. Rows are compared in the features that
        the detector sees.
    X
        Rows, as the model scores them.
    n
        Number of rows to choose.
    y
        Labels of X, as in `fit`: labelled rows are not chosen, nor rows close to them.
    compared
        The same rows as numbers, for comparing rows if the detector's own features cannot be
        compared: texts, for instance.
    random_state
        Seed for drawing candidates.

    Returns
    -------
    Suggestion
        Rows in the order to label them, each with its reason.

    Examples
    --------
    >>> import numpy as np
    >>> from riskad import ShallowRAD
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (900, 2)), rng.normal(3, 1, (100, 2))])
    >>> y = np.zeros(1000, dtype=int)
    >>> y[:8], y[-2:] = 1, -1
    >>> chosen = suggest_rows(ShallowRAD().fit(X, y), X, 20, y=y)
    >>> sorted(set(chosen.reasons))
    ['borderline', 'likely anomaly', 'unlike what was labelled']
    """
    if not isinstance(n, int | np.integer) or n < 1:
        raise InputError(f"n must be a whole number of rows, 1 or more, got {n!r}.")
    # A search and what it chose score alike; only the latter has steps and a threshold.
    model = getattr(model, "best_estimator_", model)
    detector = model[-1] if isinstance(model, Pipeline) else model
    detector = getattr(detector, "best_estimator_", detector)
    if not hasattr(model, "score_samples"):
        raise InputError(f"A {type(model).__name__} gives no scores by which rows could be chosen.")
    X = as_table(X)
    scores = -np.asarray(model.score_samples(X), dtype=np.float64)
    if not hasattr(detector, "offset_"):
        raise InputError(
            f"A {type(detector).__name__} has no threshold (offset_), so that no row is borderline."
        )
    codes = np.zeros(len(scores), dtype=np.int16) if y is None else check_codes(y)
    check_rows_match(scores, codes)
    labelled, free = np.flatnonzero(codes != UNLABELLED), np.flatnonzero(codes == UNLABELLED)
    if not free.size:
        raise InputError("Every row is labelled; there is none left to suggest.")
    borderline, likely = _groups(scores[free], -float(detector.offset_), n)
    weights, m = _weights(borderline, likely), min(max(_CANDIDATES, n), len(free))
    candidates = np.arange(m)
    if m < len(free):
        rng = np.random.default_rng(random_state)
        candidates = np.sort(rng.choice(len(free), m, replace=False, p=weights))
        weights = np.maximum(weights[candidates], 1 / m)  # q over the chance of being drawn
        weights /= weights.sum()
    if compared is None:  # rows as the detector sees them
        several = isinstance(model, Pipeline) and len(model) > 1
        compared = model[:-1].transform(X) if several else X
    Z = _features(compared, np.concatenate([free[candidates], labelled]))
    chosen = candidates[_herd(Z[:m], weights, Z[m:], likely[candidates], min(n, m))]
    reasons = np.select([likely, borderline], [LIKELY, BORDERLINE], UNLIKE)[chosen]
    return Suggestion(free[chosen], tuple(reasons.tolist()), scores[free[chosen]])


def _groups(s: Floats, t: float, n: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows are in B and which in F: the highest scores, if no row beyond B is flagged."""
    borderline, highest = np.zeros((2, len(s)), dtype=bool)
    borderline[np.argsort(np.abs(s - t), kind="stable")[: round(_TENTH * len(s))]] = True
    highest[np.argsort(-s, kind="stable")[:n]] = True
    likely = (s > t) & ~borderline
    return borderline, likely if likely.any() else highest


def _weights(borderline: NDArray[np.bool_], likely: NDArray[np.bool_]) -> Floats:
    """Return q, which sums to one."""
    # The common factor 1 / |R| is left out and comes back with the sum.
    p = (1 - _SHARE) + _SHARE * borderline / max(borderline.mean(), 1 / len(borderline))
    p /= p.sum()
    weight = float(p[likely].sum())
    g = (_TENTH - weight) / (1 - weight) if weight < _TENTH else 0.0
    return np.asarray((1 - g) * p + g * likely / likely.sum())


def _features(matrix: Any, places: Places) -> Any:
    """Some rows, each feature divided by its standard deviation."""
    if isinstance(matrix, Table):
        matrix = OneHotImputer().fit_transform(matrix)
    if not sparse.issparse(matrix):
        try:
            matrix = np.asarray(matrix, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"Rows can be compared only in columns of numbers ({error}). For a table with text,"
                " begin the pipeline with riskad.tables.preparation.TablePreparer."
            ) from error
        matrix = matrix.reshape(len(matrix), -1)  # also for images
    # Distances need no centring, which would make sparse features dense.
    scaler = StandardScaler(with_mean=False).fit(matrix)
    Z = scaler.transform(matrix[places])
    if sparse.issparse(Z):
        return Z
    return np.where(np.isnan(Z), scaler.mean_ / scaler.scale_, Z)  # missing values become the mean


def _herd(Z: Any, weights: Floats, labelled: Any, likely: NDArray[np.bool_], n: int) -> Places:
    """The n rows of Z that herding chooses, in order, beside labelled rows."""
    distances = euclidean_distances(Z[:_CANDIDATES], squared=True)
    # Copies of rows would make the median 0.
    distances = distances[distances > 0]
    h = float(np.median(distances)) if distances.size else 1.0  # 1 if all rows are alike
    target = _kernel_sums(Z, Z, h, weights)
    n_labelled = min(labelled.shape[0], _MEMORY * n)
    share = np.full(labelled.shape[0], n_labelled / max(labelled.shape[0], 1))
    covered, alike = _kernel_sums(Z, labelled, h, share), np.zeros(Z.shape[0])
    chosen: list[int] = []
    while len(chosen) < n:
        # Until a tenth is chosen, only likely anomalies come first.
        later = alike if len(chosen) >= _TENTH * n else np.maximum(alike, _LATER * ~likely)
        i = int(np.argmax(target - covered / (n_labelled + len(chosen) + 1) - later))
        chosen.append(i)
        distances = euclidean_distances(Z, Z[[i]], squared=True)[:, 0]
        covered += np.exp(-distances / h)
        # Twice the penalty of coming later: near copies come after everything else.
        alike[distances <= _ALIKE**2 * h] = 2 * _LATER
        alike[i] = np.inf
    return np.array(chosen, dtype=np.intp)


def _kernel_sums(Z: Any, others: Any, h: float, weights: Floats) -> Floats:
    """sum_j weights_j k(z_i, others_j) for each row of Z."""
    if not others.shape[0]:
        return np.zeros(Z.shape[0])
    sums = pairwise_distances_chunked(
        Z, others, reduce_func=lambda part, start: np.exp(-part / h) @ weights, squared=True
    )
    return np.concatenate(list(sums))
