"""How `AutoRAD` holds out labelled rows: fits that have not seen them score them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.detectors.auto.budget import Clock
from riskad.detectors.auto.held_out import HeldOut, fold_scores, folds_to_hold_out
from riskad.detectors.auto.members import MEMBERS, LabelsGiven
from riskad.detectors.auto.more_labels import More
from riskad.detectors.auto.plan import FOLD, FOLD_READ, FOLD_SCORED, KINDS, SPLITS, Plan
from riskad.detectors.auto.samples import COMPARED, taken
from riskad.detectors.auto.unseen_kinds import Kinds, hold_kinds_out, novelty_untested
from riskad.detectors.auto.views import EncodedRows, Views
from riskad.detectors.pretrained import PretrainedRAD
from riskad.metrics.ranking import Auc
from riskad.rows.engine import Threads, usable_cpus

__all__ = ["Given", "HoldsOut"]


class Given(NamedTuple):
    """The rows that members learn from."""

    matrix: Any
    codes: np.ndarray
    groups: np.ndarray | None
    weight: np.ndarray | None
    repeats: np.ndarray | None = None
    """Labelled rows of which an earlier copy has the same label."""
    more: More | None = None
    """Further labelled rows, from which only some members learn."""

    def take(self, rows: np.ndarray) -> Given:
        """Some of the rows."""
        groups, weight, repeats = taken(rows, self.groups, self.weight, self.repeats)
        return Given(self.matrix[rows], self.codes[rows], groups, weight, repeats, self.more)


class HoldsOut:
    """Folds of labelled rows, of kinds of anomaly, and the fits to the others."""

    members_: dict[str, Any]
    n_distilled_: int
    kinds_auc_: Auc | None
    encoder_: Any
    evidence_: Any
    random_state: int | None
    n_jobs: int | None
    _say: Callable[[str], None]

    @property
    def _seed(self) -> int:
        return 0 if self.random_state is None else int(self.random_state)

    @property
    def _threads(self) -> int:
        return usable_cpus() if self.n_jobs is None or self.n_jobs < 1 else int(self.n_jobs)

    def _hold_out(
        self, views: Views, given: Given, compared: np.ndarray, plan: Plan, clock: Clock
    ) -> HeldOut | None:
        """Scores of labelled rows by fits that have not seen them, in as many folds as planned.

        Some unlabelled rows are held out with them. Labels of one kind are held out as well: they
        show how far this kind stands out from the unlabelled rows, though no AUC.
        """
        self.kinds_auc_ = None
        counts = [int((given.codes == kind).sum()) for kind in (NORMAL, ANOMALY)]
        n_splits = min(SPLITS, *(count for count in counts if count))
        rows = np.union1d(np.flatnonzero(given.codes != UNLABELLED), compared)
        views, given = views.take(rows), given.take(rows)
        codes = given.codes
        folds = folds_to_hold_out(codes, n_splits, self._seed, given.groups)
        if len(folds) < 2:
            return None
        kinds = self._judge_kinds(views, given) if plan.kinds and all(counts) else Kinds()
        clock.finish(plan.steps[KINDS])
        self.kinds_auc_ = kinds.auc() if kinds.folds else None
        scores: dict[str, list[np.ndarray]] = {name: [] for name in self.members_}
        n_anomaly = int((codes == ANOMALY).sum())
        novelty = kinds.weight(n_anomaly) if all(counts) else novelty_untested(n_anomaly)
        found = HeldOut(rows, codes, scores, [], len(folds), given.groups, novelty, given.repeats)

        def hold(held: np.ndarray, _: int) -> dict[str, np.ndarray] | None:
            if not clock.allows_more():
                return None
            some = int((codes[held] != UNLABELLED).sum())
            self._say(f"Holding out {some} labelled rows{clock.in_words()}")
            told = self._fold_scores(views, given, held)
            clock.finish(plan.steps[FOLD] / plan.folds_at_once(self._threads))
            return told

        planned = folds[: plan.folds]
        for held, parts in zip(planned, Threads(self._threads).map(hold, planned), strict=True):
            if parts is not None:
                found.folds.append(held)
                for name, part in parts.items():
                    found.scores[name].append(part)
        return found if found.folds else None

    def _judge_kinds(self, views: Views, given: Given) -> Kinds:
        """Scores of kinds of anomaly by fits that have not seen them."""
        make = {name: partial(self._for_fold, name) for name in self.members_}
        without = partial(self._fold_views, views, given)
        return hold_kinds_out(views, given.codes, make, without, self._seed, given.groups)

    def _fold_views(self, views: Views, given: Given, held: np.ndarray) -> Views:
        """The views as if held-out rows had no label: distances and evidence do not use it."""
        matrix, codes = given.matrix, given.codes
        if not self.evidence_.places:
            return views.without_labels(codes, held)
        known = codes.copy()
        known[held] = UNLABELLED
        evidence = self.evidence_.refit(matrix, known)
        seen = evidence.cross_fit_transform(matrix, known, self._seed, groups=given.groups)
        seen[held] = evidence.transform(matrix[held])
        table = EncodedRows.of(self.encoder_, seen)
        return Views.fit_without(table, codes, held, list(self.members_), self._seed)

    def _fold_scores(self, views: Views, given: Given, held: np.ndarray) -> dict[str, np.ndarray]:
        """Scores of held-out rows by lighter fits to the others, on the same scale."""
        views, codes = self._fold_views(views, given, held), given.codes
        labels = LabelsGiven.of(np.delete(codes, held))
        scores: dict[str, np.ndarray] = {}
        for name in self.members_:
            recipe = MEMBERS[name]
            if recipe.distilled:  # the pretrained network itself: it scores few rows here
                read, most = (min(self.n_distilled_, size) for size in (FOLD_READ, FOLD_SCORED))
                teacher = PretrainedRAD(unlabelled=read, random_state=self._seed)
                scores[name] = fold_scores(teacher, views.seen_by_teacher(), codes, held, most)
                continue
            most = FOLD_SCORED if recipe.pretrained else COMPARED
            fold = self._for_fold(name, labels)
            if recipe.all_labelled and given.more:
                fold = given.more.before(fold)
            scores[name] = fold_scores(fold, views.seen_by(name), codes, held, most, given.weight)
        return scores

    def _for_fold(self, name: str, labels: LabelsGiven) -> Any:
        """An unfitted, light member, with no setting chosen by held-out labels."""
        recipe = MEMBERS[name]
        return recipe.build(labels, self._seed) if recipe.chooses else self.members_[name].lighter()
