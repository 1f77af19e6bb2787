"""What fits cost as rows, columns and workers grow, and where rows are.

`scale-parquet` fits to 20,000,000 x 50 rows in files, beside reading them; `scale-growth` from 1e5
rows to 2e7; `scale-shapes` with more columns, and with sparse rows, in memory; `scale-dask` with
local workers beside one process. Files are written to the folder that RISKAD_SCALE names (5 GB),
and kept.

Times of one experiment are taken side by side in one run, and only their ratios are to be compared.
Rows are drawn at random: normal ones from a Gaussian with correlated columns, a tenth of the
unlabelled rows shifted; 0.01 % of the rows are labelled, at least 500.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from experiments.runner import Cell, Experiment
from experiments.speed.timing import figures, in_own_process, least_seconds, memory
from experiments.summaries import Row, grid, group, json_page
from riskad import ShallowRAD

_ROWS, _COLUMNS, _FILE_ROWS, _GROUP_ROWS, _LAMBDA = 20_000_000, 50, 1_000_000, 250_000, 0.01


def make_rows(n: int, d: int, seed: int, dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray]:
    """Return rows with a common factor, a tenth of them shifted, and codes of a few."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d), dtype=np.float32)
    X += 0.5 * rng.standard_normal((n, 1), dtype=np.float32)
    odd = rng.random(n) < 0.1
    X[odd] += 0.4
    y = np.zeros(n, dtype=np.int16)
    few = max(250, n // 20_000)
    y[rng.choice(np.flatnonzero(odd), few, replace=False)] = -1
    y[rng.choice(np.flatnonzero(~odd), few, replace=False)] = 1
    return X.astype(dtype, copy=False), y


# --- files -----------------------------------------------------------------------------------


def files_of(n: int) -> list[Path]:
    """Return files with so many rows, a million in each; those that are there are kept."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = Path(os.environ.get("RISKAD_SCALE", "data/scale"))
    folder.mkdir(parents=True, exist_ok=True)
    size = min(n, _FILE_ROWS)
    paths = [folder / f"rows-{size}-{i:02d}.parquet" for i in range(n // size)]
    for seed, path in enumerate(paths):
        if not path.exists():
            X, y = make_rows(size, _COLUMNS, seed)
            columns = {f"x{j:02d}": X[:, j] for j in range(_COLUMNS)} | {"label": y}
            part = path.with_suffix(".part")
            pq.write_table(pa.table(columns), part, row_group_size=_GROUP_ROWS)
            part.rename(path)
    return paths


def fit_files(*paths: str) -> dict[str, Any]:
    """Fit to files, and return seconds, passes and the peak of memory. Runs in its own process."""
    from riskad.rows.parquet import ParquetRows

    start = time.perf_counter()
    rows = ParquetRows([Path(path) for path in paths], label="label")
    model = ShallowRAD(lam=_LAMBDA).fit(rows)
    seconds = time.perf_counter() - start
    about = {"passes": rows.passes, "optimality": model.optimality_, "peak_mib": memory("VmHWM")}
    return {"seconds": seconds, **about}


def run_parquet(cell: Cell) -> dict[str, Any]:
    """Return what a fit takes, and the seconds of reading all columns once with pyarrow."""
    import pyarrow.parquet as pq

    paths = files_of(cell["rows"])

    def read() -> None:
        for path in paths:
            for row_group in range((file := pq.ParquetFile(path)).num_row_groups):
                file.read_row_group(row_group)

    read()  # so that the files are where the system keeps them for the fit as well
    before = least_seconds({"": read}, 1)[""]
    fit = in_own_process(f"{__name__}.fit_files", *map(str, paths))
    reading = (before + least_seconds({"": read}, 1)[""]) / 2
    size = sum(path.stat().st_size for path in paths) / 2**30
    ratio = fit["seconds"] / (fit["passes"] * reading)
    return fit | {"file_gib": size, "reading_seconds": reading, "ratio_to_reading": ratio}


def parquet_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return what was measured, and targets."""
    (row,) = figures(rows)
    fit = {name: row.pop(name) for name in ("seconds", "passes", "optimality", "peak_mib")}
    targets = {"ratio_to_reading": 3.0, "peak_mib": 1536}
    return row | {"fit": fit, "targets": targets}


def run_growth(cell: Cell) -> dict[str, Any]:
    """Return what a fit to so many rows takes, the quickest of some."""
    paths = list(map(str, files_of(cell["rows"])))
    repeats = 3 if cell["rows"] <= 3_000_000 else 1
    runs = [in_own_process(f"{__name__}.fit_files", *paths) for _ in range(repeats)]
    return min(runs, key=lambda run: run["seconds"])


def growth_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the fits, with slopes of time in n, log-log."""
    fits = sorted(figures(rows), key=lambda row: row["rows"])
    n, seconds, passes = (
        np.array([f[k] for f in fits], float) for k in ("rows", "seconds", "passes")
    )
    # Rounded: the last digits of a fit differ between processors.
    slopes = [np.polyfit(np.log(n), np.log(t), 1)[0] for t in (seconds, seconds / passes)]
    whole, of_a_pass = (round(float(slope), 6) for slope in slopes)
    about = {"columns": _COLUMNS, "slope_in_n": whole, "slope_in_n_of_a_pass": of_a_pass}
    return about | {"fits": fits, "targets": {"slope_in_n": 1.05}}


# --- memory ----------------------------------------------------------------------------------


def shape_cells() -> Iterator[Cell]:
    """Columns with the number of values held fixed, then densities of rows in CSR."""
    for columns in (10, 30, 100, 300, 1000, 2000):
        yield Cell(method="columns", rows=40_000_000 // columns, columns=columns)
    for density in (0.001, 0.003, 0.01, 0.03, 0.1):
        yield Cell(method="density", rows=200_000, columns=1000, density=density)


def run_shape(cell: Cell) -> dict[str, Any]:
    """Return the least seconds of two fits."""
    n, d, about = cell["rows"], cell["columns"], {}
    if cell["method"] == "columns":
        X, y = make_rows(n, d, seed=0, dtype=np.float64)
    else:
        rng = np.random.default_rng(0)
        X = sparse.random_array((n, d), density=cell["density"], format="csr", rng=rng)
        X.data += 0.5
        y, about = make_rows(n, 1, seed=0)[1], {"stored": X.nnz}
    model = ShallowRAD(lam=_LAMBDA)
    seconds = least_seconds({"": lambda: model.fit(X, y)}, 2)[""]
    return about | {"seconds": seconds, "steps": model.n_iter_}


def shape_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return fits by columns and by density."""
    parts = group(figures(rows), "method")
    columns = sorted(parts["columns"], key=lambda row: row["columns"])
    densities = sorted(parts["density"], key=lambda row: row["density"])
    return {"columns": columns, "density": {"shape": [200_000, 1000], "fits": densities}}


@functools.lru_cache(maxsize=1)
def _in_memory(n: int, chunk: int) -> tuple[ShallowRAD, float, np.ndarray]:
    """A fit to rows in memory, its seconds, and the codes."""
    parts = [make_rows(chunk, _COLUMNS, seed) for seed in range(n // chunk)]
    X, y = (np.concatenate(each) for each in zip(*parts, strict=True))
    model = ShallowRAD(lam=_LAMBDA, tol=1e-9)
    return model, least_seconds({"": lambda: model.fit(X, y)}, 3)[""], y


def run_dask(cell: Cell) -> dict[str, float]:
    """Return the seconds of a fit on local workers, and in one process with all its cores."""
    import dask
    import dask.array as da
    import distributed

    n, chunk = cell["rows"], cell["rows"] // 20
    whole, in_memory, y = _in_memory(n, chunk)
    # Dask lets its workers return memory to the system at once. The arrays of a block, made and
    # dropped a thousand times in a pass, are then new memory each time: twice as slow.
    place = "distributed.nanny.pre-spawn-environ.MALLOC"
    kept = {f"{place}_TRIM_THRESHOLD_": 1 << 28, f"{place}_MMAP_THRESHOLD_": 1 << 26}
    options = {"n_workers": cell["workers"], "threads_per_worker": 1, "dashboard_address": None}
    with dask.config.set(kept), distributed.Client(**options):
        blocks = [
            da.from_delayed(
                dask.delayed(make_rows)(chunk, _COLUMNS, seed)[0], (chunk, _COLUMNS), np.float32
            )
            for seed in range(n // chunk)
        ]
        lazy = da.concatenate(blocks).persist()
        distributed.wait(lazy)
        model = ShallowRAD(lam=_LAMBDA, tol=1e-9)
        seconds = least_seconds({"": lambda: model.fit(lazy, y)}, 3)[""]
    off = float(np.abs(model.coef_ - whole.coef_).max() / np.abs(whole.coef_).max())
    return {"seconds": seconds, "seconds_in_memory": in_memory, "largest_difference": off}


def dask_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return fits by workers, the last of them beside one process."""
    rows = sorted(rows, key=lambda row: row["workers"])
    names, in_memory = ("workers", "seconds", "largest_difference"), rows[-1]["seconds_in_memory"]
    return {
        "shape": [rows[0]["rows"], _COLUMNS],
        "seconds_in_memory": in_memory,
        "ratio_to_memory": rows[-1]["seconds"] / in_memory,
        "workers": [{name: row[name] for name in names} for row in rows],
        "targets": {"ratio_to_memory": 1.6, "largest_difference": 1e-8},
    }


_SIZES = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000, _ROWS)

EXPERIMENTS = (
    Experiment(
        name="scale-parquet",
        title="A fit to 20,000,000 x 50 rows in files, beside reading them",
        cells=grid(rows=(_ROWS,)),
        run_cell=run_parquet,
        report=json_page("parquet.json", parquet_figures),
        folder="scale",
        needs="pyarrow, RISKAD_SCALE",
        minutes="10 minutes",
    ),
    Experiment(
        name="scale-growth",
        title="Fits to 1e5 to 2e7 rows in files",
        cells=grid(rows=_SIZES),
        run_cell=run_growth,
        report=json_page("growth.json", growth_figures),
        folder="scale",
        needs="pyarrow, RISKAD_SCALE",
        minutes="10 minutes",
    ),
    Experiment(
        name="scale-shapes",
        title="Fits by columns and by density",
        cells=shape_cells,
        run_cell=run_shape,
        report=json_page("shapes.json", shape_figures),
        folder="scale",
        minutes="5 minutes",
    ),
    Experiment(
        name="scale-dask",
        title="Fits on local workers beside one process",
        cells=grid(rows=(5_000_000,), workers=(1, 2)),
        run_cell=run_dask,
        report=json_page("dask.json", dask_figures),
        folder="scale",
        needs="dask, distributed",
        minutes="5 minutes",
    ),
)
