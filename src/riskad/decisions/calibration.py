"""The basis of decisions: scores of labelled rows by fits that have not seen them, and scores of
the unlabelled rows, with the anomaly rate (`riskad.decisions.anomaly_rate`) and the line through
them (`riskad.decisions.score_line`).

`calibrate` refits any detector to folds; `riskad.AutoRAD` holds rows out in its own `fit`.
Thresholds, p-values, probabilities and the AUC all use the same fits. Each fit has its own scale of
scores. With F_k and F the distributions of the scores of the fit to fold k and of the fit to all
rows, over the rows that both have seen,

    s  ->  F^{-1}(F_k(s))

maps a score of the former to the scale of the latter: as many rows are above it in both.

A new normal row is exchangeable with a labelled one, except that its fit has seen some more labels.
So p-values hold their level nearly, not exactly; `experiments/studies` show how close it is. The
bound of cross-conformal prediction (Vovk, 2015) would require applying the fits of all folds, and
is twice the level.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Annotated, Any, Self

import numpy as np
from scipy.special import expit, logit
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import _safe_indexing

from riskad.core.checks import DataWarning, InputError
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, check_codes, check_rows_match
from riskad.decisions.anomaly_rate import (
    FEWEST,
    FEWEST_UNLABELLED,
    LABEL_SOURCES,
    SURPRISE,
    RateEstimate,
    as_rate_estimate,
    check_label_source,
    estimate_rate,
    random_p_value,
)
from riskad.decisions.conformal import check_normals, conformal_p_values
from riskad.decisions.score_line import ScoreLine
from riskad.files import fields
from riskad.metrics.folds import Split, as_groups, cross_splits
from riskad.metrics.ranking import FoldScores, GroupEffect
from riskad.rows.equal_rows import group_equal_rows, number_copies, repeats_label
from riskad.rows.table import as_table

# Unlabelled rows that fits of folds score: quantiles between them differ by 1/20,000 of the rows.
_MOST_SCORED = 20_000
_MOST = 20_000  # scores that are kept, in 160 KB of a model file; more are reduced to quantiles
_MOST_HELD = 2_000  # scores of unlabelled rows by fits of folds that are kept
_MOST_NORMAL = 500  # unlabelled rows that stand in for normal ones
_FARTHEST = 1e150  # of a stored score: its square is a number
_SEGMENTS = fields.Record(("Segments",), {"labelled": "labelled"})
_scores = partial(fields.Array, "f", low=-_FARTHEST, high=_FARTHEST)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Scores to decide by; all are anomaly scores (high = anomalous) on the scale of the fit."""

    # Of labelled rows, each by a fit that has not seen it, and their codes.
    scores: Annotated[np.ndarray, _scores(("labelled",))]
    codes: Annotated[np.ndarray, fields.Array("i", ("labelled",), -1, 1)]
    # Of unlabelled rows, by the fit to all rows, in ascending order; of many, quantiles.
    unlabelled: Annotated[np.ndarray, _scores(("kept",), rising=True)]
    n_unlabelled: Annotated[int, fields.COUNT]
    zero: float  # the threshold that the fit itself found, where its risk is lowest
    rate: RateEstimate | None = None  # of the unlabelled rows; None if there are none
    # Of unlabelled rows, each by a fit that has not seen it, in ascending order.
    held_unlabelled: Annotated[np.ndarray, _scores(("held",), rising=True)] = field(
        default_factory=lambda: np.empty(0)
    )
    label_source: Annotated[str, fields.Text(choices=LABEL_SOURCES)] = "unknown"
    # p-value of the labelled rows being a random sample, by their scores; None without scores.
    random_p_value: Annotated[float | None, fields.Maybe(fields.SHARE)] = None
    # How many labelled rows are worth as much as one that shares its group with no other.
    group_effect: Annotated[float, fields.Number(1)] = 1.0
    # Thresholds by segment (`riskad.decisions.segments`), if they were asked for.
    segments: Annotated[Any, fields.Optional(fields.Maybe(_SEGMENTS))] = None

    @classmethod
    def _check_state(cls, state: fields.State) -> None:
        kept, n_unlabelled, rate = len(state["unlabelled"]), state["n_unlabelled"], state["rate"]
        labelled = bool((state["codes"] != UNLABELLED).all())
        fields.require(labelled, "codes: a labelled row without a label")
        fields.require(kept <= n_unlabelled, "n_unlabelled: fewer than their scores")
        fields.require(kept > 0 or not n_unlabelled, "unlabelled: none of their scores")
        within = rate is None or rate.low <= rate.value <= rate.high
        fields.require(within, "rate: not within its interval")

    @classmethod
    def of(
        cls,
        held_out: Any,
        y: Any,
        fitted: Any,
        zero: float,
        pi_n: Any = None,
        random_state: int | None = None,
        label_source: Any = "unknown",
    ) -> Self:
        """Combine what is known about all rows.

        `held_out` are anomaly scores by fits that have not seen the row, on the scale of `fitted`
        (NaN for rows that all fits have seen); `fitted` are those of the fit to all rows, with its
        threshold `zero`.
        """
        codes = np.asarray(check_codes(y))
        held_out, fitted = (np.asarray(each, dtype=float) for each in (held_out, fitted))
        source = check_label_source(label_source, len(codes))
        scored = ~np.isnan(held_out)
        labelled = (codes != UNLABELLED) & scored
        pile = np.sort(held_out[(codes == UNLABELLED) & scored])
        unlabelled = np.sort(fitted[codes == UNLABELLED])
        # First without a rate: it takes the draft's own properties to find which labels count.
        draft = cls(
            held_out[labelled],
            codes[labelled],
            _thinned(unlabelled),
            len(unlabelled),
            float(zero),
            held_unlabelled=_thinned(pile, _MOST_HELD),
        )
        rate: RateEstimate | None = None if pi_n is None else as_rate_estimate(pi_n)
        if rate is None:
            counted, scores, compared = labelled, draft.scores, draft._compared
            if not (draft.has_both_kinds or draft.anomalies_alone):  # labels are only counted
                counted = codes != UNLABELLED
                scores, compared = np.zeros(int(counted.sum())), np.empty(0)
            rate = estimate_rate(
                scores,
                codes[counted] == ANOMALY,
                compared,
                len(unlabelled),
                source=source if isinstance(source, str) else source[counted],
                seed=random_state or 0,
            )
        if not isinstance(source, str):  # "random" if some rows are, since rates use them
            source = "random" if (source[labelled] == "random").any() else "chosen"
        return replace(
            draft,
            rate=rate,
            label_source=source,
            random_p_value=random_p_value(draft.scores, pile) if draft.has_both_kinds else None,
        )

    @property
    def _compared(self) -> np.ndarray:
        """Scores of unlabelled rows to compare with held-out labelled ones."""
        held_out = self.held_unlabelled
        return held_out if len(held_out) >= FEWEST_UNLABELLED else self.unlabelled

    @property
    def has_both_kinds(self) -> bool:
        """Whether there are labelled rows of both kinds, and unlabelled rows."""
        kinds = min(len(self.normals), len(self.anomalies))
        return kinds >= FEWEST and len(self._compared) >= FEWEST_UNLABELLED

    @property
    def anomalies_alone(self) -> bool:
        """Whether there are labelled anomalies, no labelled normal row, and unlabelled rows."""
        enough = len(self.anomalies) >= FEWEST and len(self._compared) >= FEWEST_UNLABELLED
        return enough and not len(self.normals)

    @property
    def normals(self) -> np.ndarray:
        """Scores of the labelled normal rows."""
        return self.scores[self.codes == NORMAL]

    @property
    def anomalies(self) -> np.ndarray:
        """Scores of the labelled anomalies."""
        return self.scores[self.codes == ANOMALY]

    @property
    def pi_n(self) -> float:
        """The anomaly rate; neither 0 nor 1, which no number of rows can establish."""
        if self.rate is None:
            raise InputError(
                "this takes the anomaly rate of the unlabelled rows, and there are none. Leave "
                "rows unlabelled (0), or give the rate: calibrate(..., pi_n=0.05)."
            )
        # Laplace's estimate for no anomaly, or nothing else, among n rows.
        least = 1 / (self.n_unlabelled + 2)
        return min(max(self.rate.value, least), 1 - least)

    @cached_property
    def knows_probabilities(self) -> bool:
        """Whether `anomaly_probability` has a rate, and labelled rows for a line."""
        both = min(len(self.normals), len(self.anomalies)) >= FEWEST
        return self.rate is not None and (both or self.anomalies_alone)

    @property
    def seems_chosen(self) -> bool:
        """Whether labelled rows were chosen, or their scores differ from a random sample."""
        p = self.random_p_value
        return self.label_source == "chosen" or (p is not None and p < SURPRISE)

    def over(self, anomaly_scores: np.ndarray) -> Self:
        """The same calibration with other unlabelled rows."""
        return replace(self, unlabelled=np.sort(anomaly_scores), n_unlabelled=len(anomaly_scores))

    def threshold(self, rule: Any) -> float:
        """The threshold by a rule, of rows of no segment if there are thresholds by segment."""
        whole = rule.of(self) if self.segments is None else self.segments.thresholds(rule, self)[-1]
        return float(whole)

    def p_values(self, anomaly_scores: np.ndarray) -> np.ndarray:
        """p-values of being normal (`riskad.decisions.conformal`)."""
        check_normals(len(self.normals), "p-values")
        return conformal_p_values(self.normals, anomaly_scores)

    def anomaly_probability(self, anomaly_scores: np.ndarray) -> np.ndarray:
        """Probability of being an anomaly, at the anomaly rate; it never falls with the score."""
        return self.line.probabilities(anomaly_scores)

    @cached_property
    def line(self) -> ScoreLine:
        """Log odds of being an anomaly, by score."""
        n, m = len(self.normals), len(self.anomalies)
        over = self._compared if len(self._compared) else self.scores
        if min(n, m) >= FEWEST:
            line = ScoreLine.through(self.scores, self.codes == ANOMALY)
        elif self.anomalies_alone:
            # Unlabelled rows stand in for normal ones, without the highest scores: as many of these
            # are left out as make the mean probability of flagged rows right on real tables.
            likely = round(self.pi_n * len(self._compared) / 2)
            others = _thinned(self._compared[: len(self._compared) - likely], _MOST_NORMAL)
            kinds = np.arange(m + len(others)) < m
            line = ScoreLine.through(np.concatenate([self.anomalies, others]), kinds)
        else:
            raise InputError(
                f"probabilities rest on at least {FEWEST} labelled rows of each kind that fits "
                f"have not seen; there are {n} normal and {m} anomalies. Label more."
            )
        return line.at_rate(self.pi_n, over)

    def likely_rates(self, size: int) -> np.ndarray:
        """Rates that are compatible with the labelled rows, evenly spaced in probability."""
        assert self.rate is not None  # pi_n was asked for
        least = 1 / (self.n_unlabelled + 2)
        return np.clip(self.rate.quantiles(size), least, 1 - least)


def _thinned(ordered: np.ndarray, most: int = _MOST) -> np.ndarray:
    """All scores, or this many evenly spaced quantiles."""
    n = len(ordered)
    return ordered if n <= most else np.interp(np.linspace(0, n - 1, most), range(n), ordered)


def calibrate(
    model: Any,
    X: Any,
    y: Any,
    *,
    pi_n: Any = None,
    random_state: int | None = None,
    groups: Any = None,
    label_source: Any = "unknown",
) -> Any:
    """Add to a fitted detector what thresholds, p-values and probabilities need.

    A copy of the model is fitted for each of five folds; with few rows of a kind, some folds hold
    none of it out, and a row that is the only one of its kind is in every fit. The fit of the model
    itself does not change. Afterwards it has `calibration_`, and `set_threshold`, `p_values` and
    `anomaly_probability` work.

    Parameters
    ----------
    model : detector, or Pipeline that ends in one
        The model, fitted to X and y.
    X, y
        The rows it was fitted to, and their codes +1 normal, -1 anomaly, 0 unlabelled.
    pi_n : float or RateEstimate, optional
        Anomaly rate of the unlabelled rows; by default estimated from the same folds.
    random_state : int, optional
        Seed of the folds; None means 0.
    groups : array, optional
        Group of each row, such as its customer: rows of a group are held out together. A row with a
        blank group (None, NaN) is a group of its own. Copies of a row are one group in any case.
    label_source : str or array of str, default="unknown"
        How rows were chosen for labelling, which affects the anomaly rate: "random", "chosen" or
        "unknown", or a word for each row (`riskad.decisions.anomaly_rate`).

    Returns
    -------
    estimator
        The given model, with its calibration.

    Examples
    --------
    >>> from riskad import ShallowRAD, calibrate
    >>> from riskad.decisions.thresholds import FalseAlarms
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (900, 2)), rng.normal(3, 1, (100, 2))])
    >>> y = np.zeros(1000, dtype=int)
    >>> y[:60], y[-10:] = 1, -1
    >>> model = calibrate(ShallowRAD().fit(X, y), X, y)
    >>> model.set_threshold(FalseAlarms(0.02)).predict([[0.0, 0.0], [4.0, 4.0]])
    array([ 1, -1])
    >>> model.p_values([[0.0, 0.0], [4.0, 4.0]]).round(3)
    array([0.557, 0.016])
    """
    detector = model[-1] if hasattr(model, "steps") else model
    X, codes = as_table(X), check_codes(y)
    if not hasattr(detector, "set_threshold") or not hasattr(detector, "offset_"):
        raise InputError(
            f"calibrate takes a fitted detector of riskad, or a pipeline that ends in one, got "
            f"{model!r}. Call fit first."
        )
    check_rows_match(X, codes)
    fitted = -model.score_samples(X)
    # A rule may have moved `offset_` since the fit.
    zero = detector.calibration_.zero if hasattr(detector, "calibration_") else -detector.offset_
    groups = None if groups is None else as_groups(groups, len(codes))
    groups = group_equal_rows(X, codes, groups)
    held_out = held_out_scores(model, X, codes, fitted, groups, random_state)
    detector.calibration_ = Calibration.of(
        held_out, codes, fitted, zero, pi_n, random_state, label_source
    )
    # The rule in use finds its threshold again, by the new calibration.
    detector.set_threshold(detector.threshold_)
    return model


def held_out_scores(
    template: Any,
    X: Any,
    codes: np.ndarray,
    fitted: np.ndarray,
    groups: np.ndarray | None,
    random_state: int | None = None,
) -> np.ndarray:
    """Scores of `cross_scores` over folds; NaN for copies of a row but the first."""
    splits = cross_splits(codes, random_state=random_state, groups=groups)
    scores = cross_scores(template, X, codes, fitted, splits, random_state)
    # Copies would count the same evidence twice.
    scores[repeats_label(codes, number_copies(X, codes))] = np.nan
    return scores


@contextmanager
def quietly() -> Iterator[None]:
    """Suppress warnings about the data or a fit: of a part of the rows, or shown before."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def cross_scores(
    template: Any,
    X: Any,
    codes: np.ndarray,
    fitted: np.ndarray,
    splits: Iterable[Split],
    random_state: int | None = None,
) -> np.ndarray:
    """Anomaly scores of held-out rows by fits to the others, on the scale of `fitted`; else NaN."""
    held_out = np.full(len(codes), np.nan)
    unlabelled = np.flatnonzero(codes == UNLABELLED)
    if len(unlabelled) > _MOST_SCORED:  # enough of them to estimate their distribution
        rng = np.random.default_rng(random_state or 0)
        unlabelled = rng.choice(unlabelled, _MOST_SCORED, replace=False)
    # Rows whose scores are needed: held-out ones, and those that show the scale.
    watched = np.sort(np.concatenate([np.flatnonzero(codes != UNLABELLED), unlabelled]))
    rows = _safe_indexing(X, watched)
    with quietly():
        for train, held in splits:
            # A clone for each fold: the model of the user must not change.
            fit = clone(template).fit(_safe_indexing(X, train), codes[train])
            scores = -fit.score_samples(rows)
            out, rest = np.isin(watched, held), np.isin(watched, train)
            held_out[watched[out]] = on_scale(scores[out], scores[rest], fitted[watched[rest]])
    return held_out


def on_scale(scores: np.ndarray, base: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    """F^{-1}(F_k(s)); beyond all shared rows, by the ratio of their spreads."""
    base, fitted = np.sort(base), np.sort(fitted)
    # np.interp alone would give all rows that score above every shared row the same score.
    beyond = np.minimum(scores - base[0], 0) + np.maximum(scores - base[-1], 0)
    spread = base.std()
    return np.interp(scores, base, fitted) + beyond * (fitted.std() / spread if spread > 0 else 1.0)


def count_groups(
    calibration: Calibration, codes: np.ndarray, groups: np.ndarray | None
) -> Calibration:
    """The calibration with intervals that count groups; codes and groups are those of the fit.

    Groups raise the variance of the share of anomalies among labelled rows: the log odds of the
    ends of an estimated rate move away by the root of the factor. That of the AUC is used for all
    else.
    """
    labelled = codes != UNLABELLED
    if groups is None or not labelled.any():
        return calibration
    # Unlabelled rows carry no information on the share of anomalies among labels.
    codes, groups = codes[labelled], groups[labelled]
    rate, effect = calibration.rate, 1.0
    if rate is not None and rate.low < rate.high:
        wider = GroupEffect.on_share(codes, groups).variance ** 0.5
        # An end at 0 or 1 has no log odds.
        low, value, high = logit(np.clip([rate.low, rate.value, rate.high], 1e-6, 1 - 1e-6))
        ends = expit([value - wider * (value - low), value + wider * (high - value)])
        rate = replace(rate, low=min(float(ends[0]), rate.low), high=max(float(ends[1]), rate.high))
    if min(len(calibration.normals), len(calibration.anomalies)):
        if len(groups) == len(calibration.codes):
            part = FoldScores(calibration.codes, calibration.scores, groups)
            effect = float(GroupEffect.on_auc([part]).variance)
        else:  # some were not held out: assume that rows of a group are all alike
            sizes = np.unique(groups, return_counts=True)[1]
            effect = float((sizes**2).sum() / sizes.sum())
    return replace(calibration, rate=rate, group_effect=effect)
