"""Fits in the background: their processes, their results, and what new labels changed.

A process works while people continue with the results of the last one; when it is done, its scores,
rows and reasons take over at once. If it fails, the last results stay.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

import riskad
from riskad.tables.notes import pluralize
from riskad.web.label.fit_process import FitResult, Task

TOP = 100  # rows of a ranking that are compared with those of the one before
_RECENT = 30  # labels within which the ranking must stay the same
_FEW_CHANGES = 5


@dataclass(eq=False)
class Ranking:
    """The results of a fit for rows; `reasons` come later than the scores."""

    result: FitResult
    places: NDArray[np.int64]
    scores: NDArray[np.float64]
    probabilities: NDArray[np.float64] | None
    reasons: dict[int, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._index = {int(row): i for i, row in enumerate(self.places)}
        self.order = np.argsort(-self.scores, kind="stable")
        self.doubtful = {each["row"]: each for each in self.result.doubtful}
        """Rows whose label looks wrong, the most probable first."""

    def of(self, row: int) -> dict[str, Any]:
        """Return the score of a row, its probability, and whether it is flagged, or None."""
        i = self._index.get(row)
        if i is None:  # a row beside those of the fit has a score once it is explained
            reasons = self.reasons.get(row, {})
            score, probability = reasons.get("score"), reasons.get("probability")
        else:
            score = float(self.scores[i])
            probability = None if self.probabilities is None else float(self.probabilities[i])
        flagged = None if score is None else score > self.result.threshold
        return {"score": score, "probability": probability, "flagged": flagged}

    def worst(self, n: int) -> list[int]:
        """Return the rows with the highest scores."""
        return self.places[self.order[:n]].tolist()


class Worker:
    """A process that fits once and then explains rows."""

    def __init__(self, task: Task, frame: pl.DataFrame, changed: Callable[[Worker], object]):
        self.task, self._changed = task, changed
        self.progress, self.failed = "Starting", ""
        self.ranking: Ranking | None = None
        self._folder = tempfile.TemporaryDirectory(
            prefix="riskad-label-", ignore_cleanup_errors=True
        )
        folder = Path(self._folder.name)
        frame.write_ipc(folder / "rows.ipc")
        (folder / "task.json").write_text(json.dumps(asdict(task)), encoding="utf-8")
        # One core is left to the page.
        threads = dict.fromkeys(("OMP_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "riskad.web.label.fit_process", str(folder)],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            env=os.environ | threads | {"PYTHONPATH": os.pathsep.join(_import_folders())},
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        folder = Path(self._folder.name)
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                message = json.loads(line)
                if "done" in message:
                    scores = np.load(folder / "scores.npy", allow_pickle=False)
                    file = folder / "probabilities.npy"
                    probabilities = np.load(file, allow_pickle=False) if file.exists() else None
                    result = FitResult(**message["done"])
                    self.ranking = Ranking(result, np.array(self.task.rows), scores, probabilities)
                elif "reasons" in message and self.ranking is not None:
                    self.ranking.reasons[message.pop("reasons")] = message
                else:
                    self.progress = message.get("progress", self.progress)
                    self.failed = message.get("failed", self.failed)
                self._changed(self)
        if self.ranking is None and not self.failed:
            self.failed = "the process that fits the model ended without an answer"
            self._changed(self)

    @property
    def running(self) -> bool:
        """Whether the fit is running."""
        return self.ranking is None and not self.failed

    def explain(self, row: int, frame: pl.DataFrame) -> None:
        """Request the reasons of a row, which is the only one of `frame`."""
        if self.ranking is None or row in self.ranking.reasons:
            return
        path = Path(self._folder.name, f"row-{row}.ipc")
        if not path.exists():
            frame.write_ipc(path)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError, ValueError):  # it has ended
            self._process.stdin.write(f"{row}\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.terminate()
        self._process.wait()
        self._folder.cleanup()


def _import_folders() -> list[str]:
    """Where this process finds modules, without the working folder.

    A table that somebody sent may lie there beside a `queue.py`. The folder of riskad itself comes
    last, in case that is where it is.
    """
    here = os.path.realpath(os.curdir)
    folders = [os.path.abspath(folder) for folder in sys.path if os.path.realpath(folder) != here]
    return [*folders, str(Path(riskad.__file__).parents[1])]


def hint_to_stop(fits: Sequence[tuple[int, frozenset[int]]]) -> str:
    """Describe what the last labels changed, and whether one could stop.

    Of each fit we have the number of labels and the top rows. The last labels are the fewest up to
    the last fit that are at least 30, or all.
    """
    if len(fits) < 2:
        return ""
    labelled, top = fits[-1]
    before = [fit for fit in fits[:-1] if labelled - fit[0] >= _RECENT]
    first, old = before[-1] if before else fits[0]
    n_labels, n_new = labelled - first, len(top - old)
    if not n_labels:
        return ""
    rows = pluralize(n_new, "row")
    sentence = f"The last {n_labels} labels changed the top {len(top)} by {rows}"
    may_stop = n_labels >= _RECENT and n_new <= _FEW_CHANGES * len(top) / TOP
    return f"{sentence}; you could stop." if may_stop else f"{sentence}."
