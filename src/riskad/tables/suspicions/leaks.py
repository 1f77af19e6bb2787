"""A column that alone determines the labels: it may have been filled in after the fact.

Numbers are ranked, blanks below them all, and have an AUC on the labelled rows; so has whether a
cell is blank; for texts, levels that only anomalies have are compared with all others. A column is
suspected if its AUC, in either direction, is at least 0.995, that of the next best column is below
0.95 (otherwise anomalies are simply easy to find), and a column of noise would reach it in at most
one table of a thousand: with m anomalies among n labelled rows a given column does so with a
probability of about 2 / C(n, m).
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import gammaln
from scipy.stats import rankdata

from riskad.core.labels import ANOMALY, UNLABELLED
from riskad.tables.suspicions.finding import Suspicion, floats_of
from riskad.tables.words import list_names

__all__ = ["find_leaks"]

_AUC, _NEXT = 0.995, 0.95
_FEWEST = 5
_CHANCE = 1e-3


def find_leaks(parsed: pl.DataFrame, codes: NDArray[np.int8]) -> list[Suspicion]:
    """Look for a column that separates anomalies from normal rows nearly perfectly.

    >>> codes = np.repeat(np.array([1, -1], dtype=np.int8), [40, 10])
    >>> rows = pl.DataFrame({"amount": [7.0, 3.0] * 25, "refund": [0.0] * 40 + [1.0] * 10})
    >>> print(find_leaks(rows, codes)[0])
    refund: alone it tells the 10 labelled anomalies from the 40 normal rows (AUC 1.000): was it \
filled in after they were found? If so, leave it out.
    """
    labelled = codes != UNLABELLED
    anomalous = codes[labelled] == ANOMALY
    m, n = int(anomalous.sum()), len(anomalous)
    if min(m, n - m) < _FEWEST or _by_chance(m, n) * parsed.width > _CHANCE:
        return []
    rows = parsed.filter(labelled)
    told = [(*_best_auc(column, anomalous), column.name) for column in rows]
    told.sort(key=lambda each: each[0], reverse=True)
    if not told or told[0][0] < _AUC or (len(told) > 1 and told[1][0] >= _NEXT):
        return []
    auc, how, name = told[0]
    words = (
        f"{how} it tells the {m:,} labelled anomalies from the {n - m:,} normal rows (AUC "
        f"{auc:.3f}): was it filled in after they were found? If so, leave it out."
    )
    return [Suspicion(name, words)]


def _by_chance(m: int, n: int) -> float:
    return float(2 * np.exp(gammaln(m + 1) + gammaln(n - m + 1) - gammaln(n + 1)))


def _best_auc(column: pl.Series, anomalous: NDArray[np.bool_]) -> tuple[float, str]:
    """The AUC of a column, and what it comes from."""
    blank = column.is_null().to_numpy()
    if column.dtype.is_numeric():
        values = floats_of(column)
        by_value = _auc(np.where(np.isnan(values), -np.inf, values), anomalous), "alone"
    else:
        own, names = _own_levels(column, anomalous)
        by_value = _auc(own, anomalous), f"by what only anomalies have ({names})"
    by_blank = _auc(blank, anomalous), "by its blanks alone"
    return max(by_value, by_blank, key=lambda each: each[0])


def _auc(values: NDArray[np.float64] | NDArray[np.bool_], anomalous: NDArray[np.bool_]) -> float:
    m, n = int(anomalous.sum()), len(anomalous)
    auc = (rankdata(values)[anomalous].sum() - m * (m + 1) / 2) / (m * (n - m))
    return float(max(auc, 1 - auc))


def _own_levels(column: pl.Series, anomalous: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], str]:
    """Cells of levels that several anomalies and no normal rows have, and these levels."""
    texts = column.cast(pl.String).alias("level")
    counts = pl.DataFrame([texts, pl.Series("anomalous", anomalous)]).drop_nulls("level")
    counts = counts.group_by("level").agg(pl.len().alias("rows"), pl.col("anomalous").sum())
    alone = (pl.col("anomalous") == pl.col("rows")) & (pl.col("rows") >= _FEWEST)
    levels = counts.filter(alone).sort("rows", descending=True)["level"]
    own = texts.is_in(levels.implode()).fill_null(value=False)
    return own.to_numpy(), list_names([repr(level) for level in levels], 3)
