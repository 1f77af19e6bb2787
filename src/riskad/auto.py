r"""AutoRAD: several kinds of detector over features that all rows teach, combined by held-out labels.

Labels are few and the pile is large. So the pile teaches the representation
(`riskad.features.LearnedFeatures`), in two views of the columns, and labelled rows decide on it:

| member | what it is | sees |
|---|---|---|
| forest | `ForestRAD` | columns, outlier scores, components of columns and kernels, distances |
| smooth forest | `ForestRAD` | the smooth view: columns, outlier scores, components |
| kernel | `ShallowRAD` | the smooth view: Gaussian kernels, outlier scores |
| boosted | `BoostedRAD` | as the smooth forest, if LightGBM is installed |
| linear | `ShallowRAD` | the smooth view: columns |
| deep | `DeepRAD` | as the smooth forest, if asked for |

Each member's scores are brought to mean 0 and standard deviation 1 on the pile and averaged with
weights w_k. With A_k the AUC of member k on held-out labelled rows, A the best of them and SE the
standard error of A,

    w_k  ~  exp(-(A - A_k) / SE):

what is clearly worse counts little, and since SE is large where anomalies are few, weights are then
nearly equal. With fewer than two labelled rows of a kind nothing can be held out, and they are.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from riskad._checks import DataWarning, InputError, check_in_interval
from riskad.base import Detector, one_blas_thread
from riskad.features import LearnedFeatures, NeighbourDistances
from riskad.forest import ForestRAD
from riskad.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.losses import get_loss
from riskad.metrics import Auc, auc_of_folds, labelled_folds
from riskad.risks import get_risk
from riskad.selection import FEWEST_FOR_AUC, Candidate, choose
from riskad.shallow import ShallowRAD
from riskad.thresholds import zero_one_threshold

__all__ = ["AutoRAD"]

_MAX_ROWS = 20_000  # rows that members learn from; beyond it the pile is sampled
_MAX_LABELLED = 10_000
_PILE_ROWS = 2_000  # whose scores set the scale of a member's scores in a fold
_SPLITS = 5
_WIDE_SPARSE = 1_000  # columns beyond which a sparse matrix is reduced
_REDUCED = 100
_A, _PRIOR, _LAMBDA = 0.02, 0.8, 0.003
_KERNEL_LOSS = "squared"
_KERNEL_CHOICES = [
    Candidate(a, prior, lam)
    for a in (_A, 0.1)
    for prior in (_PRIOR, 0.95)
    for lam in (_LAMBDA, 0.001, 0.01)
]
_FREE_INTERCEPT = 10.0
_VIEWS = {
    "plain": LearnedFeatures(("columns", "outliers", "components", "shapes", "distances")),
    "smooth": LearnedFeatures(
        ("columns", "outliers", "components", "kernels"), smooth=True, widths=(1.0, 2.0, 4.0)
    ),
}


# --- members ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Recipe:
    """How a member is made: which parts of which view it sees, and the unfitted detector."""

    name: str
    view: str
    parts: tuple[str, ...]
    build: Callable[[_Labels, int], Any]
    """From the labels and a seed."""


@dataclass(frozen=True)
class _Labels:
    """What the labels allow."""

    normal: int
    anomaly: int
    unlabelled: int

    @property
    def risk(self) -> str:
        """The risk for which all kinds of row are there."""
        if not self.normal:
            return "nu"
        if not self.anomaly:
            return "pu"
        return "rad" if self.unlabelled else "pn"

    @property
    def labelled_risk(self) -> str:
        """The same for members that take the pile as their teacher of features alone."""
        return "pn" if self.risk == "rad" else self.risk


def _forest(labels: _Labels, seed: int) -> ForestRAD:
    return ForestRAD(risk=labels.labelled_risk, prior=_PRIOR, random_state=seed)


def _kernel(labels: _Labels, seed: int) -> ShallowRAD:
    return ShallowRAD(
        _KERNEL_LOSS,
        risk=labels.risk,
        a=_A,
        prior=_PRIOR,
        lam=_LAMBDA,
        scale=False,
        intercept_scaling=_FREE_INTERCEPT,
        random_state=seed,
    )


def _linear(labels: _Labels, seed: int) -> ShallowRAD:
    if labels.risk == "rad":
        return ShallowRAD(select="cv", random_state=seed)
    return ShallowRAD(risk=labels.risk, lam=0.1, random_state=seed)


def _boosted(labels: _Labels, seed: int) -> Any:
    from riskad.boosted import BoostedRAD

    return BoostedRAD(risk=labels.risk, a=_A, prior=_PRIOR, random_state=seed)


def _deep(labels: _Labels, seed: int) -> Any:
    from riskad.deep.detectors import DeepRAD

    risk = labels.risk if labels.risk == "pn" else "nn" + labels.risk
    return DeepRAD(risk=risk, prior=_PRIOR, random_state=seed)


_TABLE = ("columns", "outliers", "components")
_RECIPES = (
    _Recipe("forest", "plain", (*_TABLE, "shapes", "distances"), _forest),
    _Recipe("smooth forest", "smooth", _TABLE, _forest),
    _Recipe("kernel", "smooth", ("kernels", "outliers"), _kernel),
    _Recipe("boosted", "smooth", _TABLE, _boosted),
    _Recipe("linear", "smooth", ("columns",), _linear),
    _Recipe("deep", "smooth", _TABLE, _deep),
)


# --- the detector -------------------------------------------------------------------------------


class AutoRAD(Detector):
    r"""Anomaly detection from few labels and a contaminated pile, without settings.

    Fits several kinds of detector to features learned from all rows, and averages their scores with
    weights from held-out labelled rows (`riskad.auto` says how). Columns may have gaps (NaN), and
    those of a pandas or polars frame may hold text or categories. With labels of one kind alone
    members take a risk that needs no others. Of more than 20,000 rows the pile is sampled.

    Parameters
    ----------
    budget : float, default=60.0
        Seconds that a fit may take. When they run short rows are sampled, fewer labels are held
        out, and members are left out, the slowest first; one is always fitted.
    deep : bool, default=False
        Whether a network (`DeepRAD`; needs torch) is a member, too.
    verbose : bool, default=False
        Whether to print what is being done.
    n_jobs : int, default=1
        Trees grown at a time.
    random_state : int, optional
        Seed. None is 0: the same data gives the same model, unless the budget runs short.

    Attributes
    ----------
    members_ : dict
        The fitted detectors by name.
    weights_ : dict
        The weight of each in the score; they add up to 1.
    leaderboard_ : list of dict
        For each member its weight, its AUC on held-out labelled rows (None where nothing could be
        held out) and the seconds it took, the best first.
    auc_ : Auc or None
        AUC of the weighted average on held-out labelled rows, with its interval.
    prior_ : float
        Share of normal rows in the pile: estimated from held-out scores, or 0.8 where labels are
        too few to tell.
    offset_ : float
        Threshold on `score_samples`: where the zero-one risk of held-out labelled rows and the pile
        is lowest (`riskad.thresholds`).
    n_features_in_, feature_names_in_ :
        Columns seen in fit.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (450, 2)), rng.normal(0, 3, (50, 2))])
    >>> y = np.zeros(500, dtype=int)           # nobody checked these
    >>> y[:40], y[-10:] = 1, -1                # 40 known normal rows, 10 known anomalies
    >>> model = AutoRAD().fit(X, y)
    >>> model.predict([[0.0, 0.0], [9.0, 0.0], [0.0, -9.0]])  # no line tells these apart
    array([ 1, -1, -1])
    """

    def __init__(
        self,
        *,
        budget: float = 60.0,
        deep: bool = False,
        verbose: bool = False,
        n_jobs: int = 1,
        random_state: int | None = None,
    ):
        self.budget = budget
        self.deep = deep
        self.verbose = verbose
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> AutoRAD:
        """Fit to rows X with labels y.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n_rows, n_features)
            Training rows: numbers, gaps, and in a frame text.
        y : array of shape (n_rows,)
            +1 normal, -1 anomaly, 0 unlabelled. `riskad.parse_labels` translates other spellings.
        """
        clock = _Clock(check_in_interval("budget", self.budget, 0, np.inf))
        with one_blas_thread(), _quiet():
            return self._fit(X, y, clock)

    def _fit(self, X: Any, y: Any, clock: _Clock) -> AutoRAD:
        matrix = self._check_rows(X, reset=True)
        codes, _ = self._check_labels(matrix, y, None)
        self._check_kinds(codes)
        rows = self._sampled(codes, clock.rows(matrix.shape))
        codes = codes[rows]
        self._say(f"Learning features from {len(rows):,} rows")
        matrix = self._fit_table(matrix[rows])
        views = self._fit_views(matrix, codes)
        self._fit_members(views, codes, clock)
        held_out = self._hold_out(views, codes, clock)
        self._weigh(held_out, codes)
        self._decide(views, codes, held_out)
        return self
