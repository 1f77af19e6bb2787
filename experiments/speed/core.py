"""Speed of the core: linear fits and scores beside scikit-learn and beside single products.

Ratios are those of the fastest of several alternating runs of both sides, on the same rows in
the same process; imports in fresh processes, memory as the growth of the peak during a fit.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from experiments.runner import Cell, Experiment
from experiments.speed.timing import figures, in_own_process, least_seconds, memory, reset_peak
from experiments.summaries import Row, grid, json_page
from riskad import ShallowRAD

# --- linear models ---------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def make_rows(n: int = 1_000_000, d: int = 50) -> tuple[np.ndarray, np.ndarray]:
    """Return rows with 5 % anomalies, 5 % of them labelled."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    anomalous = rng.random(n) < 0.05
    X[anomalous] += 0.3 * rng.standard_normal(d)
    X *= rng.uniform(0.5, 20, d)
    X += 10 * rng.standard_normal(d)
    truth = np.where(anomalous, -1, 1)
    return X, np.where(rng.random(n) < 0.05, truth, 0).astype(np.int16)


def _ratio(ours: float, theirs: float, speed_up: bool) -> dict[str, float]:
    ratio = theirs / ours if speed_up else ours / theirs
    return {"ratio": round(ratio, 3), "seconds": round(ours, 4), "peer_seconds": round(theirs, 4)}


def fit_dense(loss: str, lam: Any) -> dict[str, Any]:
    """A fit against a scikit-learn pipeline with unlabelled rows as normal."""
    X, y = make_rows()
    model = ShallowRAD(loss, lam=lam, tol=1e-6)
    peer = make_pipeline(StandardScaler(), LogisticRegression(solver="lbfgs"))
    sides = {"ours": lambda: model.fit(X, y), "peer": lambda: peer.fit(X, y == -1)}
    least = least_seconds(sides, 6)
    about = {"relative_gradient": f"{model.optimality_:.1e}", "steps": model.n_iter_}
    return _ratio(least["ours"], least["peer"], speed_up=True) | about


def fit_squared() -> dict[str, Any]:
    """Squared loss against one product X^T X."""
    X, y = make_rows()
    model = ShallowRAD("squared")
    least = least_seconds({"ours": lambda: model.fit(X, y), "peer": lambda: X.T @ X}, 5)
    return _ratio(least["ours"], least["peer"], speed_up=False)


def make_sparse_rows() -> tuple[Any, np.ndarray]:
    """Return 200,000 x 2,000 rows with 1 % non-zero, and codes."""
    rng, (n, d) = np.random.default_rng(0), (200_000, 2000)
    values = {"rng": rng, "data_sampler": lambda size: rng.random(size) + 0.5}
    X = sparse.random_array((n, d), density=0.01, format="csr", **values)
    scores = X @ rng.standard_normal(d)
    truth = np.where(scores < np.quantile(scores, 0.05), -1, 1)
    return X, np.where(rng.random(n) < 0.05, truth, 0).astype(np.int16)


def fit_sparse(loss: str, lam: Any) -> dict[str, Any]:
    """A fit of sparse rows against saga."""
    X, y = make_sparse_rows()
    model = ShallowRAD(loss, lam=lam)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        peer = least_seconds({"": lambda: LogisticRegression(solver="saga").fit(X, y == -1)}, 1)[""]
    ours = least_seconds({"": lambda: model.fit(X, y)}, 2)[""]
    about = {"relative_gradient": f"{model.optimality_:.1e}"}
    return _ratio(ours, peer, speed_up=True) | about


def score_dense() -> dict[str, Any]:
    """Scoring against one product X @ w."""
    X, y = make_rows()
    model, w = ShallowRAD("squared").fit(X, y), np.ones(X.shape[1])
    least = least_seconds({"ours": lambda: model.score_samples(X), "peer": lambda: X @ w}, 15)
    return _ratio(least["ours"], least["peer"], speed_up=False)


def memory_of_fit(loss: str) -> dict[str, Any]:
    """Growth of the peak resident size during a fit, over the size of X."""
    extra, size = in_own_process(f"{__name__}.peak_of_fit", loss)
    return {"ratio": round(extra / size, 3), "extra_MB": round(extra, 1), "X_MB": round(size)}


def peak_of_fit(loss: str) -> list[float]:
    """Return by how many MB the peak grew, and the size of X. Runs in its own process."""
    ShallowRAD(loss).fit(*make_rows(30_000))  # imports and thread buffers are not the fit's
    X, y = make_rows()
    reset_peak()
    before = memory("VmHWM")
    ShallowRAD(loss).fit(X, y)
    return [(memory("VmHWM") - before) * 2**20 / 1e6, X.nbytes / 1e6]


def import_time(statement: str) -> dict[str, Any]:
    """Seconds of an import in fresh processes, less those of Python itself."""
    codes = {"python": "pass", "peer": "import sklearn.linear_model", "ours": statement}
    starts = {
        name: functools.partial(subprocess.run, [sys.executable, "-c", code], check=True)
        for name, code in codes.items()
    }
    least = least_seconds(starts, 7)
    ours, theirs = (least[name] - least["python"] for name in ("ours", "peer"))
    return _ratio(ours, theirs, speed_up=False)


# What is measured: a function, its arguments and the target, ">= 5" or "<= 1.3".
CORE: dict[str, tuple[Callable[..., dict[str, Any]], tuple[Any, ...], str]] = {
    **{
        f"fit 1e6 x 50, {loss}, lam={lam}: speed-up over LogisticRegression": (
            *(fit_dense, (loss, lam)),
            ">= 5",
        )
        for loss in ("modified_huber", "logistic")
        for lam in ("theorem", "tight", 1e-3)
    },
    "fit 1e6 x 50, squared: time over one X.T @ X": (fit_squared, (), "<= 2.5"),
    **{
        f"fit 2e5 x 2,000 sparse, {loss}, lam={lam}: speed-up over saga": (
            *(fit_sparse, (loss, lam)),
            "> 1",
        )
        for loss in ("modified_huber", "logistic")
        for lam in ("theorem", 1e-2)
    },
    "score 1e6 x 50: time over one X @ w": (score_dense, (), "<= 1.3"),
    **{
        f"fit 1e6 x 50, {loss}: peak extra memory over X": (memory_of_fit, (loss,), "<= 0.1")
        for loss in ("modified_huber", "logistic", "squared")
    },
    **{
        f"{statement}: time over import sklearn.linear_model": (import_time, (statement,), "<= 1.5")
        for statement in ("import riskad", "from riskad import ShallowRAD")
    },
}


def run_core(cell: Cell) -> dict[str, Any]:
    """Return the ratio, and whether it meets its target."""
    measure, arguments, target = CORE[cell["method"]]
    found = measure(*arguments)
    sign, bound = target.split()
    met = found["ratio"] <= float(bound) if "<" in sign else found["ratio"] >= float(bound)
    return found | {"target": target, "met": met}


def core_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the ratios in the order of `CORE`."""
    ordered = sorted(figures(rows), key=lambda row: list(CORE).index(row["method"]))
    return {"results": [{"name": row.pop("method"), **row} for row in ordered]}


EXPERIMENTS = (
    Experiment(
        name="speed-core",
        title="Linear fits and scores beside scikit-learn and single products",
        cells=grid(method=CORE),
        run_cell=run_core,
        report=json_page("core.json", core_figures),
        folder="",
        minutes="10 minutes, 2 GB of memory",
    ),
)
