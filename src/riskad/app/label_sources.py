"""The user's knowledge beyond the table: the anomaly rate, and how rows were labelled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from riskad.core.checks import InputError, enumerate_names, lookup
from riskad.core.labels import Codes
from riskad.decisions.anomaly_rate import LABEL_SOURCES, check_label_source, given_rate
from riskad.detectors.registry import DETECTORS
from riskad.tables.labelled import KeptRows, LabelledTable

__all__ = ["column_of_sources", "read_sources", "with_rate"]


def with_rate(model: str, settings: Mapping[str, Any], rate: float | None) -> dict[str, Any]:
    """Return the settings of a detector for a known anomaly rate.

    Parameters
    ----------
    model, settings
        The detector's name, and its given settings, which take precedence.
    rate
        Share of anomalies among the unlabelled rows, if known.
    """
    settings = dict(settings)
    if rate is None:
        return settings
    value = given_rate(rate).value
    entry = lookup("model", model, DETECTORS)
    if "anomaly_rate" in entry.load()._get_param_names():
        settings.setdefault("anomaly_rate", value)
    if 0 < value < 1 and any(setting.name == "prior" for setting in entry.settings):
        settings.setdefault("prior", 1 - value)
    return settings


def column_of_sources(source: Any, table: LabelledTable) -> str | None:
    """Return the column that states how rows were chosen for labelling, if one was named."""
    if not isinstance(source, str) or source in LABEL_SOURCES:
        return None
    if source not in table.columns:
        raise InputError(
            f"label_source={source!r} is neither one of {', '.join(LABEL_SOURCES)} nor a column; "
            f"there are {enumerate_names(table.columns)}."
        )
    return source


def read_sources(source: Any, table: LabelledTable, kept: KeptRows) -> str | np.ndarray:
    """Return how rows were chosen for labelling: a word, or one for each row in memory."""
    column = column_of_sources(source, table)
    if isinstance(source, str) and column is None:
        return source
    if not kept.complete:
        raise InputError(
            "label_source for each row takes a table that is in memory as a whole; say one of "
            f"{', '.join(LABEL_SOURCES)} of all rows."
        )
    words = table.fold(_words, _join, [column]) if column is not None else source
    return check_label_source(words, len(kept.codes))


def _words(frame: pl.DataFrame, codes: Codes, first_row: int) -> list[str]:
    texts = frame.to_series(0).cast(pl.String).fill_null("").str.strip_chars().str.to_lowercase()
    return texts.to_list()


def _join(first: list[str], second: list[str]) -> list[str]:
    return first + second
