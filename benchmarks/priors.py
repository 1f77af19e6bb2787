"""How well the anomaly rate is found: Gaussian mixtures with known rates, and the paper's sets.

    RISKAD_DATA=... python benchmarks/priors.py --output results/theory/priors.json

Mixtures: 500 labelled normals, 50 labelled anomalies, 10,000 rows in the pile, 5 columns; anomalies
lie 3 standard deviations from the normals. Sets: 5 % of the training rows labelled, as in the
paper; the truth is the rate among the rows without label, beside it the fixed 0.2 of the paper.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import tomllib
import warnings
from importlib.resources import files
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from riskad import DataWarning, InputError
from riskad.app.anomaly_rate import estimate_prior
from riskad.bench.experiment import seed_of
from riskad.bench.trial import make_split
from riskad.datasets import load_adbench
from riskad.decisions.anomaly_rate import METHODS, PriorEstimate

RATES = (0.02, 0.05, 0.1, 0.2, 0.4)
FIXED = 0.2
ROOT, TEST_SHARE, LABELLED = 0, 0.3, 0.05  # as in `riskad bench shallow main`
# The room's constants were set while looking at splits of root seed 0; these are others.
SETS_ROOT = 7


def mixture(rate: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """X and y; the pile is drawn from the mixture, so that its own rate varies about `rate`."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.array([1, -1, 0], dtype=np.int8), [500, 50, 10_000])
    anomalous = (y == -1) | ((y == 0) & (rng.random(len(y)) < rate))
    return rng.standard_normal((len(y), 5)) + 3 / np.sqrt(5) * anomalous[:, None], y


def on_mixtures(method: str, rate: float, draws: int) -> dict[str, float]:
    """Errors and coverage over the draws."""
    started = time.perf_counter()
    estimates = [
        # Draws of different rates share nothing.
        estimate_prior(*mixture(rate, seed_of(ROOT, "mixture", str(rate), k)), method=method)
        for k in range(draws)
    ]
    errors = np.array([estimate.pi_n - rate for estimate in estimates])
    ends = np.array([estimate.interval for estimate in estimates])
    covered = (ends[:, 0] <= rate) & (rate <= ends[:, 1])
    return {
        "mean_absolute_error": float(np.abs(errors).mean().round(4)),
        "bias": float(errors.mean().round(4)),
        "coverage": float(covered.mean().round(4)),
        "mean_width": float((ends[:, 1] - ends[:, 0]).mean().round(4)),
        "seconds": round((time.perf_counter() - started) / draws, 3),
    }


def sets(folder: Path) -> list[str]:
    """The sets of the paper's main table that the data folder holds."""
    text = files("riskad.bench").joinpath("experiments/shallow/main.toml").read_text()
    held = {path.stem for path in folder.glob("adbench/*.npz")}
    names = tomllib.loads(text)["datasets"]
    return [name for name in names if any(stem.split("_", 1)[-1] == name for stem in held)]


def trial(name: str, k: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Training rows, their labels, and the rate of anomalies among those without one."""
    split = make_split(name, k, SETS_ROOT, TEST_SHARE, LABELLED)
    truth = load_adbench(name).y
    order = np.random.default_rng(seed_of(SETS_ROOT, name, k, "split")).permutation(len(truth))
    train = order[round(TEST_SHARE * len(truth)) :]
    y = split.y_train
    assert np.array_equal(truth[train][y != 0], y[y != 0])
    return split.X_train, y, float((truth[train][y == 0] == -1).mean())


def estimate_or_auto(X: np.ndarray, y: np.ndarray, method: str) -> PriorEstimate:
    """What "auto" says where labels are too few for the method."""
    try:
        return estimate_prior(X, y, method=method)
    except InputError:
        return estimate_prior(X, y)


def on_set(name: str, trials: int) -> dict[str, object]:
    """Mean absolute error of each method, and the share of its intervals that hold the truth."""
    errors: dict[str, list[float]] = {"fixed": [], **{method: [] for method in METHODS}}
    covered: dict[str, list[bool]] = {method: [] for method in METHODS}
    rates, anomalies = [], []
    for k in range(trials):
        X, y, rate = trial(name, k)
        rates.append(rate)
        anomalies.append(int((y == -1).sum()))
        errors["fixed"].append(abs(FIXED - rate))
        for method in METHODS:
            estimate = estimate_or_auto(X, y, method)
            errors[method].append(abs(estimate.pi_n - rate))
            covered[method].append(estimate.interval[0] <= rate <= estimate.interval[1])
    return {
        "rate": round(float(np.mean(rates)), 4),
        "labelled_anomalies": anomalies,
        "error": {method: round(float(np.mean(own)), 4) for method, own in errors.items()},
        "coverage": {method: round(float(np.mean(own)), 3) for method, own in covered.items()},
    }


def mean_over(found: dict[str, dict[str, object]], what: str) -> dict[str, float]:
    names = next(iter(found.values()))[what]
    return {n: round(float(np.mean([own[what][n] for own in found.values()])), 4) for n in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("RISKAD_DATA", "data")))
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--output", type=Path, help="also write the figures as JSON")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", DataWarning)  # few labels, constant columns after a split
    names = sets(arguments.data)
    if not names:
        parser.error(f"no ADBench sets under {arguments.data}; set RISKAD_DATA")

    print(f"{arguments.draws} mixtures:  method  rate  error  coverage  width")
    mixtures: dict[str, dict[str, dict[str, float]]] = {}
    for method in METHODS[1:]:
        for rate in RATES:
            own = on_mixtures(method, rate, arguments.draws)
            mixtures.setdefault(method, {})[str(rate)] = own
            figures = (own[key] for key in ("mean_absolute_error", "coverage", "mean_width"))
            print(f"{method:<11}{rate:5}" + "".join(f"{x:9.4f}" for x in figures), flush=True)

    print(f"error on sets, {arguments.trials} trials" + "".join(f"{m:>11}" for m in METHODS))
    found = {}
    for name in names:
        found[name] = on_set(name, arguments.trials)
        errors = found[name]["error"].values()
        print(f"{name:<18}" + "".join(f"{e:9.4f}" for e in errors), flush=True)
    means = {what: mean_over(found, what) for what in ("error", "coverage")}
    print("mean", means)
    if arguments.output:
        record = {
            "mixtures": {"draws": arguments.draws, "of": mixtures},
            "sets": {"trials": arguments.trials, "mean": means, "of": found},
        }
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
