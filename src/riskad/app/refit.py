"""Fit the next model like the last one, and compare the two before it takes over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl
from sklearn.pipeline import Pipeline

from riskad.app.fit import Fit, Fitted, fit_table
from riskad.app.fit_report import FitReport, ModelBefore
from riskad.app.judging import Comparison, Judging, compare_models
from riskad.app.model_files import ModelHeader
from riskad.app.noticed import Progress
from riskad.app.results import earlier_results, steps_of
from riskad.app.spec import FitSpec
from riskad.core.checks import InputError, describe_column_difference
from riskad.tables.labelled import FrameTable
from riskad.tables.preparation import TablePreparer

__all__ = ["refit_spec", "refit_table"]

# Kinds whose change from one night to the next would surprise the user. Flags and dates are found
# again: a third word turns a flag into a category, which is no mistake.
_KEPT_KINDS = ("number", "category", "text")


def refit_spec(header: ModelHeader, **labels: Any) -> FitSpec:
    """Return the specification of a model, with some of its label options replaced.

    Parameters
    ----------
    header
        The header of the model file.
    **labels
        Label options of `FitSpec`; those that are None or blank are taken from the fit, unless
        another column is named, whose values have other meanings.
    """
    spec = _report_of(header).spec
    named = {name: value for name, value in labels.items() if value}
    if named.get("label", spec.label) != spec.label:
        blank = FitSpec()
        words = ("normal", "anomaly", "unlabelled", "others_unlabelled")
        named = {name: getattr(blank, name) for name in words} | named
    return replace(spec, **named)


def refit_table(
    old: Pipeline,
    header: ModelHeader,
    table: pl.DataFrame,
    judging: Judging | None = None,
    *,
    spec: FitSpec | None = None,
    sampling: Sequence[str] | None = None,
    even_if_worse: bool = False,
    source: str = "table",
    progress: Progress = lambda _: None,
    fitted: Fitted = lambda model, report: None,
) -> Fit:
    """Fit the next model with the settings and columns of an old one, and compare the two.

    Columns that the old model did not use are left out; numbers stay numbers and categories stay
    categories. Its detector, settings, seed, threshold rule, groups and times are kept.

    Parameters
    ----------
    old, header
        Results of `riskad.load` and `riskad.app.model_files.read_header` for the last model. It
        must come from `riskad.fit_table`, whose report is in the header.
    table
        All rows to learn from, old and new, with their labels.
    judging
        Rows on which the two are compared; without it they are not.
    spec
        The specification; by default that of the old model (`refit_spec`).
    even_if_worse
        Whether the next model takes over even if it is clearly worse.
    sampling, source, progress, fitted
        As in `fit_table`.

    Returns
    -------
    Fit
        The fit. Its `report.before` says how the models compare: the next one does not take over
        (`takes_over`) if the whole interval of the difference of AUCs is below 0, which is always
        an `alarm`.
    """
    before = _report_of(header)
    spec = _repeat(spec or before.spec, before, old, table)
    rows = FrameTable(table, spec.labels)
    fit = fit_table(rows, spec, source=source, sampling=sampling, progress=progress, fitted=fitted)
    progress("Comparing it with the model before")
    comparison, why_not = compare_models(old, fit.model, rows, fit.held_out, judging or Judging())
    worse = comparison is not None and comparison.difference.verdict == "worse"
    takes_over = even_if_worse or not worse
    model_before = ModelBefore(
        verdict=_verdict(comparison, why_not, takes_over),
        takes_over=takes_over,
        alarm=worse,
        created=header.created,
        source=before.source,
        rows=before.rows,
        labels=before.labels,
        auc=before.auc,
        rate=before.rate,
        rule=before.rule,
        flagged=before.flagged,
        comparison=comparison,
        why_not_compared=why_not,
    )
    cautions = [] if comparison is None else comparison.cautions
    warnings = [*fit.report.warnings, *cautions]
    return replace(fit, report=replace(fit.report, before=model_before, warnings=warnings))


def _verdict(comparison: Comparison | None, why_not: str, takes_over: bool) -> str:
    if comparison is None:
        return f"not compared: {why_not}. The new model takes over."
    finding = {
        "better": "the new model is clearly better",
        "worse": "the new model is clearly worse",
        "unclear": "no clear difference",
    }[comparison.difference.verdict]
    return f"{finding}; {'it takes over' if takes_over else 'the old one stays'}."


# --- the old fit, repeated ----------------------------------------------------------------


def _report_of(header: ModelHeader) -> FitReport:
    if header.report is None:
        raise InputError(
            "This model was saved from Python and does not say how it was fitted, so that it "
            "cannot be fitted again. Fit the next one with `riskad fit`; that one can be."
        )
    return header.report


def _repeat(spec: FitSpec, before: FitReport, old: Pipeline, table: pl.DataFrame) -> FitSpec:
    """The specification that makes the next model like the old one."""
    preparer, _ = steps_of(old)
    rule = before.rule if spec.capacity is None else None  # `threshold` may have changed it since
    return replace(
        spec,
        id=spec.id if spec.id in table.columns else None,
        drop=_unused_columns(preparer, spec, table),
        kinds=_kept_kinds(preparer) | spec.kinds,
        threshold=rule,
    )


def _unused_columns(preparer: TablePreparer, spec: FitSpec, table: pl.DataFrame) -> tuple[str, ...]:
    """The columns that the old model did not use; an error if one that it reads is missing."""
    lost = [name for name in preparer.read_columns if name not in table.columns]
    if lost:
        raise InputError(
            "The table lacks columns that the model learned from; put them back, or fit a new "
            "model with `riskad fit`.\n"
            + describe_column_difference(preparer.read_columns, table.columns)
        )
    others = (spec.id, spec.label, spec.label_sampling, *earlier_results(table.columns))
    used = {*preparer.feature_names_in_, *others}
    return tuple(name for name in table.columns if name not in used)


def _kept_kinds(preparer: TablePreparer) -> dict[str, str]:
    kinds = {column.name: column.requested_kind for column in preparer.used()}
    return {name: kind for name, kind in kinds.items() if kind in _KEPT_KINDS}
