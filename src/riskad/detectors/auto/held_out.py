"""Scores of members on labelled rows that their fits have not seen, and the resulting weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import has_fit_parameter

from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.decisions.calibration import on_scale
from riskad.detectors.auto.members import MEMBERS
from riskad.detectors.auto.novelty import NOVELTY, with_novelty
from riskad.detectors.auto.samples import COMPARED, some_unlabelled
from riskad.metrics.folds import labelled_folds
from riskad.metrics.ranking import Auc, FoldScores, GroupEffect, auc_of_folds, auc_value

__all__ = [
    "HeldOut",
    "fit_weighted",
    "fold_scores",
    "folds_to_hold_out",
    "leaderboard",
    "mean_and_spread",
    "member_weights",
]

_QUANTILE = 1.96  # half an interval in standard errors
_FEWEST_TO_DEAL = 2  # unlabelled rows for each fold; fewer are left in training
_FEWEST_TO_SCALE = 10  # unlabelled rows that determine the scale of a fold


@dataclass(frozen=True)
class HeldOut:
    """Scores of held-out rows, member by member and fold by fold."""

    rows: np.ndarray
    """Positions of the rows that took part."""
    codes: np.ndarray
    scores: dict[str, list[np.ndarray]]
    folds: list[np.ndarray]
    """Rows that were held out, labelled or not; fewer folds than `n_splits` if time ran
    short.
    """
    n_splits: int
    groups: np.ndarray | None = None
    novelty: float = 0.0
    """The share of novelty in the average."""
    repeats: np.ndarray | None = None
    """Labelled rows that do not count, since an earlier copy has the same label."""

    @property
    def has_both_kinds(self) -> bool:
        """Whether normal rows and anomalies were held out: with one kind there is no AUC."""
        return bool((self.codes == NORMAL).any() and (self.codes == ANOMALY).any())

    def auc(self, name: str) -> Auc | None:
        """Return the AUC of a member."""
        return self._auc(self.scores[name], range(len(self.folds))) if self.has_both_kinds else None

    def weights(self, without: int | None = None) -> dict[str, float]:
        """Return the weights of members by the AUCs of all folds, or of all but one."""
        folds = [i for i in range(len(self.folds)) if i != without]
        aucs = {
            name: self._auc([parts[i] for i in folds], folds)
            if folds and self.has_both_kinds
            else None
            for name, parts in self.scores.items()
        }
        return member_weights(aucs, int((self.codes == ANOMALY).sum()), self.novelty)

    def combined(self) -> list[np.ndarray]:
        """Return weighted averages, fold by fold, with weights from the other folds.

        No label affects the score of its own row: their AUC is that of rows whose labels no part of
        the model has seen.
        """
        return [
            np.sum([w * self.scores[name][i] for name, w in weights.items()], axis=0)
            for i in range(len(self.folds))
            for weights in [self.weights(without=i)]
        ]

    def combined_auc(self) -> Auc | None:
        """Return the AUC of the weighted average."""
        return self._auc(self.combined(), range(len(self.folds))) if self.has_both_kinds else None

    def on_scale_of(self, fitted: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield positions of held-out rows, and their weighted averages on the scale of the fit.

        Each fit of a fold has its own scale; a score is mapped so that as many unlabelled rows
        exceed it in both (`riskad.decisions.calibration.on_scale`).
        """
        for held, scores in zip(self.folds, self.combined(), strict=True):
            places, unlabelled = self.rows[held], self.codes[held] == UNLABELLED
            if unlabelled.sum() >= _FEWEST_TO_SCALE:
                scores = on_scale(scores, scores[unlabelled], fitted[places[unlabelled]])
            counts = self._counts(held)
            yield places[counts], scores[counts]

    def _counts(self, held: np.ndarray) -> np.ndarray:
        """Which held-out rows count."""
        return np.full(len(held), True) if self.repeats is None else ~self.repeats[held]

    def _auc(self, scores: Sequence[np.ndarray], folds: Sequence[int]) -> Auc:
        """The AUC over the labelled rows of some folds."""
        judged = [self._judged(i, part) for i, part in zip(folds, scores, strict=True)]
        values = [
            auc_value(part.scores[part.codes == ANOMALY], part.scores[part.codes == NORMAL])
            for part in judged
        ]
        n, m = (sum(int((p.codes == kind).sum()) for p in judged) for kind in (NORMAL, ANOMALY))
        effect = None if self.groups is None else GroupEffect.on_auc(judged)
        return auc_of_folds(values, self.n_splits, n, m, effect=effect)

    def _judged(self, fold: int, scores: np.ndarray) -> FoldScores:
        held = self.folds[fold]
        known = (self.codes[held] != UNLABELLED) & self._counts(held)
        places = held[known]
        groups = places if self.groups is None else self.groups[places]
        return FoldScores(self.codes[places], -scores[known], groups)


def folds_to_hold_out(
    codes: np.ndarray, n_splits: int, seed: int, groups: np.ndarray | None
) -> list[np.ndarray]:
    """Return rows to hold out, fold by fold: labelled ones of both kinds, and unlabelled ones.

    Unlabelled rows are held out like labelled ones, so that their scores can be compared: a fit
    tends to score the rows that it saw as normal. Rows of a group are held out together, and a fold
    that leaves no unlabelled row for training is left out.
    """
    labelled = labelled_folds(codes, n_splits, seed, groups) if n_splits > 1 else []
    if not labelled:
        return []
    rng = np.random.default_rng(seed)
    unlabelled = np.flatnonzero(codes == UNLABELLED)
    if groups is None:
        enough = len(unlabelled) >= _FEWEST_TO_DEAL * len(labelled)
        dealt = rng.permutation(unlabelled) if enough else unlabelled[:0]
        return [
            np.sort(np.concatenate([held, dealt[i :: len(labelled)]]))
            for i, held in enumerate(labelled)
        ]
    others = rng.permutation(np.setdiff1d(groups, groups[np.concatenate(labelled)]))
    folds = [
        np.flatnonzero(np.isin(groups, np.append(groups[held], others[i :: len(labelled)])))
        for i, held in enumerate(labelled)
    ]
    return [out for out in folds if not 0 < len(unlabelled) == (codes[out] == UNLABELLED).sum()]


def fold_scores(
    detector: Any,
    F: np.ndarray,
    codes: np.ndarray,
    held: np.ndarray,
    most: int = COMPARED,
    weight: np.ndarray | None = None,
) -> np.ndarray:
    """Return scores of held-out rows by a fit to the others, on the scale of unlabelled rows."""
    others = np.setdiff1d(np.arange(len(codes)), held)
    unlabelled = others[some_unlabelled(codes[others], most)]
    fit_weighted(detector, F[others], codes[others], weight, others)
    scores = detector.score_samples(F[np.concatenate([unlabelled, held])])
    mean, spread = mean_and_spread(scores[: len(unlabelled)])
    return np.asarray((scores[len(unlabelled) :] - mean) / spread)


def fit_weighted(
    detector: Any, F: np.ndarray, target: np.ndarray, weight: np.ndarray | None, rows: np.ndarray
) -> Any:
    """Fit a detector to rows with their weights, if it takes weights."""
    if weight is None or not has_fit_parameter(detector, "sample_weight"):
        return detector.fit(F, target)
    return detector.fit(F, target, sample_weight=weight[rows])


def mean_and_spread(scores: np.ndarray) -> tuple[float, float]:
    """Return mean and spread for standardising scores; a constant score is left unscaled."""
    return float(scores.mean()), float(scores.std()) or 1.0


def member_weights(
    aucs: Mapping[str, Auc | None], n_anomaly: int, novelty: float = 0.0
) -> dict[str, float]:
    """Return w_k ~ b_k exp(-(A - A_k) / SE), with sum 1; novelty has the given share."""
    known = [auc for name, auc in aucs.items() if auc is not None and name != NOVELTY]
    raw = {name: MEMBERS[name].weight_with(n_anomaly) for name in aucs}
    if known:
        best = max(known, key=lambda auc: auc.value)
        error = _error(best)
        for name, auc in aucs.items():
            raw[name] *= float(np.exp(-(best.value - auc.value) / error)) if auc else 0.0
    return with_novelty(raw, novelty)


def leaderboard(
    weights: Mapping[str, float],
    aucs: Mapping[str, Auc | None],
    seconds: Mapping[str, float],
    left_out: Sequence[str],
) -> list[dict[str, Any]]:
    """Return a line for each member, the largest weight first, and for those left out for time."""
    lines: list[dict[str, Any]] = [
        {
            "member": name,
            "weight": round(weights[name], 4),
            "auc": None if (auc := aucs[name]) is None else round(auc.value, 4),
            "error": None if auc is None else round(_error(auc), 4),
            "seconds": round(seconds[name], 2),
        }
        for name in sorted(weights, key=lambda name: -weights[name])
    ]
    none = {"weight": 0.0, "auc": None, "error": None, "seconds": 0.0, "left_out": True}
    return lines + [{"member": name, **none} for name in left_out]


def _error(auc: Auc) -> float:
    """The standard error of an AUC, by the width of its interval."""
    return (auc.high - auc.low) / 2 / _QUANTILE
