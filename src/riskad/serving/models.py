"""The model in use: loaded from its file, and replaced when the file changes."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from riskad.app.describe import describe_model
from riskad.app.model_files import ModelHeader, load, read_header
from riskad.app.online import RowScorer
from riskad.app.report.documents import make_card, to_json
from riskad.core.checks import InputError

__all__ = ["ModelFile", "ServedModel"]

Seen: TypeAlias = tuple[int, int, int]
_LOOK_SECONDS = 1.0


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A loaded model; requests keep the one that they began with."""

    name: str
    header: ModelHeader
    scorer: RowScorer
    loaded: datetime = field(default_factory=lambda: datetime.now(UTC))
    order: float = field(default_factory=time.monotonic)
    """Larger than that of the models before it, even if the clock was put back."""

    @classmethod
    def load(cls, path: Path) -> ServedModel:
        """Load a model file, which must be of a model that reads tables."""
        return cls(path.name, read_header(path), RowScorer(load(path)))

    @property
    def version(self) -> str:
        """The first twelve digits of the checksum of the file's content."""
        return self.header.checksum[:12]

    @cached_property
    def description(self) -> dict[str, Any]:
        """The output of `riskad inspect`, the card, and the columns that rows must have."""
        report = describe_model(self.scorer.model, self.header)
        kinds = self.scorer.preparer.kinds_
        return {
            "model_version": self.version,
            "file": self.name,
            "loaded": self.loaded.isoformat(timespec="seconds"),
            "columns": {name: kinds[name] for name in self.scorer.columns},
            "card": make_card(report, self.name),
            "report": json.loads(to_json(report)),
        }


class ModelFile:
    """A model file that is checked every second, and the model in use.

    If a new file cannot be used, the old model stays; `error` says why, until the file changes
    again.

    Parameters
    ----------
    path
        The model file.
    warm_up
        Called with a new model before it answers.
    taken_over
        Called with a new model, or the reason why there is none, after each check that found a
        changed file.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        warm_up: Callable[[ServedModel], object] = lambda _: None,
        taken_over: Callable[[ServedModel | str], object] = lambda _: None,
    ):
        self.path = Path(path)
        self._warm_up, self._taken_over = warm_up, taken_over
        self._seen = _look(self.path)
        self.current = ServedModel.load(self.path)
        self.error = ""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="riskad-reload", daemon=True)

    def watch(self) -> None:
        """Start checking the file."""
        self._thread.start()

    def close(self) -> None:
        """Stop checking."""
        self._ending.set()

    def _watch(self) -> None:
        while not self._ending.wait(_LOOK_SECONDS):
            self.look()

    def look(self) -> None:
        """Switch to another model if the file has changed."""
        seen = _look(self.path)
        if seen == self._seen:
            return
        self._seen = seen
        found = self._loaded()
        if _look(self.path) != seen:
            return  # it is being written: the next look sees it whole
        if isinstance(found, ServedModel):
            self.current, self.error = found, ""
        else:
            self.error = found
        self._taken_over(found)

    def _loaded(self) -> ServedModel | str:
        """The model of the file, ready to score; or the reason why there is none."""
        try:
            model = ServedModel.load(self.path)
            self._warm_up(model)
            return model
        except InputError as error:
            return str(error)
        except Exception as error:  # whatever is wrong with the new one, the old one goes on
            return f"{self.path.name!r} cannot be used: {type(error).__name__}: {error}"


def _look(path: Path) -> Seen | None:
    """What distinguishes a file from the one that was there before."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
