"""The model in use: loaded from its file, and replaced when the file changes."""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from riskad.app.describe import describe_model
from riskad.app.model_files import ModelHeader, load_with_header
from riskad.app.report.documents import make_card, to_json
from riskad.core.checks import InputError
from riskad.tables.harmless import HarmlessRules
from riskad.web.guard import LOG, to_line
from riskad.web.serve.scoring import RowScorer
from riskad.web.serve.window import Window

_LOOK_SECONDS = 1.0  # a model takes longer to load, and a look takes microseconds


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A loaded model; requests keep the one that they began with."""

    name: str
    header: ModelHeader
    scorer: RowScorer
    window: Window
    loaded: datetime = field(default_factory=lambda: datetime.now(UTC))

    @classmethod
    def load(
        cls, path: Path, state: Path | None = None, harmless: HarmlessRules | None = None
    ) -> ServedModel:
        """Load a model file, which must be of a model that reads tables."""
        model, header = load_with_header(path)
        scorer = RowScorer(model, state, harmless)
        return cls(path.name, header, scorer, Window(scorer))

    @cached_property
    def version(self) -> str:
        """The first twelve digits of the checksum of the file's content."""
        return self.header.checksum[:12]

    @cached_property
    def description(self) -> dict[str, Any]:
        """The output of `riskad inspect`, the card, and the columns that rows must have."""
        report = describe_model(self.scorer.model, self.header)
        kinds = self.scorer.kinds
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
    again. Models are warmed up by the executor that scores.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        scoring: Executor,
        state: Path | None = None,
        harmless: HarmlessRules | None = None,
    ):
        self.path, self._scoring, self._options = Path(path), scoring, (state, harmless)
        self._seen = _look(self.path)
        self.current = self._load()
        self.error = ""
        self.reloads = {"taken": 0, "refused": 0}
        self._ending = threading.Event()
        threading.Thread(target=self._watch, name="riskad-reload", daemon=True).start()

    def close(self) -> None:
        """Stop checking."""
        self._ending.set()

    def _load(self) -> ServedModel:
        model = ServedModel.load(self.path, *self._options)
        self._scoring.submit(model.scorer.warm_up).result()
        return model

    def _watch(self) -> None:
        while not self._ending.wait(_LOOK_SECONDS):
            self.look()

    def look(self) -> None:
        """Switch to another model if the file has changed."""
        state = _look(self.path)
        if state == self._seen:
            return
        self._seen, model, error = state, None, ""
        try:
            model = self._load()
        except InputError as mistake:
            error = str(mistake)
        except Exception as mistake:  # whatever is wrong with the new one, the old one goes on
            error = f"{self.path.name!r} cannot be used: {type(mistake).__name__}: {mistake}"
        if _look(self.path) != state:
            return  # it is being written: the next look sees it whole
        self.error = error
        if model is not None and not error:
            self.current = model
            self.reloads["taken"] += 1
            LOG.info("%s", to_line(event="model taken over", version=model.version))
        else:
            self.reloads["refused"] += 1
            LOG.warning("%s", to_line(event="model refused", reason=error))


def _look(path: Path) -> tuple[int, int, int] | None:
    """What distinguishes a file from the one that was there before."""
    try:
        file = os.stat(path)
    except OSError:
        return None
    return file.st_mtime_ns, file.st_size, file.st_ino
