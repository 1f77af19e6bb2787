r"""Fits that have not seen labelled rows score them: weights of members, and their AUC.

Each member's scores are standardised to mean 0 and standard deviation 1 on unlabelled rows. With
A_k the AUC of member k on held-out labelled rows, A the best of them and SE the standard error of
A, its weight in the average is

    w_k  ~  b_k exp(-(A - A_k) / SE).

A clearly worse member counts little. SE is large when there are few anomalies, so the weights are
then close to b_k. With fewer than two labelled rows of a kind nothing can be held out, and they are
b_k. On each fold, the average is judged with the weights that the other folds give, and with
members whose settings were chosen without held-out labels: its AUC is measured on rows whose labels
no part of the model has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import has_fit_parameter

from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, count_labels
from riskad.decisions.calibration import on_scale
from riskad.detectors.auto.members import FOLD_SCORED, MEMBERS, SPLITS, Clock, Plan, Recipe
from riskad.detectors.auto.novelty import JUDGES, NOVELTY, UnseenKind, UnseenKinds, split_kinds
from riskad.detectors.auto.views import COMPARED, Member, Views, mean_and_spread, some_unlabelled
from riskad.detectors.features.union import Encoder
from riskad.metrics.folds import labelled_folds, whole_groups
from riskad.metrics.ranking import Auc, FoldScores, GroupEffect, auc_of_folds, auc_with_interval
from riskad.rows.encoding import AnomalyRateEncoder
from riskad.rows.engine import Threads

_QUANTILE = 1.96  # half an interval in standard errors
_FEWEST_PER_FOLD = 2  # unlabelled rows for each fold; fewer are left in training
_FEWEST_TO_SCALE = 10  # unlabelled rows that determine the scale of a fold


class ExtraLabelled(NamedTuple):
    """Labelled rows beyond those that all members learn from.

    With more than 10,000 labelled rows most members use a sample: their time grows with the rows,
    but their quality hardly. The others learn from these rows, too, in every fit.
    """

    columns: np.ndarray
    codes: np.ndarray
    weight: np.ndarray | None


def extra_labelled(codes: np.ndarray, groups: np.ndarray | None, rows: np.ndarray) -> np.ndarray:
    """Return positions of labelled rows that are neither among `rows` nor of their groups."""
    extra = np.setdiff1d(np.flatnonzero(codes != UNLABELLED), rows)
    # Groups of `rows` may be held out, and extra rows never are.
    return extra if groups is None else extra[~np.isin(groups[extra], groups[rows])]


@dataclass(frozen=True)
class MemberRows:
    """The rows that members learn from, with their labels, groups, weights and features."""

    matrix: Any  # without evidence on levels
    codes: np.ndarray
    groups: np.ndarray | None
    weight: np.ndarray | None
    views: Views
    repeats: np.ndarray  # labelled rows of which an earlier copy has the same label
    extra: ExtraLabelled | None = None
    n_groups: int | None = None  # of labelled anomalies, if some are in one group

    def take(self, rows: np.ndarray) -> MemberRows:
        return replace(
            self,
            matrix=self.matrix[rows],
            codes=self.codes[rows],
            groups=None if self.groups is None else self.groups[rows],
            weight=None if self.weight is None else self.weight[rows],
            views=self.views.take(rows),
            repeats=self.repeats[rows],
        )

    @property
    def n_anomaly(self) -> int:
        """How many labelled anomalies there are, those of a group counted once."""
        return int((self.codes == ANOMALY).sum()) if self.n_groups is None else self.n_groups

    def fit(self, detector: Member, recipe: Recipe, F: np.ndarray, rows: np.ndarray) -> Member:
        """Fit a member to some of the rows with their features, and weights if it takes any."""
        F, codes = F[rows], self.codes[rows]
        weight = None if self.weight is None else self.weight[rows]
        if recipe.all_labelled and self.extra is not None:
            F = np.vstack([F, self.extra.columns])
            codes = np.concatenate([codes, self.extra.codes])
            if weight is not None and self.extra.weight is not None:
                weight = np.concatenate([weight, self.extra.weight])
        if weight is None or not has_fit_parameter(detector, "sample_weight"):
            return detector.fit(F, codes)
        return detector.fit(F, codes, sample_weight=weight)


@dataclass(frozen=True)
class CrossFitter:
    """Fits members without the labels of held-out rows, and scores these."""

    rows: MemberRows  # labelled ones, and some unlabelled
    members: Mapping[str, Member]  # fitted to all rows
    encoder: Encoder
    evidence: AnomalyRateEncoder
    seed: int

    def hold_out(
        self, places: np.ndarray, plan: Plan, clock: Clock, threads: int, log: Callable[[str], None]
    ) -> HeldOut:
        """Hold out labelled rows and kinds of anomaly, as many as planned and as time allows."""
        # Labels of one kind give no AUC, but show how far it stands out from unlabelled rows.
        rows, labels, kinds = self.rows, count_labels(self.rows.codes), UnseenKinds()
        n_splits = min(SPLITS, *(n for n in (labels.normal, labels.anomaly) if n))
        folds = folds_to_hold_out(rows.codes, n_splits, self.seed, rows.groups)
        if len(folds) < 2:
            folds = []
        elif plan.kind_seconds and labels.normal and labels.anomaly:
            kinds = self.unseen_kinds()
        clock.finish(plan.kind_seconds)

        def score(fold: np.ndarray, _: int) -> dict[str, np.ndarray] | None:
            if not clock.allows_more():
                return None
            n_labelled = int((rows.codes[fold] != UNLABELLED).sum())
            log(f"Holding out {n_labelled} labelled rows{clock.in_words()}")
            scores = self.scores(rows, fold, self.members)
            clock.finish(plan.fold_seconds / plan.folds_at_once(threads))
            return scores

        planned = folds[: plan.folds]
        results = zip(planned, Threads(threads).map(score, planned), strict=True)
        # Folds that the clock refused are None.
        finished = [(fold, scores) for fold, scores in results if scores is not None]
        return HeldOut(
            rows=rows,
            places=places,
            scores={name: [scores[name] for _, scores in finished] for name in self.members},
            folds=[fold for fold, _ in finished],
            n_splits=len(folds),
            kinds_auc=kinds.auc(),
            novelty=kinds.weight(rows.n_anomaly, rows.n_groups is not None),
        )

    def unseen_kinds(self) -> UnseenKinds:
        """Score kinds of anomaly by fits of the quick members that have not seen them."""
        rows, judges = self.rows, [name for name in JUDGES if name in self.members]
        if not judges or NOVELTY not in self.members:
            return UnseenKinds()
        kinds = []
        for kind in split_kinds(rows.views.part("smooth", "columns"), rows.codes, self.seed):
            fold = whole_groups(kind, rows.groups)
            if not {NORMAL, ANOMALY} <= set(np.delete(rows.codes, fold).tolist()):
                continue  # groups of this kind hold all labelled rows of one kind
            scores = self.scores(replace(rows, weight=None), fold, [*judges, NOVELTY])
            mean = np.mean([-scores[name] for name in judges], axis=0)
            kinds.append(UnseenKind(rows.codes[fold], mean, -scores[NOVELTY]))
        return UnseenKinds(kinds if len(kinds) > 1 else ())  # one kind says nothing of others

    def scores(
        self, rows: MemberRows, fold: np.ndarray, names: Iterable[str]
    ) -> dict[str, np.ndarray]:
        """Return scores of held-out rows by lighter fits to the others, on one scale."""
        others = np.setdiff1d(np.arange(len(rows.codes)), fold)
        views, labels = self.views_without(fold), count_labels(rows.codes[others])
        scores = {}
        for name in names:
            recipe = MEMBERS[name]
            # Settings of a tuned member were chosen by all labels: its fold starts from defaults.
            tuned = recipe.tune is not None
            member = self.members[name]
            detector = recipe.build(labels, self.seed) if tuned else member._clone_for_fold()
            F = views.features_for(recipe)
            rows.fit(detector, recipe, F, others)
            # A pretrained network is slow to score: fewer rows set its scale.
            most = FOLD_SCORED if recipe.pretrained else COMPARED
            unlabelled = others[some_unlabelled(rows.codes[others], most)]
            both = detector.score_samples(F[np.concatenate([unlabelled, fold])])
            mean, spread = mean_and_spread(both[: len(unlabelled)])
            scores[name] = np.asarray((both[len(unlabelled) :] - mean) / spread)
        return scores

    def views_without(self, fold: np.ndarray) -> Views:
        """Return the features as if held-out rows had no label: evidence does not use it."""
        if not self.evidence.places:
            return self.rows.views
        matrix, codes = self.rows.matrix, self.rows.codes.copy()
        codes[fold] = UNLABELLED
        evidence = self.evidence.refit(matrix, codes)
        with_evidence = evidence.cross_fit_transform(
            matrix, codes, self.seed, groups=self.rows.groups
        )
        # Held-out rows get the evidence of all others, as new rows do.
        with_evidence[fold] = evidence.transform(matrix[fold])
        recipes = [MEMBERS[name] for name in self.members]
        return Views.fit_without(self.encoder, with_evidence, fold, recipes, self.seed)


def folds_to_hold_out(
    codes: np.ndarray, n_splits: int, seed: int, groups: np.ndarray | None
) -> list[np.ndarray]:
    """Return rows to hold out, fold by fold; rows of a group are held out together."""
    # Unlabelled rows are held out, too, so that scores can be compared: a fit tends to score the
    # rows that it saw as normal. A fold that leaves none of them for training is left out.
    labelled = labelled_folds(codes, n_splits, seed, groups) if n_splits > 1 else []
    if not labelled:
        return []
    rng = np.random.default_rng(seed)
    unlabelled = np.flatnonzero(codes == UNLABELLED)
    if groups is None:
        enough = len(unlabelled) >= _FEWEST_PER_FOLD * len(labelled)
        assigned = rng.permutation(unlabelled) if enough else unlabelled[:0]
        return [
            np.sort(np.concatenate([fold, assigned[i :: len(labelled)]]))
            for i, fold in enumerate(labelled)
        ]
    others = rng.permutation(np.setdiff1d(groups, groups[np.concatenate(labelled)]))
    folds = [
        np.flatnonzero(np.isin(groups, np.append(groups[fold], others[i :: len(labelled)])))
        for i, fold in enumerate(labelled)
    ]
    # With groups, a fold may hold all unlabelled rows.
    return [out for out in folds if not 0 < len(unlabelled) == (codes[out] == UNLABELLED).sum()]


@dataclass(frozen=True)
class HeldOut:
    """Scores of held-out rows, member by member and fold by fold."""

    rows: MemberRows  # that took part
    places: np.ndarray  # of these among all training rows
    scores: Mapping[str, Sequence[np.ndarray]]
    folds: Sequence[np.ndarray]  # rows held out, labelled or not; fewer than n_splits in a hurry
    n_splits: int
    kinds_auc: Auc | None  # of kinds of anomaly that were held out
    novelty: float  # its share of the average

    def weights(self, without: int | None = None) -> dict[str, float]:
        aucs = {name: self.auc(scores, without) for name, scores in self.scores.items()}
        return member_weights(aucs, self.rows.n_anomaly, self.novelty)

    def leaderboard(
        self, weights: Mapping[str, float], seconds: Mapping[str, float]
    ) -> list[dict[str, Any]]:
        aucs = {name: self.auc(scores) for name, scores in self.scores.items()}
        return [
            {
                "member": name,
                "weight": round(weight, 4),
                "auc": None if (auc := aucs[name]) is None else round(auc.value, 4),
                "error": None if auc is None else round(_error(auc), 4),
                "seconds": round(seconds[name], 2),
            }
            for name, weight in sorted(weights.items(), key=lambda item: -item[1])
        ]

    def combined(self) -> list[np.ndarray]:
        """Return weighted averages, fold by fold, with weights from the other folds."""
        return [
            np.sum([w * self.scores[name][i] for name, w in self.weights(i).items()], axis=0)
            for i in range(len(self.folds))
        ]

    def on_scale_of(self, fitted: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield positions of held-out rows, and their weighted averages on the scale of the fit.

        Each fold has its own scale: as many unlabelled rows exceed a mapped score in both fits.
        """
        for fold, combined in zip(self.folds, self.combined(), strict=True):
            places, unlabelled = self.places[fold], self.rows.codes[fold] == UNLABELLED
            scores = combined
            if unlabelled.sum() >= _FEWEST_TO_SCALE:
                scores = on_scale(combined, combined[unlabelled], fitted[places[unlabelled]])
            counts = ~self.rows.repeats[fold]  # an earlier copy of the others has their label
            yield places[counts], scores[counts]

    def auc(self, scores: Sequence[np.ndarray], without: int | None = None) -> Auc | None:
        """Return the AUC of scores of all folds or all but one; None without both kinds."""
        codes, groups, fold_scores = self.rows.codes, self.rows.groups, []
        for i, (fold, part) in enumerate(zip(self.folds, scores, strict=True)):
            if i != without:
                labelled = (codes[fold] != UNLABELLED) & ~self.rows.repeats[fold]
                rows = fold[labelled]
                group = rows if groups is None else groups[rows]
                fold_scores.append(FoldScores(codes[rows], -part[labelled], group))
        labels = count_labels(codes)
        if not (fold_scores and labels.normal and labels.anomaly):
            return None
        values = [auc_with_interval(part.codes, part.scores).value for part in fold_scores]
        n, m = (
            sum(int((p.codes == kind).sum()) for p in fold_scores) for kind in (NORMAL, ANOMALY)
        )
        effect = None if groups is None else GroupEffect.on_auc(fold_scores)
        return auc_of_folds(values, self.n_splits, n, m, effect=effect)


def member_weights(
    aucs: Mapping[str, Auc | None], n_anomaly: int, novelty: float
) -> dict[str, float]:
    """Return w_k ~ b_k exp(-(A - A_k) / SE), with sum 1; novelty has its share, if a member."""
    raw = {name: MEMBERS[name].weight_with(n_anomaly) for name in aucs if name != NOVELTY}
    measured = [auc for name in raw if (auc := aucs[name]) is not None]
    if measured:
        best = max(measured, key=lambda auc: auc.value)
        error = _error(best)
        for name in raw:
            auc = aucs[name]
            # A member without an AUC, left out in a hurry, has no weight beside measured ones.
            raw[name] *= float(np.exp(-(best.value - auc.value) / error)) if auc else 0.0
    # Novelty does not learn from labels: its share comes from unseen kinds, not from an AUC.
    share = novelty if NOVELTY in aucs else 0.0
    total = sum(raw.values())
    return {name: share if name == NOVELTY else (1 - share) * raw[name] / total for name in aucs}


def _error(auc: Auc) -> float:
    return (auc.high - auc.low) / 2 / _QUANTILE
