"""What it costs when Spark or Dask score and fit, and that kills change nothing.

`scale-engines` scores Parquet files of 20 columns by quick trees: one process with threads on both
cores, Spark with local[2], and Dask with two local workers, one after the other in each trial, so
that ratios within a trial can be compared. An engine has begun, and its workers have imported
riskad, before the clock starts. `scale-bytes` counts what crosses between a fit and its workers.
`scale-kills` kills a worker in the middle of fits and of scoring jobs.

Spark needs pyspark and Java. Files are kept in the folder that RISKAD_SCALE names.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import polars as pl

import riskad
from experiments.runner import Cell, Experiment, seed_of
from experiments.speed.scale import make_rows
from experiments.speed.timing import figures, in_own_process, memory
from experiments.summaries import Row, grid, group, json_page
from riskad.rows.engine import Threads

_COLUMNS, _FILE_ROWS, _GROUP_ROWS = 20, 1_000_000, 250_000
_LABELS: dict[str, Any] = {
    "label": "label",
    "normal": ["1"],
    "anomaly": ["-1"],
    "others_unlabelled": True,
}
_ENGINES = ("threads", "spark", "dask")


def _folder() -> Path:
    folder = Path(os.environ.get("RISKAD_SCALE", "data/scale"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def wide_files(n: int, group_rows: int = _GROUP_ROWS) -> list[Path]:
    """Return files with so many rows of 20 columns; those that are there are kept."""
    size = min(n, _FILE_ROWS)
    paths = [
        _folder() / f"w{_COLUMNS}-{size}-{group_rows}-{i:02d}.parquet" for i in range(n // size)
    ]
    for seed, path in enumerate(paths):
        if not path.exists():
            X, y = make_rows(size, _COLUMNS, seed)
            table = pl.DataFrame({f"x{j:02d}": X[:, j] for j in range(_COLUMNS)} | {"label": y})
            table.write_parquet(path.with_suffix(".part"), row_group_size=group_rows)
            path.with_suffix(".part").rename(path)
    return paths


def student() -> Path:
    """Return the file of a model whose trees have learned the scores of the default one."""
    from riskad.app.change_model import compress_model
    from riskad.app.model_files import make_header

    path = _folder() / "student.riskad"
    if not path.exists():
        rows = pl.read_parquet(wide_files(_FILE_ROWS)[0])
        rows = pl.concat([rows.filter(pl.col("label") != 0), rows.filter(label=0)[:5_000]])
        fit = riskad.fit_table(rows, **_LABELS)
        riskad.save(compress_model(fit.model, make_header(fit.model))[0], path)
    return path


@contextmanager
def begun(name: str, workers: int = 2) -> Iterator[Any]:
    """Give workers that have imported what they need."""
    if name == "threads":
        engine = Threads(workers)
        list(engine.map(_import, range(workers)))
        yield engine
        return
    if name == "spark":
        from riskad.rows.cluster import open_engine

        path = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))  # of the executors
        with open_engine("spark", f"local[{workers},4]") as engine:
            list(engine.map(_import, range(2 * workers)))
            yield engine
        return
    import distributed

    from riskad.rows.cluster import DaskEngine

    options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.Client(**options) as client:
        engine = DaskEngine(client)
        list(engine.map(_import, range(2 * workers)))
        yield engine


def _import(item: int, number: int) -> int:
    import riskad.app.batch_scoring
    import riskad.detectors.compressed  # noqa: F401

    time.sleep(0.2)  # so that each worker gets one
    return os.getpid()


# --- scores -----------------------------------------------------------------------------------


class Measured:
    """An engine whose tasks also say which process they ran in and how much memory it had."""

    def __init__(self, engine: Any):
        self.engine, self.peaks = engine, dict[int, float]()

    def map(self, function: Callable[..., Any], items: Sequence[Any]) -> Iterator[Any]:
        """As the engine does."""
        for result, process, peak in self.engine.map(partial(_with_peak, function), items):
            self.peaks[process] = max(peak, self.peaks.get(process, 0.0))
            yield result


def _with_peak(function: Callable[..., Any], item: Any, number: int) -> Any:
    return function(item, number), os.getpid(), memory("VmHWM")


def score_with(name: str, n: int, workers: int, out: str) -> dict[str, Any]:
    """Score files by an engine, and return what it took. Runs in its own process."""
    from riskad.app.batch_scoring import score_files

    model, paths = riskad.load(student()), wide_files(n, min(_GROUP_ROWS, n // 8))
    with begun(name, workers) as engine:
        measured = Measured(engine)
        start, before = time.perf_counter(), processor_seconds()
        report = score_files(model, paths, Path(out), measured, quick=True)
        seconds, processor = time.perf_counter() - start, processor_seconds() - before
    return {
        "seconds": seconds,
        "rows_per_second": report.rows / seconds,
        "processor_seconds": processor,
        "flagged": report.flagged,
        "peak_mib_per_worker": max(measured.peaks.values()),
        "processes": len(measured.peaks),
    }


def processor_seconds() -> float:
    """Return the processor time of this process and of all that it has started (Linux).

    On a machine with other work it says more than the clock about what an engine costs.
    """
    times, parents = dict[int, float](), dict[int, int]()
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            about = file.read_text().rpartition(")")[2].split()
            process = int(file.parent.name)
            parents[process] = int(about[1])
            times[process] = (int(about[11]) + int(about[12])) / os.sysconf("SC_CLK_TCK")

    def is_ours(process: int) -> bool:
        while process > 1 and process != os.getpid():
            process = parents.get(process, 0)
        return process == os.getpid()

    return sum(seconds for process, seconds in times.items() if is_ours(process))


def run_engine(cell: Cell) -> dict[str, Any]:
    """Return rows per second and memory, and whether all rows were written once."""
    wide_files(cell["rows"], min(_GROUP_ROWS, cell["rows"] // 8))
    student()
    with tempfile.TemporaryDirectory(dir=_folder()) as folder:
        out = Path(folder, "scored")
        what = cell["method"], cell["rows"], cell["workers"]
        result = in_own_process(f"{__name__}.score_with", *what, str(out))
        scored = pl.scan_parquet(out / "*.parquet").select(
            pl.len(), pl.col("anomaly_score").sum().alias("sum")
        )
        rows, total = scored.collect().row(0)
        size = sum(path.stat().st_size for path in out.iterdir())
    result["bytes_per_row"] = size / cell["rows"]
    return result | {"complete": rows == cell["rows"], "sum_of_scores": round(total, 6)}


def engine_cells() -> Iterator[Cell]:
    """Engines take turns in each trial; larger tables come last."""
    sizes = ((200_000, 2, 3), (2_000_000, 1, 1), (2_000_000, 2, 3), (20_000_000, 2, 1))
    for rows, workers, trials in sizes:
        for trial in range(trials):
            for name in _ENGINES:
                yield Cell(method=name, rows=rows, workers=workers, trial=trial)


def engine_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the runs, and by rows and workers the medians over trials of ratios to one process."""
    runs, ratios = figures([row | {"run": row["trial"]} for row in rows]), []
    for (n, workers), of_size in group(runs, "rows", "workers").items():
        trials = [{r["method"]: r for r in t} for t in group(of_size, "run").values()]
        for name in _ENGINES[1:]:
            both = [(t[name], t["threads"]) for t in trials if {name, "threads"} <= t.keys()]
            clock = [one["rows_per_second"] / other["rows_per_second"] for one, other in both]
            work = [other["processor_seconds"] / one["processor_seconds"] for one, other in both]
            if both:
                medians = {
                    "of_rows_per_second": round(float(np.median(clock)), 3),
                    "of_rows_per_processor_second": round(float(np.median(work)), 3),
                }
                about = {"rows": n, "workers": workers, "method": name, "trials": len(both)}
                ratios.append(about | medians)
    peaks = {
        name: round(max(run["peak_mib_per_worker"] for run in of_engine))
        for name, of_engine in group(runs, "method").items()
    }
    targets = {"ratio_to_one_process": 0.7}
    return {"ratios": ratios, "peak_mib_per_worker": peaks, "targets": targets, "runs": runs}


# --- bytes ------------------------------------------------------------------------------------


class Counting(Threads):
    """Counts what would travel: a function to each worker, and a result from each part."""

    def __init__(self) -> None:
        super().__init__(2)
        self.passes: list[tuple[int, int, int]] = []

    def map(self, function: Callable[..., Any], items: Sequence[Any]) -> Iterator[Any]:
        """As threads do."""
        results = list(super().map(function, items))
        down, up = (
            len(cloudpickle.dumps(function)),
            [len(cloudpickle.dumps(each)) for each in results],
        )
        if len(items) > 1:
            self.passes.append((down, len(items), sum(up)))
        yield from results


def run_bytes(cell: Cell) -> dict[str, Any]:
    """Return the bytes of the passes of a fit: the largest, and the median, a solver step."""
    engine, paths = Counting(), wide_files(cell["rows"], cell["rows"] // 40)
    options: dict[str, Any] = {"model": cell["method"]}
    options |= {"settings": {"lam": 0.01}} if cell["method"] == "shallow" else {}
    riskad.fit_table(paths, **_LABELS, engine=engine, **options)
    down, parts, up = (np.array(each) for each in zip(*engine.passes, strict=True))
    per_part = up / parts
    return {
        "passes": len(parts),
        "parts": int(parts[0]),
        "down_median": float(np.median(down)),
        "up_per_part_least": float(per_part.min()),
        "up_per_part_largest": float(per_part.max()),
        "up_largest_pass": int(up.max()),
    }


# --- kills ------------------------------------------------------------------------------------


class Killing:
    """An engine of which one worker kills itself at a task, before its work or after it."""

    def __init__(self, engine: Any, folder: Path, call: int, task: int, after: bool):
        self.engine, self.calls = engine, 0
        self.kill = folder, call, task, after

    def map(self, function: Callable[..., Any], items: Sequence[Any]) -> Iterator[Any]:
        """As the engine does; the call is counted among those of several parts."""
        self.calls += len(items) > 1
        folder, call, task, after = self.kill
        due = len(items) > 1 and self.calls == call
        mine = partial(_killed, function, folder, task % len(items) if due else -1, after)
        yield from self.engine.map(mine, items)


def _killed(
    function: Callable[..., Any], folder: Path, task: int, after: bool, item: Any, number: int
) -> Any:
    def die() -> None:
        if number == task:
            try:
                os.close(os.open(folder / "killed", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)  # this very process

    if not after:
        die()
    result = function(item, number)
    die()
    return result


@functools.cache
def _undisturbed(job: str) -> Any:
    return _do(job, Threads(2), Path(tempfile.mkdtemp(prefix="riskad-")) / "scored")


def _do(job: str, engine: Any, out: Path) -> Any:
    """Do a job, and return what must not change."""
    from riskad.app.batch_scoring import score_files
    from riskad.rows.parquet import ParquetRows

    paths = wide_files(80_000, 10_000)
    if job == "fit":
        rows = ParquetRows(paths, label="label", engine=engine)
        return riskad.ShallowRAD(lam=0.01, tol=1e-9).fit(rows).coef_
    score_files(riskad.load(student()), paths, out, engine, quick=True)
    scored = pl.concat(map(pl.read_parquet, sorted(out.glob("*.parquet"))))
    shutil.rmtree(out)
    return scored.select("x00", "anomaly_score").to_numpy()


@functools.cache
def _cluster(name: str) -> Any:
    """An engine that lives as long as this process: workers are killed, and not the cluster."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(begun(name))


def run_kill(cell: Cell) -> dict[str, Any]:
    """Kill a worker in a job, and return what was killed and what that has changed."""
    job, rng = cell["job"], np.random.default_rng(seed_of(0, "kills", *cell.values()))
    call = 1 if job == "score" else int(rng.integers(1, 4))
    task, after = int(rng.integers(8)), bool(rng.integers(2))
    with tempfile.TemporaryDirectory() as folder:
        killing = Killing(_cluster(cell["method"]), Path(folder), call, task, after)
        result, whole = _do(job, killing, Path(folder, "scored")), _undisturbed(job)
        killed = Path(folder, "killed").exists()
    same = result.shape == whole.shape
    largest = float(np.abs(result - whole).max() / np.abs(whole).max()) if same else float("inf")
    about = {"killed": killed, "call": call, "task": task, "after": after}
    return about | {"largest_difference": largest}


def kill_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return how many kills changed what."""
    runs = figures(rows)
    return {
        "kills": sum(run["killed"] for run in runs),
        "largest_difference": max(run["largest_difference"] for run in runs if run["killed"]),
        "runs": runs,
    }


EXPERIMENTS = (
    Experiment(
        name="scale-engines",
        title="Quick scores by Spark and Dask beside one process",
        cells=engine_cells,
        run_cell=run_engine,
        report=json_page("engines.json", engine_figures),
        folder="scale",
        needs="pyspark, Java, dask, distributed, RISKAD_SCALE",
        minutes="half an hour",
    ),
    Experiment(
        name="scale-bytes",
        title="What crosses the network in the passes of a fit",
        cells=grid(method=("shallow", "auto"), rows=(200_000, 1_000_000)),
        run_cell=run_bytes,
        report=json_page("bytes.json", figures),
        folder="scale",
        needs="pyarrow, RISKAD_SCALE",
        minutes="5 minutes",
    ),
    Experiment(
        name="scale-kills",
        title="Workers killed in fits and scoring jobs",
        cells=grid(trial=range(5), method=("dask", "spark"), job=("fit", "score")),
        run_cell=run_kill,
        report=json_page("kills.json", kill_figures),
        folder="scale",
        needs="pyspark, Java, dask, distributed, RISKAD_SCALE",
        minutes="10 minutes",
    ),
)
