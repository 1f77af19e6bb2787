"""Run the cells of an experiment, keep each result at once, and go on after a crash."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import math
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context, resource_tracker
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from threadpoolctl import threadpool_limits

from experiments.records import (
    FAILED,
    IDENTITY,
    NOT_RUN,
    OK,
    SKIPPED,
    Records,
    commit,
    read_records,
    row_key,
    versions,
)
from riskad import InputError

RESULTS = Path(__file__).parents[1] / "results"

# What may differ when a cell is run again: the machine and the code, not the outcome.
_CIRCUMSTANCES = {"commit", "versions", "device", "together", "warnings"}


def seed_of(root: int, *path: object) -> int:
    """Seed at the place `path` of the tree that grows from `root`.

    Each random draw of an experiment has a place of its own, so a cell that is run alone draws
    what it draws in the full run, whatever ran before it.

    >>> seed_of(0, "pendigits", 3, "split") == seed_of(0, "pendigits", 3, "split")
    True
    >>> seed_of(0, "pendigits", 3, "split") == seed_of(0, "pendigits", 4, "split")
    False
    """
    place = json.dumps([root, *map(str, path)])
    return int.from_bytes(hashlib.sha256(place.encode()).digest()[:4])


class Cell(Mapping[str, Any]):
    """The unit of work and of record, by what identifies it; it cannot be changed.

    >>> cell = Cell(dataset="cardio", method="rad", trial=3, loss="squared")
    >>> cell["dataset"], str(cell)
    ('cardio', 'cardio/rad/3/loss=squared')
    """

    def __init__(self, **identity: Any):
        self._identity = {name: value for name, value in identity.items() if value is not None}

    def __getitem__(self, name: str) -> Any:
        return self._identity[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._identity)

    def __len__(self) -> int:
        return len(self._identity)

    def __hash__(self) -> int:
        return hash(row_key(self, self))

    def __str__(self) -> str:
        known = [str(self[name]) for name in IDENTITY if name in self]
        return "/".join(known + [f"{key}={self[key]}" for key in self if key not in IDENTITY])


@dataclass(frozen=True)
class Experiment:
    """What is run, how one cell of it is run, and how its pages are made."""

    name: str
    title: str  # what it is about, in a line
    cells: Callable[[], Iterable[Cell]]  # all of them, in the order in which to run them
    # The metrics of one cell, by a function of a module, since other processes call it. It may
    # raise `Skipped` or `NotAvailable`; any other error becomes a failed record.
    run_cell: Callable[[Cell], Mapping[str, Any]]
    report: Callable[[pl.DataFrame, Path], None]  # writes the pages into `results/FOLDER`
    folder: str
    needs: str = ""  # data and packages
    minutes: str = ""  # how long it takes, in words
    # In place of `run_cell` where many cells are cheaper together: yields each cell with its
    # metrics or with the error.
    run_cells: Callable[[Sequence[Cell]], Iterator[tuple[Cell, Any]]] | None = None

    def path(self, results: Path = RESULTS) -> Path:
        """Where its records are."""
        return results / self.folder / f"{self.name}.parquet"

    def identity(self) -> tuple[str, ...]:
        """Columns of the records that identify a cell."""
        return tuple({"experiment": None} | {name: None for cell in self.cells() for name in cell})

    def key(self, cell: Cell) -> frozenset[tuple[str, str]]:
        """Return the identity of a cell as `row_key` returns it for its record."""
        return row_key({"experiment": self.name, **cell}, ("experiment", *cell))

    def recorded(self, results: Path = RESULTS) -> list[Cell]:
        """Return the cells that were run and did not fail."""
        identity, rows = self.identity(), read_records(self.path(results)).to_dicts()
        done = {row_key(row, identity) for row in rows if row["status"] == OK}
        return [cell for cell in self.cells() if self.key(cell) in done]

    def chosen(
        self, cells: str | int | None = None, among: Iterable[Cell] | None = None
    ) -> list[Cell]:
        """Return all cells; those whose text matches a pattern; or so many, drawn at random."""
        every = list(self.cells() if among is None else among)
        if cells is None:
            return every
        if isinstance(cells, int) or cells.isdecimal():
            rng = np.random.default_rng(seed_of(0, self.name, "chosen"))
            places = rng.choice(len(every), min(int(cells), len(every)), replace=False)
            return [every[place] for place in sorted(places)]
        matching = [cell for cell in every if fnmatch.fnmatchcase(str(cell), cells)]
        if not matching:
            raise InputError(
                f"no cell of {self.name!r} matches {cells!r}. Cells are called like "
                f"{str(every[0])!r}; * stands for anything."
            )
        return matching


class Skipped(Exception):
    """A cell that its method cannot run, such as one without the labels it needs."""


class NotAvailable(Exception):
    """A dataset or a package that cannot be had here; noted once, and its cells are not run.

    `of` is what all cells concerned have in common, such as dataset="letter".
    """

    def __init__(self, reason: str, **of: Any):
        super().__init__(reason)
        self.of = of

    def __reduce__(self) -> Any:
        return partial(NotAvailable, str(self), **self.of), ()


@dataclass(frozen=True)
class Outcome:
    """What a run did: cells done before, done now, failed now, and what was not available."""

    before: int
    done: int
    failed: int
    missing: Sequence[str]
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.done:,} cells run in {self.seconds:,.0f} s, {self.failed:,} failed; "
            f"{self.before:,} were there; not available: {', '.join(self.missing) or 'none'}."
        )


def run(
    experiment: Experiment,
    *,
    cells: Iterable[Cell] | None = None,
    resume: bool = True,
    jobs: int = 1,
    results: Path = RESULTS,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> Outcome:
    """Run what is not yet recorded, in `jobs` processes, and record each cell at once.

    A run that is killed loses the cells in flight and nothing else; the next call goes on from
    there and ends with the same records. With `resume=False` cells are run again and their records
    replaced.
    """
    start = time.perf_counter()
    chosen = list(experiment.cells() if cells is None else cells)
    identity = experiment.identity()
    with Records(experiment.path(results), identity=identity) as records:
        rows = [row for row in records.rows if row["status"] != NOT_RUN]
        settled = {row_key(row, identity) for row in rows} if resume else set()
        left = [cell for cell in chosen if experiment.key(cell) not in settled]
        records.forget(
            lambda row: row["status"] == NOT_RUN and any(_concerns(row, cell) for cell in left)
        )
        before, done, failed = len(chosen) - len(left), 0, 0
        missing: list[dict[str, Any]] = []
        progress(before, len(chosen))
        for cell, outcome in _outcomes(experiment, _available(left, missing), jobs):
            name = {"experiment": experiment.name}
            if isinstance(outcome, NotAvailable):
                if outcome.of not in missing:
                    missing.append(outcome.of)
                    note = {"status": NOT_RUN, "reason": str(outcome)}
                    records.append({**name, **outcome.of, **note})
                continue
            metrics = _metrics(outcome)
            records.append({"commit": commit(), "versions": versions(), **name, **cell, **metrics})
            done, failed = done + 1, failed + (metrics["status"] == FAILED)
            progress(before + done, len(chosen))
    names = ["/".join(map(str, of.values())) for of in missing]
    return Outcome(before, done, failed, names, time.perf_counter() - start)


def check(
    experiment: Experiment,
    cells: Iterable[Cell],
    *,
    jobs: int = 1,
    tolerance: float = 1e-5,
    results: Path = RESULTS,
) -> Iterator[tuple[Cell, list[str]]]:
    """Run cells again and yield how each differs from its record; nothing is written.

    Times, versions and the device are circumstances and not compared; numbers may differ by
    `tolerance`.
    """
    identity = experiment.identity()
    rows = read_records(experiment.path(results)).to_dicts()
    recorded = {row_key(row, identity): row for row in rows}
    for cell, outcome in _outcomes(experiment, iter(cells), jobs):
        record = recorded.get(experiment.key(cell), {})
        yield cell, differences(_metrics(outcome), record, tolerance)


def differences(
    metrics: Mapping[str, Any], record: Mapping[str, Any], tolerance: float = 1e-5
) -> list[str]:
    """Return how the metrics of a cell differ from its record, in words."""
    lines = []
    for name, value in metrics.items():
        before = record.get(name)
        if name in _CIRCUMSTANCES or name.endswith("seconds") or value == before:
            continue
        try:
            gap = float(np.max(np.abs(np.subtract(value, before))))
        except (TypeError, ValueError):  # texts, or lists of different lengths
            gap = math.inf
        if not gap <= tolerance and value == value:  # not nan
            lines.append(f"{name} is {value}, recorded was {before}")
    return lines


def _available(cells: Iterable[Cell], missing: list[dict[str, Any]]) -> Iterator[Cell]:
    """Cells that need nothing of what is missing, which may grow meanwhile."""
    return (cell for cell in cells if not any(_concerns(of, cell) for of in missing))


def _concerns(of: Mapping[str, Any], cell: Cell) -> bool:
    """Whether what is not available is needed by a cell."""
    names = [name for name in of if name in cell and name != "experiment"]
    return all(cell[name] == of[name] for name in names)


def _metrics(outcome: Mapping[str, Any] | Exception) -> dict[str, Any]:
    """What a record says of a cell, whatever came of it."""
    if isinstance(outcome, Skipped):
        return {"status": SKIPPED, "reason": str(outcome)}
    if isinstance(outcome, Exception):
        return {"status": FAILED, "reason": f"{type(outcome).__name__}: {outcome}"}
    return {"status": OK} | dict(outcome)


# --- processes ---------------------------------------------------------------------------


def _outcomes(
    experiment: Experiment, cells: Iterator[Cell], jobs: int
) -> Iterator[tuple[Cell, Any]]:
    """Each cell with its metrics or its error, in the order in which they are finished."""
    if experiment.run_cells is not None:
        yield from experiment.run_cells(list(cells))
    elif jobs == 1:
        yield from ((cell, _attempt(experiment.run_cell, cell)) for cell in cells)
    else:
        yield from _in_processes(experiment.run_cell, cells, jobs)


def _attempt(run_cell: Callable[[Cell], Mapping[str, Any]], cell: Cell) -> Any:
    """The metrics of a cell with the warnings of its fit, or the error that ended it."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            metrics = dict(run_cell(cell))
    except Exception as error:
        return error
    return metrics | kept_warnings(caught)


def kept_warnings(caught: Sequence[warnings.WarningMessage]) -> dict[str, list[str]]:
    """What a record says of the warnings of a fit, if there were any."""
    texts = sorted({str(entry.message)[:200] for entry in caught})
    return {"warnings": texts} if texts else {}


def _in_processes(
    run_cell: Callable[[Cell], Any], cells: Iterator[Cell], jobs: int
) -> Iterator[tuple[Cell, Any]]:
    is_done = False
    while not is_done:
        flying: dict[Future[Any], Cell] = {}
        with _pool(jobs) as pool:
            try:
                while True:
                    # Two per worker: none waits for the parent. `cells` may shrink meanwhile.
                    while len(flying) < 2 * jobs and (cell := next(cells, None)) is not None:
                        flying[_submit(pool, run_cell, cell)] = cell
                    if not flying:
                        is_done = True
                        break
                    for future in wait(flying, return_when=FIRST_COMPLETED).done:
                        outcome = future.result()
                        yield flying.pop(future), outcome
            except BrokenProcessPool:
                pass
            except BaseException:  # Ctrl-C, or a full disk: do not begin what is queued
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        # A worker died. Which cell it had is not known, so each is given a process to itself.
        for cell in flying.values():
            yield cell, _run_alone(run_cell, cell)


def _run_alone(run_cell: Callable[[Cell], Any], cell: Cell) -> Any:
    with _pool(1) as pool:
        try:
            return _submit(pool, run_cell, cell).result()
        except BrokenProcessPool:
            return RuntimeError("the process died, as when memory runs out")


def _pool(jobs: int) -> ProcessPoolExecutor:
    # Spawned, not forked: a fork copies threads' locks in whatever state they are.
    with _safe_path():
        context, start = get_context("spawn"), partial(_start_worker, os.getpid())
        return ProcessPoolExecutor(jobs, mp_context=context, initializer=start)


def _submit(pool: ProcessPoolExecutor, run_cell: Callable[[Cell], Any], cell: Cell) -> Future[Any]:
    """Queue a cell, which may start a worker; Ctrl-C is the parent's to act on."""
    with _safe_path(), _interrupt_later():
        try:
            return pool.submit(_attempt, run_cell, cell)
        except BrokenProcessPool as error:  # a worker died just now: this cell is not to be lost
            future: Future[Any] = Future()
            future.set_exception(error)
            return future


@contextmanager
def _interrupt_later() -> Iterator[None]:
    """Act on Ctrl-C at the end of the block: a worker half started would print a traceback.

    A worker inherits the signals blocked here. That alone does not protect this process: threads
    of libraries do not block the signal, and Python then runs its handler in the main thread.
    """
    resource_tracker.ensure_running()  # the first start of it would let the signal through
    interrupts: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: interrupts.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
    if interrupts:
        signal.raise_signal(signal.SIGINT)


@contextmanager
def _safe_path() -> Iterator[None]:
    """Processes start as `python -c`, which would import files of the working folder."""
    before = os.environ.get("PYTHONSAFEPATH", "")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        os.environ["PYTHONSAFEPATH"] = before  # blank is as good as none


def _start_worker(parent: int) -> None:
    """One thread per worker, since all cores have one; and none outlives a killed parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threadpool_limits(1)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
