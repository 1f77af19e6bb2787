"""What `ShallowRAD` and `StreamingRAD` share: settings, scores <w, phi(x)> + b, and reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from array_api_compat import array_namespace, is_torch_array
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from riskad.core.checks import InputError, check_choice, check_in_interval
from riskad.core.labels import UNLABELLED
from riskad.core.losses import LOSSES, Loss
from riskad.core.objective import RowSum
from riskad.core.risks import RISKS, Risk, get_risk
from riskad.decisions.drift import UnlabelledSummary, rows_to_sum_up
from riskad.decisions.thresholds import zero_one_threshold
from riskad.detectors.base import Detector, check_whole, checked_scores, refuse_non_finite
from riskad.detectors.description import DetectorTags, RiskMinimizer, settings_in_words
from riskad.detectors.linear.feature_maps import (
    FEATURE_MAPS,
    FITTED_MAP,
    UNFITTED_MAP,
    Features,
)
from riskad.files import fields
from riskad.files.fields import State, require
from riskad.rows.arrays import on_host_array
from riskad.rows.sources import (
    RowBlocks,
    RowSource,
    at_most,
    dense_rows,
    on_host,
    refuse_non_finite_rows,
)
from riskad.solvers import Problem, Solution

_LAMBDA_SOURCES = {
    "theorem": "from Theorem 1, so the objective cannot be negative",
    "tight": "the smallest proved to keep the objective non-negative",
    "cv": "cross-validated on the labelled rows",
}
LARGEST_CONSTANT = 1e100  # whose square can be computed with
# This many rows determine the threshold, a single number, well enough.
_THRESHOLD_ROWS = 20_000


class LinearDetector(RiskMinimizer, Detector):
    """A detector whose scores are linear in features phi(x)."""

    _remedy_setting: ClassVar[str] = " with lam='cv'"

    loss: Annotated[str | Loss, fields.Text(choices=LOSSES)]
    a: Annotated[float, fields.Number(-1, 1)]
    prior: Annotated[float, fields.SHARE]
    lam: Any
    risk: Annotated[str, fields.Text(choices=RISKS)]
    feature_map: Annotated[
        Any, fields.Maybe(fields.Either(fields.Text(choices=FEATURE_MAPS), UNFITTED_MAP))
    ]
    intercept_scaling: Annotated[float, fields.Number(0, LARGEST_CONSTANT)]
    scale: Annotated[bool, fields.FLAG]
    tol: Annotated[float, fields.Number(0)]
    max_iter: Annotated[int, fields.Number(1, 10**9, whole=True)]
    _mean: Annotated[np.ndarray, fields.Array("f", ("n_features_in_",))]
    _scale: Annotated[
        np.ndarray, fields.Array("f", ("n_features_in_",), np.nextafter(0, 1), infinite=True)
    ]
    feature_map_: Annotated[Any, fields.Maybe(FITTED_MAP)]
    a_: Annotated[float, fields.NUMBER]
    prior_: Annotated[float, fields.SHARE]
    lambda_: Annotated[float, fields.Number(0)]
    coef_: Annotated[np.ndarray, fields.Array("f", ("weights",))]
    intercept_: Annotated[float, fields.NUMBER]
    objective_: Annotated[float, fields.NUMBER]
    weight_norm_: Annotated[float, fields.Number(0)]
    solver_: Annotated[str, fields.TEXT]
    n_iter_: Annotated[int, fields.COUNT]
    criterion_: Annotated[str, fields.TEXT]
    optimality_: Annotated[float, fields.NUMBER]
    converged_: Annotated[bool, fields.FLAG]
    risk_parts_: Annotated[dict[str, float], fields.DictOf(fields.TEXT, fields.NUMBER)]

    def _check_settings(self) -> Risk:
        """The bound risk; every parameter is checked before any work."""
        check_in_interval("tol", self.tol, 0, 1)
        remedy = "The larger it is, the less the intercept is penalised; 0 means none."
        check_in_interval(
            "intercept_scaling", self.intercept_scaling, 0, LARGEST_CONSTANT, remedy, closed=True
        )
        check_whole("max_iter", self.max_iter)
        return get_risk(self.risk, self.loss, a=self.a, prior=self.prior)

    def _check_lambda(self, rules: Sequence[str]) -> None:
        if isinstance(self.lam, str):
            check_choice("lam", self.lam, rules)
        elif not isinstance(self.lam, Real) or not 0 <= float(self.lam) < np.inf:
            raise InputError(
                f"lam must be a number >= 0 or one of {', '.join(rules)}, got {self.lam!r}."
            )

    @property
    def _features(self) -> Features:
        return Features(self.feature_map_, self._mean, self._scale)

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state whose weights are not those of its columns or features."""
        phi = state["feature_map_"]
        d = state["n_features_in_"] if phi is None else phi.n_features_out_
        require(len(state["coef_"]) == d, f"coef_: expected {d} weights")

    # --- scores ---------------------------------------------------------------------------

    def _anomaly_score_and_novelty(self, X: Any) -> tuple[np.ndarray, np.ndarray | None]:
        # Doubles of a preparer are as in the fit: of one row, checks take longer than its score.
        if type(X) is np.ndarray and X.shape[1:] == (self.n_features_in_,):
            return -self._scores(X), None
        return super()._anomaly_score_and_novelty(X)

    def _scores(self, X: Any) -> Any:
        """g(x) = <w, phi(x)> + b of rows of which none may be NaN or infinite."""
        if is_torch_array(X):
            xp = array_namespace(X)
            scores = X @ xp.asarray(self.coef_, dtype=X.dtype, device=X.device) + self.intercept_
            if not bool(scores.isfinite().all()):
                unlabelled = xp.zeros(len(X), dtype=xp.int16, device=X.device)
                refuse_non_finite_rows(RowBlocks(X, unlabelled), self._names)
            return scores
        mapped = self.feature_map_ is not None
        if mapped:
            self._check_finite(X)  # a map would refuse it without saying where it is
        with np.errstate(invalid="ignore", over="ignore"):  # reported by name below
            if mapped or X.dtype != np.float64:
                blocks = RowBlocks(X, np.zeros(X.shape[0], dtype=np.int16))
                phi = (self._features.transform(b.X) if mapped else b.X for b in blocks)
                parts = [np.asarray(Z @ self.coef_ + self.intercept_, float) for Z in phi]
                scores = np.concatenate(parts)
            else:
                scores = X @ self.coef_ + self.intercept_
        # A NaN in X shows in its score, unless its weight is zero and the product skipped it.
        finite = bool(np.isfinite(scores).all())
        if not finite or not np.all(self.coef_):
            self._check_finite(X)
        return scores if finite else checked_scores(scores)

    def _store(
        self,
        solution: Solution,
        features: Features,
        lam: float,
        weights: tuple[np.ndarray, float],
        offset: float,
        parts: dict[str, float],
    ) -> None:
        """Set the attributes of a solution; `weights` are w and b in the units of X."""
        self.feature_map_ = features.feature_map
        self._mean, self._scale = features.mean, features.scale
        self.a_, self.prior_, self.lambda_ = float(self.a), float(self.prior), lam
        self.coef_, self.intercept_ = weights
        self.objective_ = solution.value
        self.weight_norm_ = float(np.linalg.norm(solution.theta, 1 if self._penalty == "l1" else 2))
        self.solver_, self.n_iter_ = solution.solver, max(1, solution.n_iter)
        self.criterion_, self.optimality_ = solution.criterion, solution.optimality
        self.converged_ = bool(solution.converged)
        self.offset_, self.risk_parts_ = offset, parts

    @property
    def _penalty(self) -> str:
        return getattr(self, "penalty", "l2")

    # --- descriptions ---------------------------------------------------------------------

    @property
    def _detector_tags(self) -> DetectorTags:
        # Landmarks are training rows, and a transformer of somebody else may hold some.
        needs_rows = self.feature_map == "nystroem" or not isinstance(self.feature_map, str | None)
        return DetectorTags(accepts_any_source=True, has_bounds=True, needs_rows=needs_rows)

    def _describe(self) -> dict[str, Any]:
        return super()._describe() | {
            "lambda": float(self.lambda_),
            "solver": self.solver_,
            "iterations": int(self.n_iter_),
            "optimality": float(self.optimality_),
            "converged": bool(self.converged_),
            "objective": float(self.objective_),
            "weight_norm": float(self.weight_norm_),
        }

    def _describe_in_words(self) -> list[str]:
        shape = "linear" if self.feature_map is None else f"{self.feature_map} features"
        source = _LAMBDA_SOURCES.get(str(self.lam), "as given")
        steps = "1 step" if self.n_iter_ == 1 else f"{self.n_iter_} steps"
        ending = "converged in" if self.converged_ else "did not converge in"
        return [
            settings_in_words(shape, self),
            f"lambda = {self.lambda_:.4g} ({self._penalty}), {source}",
            f"{self.solver_} {ending} {steps} (optimality {self.optimality_:.1e})",
        ]

    def _largest_norm(self, X: Any) -> float:
        """Largest ||(phi(x), B)||_2 of these rows, in the coordinates of `weight_norm_`.

        No score exceeds the product of the two: with the penalty "l2" by Cauchy and Schwarz, with
        "l1" all the more.
        """
        check_is_fitted(self)
        X = self._check_rows(X, reset=False)
        codes = np.zeros(X.shape[0], dtype=np.int16)
        rows = RowBlocks(X, codes, block_rows=dense_rows(X.shape[1]))
        squared = max(float((self._features(block.X) ** 2).sum(axis=1).max()) for block in rows)
        if not np.isfinite(squared):
            refuse_non_finite(X, self._names)
        return float(np.hypot(np.sqrt(squared), self.intercept_scaling))

    def _clone_for_fold(self) -> Self:
        # Lambda is chosen once: a fold that searched again would take as long as the fit.
        return clone(self).set_params(a=self.a_, prior=self.prior_, lam=self.lambda_)

    def _kept_rows(self) -> int:
        n_rows: int = getattr(self.feature_map_, "kept_rows", lambda: 0)()
        return n_rows

    def _onnx_scores(self, graph: Any, rows: str, sparse: bool) -> str:
        X = rows
        if self.feature_map_ is not None:
            centred = X if sparse else graph.node("Sub", X, self._mean)
            if not hasattr(self.feature_map_, "onnx_rows"):
                raise InputError(
                    f"A feature map {self.feature_map_!r} cannot be exported; 'rbf', 'nystroem' "
                    "and 'poly' can."
                )
            X = self.feature_map_.onnx_rows(graph, graph.node("Div", centred, self._scale))
        return graph.node("Add", graph.node("MatMul", X, self.coef_), np.array(self.intercept_))

    def _contributions(self, X: Any) -> tuple[Any, float] | None:
        if self.feature_map_ is not None:  # in which columns interact
            return None
        return (X.multiply(self.coef_) if sparse.issparse(X) else X * self.coef_), self.intercept_


# --- what a fit found ----------------------------------------------------------------------


def threshold_of(problem: Problem, theta: np.ndarray, seed: int) -> float:
    """The threshold with the lowest zero-one risk of a sample of the rows."""
    risk = problem.objective.risk
    rows = at_most(problem.model.rows, _THRESHOLD_ROWS, risk.kind_weights(), seed)
    scores = rows.each(lambda X: problem.model.scores(theta, X))
    y, weight = on_host_array(rows.y), on_host_array(rows.sample_weight)
    return zero_one_threshold(risk, scores, y, weight)


def risk_parts(problem: Problem, solution: Solution) -> dict[str, float]:
    """Each term's contribution and their total, with the guard applied."""
    risk, model = problem.objective.risk, problem.model
    totals = model.rows.totals()
    penalty = problem.lam * problem.penalty_value(solution.theta)
    terms = [term for term in risk.terms() if term.weight != 0]
    # The total is known and at most one term is over unlabelled rows: if no guard hides it, that
    # term is the remainder after the labelled rows, which saves a pass over the unlabelled ones.
    last_terms = [term for term in terms if term.kind == UNLABELLED and not risk.guarded]
    other_terms = [term for term in terms if term not in last_terms]
    sums = []
    for term in other_terms:
        coefficients = np.zeros((2, 3))  # of l(f) and of l(-f), by label code
        coefficients[int(term.sign < 0), term.kind] = term.weight / totals[term.kind]
        sums.append(RowSum(risk.loss, coefficients[0], coefficients[1], np.zeros(3)))
    values = dict(zip(other_terms, model.values(solution.theta, sums), strict=True))
    total = solution.value - penalty
    for term in last_terms:
        values[term] = total - sum(values.values())
    return {term.name: float(values[term]) for term in terms} | {"total": float(total)}


def summarise_unlabelled(
    rows: RowSource, score: Callable[[Any], np.ndarray], seed: int
) -> UnlabelledSummary | None:
    """Summarise unlabelled rows, to compare later rows with; None if there is none."""
    # Indexed by label code: unlabelled rows only.
    shares, rng = np.array([1.0, 0.0, 0.0]), np.random.default_rng(seed)
    some = on_host(rows.sample(rows_to_sum_up(rows.n_features), shares, rng))
    if some.sample_weight is not None:
        some = some.take(np.flatnonzero(some.sample_weight > 0))
    return UnlabelledSummary.of(some.X, -score(some.X))
