"""Speed of the core, as ratios measured side by side in one run.

    python benchmarks/core.py                 # all, a few minutes
    python benchmarks/core.py dense scoring   # some
    python benchmarks/core.py --output results/core.json

Each ratio compares the fastest of several alternating runs of both sides, on the same rows in the
same process (imports: in fresh processes). The machine's load changes from minute to minute and
from run to run; the ratio of two fastest runs changes least. Memory is measured in a fresh process
as the growth of its peak resident size during the fit.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

RESULTS: list[dict[str, Any]] = []


def report(name: str, ratio: float, target: str, met: bool, **facts: Any) -> None:
    RESULTS.append({"name": name, "ratio": round(ratio, 3), "target": target, "met": met, **facts})
    shown = ", ".join(f"{key} {value}" for key, value in facts.items())
    print(
        f"{'ok  ' if met else 'MISS'} {name:<58} {ratio:6.2f}  (target {target}; {shown})",
        flush=True,
    )


def fastest(*sides: Callable[[], Any], runs: int = 5) -> list[float]:
    """Fastest time of each side, the sides taking turns."""
    times: list[list[float]] = [[] for _ in sides]
    for _ in range(runs):
        for side, taken in zip(sides, times, strict=True):
            start = time.perf_counter()
            side()
            taken.append(time.perf_counter() - start)
    return [min(taken) for taken in times]


def make_rows(n: int = 1_000_000, d: int = 50, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Unlabelled rows with 5 % anomalies, 5 % of it labelled."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    anomalous = rng.random(n) < 0.05
    X[anomalous] += 0.3 * rng.standard_normal(d)
    X *= rng.uniform(0.5, 20, d)
    X += 10 * rng.standard_normal(d)
    truth = np.where(anomalous, -1, 1)
    return X, np.where(rng.random(n) < 0.05, truth, 0).astype(np.int8)


def dense() -> None:
    """Fit of 1,000,000 x 50 against a scikit-learn pipeline with unlabelled rows as normal."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from riskad import ShallowRAD

    X, y = make_rows()

    def peer() -> None:
        make_pipeline(StandardScaler(), LogisticRegression(solver="lbfgs")).fit(X, y == -1)

    for loss in ("modified_huber", "logistic"):
        for lam in ("theorem", "tight", 1e-3):
            model = ShallowRAD(loss, lam=lam, tol=1e-6)
            ours, theirs = fastest(lambda: model.fit(X, y), peer, runs=6)  # noqa: B023
            report(
                f"fit 1e6 x 50, {loss}, lam={lam}: speed-up over LogisticRegression",
                theirs / ours,
                ">= 5",
                theirs / ours >= 5,
                seconds=round(ours, 3),
                peer_seconds=round(theirs, 3),
                relative_gradient=f"{model.optimality_:.1e}",
                steps=model.n_iter_,
            )


def squared() -> None:
    """Squared loss against one product X^T X."""
    from riskad import ShallowRAD

    X, y = make_rows()
    model = ShallowRAD("squared")
    ours, product = fastest(lambda: model.fit(X, y), lambda: X.T @ X)
    report(
        "fit 1e6 x 50, squared: time over one X.T @ X",
        ours / product,
        "<= 2.5",
        ours / product <= 2.5,
        seconds=round(ours, 3),
        product_seconds=round(product, 3),
    )


def sparse_rows() -> None:
    """Fit of 200,000 x 2,000 with 1 % non-zero against saga."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    from riskad import ShallowRAD

    rng = np.random.default_rng(0)
    shape = (200_000, 2000)
    X = sparse.random_array(
        shape, density=0.01, format="csr", rng=rng, data_sampler=lambda size: rng.random(size) + 0.5
    )
    scores = X @ rng.standard_normal(shape[1])
    truth = np.where(scores < np.quantile(scores, 0.05), -1, 1)
    y = np.where(rng.random(shape[0]) < 0.05, truth, 0).astype(np.int8)

    def peer() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            LogisticRegression(solver="saga").fit(X, y == -1)

    (saga,) = fastest(peer, runs=1)
    for loss in ("modified_huber", "logistic"):
        for lam in ("theorem", 1e-2):
            model = ShallowRAD(loss, lam=lam)
            (ours,) = fastest(lambda: model.fit(X, y), runs=2)  # noqa: B023
            report(
                f"fit 2e5 x 2,000 sparse, {loss}, lam={lam}: speed-up over saga",
                saga / ours,
                "> 1",
                saga / ours > 1,
                seconds=round(ours, 2),
                peer_seconds=round(saga, 2),
                relative_gradient=f"{model.optimality_:.1e}",
            )


def scoring() -> None:
    """Scoring against one product X @ w."""
    from riskad import ShallowRAD

    X, y = make_rows()
    model = ShallowRAD("squared").fit(X, y)
    w = np.ones(X.shape[1])
    ours, product = fastest(lambda: model.score_samples(X), lambda: X @ w, runs=15)
    report(
        "score 1e6 x 50: time over one X @ w",
        ours / product,
        "<= 1.3",
        ours / product <= 1.3,
        seconds=round(ours, 4),
        product_seconds=round(product, 4),
    )


def memory() -> None:
    """Growth of the peak resident size while fitting 1,000,000 x 50."""
    for loss in ("modified_huber", "logistic", "squared"):
        command = [sys.executable, __file__, "--peak-of", loss]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        extra, size = (int(number) for number in out.split())
        report(
            f"fit 1e6 x 50, {loss}: peak extra memory over X",
            extra / size,
            "<= 0.1",
            extra / size <= 0.1,
            extra_MB=round(extra / 1e6, 1),
            X_MB=round(size / 1e6),
        )


def peak_of(loss: str) -> None:
    """Print how many bytes the peak grew by, and the size of X. Runs in its own process."""
    from riskad import ShallowRAD

    X, y = make_rows()
    small = make_rows(30_000)
    ShallowRAD(loss).fit(*small)  # imports and thread buffers are not the fit's
    trim_peak()
    before = peak_bytes()
    ShallowRAD(loss).fit(X, y)
    print(peak_bytes() - before, X.nbytes)


def trim_peak() -> None:
    """Reset the kernel's peak counter to the present size (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """Peak resident size of this process since the last reset."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(row for row in status.read_text().splitlines() if row.startswith("VmHWM"))
        return 1024 * int(line.split()[1])
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def imports() -> None:
    """Import times in fresh processes, less that of Python itself."""

    def start(code: str) -> Callable[[], Any]:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)

    ours = ("import riskad", "from riskad import ShallowRAD")
    codes = ("pass", "import sklearn.linear_model", *ours)
    python, peer, *taken = fastest(*(start(code) for code in codes), runs=7)
    for name, seconds in zip(ours, taken, strict=True):
        ratio = (seconds - python) / (peer - python)
        report(
            f"{name}: time over import sklearn.linear_model",
            ratio,
            "<= 1.5",
            ratio <= 1.5,
            seconds=round(seconds - python, 3),
            peer_seconds=round(peer - python, 3),
        )


BENCHMARKS = {
    "dense": dense,
    "squared": squared,
    "sparse": sparse_rows,
    "scoring": scoring,
    "memory": memory,
    "imports": imports,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", choices=[[], *BENCHMARKS], default=[])
    parser.add_argument("--output", type=Path, help="also write the ratios as JSON")
    parser.add_argument("--peak-of", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak_of:
        peak_of(arguments.peak_of)
        return
    for name in arguments.names or BENCHMARKS:
        BENCHMARKS[name]()
    if arguments.output:
        libraries = ("numpy", "scipy", "scikit-learn")
        versions = {"python": platform.python_version(), **{lib: version(lib) for lib in libraries}}
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        record = {"versions": versions, "results": RESULTS}
        arguments.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
