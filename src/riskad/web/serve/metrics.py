"""What happened since the start, and the last rows that were scored, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from riskad.web.serve.model import ModelFile

# Upper ends of the latency histogram, in seconds.
_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


class Metrics(Collector):
    """What happened since the server started, and its present state."""

    def __init__(self, file: ModelFile, waiting: Callable[[], int]):
        self.registry = registry = CollectorRegistry()
        self._file, self._waiting = file, waiting
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
        scores, flags = model.window.scores()
        yield _gauge("window_rows", "The last rows, for what follows.", len(scores))
        if len(scores):
            yield _gauge("flagged_share", "Share of them flagged.", flags.mean())
            levels = {(str(q),): np.quantile(scores, q) for q in _QUANTILES}
            yield _gauge("score", "Quantiles of their anomaly scores.", levels, ["quantile"])
        if (drift := model.window.drift()) is not None:
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
