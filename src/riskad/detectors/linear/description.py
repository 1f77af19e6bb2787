"""Shared code of `ShallowRAD` and `StreamingRAD`: linear scores, and their description."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

from scipy import sparse
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from riskad.detectors.description import MinimisesRisk, say_settings
from riskad.detectors.linear.feature_maps import Features
from riskad.detectors.linear.graph import linear_scores
from riskad.detectors.linear.scoring import LinearScores

__all__ = ["HasLinearScores"]

_LAMBDA_SOURCES = {
    "theorem": "from Theorem 1, so the objective cannot be negative",
    "tight": "the smallest proved to keep the objective non-negative",
    "cv": "cross-validated on the labelled rows",
}


class HasLinearScores(MinimisesRisk):
    """The description of a detector whose scores are linear in features phi(x)."""

    fits_any_source: ClassVar[bool] = True
    has_bounds: ClassVar[bool] = True
    remedy_setting: ClassVar[str] = " with lam='cv'"

    feature_map: Any
    feature_map_: Any
    lam: Any
    penalty: str
    lambda_: float
    a_: float
    prior_: float
    coef_: Any
    intercept_: float
    solver_: str
    n_iter_: int
    optimality_: float
    objective_: float
    weight_norm_: float
    converged_: bool
    fit_intercept: bool
    intercept_scaling: float
    random_state: int | None
    _mean: Any
    _scale: Any

    if TYPE_CHECKING:  # of the detector

        def _check_rows(self, X: Any, reset: bool) -> Any: ...

    @property
    def _seed(self) -> int:
        return 0 if self.random_state is None else int(self.random_state)

    @property
    def _constant(self) -> float:
        """B, or 0 without an intercept."""
        return float(self.intercept_scaling) if self.fit_intercept else 0.0

    @property
    def _features(self) -> Features:
        return Features(self.feature_map_, self._mean, self._scale)

    @property
    def _linear_scores(self) -> LinearScores:
        names = getattr(self, "feature_names_in_", None)
        return LinearScores(self.coef_, self.intercept_, self._features, names)

    def _scores(self, X: Any) -> Any:
        return self._linear_scores(X)

    def describe(self) -> dict[str, Any]:
        """Return the regularisation, the result of the solver and the parts of the objective."""
        return super().describe() | {
            "lambda": float(self.lambda_),
            "solver": self.solver_,
            "iterations": int(self.n_iter_),
            "optimality": float(self.optimality_),
            "converged": bool(self.converged_),
            "objective": float(self.objective_),
            "weight_norm": float(self.weight_norm_),
        }

    def describe_in_words(self) -> list[str]:
        """Return what was minimised, how strongly it was regularised and how the solver ended."""
        shape = "linear" if self.feature_map is None else f"{self.feature_map} features"
        source = _LAMBDA_SOURCES.get(str(self.lam), "as given")
        steps = "1 step" if self.n_iter_ == 1 else f"{self.n_iter_} steps"
        ending = "converged in" if self.converged_ else "did not converge in"
        return [
            say_settings(shape, self),
            f"lambda = {self.lambda_:.4g} ({self.penalty}), {source}",
            f"{self.solver_} {ending} {steps} (optimality {self.optimality_:.1e})",
        ]

    def note_of_rows(self, X: Any) -> dict[str, float]:
        """Return the largest norm of the rows, which bounds need."""
        return {"row_norm": self.largest_norm(X)}

    def largest_norm(self, X: Any) -> float:
        """Largest ||(phi(x), B)||_2 of these rows, in the coordinates of `weight_norm_`.

        No score exceeds the product of the two: with the penalty "l2" by Cauchy and Schwarz, with
        "l1" all the more.
        """
        check_is_fitted(self)
        return self._linear_scores.largest_norm(self._check_rows(X, reset=False), self._constant)

    def lighter(self) -> Self:
        """Return an unfitted copy with nothing left to choose."""
        chosen = {"a": self.a_, "prior": self.prior_, "lam": self.lambda_, "select": None}
        copy = clone(self)
        known = copy.get_params(deep=False)
        return copy.set_params(**{k: v for k, v in chosen.items() if k in known})

    def needs_rows(self) -> bool:
        """Return whether the feature map uses training rows as centres, or may do so."""
        return self.feature_map == "nystroem" or not isinstance(self.feature_map, str | None)

    def kept_rows(self) -> int:
        """Return the number of training rows that the feature map holds."""
        kept: int = getattr(self.feature_map_, "kept_rows", lambda: 0)()
        return kept

    def onnx_scores(self, graph: Any, rows: str, sparse: bool) -> str:
        """Return <w, phi(x)> + b."""
        return linear_scores(graph, rows, self, sparse)

    def contributions(self, X: Any) -> tuple[Any, float] | None:
        """Return w_j x_j and b; None with a feature map, in which columns interact."""
        if self.feature_map_ is not None:
            return None
        return (X.multiply(self.coef_) if sparse.issparse(X) else X * self.coef_), self.intercept_
