"""Reasons of `AutoRAD`: seconds and errors of sets that are drawn, beside orders and all sets.

    python benchmarks/reasons.py --output results/reasons.json

For tables of 3,000 rows, 5 % of them labelled, 8 suspicious rows get reasons in three ways: as
`riskad.explain_rows` does; as it did before, by 8 pairs of orders, or all sets of 10 columns and
fewer, row by row; and by 100 pairs of orders or all sets, which stands for the truth. Errors are
the largest of a row, as a share of its largest reason, on average over the rows. Both are timed in
turns in one process with one thread, in seconds of its processor; the least of each counts.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import riskad
from riskad.app.reasons import _view
from riskad.bench.provenance import provenance
from riskad.decisions.shapley import _all_sets, _Game

COLUMNS = (5, 10, 20, 40)
N_ROWS, N_EXPLAINED, TURNS, TRUTH = 3_000, 8, 2, 100
ENUMERATED, PAIRS = 10, 8


def make_rows(n_columns: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    odd = rng.random(N_ROWS) < 0.1
    X = rng.normal(size=(N_ROWS, n_columns)) @ rng.normal(size=(n_columns, n_columns))
    X[odd] += rng.normal(0, 2, n_columns)
    return X, np.where(rng.random(N_ROWS) < 0.05, np.where(odd, -1, 1), 0)


def by_orders(games: list[_Game], pairs: int) -> np.ndarray:
    """Shapley values row by row: over all sets of few columns, else over pairs of orders."""
    found = []
    for game in games:
        if game.k <= ENUMERATED:
            found.append(game.enumerate(game.value(_all_sets(game.k)[1:-1])))
        else:
            rng = np.random.default_rng(0)
            turns = [game.gains_of_pairs(rng) for _ in range(-(-pairs // PAIRS))]
            found.append(np.concatenate(turns).mean(axis=0))
    return np.stack(found)


def beside_orders(n_columns: int) -> dict[str, Any]:
    X, y = make_rows(n_columns)
    model = riskad.AutoRAD().fit(X, y)
    rows = X[np.argsort(-model.anomaly_score(X))[:N_EXPLAINED]]
    view = _view(model, rows, X)
    scores, base = view.score(view.matrix), float(view.score(view.reference_row)[0])
    games = [_Game.of(view, i, base, float(score)) for i, score in enumerate(scores)]
    truth = by_orders(games, TRUTH)
    seconds = np.empty((TURNS, 2))
    for turn in seconds:
        start = time.process_time()
        orders = by_orders(games, PAIRS)
        turn[0] = time.process_time() - start
        start = time.process_time()
        now = riskad.explain_rows(model, rows, background=X)
        turn[1] = time.process_time() - start
    largest = np.abs(truth).max(axis=1)
    before, after = (1000 * seconds.min(axis=0) / len(rows)).tolist()
    off = np.abs(now.contributions - truth)
    rounding = 1e-5 * largest[:, None]  # single precision, by which rows are scored together
    return {
        "ms_a_row_before": round(before, 1),
        "ms_a_row": round(after, 1),
        "times_faster": round(before / after, 1),
        "error_before": round(float((np.abs(orders - truth).max(axis=1) / largest).mean()), 3),
        "error": round(float((off.max(axis=1) / largest).mean()), 3),
        "within_two_errors": round(float((off <= 2 * now.errors + rounding).mean()), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    found: dict[str, Any] = {}
    for n_columns in COLUMNS:
        found[f"{n_columns} columns"] = beside_orders(n_columns)
        print(n_columns, found[f"{n_columns} columns"], flush=True)
    found |= provenance()
    if arguments.output:
        arguments.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
