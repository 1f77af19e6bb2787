"""Which labels look wrong, from scores by fits that have not seen them.

Each labelled row has a held-out anomaly score s, and its label y (1 anomaly, 0 normal) may be
wrong. With t its true kind,

    P(t = 1 | s) = expit(c + b s),    P(y = 1 | t = 0) = alpha,    P(y = 0 | t = 1) = beta,

so that P(y = 1 | s) = alpha + (1 - alpha - beta) expit(c + b s): wrong labels put a floor under the
line of `riskad.decisions.score_line` and a ceiling over it, which overlap of the kinds does not.
The numbers are found by EM, with a Newton step for the line. b is pulled up to slopes of clean
labels of real tables. The share of all labels that are wrong has a weak prior, and alpha and beta
are shrunk towards it, as if it had been seen on `_ALIKE` more rows of each kind. Then

    P(wrong | y = 1, s) = alpha (1 - p) / (alpha (1 - p) + (1 - beta) p),    p = expit(c + b s)

and likewise for normal rows. Their sum is how many wrong labels to expect. Its interval is what the
error of `AutoRAD` was on tables with labels turned around at random
(`experiments/studies/wrong_labels.py`): scores of real tables follow no such line, and draws from
the model would tell too little of it.

**No false alarms on clean labels.** Scores that separate the kinds imperfectly contradict some
right labels, too. Labels are drawn from the line without wrong ones, with the same scores, and both
models are fitted to them: the p-value is the share of draws in which wrong labels improve the
likelihood as much as in the data. Unless it is at most `LEVEL`, none stands out. Anomalies of a
kind that the others do not teach score like normal rows, and no score can tell them from wrong
labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, xlogy

from riskad.core.labels import ANOMALY, UNLABELLED, check_codes, check_rows_match
from riskad.decisions.calibration import held_out_scores
from riskad.metrics.ranking import Estimate
from riskad.rows.equal_rows import group_equal_rows, number_copies, repeats_label
from riskad.rows.table import as_table

LEVEL = 0.1  # p-value at which labels stand out: in a tenth of tables with clean labels, or fewer
FEWEST = 5  # labelled rows of each kind; a wrong one among fewer is as likely a rare kind
_LIKELY = 0.5  # probability above which a label looks wrong
_DRAWS = 199  # p-values have steps of 1/200
_STEPS, _TOLERANCE = 100, 1e-3
_MOST_BINS = 150  # of scores; a bin holds a row, or several neighbours of many
_USUAL_SLOPE, _SLOPE_SPREAD = 1.5, 0.7  # of clean labels, per standard deviation of scores
_WEAK = 1 / 10**2  # penalty on steeper slopes: kinds may be far apart
_PRIOR_WRONG, _PRIOR_LABELS = 1.0, 40.0  # so many of so many labels count as wrong beforehand
_ALIKE = 20.0
_CONFIDENCE = 0.95
# Wrong labels for each expected one, where labels stand out and where none does: 95 % of 60 fits.
_STANDING_OUT, _OTHERWISE = (0.4, 1.7), (0.0, 6.0)


@dataclass(frozen=True, eq=False)
class LabelIssues:
    """Labels that look wrong; rows are numbered as in the labels given."""

    rows: NDArray[np.intp]  # whose label looks wrong, the most probable first; or none
    probabilities: NDArray[np.float64]  # of a wrong label, or NaN without a held-out score
    expected: Estimate | None  # how many are wrong; None if there are too few of a kind to tell
    p_value: float | None

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        checked = int((~np.isnan(self.probabilities)).sum())
        if self.expected is None:
            return f"too few labels to tell which are wrong: it takes {FEWEST} of each kind"
        expected = (
            f"about {self.expected.value:.0f} are expected to be wrong (95% interval "
            f"{self.expected.low:.0f} to {self.expected.high:.0f})"
        )
        if not len(self):
            return f"none of your {checked:,} labels stands out as wrong"
        what = "label looks" if len(self) == 1 else "labels look"
        return f"{len(self):,} of your {checked:,} {what} wrong; {expected}"


def find_label_issues(scores: Any, codes: Any, seed: int = 0) -> LabelIssues:
    """Find labels that look wrong.

    `scores` are anomaly scores by fits that have not seen the label, NaN where there is none, and
    `codes` +1 normal, -1 anomaly; rows with 0 are left out.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> codes = np.repeat([1, -1], [180, 20])
    >>> scores = rng.normal(np.where(codes == 1, 0, 6))
    >>> codes[:6] = -1  # six normal rows, called anomalies
    >>> issues = find_label_issues(scores, codes)
    >>> sorted(issues.rows.tolist())
    [0, 1, 2, 3, 4, 5]
    """
    scores, codes = np.asarray(scores, dtype=float), np.asarray(codes)
    judged = np.flatnonzero((codes != UNLABELLED) & ~np.isnan(scores))
    probabilities = np.full(len(codes), np.nan)
    none = np.empty(0, dtype=np.intp)
    y = codes[judged] == ANOMALY
    m, n = int(y.sum()), len(y)
    if min(m, n - m) < FEWEST:
        return LabelIssues(none, probabilities, None, None)
    s = scores[judged]
    z = (s - s.mean()) / (s.std() or 1.0)
    # Mean scores of neighbours, how many rows they are, and how many labelled as anomalies.
    parts = np.array_split(np.argsort(z, kind="stable"), min(n, _MOST_BINS))
    numbers = [(z[part].mean(), len(part), y[part].sum()) for part in parts]
    bins, rows, anomalies = np.array(numbers, dtype=float).T
    noisy, improved = _fit(bins, rows, anomalies[None])
    clean, likelihood = _fit(bins, rows, anomalies[None], noise=False)
    rng = np.random.default_rng(seed)
    # A parametric bootstrap: labels as they would be if none were wrong, at the same scores.
    drawn = rng.binomial(rows.astype(int), np.tile(clean.probabilities(bins), (_DRAWS, 1)))
    gains = _fit(bins, rows, drawn)[1] - _fit(bins, rows, drawn, noise=False)[1]
    # A tie counts: on separate kinds neither model leaves anything to improve.
    p_value = float((1 + (gains >= (improved - likelihood)[0] - 1e-9).sum()) / (_DRAWS + 1))
    as_anomaly, as_normal = noisy.wrong(z)
    probabilities[judged] = np.where(y, as_anomaly[0], as_normal[0])
    total = float(probabilities[judged].sum())
    expected = Estimate(total, *number_interval(total, p_value, n), n - m, m, _CONFIDENCE)
    likely = judged[probabilities[judged] > _LIKELY] if p_value <= LEVEL else none
    order = np.argsort(-probabilities[likely], kind="stable")
    return LabelIssues(likely[order], probabilities, expected, p_value)


def label_issues(model: Any, X: Any, y: Any, *, random_state: int = 0) -> LabelIssues:
    """Find labels that look wrong to a fitted detector, or a pipeline that ends in one.

    Held-out scores of the model are used if it has them, as `AutoRAD` does; otherwise it is fitted
    again for five folds.

    Parameters
    ----------
    model
        The model, fitted to X and y.
    X, y
        The rows it was fitted to, and their codes +1 normal, -1 anomaly, 0 unlabelled.
    random_state
        Seed of folds and draws.

    Returns
    -------
    LabelIssues
        `rows`, the positions of labels that look wrong, the most probable first, and more.

    Examples
    --------
    >>> from riskad import ShallowRAD, label_issues
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (300, 2)), rng.normal(4, 1, (40, 2))])
    >>> y = np.repeat([1, 0, -1], [150, 150, 40])
    >>> y[:10] = -1  # ten normal rows, called anomalies
    >>> issues = label_issues(ShallowRAD().fit(X, y), X, y)
    >>> sorted(issues.rows.tolist())
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    detector = model[-1] if hasattr(model, "steps") else model
    X, codes = as_table(X), check_codes(y)
    check_rows_match(X, codes)
    single = (codes != UNLABELLED) & ~repeats_label(codes, number_copies(X, codes))
    calibration = getattr(detector, "calibration_", None)
    # Held-out scores cost five fits; those of the model are of these rows if the labels agree.
    if calibration is not None and np.array_equal(calibration.codes, codes[single]):
        scores = np.full(len(codes), np.nan)
        scores[single] = calibration.scores
    else:
        groups = group_equal_rows(X, codes, None)
        fitted = -model.score_samples(X)
        scores = held_out_scores(model, X, codes, fitted, groups, random_state=random_state)
    return find_label_issues(scores, codes, random_state)


def number_interval(expected: float, p_value: float, n: int) -> tuple[float, float]:
    """Return between which numbers that of wrong ones among n labels is, at random ones."""
    least, most = _STANDING_OUT if p_value <= LEVEL else _OTHERWISE
    return max(least * (expected + 1) - 1, 0.0), min(most * (expected + 1) - 1, float(n))


class _NoisyLine(NamedTuple):
    """The model, with a number of each kind for every draw of labels."""

    intercept: NDArray[np.float64]
    slope: NDArray[np.float64]
    alpha: NDArray[np.float64]
    beta: NDArray[np.float64]

    def probabilities(self, z: np.ndarray) -> np.ndarray:
        """P(t = 1 | s)."""
        return np.asarray(expit(self.intercept[:, None] + self.slope[:, None] * z))

    def wrong(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """P(wrong) at each score, of a row labelled as an anomaly and as a normal row."""
        p, a, b = self.probabilities(z), self.alpha[:, None], self.beta[:, None]
        as_anomaly, as_normal = a * (1 - p) + (1 - b) * p, b * p + (1 - a) * (1 - p)
        tiny = np.finfo(float).tiny
        return a * (1 - p) / np.maximum(as_anomaly, tiny), b * p / np.maximum(as_normal, tiny)


def _fit(
    z: np.ndarray, rows: np.ndarray, anomalies: np.ndarray, noise: bool = True
) -> tuple[_NoisyLine, np.ndarray]:
    """Fit the model, or the line without wrong labels, to each draw; also the log likelihood."""
    # `anomalies` holds a line of counts for each draw.
    n, normals, size = rows.sum(), rows - anomalies, len(anomalies)
    usual = _USUAL_SLOPE if noise else 0.0
    start = np.full(size, 0.05 if noise else 0.0)
    line = _NoisyLine(logit((anomalies.sum(axis=1) + 0.5) / (n + 1)), np.ones(size), start, start)
    value = np.full(size, -np.inf)
    for _ in range(_STEPS):
        from_anomalies, from_normals = line.wrong(z)
        true = anomalies * (1 - from_anomalies) + normals * from_normals
        # Only flatter slopes are pulled hard: wrong labels flatten the line.
        weak = np.where(line.slope < usual, _SLOPE_SPREAD**-2.0, _WEAK)
        p = line.probabilities(z)
        residual, w = rows * p - true, rows * p * (1 - p)
        g_c, g_b = residual.sum(axis=1), residual @ z + weak * (line.slope - usual)
        h_cc, h_cb, h_bb = w.sum(axis=1) + 1e-6, w @ z, w @ z**2 + weak
        det = h_cc * h_bb - h_cb**2
        step_c, step_b = (h_bb * g_c - h_cb * g_b) / det, (h_cc * g_b - h_cb * g_c) / det
        # All draws take their steps together; one that starts far away must not leap.
        short = np.minimum(1.0, 2 / np.maximum(np.hypot(step_c, step_b), 1e-12))
        alpha, beta = line.alpha, line.beta
        if noise:
            wrong_a = (anomalies * from_anomalies).sum(axis=1)
            wrong_n = (normals * from_normals).sum(axis=1)
            both, of_true = wrong_a + wrong_n, true.sum(axis=1)
            both = (both + _PRIOR_WRONG) / (n + _PRIOR_LABELS)
            alpha = (wrong_a + _ALIKE * both) / (n - of_true + _ALIKE)
            beta = (wrong_n + _ALIKE * both) / (of_true + _ALIKE)
        line = _NoisyLine(line.intercept - short * step_c, line.slope - short * step_b, alpha, beta)
        p, a, b = line.probabilities(z), alpha[:, None], beta[:, None]
        as_anomaly = np.clip(a + (1 - a - b) * p, 1e-300, 1.0)
        as_normal = np.clip(b + (1 - a - b) * (1 - p), 1e-300, 1.0)
        before = value
        value = (xlogy(anomalies, as_anomaly) + xlogy(normals, as_normal)).sum(axis=1)
        if (np.abs(value - before) < _TOLERANCE).all():
            break
    return line, value
