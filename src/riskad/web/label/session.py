"""A table that is being labelled: its rows, the answers, the fits, and the next rows."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.app.journal import Answer, Journal, apply_labels, table_codes
from riskad.app.model_files import load
from riskad.app.results import earlier_results, pick_features, steps_of
from riskad.app.spec import FitSpec
from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, Codes
from riskad.tables.cells import to_text
from riskad.tables.csv_reading import CsvFormat
from riskad.tables.labelled import LabelColumn
from riskad.tables.writing import write_table
from riskad.web.label.cards import Card, Cards
from riskad.web.label.fitting import History, Ranking, Worker
from riskad.web.label.upcoming import Upcoming
from riskad.web.label.work import Found, Task, suggested, unsupervised

_START_ROWS = 4_000  # from which columns are learned and first scores come, before the first page
_POOL = 10_000  # rows that a fit learns from and scores
_FEWEST_NEW = 5  # answers after which a fit starts
_SHARE_NEW = 0.1  # of all labels, where these are more
_FEWEST_OF_KIND = 1
_CODES = {"normal": NORMAL, "anomaly": ANOMALY}
_WORDS = {code: word for word, code in _CODES.items()}
_SHOWN = 60  # letters of the cells of neighbours and lists
_LISTED = 50
_AHEAD = 40  # rows that are made ready before they are asked for


class Conflict(Exception):
    """A person has answered the row meanwhile, in another tab."""


@dataclass(frozen=True)
class Options:
    """Options of a table that is to be labelled, as in `riskad.fit_table`.

    `labels` are those of the table, if any; `budget` are the seconds of a fit, and `pool` the rows
    that fits use: all of them, or a random sample. A labelled table is exported as `csv` says.
    """

    labels: LabelColumn | None = None
    id: str | None = None
    drop: Sequence[str] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    group: str | None = None
    model: str | None = None
    who: str = ""
    budget: float = 20.0
    pool: int = _POOL
    seed: int = 0
    csv: CsvFormat = field(default_factory=CsvFormat)


class Session:
    """A table that is being labelled."""

    def __init__(
        self, frame: pl.DataFrame, journal: str | Path, options: Options, source: str = "table"
    ):
        if not frame.height:
            raise InputError("The table has a header but no rows.")
        self.source, self.options, self.whole = source, options, frame
        self.who = options.who or _user()
        self._lock = RLock()  # answers, and rows that are handed out: held for moments
        self._fit_lock = RLock()  # starting and taking over fits: held while a process is started
        self.codes, label = table_codes(frame, options.labels)
        known = np.flatnonzero(self.codes != UNLABELLED)
        self._in_table = {int(i) + 1: _WORDS[int(self.codes[i])] for i in known}
        self.frame = frame.drop([label] if label in frame.columns else [])
        earlier = earlier_results(self.frame.columns)
        spec = FitSpec(id=options.id, drop=tuple(options.drop), group=options.group)
        self.features = pick_features(self.frame.columns, None, spec, earlier)
        if options.model is not None:
            self._check_model(options.model)
        hashed = [name for name in self.frame.columns if name not in earlier]
        self.journal = Journal(journal, source, hashed, frame.height)
        told = (str(self.journal.locate(frame)), self.journal.skipped())
        self.said = [text for text in told if text]
        self.history, self.upcoming = History(), Upcoming(frame.height, options.seed)
        self.worker: Worker | None = None
        self.fitting: Worker | None = None
        self._pool = self._draw(options.pool)
        self._fitted_labels: dict[int, str] = {}
        self._fits = 0
        self._behind = ThreadPoolExecutor(1)  # what nobody waits for: rows made ready, fits started
        self._begin()

    # --- beginning ------------------------------------------------------------------------

    def _check_model(self, model: str) -> None:
        """Refuse a model of other columns, before anybody waits for its scores."""
        preparer, _ = steps_of(load(model))
        lost = [name for name in preparer.read_columns if name not in self.features]
        if lost:
            raise InputError(
                f"The model {Path(model).name!r} reads a column {lost[0]!r}, which "
                "the table lacks or which was left out. Give a model of this table, or none."
            )

    def _draw(self, n: int) -> NDArray[np.int64]:
        """Numbers of random rows, in order; all if there are no more."""
        rows = np.arange(1, self.frame.height + 1)
        if n >= len(rows):
            return rows
        drawn = np.random.default_rng(self.options.seed).choice(len(rows), n, replace=False)
        return np.sort(rows[drawn])

    def _begin(self) -> None:
        """Learn the columns and rank some rows without labels, so that there is a first row."""
        options, rows = self.options, self._draw(_START_ROWS)
        frame = self.frame.select(self.features)[rows - 1]
        model, parsed = unsupervised(frame, dict(options.kinds), options.group, options.seed)
        self.cards = Cards(self.frame, model[0], parsed, options.id, self.journal.columns)
        codes = self._codes_of(rows)
        found, scores = suggested(model, frame, codes, 30, options.seed)
        first = Found(
            "outliers",
            [] if found is None else [int(rows[place]) for place in found.rows],
            [] if found is None else list(found.reasons),
            float(model[1]._anomaly_threshold),
            0,
            [],
        )
        self.ranking = Ranking(first, rows, scores, None)
        self.upcoming.take_over(self.ranking)
        self.cards.of(self.upcoming.soon(_AHEAD))
        self._try_to_fit()

    # --- labels ---------------------------------------------------------------------------

    def labels(self) -> dict[int, str]:
        """Return the label of each row that has one; answers override the table."""
        found = self._in_table | self.journal.labels()
        for row in self.journal.disputes():
            found.pop(row, None)
        return found

    def _codes_of(self, rows: NDArray[np.int64]) -> Codes:
        labels = self.labels()
        codes = [_CODES.get(labels.get(int(row), ""), UNLABELLED) for row in rows]
        return np.array(codes, dtype=np.int16)

    def counts(self) -> dict[str, int]:
        """Return how many rows have each label, how many people were unsure of, and the rest."""
        found = list(self.labels().values())
        counted = {kind: found.count(kind) for kind in _CODES}
        rest = self.frame.height - len(found)
        return counted | {"unsure": len(self.journal.unsure), "unlabelled": rest}

    def _own(self, row: int, who: str) -> str:
        answers = self.journal.answers.get(row)
        own = None if answers is None else answers.by_person.get(who)
        return "" if own is None else own.label

    def answer(
        self, row: int, label: str, source: str, who: str, before: str, note: str = ""
    ) -> dict[str, Any]:
        """Store an answer; when this returns, it is on the disk.

        `before` is this person's earlier answer according to the page, "" for none: if there is
        another one meanwhile, a `Conflict` is raised.
        """
        (card,) = self.cards.of([self._checked(row)])
        with self._lock:
            self.journal.refresh()
            if self._own(row, who) != before:
                raise Conflict(self._own(row, who))
            self.journal.add(Answer(row, card.hash, label, source, who, note=note))
        self._behind.submit(self._fit_if_due)
        return {"saved": row, "counts": self.counts()}

    def _checked(self, row: int) -> int:
        if not 1 <= row <= self.frame.height:
            raise InputError(
                f"There is no row {row:,}: the table has rows 1 to {self.frame.height:,}."
            )
        return row

    # --- fits -----------------------------------------------------------------------------

    def _fit_if_due(self) -> None:
        with self._fit_lock:
            labels = self.labels()
            changed = len(labels.items() ^ self._fitted_labels.items())
            due = changed >= max(_FEWEST_NEW, _SHARE_NEW * len(labels))
            if due and self.fitting is None:
                self._try_to_fit()

    def _try_to_fit(self) -> None:
        """Start a fit; if that fails (a full disk), people are told and can continue."""
        try:
            self.fit()
        except OSError as error:
            self._remark(f"A fit could not be started: {error.strerror or error}.")

    def _remark(self, said: str) -> None:
        """Tell people something, once."""
        self.said = [*(each for each in self.said if each != said), said]

    def fit(self) -> bool:
        """Start a fit in the background, if none is running; return whether it was started."""
        with self._fit_lock:
            if self.fitting is not None:
                return False
            labels = self.labels()
            rows = np.union1d(self._pool, np.array(sorted(labels), dtype=np.int64))
            codes = self._codes_of(rows)
            how = self._how(labels)
            if how == "outliers" and self.worker is not None and self.worker.task.how == how:
                return False  # it would find the same
            options = self.options
            model = options.model and os.path.abspath(options.model)
            settings = (dict(options.kinds), options.group, model, options.budget)
            task = Task(how, rows.tolist(), codes.tolist(), *settings, seed=options.seed)
            self._fitted_labels = labels
            frame = self.frame.select(self.features)[rows - 1]
            self.fitting = Worker(task, frame, self._heard)
            return True

    def _how(self, labels: Mapping[int, str]) -> str:
        """The kind of fit that the labels allow: a model needs both kinds."""
        if self.options.model is not None and self.worker is None:
            return "model"
        found = list(labels.values())
        fewest = min(found.count("normal"), found.count("anomaly"))
        return "labels" if fewest >= _FEWEST_OF_KIND else "outliers"

    def _heard(self, worker: Worker) -> None:
        with self._fit_lock:
            if worker is not self.fitting or worker.running:
                return
            self.fitting = None
            if worker.ranking is None:
                self._remark(f"A fit failed: {worker.failed}")
                worker.close()
                return
            old, self.worker = self.worker, worker
            self._fits += 1
            self.ranking = worker.ranking
            if self.ranking.found.how != "outliers":
                self.history.add(self.ranking.found.labelled, self.ranking.worst(100))
            with self._lock:
                self.upcoming.take_over(self.ranking)
        if old is not None:
            old.close()
        self.cards.of(self.upcoming.soon(_AHEAD))
        self._fit_if_due()

    def close(self) -> None:
        """End the processes."""
        self._behind.shutdown(cancel_futures=True)
        for worker in (self.worker, self.fitting):
            if worker is not None:
                worker.close()

    # --- what the page shows --------------------------------------------------------------

    def next(self, tab: str, who: str, n: int) -> list[dict[str, Any]]:
        """Return the rows to judge next, for one tab."""

        def judged(row: int) -> bool:
            answers = self.journal.answers.get(row)
            if answers is None:
                return bool(self.codes[row - 1] != UNLABELLED)
            return bool(answers.label or answers.disputed or self._own(row, who))

        with self._lock:
            found = list(self.upcoming.next(tab, n, judged))
            soon = self.upcoming.soon(_AHEAD)
        cards, labels = self.cards.of([row for row, _, _ in found]), self.labels()
        if not all(map(self.cards.ready, soon[: _AHEAD // 2])):  # many are made as fast as one
            self._behind.submit(self.cards.of, soon)
        return [
            self._shown(card, who, labels) | {"kind": kind, "source": source}
            for card, (_, kind, source) in zip(cards, found, strict=True)
        ]

    def leave(self, tab: str) -> None:
        """Release the rows that a tab was given."""
        with self._lock:
            self.upcoming.give_back(tab)

    def card(self, row: int, who: str) -> dict[str, Any]:
        """Return a requested row."""
        (card,) = self.cards.of([self._checked(row)])
        if self.worker is not None:
            self.worker.ask(row, self.frame.select(self.features)[[row - 1]])
        return self._shown(card, who, self.labels()) | {"kind": "", "source": "chosen"}

    def _shown(self, card: Card, who: str, labels: Mapping[int, str]) -> dict[str, Any]:
        answers = self.journal.answers.get(card.row)
        said = [] if answers is None else answers.said
        mine = None if answers is None else answers.by_person.get(who)
        reasons = self.ranking.reasons.get(card.row)
        return {
            "row": card.row,
            "id": card.id,
            "cells": card.cells,
            "label": labels.get(card.row, ""),
            "mine": "" if mine is None else mine.label,
            "note": "" if mine is None else mine.note,
            "said": [
                {"who": a.who, "label": a.label, "when": a.when, "note": a.note} for a in said
            ],
            "disputed": answers is not None and answers.disputed,
            "reasons": None if reasons is None else reasons["adds"],
            "near": {kind: self._near(card, kind, labels) for kind in _CODES},
            **self.ranking.of(card.row),
        }

    def _near(self, card: Card, kind: str, labels: Mapping[int, str]) -> list[dict[str, Any]]:
        rows = [row for row, label in labels.items() if label == kind][-500:]
        near = self.cards.nearest(card, rows)
        cells = [{c["column"]: (c["text"] or "")[:_SHOWN] for c in each.cells} for each in near]
        both = zip(near, cells, strict=True)
        return [{"row": each.row, "id": each.id, "cells": its} for each, its in both]

    def state(self, who: str) -> dict[str, Any]:
        """Return everything that the page shows next to a row."""
        self.journal.refresh()
        found, worker = self.ranking.found, self.fitting
        return {
            "source": self.source,
            "rows": self.frame.height,
            "pool": len(self.ranking.places),
            "counts": self.counts(),
            "answers": sum(a.who == who for a in self.journal.log),
            "disputes": self.journal.disputes()[:_LISTED],
            "journal": self.journal.path.name,
            "said": self.said,
            "fits": self._fits,
            "progress": "" if worker is None else worker.progress,
            "hint": self.history.hint(),
            "model": {k: v for k, v in vars(found).items() if k not in ("rows", "kinds")},
        }

    def listed(self, query: str, order: str, offset: int, who: str) -> dict[str, Any]:
        """Return rows that contain a text, or all, by score or by number: at most 50 of them."""
        labels = self.labels()
        if query:
            rows = self._holding(query)
        elif order == "labelled":
            rows = sorted({*labels, *self.journal.answers})
        elif order == "row":
            rows = list(range(1, min(self.frame.height, offset + _LISTED) + 1))
        else:
            rows = self.ranking.worst(offset + _LISTED)
        if query and order == "score":
            rows = sorted(rows, key=self._rank)
        shown = rows[offset : offset + _LISTED]
        cards = self.cards.of(shown)
        listed = []
        for card in cards:
            # The first cells in a line; the name of the row is shown next to it.
            cells = [c for c in card.cells if c["text"] and c["column"] != self.options.id]
            text = "; ".join(f"{c['column']} {c['text']}"[:_SHOWN] for c in cells[:4])
            about = {"row": card.row, "id": card.id, "label": labels.get(card.row, "")}
            about |= {"mine": self._own(card.row, who), "text": text}
            listed.append(about | self.ranking.of(card.row))
        return {"rows": listed, "more": len(shown) == _LISTED}

    def _rank(self, row: int) -> float:
        """By which rows are sorted: the highest score first, those without one last."""
        score = self.ranking.of(row)["score"]
        return np.inf if score is None else -score

    def _holding(self, query: str, most: int = 500) -> list[int]:
        """Numbers of rows with a text in some cell, ignoring case, or with this number."""
        wanted = query.lower()
        found: list[int] = []
        if query.isdecimal() and 1 <= int(query) <= self.frame.height:
            found.append(int(query))
        for start in range(0, self.frame.height, 100_000):
            part = self.frame[start : start + 100_000]
            part = part.with_columns(
                to_text(part[name]).str.to_lowercase() for name in part.columns
            )
            holds = pl.any_horizontal(
                [pl.col(n).str.contains(wanted, literal=True) for n in part.columns]
            )
            places = part.select(holds.fill_null(False).arg_true()).to_series().to_list()
            found += [start + place + 1 for place in places]
            if len(found) >= most:
                break
        return list(dict.fromkeys(found))[:most]

    def export(self) -> bytes:
        """Return the table with its labels, as a CSV without cells that spreadsheets execute."""
        applied = apply_labels(self.whole, self.journal, self.options.labels)
        with TemporaryDirectory() as folder:
            path = Path(folder, "labelled.csv")
            write_table(applied.frame, path, csv=self.options.csv)
            return path.read_bytes()


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "somebody"
