"""What fits cost as rows, columns and workers grow, and where rows are.

    python benchmarks/scale.py parquet --folder /somewhere/with/5GB   # 20,000,000 x 50 from files
    python benchmarks/scale.py growth --folder /somewhere/with/5GB    # from 1e5 rows to 2e7
    python benchmarks/scale.py shapes                                 # columns and density
    python benchmarks/scale.py dask                                   # two local workers
    python benchmarks/scale.py gpu                                    # 100,000,000 x 64, CUDA
    RISKAD_DATA=... python benchmarks/scale.py sampling               # AUC with sampled unlabelled
    rows python benchmarks/scale.py model                                  # the costs as a formula

Each part writes results/scale/PART.json. Times of one part are taken side by side in one run, and
only their ratios are to be compared. Rows are drawn at random: normal ones from a Gaussian with
correlated columns, a tenth of the unlabelled rows shifted; 0.01 % of the rows are labelled, at
least 500.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

RESULTS = Path(__file__).parent.parent / "results" / "scale"
ROWS, COLUMNS = 20_000_000, 50
FILE_ROWS, GROUP_ROWS = 1_000_000, 250_000
LAMBDA = 0.01
# Dask lets its workers return memory to the system at once. The arrays of a block, made and dropped
# a thousand times in a pass, are then new memory each time, and a pass takes twice as long.
WORKER_MEMORY = {
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 1 << 28,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 1 << 26,
}
SIZES = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000, 20_000_000)


def make_rows(n: int, d: int, seed: int, dtype: Any = np.float32) -> tuple[Any, np.ndarray]:
    """Rows with a common factor, a tenth of them shifted, and codes of a few."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d), dtype=np.float32)
    X += 0.5 * rng.standard_normal((n, 1), dtype=np.float32)
    odd = rng.random(n) < 0.1
    X[odd] += 0.4
    y = np.zeros(n, dtype=np.int8)
    few = max(250, n // 20_000)
    y[rng.choice(np.flatnonzero(odd), few, replace=False)] = -1
    y[rng.choice(np.flatnonzero(~odd), few, replace=False)] = 1
    return X.astype(dtype, copy=False), y


def write_files(folder: Path) -> list[Path]:
    """Twenty files of a million rows; those that are there are not written again."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"rows-{i:02d}.parquet" for i in range(ROWS // FILE_ROWS)]
    for seed, path in enumerate(paths):
        if not path.exists():
            X, y = make_rows(FILE_ROWS, COLUMNS, seed)
            columns = {f"x{j:02d}": X[:, j] for j in range(COLUMNS)} | {"label": y}
            part = path.with_suffix(".part")
            pq.write_table(pa.table(columns), part, row_group_size=GROUP_ROWS)
            part.rename(path)
    return paths


def read_once(paths: list[Path]) -> float:
    """Seconds to read all columns with pyarrow, in its own threads, and do nothing else."""
    import pyarrow.parquet as pq

    start = time.perf_counter()
    for path in paths:
        for group in range((file := pq.ParquetFile(path)).num_row_groups):
            file.read_row_group(group)
    return time.perf_counter() - start


def fit_files(paths: list[Path]) -> dict[str, Any]:
    """A fit to files: seconds, passes, and the peak of this process's memory."""
    from riskad import ShallowRAD
    from riskad.rows.parquet import ParquetRows

    start = time.perf_counter()
    rows = ParquetRows(paths, label="label")
    model = ShallowRAD(lam=LAMBDA).fit(rows)
    return {
        "rows": rows.n_rows,
        "seconds": time.perf_counter() - start,
        "passes": rows.passes,
        "optimality": model.optimality_,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def in_own_process(part: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, __file__, part, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def parquet(arguments: argparse.Namespace) -> dict[str, Any]:
    paths = write_files(arguments.folder)
    read_once(paths)  # so that the files are where the system keeps them for the fit as well
    before = read_once(paths)
    fit = in_own_process("fit-files", *map(str, paths))
    after = read_once(paths)
    reading = (before + after) / 2
    return {
        "shape": [ROWS, COLUMNS],
        "file_gib": sum(path.stat().st_size for path in paths) / 2**30,
        "seconds_of_reading_once": [before, after],
        "fit": fit,
        "ratio_to_reading": fit["seconds"] / (fit["passes"] * reading),
        "targets": {"ratio_to_reading": 3.0, "peak_mib": 1536},
    }


def growth(arguments: argparse.Namespace) -> dict[str, Any]:
    """Fits to the first files; below a million rows to a file of their own."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = write_files(arguments.folder)
    fits = []
    for n in SIZES:
        if n < FILE_ROWS:
            X, y = make_rows(n, COLUMNS, seed=0)
            few = arguments.folder / f"few-{n}.parquet"
            columns = {f"x{j:02d}": X[:, j] for j in range(COLUMNS)} | {"label": y}
            pq.write_table(pa.table(columns), few, row_group_size=GROUP_ROWS)
            chosen = [few]
        else:
            chosen = paths[: n // FILE_ROWS]
        repeats = 3 if n <= 3_000_000 else 1
        runs = [in_own_process("fit-files", *map(str, chosen)) for _ in range(repeats)]
        fits.append(min(runs, key=lambda run: run["seconds"]))
    n, seconds, passes = (np.array([fit[k] for fit in fits]) for k in ("rows", "seconds", "passes"))
    slope = float(np.polyfit(np.log(n), np.log(seconds), 1)[0])
    by_pass = float(np.polyfit(np.log(n), np.log(seconds / passes), 1)[0])
    return {
        "columns": COLUMNS,
        "fits": fits,
        "slope_in_n": slope,
        "slope_in_n_of_a_pass": by_pass,
        "targets": {"slope_in_n": 1.05},
    }


def timed(fit: Any, repeats: int = 3) -> float:
    """The least seconds of some runs."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        fit()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def shapes(arguments: argparse.Namespace) -> dict[str, Any]:
    """In memory: columns with the number of values held fixed, and density of CSR rows."""
    from scipy import sparse

    from riskad import ShallowRAD

    columns, densities = [], []
    for d in (10, 30, 100, 300, 1000, 2000):
        n = 40_000_000 // d
        X, y = make_rows(n, d, seed=0, dtype=np.float64)
        model = ShallowRAD(lam=LAMBDA)
        seconds = timed(lambda: model.fit(X, y), 2)  # noqa: B023
        columns.append({"rows": n, "columns": d, "seconds": seconds, "steps": model.n_iter_})
        del X
    n, d = 200_000, 1000
    rng = np.random.default_rng(0)
    _, y = make_rows(n, 1, seed=0)
    for density in (0.001, 0.003, 0.01, 0.03, 0.1):
        X = sparse.random_array((n, d), density=density, format="csr", rng=rng)
        X.data += 0.5
        model = ShallowRAD(lam=LAMBDA)
        seconds = timed(lambda: model.fit(X, y), 2)  # noqa: B023
        densities.append({"density": density, "stored": X.nnz, "seconds": seconds})
    return {"columns": columns, "density": {"shape": [n, d], "fits": densities}}


def dask(arguments: argparse.Namespace) -> dict[str, Any]:
    """Two local workers beside one process with all its cores, rows in memory in both."""
    import dask.array as da
    import distributed
    from dask import config

    from riskad import ShallowRAD

    n, chunk = arguments.rows, 250_000
    parts = [make_rows(chunk, COLUMNS, seed) for seed in range(n // chunk)]
    y = np.concatenate([codes for _, codes in parts])
    X = np.concatenate([rows for rows, _ in parts])
    del parts
    memory = timed(lambda: ShallowRAD(lam=LAMBDA, tol=1e-9).fit(X, y))
    whole = ShallowRAD(lam=LAMBDA, tol=1e-9).fit(X, y)
    found: dict[str, Any] = {"shape": [n, COLUMNS], "seconds_in_memory": memory, "workers": []}
    for n_workers in (1, 2):
        with (
            config.set(WORKER_MEMORY),
            distributed.Client(n_workers=n_workers, threads_per_worker=1, dashboard_address=None),
        ):
            blocks = [
                da.from_delayed(
                    _delayed_rows(chunk, COLUMNS, seed), (chunk, COLUMNS), dtype=np.float32
                )
                for seed in range(n // chunk)
            ]
            lazy = da.concatenate(blocks).persist()
            distributed.wait(lazy)
            fits: list[ShallowRAD] = []
            seconds = timed(lambda: fits.append(ShallowRAD(lam=LAMBDA, tol=1e-9).fit(lazy, y)))  # noqa: B023
            worst = float(np.abs(fits[-1].coef_ - whole.coef_).max() / np.abs(whole.coef_).max())
            found["workers"].append(
                {"workers": n_workers, "seconds": seconds, "largest_difference": worst}
            )
    found["ratio_to_memory"] = found["workers"][-1]["seconds"] / memory
    found["targets"] = {"ratio_to_memory": 1.6, "largest_difference": 1e-8}
    return found


def _delayed_rows(n: int, d: int, seed: int) -> Any:
    import dask

    return dask.delayed(make_rows)(n, d, seed)[0]


def gpu(arguments: argparse.Namespace) -> dict[str, Any]:
    """100,000,000 x 64 on a GPU, beside a copy within its memory and the processor."""
    import torch

    from riskad.detectors.shallow import ShallowRAD
    from riskad.rows.memory import RowBlocks

    n, d, tol = arguments.rows, 64, 1e-5
    torch.manual_seed(0)
    X = torch.empty(n, d, device="cuda")
    odd = torch.rand(n, device="cuda") < 0.1
    for start in range(0, n, 10_000_000):
        part = X[start : start + 10_000_000]
        part.normal_()
        part += 0.5 * torch.randn(len(part), 1, device="cuda")
        part += 0.4 * odd[start : start + 10_000_000, None]
    y = torch.zeros(n, dtype=torch.int8, device="cuda")
    y[odd.nonzero()[:5000, 0]] = -1
    y[(~odd).nonzero()[:5000, 0]] = 1
    n_bytes = X.element_size() * X.numel()

    half = X[: n // 2]
    copies = _seconds_on_device(functools.partial(torch.empty_like(half).copy_, half))
    copied = float(np.median(copies))
    bandwidth = n_bytes / copied  # half of the bytes read, and as many written

    passes: list[float] = []
    plain_sum = RowBlocks.sum

    def watched(rows: Any, f: Any) -> Any:
        if rows.n_rows < n:
            return plain_sum(rows, f)
        torch.cuda.synchronize()
        start = time.perf_counter()
        total = plain_sum(rows, f)
        passes.append(time.perf_counter() - start)
        return total

    model = ShallowRAD(lam=LAMBDA, tol=tol)
    model.fit(X, y)  # kernels are compiled
    fits = _seconds_on_device(lambda: model.fit(X, y))
    fit = float(np.median(fits))
    RowBlocks.sum = watched  # type: ignore[method-assign]
    model.fit(X, y)
    RowBlocks.sum = plain_sum  # type: ignore[method-assign]
    *over_all, _ = passes  # the last looks at labelled rows alone

    m = n // 20
    X_host, y_host = X[:m].cpu().numpy(), y[:m].cpu().numpy()
    y_host[np.flatnonzero(y_host == 0)[:500]] = 1
    hosts: list[ShallowRAD] = []
    host = timed(lambda: hosts.append(ShallowRAD(lam=LAMBDA, tol=tol).fit(X_host, y_host)), 2)
    same = ShallowRAD(lam=LAMBDA, tol=tol).fit(X[:m], torch.from_numpy(y_host).cuda())
    apart = np.abs(same.coef_ - hosts[0].coef_).max() / np.abs(same.coef_).max()
    return {
        "device": torch.cuda.get_device_name(),
        "shape": [n, d],
        "optimality": model.optimality_,
        "copy_tb_per_s": bandwidth / 1e12,
        "passes": len(over_all),
        "milliseconds_of_passes": [1e3 * seconds for seconds in over_all],
        "milliseconds_of_fit": 1e3 * fit,
        "milliseconds_of_fits": [1e3 * min(fits), 1e3 * max(fits)],
        "pass_over_copy": n_bytes * len(over_all) / sum(over_all) / bandwidth,
        "fit_over_copy": n_bytes * len(over_all) / fit / bandwidth,
        "cores_of_host": os.cpu_count(),
        "host_rows": m,
        "host_seconds": host,
        "times_the_host_by_row": host / m / (fit / n),
        "coefficients_apart_from_the_host": float(apart),
        "targets": {"fit_over_copy": 0.5},
    }


def sampling(arguments: argparse.Namespace) -> dict[str, Any]:
    """What methods lose that learn from a sample of the unlabelled rows: AUC on test rows, three
    splits.
    """
    from sklearn.metrics import roc_auc_score

    from riskad import AutoRAD, BoostedRAD
    from riskad.bench.trial import make_split

    found = []
    for dataset in ("campaign", "magic.gamma", "mammography"):
        for most in (1_000, 3_000, 10_000, None):
            aucs: dict[str, list[float]] = {"AutoRAD": [], "BoostedRAD": []}
            for trial in range(3):
                split = make_split(dataset, trial, 101, 0.3, 0.05)
                unlabelled = np.flatnonzero(split.y_train == 0)
                unlabelled = np.random.default_rng(trial).permutation(unlabelled)[:most]
                kept = np.sort(np.concatenate([np.flatnonzero(split.y_train), unlabelled]))
                for model in (AutoRAD(budget=120), BoostedRAD()):
                    model.fit(split.X_train[kept], split.y_train[kept])
                    score = -model.score_samples(split.X_test)
                    auc = roc_auc_score(split.truth_test == -1, score)
                    aucs[type(model).__name__].append(float(auc))
            means = {name: float(np.mean(values)) for name, values in aucs.items()}
            found.append({"dataset": dataset, "unlabelled": most or "all", **means})
    return {"trials": 3, "root": 101, "fits": found}


def model(arguments: argparse.Namespace) -> dict[str, Any]:
    """Costs as a formula, from what the other parts have written."""
    parts = {
        path.stem: json.loads(path.read_text()) for path in sorted(arguments.output.glob("*.json"))
    }
    grown = parts["growth"]["fits"]
    n = np.array([fit["rows"] * fit["passes"] for fit in grown], dtype=float)
    seconds = np.array([fit["seconds"] for fit in grown])
    # seconds = start + passes * rows * cost, with relative errors of one size
    design = np.column_stack([np.ones(len(n)), n]) / seconds[:, None]
    start, per_row = np.linalg.lstsq(design, np.ones(len(n)), rcond=None)[0]
    wide = parts["shapes"]["columns"]
    dask_part = parts["dask"]
    rounds = arguments.rounds
    two = dask_part["workers"][-1]["seconds"]
    value_bytes = 4
    plan_rows, plan_columns, workers, cores = 1e10, COLUMNS, 100, 2
    by_worker = plan_rows / workers
    passes = 5
    pass_seconds = by_worker * per_row * 2 / cores
    return {
        "parquet_seconds": {"start": float(start), "per_row_and_pass": float(per_row)},
        "parquet_gb_per_s": value_bytes * COLUMNS / per_row / 1e9,
        "memory_gb_per_s_by_columns": {
            str(fit["columns"]): 8 * fit["rows"] * fit["columns"] / fit["seconds"] / 1e9
            for fit in wide
        },
        "dask_seconds_per_round": (two - dask_part["seconds_in_memory"]) / rounds,
        "plan": {
            "rows": plan_rows,
            "columns": plan_columns,
            "workers": workers,
            "cores_per_worker": cores,
            "bytes_per_worker": by_worker * plan_columns * value_bytes,
            "passes": passes,
            "seconds": passes * pass_seconds + start,
            "core_hours": passes * pass_seconds * workers * cores / 3600,
        },
    }


def _seconds_on_device(work: Any, repeats: int = 15) -> list[float]:
    """Seconds of some runs, each waited for; the first does not count."""
    import torch

    seconds = []
    for _ in range(repeats + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


PARTS = {
    "parquet": parquet,
    "growth": growth,
    "shapes": shapes,
    "dask": dask,
    "gpu": gpu,
    "sampling": sampling,
    "model": model,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=[*PARTS, "fit-files"])
    parser.add_argument("files", nargs="*", type=Path, help="of fit-files, which others call")
    parser.add_argument("--folder", type=Path, default=Path("data/scale"))
    parser.add_argument("--rows", type=int, help="of dask and gpu")
    parser.add_argument("--rounds", type=int, default=8, help="of a fit, for model")
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.part == "fit-files":
        print(json.dumps(fit_files(arguments.files)))
        return
    arguments.rows = arguments.rows or (100_000_000 if arguments.part == "gpu" else 5_000_000)
    found = PARTS[arguments.part](arguments)
    arguments.output.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found, indent=1)
    (arguments.output / f"{arguments.part}.json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
