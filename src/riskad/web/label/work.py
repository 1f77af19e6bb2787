"""One fit in its own process: what the page's server starts, and how the two communicate.

The server puts a task into a folder and starts `python -m riskad.web.label.work FOLDER`. The
process writes lines of JSON to its standard output: what it is doing (`progress`), what it found
(`done`; scores are in the folder as arrays), then reasons of rows, first of those that come next.
On standard input the server requests reasons of other rows. When that closes, as it does when the
server ends for any reason, the process ends, too. There is no pickle and no port.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import polars as pl
from sklearn.pipeline import Pipeline

from riskad.app.fit import FitReport, fit_table
from riskad.app.model_files import load
from riskad.app.noticed import no_warnings
from riskad.app.reasons import Reason, explain_rows, show_value
from riskad.app.results import knows_probabilities, steps_of
from riskad.core.checks import InputError
from riskad.core.labels import Codes
from riskad.decisions.suggest import suggest_rows
from riskad.detectors.outlier_mean import OutlierMean
from riskad.tables.preparation import TablePreparer

_REASONS = 12  # columns of a row
_WORDS = {1: "normal", -1: "anomaly", 0: ""}


@dataclass(frozen=True)
class Task:
    """The task of a process: from which rows to learn, and how.

    `how` is "labels" (`AutoRAD`), "outliers" (without learning from labels) or "model" (an existing
    model file is only used for scores). `rows` are the numbers of the rows, counted from 1, and
    `codes` their labels.
    """

    how: str
    rows: list[int]
    codes: list[int]
    kinds: dict[str, str] = field(default_factory=dict)
    group: str | None = None
    model: str | None = None
    budget: float = 20.0
    suggested: int = 100
    seed: int = 0


@dataclass(frozen=True)
class Found:
    """The results of a task: rows to judge with the kind of each, and messages."""

    how: str
    rows: list[int]
    kinds: list[str]
    threshold: float
    labelled: int
    said: list[str]
    auc: list[float] | None = None
    why_no_auc: str = ""
    rate: list[float] | None = None
    members: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0


def unsupervised(
    frame: pl.DataFrame, kinds: dict[str, str], group: str | None, seed: int = 0
) -> tuple[Pipeline, pl.DataFrame]:
    """Return a fitted ranking that needs no labels, and the parsed rows."""
    preparer = TablePreparer(kinds=kinds, group=group, encode=False)
    with no_warnings():
        parsed = preparer.fit_parse(frame)
        rows = preparer.features(parsed, training=True)
        detector = OutlierMean(random_state=seed)
        detector.fit(rows, np.zeros(parsed.height, dtype=np.int16))
    return Pipeline([("prepare", preparer), ("detect", detector)]), parsed


def suggested(
    model: Pipeline, frame: pl.DataFrame, codes: Codes, n: int, seed: int
) -> tuple[Any, np.ndarray]:
    """Return the rows to judge next, and the anomaly scores of all."""
    preparer, detector = steps_of(model)
    with no_warnings():
        parsed = preparer.parse(frame, quiet=True)
        features, matrix = preparer.features(parsed), preparer.matrix(parsed)
        scores = detector.anomaly_score(features)
        known = _Scored(scores, float(detector.offset_))
        if not (codes == 0).any():
            return None, scores
        found = suggest_rows(known, features, n, y=codes, compared=matrix, random_state=seed)
    return found, scores


class _Scored:
    """A model whose scores of the rows are already known."""

    def __init__(self, anomaly_score: np.ndarray, offset: float):
        self._scores, self.offset_ = -anomaly_score, offset

    def score_samples(self, X: Any) -> np.ndarray:
        return self._scores


# --- the process ------------------------------------------------------------------------------


class _Worker:
    """A process at work on one task."""

    def __init__(self, folder: Path, say: Callable[[dict[str, Any]], None]):
        self.folder, self.say = folder, say
        self.task = Task(**json.loads((folder / "task.json").read_text("utf-8")))
        self.frame = pl.read_ipc(folder / "rows.ipc")
        self.codes = np.array(self.task.codes, dtype=np.int16)
        self.asked = _Asked()
        self.start = perf_counter()

    def run(self) -> None:
        """Fit, report the results, and explain rows until there are no more requests."""
        task = self.task
        if task.how == "labels":
            label = _free_label(self.frame.columns)
            words = pl.Series(label, [_WORDS[int(code)] for code in self.codes])
            fit_table(
                self.frame.with_columns(words),
                label=label,
                normal="normal",
                anomaly="anomaly",
                kinds=task.kinds or {},
                group=task.group,
                settings={"budget": task.budget},
                seed=task.seed,
                top=0,
                progress=lambda what: self.say({"progress": what}),
                fitted=self.tell,  # which does not return before the end
            )
            return
        self.say({"progress": "Scoring the rows"})
        if task.how == "model" and task.model is not None:
            self.tell(load(task.model), None)
            return
        model, _ = unsupervised(self.frame, task.kinds, task.group, task.seed)
        self.tell(model, None)

    def tell(self, model: Pipeline, report: FitReport | None) -> None:
        """Report the results, then explain."""
        task = self.task
        self.say({"progress": "Choosing rows to judge"})
        found, scores = suggested(model, self.frame, self.codes, task.suggested, task.seed)
        np.save(self.folder / "scores.npy", scores)
        detector = model[1]
        if knows_probabilities(detector):
            probabilities = detector.calibration_.anomaly_probability(scores)
            np.save(self.folder / "probabilities.npy", probabilities)
        rows = [] if found is None else [task.rows[place] for place in found.rows]
        self.say({"done": self._summed_up(model, report, rows, found).__dict__})
        for row in rows:
            self.asked.put(row)
        self._explain(model)

    def _summed_up(
        self, model: Pipeline, report: FitReport | None, rows: list[int], found: Any
    ) -> Found:
        detector = model[1]
        leaders = getattr(detector, "leaderboard_", [])
        auc = None if report is None else report.auc
        rate = None if report is None else report.rate
        return Found(
            how=self.task.how,
            rows=rows,
            kinds=[] if found is None else list(found.reasons),
            threshold=float(detector._anomaly_threshold),
            labelled=int((self.codes != 0).sum()),
            said=[] if report is None else [*report.summary, *report.warnings],
            auc=None if auc is None else [auc.value, auc.low, auc.high],
            why_no_auc="" if report is None else report.why_no_auc,
            rate=None if rate is None else [rate.value, rate.low, rate.high],
            members=[
                {name: row[name] for name in ("member", "weight", "auc")}
                for row in leaders
                if row["weight"] > 0
            ],
            seconds=perf_counter() - self.start,
        )

    def _explain(self, model: Pipeline) -> None:
        """Explain rows that the server requests before those that come next."""
        done: set[int] = set()
        while (row := self.asked.get()) is not None:
            if row not in done:
                self.say({"reasons": row, **self._reasons(model, row)})
                done.add(row)

    def _reasons(self, model: Pipeline, row: int) -> dict[str, Any]:
        path = self.folder / f"row-{row}.ipc"
        frame = pl.read_ipc(path) if path.exists() else self._own(row)
        with no_warnings():
            found = explain_rows(model, frame)
        score = float(found.anomaly_score[0])
        told = {"score": score, "adds": [_told(reason) for reason in found.of(0)[:_REASONS]]}
        if knows_probabilities(model[1]):
            probability = model[1].calibration_.anomaly_probability(found.anomaly_score)
            told["probability"] = float(probability[0])
        return told

    def _own(self, row: int) -> pl.DataFrame:
        return self.frame[[self.task.rows.index(row)]]


def _told(reason: Reason) -> dict[str, Any]:
    shown = {"value": show_value(reason.value), "usual": show_value(reason.usual)}
    return {"column": reason.column, **shown, "adds": reason.adds}


def _free_label(columns: list[str]) -> str:
    name = "label"
    while name in columns:
        name += "_"
    return name


class _Asked(queue.Queue[int | None]):
    """Rows to explain; requests of the server come first."""

    def first(self, row: int | None) -> None:
        with self.mutex:
            self.queue.appendleft(row)
            self.not_empty.notify()


def _listen(asked: _Asked, folder: Path) -> None:
    """Read requests until the server has ended for any reason; then delete the folder."""
    for line in sys.stdin:
        asked.first(int(line))
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def main() -> None:
    """Work on the task of a folder."""
    if hasattr(os, "nice"):
        os.nice(10)
    output = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    sys.stdout = sys.stderr  # what libraries print is no answer

    def say(said: dict[str, Any]) -> None:
        print(json.dumps(said), file=output, flush=True)

    folder = Path(sys.argv[1])
    worker = _Worker(folder, say)
    threading.Thread(target=_listen, args=(worker.asked, folder), daemon=True).start()
    try:
        worker.run()
    except InputError as error:
        say({"failed": str(error)})


if __name__ == "__main__":
    main()
