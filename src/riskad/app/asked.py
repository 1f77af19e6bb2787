"""The options of a fit, stored with the model so that the same fit can be repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from riskad.decisions.anomaly_rate import LABEL_SOURCES
from riskad.storage.fields import FLAG, SHARE, TEXT, Fields, Fixed, ListOf, Maybe
from riskad.tables.labelled import LabelColumn

__all__ = ["ASKED", "Asked", "LabelWords"]


@dataclass(frozen=True)
class LabelWords:
    """The meaning of the values of the label column."""

    normal: list[str]
    anomaly: list[str]
    unlabelled: list[str]
    others: str

    @classmethod
    def of(cls, labels: LabelColumn) -> LabelWords:
        """Return the stated meaning of the values of a column."""
        normal, anomaly, none = map(_texts, (labels.normal, labels.anomaly, labels.unlabelled))
        return cls(normal, anomaly, none, labels.others)

    def of_column(self, name: str) -> LabelColumn:
        """Return the label column of a table in which values have the same meaning."""
        return LabelColumn(name, self.normal, self.anomaly, self.unlabelled, self.others)


def _texts(values: Any) -> list[str]:
    several = values if isinstance(values, Sequence) and not isinstance(values, str) else [values]
    return [str(value) for value in several]


@dataclass(frozen=True)
class Asked:
    """The options of a fit that neither the preparer nor the detector stores."""

    labels: LabelWords
    time: str | None
    capacity: str | None
    anomaly_rate: float | None
    label_source: str
    forget_rows: bool

    @classmethod
    def of(
        cls,
        labels: LabelColumn,
        time: str | None,
        capacity: str | int | None,
        anomaly_rate: float | None,
        label_source: Any,
        forget_rows: bool,
    ) -> Asked:
        """Return the stored part of the arguments of `riskad.fit_table`.

        Label sources that were given row by row are not stored with the model.
        """
        told = isinstance(label_source, str) and label_source in LABEL_SOURCES
        return cls(
            LabelWords.of(labels),
            time,
            None if capacity is None else str(capacity),
            anomaly_rate,
            label_source if told else "unknown",
            forget_rows,
        )


_WORDS: Fields = dict.fromkeys(("normal", "anomaly", "unlabelled"), ListOf(TEXT)) | {"others": TEXT}
ASKED: Fields = {
    "labels": Fixed(_WORDS),
    "time": Maybe(TEXT),
    "capacity": Maybe(TEXT),
    "anomaly_rate": Maybe(SHARE),
    "label_source": TEXT,
    "forget_rows": FLAG,
}
"""Its fields in a model file."""
