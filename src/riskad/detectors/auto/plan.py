"""The plan of a fit: which members and how many folds, by the work that each takes."""

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
"""Unlabelled rows that the network reads in a fold, and scores in addition to those held out."""
FEATURES, FOLD, KINDS = "features", "fold", "kinds"
"""Steps of a plan other than its members."""
_NETWORK_WORK = ((MOST_READ, 3_000), (MOST_READ, COMPARED), (150, COMPARED), (50, COMPARED))
_FOLD_SHARE = 0.3  # of the seconds of a member, for its lighter fit in a fold


@dataclass(frozen=True)
class Plan:
    """The work of a fit.

    Parameters
    ----------
    members
        Names of members, in the order of their fits.
    distilled
        Number of unlabelled rows that the network scores for a distilled forest.
    read
        Number of unlabelled rows that the network reads.
    decided
        Number of unlabelled rows whose scores are used for decisions.
    folds
        How many of five folds of labelled rows are held out.
    kinds
        Whether kinds of anomaly are held out, too.
    seconds
        Seconds of the whole fit on one core of a typical machine.
    steps
        Seconds of each part: features, each member, kinds, and one fold.
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
        """Return how many folds this many threads hold out at a time."""
        return max(1, min(threads, self.folds))

    def seconds_in(self, threads: int) -> float:
        """Return the seconds of the whole fit if this many threads hold out folds."""
        folds = self.folds * self.steps[FOLD]
        return self.seconds - folds + folds / self.folds_at_once(threads)


def sizes_of(codes: np.ndarray, n_columns: int, teacher_columns: int, more: int = 0) -> Sizes:
    """Return the sizes of a fit to rows with these labels, and to further labelled rows."""
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
    """Return a plan within the seconds, but always with one member.

    Members come first, as long as one fold could still be held out of all of them; then folds, then
    kinds of anomaly. If seconds are short, a network first reads fewer rows, and fewer rows are
    used for decisions. It is left out if nothing could be held out otherwise.

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
    """The plan, if a network reads and scores this many rows."""
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
    """Seconds of a member, in the fit and in a fold."""
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
