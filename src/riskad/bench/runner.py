"""Run the cells of an experiment, keep each result at once, and go on after a crash."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, resource_tracker
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from riskad.bench.experiment import Cell, Experiment, Images, identity_key
from riskad.bench.image_trial import find_device, image_set, run_images
from riskad.bench.peers import Peer
from riskad.bench.provenance import provenance
from riskad.bench.records import FAILED, NOT_RUN, OK, SKIPPED, Records, open_records
from riskad.bench.trial import dataset_of, find_object, run_cell
from riskad.core.checks import InputError
from riskad.datasets import DatasetMissing, DatasetSource

__all__ = ["Outcome", "run_experiment"]


@dataclass(frozen=True)
class Outcome:
    """What a run did: cells done before, done now, failed now, and what is missing for others.

    `missing` are names of datasets, `absent` names of methods whose package is not installed.
    """

    before: int
    done: int
    failed: int
    missing: tuple[str, ...]
    seconds: float
    absent: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [f"{self.done:,} cells run in {self.seconds:,.0f} s"]
        if self.before:
            parts.append(f"{self.before:,} were there")
        if self.failed:
            parts.append(f"{self.failed:,} failed; their records say why")
        if self.missing:
            parts.append(f"not run, since not to be had: {', '.join(self.missing)}")
        if self.absent:
            parts.append(f"not run, since not installed: {', '.join(self.absent)}")
        return "; ".join(parts) + "."


def run_experiment(
    experiment: Experiment,
    folder: Path,
    *,
    jobs: int = 1,
    together: int | None = None,
    device: str = "auto",
    retry_failed: bool = False,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> Outcome:
    """Run what is not yet recorded in FOLDER/NAME.jsonl.

    Each cell's record is written as soon as it is known, so a run that is killed loses the cells
    in flight and nothing else; the next call goes on from there and ends with the same records.
    A dataset that cannot be had is recorded once as not run, and the others are run; so is a
    method of another package that is not installed.

    Tables are worked on by `jobs` processes; images by one, which trains up to `together` networks
    at once on `device`. The cells in flight are those of the workers, or of one such training.
    """
    start = time.perf_counter()
    absent = _absences(experiment)
    place = find_device(device) if isinstance(experiment.protocol, Images) else None
    with open_records(folder / f"{experiment.name}.jsonl") as records:
        missing = _note_missing(experiment, records)
        _note_absent(experiment, records, absent)
        cells = [
            cell
            for cell in experiment.cells()
            if cell.dataset not in missing and cell.method not in absent
        ]
        settled = _settled(records, retry_failed)
        left = [cell for cell in cells if cell.key not in settled]
        before, failed = len(cells) - len(left), 0
        progress(before, len(cells))
        stream = run_images(left, place, together) if place else _run_all(left, jobs)
        for done, record in enumerate(stream, start=1):
            records.append(record)
            failed += record["status"] == FAILED
            progress(before + done, len(cells))
    seconds = time.perf_counter() - start
    return Outcome(before, len(left), failed, missing, seconds, tuple(absent))


def _settled(records: Records, retry_failed: bool) -> set[str]:
    states = (OK, SKIPPED) if retry_failed else (OK, SKIPPED, FAILED)
    return {identity_key(row) for row in records.rows if row["status"] in states}


def _note_missing(experiment: Experiment, records: Records) -> tuple[str, ...]:
    """Names of datasets that cannot be had, recorded once each with the reason."""
    noted = {row.get("dataset") for row in records.rows if row["status"] == NOT_RUN}
    load: Callable[[DatasetSource], object] = (
        image_set if isinstance(experiment.protocol, Images) else dataset_of
    )
    missing: list[str] = []
    said = ""
    for name in experiment.datasets:
        try:
            load(experiment.source(name))
        except DatasetMissing as error:
            missing.append(name)
            said = str(error)
            if name not in noted:
                row = {"experiment": experiment.name, "dataset": name, "status": NOT_RUN}
                records.append(row | {"reason": error.reason})
    if len(missing) == len(experiment.datasets):
        raise InputError(f"none of the datasets of {experiment.name!r} can be had. {said}")
    return tuple(missing)


def _absences(experiment: Experiment) -> dict[str, str]:
    """Methods whose package is not installed, and how to get it.

    Any other class that cannot be imported is an error now, not a row per cell.
    """
    absent = {}
    for method in experiment.methods:
        kind = find_object(str(method.measure or method.estimator))
        if isinstance(kind, type) and issubclass(kind, Peer):
            for settings in method.combinations():
                if reason := kind(**settings).missing():
                    absent[method.name] = reason
    return absent


def _note_absent(experiment: Experiment, records: Records, absent: Mapping[str, str]) -> None:
    """Record each absent method once, with the reason."""
    noted = {row.get("method") for row in records.rows if row["status"] == NOT_RUN}
    for name, reason in absent.items():
        if name not in noted:
            row = {"experiment": experiment.name, "method": name, "status": NOT_RUN}
            records.append(row | {"reason": reason})


def _run_all(cells: Sequence[Cell], jobs: int) -> Iterator[dict[str, Any]]:
    """Records of all cells, in the order in which they are finished."""
    if jobs == 1:
        yield from map(run_cell, cells)
        return
    waiting = deque(cells)
    while waiting:
        flying: dict[Future[dict[str, Any]], Cell] = {}
        with _pool(min(jobs, len(waiting))) as pool:
            try:
                while waiting or flying:
                    while waiting and len(flying) < 2 * jobs:
                        cell = waiting.popleft()
                        flying[_submit(pool, cell)] = cell
                    for future in wait(flying, return_when=FIRST_COMPLETED).done:
                        record = future.result()
                        del flying[future]
                        yield record
            except BrokenProcessPool:
                pass
            except BaseException:  # Ctrl-C, or a full disk: do not begin what is queued
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        # A worker died. Which cell it had is not known, so each is given a process to itself.
        yield from map(_run_alone, flying.values())


def _run_alone(cell: Cell) -> dict[str, Any]:
    with _pool(1) as pool:
        try:
            return _submit(pool, cell).result()
        except BrokenProcessPool:
            reason = "the process died, as when memory runs out"
    return cell.identity | {"status": FAILED, "reason": reason, **provenance()}


def _pool(jobs: int) -> ProcessPoolExecutor:
    # Spawned, not forked: a fork copies threads' locks in whatever state they are.
    with _safe_path():
        return ProcessPoolExecutor(
            jobs,
            mp_context=get_context("spawn"),
            initializer=_start_worker,
            initargs=(os.getpid(),),
        )


def _submit(pool: ProcessPoolExecutor, cell: Cell) -> Future[dict[str, Any]]:
    """Queue a cell, which may start a worker; Ctrl-C is the parent's to act on."""
    with _safe_path(), _interrupt_later():
        return pool.submit(run_cell, cell)


@contextmanager
def _interrupt_later() -> Iterator[None]:
    """Act on Ctrl-C at the end of the block: a worker half started would print a traceback.

    It reaches all processes of a terminal, those too that are still importing. A worker
    inherits the signals blocked here, and so has them blocked from its first instruction. That
    alone does not protect this process: threads of libraries do not block the signal, and
    Python then runs its handler in the main thread all the same.
    """
    if (
        not hasattr(signal, "pthread_sigmask")
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return
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
