"""Ways to choose lambda from held-out labelled rows, on splits that the experiments do not use.

The paper's sets, split and labelled as by `riskad bench shallow main` but from other root seeds
(its own is 0). The folds are fitted once, along the grid of lam="cv", and every rule chooses from
the same held-out AUCs; what it chose is fitted and meets the test rows.

Written down before the first run: of the rules with two rounds of folds, the one is taken that
misses the fewest sets, the three losses counted together and all seeds pooled; among equals, the
one with the highest mean AUC. A set is missed where the mean AUC is below the published one less
two published standard errors. Four rounds are there to show what more folds would bring. They
cannot be taken: the paper's shallow tables would no longer be recomputed within an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any, TypeAlias

import numpy as np
from sklearn.metrics import roc_auc_score

from riskad import ShallowRAD
from riskad.bench.experiment import Cell, seed_of
from riskad.bench.paper import published
from riskad.bench.studies import Record, by_dataset
from riskad.bench.trial import Split, split_of
from riskad.core.labels import ANOMALY
from riskad.core.objective import Objective
from riskad.core.risks import Risk
from riskad.detectors.linear.lambda_search import (
    CV_DECADES,
    CV_REPEATS,
    CV_ROWS,
    LambdaGrid,
    held_out_aucs,
    held_out_folds,
    safe_lambda,
)
from riskad.detectors.linear.training_rows import sample_in_memory
from riskad.rows.linear import LinearModel
from riskad.solvers import Problem

__all__ = ["measure", "report"]

_SETTINGS: dict[str, Any] = {"a": 0.1, "prior": 0.8, "tol": 1e-3}

# Held-out AUCs (lambdas x folds), the place of the tight lambda, rounds of folds -> a place.
Rule: TypeAlias = Callable[[np.ndarray, int, int], int]


def standard_error(gain: np.ndarray, rounds: int) -> Any:
    """Of a mean over folds; a second round holds the same rows out and is no more evidence."""
    return gain.std(axis=-1, ddof=1) / np.sqrt(gain.shape[-1] / rounds)


def corrected_error(gain: np.ndarray, rounds: int) -> Any:
    """Nadeau and Bengio's, which allows for what the training rows of folds have in common."""
    n, folds = gain.shape[-1], gain.shape[-1] / rounds
    return gain.std(axis=-1, ddof=1) * np.sqrt(1 / n + 1 / (folds - 1))


def kept_unless_better(
    aucs: np.ndarray,
    tight: int,
    rounds: int,
    errors: float = 1.0,
    decades: int = CV_DECADES,
    error: Callable[[np.ndarray, int], Any] = standard_error,
) -> int:
    """Tight, unless the best lambda gains more than so many errors; `decades` below it at most."""
    best = int(aucs[: tight + decades + 1].mean(axis=1).argmax())
    gain = aucs[best] - aucs[tight]
    return best if gain.mean() > errors * error(gain, rounds) else tight


def nearest_to_tight(aucs: np.ndarray, tight: int, rounds: int) -> int:
    """The lambda nearest to the tight one of those within a standard error of the best."""
    behind = aucs[aucs.mean(axis=1).argmax()] - aucs
    good = np.flatnonzero(behind.mean(axis=1) <= standard_error(behind, rounds))
    return int(good[np.abs(good - tight).argmin()])


RULES: dict[str, Rule] = {
    "best": partial(kept_unless_better, errors=0.0),
    "gains 0.5 SE": partial(kept_unless_better, errors=0.5),
    "gains 1 SE": kept_unless_better,
    "gains 1.5 SE": partial(kept_unless_better, errors=1.5),
    "gains 2 SE": partial(kept_unless_better, errors=2.0),
    "gains 1 corrected SE": partial(kept_unless_better, error=corrected_error),
    "gains 1 SE, two decades": partial(kept_unless_better, decades=2),
    "gains 1 SE, one decade": partial(kept_unless_better, decades=1),
    "nearest to tight within 1 SE": nearest_to_tight,
}


class Recorder(ShallowRAD):
    """ShallowRAD that keeps the held-out AUCs from which lam="cv" chose, and those of more folds.

    `rounds_` maps a number of rounds to an array, a row for each lambda of `grid_`; where too few
    rows are labelled for folds it is empty.
    """

    def _choose(self, model: LinearModel, risk: Risk) -> Risk:
        top, tight = (safe_lambda(model, risk, self.penalty, tight=each) for each in (False, True))
        rows = sample_in_memory(model.rows, CV_ROWS, risk.kind_weights(), self._seed)
        problem = Problem(model.over(rows), Objective(risk, rows.totals()), top, self.penalty)
        grid = LambdaGrid.between(top, tight).values
        first, more = (
            held_out_aucs(problem, grid, held_out_folds(rows, risk, seed), self._solver_settings)
            for seed in (self._seed, self._seed + CV_REPEATS)
        )
        n = min(len(first), len(more))
        self.grid_, self.rounds_ = grid, {}
        if n:
            self.rounds_ = {CV_REPEATS: first, 2 * CV_REPEATS: np.hstack([first[:n], more[:n]])}
        return super()._choose(model, risk)


def measure(cell: Cell) -> dict[str, Any]:
    """Return the AUC on test rows of what each rule chooses on one split, by rounds of folds."""
    split, loss = split_of(cell), cell.settings["loss"]
    settings = _SETTINGS | {"random_state": seed_of(cell.root, cell.dataset, cell.trial, "method")}
    model = Recorder(loss, lam="cv", **settings).fit(split.X_train, split.y_train)
    aucs = {model.lambda_: _auc_on_test_rows(model, split)}
    found: dict[str, dict[str, float]] = {}
    for name, rounds, lam in _choices(model):
        if lam not in aucs:
            other = ShallowRAD(loss, lam=lam, **settings).fit(split.X_train, split.y_train)
            aucs[lam] = _auc_on_test_rows(other, split)
        found.setdefault(str(rounds), {})[name] = aucs[lam]
    return {"auc": found}


def _choices(model: Recorder) -> Iterator[tuple[str, int, float]]:
    """Each rule, its rounds of folds, and the lambda that it chooses; the tight one needs none."""
    tight = len(model.grid_) - 1 - CV_DECADES  # the grid ends so far below it
    yield "tight", 0, float(model.grid_[tight]) if model.rounds_ else model.lambda_
    for rounds in (CV_REPEATS, 2 * CV_REPEATS):
        for name, rule in RULES.items():
            if not model.rounds_:
                yield name, rounds, model.lambda_
                continue
            aucs = model.rounds_[rounds]
            # Far worse than larger lambdas, the tight one may not have been reached.
            chosen = rule(aucs, tight, rounds) if tight < len(aucs) else aucs.mean(axis=1).argmax()
            yield name, rounds, float(model.grid_[chosen])


def _auc_on_test_rows(model: ShallowRAD, split: Split) -> float:
    return float(roc_auc_score(split.truth_test == ANOMALY, -model.score_samples(split.X_test)))


def report(rows: Sequence[Record]) -> dict[str, Any]:
    """Return, for each rule, the mean AUC and the sets missed; the fewest missed come first."""
    losses = list(dict.fromkeys(row["settings"]["loss"] for row in rows))
    trials = {
        loss: by_dataset(row for row in rows if row["settings"]["loss"] == loss) for loss in losses
    }
    rules = [(name, n) for n, own in rows[0]["auc"].items() for name in own]
    found = [_of_rule(name, rounds, trials) for name, rounds in rules]
    return {
        "trials": 1 + max(row["trial"] for row in rows),
        "losses": losses,
        "rows": sorted(found, key=lambda row: (row["n_missed"], -row["mean"])),
    }


def _of_rule(
    name: str, rounds: str, trials: Mapping[str, Mapping[str, Sequence[Record]]]
) -> dict[str, Any]:
    """The AUC of one rule, and the sets it misses: of each loss."""
    means = {
        loss: {of: fmean(row["auc"][rounds][name] for row in own) for of, own in sets.items()}
        for loss, sets in trials.items()
    }
    missed = {
        loss: [of for of, mean in sets.items() if mean < _needed(of, loss)]
        for loss, sets in means.items()
    }
    return {
        "rule": name,
        "rounds": int(rounds),
        "n_missed": sum(map(len, missed.values())),
        "mean": round(fmean(mean for sets in means.values() for mean in sets.values()), 5),
        "auc": {loss: round(fmean(sets.values()), 4) for loss, sets in means.items()},
        "missed": missed,
        "sets": {
            loss: {of: round(mean, 4) for of, mean in sets.items()} for loss, sets in means.items()
        },
    }


def _needed(dataset: str, loss: str) -> float:
    """The published mean AUC less two published standard errors."""
    number = published("main", dataset, "rad", {"loss": loss})
    assert number is not None
    assert number.se is not None
    return number.mean - 2 * number.se
