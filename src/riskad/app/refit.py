"""Fit the next model like the last one, and compare the two before it takes over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import polars as pl
from sklearn.pipeline import Pipeline

from riskad.app.asked import LabelWords
from riskad.app.fit import Fit, FitReport, Fitted, fit_table
from riskad.app.judging import Comparison, Judging, compare_models
from riskad.app.model_files import ModelHeader
from riskad.app.noticed import Progress
from riskad.app.results import earlier_results, steps_of
from riskad.core.checks import InputError, describe_column_difference
from riskad.core.labels import LabelCounts
from riskad.detectors.registry import DETECTORS, make_detector
from riskad.tables.labelled import FrameTable, LabelColumn
from riskad.tables.preparation import TablePreparer

__all__ = ["ModelFacts", "Refit", "RefitReport", "label_column_of", "refit_table"]

# Kinds whose change from one night to the next would surprise the user. Flags and dates are found
# again: a third word turns a flag into a category, which is no mistake.
_KEPT_KINDS = ("number", "category", "text")


@dataclass(frozen=True)
class ModelFacts:
    """What a model learned from, and how good it is on its own held-out rows."""

    source: str
    created: str
    rows: int
    labels: LabelCounts
    auc: dict[str, Any] | None
    rate: list[float] | None
    rule: str
    unlabelled_flagged: int

    @classmethod
    def of(cls, fit: Mapping[str, Any], created: str) -> ModelFacts:
        """Read them from the notes of a fit."""
        return cls(
            source=fit["source"],
            created=created,
            rows=fit["rows"],
            labels=LabelCounts(**fit["labels"]),
            auc=fit["auc"],
            rate=None if fit["rate"] is None else list(fit["rate"]),
            rule=fit["rule"],
            unlabelled_flagged=fit["unlabelled_flagged"],
        )


@dataclass(frozen=True)
class RefitReport:
    """What `refit_table` found: the last model, the next one, and which is better."""

    source: str
    rows: int
    takes_over: bool
    alarm: bool
    verdict: str
    before: ModelFacts
    after: ModelFacts
    comparison: Comparison | None
    why_not_compared: str
    fit: FitReport
    warnings: list[str] = field(default_factory=list)

    def notes(self) -> dict[str, Any]:
        """Return the notes for the model file: the fit, and the model before it."""
        found = asdict(self)
        names = ("verdict", "before", "after", "comparison", "why_not_compared")
        return self.fit.notes() | {"refit": {name: found[name] for name in names}}


@dataclass(frozen=True)
class Refit:
    """The next model from `riskad.fit_table`, and how it compares with the last one."""

    fit: Fit
    report: RefitReport


def label_column_of(header: ModelHeader, given: LabelColumn | None = None) -> LabelColumn:
    """Return the label column of a model, with the meaning of its values.

    Parameters
    ----------
    header
        The header of the model file.
    given
        The user's label column; a blank name, or missing words, are taken from the fit.
    """
    notes = _notes_of(header)
    words = LabelWords([], [], [], "raise")
    if notes.get("asked"):
        words = LabelWords(**notes["asked"]["labels"])
    if given is None:
        return words.of_column(notes["label"])
    name, said = given.column or notes["label"], LabelWords.of(given)
    if name != notes["label"]:
        return said.of_column(name)
    return LabelWords(
        said.normal or words.normal,
        said.anomaly or words.anomaly,
        said.unlabelled or words.unlabelled,
        said.others if said.others != "raise" else words.others,
    ).of_column(name)


def refit_table(
    old: Pipeline,
    header: ModelHeader,
    table: pl.DataFrame,
    judging: Judging | None = None,
    *,
    labels: LabelColumn | None = None,
    label_source: Any = None,
    even_if_worse: bool = False,
    top: int = 10,
    source: str = "table",
    progress: Progress = lambda _: None,
    fitted: Fitted = lambda model, report: None,
) -> Refit:
    """Fit the next model with the settings and columns of an old one, and compare the two.

    Columns that the old model did not use are left out; numbers stay numbers and categories stay
    categories. Its detector, settings, seed, threshold rule, groups and times are kept.

    Parameters
    ----------
    old, header
        Results of `riskad.load` and `riskad.app.model_files.read_header` for the last model. It
        must come from `riskad.fit_table`, whose notes are in the header.
    table
        All rows to learn from, old and new, with their labels.
    judging
        Rows on which the two are compared; without it they are not.
    labels
        The label column; by default that of the old model (`label_column_of`).
    label_source
        How rows were chosen for labelling, as in `fit_table`; by default as for the old model.
    even_if_worse
        Whether the next model takes over even if it is clearly worse.
    top, source, progress, fitted
        As in `fit_table`.

    Returns
    -------
    Refit
        The fit and a report. The model does not take over (`RefitReport.takes_over`) if the whole
        interval of the difference of AUCs is below 0, which is always an `alarm`.
    """
    options = _asked_again(old, header, table)
    if label_source is not None:
        options["label_source"] = label_source
    labels = label_column_of(header) if labels is None else labels
    rows = FrameTable(table, labels)
    told: dict[str, Any] = {"top": top, "source": source, "progress": progress, "fitted": fitted}
    fit = fit_table(rows, labels, **told, **options)
    progress("Comparing it with the model before")
    comparison, why = compare_models(old, fit, rows, judging or Judging())
    return Refit(fit, _report(header, fit.report, comparison, why, even_if_worse))


def _report(
    header: ModelHeader,
    fit: FitReport,
    comparison: Comparison | None,
    why: str,
    even_if_worse: bool,
) -> RefitReport:
    worse = comparison is not None and comparison.difference.verdict == "worse"
    takes_over = even_if_worse or not worse
    return RefitReport(
        source=fit.source,
        rows=fit.rows,
        takes_over=takes_over,
        alarm=worse,
        verdict=_verdict(comparison, why, takes_over),
        before=ModelFacts.of(_notes_of(header), header.created),
        after=ModelFacts.of(fit.notes()["fit"], ""),
        comparison=comparison,
        why_not_compared=why,
        fit=fit,
        warnings=[*fit.warnings, *([] if comparison is None else comparison.cautions)],
    )


def _verdict(comparison: Comparison | None, why: str, takes_over: bool) -> str:
    if comparison is None:
        return f"not compared: {why}. The new model takes over."
    found = {
        "better": "the new model is clearly better",
        "worse": "the new model is clearly worse",
        "unclear": "no clear difference",
    }[comparison.difference.verdict]
    return f"{found}; {'it' if takes_over else 'the old one stays'}{' takes over' * takes_over}."


# --- the old fit, repeated ----------------------------------------------------------------


def _notes_of(header: ModelHeader) -> dict[str, Any]:
    notes: dict[str, Any] | None = header.notes.get("fit")
    if notes is None:
        raise InputError(
            "This model was saved from Python and does not say how it was fitted, so that it "
            "cannot be fitted again. Fit the next one with `riskad fit`; that one can be."
        )
    return notes


def _asked_again(old: Pipeline, header: ModelHeader, table: pl.DataFrame) -> dict[str, Any]:
    """The arguments of `fit_table` that make the next model like the old one."""
    notes, (preparer, detector) = _notes_of(header), steps_of(old)
    id, asked = notes["id"], notes.get("asked") or {}
    options: dict[str, Any] = {
        name: asked[name]
        for name in ("time", "anomaly_rate", "label_source", "forget_rows")
        if name in asked
    }
    if asked.get("capacity") is not None:
        options["capacity"] = asked["capacity"]
    else:
        options["threshold"] = str(detector.threshold_)
    return options | {
        "id": id if id in table.columns else None,
        "drop": _other_columns(preparer, table, (id, notes["label"])),
        "kinds": _kinds_of(preparer),
        "group": preparer.group,
        "model": _name_of(detector),
        "settings": _settings_of(detector),
    }


def _other_columns(
    preparer: TablePreparer, table: pl.DataFrame, known: tuple[str | None, str]
) -> list[str]:
    """The columns that the old model did not use; an error if one that it reads is missing."""
    lost = [name for name in preparer.read_columns if name not in table.columns]
    if lost:
        raise InputError(
            "The table lacks columns that the model learned from; put them back, or fit a new "
            "model with `riskad fit`.\n"
            + describe_column_difference(preparer.read_columns, table.columns)
        )
    offered = {*preparer.feature_names_in_, *known, *earlier_results(table.columns)}
    return [name for name in table.columns if name not in offered]


def _kinds_of(preparer: TablePreparer) -> dict[str, str]:
    found = {column.name: column.requested_kind for column in preparer.used()}
    kept = {name: kind for name, kind in found.items() if kind in _KEPT_KINDS}
    return kept | dict(preparer.kinds or {})


def _name_of(detector: Any) -> str:
    """The name of a detector in the registry."""
    kind = type(detector)
    for entry in DETECTORS.values():
        known = entry.detector
        if known is kind or str(known).rpartition(":")[2] == kind.__name__:
            return entry.name
    raise InputError(
        f"{kind.__name__} is none of the models that `riskad fit` knows; fit it again in Python."
    )


def _settings_of(detector: Any) -> dict[str, Any]:
    """The settings in which a detector differs from the defaults."""
    usual = make_detector(_name_of(detector), {}).get_params(deep=False)
    own = detector.get_params(deep=False)
    return {name: value for name, value in own.items() if repr(value) != repr(usual[name])}
