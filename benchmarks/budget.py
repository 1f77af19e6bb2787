"""Whether `AutoRAD` keeps its budget of seconds.

    RISKAD_DATA=... python benchmarks/budget.py --output results/field/budget.json

Fits to the training rows of one split (root seed 101) of the sets that take longest, 5 % labelled,
with budgets from two seconds up. A budget is kept within a fifth if the fit took at most 1.2 times
as long.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from riskad import AutoRAD
from riskad.bench.trial import make_split

DATASETS = ("campaign", "InternetAds", "magic.gamma", "mnist", "mammography", "cardio")
BUDGETS = (2, 5, 10, 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    fits = []
    for dataset in DATASETS:
        split = make_split(dataset, 0, 101, 0.3, 0.05)
        for budget in BUDGETS:
            start = time.perf_counter()
            model = AutoRAD(budget=budget).fit(split.X_train, split.y_train)
            seconds = time.perf_counter() - start
            fits.append(
                {
                    "dataset": dataset,
                    "shape": list(split.X_train.shape),
                    "budget": budget,
                    "seconds": round(seconds, 2),
                    "members": list(model.members_),
                    "rows": model.n_rows_,
                }
            )
            print(fits[-1], flush=True)
    worst = max(fit["seconds"] / fit["budget"] for fit in fits)
    found = {"fits": fits, "largest_share_of_budget": worst, "target": 1.2}
    arguments.output.write_text(json.dumps(found, indent=1) + "\n")
    print(f"largest share of a budget: {worst:.2f}")


if __name__ == "__main__":
    main()
