"""Columns that a model does not learn from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from riskad.storage.fields import TEXT, Fields
from riskad.tables.prepared.base import PreparedColumn

__all__ = ["LeftOut"]


@dataclass(frozen=True)
class LeftOut(PreparedColumn):
    """A column without information, or one that names the rows, and why it is left out."""

    why: str = ""

    used = False

    _state_fields: ClassVar[Fields] = {"why": TEXT}

    def made_of_it(self) -> str:
        """Say that it is left out."""
        return f"left out: {self.why}"

    def notes(self) -> list[str]:
        """Say why it is left out."""
        return [f"left out {self.name!r}: {self.why}", *super().notes()]
