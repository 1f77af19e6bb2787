"""Shared code of `ShallowRAD` and `StreamingRAD`: linear scores, and their description."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from array_api_compat import array_namespace, is_torch_array
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from riskad.detectors.base import refuse_non_finite
from riskad.detectors.description import MinimisesRisk, say_settings
from riskad.detectors.linear.feature_maps import Features
from riskad.detectors.linear.graph import linear_scores
from riskad.rows.memory import RowBlocks
from riskad.rows.sources import refuse_non_finite_rows
from riskad.storage.fields import State, require

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

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state whose weights are not those of its columns or features."""
        super()._check_state(state)  # type: ignore[misc]  # of the detector
        phi, d = state["feature_map_"], state["n_features_in_"]
        if phi is not None:
            require(phi.n_features_in_ == d, "feature_map_: of other columns")
            d = phi.n_features_out_
        require(len(state["coef_"]) == d, f"coef_: expected {d} weights")

    # --- scores ---------------------------------------------------------------------------

    def _scores(self, X: Any) -> Any:
        """g(x) = <w, phi(x)> + b of rows of which none may be NaN or infinite."""
        if is_torch_array(X):
            return self._scores_of_tensor(X)
        mapped = self.feature_map_ is not None
        if mapped:
            self._check_finite(X)  # a map would refuse it without saying where it is
        with np.errstate(invalid="ignore", over="ignore"):  # reported by name below
            if mapped or X.dtype != np.float64:
                blocks = RowBlocks(X, np.zeros(X.shape[0], dtype=np.int8))
                scores = np.concatenate([self._scores_of_block(block.X) for block in blocks])
            else:
                scores = X @ self.coef_ + self.intercept_
        # A NaN in X shows in its score, unless its weight is zero and the product skipped it.
        if not np.isfinite(scores).all() or not np.all(self.coef_):
            self._check_finite(X)
        return scores

    def _scores_of_block(self, X: Any) -> np.ndarray:
        phi = X if self.feature_map_ is None else self._features.transform(X)
        return np.asarray(phi @ self.coef_ + self.intercept_, dtype=np.float64)

    def _scores_of_tensor(self, X: Any) -> Any:
        xp = array_namespace(X)
        scores = X @ xp.asarray(self.coef_, dtype=X.dtype, device=X.device) + self.intercept_
        if not bool(scores.isfinite().all()):
            zeros = xp.zeros(len(X), dtype=xp.int8, device=X.device)
            names = getattr(self, "feature_names_in_", None)
            refuse_non_finite_rows(RowBlocks(X, zeros), names)
        return scores

    def _check_finite(self, X: Any) -> None:
        """Refuse a table in memory with NaN or infinities, and report where the first one is."""
        if not np.isfinite(X.data if sparse.issparse(X) else X).all():
            refuse_non_finite(X, getattr(self, "feature_names_in_", None))

    # --- descriptions ---------------------------------------------------------------------

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

    def largest_norm(self, X: Any) -> float:
        """Largest ||(phi(x), B)||_2 of these rows, in the coordinates of `weight_norm_`.

        No score exceeds the product of the two: with the penalty "l2" by Cauchy and Schwarz, with
        "l1" all the more.
        """
        check_is_fitted(self)
        X = self._check_rows(X, reset=False)
        rows = RowBlocks(X, np.zeros(X.shape[0], dtype=np.int8)).dense_sized()
        squared = max(float((self._features(block.X) ** 2).sum(axis=1).max()) for block in rows)
        if not np.isfinite(squared):
            refuse_non_finite(X, getattr(self, "feature_names_in_", None))
        return float(np.hypot(np.sqrt(squared), self._constant))

    def lighter(self) -> Self:
        """Return an unfitted copy with nothing left to choose."""
        chosen = {"a": self.a_, "prior": self.prior_, "lam": self.lambda_}
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
