"""Counts and times, in the text format of Prometheus (version 0.0.4)."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from threading import Lock
from typing import TypeAlias

import numpy as np

from riskad.serving.models import ServedModel
from riskad.serving.window import QUANTILES, Drift, Window

__all__ = ["BUCKETS", "KIND", "Metrics", "Now"]

KIND = "text/plain; version=0.0.4"
BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Upper ends of the latency histogram, in seconds."""
Labels: TypeAlias = Mapping[str, str]
Sample: TypeAlias = tuple[str, Labels, float]


class Now:
    """The current state for a scrape."""

    def __init__(self, model: ServedModel, reload_error: str, waiting: int):
        self.model, self.reload_error, self.waiting = model, reload_error, waiting


class Metrics:
    """What happened since the server started.

    >>> metrics = Metrics()
    >>> metrics.request("/score", 200, 0.004)
    >>> [line for line in metrics.requests() if "total" in line][-1]
    'riskad_requests_total{path="/score",status="200"} 1'
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: dict[str, list[float]] = {}
        self._buckets: dict[str, list[int]] = {}
        self.rows = self.flagged = self.labels = 0
        self.reloads = Counter({"taken": 0, "refused": 0})

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        with self._lock:
            self._requests[path, status] += 1
            counts = self._buckets.setdefault(path, [0] * (len(BUCKETS) + 1))
            counts[bisect_left(BUCKETS, seconds)] += 1
            self._seconds.setdefault(path, [0.0])[0] += seconds

    def scored(self, rows: int, flagged: int) -> None:
        """Count rows that were scored."""
        with self._lock:
            self.rows += rows
            self.flagged += flagged

    def text(self, now: Now, window: Window) -> str:
        """Return all metrics."""
        scores, flags = window.scores()
        lines = [
            *self.requests(),
            *_metric("rows_total", "counter", "Rows scored.", [("", {}, self.rows)]),
            *_metric("flagged_total", "counter", "Rows flagged.", [("", {}, self.flagged)]),
            *_metric("labels_total", "counter", "Labels that came back.", [("", {}, self.labels)]),
            *self._model(now),
            *_scores(scores, flags),
            *_drift(window.drift()),
        ]
        return "\n".join(lines) + "\n"

    def requests(self) -> Iterator[str]:
        """Return lines for requests and their times."""
        with self._lock:
            counted = sorted(self._requests.items())
            times = [(p, list(c), self._seconds[p][0]) for p, c in sorted(self._buckets.items())]
        samples = [("", {"path": p, "status": str(status)}, n) for (p, status), n in counted]
        yield from _metric("requests_total", "counter", "Requests by path and status.", samples)
        yield from _metric(
            "request_seconds",
            "histogram",
            "Time from the head of a request to the end of its answer.",
            [each for path, counts, total in times for each in _histogram(path, counts, total)],
        )

    def _model(self, now: Now) -> Iterator[str]:
        named = {"version": now.model.version, "file": now.model.name}
        yield from _metric("model_info", "gauge", "The model that answers.", [("", named, 1)])
        loaded = now.model.loaded.timestamp()
        yield from _metric(
            "model_loaded_seconds", "gauge", "When it was loaded, since 1970.", [("", {}, loaded)]
        )
        results = [("", {"result": result}, n) for result, n in self.reloads.items()]
        yield from _metric("reloads_total", "counter", "Changes of the model file.", results)
        failed = float(bool(now.reload_error))
        yield from _metric(
            "reload_failed", "gauge", "1 if the file cannot be used.", [("", {}, failed)]
        )
        yield from _metric("waiting", "gauge", "Requests that wait.", [("", {}, now.waiting)])


def _histogram(path: str, counts: list[int], total: float) -> Iterator[Sample]:
    below = 0
    for end, n in zip([*map(str, BUCKETS), "+Inf"], counts, strict=True):
        below += n
        yield "_bucket", {"path": path, "le": end}, below
    yield "_sum", {"path": path}, total
    yield "_count", {"path": path}, below


def _scores(scores: np.ndarray, flags: np.ndarray) -> Iterator[str]:
    rows = len(scores)
    yield from _metric("window_rows", "gauge", "The last rows, for what follows.", [("", {}, rows)])
    if not rows:
        return
    share = float(flags.mean())
    yield from _metric("flagged_share", "gauge", "Share of them flagged.", [("", {}, share)])
    found = zip(QUANTILES, np.quantile(scores, QUANTILES), strict=True)
    samples = [("", {"quantile": str(q)}, float(score)) for q, score in found]
    yield from _metric("score", "gauge", "Quantiles of their anomaly scores.", samples)


def _drift(drift: Drift) -> Iterator[str]:
    if not drift.rows:
        return
    every = [*drift.columns, *([] if drift.scores is None else [drift.scores])]
    largest = max((column.distance for column in every), default=0.0)
    moved = sum(column.moved for column in every)
    yield from _metric(
        "drift", "gauge", "Largest distance D of a column or the scores.", [("", {}, largest)]
    )
    yield from _metric("drift_moved", "gauge", "How many have moved.", [("", {}, moved)])
    columns: list[Sample] = [("", {"column": c.name}, c.distance) for c in drift.columns]
    yield from _metric("drift_column", "gauge", "Distance D of each column.", columns)
    if drift.scores is not None:
        own = drift.scores.distance
        yield from _metric("drift_scores", "gauge", "Distance D of the scores.", [("", {}, own)])


def _metric(name: str, kind: str, words: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP riskad_{name} {words}"
    yield f"# TYPE riskad_{name} {kind}"
    for suffix, labels, value in samples:
        told = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"riskad_{name}{suffix}{f'{{{told}}}' if told else ''} {_number(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
