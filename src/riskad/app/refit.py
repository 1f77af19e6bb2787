"""Fit the next model like the last one, and compare the two before it takes over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from riskad.app.fit import Fit, fit_table
from riskad.app.fit_report import FEWEST_FOR_AUC, Comparison, FitReport, ModelBefore, Performance
from riskad.app.model_files import ModelHeader
from riskad.app.score import Progress, decide, earlier_results, score_columns, steps_of
from riskad.app.spec import FitSpec
from riskad.core.checks import InputError, describe_column_difference
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, count_labels
from riskad.decisions.calibration import quietly
from riskad.metrics.ranking import auc_difference
from riskad.tables.labelled import FrameTable

# Kinds whose change from one night to the next would surprise the user. Flags and dates are found
# again: a third word turns a flag into a category, which is no mistake.
_KEPT_KINDS = ("number", "category", "text")
_NEW_LABELS = (
    "labels given after the old model was made: it scores rows whose labels it has not learned "
    "from, and of the new one each row is scored by a fit that has not seen it"
)
_NO_NEW_LABELS = (
    "it is not known which labels are new to the old model. Give the journal with the answers "
    "since then, or a held-out table of labelled rows"
)
_FINDINGS = {
    "better": "the new model is clearly better",
    "worse": "the new model is clearly worse",
    "unclear": "no clear difference",
}


def refit_spec(header: ModelHeader, **labels: Any) -> FitSpec:
    """Return the specification of a model, with some of its label options replaced.

    Those that are None or blank are taken from the fit, unless another column is named, whose
    values have other meanings.
    """
    spec = _report_of(header).spec
    changed = {name: value for name, value in labels.items() if value}
    # Words for the old column would be looked for in the new one, and refused as never seen.
    if changed.get("label", spec.label) != spec.label:
        blank = FitSpec()
        words = ("normal", "anomaly", "unlabelled", "others_unlabelled")
        changed = {name: getattr(blank, name) for name in words} | changed
    return replace(spec, **changed)


def refit_table(
    old: Pipeline,
    header: ModelHeader,
    table: pl.DataFrame,
    *,
    unseen: NDArray[np.bool_] | None = None,
    held_out: FrameTable | None = None,
    spec: FitSpec | None = None,
    sampling: Sequence[str] | None = None,
    even_if_worse: bool = False,
    source: str = "table",
    progress: Progress = lambda _: None,
) -> Fit:
    """Fit the next model with the settings and columns of an old one, and compare the two.

    Columns that the old model did not use are left out; numbers stay numbers and categories stay
    categories. Its detector, settings, seed, threshold rule, groups and times are kept. `table`
    holds all rows to learn from, old and new, with their labels; `spec` is by default that of the
    old model (`refit_spec`), and the last arguments are those of `fit_table`.

    `report.before` of the fit says how the models compare on `held_out`, a table with labels that
    neither learns from, or else on the rows of `table` whose labels are `unseen` by the old model.
    The next one is clearly worse, which is an `alarm`, if the whole interval of the difference of
    AUCs is below 0; it then takes over only if `even_if_worse`.
    """
    before = _report_of(header)
    if before.spec.window is not None:
        raise InputError("A model of windows is fitted anew: use `riskad fit` with its options.")
    spec = _repeat(spec or before.spec, before, old, table)
    rows = FrameTable(table, spec.labels)
    fit = fit_table(rows, spec, source=source, sampling=sampling, progress=progress)
    progress("Comparing it with the model before")
    compared = _compare(old, fit, rows, unseen, held_out, sampling or ())
    warnings, comparison = fit.report.warnings, None if isinstance(compared, str) else compared
    # Without clear evidence the new model takes over: it has learned from more labels.
    worse = comparison is not None and comparison.difference.verdict == "worse"
    takes_over = even_if_worse or not worse
    verdict = f"not compared: {compared}. The new model takes over."
    if comparison is not None:
        finding = _FINDINGS[comparison.difference.verdict]
        verdict = f"{finding}; {'it takes over' if takes_over else 'the old one stays'}."
        n_rows = comparison.difference.n_normal + comparison.difference.n_anomaly
        chosen = n_rows - comparison.drawn_at_random
        if held_out is None and chosen:
            caution = (
                f"{chosen:,} of the {n_rows:,} rows that the models are compared by were not drawn "
                "at random. Rows that the old model was unsure of, or flagged, make it look worse "
                "than it is on all rows."
            )
            warnings = [*warnings, caution]
    facts = ("source", "rows", "labels", "auc", "rate", "rule", "flagged")
    model_before = ModelBefore(
        verdict=verdict,
        takes_over=takes_over,
        alarm=worse,
        created=header.created,
        comparison=comparison,
        **{name: getattr(before, name) for name in facts},
    )
    return replace(fit, report=replace(fit.report, before=model_before, warnings=warnings))


# --- the old fit, repeated ----------------------------------------------------------------


def _report_of(header: ModelHeader) -> FitReport:
    if header.report is None:
        raise InputError(
            "This model was saved from Python without the report of its fit, so it cannot be "
            "fitted again. Fit the next one with `riskad fit`, which stores the report."
        )
    return header.report


def _repeat(spec: FitSpec, before: FitReport, old: Pipeline, table: pl.DataFrame) -> FitSpec:
    """The specification that makes the next model like the old one, from the same columns."""
    preparer, _ = steps_of(old)
    if not set(preparer.read_columns) <= set(table.columns):
        raise InputError(
            "The table lacks columns that the model learned from; put them back, or fit a new "
            "model with `riskad fit`.\n"
            + describe_column_difference(preparer.read_columns, table.columns)
        )
    # Results of earlier runs of `riskad score` would tell the new model what the old one thought.
    others = (spec.id, spec.label, spec.label_sampling, *earlier_results(table.columns))
    used = {*preparer.feature_names_in_, *others}
    kinds = {column.name: column.requested_kind for column in preparer.used()}
    return replace(
        spec,
        id=spec.id if spec.id in table.columns else None,
        # The new table may have columns that the old one had not.
        drop=tuple(name for name in table.columns if name not in used),
        kinds={n: kind for n, kind in kinds.items() if kind.startswith(_KEPT_KINDS)} | spec.kinds,
        # `riskad threshold` may have changed the rule since.
        threshold=before.rule if spec.capacity is None else None,
    )


# --- the comparison -----------------------------------------------------------------------


def judged_since(first_judged: Sequence[str], moment: str) -> NDArray[np.bool_]:
    """Whether rows were first judged after a moment; both are written as ISO 8601.

    >>> judged_since(["2026-11-17T08:00:00+00:00", "", "soon"], "2026-11-16T20:00:00+00:00")
    array([ True, False, False])
    """
    created = datetime.fromisoformat(moment)
    # Headers are written in UTC; a file made by other means may lack the zone.
    created = created if created.tzinfo is not None else created.replace(tzinfo=UTC)

    def is_later(time: str) -> bool:
        try:
            judged = datetime.fromisoformat(time)
        except ValueError:
            return False
        # An answer without a zone cannot be compared: it does not count as new.
        return judged.tzinfo is not None and judged > created

    return np.array([is_later(time) for time in first_judged], dtype=bool)


def _compare(
    old: Pipeline,
    fit: Fit,
    table: FrameTable,
    unseen: NDArray[np.bool_] | None,
    held_out: FrameTable | None,
    sources: Sequence[str],
) -> Comparison | str:
    """Compare a fit with the model before it; or say why not."""
    if held_out is not None:  # both models score its rows directly
        table, rests_on = held_out, "labels of a table that neither model has learned from"
        rows = np.flatnonzero(table.codes != UNLABELLED)
    elif unseen is None:
        return _NO_NEW_LABELS
    elif fit.held_out is None:
        return "some labelled rows were never held out from the new fit"
    else:  # rows that were labelled since, with cross-fitted scores of the new model
        # The new model has learned from these labels, so that only scores of its folds can be
        # compared.
        labelled = (table.codes != UNLABELLED) & ~np.isnan(fit.held_out)
        rows, rests_on = np.flatnonzero(unseen & labelled), _NEW_LABELS
    frame, codes = table.frame[rows], np.asarray(table.codes)[rows]
    n, m = int((codes == NORMAL).sum()), int((codes == ANOMALY).sum())
    if min(n, m) < FEWEST_FOR_AUC:
        return (
            f"it takes {FEWEST_FOR_AUC} rows of each kind whose labels the old model has not "
            f"learned from, and there are {n:,} normal and {m:,} anomalies"
        )
    drawn_at_random = 0
    if held_out is None and fit.held_out is not None:
        after = fit.held_out[rows]
        drawn_at_random = sum(bool(sources) and sources[i] == "random" for i in rows.tolist())
    else:
        after = _scores(fit.model, frame)
    # Rows of one group may share what made them anomalous: the interval counts groups then.
    before, group = _scores(old, frame), fit.model[0].group
    groups = None if group is None else frame[group].cast(pl.String).to_numpy()
    difference, new_auc, old_auc = auc_difference(codes, after, before, groups=groups)
    both = []
    for model, auc, scores in ((old, old_auc, before), (fit.model, new_auc, after)):
        detector = steps_of(model)[1]
        columns = score_columns(detector, scores, decide(detector), frame=frame)
        flagged = count_labels(codes[columns["is_anomaly"]])
        both.append(Performance(auc, flagged.anomaly, flagged.normal))
    return Comparison(rests_on, difference, both[0], both[1], drawn_at_random)


def _scores(model: Pipeline, frame: pl.DataFrame) -> NDArray[np.float64]:
    preparer, detector = steps_of(model)
    # A table that has drifted is no news of the comparison.
    with quietly():
        return np.asarray(detector.anomaly_score(preparer.transform(frame, quiet=True)), float)
