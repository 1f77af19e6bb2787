"""Compare two models on labelled rows whose labels neither has learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from riskad.app.hold_out import FEWEST_FOR_AUC
from riskad.app.noticed import no_warnings
from riskad.app.results import steps_of
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, Codes
from riskad.metrics.ranking import Auc, AucDifference, auc_difference
from riskad.tables.labelled import FrameTable, LabelColumn

__all__ = ["Comparison", "Judged", "Judging", "compare_models", "judged_since"]

_NEW_LABELS = (
    "labels given after the old model was made: it scores rows whose labels it has not learned "
    "from, and of the new one each row is scored by a fit that has not seen it"
)
_NOT_TOLD = (
    "it is not known which labels the old model has not learned from. Give a journal with the "
    "answers since then, or a held-out table of labelled rows"
)
_OTHER_TABLE = "labels of a table that neither model has learned from"


@dataclass(frozen=True)
class Judging:
    """The rows on which models are compared.

    Attributes
    ----------
    unseen
        By row of the table, whether the old model has not learned from its label.
    sources
        For each row, how it was chosen for labelling: "random" means by chance.
    other
        Another table with labels, which neither model learns from, instead of `unseen`.
    """

    unseen: NDArray[np.bool_] | None = None
    sources: Sequence[str] = ()
    other: FrameTable | None = None

    @classmethod
    def by_table(cls, frame: pl.DataFrame, labels: LabelColumn) -> Judging:
        """Judge on another table, in which labels have the same meaning."""
        return cls(other=FrameTable(frame, labels))


@dataclass(frozen=True)
class Judged:
    """How one model does on the rows on which both are judged."""

    auc: Auc
    anomalies_flagged: int
    normals_flagged: int


@dataclass(frozen=True)
class Comparison:
    """Two models on the same labelled rows; `difference` is the AUC after minus that before."""

    rests_on: str
    difference: AucDifference
    before: Judged
    after: Judged
    drawn_at_random: int
    cautions: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Rows:
    """Labelled rows with the scores of both models."""

    codes: Codes
    before: NDArray[np.float64]
    after: NDArray[np.float64]
    groups: NDArray[np.str_] | None
    rests_on: str
    drawn_at_random: int | None


def judged_since(first_judged: Sequence[str], moment: str) -> NDArray[np.bool_]:
    """Whether rows were first judged after a moment; both are written as ISO 8601.

    >>> judged_since(["2026-11-17T08:00:00+00:00", "", "soon"], "2026-11-16T20:00:00+00:00")
    array([ True, False, False])
    """
    made = datetime.fromisoformat(moment)
    made = made if made.tzinfo is not None else made.replace(tzinfo=UTC)

    def is_later(said: str) -> bool:
        try:
            judged = datetime.fromisoformat(said)
        except ValueError:
            return False
        return judged.tzinfo is not None and judged > made

    return np.array([is_later(said) for said in first_judged], dtype=bool)


def compare_models(
    old: Pipeline,
    new: Pipeline,
    table: FrameTable,
    held_out: NDArray[np.float64] | None,
    judging: Judging,
) -> tuple[Comparison | None, str]:
    """Compare a model with the one before it.

    Parameters
    ----------
    old, new
        The two models.
    table, held_out
        Rows of the new fit, and their anomaly scores by fits that have not seen them.
    judging
        The rows on which to compare them.

    Returns
    -------
    tuple of Comparison or None, and str
        The comparison, or why there is none.
    """
    if judging.other is not None:
        rows = _other_rows(old, new, judging.other)
    elif judging.unseen is None:
        return None, _NOT_TOLD
    elif held_out is None:
        return None, "some labelled rows were never held out from the new fit"
    else:
        rows = _new_rows(old, new, table, held_out, judging)
    n, m = (int((rows.codes == kind).sum()) for kind in (NORMAL, ANOMALY))
    if min(n, m) < FEWEST_FOR_AUC:
        return None, (
            f"it takes {FEWEST_FOR_AUC} rows of each kind whose labels the old model has not "
            f"learned from, and there are {n:,} normal and {m:,} anomalies"
        )
    return _compared(rows, steps_of(old)[1], steps_of(new)[1]), ""


def _new_rows(
    old: Pipeline,
    new: Pipeline,
    table: FrameTable,
    held_out: NDArray[np.float64],
    judging: Judging,
) -> _Rows:
    """Rows that were labelled since: cross-fitted scores of the new model."""
    sources = judging.sources
    places = np.flatnonzero(judging.unseen & (table.codes != UNLABELLED) & ~np.isnan(held_out))
    random = [i for i in places.tolist() if sources and sources[i] == "random"]
    frame = table.frame[places]
    return _Rows(
        np.asarray(table.codes)[places],
        _scores(old, frame),
        held_out[places],
        _groups(new, frame),
        _NEW_LABELS,
        len(random),
    )


def _other_rows(old: Pipeline, new: Pipeline, other: FrameTable) -> _Rows:
    """Rows of another table, which both models score directly."""
    labelled = np.flatnonzero(other.codes != UNLABELLED)
    frame = other.frame[labelled]
    scores = _scores(old, frame), _scores(new, frame)
    codes = np.asarray(other.codes)[labelled]
    return _Rows(codes, *scores, _groups(new, frame), _OTHER_TABLE, None)


def _scores(model: Pipeline, frame: pl.DataFrame) -> NDArray[np.float64]:
    preparer, detector = steps_of(model)
    if not frame.height:
        return np.empty(0)
    with no_warnings():
        return np.asarray(detector.anomaly_score(preparer.transform(frame, quiet=True)), float)


def _groups(model: Pipeline, frame: pl.DataFrame) -> NDArray[np.str_] | None:
    group = steps_of(model)[0].group
    return None if group is None else frame[group].cast(pl.String).to_numpy()


def _compared(rows: _Rows, before: object, after: object) -> Comparison:
    difference, new, old = auc_difference(rows.codes, rows.after, rows.before, groups=rows.groups)
    cautions = []
    if rows.drawn_at_random is not None and rows.drawn_at_random < len(rows.codes):
        cautions.append(
            f"{len(rows.codes) - rows.drawn_at_random:,} of the {len(rows.codes):,} rows that the "
            "models are compared by were not drawn at random. Rows that the old model was unsure "
            "of, or flagged, make it look worse than it is on all rows."
        )
    return Comparison(
        rows.rests_on,
        difference,
        _judged(rows.codes, rows.before, before, old),
        _judged(rows.codes, rows.after, after, new),
        rows.drawn_at_random or 0,
        cautions,
    )


def _judged(codes: Codes, scores: NDArray[np.float64], detector: object, auc: Auc) -> Judged:
    flagged = scores > detector.anomaly_threshold  # type: ignore[attr-defined]
    return Judged(
        auc, int((flagged & (codes == ANOMALY)).sum()), int((flagged & (codes == NORMAL)).sum())
    )
