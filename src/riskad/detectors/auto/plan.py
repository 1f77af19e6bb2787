"""The plan of a fit: which members, how many folds, by the work that each takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from riskad.core.labels import UNLABELLED
from riskad.detectors.auto.budget import (
    MOST_READ,
    Sizes,
    rows_to_distil,
    teacher_seconds,
)
from riskad.detectors.auto.members import MEMBERS, LabelsGiven
from riskad.detectors.auto.samples import COMPARED
from riskad.detectors.auto.unseen_kinds import JUDGES, MOST_KINDS
from riskad.detectors.pretrained import labelled_rows_read

__all__ = [
    "FEATURES",
    "FOLD",
    "FOLD_READ",
    "FOLD_SCORED",
    "KINDS",
    "SPLITS",
    "Plan",
    "plan_fit",
    "sizes_of",
]

SPLITS = 5
FOLD_READ, FOLD_SCORED = 150, 100
"""Unlabelled rows that a teacher reads in a fold, and scores beside those held out."""
FEATURES, FOLD, KINDS = "features", "fold", "kinds"
"""Steps of a plan besides its members."""
_NETWORK_WORK = ((MOST_READ, 3_000), (MOST_READ, COMPARED), (150, COMPARED), (50, COMPARED))
_FOLD_SHARE = 0.3  # of the seconds of a member, that its lighter fit of a fold takes


@dataclass(frozen=True)
class Plan:
    """What a fit does.

    Parameters
    ----------
    members
        Names of members, in the order of their fits.
    distilled
        Unlabelled rows that the teacher scores.
    read
        Unlabelled rows that the network reads.
    decided
        Unlabelled rows whose scores decisions rest on.
    folds
        How many folds of labelled rows are held out, of five.
    kinds
        Whether kinds of anomaly are held out, too.
    seconds
        What all of it takes on one core of a usual machine.
    steps
        What each part of it takes: features, each member, kinds, and one fold.
    """

    members: tuple[str, ...]
    distilled: int
    read: int
    decided: int
    folds: int
    kinds: bool
    seconds: float
    steps: Mapping[str, float]

    def folds_at_once(self, threads: int) -> int:
        """Return how many folds so many threads hold out at a time."""
        return max(1, min(threads, self.folds))

    def seconds_in(self, threads: int) -> float:
        """Return what all takes where folds are held out by so many threads."""
        folds = self.folds * self.steps[FOLD]
        return self.seconds - folds + folds / self.folds_at_once(threads)


def sizes_of(codes: np.ndarray, n_columns: int, teacher_columns: int, more: int = 0) -> Sizes:
    """Return what the work of a fit to rows with these labels, and to more labelled ones, is."""
    labelled = int((codes != UNLABELLED).sum())
    alone = LabelsGiven.of(codes).labelled_risk != "pn"
    return Sizes(
        rows=len(codes),
        columns=n_columns,
        labelled=labelled,
        counting=len(codes) if alone else labelled,
        read=labelled_rows_read(codes),
        teacher_columns=teacher_columns,
        all_labelled=labelled + more,
    )


def plan_fit(sizes: Sizes, names: Sequence[str], seconds: float) -> Plan:
    """Return a plan that takes no more than the seconds, but for one member, which is always there.

    Members come first, as long as one fold could still be held out of all of them; then folds, then
    kinds of anomaly. A network reads fewer rows, and decisions rest on fewer, before it is left
    out; it is, where nothing could be held out otherwise.

    >>> sizes = Sizes(rows=3_000, columns=20, labelled=150, counting=150, read=150,
    ...               teacher_columns=22)
    >>> plan_fit(sizes, ["kernel", "forest", "network"], 60).folds
    5
    >>> plan_fit(sizes, ["kernel", "forest", "network"], 2).members
    ('kernel', 'forest')
    """
    wanted = {name for name in names if MEMBERS[name].pretrained}
    tried = []
    for work in _NETWORK_WORK:
        plan = _plan(sizes, names, seconds, *work)
        if plan.folds == SPLITS and wanted <= set(plan.members):
            return plan
        tried.append(plan)
    others = [name for name in names if name not in wanted]
    tried.append(_plan(sizes, others or names, seconds, *_NETWORK_WORK[-1]))
    return max(tried, key=lambda plan: (plan.folds > 1, len(plan.members), plan.folds))


def _plan(sizes: Sizes, names: Sequence[str], seconds: float, read: int, decided: int) -> Plan:
    """The plan, if a network reads and scores so many rows."""
    distilled = rows_to_distil(seconds, sizes)
    spent, in_fold = _feature_seconds(sizes), 0.0
    members: list[str] = []
    steps = {FEATURES: spent}
    for name in names:
        if MEMBERS[name].distilled and not distilled:
            continue
        fit, fold = _member_seconds(name, sizes, distilled, read, decided)
        if members and fit > 0 and spent + fit + in_fold + fold > seconds:
            continue
        members.append(name)
        steps[name] = fit
        spent, in_fold = spent + fit, in_fold + fold
    folds = int(np.clip((seconds - spent) // max(in_fold, 1e-9), 0, SPLITS))
    spent += folds * in_fold
    judged = MOST_KINDS * sum(_member_seconds(j, sizes, 0, 0, 0)[1] for j in JUDGES if j in members)
    kinds = folds > 1 and spent + judged <= seconds
    spent += judged * kinds
    steps |= {FOLD: in_fold, KINDS: judged * kinds}
    return Plan(tuple(members), distilled, read, decided, folds, kinds, spent, steps)


def _feature_seconds(sizes: Sizes) -> float:
    return 0.4 + 1.2e-4 * sizes.rows * (1 + sizes.columns / 100)


def _member_seconds(
    name: str, sizes: Sizes, distilled: int, read: int, decided: int
) -> tuple[float, float]:
    """What a member takes, and in a fold."""
    recipe = MEMBERS[name]
    fit = recipe.seconds(sizes)
    if not (recipe.distilled or recipe.pretrained):
        return fit, _FOLD_SHARE * fit
    scored, read_in_fold = distilled, min(FOLD_READ, distilled)
    if recipe.pretrained:
        scored, read_in_fold = min(decided, sizes.rows), read // 2
    else:
        read = min(MOST_READ, distilled)
    held = FOLD_SCORED + (COMPARED + sizes.labelled) // SPLITS
    lesson = teacher_seconds(scored, sizes.read + read, sizes.teacher_columns)
    return fit + lesson, teacher_seconds(held, sizes.read + read_in_fold, sizes.teacher_columns)
