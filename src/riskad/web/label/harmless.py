"""The known harmless on the page: a rule from a row, what it would hide, and the file of rules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from threading import Lock

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.core.checks import InputError
from riskad.tables.harmless import HarmlessRule, HarmlessRules, add_rule, propose_condition
from riskad.tables.preparation import TablePreparer

_REASONS = 2  # columns of a proposed condition
_DAYS = 90  # for which a proposed rule holds
_BATCH = 100_000


def rules_beside(journal: str | Path) -> Path:
    """Return the file of rules that belongs to a journal.

    >>> rules_beside("cards.csv.labels.jsonl").name
    'cards.csv.harmless.toml'
    """
    path = Path(journal)
    name = path.name.removesuffix(".jsonl").removesuffix(".labels")
    return path.with_name(f"{name}.harmless.toml")


class HarmlessFile:
    """The rules of a file, which need not exist, and the rows of a table that they match."""

    def __init__(self, path: Path, frame: pl.DataFrame, preparer: TablePreparer):
        self.path, self.frame, self.preparer = path, frame, preparer
        self._lock = Lock()  # two people may add a rule at once
        self._use(HarmlessRules.read(path) if path.exists() else HarmlessRules((), path.name))

    def _use(self, rules: HarmlessRules) -> None:
        rules.check(self.preparer, self.frame)
        self.numbers = self._match(rules)
        self.rules = rules

    def _match(self, rules: HarmlessRules) -> NDArray[np.intp]:
        if not rules.rules:
            return np.full(self.frame.height, -1)
        batches = range(0, self.frame.height, _BATCH)  # typed values of all rows take much memory
        return np.concatenate(
            [rules.match(self.preparer, self.frame[start : start + _BATCH]) for start in batches]
        )

    def of(self, row: int) -> str:
        """Return the name of the rule that matches a row; blank if none does."""
        number = self.numbers[row - 1]
        return "" if number < 0 else self.rules.rules[number].name

    def propose(self, row: int, columns: Sequence[str]) -> dict[str, str]:
        """Return a rule for rows that are like one of them in the first of some columns."""
        used = {column.name for column in self.preparer.used()}
        first = [name for name in columns if name in used][:_REASONS]
        where = propose_condition(self.preparer, self.frame[[row - 1]], first)
        until = datetime.now(UTC).date() + timedelta(days=_DAYS)
        return {"where": where, "name": f"as row {row:,}", "until": until.isoformat()}

    def matching(self, where: str) -> NDArray[np.bool_]:
        """Return which rows a condition matches that no rule hides yet."""
        rule = HarmlessRule("new", where, "not yet known", "nobody", date.max)
        rules = HarmlessRules((rule,), self.path.name)
        rules.check(self.preparer, self.frame)
        matching = self._match(rules) == 0
        rules.check_not_all(rule, int(matching.sum()), len(matching))
        return matching & (self.numbers < 0)

    def add(self, rule: HarmlessRule) -> None:
        """Write a rule to the file; when this returns, it is on the disk."""
        if rule.expired:
            raise InputError(f"until='{rule.until}' is over; give a day to come.")
        self.matching(rule.where)  # refuses what the file would be refused for
        with self._lock:
            self._use(add_rule(self.path, rule))
