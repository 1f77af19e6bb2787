"""A table that is being labelled: its rows, the answers, the fits, and the next rows."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.app.journal import Answer, Journal, RowAnswers, apply_labels, table_codes
from riskad.app.model_files import load
from riskad.app.score import earlier_results, pick_features, steps_of
from riskad.app.spec import FitSpec
from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, Codes
from riskad.tables.cells import to_text
from riskad.tables.csv_reading import CsvFormat
from riskad.tables.harmless import LIKELY, HarmlessRule
from riskad.tables.labelled import LabelColumn
from riskad.tables.writing import write_table
from riskad.web.label.cards import Card, Cards
from riskad.web.label.fit_process import FitResult, Task, fit_outliers, suggest
from riskad.web.label.fits import TOP, Ranking, Worker, hint_to_stop
from riskad.web.label.harmless import HarmlessFile, rules_beside
from riskad.web.label.row_queue import RowQueue
from riskad.web.label.series_view import SeriesView

_START_ROWS = 4_000  # from which columns are learned and first scores come, before the first page
_FIRST_ROWS = 30  # enough to judge until the first fit is there
_POOL = 10_000  # rows that a fit learns from and scores
_FEWEST_NEW = 5  # answers after which a fit starts
_SHARE_NEW = 0.1  # of all labels, where these are more
_CODES = {"normal": NORMAL, "anomaly": ANOMALY}
_WORDS = {code: word for word, code in _CODES.items()}
_LETTERS = 60  # of the cells of neighbours and lists
_COMPARED = 500  # newest labelled rows of a kind, among which the nearest are looked for
_MOST_MATCHES = 500
_PAGE = 50  # rows of a list
_UNANSWERED = RowAnswers()


@dataclass(frozen=True)
class Options:
    """Options of a table that is to be labelled, as in `riskad.fit_table`.

    `labels` are those of the table, if any; `budget` are the seconds of a fit, and `pool` the rows
    that fits use: all of them, or a random sample. A labelled table is exported as `csv` says.
    Rules of the known harmless are in the file `harmless`, by default one beside the journal.
    `cut` holds `time`, `window` and `step` if rows are points of time series.
    """

    labels: LabelColumn | None = None
    id: str | None = None
    drop: Sequence[str] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    group: str | None = None
    cut: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None
    harmless: str | None = None
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
        self.who = options.who
        if not self.who:
            try:
                self.who = getpass.getuser()
            except (OSError, KeyError, ImportError):
                self.who = "somebody"
        # Two locks: nobody who answers a row waits for a process to start.
        self._lock = RLock()  # for answers and the queue of rows
        self._fit_lock = RLock()  # for starting fits and using their results
        codes, label = table_codes(frame, options.labels)
        self._in_table = {int(i) + 1: _WORDS[int(codes[i])] for i in np.flatnonzero(codes)}
        self.frame = frame.drop([label] if label in frame.columns else [])
        earlier = earlier_results(self.frame.columns)
        spec = FitSpec(id=options.id, drop=tuple(options.drop), group=options.group)
        self.features = pick_features(self.frame.columns, None, spec, earlier)
        if options.model is not None:
            self._check_model(options.model)
        hashed = [name for name in self.frame.columns if name not in earlier]
        self.journal = Journal(journal, source, hashed, frame.height)
        self.notes = self.journal.locate(frame)
        self._top_rows: list[tuple[int, frozenset[int]]] = []  # of each fit, and its labels
        self.queue = RowQueue(frame.height, options.seed, lambda row: self.harmless.of(row))
        self.worker: Worker | None = None  # of the ranking in use, for reasons
        self.next_worker: Worker | None = None  # of the fit that is running
        # A window needs all of its points.
        self._pool = self._draw(frame.height if options.cut else options.pool)
        self._fitted_labels: dict[int, str] = {}
        self._looked_again: dict[int, str] = {}  # what rows were labelled that looked wrong
        self._fits = 0
        self._behind = ThreadPoolExecutor(1)  # for fits, so that nobody waits until one is started
        self._rank_without_labels()

    def _check_model(self, model: str) -> None:
        """Refuse a model of other columns, before anybody waits for its scores."""
        preparer, _ = steps_of(load(model))
        windower = getattr(preparer, "windower_", None)
        if (windower is None) == bool(self.options.cut):
            what = "rows, so leave out" if windower is None else "windows, so give"
            raise InputError(f"The model {Path(model).name!r} is one of {what} window and time.")
        reads = (preparer if windower is None else windower.reader).read_columns
        lost = [name for name in reads if name not in self.features]
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

    def _rank_without_labels(self) -> None:
        """Learn the columns and rank some rows, so that there is a first row; then start a fit."""
        options, rows = self.options, self._draw(_START_ROWS)
        frame = self.frame.select(self.features)[rows - 1]
        model, parsed = fit_outliers(frame, dict(options.kinds), options.group, options.seed)
        name = options.id or options.cut.get("time")
        self.cards = Cards(self.frame, model[0], parsed, name, self.journal.columns)
        path = Path(options.harmless or rules_beside(self.journal.path))
        self.harmless = HarmlessFile(path, self.frame.select(self.features), model[0])
        self.series = None
        if options.cut:
            self.series = SeriesView(self.frame, options.cut, options.group, model[0])
        codes = self.codes_of(rows)
        suggestions, scores = suggest(model, frame, codes, _FIRST_ROWS, options.seed)
        threshold = float(model[1]._anomaly_threshold)
        result = FitResult("outliers", [], [], threshold, labelled=0, notes=[])
        if suggestions is not None:
            result.rows.extend(int(rows[place]) for place in suggestions.rows)
            result.kinds.extend(suggestions.reasons)
        self.ranking = Ranking(result, rows, scores, None)
        self.queue.refill(self.ranking)
        self._try_to_fit()

    # --- labels ---------------------------------------------------------------------------

    def labels(self) -> dict[int, str]:
        """Return the label of each row that has one; answers override the table."""
        labels = self._in_table | self.journal.labels()
        for row in self.journal.disputes():
            labels.pop(row, None)
        return labels

    def codes_of(self, rows: Iterable[int]) -> Codes:
        """Return the codes of rows, counted from 1."""
        labels = self.labels()
        codes = [_CODES.get(labels.get(int(row), ""), UNLABELLED) for row in rows]
        return np.array(codes, dtype=np.int16)

    def counts(self) -> dict[str, int]:
        """Return how many rows have each label, how many people were unsure of, and the rest."""
        labels = list(self.labels().values())
        rest = {"unsure": len(self.journal.unsure), "unlabelled": self.frame.height - len(labels)}
        return {kind: labels.count(kind) for kind in _CODES} | rest

    def _own(self, row: int, who: str) -> str:
        own = self.journal.answers.get(row, _UNANSWERED).by_person.get(who)
        return "" if own is None else own.label

    def answer(
        self,
        row: int,
        label: str,
        source: str,
        who: str,
        before: str,
        note: str = "",
        others: Sequence[int] = (),
    ) -> dict[str, Any]:
        """Store an answer; when this returns, it is on the disk.

        `before` is this person's earlier answer according to the page, "" for none: if another tab
        gave another one meanwhile, the answer is refused. `others` are rows of the same stretch of
        a series, which get the same answer.
        """
        card, *stretch = self._cards_of([row, *others])
        with self._lock:
            self.journal.refresh()
            if (own := self._own(row, who)) != before:
                other = f"gave “{own}”" if own else "took your answer back"
                raise InputError(f"In another tab you {other}. Answer again here to change it.")
            of_others = [Answer(each.row, each.hash, label, "chosen", who) for each in stretch]
            self.journal.add(Answer(row, card.hash, label, source, who, note=note), *of_others)
            if (doubt := self.ranking.doubtful.get(row)) is not None:
                self._looked_again[row] = doubt["label"]
        self._behind.submit(self._fit_if_due)
        return {"saved": row, "counts": self.counts()}

    def _cards_of(self, rows: Sequence[int]) -> list[Card]:
        for row in rows:
            if not 1 <= row <= self.frame.height:
                raise InputError(
                    f"There is no row {row:,}: the table has rows 1 to {self.frame.height:,}."
                )
        return self.cards.of(rows)

    # --- fits -----------------------------------------------------------------------------

    def _fit_if_due(self) -> None:
        with self._fit_lock:
            labels = self.labels()
            changed = len(labels.items() ^ self._fitted_labels.items())
            due = changed >= max(_FEWEST_NEW, _SHARE_NEW * len(labels))
            if due:
                self._try_to_fit()

    def _try_to_fit(self) -> None:
        """Start a fit; if that fails (a full disk), people read why and can continue."""
        try:
            self.fit()
        except OSError as error:
            self._add_note(f"A fit could not be started: {error.strerror or error}.")

    def _add_note(self, text: str) -> None:
        """Show people a note, once."""
        self.notes = [*(note for note in self.notes if note != text), text]

    def fit(self) -> bool:
        """Start a fit in the background, if none is running; return whether it was started."""
        with self._fit_lock:
            if self.next_worker is not None:
                return False
            labels = self.labels()
            rows = np.union1d(self._pool, np.array(sorted(labels), dtype=np.int64))
            codes = self.codes_of(rows)
            # A model needs both kinds.
            how = "labels" if set(_CODES) <= set(labels.values()) else "outliers"
            if self.options.model is not None and self.worker is None:
                how = "model"
            if how == "outliers" and self.worker is not None and self.worker.task.how == how:
                return False  # it would find the same
            options = self.options
            task = Task(
                how,
                rows.tolist(),
                codes.tolist(),
                kinds=dict(options.kinds),
                group=options.group,
                model=options.model and os.path.abspath(options.model),
                budget=options.budget,
                seed=options.seed,
                cut=dict(options.cut),
            )
            self._fitted_labels = labels
            frame = self.frame.select(self.features)[rows - 1]
            self.next_worker = Worker(task, frame, self._use_result)
            return True

    def _use_result(self, worker: Worker) -> None:
        """Let the ranking of a fit that has ended replace the one in use."""
        with self._fit_lock:
            if worker is not self.next_worker or worker.running:
                return
            self.next_worker = None
            if worker.ranking is None:
                self._add_note(f"A fit failed: {worker.failed}")
                worker.close()
                return
            old, self.worker = self.worker, worker
            self._fits += 1
            self.ranking = worker.ranking
            if self.ranking.result.how != "outliers":
                top = frozenset(self.ranking.worst(TOP))
                self._top_rows.append((self.ranking.result.labelled, top))
            with self._lock:
                self.queue.refill(self.ranking)
        if old is not None:
            old.close()
        self._fit_if_due()

    def close(self) -> None:
        """End the processes."""
        self._behind.shutdown(cancel_futures=True)
        for worker in (self.worker, self.next_worker):
            if worker is not None:
                worker.close()

    # --- what the page shows --------------------------------------------------------------

    def next(self, tab: str, who: str, n: int) -> list[dict[str, Any]]:
        """Return the rows to judge next, for one tab."""

        def is_judged(row: int) -> bool:
            answers = self.journal.answers.get(row)
            if answers is None:
                return row in self._in_table
            return bool(answers.label or answers.disputed or self._own(row, who))

        with self._lock:
            rows = list(self.queue.next(tab, n, is_judged))
        cards, labels = self.cards.of([row for row, _, _ in rows]), self.labels()
        return [
            self._describe(card, who, labels) | {"kind": kind, "source": source}
            for card, (_, kind, source) in zip(cards, rows, strict=True)
        ]

    def leave(self, tab: str) -> dict[str, bool]:
        """Release the rows that a tab has."""
        with self._lock:
            self.queue.release(tab)
        return {"left": True}

    def card(self, row: int, who: str) -> dict[str, Any]:
        """Return a requested row."""
        (card,) = self._cards_of([row])
        if self.worker is not None:
            self.worker.explain(row, self.frame.select(self.features)[[row - 1]])
        doubt = self.ranking.doubtful.get(row)
        # A row that was drawn at random still tells the anomaly rate when it is judged again.
        source = self.journal.answers.get(row, _UNANSWERED).source
        kind = "" if doubt is None else f"labelled {doubt['label']}, {doubt['why']}"
        described = self._describe(card, who, self.labels())
        return described | {"kind": kind, "source": source or "chosen"}

    def _describe(self, card: Card, who: str, labels: Mapping[int, str]) -> dict[str, Any]:
        answers = self.journal.answers.get(card.row, _UNANSWERED)
        mine = answers.by_person.get(who)
        reasons = self.ranking.reasons.get(card.row)
        return {
            "row": card.row,
            "id": card.id,
            "cells": card.cells,
            "label": labels.get(card.row, ""),
            "mine": "" if mine is None else mine.label,
            "note": "" if mine is None else mine.note,
            "answers": [{"who": a.who, "label": a.label, "note": a.note} for a in answers.standing],
            "disputed": answers.disputed,
            "harmless": self.harmless.of(card.row),
            "reasons": None if reasons is None else reasons["adds"],
            "near": {kind: self._near(card, kind, labels) for kind in _CODES},
            "series": None if self.series is None else self.series.around(card.row, labels),
            **self.ranking.of(card.row),
        }

    def _near(self, card: Card, kind: str, labels: Mapping[int, str]) -> list[dict[str, Any]]:
        rows = [row for row, label in labels.items() if label == kind][-_COMPARED:]
        return [
            {
                "row": each.row,
                "id": each.id,
                "cells": {c["column"]: (c["text"] or "")[:_LETTERS] for c in each.cells},
                "pictures": {c["column"]: c["picture"] for c in each.cells if "picture" in c},
            }
            for each in self.cards.nearest(card, rows)
        ]

    def look_again(self) -> list[dict[str, Any]]:
        """Return labels that look wrong and that nobody has judged again."""
        labels = self.labels()
        return [
            {"row": row, "percent": doubt["percent"]}
            for row, doubt in self.ranking.doubtful.items()
            if labels.get(row) == doubt["label"] != self._looked_again.get(row)
        ]

    # --- the known harmless ---------------------------------------------------------------

    def propose_rule(self, row: int) -> dict[str, str]:
        """Return a rule for rows like one, in the columns that say most against it."""
        (card,) = self._cards_of([row])
        reasons = self.ranking.reasons.get(row, {"adds": []})["adds"]
        columns = [reason["column"] for reason in reasons if reason["adds"] > 0]
        cells = sorted(card.cells, key=lambda cell: cell.get("rarity", 2.0))
        return self.harmless.propose(row, columns or [cell["column"] for cell in cells])

    def rule_effect(self, where: str, who: str) -> dict[str, Any]:
        """Return what a rule would hide: counts, and the rows with the highest scores."""
        ranking, labels = self.ranking, self.labels()
        matching = self.harmless.matching(where)
        rows = np.flatnonzero(matching) + 1
        scored = matching[ranking.places - 1]
        flagged = scored & (ranking.scores > ranking.result.threshold)
        p = np.zeros(len(scored)) if ranking.probabilities is None else ranking.probabilities
        words = [labels[row] for row in labels if matching[row - 1]]
        highest = ranking.places[ranking.order][scored[ranking.order]][:_PAGE]
        shown = list(dict.fromkeys([*highest.tolist(), *rows[:_PAGE].tolist()]))[:_PAGE]
        return {
            "rows": self.frame.height,
            "matching": len(rows),
            "scored": len(ranking.places),
            "flagged": int(flagged.sum()),
            "likely": int((p[flagged] > LIKELY).sum()),
            "labels": {kind: words.count(kind) for kind in _CODES},
            "lines": self._lines(shown, who),
        }

    def add_rule(self, rule: HarmlessRule) -> dict[str, Any]:
        """Save a rule; rows that it matches are suggested no more."""
        self.harmless.add(rule)
        return {"saved": rule.name, "file": self.harmless.path.name}

    def state(self, who: str) -> dict[str, Any]:
        """Return everything that the page shows next to a row."""
        self.journal.refresh()
        result, worker = self.ranking.result, self.next_worker
        return {
            "source": self.source,
            "rows": self.frame.height,
            "pool": len(self.ranking.places),
            "counts": self.counts(),
            "disputes": self.journal.disputes()[:_PAGE],
            "notes": [*self.notes, *self.harmless.rules.notes()],
            "doubtful": self.look_again(),
            "fits": self._fits,
            "progress": "" if worker is None else worker.progress,
            "hint": hint_to_stop(self._top_rows),
            "model": {k: v for k, v in vars(result).items() if k not in ("rows", "kinds")},
        }

    def list_rows(self, query: str, order: str, offset: int, who: str) -> dict[str, Any]:
        """Return rows that contain a text, or all, by score or by number: at most 50 of them."""
        labels = self.labels()
        if query:
            rows = self._search(query)
        elif order == "labelled":
            rows = sorted({*labels, *self.journal.answers})
        elif order == "row":
            rows = list(range(1, min(self.frame.height, offset + _PAGE) + 1))
        else:
            rows = self.ranking.worst(offset + _PAGE)
        if query and order == "score":
            scores = {row: self.ranking.of(row)["score"] for row in rows}
            # Those without a score come last.
            rows.sort(key=lambda row: np.inf if scores[row] is None else -scores[row])
        page = rows[offset : offset + _PAGE]
        return {"rows": self._lines(page, who), "more": len(page) == _PAGE}

    def _lines(self, rows: Sequence[int], who: str) -> list[dict[str, Any]]:
        labels, lines = self.labels(), []
        for card in self.cards.of(rows):
            # The first cells in a line; the name of the row is shown next to it.
            cells = [c for c in card.cells if c["text"] and c["column"] != self.options.id]
            text = "; ".join(f"{c['column']} {c['text']}"[:_LETTERS] for c in cells[:4])
            line = {"row": card.row, "id": card.id, "label": labels.get(card.row, "")}
            line |= {"mine": self._own(card.row, who), "text": text}
            lines.append(line | self.ranking.of(card.row))
        return lines

    def _search(self, query: str) -> list[int]:
        """Numbers of rows with a text in some cell, ignoring case, or with this number."""
        matches: list[int] = []
        if query.isdecimal() and 1 <= int(query) <= self.frame.height:
            matches.append(int(query))
        for start in range(0, self.frame.height, 100_000):  # texts of all rows take much memory
            part = self.frame[start : start + 100_000]
            part = part.with_columns(
                to_text(part[name]).str.to_lowercase() for name in part.columns
            )
            holds = pl.any_horizontal(pl.all().str.contains(query.lower(), literal=True))
            places = part.select(holds.fill_null(False).arg_true()).to_series().to_list()
            matches += [start + place + 1 for place in places]
            if len(matches) >= _MOST_MATCHES:
                break
        return list(dict.fromkeys(matches))[:_MOST_MATCHES]

    def export(self) -> bytes:
        """Return the table with its labels, as a CSV without cells that spreadsheets execute."""
        applied = apply_labels(self.whole, self.journal, self.options.labels)
        with TemporaryDirectory() as folder:
            path = Path(folder, "labelled.csv")
            write_table(applied.frame, path, csv=self.options.csv)
            return path.read_bytes()
