"""One fit in its own process: what the page's server starts, and how the two communicate.

The server puts a task into a folder and starts `python -m riskad.web.label.fit_process FOLDER`. The
process writes lines of JSON to its standard output: what it is doing (`progress`), the result
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
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from riskad.app.fit import FitReport, fit_table
from riskad.app.model_files import load
from riskad.app.reasons import explain_rows, show_value
from riskad.app.score import knows_probabilities, steps_of
from riskad.app.series import plain_model, window_codes
from riskad.core.checks import InputError
from riskad.core.labels import Codes
from riskad.decisions.calibration import quietly
from riskad.decisions.suggest import suggest_rows
from riskad.detectors.outlier_mean import OutlierMean
from riskad.tables.cells import free_name
from riskad.tables.preparation import TablePreparer
from riskad.tables.windows import Windows

_REASONS = 12  # columns of a row
_WORDS = {1: "normal", -1: "anomaly", 0: ""}


@dataclass(frozen=True)
class Task:
    """The task of a process: from which rows to learn, and how.

    `how` is "labels" (`AutoRAD`), "outliers" (without learning from labels) or "model" (an existing
    model file is only used for scores). `rows` are the numbers of the rows, counted from 1, and
    `codes` their labels. With `cut` (`time`, `window`, `step`) they are points of time series: the
    fit is to windows, and a row is as suspicious as the windows that hold it.
    """

    how: str
    rows: list[int]
    codes: list[int]
    kinds: dict[str, str] = field(default_factory=dict)
    group: str | None = None
    model: str | None = None
    budget: float = 20.0
    n_rows: int = 100
    seed: int = 0
    cut: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FitResult:
    """The results of a task: rows to judge with the kind of each, and messages."""

    how: str
    rows: list[int]
    kinds: list[str]
    threshold: float
    labelled: int
    notes: list[str]
    auc: list[float] | None = None
    why_no_auc: str = ""
    rate: list[float] | None = None
    members: list[dict[str, Any]] = field(default_factory=list)
    doubtful: list[dict[str, Any]] = field(default_factory=list)


def fit_outliers(
    frame: pl.DataFrame, kinds: dict[str, str], group: str | None, seed: int = 0
) -> tuple[Pipeline, pl.DataFrame]:
    """Return a fitted ranking that needs no labels, and the parsed rows."""
    preparer = TablePreparer(kinds=kinds, group=group, encode=False)
    with quietly():
        parsed = preparer.fit_parse(frame)
        rows = preparer.features(parsed, training=True)
        detector = OutlierMean(random_state=seed)
        detector.fit(rows, np.zeros(parsed.height, dtype=np.int16))
    return Pipeline([("prepare", preparer), ("detect", detector)]), parsed


def suggest(
    model: Pipeline, frame: pl.DataFrame, codes: Codes, n: int, seed: int
) -> tuple[Any, np.ndarray]:
    """Return the rows to judge next, and the anomaly scores of all."""
    preparer, detector = steps_of(model)
    with quietly():
        parsed = preparer.parse(frame, quiet=True)
        features, matrix = preparer.features(parsed), preparer.matrix(parsed)
        scores = detector.anomaly_score(features)
        if not (codes == 0).any():
            return None, scores
        # A model whose scores of the rows are already computed.
        model = SimpleNamespace(score_samples=lambda _: -scores, offset_=float(detector.offset_))
        rows = suggest_rows(model, features, n, y=codes, compared=matrix, random_state=seed)
    return rows, scores


# --- the process ------------------------------------------------------------------------------


class _Worker:
    """A process at work on one task."""

    def __init__(self, folder: Path, send: Callable[[dict[str, Any]], None]):
        self.folder, self.send = folder, send
        self.task = Task(**json.loads((folder / "task.json").read_text("utf-8")))
        self.frame = pl.read_ipc(folder / "rows.ipc")
        self.codes = np.array(self.task.codes, dtype=np.int16)
        self.requests = queue.LifoQueue[int]()  # rows to explain: requests of the server come first
        self.windows: Windows | None = None
        self.scores: NDArray[np.float64]  # of the windows, or of the rows

    def run(self) -> None:
        """Fit, report the results, and explain rows until there are no more requests."""
        task, frame = self.task, self.frame
        if task.model is not None and task.how == "model":
            self.send({"progress": "Scoring the rows"})
            self.report(load(task.model), None)
        options: dict[str, Any] = {"model": "outliers"}
        if task.how == "labels":
            label = free_name(frame.columns, "label")
            words = [_WORDS[int(code)] for code in self.codes]
            frame = frame.with_columns(pl.Series(label, words))
            options = {"label": label, "normal": "normal", "anomaly": "anomaly"}
            options["settings"] = {"budget": task.budget}
        fit_table(
            frame,
            **options,
            **task.cut,
            kinds=task.kinds,
            group=task.group,
            seed=task.seed,
            top=0,
            progress=lambda what: self.send({"progress": what}),
            on_fit=self.report,  # which does not return before the end
        )

    def report(self, model: Pipeline, report: FitReport | None) -> NoReturn:
        """Report the results, then explain."""
        task = self.task
        self.send({"progress": "Choosing rows to judge"})
        detector, frame, codes = model[1], self.frame, self.codes
        if hasattr(model[0], "windower_"):
            with quietly():
                self.windows = model[0].windower_.cut(frame)
            model, frame = plain_model(model), self.windows.frame
            codes = window_codes(self.windows, codes)
        suggestions, self.scores = suggest(model, frame, codes, task.n_rows, task.seed)
        chosen, scores = [] if suggestions is None else suggestions.rows, self.scores
        if self.windows is not None:
            chosen, points = self.windows.middles()[chosen], self.windows.points.rows
            scores = np.full(len(self.codes), self.scores.min())  # of a row without a moment
            scores[points] = self.windows.over_points(self.scores)
        np.save(self.folder / "scores.npy", scores)
        if knows_probabilities(detector):
            probabilities = detector.calibration_.anomaly_probability(scores)
            np.save(self.folder / "probabilities.npy", probabilities)
        rows = [task.rows[i] for i in chosen]
        for row in reversed(rows):
            self.requests.put(row)
        self.send({"done": vars(self._summary(model, report, rows, suggestions))})
        done: set[int] = set()
        while True:  # `_listen` ends the process
            row = self.requests.get()
            if row not in done:
                self.send({"reasons": row, **self._reasons(model, row)})
                done.add(row)

    def _summary(
        self, model: Pipeline, report: FitReport | None, rows: list[int], suggestions: Any
    ) -> FitResult:
        result = FitResult(
            how=self.task.how,
            rows=rows,
            kinds=[] if suggestions is None else list(suggestions.reasons),
            threshold=float(model[1]._anomaly_threshold),
            labelled=int((self.codes != 0).sum()),
            notes=[],
            members=[
                {name: row[name] for name in ("member", "weight")}
                for row in getattr(model[1], "leaderboard_", [])
                if row["weight"] > 0
            ],
        )
        if report is None:
            return result
        auc, rate, doubtful = report.auc, report.rate, report.doubtful
        return replace(
            result,
            notes=[*report.summary, *report.warnings],
            auc=None if auc is None else [auc.value, auc.low, auc.high],
            why_no_auc=report.why_no_auc,
            rate=None if rate is None else [rate.value, rate.low, rate.high],
            doubtful=[
                {
                    "row": self.task.rows[each.row - 1],
                    "label": each.label,
                    "percent": each.percent,
                    "why": f"probably wrong ({each.percent}): it looks {each.looks}",
                }
                for each in ([] if doubtful is None else doubtful.rows)
            ],
        )

    def _reasons(self, model: Pipeline, row: int) -> dict[str, Any]:
        path = self.folder / f"row-{row}.ipc"
        if self.windows is not None:
            place = np.flatnonzero(self.windows.points.rows == self.task.rows.index(row))
            frame = self.windows.frame[self.windows.highest(place, self.scores)]
        elif path.exists():
            frame = pl.read_ipc(path)
        else:
            frame = self.frame[[self.task.rows.index(row)]]
        if not frame.height:  # a row without a moment is in no window
            return {"score": float(self.scores.min()), "adds": []}
        with quietly():
            reasons = explain_rows(model, frame)
        score = float(reasons.anomaly_score[0])
        adds = [
            {
                "column": reason.column,
                "value": show_value(reason.value),
                "usual": show_value(reason.usual),
                "adds": reason.adds,
            }
            for reason in reasons.of(0)[:_REASONS]
        ]
        message: dict[str, Any] = {"score": score, "adds": adds}
        if knows_probabilities(model[1]):
            probability = model[1].calibration_.anomaly_probability(reasons.anomaly_score)
            message["probability"] = float(probability[0])
        return message


def _listen(requests: queue.Queue[int], folder: Path) -> None:
    """Read requests until the server has ended for any reason; then delete the folder."""
    for line in sys.stdin:
        requests.put(int(line))
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def main() -> None:
    """Work on the task of a folder."""
    if hasattr(os, "nice"):
        os.nice(10)  # the page comes first
    output = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    sys.stdout = sys.stderr  # what libraries print is no answer

    def send(message: dict[str, Any]) -> None:
        print(json.dumps(message), file=output, flush=True)

    folder = Path(sys.argv[1])
    worker = _Worker(folder, send)
    threading.Thread(target=_listen, args=(worker.requests, folder), daemon=True).start()
    try:
        worker.run()
    except InputError as error:
        send({"failed": str(error)})


if __name__ == "__main__":
    main()
