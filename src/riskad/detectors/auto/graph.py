"""`AutoRAD` as nodes of an ONNX graph: its table, its views, its members, their average."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from riskad.detectors.auto.members import MEMBERS
from riskad.detectors.auto.novelty import NOVELTY
from riskad.detectors.description import GRAPH_TOLERANCE
from riskad.detectors.features.graph import beside
from riskad.detectors.features.native import native_columns
from riskad.rows.encoding import OneHotImputer, SingularVectors

__all__ = ["SaysItsGraph", "rows_around"]

_TRIAL_BLANKS = 0.1


class SaysItsGraph:
    """The graph of an `AutoRAD`."""

    n_features_in_: int
    encoder_: Any
    views_: dict[str, Any]
    members_: dict[str, Any]
    scales_: dict[str, tuple[float, float]]
    weights_: dict[str, float]
    _graph_rows: Callable[[Any, str], str]

    @property
    def graph_tolerance(self) -> float:
        """More than usual if a member with much weight computes in single precision."""
        members = (
            self.weights_[name] / self.scales_[name][1] * getattr(detector, "graph_tolerance", 0.0)
            for name, detector in self.members_.items()
        )
        return max(GRAPH_TOLERANCE, sum(members))

    def onnx_scores(self, graph: Any, rows: str, sparse: bool) -> str:
        """Return the weighted average of the members."""
        return self._averaged(graph, self._standard_scores(graph, rows))

    def onnx_scores_and_novelty(self, graph: Any, rows: str, sparse: bool) -> tuple[str, str]:
        """Return the weighted average of the members, and novelty, high for unusual rows."""
        standard = self._standard_scores(graph, rows)
        own = graph.node("Gather", standard, np.array(list(self.members_).index(NOVELTY)), axis=1)
        return self._averaged(graph, standard), graph.node("Neg", own)

    def trial_rows(self, rng: np.random.Generator, n_rows: int) -> np.ndarray:
        """Return random rows around the training rows, with a tenth of their cells blank."""
        view = self.views_["plain"]
        return rows_around(self.encoder_, view, self.n_features_in_, rng, n_rows)

    def _averaged(self, graph: Any, standard: str) -> str:
        weights = np.array([self.weights_[name] for name in self.members_])
        return str(graph.node("MatMul", standard, weights))

    def _standard_scores(self, graph: Any, rows: str) -> str:
        """Scores of the members, a column each, in standard deviations from their means."""
        table = self._graph_rows(graph, rows)
        numbers = self.encoder_.onnx_rows(graph, table)
        views = {name: view.onnx_parts(graph, numbers) for name, view in self.views_.items()}
        native = native_columns(self.encoder_, self.views_["plain"])
        if native is not None:
            columns = views["plain"]["columns"]
            views["plain"]["native"] = native.onnx_columns(graph, columns, table)
        n_native = None if native is None else native.n_features_out_
        seen: dict[tuple[str, ...], str] = {}
        scores = []
        for name, detector in self.members_.items():
            recipe = MEMBERS[name]
            parts = recipe.parts_among(self.views_[recipe.view].slices_, n_native)
            key = (recipe.view, *parts)
            if key not in seen:
                seen[key] = beside(graph, [views[recipe.view][part] for part in parts])
            score = detector.onnx_scores(graph, seen[key], False)
            scores.append(graph.node("Reshape", score, np.array([-1, 1])))
        mean, spread = np.array([self.scales_[name] for name in self.members_]).T
        return str(graph.node("Div", graph.node("Sub", beside(graph, scores), mean), spread))


def rows_around(
    encoder: OneHotImputer | SingularVectors,
    view: Any,
    n_columns: int,
    rng: np.random.Generator,
    n_rows: int,
) -> np.ndarray:
    """Return random rows with the means and scales of a view, with a tenth of their cells blank."""
    X = rng.standard_normal((n_rows, n_columns))
    if not isinstance(encoder, OneHotImputer):
        return X
    places = [j for j in encoder.numbers_ if j < n_columns]  # evidence comes after all columns
    mean, scale = (each[: len(places)] for each in (view.scaler_.mean, view.scaler_.scale))
    X[:, places] = mean + scale * X[:, places]
    return np.where(rng.random(X.shape) < _TRIAL_BLANKS, np.nan, X)
