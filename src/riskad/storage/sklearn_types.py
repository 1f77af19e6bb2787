"""The scikit-learn types that a model file may contain, and the allowed values of their attributes.

They are the usual pipeline steps before a detector, and the parts of detectors. Attributes that are
not named here may be plain values: other versions of scikit-learn have other settings, and it
checks them itself when it is fitted. Types that store functions (`FunctionTransformer` with one,
scores for feature selection) are code, and trees are walked by compiled code that trusts them:
neither is on the list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from riskad.storage.fields import (
    COUNT,
    FLAG,
    JOBS,
    NAMES,
    NOTHING,
    NUMBER,
    SEED,
    SHARE,
    SIZE,
    TEXT,
    Array,
    DictOf,
    Either,
    Field,
    Fixed,
    ListOf,
    Maybe,
    Number,
    Optional,
    Record,
    Span,
    Text,
    Tuple,
    require,
)

__all__ = ["SKLEARN", "SklearnType"]


@dataclass(frozen=True)
class SklearnType:
    """The location of a type, its fields, and checks that its attributes are consistent."""

    module: str
    fields: Mapping[str, Field]
    check: Callable[[Mapping[str, Any]], None] | None = None


_COLUMN = ("n_features_in_",)
_COLUMNS = Array("f", _COLUMN)
_POSITIVE = Array("f", _COLUMN, low=np.nextafter(0, 1))
_FEATURES: dict[str, Field] = {
    "n_features_in_": SIZE,
    "feature_names_in_": Optional(NAMES),
    "_sklearn_output_config": Optional(
        Fixed({"transform": Text(choices=("default", "pandas", "polars"))})
    ),
}
_SELECTED = Either(ListOf(Either(COUNT, TEXT)), Array("iub", ("any",)), Span(), COUNT, TEXT)
_PAIR = Tuple(NUMBER, NUMBER)
_STEP = Record(fitted=False)
_PASS = Text(choices=("passthrough", "drop"))
_NAMED_STEP = Tuple(TEXT, Either(Maybe(_PASS), _STEP))
_KERNELS = (
    "additive_chi2",
    "chi2",
    "cosine",
    "laplacian",
    "linear",
    "poly",
    "polynomial",
    "rbf",
    "sigmoid",
)


class _Categories(ListOf):
    """Levels of each column: arrays of numbers or of texts."""

    def check(self, value: Any, sizes: dict[str, int]) -> None:
        """Refuse columns without levels, and levels that are objects."""
        super().check(value, sizes)
        for each in value:
            require(len(each) > 0, ": a column without levels")


class _Level(Array):
    """An array of numbers or texts, of any length."""

    def check(self, value: Any, sizes: dict[str, int]) -> None:
        """Refuse objects that are neither."""
        require(isinstance(value, np.ndarray) and value.ndim == 1, ": expected levels")
        if value.dtype == object:
            for each in value:
                Maybe(Either(NUMBER, TEXT, Text(choices=("nan",)))).check(
                    "nan" if isinstance(each, float) and np.isnan(each) else each, sizes
                )
        else:
            require(value.dtype.kind in "fiub", ": expected numbers or texts")


@dataclass(frozen=True)
class _Dtype(Field):
    """A type of numbers, or of one of these kinds."""

    kinds: str = "fiub"

    def check(self, value: Any, sizes: dict[str, int]) -> None:
        """Refuse everything else."""
        right = isinstance(value, np.dtype) and value.kind in self.kinds
        right = right or (isinstance(value, type) and issubclass(value, np.number))
        require(right, ": expected a type of numbers")


def _flags(*names: str) -> dict[str, Field]:
    return dict.fromkeys(names, FLAG)


_DTYPE = _Dtype()
_LEVELS_OF_COLUMNS = _Categories(_Level(), "n_features_in_")


def _encoder_fits(state: Mapping[str, Any]) -> None:
    """The lookup of missing and dropped levels must point at existing levels."""
    if "categories_" not in state:
        return
    sizes = [len(levels) for levels in state["categories_"]]
    for place, code in state.get("_missing_indices", {}).items():
        require(type(place) is int and 0 <= place < len(sizes), "_missing_indices: no such column")
        require(type(code) is int and 0 <= code < sizes[place], "_missing_indices: no such level")
    for outs in [state["_n_features_outs"]] if "_n_features_outs" in state else []:
        right = isinstance(outs, list) and len(outs) == len(sizes)
        require(right and all(type(n) is int and n >= 0 for n in outs), "_n_features_outs")


def _imputer_fits(state: Mapping[str, Any]) -> None:
    if "statistics_" in state:
        values = state["statistics_"]
        right = isinstance(values, np.ndarray) and values.shape == (state["n_features_in_"],)
        require(right, "statistics_: expected a value for each column")
        indicated = state["indicator_"] is not None
        require(state["add_indicator"] == indicated, "indicator_: none, or one too many")


def _indicator_fits(state: Mapping[str, Any]) -> None:
    if "features_" in state:
        places = state["features_"]
        require(bool((places < state["n_features_in_"]).all()), "features_: no such column")


def _quantiles_fit(state: Mapping[str, Any]) -> None:
    if "quantiles_" in state:
        rising = bool((np.diff(state["quantiles_"], axis=0) >= 0).all())
        require(rising, "quantiles_: expected rising values")


def _landmarks_fit(state: Mapping[str, Any]) -> None:
    if "components_" in state:
        wanted = (state["_n_features_out"], state["n_features_in_"])
        require(state["components_"].shape == wanted, "components_: another shape")


def width_after(step: Any) -> int | None:
    """The number of output columns of a fitted step, if known."""
    if not hasattr(step, "get_feature_names_out"):
        return None
    return len(step.get_feature_names_out())


def _steps_fit(state: Mapping[str, Any]) -> None:
    """Each step takes as many columns as the previous one gives."""
    names = [name for name, _ in state["steps"]]
    require(len(set(names)) == len(names) > 0, "steps: expected different names")
    last = state["steps"][-1][1]
    require(last is not None and not isinstance(last, str), "steps: the last does nothing")
    require("" not in names and not any("__" in name for name in names), "steps: bad names")
    before: int | None = None
    for name, step in state["steps"]:
        if step is None or isinstance(step, str):
            continue
        # A pipeline within one transforms only if its own last step does.
        require(step is last or hasattr(step, "transform"), f"steps: {name!a} transforms nothing")
        wanted = getattr(step, "n_features_in_", None)
        require(
            before is None or wanted is None or before == wanted,
            f"steps: {name!a} takes {wanted} columns and is given {before}",
        )
        # One that is not fitted does not say.
        before = None if wanted is None or step is last else width_after(step)


def _parts_fit(state: Mapping[str, Any]) -> None:
    """Every part of a column transformer uses existing columns."""
    n = state.get("n_features_in_", 0)
    for places in state.get("_transformer_to_input_indices", {}).values():
        right = all(type(place) is int and 0 <= place < n for place in places)
        require(right, "_transformer_to_input_indices: no such column")


def _has_what_it_uses(**needed: str) -> Callable[[Mapping[str, Any]], None]:
    """A fitted step with these flags has the attributes that they need."""

    def check(state: Mapping[str, Any]) -> None:
        if "n_features_in_" in state:  # else it is not fitted
            for flag, name in needed.items():
                there = not state.get(flag) or state.get(name) is not None
                require(there, f"{name}: expected one, since {flag}")

    return check


_PART = Tuple(TEXT, Either(_PASS, _STEP), _SELECTED)

SKLEARN: dict[str, SklearnType] = {
    "StandardScaler": SklearnType(
        "sklearn.preprocessing",
        _FEATURES
        | _flags("copy", "with_mean", "with_std")
        | {
            "mean_": Optional(Maybe(_COLUMNS)),
            "var_": Optional(Maybe(Array("f", _COLUMN, low=0))),
            "scale_": Optional(Maybe(_POSITIVE)),
            "n_samples_seen_": Either(Number(0), Array("fiu", _COLUMN, low=0)),
        },
        _has_what_it_uses(with_mean="mean_", with_std="scale_"),
    ),
    "MinMaxScaler": SklearnType(
        "sklearn.preprocessing",
        _FEATURES
        | _flags("copy", "clip")
        | {"feature_range": _PAIR}
        | dict.fromkeys(("scale_", "min_", "data_min_", "data_max_", "data_range_"), _COLUMNS),
    ),
    "MaxAbsScaler": SklearnType(
        "sklearn.preprocessing",
        _FEATURES | _flags("copy", "clip") | {"max_abs_": _COLUMNS, "scale_": _POSITIVE},
    ),
    "RobustScaler": SklearnType(
        "sklearn.preprocessing",
        _FEATURES
        | _flags("copy", "with_centering", "with_scaling", "unit_variance")
        | {"quantile_range": _PAIR}
        | {"center_": Optional(Maybe(_COLUMNS)), "scale_": Optional(Maybe(_POSITIVE))},
        _has_what_it_uses(with_centering="center_", with_scaling="scale_"),
    ),
    "PowerTransformer": SklearnType(
        "sklearn.preprocessing",
        _FEATURES
        | _flags("copy", "standardize")
        | {"method": Text(choices=("yeo-johnson", "box-cox"))}
        | {"lambdas_": _COLUMNS, "_scaler": Optional(Record(("StandardScaler",)))},
        _has_what_it_uses(standardize="_scaler"),
    ),
    "QuantileTransformer": SklearnType(
        "sklearn.preprocessing",
        _FEATURES
        | _flags("copy", "ignore_implicit_zeros")
        | {
            "n_quantiles": SIZE,
            "output_distribution": Text(choices=("uniform", "normal")),
            "subsample": Maybe(COUNT),
            "random_state": SEED,
        }
        | {
            "n_quantiles_": SIZE,
            "references_": Array("f", ("n_quantiles_",), 0, 1, rising=True),
            "quantiles_": Array("f", ("n_quantiles_", "n_features_in_")),
        },
        _quantiles_fit,
    ),
    "Normalizer": SklearnType(
        "sklearn.preprocessing",
        _FEATURES | _flags("copy") | {"norm": Text(choices=("l1", "l2", "max"))},
    ),
    "PolynomialFeatures": SklearnType(
        "sklearn.preprocessing",
        _FEATURES
        | _flags("interaction_only", "include_bias")
        | {"order": Text(choices=("C", "F"))}
        | {
            "degree": Either(Number(0, 10, whole=True), Tuple(*[Number(0, 10, whole=True)] * 2)),
            "n_output_features_": SIZE,
        },
    ),
    "OneHotEncoder": SklearnType(
        "sklearn.preprocessing",
        _FEATURES
        | _flags("sparse_output")
        | {
            "dtype": _DTYPE,
            "handle_unknown": Text(choices=("error", "ignore", "infrequent_if_exist", "warn")),
            "min_frequency": Maybe(NUMBER),
            "max_categories": Maybe(SIZE),
            "_infrequent_enabled": FLAG,
        }
        | {
            "feature_name_combiner": Text(choices=("concat",)),
            "categories_": _LEVELS_OF_COLUMNS,
            "drop_idx_": Maybe(Array("i", _COLUMN, low=0)),
        },
        _encoder_fits,
    ),
    "OrdinalEncoder": SklearnType(
        "sklearn.preprocessing",
        _FEATURES
        | {
            "dtype": _DTYPE,
            "handle_unknown": Text(choices=("error", "use_encoded_value")),
            "min_frequency": Maybe(NUMBER),
            "max_categories": Maybe(SIZE),
            "_infrequent_enabled": FLAG,
        }
        | {"categories_": _LEVELS_OF_COLUMNS},
        _encoder_fits,
    ),
    "FunctionTransformer": SklearnType(
        "sklearn.preprocessing",
        _FEATURES
        | _flags("validate", "accept_sparse", "check_inverse")
        | dict.fromkeys(("func", "inverse_func", "kw_args", "inv_kw_args"), NOTHING)
        | {"feature_names_out": Maybe(Text(choices=("one-to-one",)))},
    ),
    "SimpleImputer": SklearnType(
        "sklearn.impute",
        _FEATURES
        | _flags("copy", "add_indicator", "keep_empty_features")
        | {"strategy": Text(choices=("mean", "median", "most_frequent", "constant"))}
        | {
            "_fit_dtype": _Dtype("fiubO"),
            "_fill_dtype": Optional(_Dtype("fiubO")),
            "indicator_": Maybe(Record(("MissingIndicator",))),
        },
        _imputer_fits,
    ),
    "MissingIndicator": SklearnType(
        "sklearn.impute",
        _FEATURES
        | _flags("error_on_new")
        | {
            "features": Text(choices=("missing-only", "all")),
            "sparse": Either(FLAG, Text(choices=("auto",))),
        }
        | {"features_": Array("i", ("gaps",), low=0)},
        _indicator_fits,
    ),
    "VarianceThreshold": SklearnType(
        "sklearn.feature_selection",
        _FEATURES | {"threshold": Number(0)} | {"variances_": Array("f", _COLUMN, low=0)},
    ),
    "PCA": SklearnType(
        "sklearn.decomposition",
        _FEATURES
        | _flags("copy", "whiten")
        | {"random_state": SEED}
        | {
            "n_components_": SIZE,
            "components_": Array("f", ("n_components_", "n_features_in_")),
            "mean_": _COLUMNS,
            "explained_variance_": Array("f", ("n_components_",), low=0),
            "explained_variance_ratio_": Array("f", ("n_components_",), low=0),
            "singular_values_": Array("f", ("n_components_",), low=0),
            "noise_variance_": Number(),
        },
    ),
    "TruncatedSVD": SklearnType(
        "sklearn.decomposition",
        _FEATURES
        | {"random_state": SEED}
        | {
            "components_": Array("f", ("components", "n_features_in_")),
            "explained_variance_": Array("f", ("components",), low=0),
        },
    ),
    "Nystroem": SklearnType(
        "sklearn.kernel_approximation",
        _FEATURES
        | dict.fromkeys(("gamma", "coef0", "degree"), Maybe(NUMBER))
        | {"n_components": SIZE, "random_state": SEED, "n_jobs": JOBS}
        | {
            "kernel": Text(choices=_KERNELS),
            "kernel_params": Maybe(DictOf(TEXT, NUMBER)),
            "_n_features_out": SIZE,
            "normalization_": Array("f", ("_n_features_out", "_n_features_out")),
            "components_": Either(
                Record(("csr_matrix", "csr_array")),
                Array("f", ("_n_features_out", "n_features_in_")),
            ),
            "component_indices_": Array("i", ("_n_features_out",), low=0),
        },
        _landmarks_fit,
    ),
    "RBFSampler": SklearnType(
        "sklearn.kernel_approximation",
        _FEATURES
        | {
            "gamma": Either(NUMBER, Text(choices=("scale",))),
            "n_components": SIZE,
            "random_state": SEED,
        }
        | {
            "_n_features_out": SIZE,
            "random_weights_": Array("f", ("n_features_in_", "_n_features_out")),
            "random_offset_": Array("f", ("_n_features_out",)),
        },
    ),
    "ColumnTransformer": SklearnType(
        "sklearn.compose",
        _FEATURES
        | _flags("verbose")
        | {
            "verbose_feature_names_out": Either(FLAG, TEXT),
            "n_jobs": JOBS,
            "sparse_threshold": SHARE,
            "transformer_weights": Maybe(DictOf(TEXT, NUMBER)),
        }
        | {
            "transformers": ListOf(_PART),
            "remainder": Either(_PASS, _STEP),
            "transformers_": ListOf(_PART),
            "_remainder": Optional(Tuple(TEXT, Either(_PASS, _STEP), _SELECTED)),
            "_transformer_to_input_indices": Optional(DictOf(TEXT, ListOf(COUNT))),
            "output_indices_": Optional(DictOf(TEXT, Span())),
            "sparse_output_": FLAG,
        },
        _parts_fit,
    ),
    "FeatureUnion": SklearnType(
        "sklearn.pipeline",
        _flags("verbose", "verbose_feature_names_out")
        | {"n_jobs": JOBS}
        | {
            "transformer_list": ListOf(_NAMED_STEP),
            "transformer_weights": Maybe(DictOf(TEXT, NUMBER)),
            "_sklearn_output_config": _FEATURES["_sklearn_output_config"],
        },
    ),
    "Pipeline": SklearnType(
        "sklearn.pipeline",
        _flags("verbose")
        | {"transform_input": NOTHING}
        | {
            "steps": ListOf(_NAMED_STEP),
            "memory": NOTHING,  # the path of a folder
            "_sklearn_output_config": _FEATURES["_sklearn_output_config"],
        },
        _steps_fit,
    ),
}
"""By their names."""
