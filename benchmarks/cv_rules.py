"""Ways to choose lambda from held-out labelled rows, on splits that the experiments do not use.

    RISKAD_DATA=... python benchmarks/cv_rules.py --output results/cv_rules.json

On the paper's sets that the data folder holds, split and labelled as by `riskad bench shallow main`
but from other root seeds (its own is 0). The folds are fitted once, along the grid of lam="cv", and
every rule chooses from the same held-out AUCs; what it chose is fitted and meets the test rows.

Written down before the first run: of the rules with two rounds of folds, the one is taken that
misses the fewest sets, the three losses counted together and all seeds pooled; among equals, the
one with the highest mean AUC. A set is missed where the mean AUC is below the published one less
two published standard errors. Four rounds are there to show what more folds would bring. They
cannot be taken: the paper's shallow tables would no longer be recomputed within an hour.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from sklearn.metrics import roc_auc_score

from riskad import DataWarning, ShallowRAD, load_adbench
from riskad.bench.experiment import built_in, load_experiment, seed_of
from riskad.bench.paper import published
from riskad.bench.trial import Split, make_split
from riskad.core.labels import ANOMALY
from riskad.core.objective import Objective
from riskad.core.risks import Risk
from riskad.datasets import DatasetMissing
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

LOSSES = ("squared", "hinge", "modified_huber")
SETTINGS: dict[str, Any] = {"a": 0.1, "prior": 0.8, "tol": 1e-3}

# Held-out AUCs (lambdas x folds), the place of the tight lambda, rounds of folds -> a place.
Rule = Callable[[np.ndarray, int, int], int]


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


def choices(model: Recorder) -> Iterator[tuple[tuple[str, int], float]]:
    """Each rule, with its rounds of folds, and the lambda that it chooses; also the tight one."""
    tight = len(model.grid_) - 1 - CV_DECADES  # the grid ends so far below it
    yield ("tight", 0), float(model.grid_[tight]) if model.rounds_ else model.lambda_
    for rounds in (CV_REPEATS, 2 * CV_REPEATS):
        for name, rule in RULES.items():
            if not model.rounds_:
                yield (name, rounds), model.lambda_
                continue
            aucs = model.rounds_[rounds]
            # Far worse than larger lambdas, the tight one may not have been reached.
            chosen = rule(aucs, tight, rounds) if tight < len(aucs) else aucs.mean(axis=1).argmax()
            yield (name, rounds), float(model.grid_[chosen])


def auc_on_test_rows(model: ShallowRAD, split: Split) -> float:
    return float(roc_auc_score(split.truth_test == ANOMALY, -model.score_samples(split.X_test)))


def trial_aucs(dataset: str, loss: str, trial: int, root: int) -> dict[tuple[str, int], float]:
    """Test AUC of what each rule chooses on one split."""
    split = make_split(dataset, trial, root, 0.3, 0.05)
    settings = SETTINGS | {"random_state": seed_of(root, dataset, trial, "method")}
    model = Recorder(loss, lam="cv", **settings).fit(split.X_train, split.y_train)
    chosen = dict(choices(model))
    aucs = {model.lambda_: auc_on_test_rows(model, split)}
    for lam in set(chosen.values()) - set(aucs):
        other = ShallowRAD(loss, lam=lam, **settings).fit(split.X_train, split.y_train)
        aucs[lam] = auc_on_test_rows(other, split)
    return {rule: aucs[lam] for rule, lam in chosen.items()}


def sets_at_hand() -> list[str]:
    """The paper's sets that can be had, in its order."""
    found = []
    for name in load_experiment(built_in("shallow")["main"]).datasets:
        try:
            load_adbench(name)
        except DatasetMissing:
            continue
        found.append(name)
    return found


def needed(dataset: str, loss: str) -> float:
    """The published mean AUC less two published standard errors."""
    number = published("main", dataset, "rad", {"loss": loss})
    assert number is not None
    assert number.se is not None
    return number.mean - 2 * number.se


def report(aucs: dict[tuple[str, str], list[dict[tuple[str, int], float]]]) -> list[dict[str, Any]]:
    """For each rule the mean AUC and the sets missed, by loss; the fewest missed come first."""
    rows = []
    for name, rounds in next(iter(aucs.values()))[0]:
        means = {key: fmean(t[name, rounds] for t in trials) for key, trials in aucs.items()}
        missed = {
            loss: [s for (s, other), m in means.items() if other == loss and m < needed(s, loss)]
            for loss in LOSSES
        }
        by_loss = {x: fmean(m for (_, other), m in means.items() if other == x) for x in LOSSES}
        rows.append(
            {
                "rule": name,
                "rounds": rounds,
                "n_missed": sum(map(len, missed.values())),
                "mean": round(fmean(means.values()), 5),
                "auc": {loss: round(mean, 4) for loss, mean in by_loss.items()},
                "missed": missed,
                "sets": {
                    loss: {s: round(m, 4) for (s, other), m in means.items() if other == loss}
                    for loss in LOSSES
                },
            }
        )
    return sorted(rows, key=lambda row: (row["n_missed"], -row["mean"]))


def show(rows: Sequence[dict[str, Any]]) -> None:
    print("rule                           rounds  missed (of each loss)  mean AUC (of each loss)")
    for row in rows:
        counts = " + ".join(str(len(sets)) for sets in row["missed"].values())
        means = "  ".join(f"{mean:.4f}" for mean in row["auc"].values())
        print(
            f"{row['rule']:<30} {row['rounds']:>6}  {row['n_missed']:>3} = {counts:<15}  "
            f"{row['mean']:.4f} = {means}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[101, 102], help="root seeds")
    parser.add_argument("--trials", type=int, default=15, help="splits of each set from each seed")
    parser.add_argument("--output", type=Path, help="also write the rows as JSON")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", DataWarning)  # constant columns after a split
    sets = sets_at_hand()
    if not sets:
        parser.error("none of the paper's sets can be had; set RISKAD_DATA")
    aucs = defaultdict(list)
    for trial in range(arguments.trials):
        for root in arguments.seeds:
            for dataset in sets:
                for loss in LOSSES:
                    aucs[dataset, loss].append(trial_aucs(dataset, loss, trial, root))
        print(f"{trial + 1} of {arguments.trials} trials", flush=True)
    rows = report(aucs)
    show(rows)
    if arguments.output:
        record = {"seeds": arguments.seeds, "trials": arguments.trials, "losses": LOSSES}
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(record | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
