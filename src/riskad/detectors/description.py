"""What a detector reports about itself. Other code asks the detector and never checks its class.

What the rest of the package asks is `DetectorTags`, as scikit-learn has tags, and the underscored
members of `SelfDescribing`. What a model file may contain of a detector are its annotations with a
bound (`riskad.files.fields`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, clone

from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, LabelCounts
from riskad.core.risks import Risk, get_risk
from riskad.decisions.thresholds import RiskZero, Threshold


@dataclass(frozen=True)
class DetectorTags:
    """What a detector can do, for code that treats all detectors alike: its `_detector_tags`.

    - `accepts_frames`: rows may be a frame, with null for blanks and texts as categories;
    - `accepts_any_source`: `fit` goes through all rows of a Parquet file, a cluster or a device;
      other detectors learn from rows in memory;
    - `cross_fits`: `fit` itself holds out labelled rows, and takes `groups` for this;
    - `reports_progress`: `fit` calls the parameter `callback` with a sentence at each step;
    - `supports_novelty`: it has `novelty`;
    - `supports_guarded_risks`: a guarded risk, which cannot be negative, can be chosen;
    - `has_bounds`: Theorems 2 and 3 hold for it, by `weight_norm_` and `_largest_norm`;
    - `slow_to_score`: a score takes about 0.1 ms or more;
    - `needs_rows`: scoring needs training rows, which a model file then contains;
    - `threshold`: the rule that decides for a table unless another is given.

    Examples
    --------
    >>> from riskad import ForestRAD
    >>> detector_tags(ForestRAD()).accepts_frames
    True
    """

    accepts_frames: bool = False
    accepts_any_source: bool = False
    cross_fits: bool = False
    reports_progress: bool = False
    supports_novelty: bool = False
    supports_guarded_risks: bool = True
    has_bounds: bool = False
    slow_to_score: bool = False
    needs_rows: bool = False
    threshold: Threshold = field(default_factory=RiskZero)


def detector_tags(model: Any) -> DetectorTags:
    """Return the tags of a detector; those of any other estimator are the defaults."""
    return getattr(model, "_detector_tags", DetectorTags())


class SelfDescribing:
    """The methods of every detector; these defaults are right for most."""

    offset_: float
    n_features_in_: int

    _detector_tags: Any = DetectorTags()  # a property where they depend on settings or a fit
    _graph_tolerance: Any = 1e-5
    """How much scores of its ONNX graph may differ, relative for scores larger than 1."""
    _evidence_in_words: ClassVar[str] = "scored by a model fitted without its label"
    """What scored the held-out labelled rows."""

    def _used_kinds(self) -> frozenset[int]:
        """Return the kinds of row, by label code, that a fit learns from."""
        return frozenset({NORMAL, ANOMALY, UNLABELLED})

    @property
    def _anomaly_threshold(self) -> float:
        """The anomaly score above which a row is flagged, as in `predict`."""
        return -float(self.offset_) + 0.0  # avoids a negative zero

    def _check_counts(self, counts: LabelCounts) -> None:
        """Refuse, before any work, labels from which nothing can be learned."""
        if sum(n > 0 for n in (counts.normal, counts.anomaly, counts.unlabelled)) < 2:
            raise InputError(
                f"All rows are of one kind ({counts}), and there is nothing to tell apart. Label "
                "rows that you know to be normal or anomalies, and leave the others unlabelled."
            )

    def _describe(self) -> dict[str, Any]:
        """Return the results of a fit, by name, in a form that JSON can hold."""
        return {"threshold": self._anomaly_threshold}

    def _describe_in_words(self) -> list[str]:
        """Return what was fitted and how, in sentences."""
        return [type(self).__name__]

    def _kept_rows(self) -> int:
        """Return how many training rows the fitted detector stores, and its model file with it."""
        return 0

    def _forget_rows(self) -> Self:
        """Drop training rows, if scoring does not need them; scores stay the same."""
        if detector_tags(self).needs_rows:
            raise InputError(
                f"{type(self).__name__} scores rows by comparing them with training rows, and "
                "cannot do without these. model='boosted', model='forest' and model='shallow' "
                "hold none."
            )
        return self

    def _clone_for_fold(self) -> Self:
        """Return an unfitted copy that is faster to fit, for folds of labelled rows."""
        return clone(self)

    def _contributions(self, X: Any) -> tuple[Any, float] | None:
        """Return what each column adds to the scores of validated rows, and the constant term.

        Contributions phi have the shape of X (array or sparse), and b + sum_j phi_ij is
        `_scores(X)`_i. None: `riskad.explain_rows`, which computes them for any score, is as good.
        """
        return None

    def _onnx_scores(self, graph: Any, rows: str, sparse: bool) -> str:
        """Add the scoring of rows to a `riskad.app.onnx.Graph`; returns the name of the scores.

        `rows` names the rows, in doubles; `sparse` says whether they represent a sparse matrix.
        """
        raise InputError(
            f"A model of class {type(self).__name__} cannot be exported. Fit another: "
            "model='auto', model='shallow', model='boosted' or model='forest'."
        )

    def _trial_rows(self, rng: np.random.Generator, n_rows: int) -> np.ndarray:
        """Return random rows around the training rows, to test a graph on."""
        # Networks over images remember their shape; everything else takes a table.
        shape = getattr(self, "shape_", None) or (self.n_features_in_,)
        across = (-1, *[1] * (len(shape) - 1))  # a channel of an image has one mean
        mean, scale = getattr(self, "_mean", np.zeros(1)), getattr(self, "_scale", np.ones(1))
        X = mean.reshape(across) + scale.reshape(across) * rng.standard_normal((n_rows, *shape))
        return X.astype(np.float32) if len(shape) > 1 else X


class RiskMinimizer(SelfDescribing):
    """Reports of detectors that minimise a risk of `riskad.core.risks`."""

    risk: str
    risk_parts_: dict[str, float]
    _shape_in_words: ClassVar[str] = ""  # the kind of score that it fits
    _remedy_setting: ClassVar[str] = ""  # a setting that must change together with the risk

    def _used_kinds(self) -> frozenset[int]:
        return frozenset(self._bound_risk().kinds())

    def _check_counts(self, counts: LabelCounts) -> None:
        # By count alone, before any weight is known: no work has been done yet.
        totals = np.zeros(3)
        totals[[NORMAL, ANOMALY, UNLABELLED]] = counts.normal, counts.anomaly, counts.unlabelled
        check_kinds_present(self._bound_risk(), counts, totals, self._remedy_setting)

    def _bound_risk(self) -> Risk:
        """The risk; only its kinds of row matter here."""
        return get_risk(self.risk)

    def _describe(self) -> dict[str, Any]:
        parts = getattr(self, "risk_parts_", None)  # which networks do not have
        return super()._describe() | ({"risk_parts": dict(parts)} if parts else {})

    def _describe_in_words(self) -> list[str]:
        return [settings_in_words(self._shape_in_words, self)]


def settings_in_words(shape: str, detector: BaseEstimator) -> str:
    """Describe what was minimised, with the settings that the detector has.

    >>> from riskad import ForestRAD
    >>> settings_in_words("forest", ForestRAD(prior=0.9))
    'forest, rad risk, a = 0.1, prior = 0.9 (share of normal rows)'
    """
    # In this order, whichever of them a detector has: sentences of all detectors read alike.
    words = {"risk": "{} risk", "loss": "{} loss", "a": "a = {:g}"}
    words["prior"] = "prior = {:g} (share of normal rows)"
    settings = detector.get_params(deep=False)
    shown = [words[name].format(settings[name]) for name in words if name in settings]
    return ", ".join([shape, *shown])


# Anomalies first: they are most often the kind that is missing.
_NAMES_AND_REMEDIES = {
    ANOMALY: (
        "a labelled anomaly",
        "Label at least one anomaly, or learn from the normal and the unlabelled rows alone: "
        "risk='pu'{besides}.",
    ),
    NORMAL: (
        "a labelled normal row",
        "Label at least one normal row, or learn from the anomalies and the unlabelled rows alone: "
        "risk='nu'{besides}.",
    ),
    UNLABELLED: (
        "an unlabelled row",
        "Leave the rows that nobody checked unlabelled, or learn from the labelled rows alone: "
        "risk='pn'.",
    ),
}


def check_kinds_present(
    risk: Risk, counts: LabelCounts, totals: np.ndarray, besides: str = ""
) -> None:
    """Refuse labels that lack a kind of row that the risk needs, or give it no weight.

    `besides` names a setting that must change together with the suggested risk.
    """
    for kind, (name, remedy) in _NAMES_AND_REMEDIES.items():
        # Rows of weight 0 alone are as bad as none: the risk would divide by their total.
        if kind in risk.kinds() and not totals[kind] > 0:
            present = {
                NORMAL: counts.normal,
                ANOMALY: counts.anomaly,
                UNLABELLED: counts.unlabelled,
            }
            weightless = " of a weight above 0" if present[kind] else ""
            raise InputError(
                f"the {risk.name} risk needs {name}{weightless}, and there is none ({counts}). "
                f"{remedy.format(besides=besides)}"
            )
