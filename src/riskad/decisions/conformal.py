r"""p-values of being normal, from labelled normal rows, and selection at a false discovery rate.

With s_1, ..., s_n the anomaly scores of labelled normal rows, by fits that have not seen them, the
p-value of a row with score s is

    p = (1 + #{i : s_i >= s}) / (n + 1).

If the row is normal and exchangeable with the labelled normal rows, then P(p <= q) <= q for every
q: at most two normal rows in a hundred have a p-value of 0.02 or less, whatever the scores mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from scipy.stats import false_discovery_control

from riskad.core.checks import InputError, check_in_interval
from riskad.storage.fields import NUMBER, Array, Fields

__all__ = ["DensityRatio", "FdrSelection", "conformal_p_values", "select_at_fdr"]

_LARGEST_RATIO = 20.0  # a row that represents more than this many others is not reliable


def conformal_p_values(
    normals: Any, scores: Any, weights: Any = None, row_weights: Any = None
) -> np.ndarray:
    r"""p-values of rows being normal, from the anomaly scores of n labelled normal rows.

    With weights w, the labelled normal rows may come from another distribution P than the tested
    normal rows Q (Tibshirani et al., 2019): with w = dQ/dP,

        p(x) = (w(x) + sum_i w_i [s_i >= s(x)]) / (w(x) + sum_i w_i).

    Parameters
    ----------
    normals : array of n
        Anomaly scores (high = anomalous) of labelled normal rows, by fits that have not seen them.
    scores : array of m
        Anomaly scores of the tested rows. Ties count against the row.
    weights, row_weights : arrays of n and m, optional
        w of the labelled normal rows and of the tested rows; one for all if not given.

    Returns
    -------
    ndarray
        A p-value for each row.

    Examples
    --------
    >>> conformal_p_values([1.0, 2.0, 3.0], [0.0, 2.0, 4.0])
    array([1.  , 0.75, 0.25])
    """
    normals, scores = (np.asarray(each, dtype=float) for each in (normals, scores))
    w = np.ones(len(normals)) if weights is None else np.asarray(weights, dtype=float)
    own = np.ones(len(scores)) if row_weights is None else np.asarray(row_weights, dtype=float)
    order = np.argsort(normals)
    below = np.concatenate([[0.0], np.cumsum(w[order])])
    total = below[-1]
    above = total - below[np.searchsorted(normals[order], scores, side="left")]
    return np.minimum((own + above) / (own + total), 1.0)


_SHOWN = 10  # rows of which the share of anomalies is told where no list is as pure as wanted

# --- false discovery rate -----------------------------------------------------------------


@dataclass(frozen=True)
class FdrSelection:
    """Rows selected at a false discovery rate, and what is possible with so many normal rows."""

    selected: np.ndarray
    """Whether each row is selected."""
    fdr: float
    n_normal: int
    probabilities: np.ndarray | None = None
    """Estimated probability of each row of being an anomaly, if known."""

    @property
    def n_selected(self) -> int:
        """Number of selected rows."""
        return int(self.selected.sum())

    @property
    def smallest_p(self) -> float:
        """1 / (n + 1), the p-value of a row that scores above all n labelled normal rows."""
        return 1 / (self.n_normal + 1)

    @property
    def fewest(self) -> int:
        """The fewest rows that can be selected: k with 1 / (n + 1) <= fdr k / m, if any are.

        More than m if not even all of them would be enough.
        """
        m = len(self.selected)
        if self.smallest_p > self.fdr:
            return m + 1
        return max(1, math.ceil(m * self.smallest_p / self.fdr - 1e-9))

    @property
    def n_likely(self) -> int:
        """How many rows a list may have whose mean probability of being normal is at most `fdr`.

        Probabilities are estimates: unlike the selection, such a list promises nothing.
        """
        if self.probabilities is None:
            return 0
        means = np.cumsum(np.sort(1 - self.probabilities)) / np.arange(1, len(self.selected) + 1)
        return int((means <= self.fdr).sum())  # means rise with the length of the list

    def _instead(self) -> str:
        """What can be said where nothing is selected."""
        if self.n_selected or self.probabilities is None or not len(self.selected):
            return ""
        k = min(self.n_likely or _SHOWN, len(self.selected))
        precision = float(np.sort(self.probabilities)[-k:].mean())
        return (
            f". By their probabilities, which are estimates and no guarantee, about "
            f"{precision:.0%} of the {k:,} most suspicious rows are anomalies"
        )

    def __str__(self) -> str:
        rows = len(self.selected)
        limit = (
            f"{self.n_normal:,} labelled normals tell no p-value below 1/{self.n_normal + 1:,} = "
            f"{self.smallest_p:.2g}"
        )
        if self.fewest > rows:
            limit += f": at {self.fdr:g} nothing can be selected, however anomalous"
        elif self.fewest > 1:
            limit += (
                f": at {self.fdr:g} either no row is selected or at least {self.fewest:,}, which "
                "must score above nearly all of them"
            )
        return (
            f"{self.n_selected:,} of {rows:,} rows selected, of which on average at most "
            f"{self.fdr:.0%} are normal; {limit}{self._instead()}"
        )


def select_at_fdr(
    p_values: Any, fdr: float, n_normal: int, probabilities: np.ndarray | None = None
) -> FdrSelection:
    """Select rows so that on average at most the share `fdr` of them is normal.

    Applies Benjamini and Hochberg's procedure: selects the k smallest p-values, for the largest k
    such that the k-th is at most fdr k / m. It is valid for conformal p-values, which depend on
    each other through the labelled normal rows that they share (Bates et al., 2023). No other
    procedure selects much more where anomalies are few: an estimate of the number of normal rows
    allows at most the factor 1 / (1 - rate).

    Parameters
    ----------
    p_values : array of m
        p-values from `Detector.p_values` or `conformal_p_values`.
    fdr : float in (0, 1)
        The false discovery rate.
    n_normal : int
        Number of labelled normal rows behind the p-values; the selection states their limits.
    probabilities : array of m, optional
        Probabilities of being an anomaly: what can be said where nothing is selected.

    Returns
    -------
    FdrSelection
        The selected rows, and what is possible with so many normal rows.

    Examples
    --------
    >>> p = np.array([0.05, 0.05, 0.4, 0.9])
    >>> print(select_at_fdr(p, 0.1, n_normal=19))
    2 of 4 rows selected, of which on average at most 10% are normal; 19 labelled normals tell no \
p-value below 1/20 = 0.05: at 0.1 either no row is selected or at least 2, which must score above \
nearly all of them
    """
    fdr = check_in_interval("fdr", fdr, 0, 1, "It is the share of false alarms among the selected.")
    p = np.asarray(p_values, dtype=float)
    selected = false_discovery_control(p) <= fdr * (1 + 1e-12) if len(p) else np.zeros(0, bool)
    return FdrSelection(selected, fdr, int(n_normal), probabilities)


# --- labelled normal rows that differ from the unlabelled rows ---------


@dataclass(frozen=True)
class DensityRatio:
    r"""w(x): how much more frequent normal rows like x are among the unlabelled rows than among the
    labelled ones.

    A logistic regression separates the normal rows among the unlabelled rows from labelled normal
    rows. With its log odds b + c'z(x), z being the standardised columns, w(x) = exp(b + c'z),
    within 1/20 and 20.
    """

    mean: np.ndarray
    scale: np.ndarray
    coef: np.ndarray
    intercept: float

    _state_fields: ClassVar[Fields] = {
        "mean": Array("f", ("columns",)),
        "scale": Array("f", ("columns",), low=np.nextafter(0, 1)),
        "coef": Array("f", ("columns",)),
        "intercept": NUMBER,
    }

    @classmethod
    def between(cls, normals: Any, unlabelled: Any, weights: np.ndarray) -> DensityRatio:
        """Learn w from labelled normal rows and unlabelled rows, given their P(normal)."""
        from sklearn.linear_model import LogisticRegression

        X = (
            sparse.vstack([normals, unlabelled])
            if sparse.issparse(unlabelled)
            else np.vstack([normals, unlabelled])
        )
        kind = np.repeat([0, 1], [normals.shape[0], unlabelled.shape[0]])
        # Both kinds weigh as much as there are labelled normal rows, so that only their number
        # determines the influence of the penalty, which pulls w to 1.
        own = np.concatenate([np.ones(normals.shape[0]), weights * len(kind[kind == 0])])
        own[kind == 1] /= max(weights.sum(), 1e-12)
        mean, scale = _columns(X)
        model = LogisticRegression(max_iter=200).fit(_standardised(X, mean, scale), kind, own)
        return cls(mean, scale, model.coef_[0], float(model.intercept_[0]))

    def __call__(self, X: Any) -> np.ndarray:
        """w(x) for each row."""
        log_w = _standardised(X, self.mean, self.scale) @ self.coef + self.intercept
        limit = math.log(_LARGEST_RATIO)
        return np.exp(np.clip(log_w, -limit, limit))


def _columns(X: Any) -> tuple[np.ndarray, np.ndarray]:
    """What to subtract from columns and divide them by; sparse ones are not centred."""
    if sparse.issparse(X):
        scale = np.sqrt(np.asarray(X.multiply(X).mean(axis=0))).ravel()
        mean = np.zeros(X.shape[1])
    else:
        mean, scale = X.mean(axis=0), X.std(axis=0)
    return mean, np.where(scale > 0, scale, 1.0)


def _standardised(X: Any, mean: np.ndarray, scale: np.ndarray) -> Any:
    if sparse.issparse(X):
        return (X @ sparse.diags_array(1 / scale)).tocsr()
    return (np.asarray(X, dtype=float) - mean) / scale


def check_normals(n: int, what: str) -> None:
    """Refuse if there are no held-out labelled normal rows."""
    if n < 2:
        raise InputError(
            f"{what} rest on labelled normals that fits have not seen, and there are {n}. Label at "
            "least 2 normal rows, better 50, and calibrate again."
        )
