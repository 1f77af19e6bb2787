"""Linear scores: of new rows, in an ONNX graph, and what a fit of them found."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
from array_api_compat import array_namespace, is_torch_array
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from riskad.core.checks import DataWarning, InputError
from riskad.core.labels import UNLABELLED
from riskad.core.losses import LOSSES, Loss
from riskad.core.objective import RowSum
from riskad.core.risks import RISKS, Term
from riskad.decisions.drift import UnlabelledSummary, rows_to_sum_up
from riskad.decisions.thresholds import zero_one_threshold
from riskad.detectors.base import refuse_non_finite
from riskad.detectors.description import DetectorTags, MinimisesRisk, say_settings
from riskad.detectors.linear.feature_maps import (
    FEATURE_MAPS,
    FITTED_MAP,
    UNFITTED_MAP,
    Features,
    KernelLandmarks,
    RandomWaves,
)
from riskad.detectors.linear.settings import LARGEST_CONSTANT
from riskad.files.fields import (
    COUNT,
    FLAG,
    NUMBER,
    SEED,
    SHARE,
    TEXT,
    Array,
    DictOf,
    Either,
    Maybe,
    Number,
    State,
    Text,
    require,
)
from riskad.rows.arrays import on_host_array, to_dense
from riskad.rows.sources import RowBlocks, RowSource, at_most, on_host, refuse_non_finite_rows
from riskad.solvers import Problem, Solution

_LAMBDA_SOURCES = {
    "theorem": "from Theorem 1, so the objective cannot be negative",
    "tight": "the smallest proved to keep the objective non-negative",
    "cv": "cross-validated on the labelled rows",
}


class HasLinearScores(MinimisesRisk):
    """The description of a detector whose scores are linear in features phi(x)."""

    _remedy_setting: ClassVar[str] = " with lam='cv'"

    loss: Annotated[str | Loss, Text(choices=LOSSES)]
    a: Annotated[float, Number(-1, 1)]
    prior: Annotated[float, SHARE]
    lam: Any
    risk: Annotated[str, Text(choices=RISKS)]
    feature_map: Annotated[Any, Maybe(Either(Text(choices=FEATURE_MAPS), UNFITTED_MAP))]
    fit_intercept: Annotated[bool, FLAG]
    intercept_scaling: Annotated[float, Number(0, LARGEST_CONSTANT)]
    scale: Annotated[bool, FLAG]
    tol: Annotated[float, Number(0)]
    max_iter: Annotated[int, Number(1, 10**9, whole=True)]
    random_state: Annotated[Any, SEED]
    _mean: Annotated[Any, Array("f", ("n_features_in_",))]
    _scale: Annotated[Any, Array("f", ("n_features_in_",), np.nextafter(0, 1), infinite=True)]
    feature_map_: Annotated[Any, Maybe(FITTED_MAP)]
    a_: Annotated[float, NUMBER]
    prior_: Annotated[float, SHARE]
    lambda_: Annotated[float, Number(0)]
    coef_: Annotated[Any, Array("f", ("weights",))]
    intercept_: Annotated[float, NUMBER]
    objective_: Annotated[float, NUMBER]
    weight_norm_: Annotated[float, Number(0)]
    solver_: Annotated[str, TEXT]
    n_iter_: Annotated[int, COUNT]
    criterion_: Annotated[str, TEXT]
    optimality_: Annotated[float, NUMBER]
    converged_: Annotated[bool, FLAG]
    risk_parts_: Annotated[dict[str, float], DictOf(TEXT, NUMBER)]

    if TYPE_CHECKING:  # of the detector

        def _check_rows(self, X: Any, reset: bool) -> Any: ...

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
                blocks = RowBlocks(X, np.zeros(X.shape[0], dtype=np.int16))
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
            zeros = xp.zeros(len(X), dtype=xp.int16, device=X.device)
            names = getattr(self, "feature_names_in_", None)
            refuse_non_finite_rows(RowBlocks(X, zeros), names)
        return scores

    def _check_finite(self, X: Any) -> None:
        """Refuse a table in memory with NaN or infinities, and report where the first one is."""
        if not np.isfinite(X.data if sparse.issparse(X) else X).all():
            refuse_non_finite(X, getattr(self, "feature_names_in_", None))

    # --- descriptions ---------------------------------------------------------------------

    def __riskad_tags__(self) -> DetectorTags:
        return replace(super().__riskad_tags__(), accepts_any_source=True, has_bounds=True)

    def _describe(self) -> dict[str, Any]:
        """Return the regularisation, the result of the solver and the parts of the objective."""
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
        """Return what was minimised, how strongly it was regularised and how the solver ended."""
        shape = "linear" if self.feature_map is None else f"{self.feature_map} features"
        source = _LAMBDA_SOURCES.get(str(self.lam), "as given")
        steps = "1 step" if self.n_iter_ == 1 else f"{self.n_iter_} steps"
        ending = "converged in" if self.converged_ else "did not converge in"
        return [
            say_settings(shape, self),
            f"lambda = {self.lambda_:.4g} ({getattr(self, 'penalty', 'l2')}), {source}",
            f"{self.solver_} {ending} {steps} (optimality {self.optimality_:.1e})",
        ]

    def _largest_norm(self, X: Any) -> float:
        """Largest ||(phi(x), B)||_2 of these rows, in the coordinates of `weight_norm_`.

        No score exceeds the product of the two: with the penalty "l2" by Cauchy and Schwarz, with
        "l1" all the more.
        """
        check_is_fitted(self)
        X = self._check_rows(X, reset=False)
        rows = RowBlocks(X, np.zeros(X.shape[0], dtype=np.int16)).dense_sized()
        squared = max(float((self._features(block.X) ** 2).sum(axis=1).max()) for block in rows)
        if not np.isfinite(squared):
            refuse_non_finite(X, getattr(self, "feature_names_in_", None))
        return float(np.hypot(np.sqrt(squared), self._constant))

    def _clone_for_fold(self) -> Self:
        """Return an unfitted copy with nothing left to choose."""
        chosen = {"a": self.a_, "prior": self.prior_, "lam": self.lambda_}
        copy = clone(self)
        known = copy.get_params(deep=False)
        return copy.set_params(**{k: v for k, v in chosen.items() if k in known})

    def _needs_rows(self) -> bool:
        """Return whether the feature map uses training rows as centres, or may do so."""
        return self.feature_map == "nystroem" or not isinstance(self.feature_map, str | None)

    def _kept_rows(self) -> int:
        """Return the number of training rows that the feature map holds."""
        kept: int = getattr(self.feature_map_, "kept_rows", lambda: 0)()
        return kept

    def _onnx_scores(self, graph: Any, rows: str, sparse: bool) -> str:
        """Return <w, phi(x)> + b."""
        return linear_scores(graph, rows, self, sparse)

    def _contributions(self, X: Any) -> tuple[Any, float] | None:
        """Return w_j x_j and b; None with a feature map, in which columns interact."""
        if self.feature_map_ is not None:
            return None
        return (X.multiply(self.coef_) if sparse.issparse(X) else X * self.coef_), self.intercept_


# --- what a fit found ----------------------------------------------------------------------

# This many rows determine the threshold, a single number, well enough.
_THRESHOLD_ROWS = 20_000


@dataclass(frozen=True, eq=False)
class LinearFit:
    """A fit; the attributes of linear detectors have these names, with an underscore."""

    coef: np.ndarray
    intercept: float
    objective: float
    weight_norm: float
    solver: str
    n_iter: int
    criterion: str
    optimality: float
    converged: bool
    offset: float
    risk_parts: dict[str, float]

    def store(self, detector: Any) -> None:
        """Set `coef_`, `intercept_` and the others."""
        for field in fields(self):
            setattr(detector, f"{field.name}_", getattr(self, field.name))


def report_fit(problem: Problem, solution: Solution, seed: int) -> LinearFit:
    """The solution in the units of X, with its risk parts and threshold.

    Parameters
    ----------
    problem : Problem
        The solved problem.
    solution : Solution
        Its solution.
    seed : int
        Seed of the sample from which the threshold is found if there are many rows.

    Returns
    -------
    LinearFit
    """
    coef, intercept = problem.model.weights(solution.theta)
    if not coef.any():
        warnings.warn(
            f"all weights are zero under lam={problem.lam:.3g}, so every row has the same "
            "score. Choose a smaller lam: 'tight', 'cv' or a number.",
            DataWarning,
            stacklevel=4,
        )
    penalty = problem.penalty_value(solution.theta)
    return LinearFit(
        coef=coef,
        intercept=intercept,
        objective=solution.value,
        weight_norm=penalty**0.5 if problem.penalty == "l2" else penalty,
        solver=solution.solver,
        n_iter=max(1, solution.n_iter),
        criterion=solution.criterion,
        optimality=solution.optimality,
        converged=bool(solution.converged),
        offset=threshold_of(problem, solution.theta, seed),
        risk_parts=risk_parts(problem, solution),
    )


def threshold_of(problem: Problem, theta: np.ndarray, seed: int) -> float:
    """The threshold with the lowest zero-one risk, found on a sample of the rows."""
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
    spared = [term for term in terms if term.kind == UNLABELLED and not risk.guarded]
    counted = [term for term in terms if term not in spared]
    sums = [_term_sum(risk.loss, term, totals) for term in counted]
    values = dict(zip(counted, model.values(solution.theta, sums), strict=True))
    total = solution.value - penalty
    for term in spared:
        values[term] = total - sum(values.values())
    return {term.name: float(values[term]) for term in terms} | {"total": float(total)}


def _term_sum(loss: Loss, term: Term, totals: np.ndarray) -> RowSum:
    coefficient = np.zeros(3)
    coefficient[term.kind] = term.weight / totals[term.kind]
    zero = np.zeros(3)
    sides = (coefficient, zero) if term.sign > 0 else (zero, coefficient)
    return RowSum(loss, *sides, zero)


def summarise_unlabelled(
    rows: RowSource, score: Callable[[Any], np.ndarray], seed: int
) -> UnlabelledSummary | None:
    """Summarise the unlabelled rows, to compare later rows with.

    Returns
    -------
    UnlabelledSummary or None
        None if there is no unlabelled row.
    """
    shares, rng = np.array([1.0, 0.0, 0.0]), np.random.default_rng(seed)
    some = on_host(rows.sample(rows_to_sum_up(rows.n_features), shares, rng))
    if some.sample_weight is not None:
        some = some.take(np.flatnonzero(some.sample_weight > 0))
    return UnlabelledSummary.of(some.X, -score(some.X))


# --- scores as nodes of an ONNX graph -------------------------------------------------------


def linear_scores(g: Any, X: str, detector: Any, sparse: bool) -> str:
    """Return <w, phi(x)> + b."""
    if detector.feature_map_ is not None:
        X = _mapped(g, _standardised(g, X, detector, centred=not sparse), detector.feature_map_)
    return str(g.node("Add", g.node("MatMul", X, detector.coef_), np.array(detector.intercept_)))


def _standardised(g: Any, X: str, detector: Any, centred: bool = True) -> str:
    """(x - mean) / scale; sparse rows are not centred before a feature map."""
    if centred:
        X = g.node("Sub", X, detector._mean)
    return g.node("Div", X, detector._scale)


def _mapped(g: Any, Z: str, feature_map: Any) -> str:
    if hasattr(feature_map, "onnx_rows"):
        return str(feature_map.onnx_rows(g, Z))
    kind = type(feature_map).__name__
    gaussian = getattr(feature_map, "kernel", "rbf") == "rbf"
    if kind not in _SKLEARN or not gaussian:
        raise InputError(
            f"A feature map {feature_map!r} cannot be exported; 'rbf', 'nystroem' with a Gaussian "
            "kernel and 'poly' can."
        )
    return _SKLEARN[kind](g, Z, feature_map)


def _nystroem(g: Any, Z: str, feature_map: Any) -> str:
    landmarks = to_dense(feature_map.components_)
    gamma = feature_map.gamma if feature_map.gamma is not None else 1 / landmarks.shape[1]
    return KernelLandmarks(gamma, landmarks, feature_map.normalization_).onnx_rows(g, Z)


def _random_features(g: Any, Z: str, feature_map: Any) -> str:
    return RandomWaves(feature_map.random_weights_, feature_map.random_offset_).onnx_rows(g, Z)


def _polynomial(g: Any, Z: str, feature_map: Any) -> str:
    """Products of columns: factor k of each feature, for k = 1 .. degree; 1 where it has fewer."""
    powers = feature_map.powers_
    d, degree = powers.shape[1], max(int(powers.sum(axis=1).max()), 1)
    factors = np.full((len(powers), degree), d)
    for i, power in enumerate(powers):
        columns = np.repeat(np.arange(d), power)
        factors[i, : len(columns)] = columns
    columns_and_one = g.node("Pad", Z, np.array([0, 0, 0, 1]), np.array(1.0))
    product, *others = (g.node("Gather", columns_and_one, index, axis=1) for index in factors.T)
    for other in others:
        product = g.node("Mul", product, other)
    return product


# Maps that were given as transformers of scikit-learn.
_SKLEARN = {
    "Nystroem": _nystroem,
    "RBFSampler": _random_features,
    "PolynomialFeatures": _polynomial,
}
