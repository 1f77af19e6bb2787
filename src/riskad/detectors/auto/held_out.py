"""What members do on labelled rows that their fits have not seen, and what they weigh by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.decisions.held_out import labelled_folds
from riskad.decisions.ranking_metrics import Auc, auc_of_folds, auc_with_interval
from riskad.decisions.row_groups import GroupEffect, Judged
from riskad.detectors.auto.members import MEMBERS, PRIOR
from riskad.detectors.auto.samples import COMPARED, some_unlabelled

__all__ = [
    "HeldOut",
    "fold_scores",
    "folds_to_hold_out",
    "labelled_rate",
    "mean_and_spread",
    "member_weights",
]

_QUANTILE = 1.96  # half an interval in standard errors
_GUESSED = 5  # rows that a guess of the anomaly rate is worth


@dataclass(frozen=True)
class HeldOut:
    """Scores of held-out rows, member by member and fold by fold."""

    rows: np.ndarray
    """Places of the rows that took part."""
    codes: np.ndarray
    scores: dict[str, list[np.ndarray]]
    folds: list[np.ndarray]
    """Those that were held out: fewer than `n_splits` where time ran short."""
    n_splits: int
    groups: np.ndarray | None = None

    def auc(self, name: str) -> Auc:
        """Return the AUC of a member."""
        return self._auc(self.scores[name])

    def combined(self, weights: Mapping[str, float]) -> list[np.ndarray]:
        """Return weighted averages, fold by fold."""
        return [
            np.sum([weights[name] * parts[i] for name, parts in self.scores.items()], axis=0)
            for i in range(len(self.folds))
        ]

    def combined_auc(self, weights: Mapping[str, float]) -> Auc:
        """Return the AUC of the weighted average."""
        return self._auc(self.combined(weights))

    def _auc(self, scores: list[np.ndarray]) -> Auc:
        values = [
            auc_with_interval(self.codes[held], -part).value
            for held, part in zip(self.folds, scores, strict=True)
        ]
        held_out = self.codes[np.concatenate(self.folds)]
        n, m = (int((held_out == kind).sum()) for kind in (NORMAL, ANOMALY))
        return auc_of_folds(values, self.n_splits, n, m, effect=self._group_effect(scores))

    def _group_effect(self, scores: list[np.ndarray]) -> GroupEffect | None:
        if self.groups is None:
            return None
        judged = zip(self.folds, scores, strict=True)
        return GroupEffect.on_auc([Judged(self.codes[i], -s, self.groups[i]) for i, s in judged])


def folds_to_hold_out(
    codes: np.ndarray, n_splits: int, seed: int, groups: np.ndarray | None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return labelled rows to hold out, fold by fold, and all rows that its fits must not see.

    Without groups these are the same. With groups the unlabelled rows of theirs are among the
    latter, and a fold that leaves no unlabelled row to fits is left out.
    """
    folds = labelled_folds(codes, n_splits, seed, groups) if n_splits > 1 else []
    if groups is None:
        return [(held, held) for held in folds]
    unseen = [np.flatnonzero(np.isin(groups, groups[held])) for held in folds]
    n_unlabelled = int((codes == UNLABELLED).sum())
    return [
        (held, out)
        for held, out in zip(folds, unseen, strict=True)
        if not 0 < n_unlabelled == (codes[out] == UNLABELLED).sum()
    ]


def fold_scores(
    detector: Any,
    F: np.ndarray,
    codes: np.ndarray,
    held: np.ndarray,
    unseen: np.ndarray,
    most: int = COMPARED,
) -> np.ndarray:
    """Return scores of held-out rows by a fit to seen ones, on the scale of unlabelled rows."""
    others = np.setdiff1d(np.arange(len(codes)), unseen)
    unlabelled = others[some_unlabelled(codes[others], most)]
    detector.fit(F[others], codes[others])
    scores = detector.score_samples(F[np.concatenate([unlabelled, held])])
    mean, spread = mean_and_spread(scores[: len(unlabelled)])
    return np.asarray((scores[len(unlabelled) :] - mean) / spread)


def mean_and_spread(scores: np.ndarray) -> tuple[float, float]:
    """Return what scores are standardised by; a constant one stays as it is."""
    return float(scores.mean()), float(scores.std()) or 1.0


def member_weights(aucs: Mapping[str, Auc | None], n_anomaly: int) -> dict[str, float]:
    """Return w_k ~ b_k exp(-(A - A_k) / SE), adding up to 1."""
    known = [auc for auc in aucs.values() if auc is not None]
    raw = {name: MEMBERS[name].weight_with(n_anomaly) for name in aucs}
    if known:
        best = max(known, key=lambda auc: auc.value)
        error = (best.high - best.low) / 2 / _QUANTILE
        for name, auc in aucs.items():
            raw[name] *= float(np.exp(-(best.value - auc.value) / error)) if auc else 0.0
    return {name: weight / sum(raw.values()) for name, weight in raw.items()}


def labelled_rate(codes: np.ndarray) -> float:
    """Return the share of anomalies among labelled rows, the usual guess counted as five more.

    With one kind of label alone it is the guess.
    """
    n, m = (int((codes == kind).sum()) for kind in (NORMAL, ANOMALY))
    guess = 1 - PRIOR
    return (m + _GUESSED * guess) / (n + m + _GUESSED) if n and m else guess
