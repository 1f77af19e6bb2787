"""The level of p-values and of false discoveries, by simulation.

    python benchmarks/p_values.py --out results/decisions/p_values.json

Each draw has 60 labelled normals, 8 labelled anomalies and 250 unlabelled rows of a Gaussian table,
of which the share pi_n are anomalies. `ShallowRAD` is fitted and calibrated, and judges 50 new
normal rows and 20 new anomalies. `tests/test_conformal.py` runs the first draws again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from riskad import ShallowRAD, calibrate
from riskad.decisions.conformal import select_at_fdr

RATES = (0.05, 0.2)
LEVELS = (0.05, 0.1, 0.2, 0.5)
FDR = 0.2
N_P, N_N, N_U, D = 60, 8, 250, 4
NEW_NORMAL, NEW_ANOMALOUS = 50, 20


def draw(rng: np.random.Generator, pi_n: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training rows, their codes, and new rows: normal ones, then anomalies."""
    n_new = NEW_NORMAL + NEW_ANOMALOUS
    anomalous = np.zeros(N_P + N_N + N_U + n_new, dtype=bool)
    anomalous[N_P : N_P + N_N + round(pi_n * N_U)] = True
    anomalous[-NEW_ANOMALOUS:] = True
    X = rng.standard_normal((len(anomalous), D)) + 1.7 * anomalous[:, None]
    return X[:-n_new], np.repeat([1, -1, 0], [N_P, N_N, N_U]), X[-n_new:]


def judge(number: int, pi_n: float) -> dict[str, float | list[float]]:
    """Shares of a draw: normal rows with small p-values, false discoveries, anomalies found."""
    X, y, new = draw(np.random.default_rng([number, round(100 * pi_n)]), pi_n)
    model = calibrate(ShallowRAD(lam="tight", tol=1e-3).fit(X, y), X, y, pi_n=0.1)
    p = model.p_values(new)
    selected = select_at_fdr(p, FDR, N_P).selected
    small = (p[:NEW_NORMAL, None] <= np.array(LEVELS)).mean(axis=0)
    false = selected[:NEW_NORMAL].sum() / max(1, selected.sum())
    return {
        "small": [round(float(share), 4) for share in small],
        "false": round(float(false), 4),
        "found": round(float(selected[NEW_NORMAL:].mean()), 4),
    }


def main() -> None:
    """Run all draws and write them with their means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    rates = []
    for pi_n in RATES:
        draws = [judge(number, pi_n) for number in range(arguments.draws)]
        mean = {key: np.mean([d[key] for d in draws], axis=0).round(4).tolist() for key in draws[0]}
        rates.append({"pi_n": pi_n, "mean": mean, "draws": draws})
        print(pi_n, mean, flush=True)
    found = {"levels": LEVELS, "fdr": FDR, "rates": rates}
    arguments.out.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
