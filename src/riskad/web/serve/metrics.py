"""What happened since the start, and the last rows that were scored, for Prometheus."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from scipy import sparse

from riskad.core.checks import InputError
from riskad.decisions.drift import ColumnDrift, compare_scored
from riskad.rows.table import Table
from riskad.web.serve.model import ModelFile, ServedModel

# Upper ends of the latency histogram, in seconds.
_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_MOST_ROWS = 2_000
_MOST_CELLS = 1_000_000
_FEWEST_ROWS = 50  # fewer tell nothing of a drift
_KEEP_SECONDS = 10.0


class Window:
    """The last 2,000 rows of one model, or fewer where there are many columns.

    They are kept as the detector takes them, so that nothing is read twice. A new model begins with
    an empty window.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._start(None)

    def _start(self, model: ServedModel | None) -> None:
        self._model, self._n = model, 0
        self._parts: deque[tuple[Any, NDArray[np.float64], NDArray[np.bool_]]] = deque()
        self._drift: tuple[list[ColumnDrift], ColumnDrift | None] | None = None
        self._drift_found = 0.0
        width = 1 if model is None else len(model.scorer.preparer.get_feature_names_out())
        self._most = int(np.clip(_MOST_CELLS // width, _FEWEST_ROWS, _MOST_ROWS))

    def add(
        self, model: ServedModel, rows: Any, scores: NDArray[np.float64], flagged: NDArray[np.bool_]
    ) -> None:
        """Add rows that were scored."""
        with self._lock:
            if model is not self._model:
                if self._model is not None and model.order < self._model.order:
                    return  # of the model before
                self._start(model)
            last = slice(-self._most, None)
            many = len(scores) > self._most
            self._parts.append((rows[last] if many else rows, scores[last], flagged[last]))
            self._n += len(self._parts[-1][1])
            while self._n - len(self._parts[0][1]) >= self._most:
                self._n -= len(self._parts.popleft()[1])

    def scores(self) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the scores of the last rows, and which were flagged."""
        with self._lock:
            parts = list(self._parts)
        if not parts:
            return np.empty(0), np.empty(0, dtype=bool)
        scores, flags = (np.concatenate([part[k] for part in parts]) for k in (1, 2))
        return scores[-self._most :], flags[-self._most :]

    def drift(self) -> tuple[list[ColumnDrift], ColumnDrift | None] | None:
        """Compare the last rows with those of the fit, by column and by score, if there are enough.

        The result is kept for ten seconds. It takes as long as some requests, and no lock that one
        of them needs.
        """
        with self._lock:
            model, parts, drift = self._model, list(self._parts), self._drift
        if drift is not None and time.monotonic() - self._drift_found < _KEEP_SECONDS:
            return drift
        if model is None or sum(len(scores) for _, scores, _ in parts) < _FEWEST_ROWS:
            return None
        matrices: list[Any] = [part[0] for part in parts]
        if isinstance(matrices[0], Table):
            values = np.concatenate([each.values for each in matrices])
            rows: Any = replace(matrices[0], values=values)
        elif sparse.issparse(matrices[0]):
            rows = sparse.vstack(matrices, "csr")
        else:
            rows = np.concatenate(matrices)
        scores = np.concatenate([part[1] for part in parts])
        names = list(model.scorer.preparer.get_feature_names_out())
        try:
            drift = compare_scored(model.scorer.detector, rows, scores, names)
        except InputError:  # a model that keeps no summary of its rows
            return None
        with self._lock:
            if model is self._model:
                self._drift, self._drift_found = drift, time.monotonic()
        return drift


class Metrics(Collector):
    """What happened since the server started, and its present state."""

    def __init__(self, file: ModelFile, waiting: Callable[[], int]):
        self.registry = registry = CollectorRegistry()
        self.window, self._file, self._waiting = Window(), file, waiting
        count = partial(Counter, registry=registry)
        self.requests = count("riskad_requests", "Requests by path and status.", ["path", "status"])
        about = "Time from the head of a request to the end of its answer."
        self.seconds = Histogram(
            "riskad_request_seconds", about, ["path"], buckets=_BUCKETS, registry=registry
        )
        self.rows = count("riskad_rows", "Rows scored.")
        self.flagged = count("riskad_flagged", "Rows flagged.")
        self.labels = count("riskad_labels", "Labels that came back.")
        self.registry.register(self)

    def describe(self) -> list[Metric]:
        """Name no metric: those of `collect` depend on what has happened."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the state of the model and of the last rows."""
        model = self._file.current
        named = {(model.version, model.name): 1}
        yield _gauge("model_info", "The model that answers.", named, ["version", "file"])
        loaded = model.loaded.timestamp()
        yield _gauge("model_loaded_seconds", "When it was loaded, since 1970.", loaded)
        reloads = {(result,): n for result, n in self._file.reloads.items()}
        yield _counter("reloads", "Changes of the model file.", reloads, ["result"])
        yield _gauge("reload_failed", "1 if the file cannot be used.", bool(self._file.error))
        if (suppression := model.scorer.suppression) is not None:
            counts = suppression.counts
            hidden = {(each.name,): each.suppressed for each in counts}
            about = "Rows that a rule kept from being flagged."
            yield _counter("suppressed", about, hidden, ["rule"])
            likely = {(each.name,): each.likely for each in counts}
            yield _gauge("suppressed_likely", "Of these, likely anomalies.", likely, ["rule"])
            ended = {(rule.name,): rule.expired for rule in suppression.rules.rules}
            yield _gauge("rule_expired", "1 if the rule has ended.", ended, ["rule"])
        yield _gauge("waiting", "Requests that wait.", self._waiting())
        scores, flags = self.window.scores()
        yield _gauge("window_rows", "The last rows, for what follows.", len(scores))
        if len(scores):
            yield _gauge("flagged_share", "Share of them flagged.", flags.mean())
            levels = {(str(q),): np.quantile(scores, q) for q in _QUANTILES}
            yield _gauge("score", "Quantiles of their anomaly scores.", levels, ["quantile"])
        if (drift := self.window.drift()) is not None:
            columns, own = drift
            every = [*columns, *filter(None, [own])]
            largest = max((each.distance for each in every), default=0.0)
            yield _gauge("drift", "Largest distance D of a column or the scores.", largest)
            moved = sum(each.moved for each in every)
            yield _gauge("drift_moved", "How many have moved.", moved)
            distances = {(each.name,): each.distance for each in columns}
            yield _gauge("drift_column", "Distance D of each column.", distances, ["column"])
            if own is not None:
                yield _gauge("drift_scores", "Distance D of the scores.", own.distance)


def _family(
    kind: Any, name: str, about: str, values: float | Mapping[Any, float], labels: Any = ()
) -> Metric:
    metric: Metric = kind(f"riskad_{name}", about, labels=labels)
    for key, value in (values if isinstance(values, Mapping) else {(): values}).items():
        metric.add_metric(key, float(value))  # type: ignore[attr-defined]
    return metric


_gauge = partial(_family, GaugeMetricFamily)
_counter = partial(_family, CounterMetricFamily)
