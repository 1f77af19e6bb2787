"""The main job, from a table to an answer: fit a detector on one, score another, say what happened.

The command line is a thin face on these functions; everything it prints is in the reports here.
"""

from __future__ import annotations

import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial, reduce
from importlib.util import find_spec
from itertools import accumulate, chain, zip_longest
from typing import Any, TypeAlias, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline, make_pipeline

import riskad
from riskad.app.anomaly_rate import check_labels, estimate_prior
from riskad.app.fit_notes import known_to_fit
from riskad.app.model_files import ModelHeader
from riskad.app.reasons import Reason, Reasons, explain_rows
from riskad.core.bounds import FittedBounds, fitted_bounds
from riskad.core.checks import DataWarning, InputError, enumerate_names, lookup
from riskad.core.label_parsing import parse_distinct, parse_labels
from riskad.core.labels import (
    ANOMALY,
    NORMAL,
    UNLABELLED,
    Codes,
    LabelCodes,
    LabelCounts,
    count_labels,
    read_codes,
)
from riskad.core.risks import get_risk
from riskad.decisions.anomaly_rate import PriorEstimate
from riskad.decisions.calibration import Calibration, cross_calibrate
from riskad.decisions.conformal import select_at_fdr
from riskad.decisions.drift import DriftReport, drift_report, remember_pile
from riskad.decisions.label_check import FEWEST_COMPARED, LabelCheck
from riskad.decisions.ranking_metrics import Auc, auc_with_interval
from riskad.decisions.suggest import Suggestion, suggest_rows
from riskad.decisions.thresholds import Threshold, TopK, parse_threshold
from riskad.detectors.auto import AutoRAD
from riskad.detectors.shallow import ShallowRAD
from riskad.rows.engine import Engine
from riskad.rows.parquet import ParquetRows, Paths, count_values, find_parquet, parquet_columns
from riskad.rows.parted import Part
from riskad.rows.source import Block
from riskad.tables.columns import check_columns, to_text
from riskad.tables.preparation import BLANK, Fold, NotAsInTraining, TablePreparer, yes_no_words
from riskad.tables.sketches import RowSample

__all__ = [
    "MODELS",
    "RESULT_COLUMNS",
    "SCORE_COLUMNS",
    "ColumnEffect",
    "ExplainReport",
    "ExplainedRow",
    "Fit",
    "FitReport",
    "Labels",
    "ModelReport",
    "PriorReport",
    "ScoreReport",
    "SuggestReport",
    "SuggestedRow",
    "Suspect",
    "TableDrift",
    "ThresholdReport",
    "bound_model",
    "change_threshold",
    "describe_model",
    "drift_table",
    "estimate_table_prior",
    "explain_table",
    "fit_files",
    "fit_table",
    "score_batches",
    "score_table",
    "suggest_table",
]

SCORE_COLUMNS = ("anomaly_score", "is_anomaly")
# What else scoring may add: where the model is calibrated, and with a false discovery rate. Reasons
# come after these.
RESULT_COLUMNS = (*SCORE_COLUMNS, "anomaly_probability", "p_value")

T = TypeVar("T")
Progress: TypeAlias = Callable[[str], object]
Words: TypeAlias = Mapping[str, tuple[str, str]]

_FEWEST_FOR_AUC = 3  # labelled rows of each kind; with fewer, an AUC is a coin toss
_FEW_ANOMALIES = 5  # labelled; below that a single one more or less changes the answer
_SURPRISE = 0.01  # p-value below which labelled rows are said to be unlike the pile
_EFFECT_ROWS = 1_000  # enough to see which columns move the score
_EXPLAIN_SECONDS = 30.0  # after which no further row is explained, unless it was asked for
_LATER = 0.25  # of the budget of a fit, that explaining it may take beyond
_SUSPICIOUS_ROWS = 20  # whose reasons are summed up where reasons take long
_IMPORTANCE_ROWS = 100  # fewer where reasons may have to be sampled
_CLEARLY = 0.75  # share of what a column changes that goes with high, or with low, values
# What is kept in memory of files that do not fit: rows of each kind, cells, ranked rows.
_KEPT_ROWS = 100_000
_FEWEST_KEPT = 4_096
_KEPT_CELLS = 1 << 23
_RANKED_ROWS = 10_000
_RESULT_COLUMN = re.compile("|".join((*RESULT_COLUMNS, r"reason(_\d+)?")))


# --- models ------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelKind:
    """A kind of detector that a table can be fitted with."""

    name: str
    """In `riskad`."""
    settings: frozenset[str]
    """Parameters that the command line sets, beside the seed that all have."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Where they are not the class's own."""
    library: str | None = None
    """Needed besides; comes with the extra."""
    extra: str = ""

    def build(self, settings: Mapping[str, Any]) -> Any:
        """The detector, unfitted."""
        return getattr(riskad, self.name)(**{**self.defaults, **settings})


_OF_RISKS = frozenset({"risk", "loss", "prior", "a"})
MODELS = {
    "auto": ModelKind("AutoRAD", frozenset({"budget"})),
    "shallow": ModelKind(
        "ShallowRAD",
        _OF_RISKS | {"lam", "penalty", "feature_map", "max_iter"},
        defaults={"lam": "cv"},
    ),
    "boosted": ModelKind("BoostedRAD", _OF_RISKS, library="lightgbm", extra="boost"),
    "deep": ModelKind("DeepRAD", _OF_RISKS, library="torch", extra="deep"),
}
"""By the names of `riskad fit --model`."""


def _make_detector(model: str, settings: Mapping[str, Any]) -> Any:
    """The detector to fit; what it cannot do is said before any work."""
    kind = lookup("model", model, MODELS)
    if kind.library is not None and find_spec(kind.library) is None:
        raise InputError(
            f"The model {model} needs {kind.library}, which is not installed: "
            f"pip install 'riskad[{kind.extra}]'. Or take another: --model auto."
        )
    for name in settings:
        others = [other for other in MODELS if name in MODELS[other].settings]
        if others and model not in others:
            raise InputError(
                f"The model {model} has no setting {name!r}; {' and '.join(others)} "
                f"{'have' if len(others) > 1 else 'has'} one: add --model {others[0]}."
            )
    try:
        return kind.build(settings)
    except TypeError as error:
        raise InputError(f"The settings do not fit the model {model}: {error}.") from error


# --- what is given and what is reported --------------------------------------------------


@dataclass(frozen=True)
class Labels:
    """Which column holds the labels and what its values mean; blank is always unlabelled."""

    column: str
    normal: Sequence[str] = ()
    anomaly: Sequence[str] = ()
    unlabelled: Sequence[str] = ()
    others: str = "raise"


@dataclass(frozen=True)
class Suspect:
    """A row that looks anomalous; rows are counted from 1, below the header."""

    row: int
    id: str | None
    anomaly_score: float
    is_anomaly: bool


@dataclass(frozen=True)
class ColumnEffect:
    """How far a column moves the score from that of a usual row, and what is suspicious in it.

    It is the mean size over rows drawn at random or, where reasons are not known exactly, what the
    column adds on average to the score of the most suspicious rows.
    """

    column: str
    effect: float
    suspicious: str


@dataclass(frozen=True)
class FitReport:
    """What `fit_table` did and found."""

    source: str
    rows: int
    label: str
    id: str | None
    labels: LabelCounts
    columns: dict[str, str]
    preparation: list[str]
    settings: dict[str, Any]
    fitted: dict[str, Any]
    effects: list[ColumnEffect]
    auc: Auc | None
    why_no_auc: str
    unlabelled_flagged: int
    top: list[Suspect]
    warnings: list[str] = field(default_factory=list)
    rule: str = "risk"
    rate: tuple[float, float, float] | None = None
    model: str = "ShallowRAD"
    effects_of: str = ""
    reading: list[str] = field(default_factory=list)

    def notes(self) -> dict[str, Any]:
        """Return what is kept in the model file: all but the rows themselves."""
        return {"fit": {key: value for key, value in asdict(self).items() if key != "top"}}


Fitted: TypeAlias = Callable[[Pipeline, FitReport], object]


@dataclass(frozen=True)
class Fit:
    """A fitted pipeline, the report, and the unlabelled rows, the most suspicious first."""

    model: Pipeline
    report: FitReport
    ranked: pl.DataFrame


@dataclass(frozen=True)
class ScoreReport:
    """What `score_table` found."""

    source: str
    rows: int
    id: str | None
    threshold: float | None
    flagged: int
    top: list[Suspect]
    warnings: list[str] = field(default_factory=list)
    rule: str = "risk"
    selection: str = ""
    added: list[str] = field(default_factory=lambda: list(SCORE_COLUMNS))


@dataclass(frozen=True)
class ThresholdReport:
    """What `change_threshold` did; counts are of the unlabelled rows of the fit."""

    rule: str
    threshold: float
    before: str
    unlabelled: int
    flagged: int


@dataclass(frozen=True)
class ExplainedRow:
    """A row, the columns that make it most anomalous, and what all other columns add."""

    row: int
    id: str | None
    anomaly_score: float
    is_anomaly: bool
    reasons: list[Reason]
    others: float


@dataclass(frozen=True)
class ExplainReport:
    """What `explain_table` found; `usual_score` is the anomaly score of a usual row."""

    source: str
    rows: int
    id: str | None
    rule: str
    threshold: float
    usual_score: float
    importance: dict[str, float]
    importance_rows: int
    explained: list[ExplainedRow]
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class PriorReport:
    """What `estimate_table_prior` found."""

    source: str
    rows: int
    label: str
    labels: LabelCounts
    preparation: list[str]
    estimate: PriorEstimate
    check: LabelCheck
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ModelReport:
    """What a model file holds: what it says of itself, and what the model in it says."""

    header: ModelHeader
    steps: list[str]
    settings: dict[str, Any]
    fitted: dict[str, Any]
    preparation: list[str]
    decision: dict[str, Any] = field(default_factory=dict)

    @property
    def training(self) -> dict[str, Any]:
        """The notes that `fit_table` left in the file, if it was made by it."""
        training: dict[str, Any] = self.header.notes.get("fit", {})
        return training


# --- fit ---------------------------------------------------------------------------------


def fit_table(
    frame: pl.DataFrame,
    labels: Labels,
    *,
    id: str | None = None,
    drop: Sequence[str] = (),
    text: Sequence[str] = (),
    number: Sequence[str] = (),
    model: str = "auto",
    settings: Mapping[str, Any] | None = None,
    threshold: Threshold | str = "risk",
    top: int = 10,
    source: str = "table",
    progress: Progress = lambda _: None,
    fitted: Fitted = lambda model, report: None,
) -> Fit:
    """Fit a detector on a table in which one column holds the labels.

    Parameters
    ----------
    frame
        A table as `riskad.tables.reading.read_table` gives it.
    labels
        The label column and what its values mean.
    id, drop
        Columns not to learn from: the one that names the rows, and others.
    text, number
        Columns to be read as text or as numbers, whatever they look like.
    model
        A name of `MODELS`: "auto" (`AutoRAD`), "shallow" (`ShallowRAD`), "boosted" (`BoostedRAD`)
        or "deep" (`DeepRAD`).
    settings
        Parameters of that detector. For `ShallowRAD` the default of `lam` is "cv" here.
    threshold
        Rule of `riskad.decisions.thresholds`, or its spelling.
    top
        How many of the most suspicious unlabelled rows to report.
    source, progress
        What to call the table in the report; a function that is told what is being done.
    fitted
        A function that gets the model and the report when only the columns that matter are not
        known yet. On wide tables that takes long: a quarter of `budget` at most beyond it.

    Examples
    --------
    >>> import numpy as np, polars as pl
    >>> rng = np.random.default_rng(0)
    >>> amount = np.concatenate([rng.normal(20, 5, 180), rng.normal(60, 5, 20)])
    >>> label = ["ok"] * 30 + [""] * 160 + ["fraud"] * 10
    >>> table = pl.DataFrame({"amount": amount, "label": label})
    >>> labels = Labels("label", normal=["ok"], anomaly=["fraud"])
    >>> fit = fit_table(table, labels, model="shallow")
    >>> print(fit.report.labels)
    30 normal, 10 anomalies, 160 unlabelled
    >>> fit.report.auc.value
    1.0
    >>> sorted(suspect.row for suspect in fit.report.top)
    [181, 182, 183, 184, 185, 186, 187, 188, 189, 190]
    """
    start = time.perf_counter()
    _check_rows(frame)
    rule = _rule(threshold)
    detector = _make_detector(model, settings or {})
    codes = _read_labels(frame, labels)
    counts = count_labels(codes)
    _check_kinds(counts, detector)
    frame, earlier = _without_scores(frame)
    _check_not_scored(frame.columns, RESULT_COLUMNS[:3])
    features = _pick_features(frame.columns, labels.column, id, drop, earlier)
    preparer = TablePreparer(text=text, number=number)
    with _collect_warnings() as notes:
        progress("Preparing the columns")
        rows = _Rows.of(preparer.fit(frame.select(features)), frame, codes)
        _check_dense(detector, rows.matrix)
        progress("Fitting the model")
        _fit_detector(detector, rows.matrix, codes, progress)
    pipeline = Pipeline([("prepare", preparer), ("detect", detector)])
    progress("Scoring the rows")
    scores = detector.anomaly_score(rows.matrix)
    progress("Checking it on held-out labelled rows")
    calibration, auc, why_no_auc = _check_quality(preparer, detector, rows, scores)
    detector.calibration_ = calibration
    detector.set_threshold(rule)
    if not hasattr(detector, "pile_"):
        remember_pile(detector, rows.matrix, codes)
    scored = _score_frame(detector, scores, _own_decision(detector))
    row = _free_name(frame.columns)
    ranked = _rank(frame.hstack(scored).with_row_index(row, 1).filter(codes == 0))
    report = FitReport(
        source=source,
        rows=frame.height,
        label=labels.column,
        id=id,
        labels=counts,
        preparation=preparer.describe() + _describe_left_out(earlier),
        fitted=_facts_of(detector)
        | _linear_facts(detector, lambda: detector.largest_norm(rows.matrix), notes),
        effects=[],
        auc=auc,
        why_no_auc=why_no_auc,
        unlabelled_flagged=int(ranked["is_anomaly"].sum()),
        top=_suspects(ranked.head(top), id),
        warnings=_say_warnings(pipeline, rows, counts, notes),
        **_known_of(pipeline),
    )
    fitted(pipeline, report)
    progress("Finding out which columns matter")
    worst = np.sort(np.argsort(-scores, kind="stable")[:_SUSPICIOUS_ROWS])
    words = yes_no_words(frame)
    report = _with_effects(report, pipeline, rows.parsed, rows.parsed[worst], start, words)
    return Fit(pipeline, report, ranked.select(row, *scored.columns, *frame.columns))


@dataclass(frozen=True)
class _Rows:
    """Rows in memory: as they are read, as numbers, and what they are labelled."""

    parsed: pl.DataFrame
    matrix: Any
    codes: Codes

    @classmethod
    def of(cls, preparer: TablePreparer, frame: pl.DataFrame, codes: Codes) -> _Rows:
        parsed = preparer.parse(frame)
        return cls(parsed, preparer.transform(parsed), codes)


def _known_of(model: Pipeline) -> dict[str, Any]:
    """What a report says of any fitted model."""
    preparer, detector = _steps(model)
    return {
        "columns": preparer.kinds_,
        "settings": _plain_parameters(detector),
        "rule": str(detector.threshold_),
        "rate": detector.calibration_.rate,
        "model": type(detector).__name__,
    }


def _say_warnings(
    model: Pipeline, rows: _Rows, counts: LabelCounts, notes: Sequence[Warning]
) -> list[str]:
    """All that a person should know of the data and of the fit."""
    preparer, detector = _steps(model)
    return [
        *_unused_labels(detector, counts),
        *(str(note) for note in notes),
        *_constant_columns(preparer),
        *_few_anomalies(counts),
        *_negative_risk(detector),
        *_unlike_the_pile(preparer, rows.matrix, rows.codes, detector.random_state),
    ]


# --- fit, on files larger than memory ----------------------------------------------------


def fit_files(
    paths: Paths,
    labels: Labels,
    *,
    id: str | None = None,
    drop: Sequence[str] = (),
    text: Sequence[str] = (),
    number: Sequence[str] = (),
    model: str = "auto",
    settings: Mapping[str, Any] | None = None,
    threshold: Threshold | str = "risk",
    top: int = 10,
    source: str = "table",
    engine: Engine | None = None,
    progress: Progress = lambda _: None,
    fitted: Fitted = lambda model, report: None,
) -> Fit:
    """Fit a detector on Parquet files that need not fit in memory; needs pyarrow.

    `paths` and `engine` are those of `riskad.rows.parquet.ParquetRows`, all else is as in
    `fit_table`. Some rows are read at a time, several times over:

    - labels, kinds of columns, their levels and blanks are found on all rows, medians on a sample
      (`TablePreparer.fit_batches`);
    - "shallow" minimises its risk over all rows. Other models learn from rows in memory: all
      labelled ones and a random sample of the pile, at most 100,000 rows of each kind;
    - on these rows rest the calibration, the AUC and what is said of columns;
    - all unlabelled rows are scored and counted, and "top:k" is exact.

    `Fit.ranked` has the 10,000 most suspicious unlabelled rows, numbered over all files.
    """
    rule = _rule(threshold)
    start = time.perf_counter()
    detector = _make_detector(model, settings or {})
    progress("Reading the labels")
    files = _Files(paths, labels, engine)
    _check_kinds(files.counts, detector)
    earlier = _earlier_results(files.rows.columns)
    columns = [name for name in files.rows.columns if name not in earlier]
    _check_not_scored(columns, RESULT_COLUMNS[:3])
    features = _pick_features([*columns, labels.column], labels.column, id, drop, earlier)
    preparer = TablePreparer(text=text, number=number)
    with _collect_warnings() as notes:
        progress("Preparing the columns")
        preparer.fit_batches(files.rows.parts, files.folding(features))
        used = [name for name, kind in preparer.kinds_.items() if kind != "dropped"]
        kept, rows = _keep_rows(files, preparer, used)
        _check_dense(detector, rows.matrix)
        progress("Fitting the model")
        training = files.rows.reading(used, preparer.transform)
        if isinstance(detector, ShallowRAD):
            detector.fit(training)
        else:
            _fit_detector(detector, rows.matrix, rows.codes, progress)
    pipeline = Pipeline([("prepare", preparer), ("detect", detector)])
    progress("Checking it on held-out labelled rows")
    scores = detector.anomaly_score(rows.matrix)
    calibration, auc, why_no_auc = _check_quality(preparer, detector, rows, scores)
    detector.calibration_ = replace(calibration, n_pile=files.counts.unlabelled)
    detector.set_threshold(rule)
    if not hasattr(detector, "pile_"):
        remember_pile(detector, rows.matrix, rows.codes)
    progress("Scoring the rows")
    flagged, ranked = _rank_files(files, columns, pipeline, rule, top)

    def largest_norm() -> float:
        return files.fold(partial(_largest_norm, detector), max, training)

    facts = _facts_of(detector) | _linear_facts(detector, largest_norm, notes)
    report = FitReport(
        source=source,
        rows=files.rows.n_rows,
        label=labels.column,
        id=id,
        labels=files.counts,
        preparation=preparer.describe() + _describe_left_out(earlier),
        fitted=facts,
        effects=[],
        auc=auc,
        why_no_auc=why_no_auc,
        unlabelled_flagged=flagged,
        top=_suspects(ranked.head(top), id),
        warnings=_say_warnings(pipeline, rows, files.counts, notes),
        reading=[
            f"{_say_number(len(files.rows.paths), 'file')}, read {files.passes + training.passes} "
            "times, some rows at a time",
            _say_learned(detector, kept),
        ],
        **_known_of(pipeline),
    )
    fitted(pipeline, report)
    progress("Finding out which columns matter")
    pile = rows.parsed.filter(rows.codes == UNLABELLED)
    shown = rows.parsed if kept.complete or not pile.height else pile
    worst = preparer.parse(ranked.head(_SUSPICIOUS_ROWS)) if ranked.height else rows.parsed[:1]
    report = _with_effects(report, pipeline, shown, worst, start)
    blank = pl.lit(None, dtype=pl.String).alias(labels.column)
    return Fit(pipeline, report, ranked.with_columns(blank))


class _Files:
    """Parquet files with a column of labels, gone through some rows at a time."""

    def __init__(self, paths: Paths, labels: Labels, engine: Engine | None):
        found = find_parquet(paths)
        check_columns([labels.column], parquet_columns(found[0]))
        seen = count_values(found, labels.column)
        if not (labels.normal or labels.anomaly):
            labels = _own_words(seen, labels)
        spelled = _spelled(labels)
        with _label_errors():
            codes = parse_distinct(seen, **spelled)
        sums = Counter[int]()
        for value, n in seen.items():
            sums[codes[value]] += n
        self.counts = LabelCounts(sums[NORMAL], sums[ANOMALY], sums[UNLABELLED])
        del spelled["name"]
        self.rows = ParquetRows(
            found, label=labels.column, prepare=_as_it_is, engine=engine, **spelled
        )
        self.passes = 0

    def fold(
        self,
        function: Callable[[Block, int], T],
        join: Callable[[T, T], T],
        rows: ParquetRows,
    ) -> T:
        """function(block, first_row) of all blocks, joined in order."""
        self.passes += 1
        starts = list(accumulate((part.n_rows for part in rows.parts), initial=1))
        work = partial(_fold_part, function, join, starts)
        return reduce(join, chain.from_iterable(rows.engine.map(work, rows.parts)))

    def folding(self, columns: Sequence[str]) -> Fold:
        """How a `TablePreparer` goes through frames of these columns."""
        rows = self.rows.reading(columns, _as_it_is)

        def fold(function: Any, join: Any, batches: object) -> Any:
            return self.fold(partial(_on_frame, function), join, rows)

        return fold


def _fold_part(
    function: Callable[[Block, int], T],
    join: Callable[[T, T], T],
    starts: Sequence[int],
    part: Part,
    number: int,
) -> list[T]:
    """What all blocks of a part come to; nothing if it has no rows."""
    first_row, total = starts[number], list[T]()
    for block in part.blocks():
        told = function(block, first_row)
        total = [join(total[0], told)] if total else [told]
        first_row += len(block.y)
    return total


def _as_it_is(frame: pl.DataFrame) -> pl.DataFrame:
    return frame


def _on_frame(function: Callable[[pl.DataFrame, int], T], block: Block, first_row: int) -> T:
    return function(block.X, first_row)


@dataclass(frozen=True)
class _Kept:
    """Random samples of the rows of each kind, by its code."""

    samples: Mapping[int, RowSample]

    @classmethod
    def of(cls, block: Block, first_row: int, *, preparer: TablePreparer) -> _Kept:
        parsed = preparer.parse(block.X, first_row=first_row)
        most = min(_KEPT_ROWS, max(_FEWEST_KEPT, _KEPT_CELLS // parsed.width))
        # Rows are taken by their places: polars filters neighbours to a view that keeps all rows.
        places = {kind: np.flatnonzero(block.y == kind) for kind in (NORMAL, ANOMALY, UNLABELLED)}
        return cls({k: RowSample.of(parsed[rows], first_row, most) for k, rows in places.items()})

    def joined(self, other: _Kept) -> _Kept:
        return _Kept({kind: s.joined(other.samples[kind]) for kind, s in self.samples.items()})

    @property
    def complete(self) -> bool:
        return all(sample.complete for sample in self.samples.values())

    def __str__(self) -> str:
        names = {NORMAL: "normal rows", ANOMALY: "anomalies", UNLABELLED: "unlabelled rows"}
        said = [
            f"all {s.n_rows:,} {names[kind]}"
            if s.complete
            else f"{s.rows.height:,} of {s.n_rows:,} {names[kind]} drawn at random"
            for kind, s in self.samples.items()
            if s.n_rows
        ]
        return " and ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said)


def _keep_rows(files: _Files, preparer: TablePreparer, used: Sequence[str]) -> tuple[_Kept, _Rows]:
    """Keep labelled rows and some of the pile in memory."""
    rows = files.rows.reading(used, _as_it_is)
    kept = files.fold(partial(_Kept.of, preparer=preparer), _Kept.joined, rows)
    codes = [np.full(s.rows.height, kind, dtype=np.int8) for kind, s in kept.samples.items()]
    frame = pl.concat([sample.rows for sample in kept.samples.values()])
    return kept, _Rows.of(preparer, frame, LabelCodes.of(np.concatenate(codes)))


def _say_learned(detector: Any, kept: _Kept) -> str:
    if isinstance(detector, ShallowRAD):
        rest = "" if kept.complete else f"; quality and calibration rest on {kept}"
        return f"learned from all rows{rest}"
    return "learned from all rows" if kept.complete else f"learned from {kept}; then scored all"


def _say_number(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _largest_norm(detector: ShallowRAD, block: Block, first_row: int) -> float:
    return detector.largest_norm(block.X)


def _rank_files(
    files: _Files, columns: Sequence[str], model: Pipeline, rule: Threshold, top: int
) -> tuple[int, pl.DataFrame]:
    """How many unlabelled rows of all are flagged, and the most suspicious of them.

    Which are the top k depends on all rows; the threshold is then set anew.
    """
    _, detector = _steps(model)
    rows = files.rows.reading(columns, _as_it_is)
    most = max(_RANKED_ROWS, top, rule.k + 1 if isinstance(rule, TopK) else 0)
    row = _free_name(columns)
    judged = partial(_judge, model=model, threshold=_threshold(detector), most=most, row=row)
    flagged, worst = files.fold(judged, partial(_join_judged, most=most), rows)
    if isinstance(rule, TopK) and worst.height:
        calibration = detector.calibration_
        detector.calibration_ = calibration.over(worst["anomaly_score"].to_numpy())
        detector.set_threshold(rule)
        detector.calibration_ = calibration
        flagged = int((worst["anomaly_score"] > _threshold(detector)).sum())
    scores = worst["anomaly_score"].to_numpy()
    results = _score_frame(detector, scores, _own_decision(detector))
    ranked = worst.drop("anomaly_score").hstack(results)
    return flagged, ranked.select(row, *results.columns, *columns).head(max(_RANKED_ROWS, top))


def _judge(
    block: Block, first_row: int, *, model: Pipeline, threshold: float, most: int, row: str
) -> tuple[int, pl.DataFrame]:
    """Score the unlabelled rows of a block; keep count and the highest scores."""
    preparer, detector = _steps(model)
    pile = block.X.with_row_index(row, first_row).filter(block.y == UNLABELLED)
    scores = np.empty(0)
    if pile.height:
        scores = detector.anomaly_score(preparer.transform(pile))
    scored = pile.with_columns(pl.Series("anomaly_score", scores, dtype=pl.Float64))
    if pile.height > most:  # the others need not be sorted
        scored = scored.filter(scores >= np.partition(scores, -most)[-most])
    return int((scores > threshold).sum()), _rank(scored).head(most)


def _join_judged(
    first: tuple[int, pl.DataFrame], second: tuple[int, pl.DataFrame], *, most: int
) -> tuple[int, pl.DataFrame]:
    both = pl.concat([first[1], second[1]], how="vertical_relaxed")
    return first[0] + second[0], _rank(both).head(most)


def _check_dense(detector: Any, matrix: Any) -> None:
    """Networks take no sparse matrices, which tables with many different texts become."""
    if sparse.issparse(matrix) and not detector.__sklearn_tags__().input_tags.sparse:
        raise InputError(
            f"The text columns of this table have so many values that they become "
            f"{matrix.shape[1]:,} columns, mostly zeros, which networks do not take. Leave the "
            "longest out (--drop COLUMN), or take another model: --model auto."
        )


def _fit_detector(detector: Any, matrix: Any, codes: Codes, progress: Progress) -> None:
    if isinstance(detector, AutoRAD) and detector.callback is None:
        detector.set_params(callback=progress).fit(matrix, codes).set_params(callback=None)
    else:
        detector.fit(matrix, codes)


def _unused_labels(detector: Any, counts: LabelCounts) -> list[str]:
    """Say which labels a risk leaves lying; labels are too dear for that to go unnoticed."""
    if isinstance(detector, AutoRAD):
        return []
    risk = detector.risk
    found = {NORMAL: (counts.normal, "normal rows"), ANOMALY: (counts.anomaly, "anomalies")}
    unused = [found[kind] for kind in found if kind not in get_risk(risk).kinds()]
    return [
        f"the {risk} risk does not use the {count:,} labelled {name}; rad uses both kinds of label."
        for count, name in unused
        if count
    ]


def _constant_columns(preparer: TablePreparer) -> list[str]:
    constant = [name for name, why in preparer.dropped_.items() if why.startswith("every row ")]
    if not constant:
        return []
    return [
        f"columns without a difference between rows were left out: {enumerate_names(constant)}."
    ]


def _few_anomalies(counts: LabelCounts) -> list[str]:
    count = counts.anomaly
    if not 0 < count < _FEW_ANOMALIES:
        return []
    known = "labelled anomaly is" if count == 1 else "labelled anomalies are"
    return [
        f"{count} {known} few: another one could change the ranking, and what is said of its "
        "quality and of the anomaly rate is vague. Label more."
    ]


def _negative_risk(detector: Any) -> list[str]:
    total = getattr(detector, "risk_parts_", {}).get("total", 0.0)
    if total >= 0:
        return []
    linear = isinstance(detector, ShallowRAD)
    remedy = "Regularise more (--lam tight or --lam theorem), or take" if linear else "Take"
    return [
        f"the estimated risk is negative ({total:.3g}), which no true risk is: the fit follows "
        f"noise in the labelled rows. {remedy} the risk with a guard (--risk nnrad)."
    ]


def _unlike_the_pile(
    preparer: TablePreparer, matrix: Any, codes: Codes, seed: int | None
) -> list[str]:
    """Say so if labelled rows are clearly not like those of their kind in the pile."""
    if count_labels(codes).normal < FEWEST_COMPARED:
        return []
    names = preparer.get_feature_names_out()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        check = check_labels(matrix, codes, names=names, significance=_SURPRISE, random_state=seed)
    p_values = [p for p in (check.normal_p_value, check.anomaly_p_value) if p is not None]
    return [check.verdict] if p_values and min(p_values) <= _SURPRISE / 2 else []


def _check_rows(frame: pl.DataFrame) -> None:
    if not frame.height:
        raise InputError("The table has a header but no rows.")


def _without_scores(frame: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Rows that were scored, then labelled, come back with the scores still beside them."""
    earlier = _earlier_results(frame.columns)
    return frame.drop(earlier), earlier


def _earlier_results(columns: Sequence[str]) -> list[str]:
    if not set(SCORE_COLUMNS) & set(columns):
        return []  # a column p_value is then one of the table's own
    return [name for name in columns if _RESULT_COLUMN.fullmatch(name)]


def _describe_left_out(earlier: Sequence[str]) -> list[str]:
    return [f"left out {', '.join(earlier)}: results of an earlier run"] if earlier else []


def _read_labels(frame: pl.DataFrame, labels: Labels) -> Codes:
    check_columns([labels.column], frame.columns)
    column = frame[labels.column]
    if not (labels.normal or labels.anomaly):
        texts = to_text(column).alias("value").value_counts(name="rows")
        labels = _own_words(dict(texts.iter_rows()), labels)
    with _label_errors():
        return parse_labels(column, **_spelled(labels))


def _spelled(labels: Labels) -> dict[str, Any]:
    """What labels mean, as `riskad.core.label_parsing` takes it."""
    return {
        "normal": labels.normal or None,
        "anomaly": labels.anomaly or None,
        "unlabelled": labels.unlabelled or None,
        "others": labels.others,
        "name": f"column {labels.column!r}",
    }


@contextmanager
def _label_errors() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        options = "--normal, --anomaly, --unlabelled (each may repeat) and --others-unlabelled"
        raise InputError(f"{error}\nOn the command line these are {options}.") from error


_ABSENT = {
    ANOMALY: "No row is labelled as an anomaly ({counts}), and the {risk} risk needs some. Label "
    "some, or do without: --model auto, or risk='pu' (--risk pu).",
    NORMAL: "No row is labelled as normal ({counts}), and the {risk} risk needs some. Label some, "
    "or do without: --model auto, or risk='nu' (--risk nu).",
    UNLABELLED: "Every row is labelled ({counts}), and the {risk} risk needs rows that are not. "
    "Leave blank what nobody checked, or do without: --model auto, or risk='pn' (--risk pn).",
}


def _check_kinds(counts: LabelCounts, detector: Any) -> None:
    """Say, before any work, which labels the detector needs and how to do without them."""
    rows = {ANOMALY: counts.anomaly, NORMAL: counts.normal, UNLABELLED: counts.unlabelled}
    if isinstance(detector, AutoRAD):
        if sum(n > 0 for n in rows.values()) < 2:
            raise InputError(
                f"All rows are of one kind ({counts}), and there is nothing to tell apart. Label "
                "rows that you know to be normal or anomalies, and leave blank what nobody checked."
            )
        return
    for kind, n in rows.items():
        if kind in get_risk(detector.risk).kinds() and not n:
            raise InputError(_ABSENT[kind].format(counts=counts, risk=detector.risk))


def _own_words(seen: Mapping[Any, int], labels: Labels) -> Labels:
    """Accept labels spelled 'normal' and 'anomaly' as they are; for others, ask what they mean."""
    counts: Counter[str] = Counter()
    for value, rows in seen.items():
        if value is not None and str(value).strip():
            counts[str(value).strip()] += rows
    if not counts:
        raise InputError(
            f"Column {labels.column!r} is blank in every row: no row is labelled. Mark some rows "
            "that you know to be normal and some that you know to be anomalies."
        )
    values = [value for value, _ in counts.most_common()]
    if set(values) <= {"normal", "anomaly", "unlabelled"}:
        normal, anomaly = ([word] if word in values else [] for word in ("normal", "anomaly"))
        return Labels(labels.column, normal, anomaly, ["unlabelled"])
    shown = ", ".join(f"{value!r} ({rows:,})" for value, rows in counts.most_common(8))
    flags = f"--normal {values[0]!r}" + (f" --anomaly {values[1]!r}" if len(values) > 1 else "")
    raise InputError(
        f"Say what the values of column {labels.column!r} mean. Seen, with rows: {shown}"
        f"{' and others' * (len(counts) > 8)}. For example: {flags}"
    )


def _pick_features(
    columns: Sequence[str], label: str, id: str | None, drop: Sequence[str], earlier: Sequence[str]
) -> list[str]:
    """The columns to learn from; results of an earlier run are none of them."""
    out = [label, *([id] if id is not None else []), *(d for d in drop if d not in earlier)]
    check_columns(out, columns)
    features = [name for name in columns if name not in {*out, *earlier}]
    if not features:
        raise InputError("Every column is left out; there is nothing to learn from.")
    return features


def _rule(threshold: Threshold | str) -> Threshold:
    return parse_threshold(threshold) if isinstance(threshold, str) else threshold


def _check_quality(
    preparer: TablePreparer, detector: Any, rows: _Rows, fitted_scores: NDArray[np.float64]
) -> tuple[Calibration, Auc | None, str]:
    """Return what decisions rest on, and the AUC on labelled rows or why there is none."""
    codes = rows.codes
    if isinstance(detector, AutoRAD):  # it has held rows out itself, and may have sampled the pile
        calibration = detector.calibration_.over(fitted_scores[codes == UNLABELLED])
        why_no_auc = _too_few(codes)
        if not why_no_auc and detector.auc_ is None:
            why_no_auc = "the budget left no time to hold labelled rows out (--budget)"
        return calibration, None if why_no_auc else detector.auc_, why_no_auc
    calibration, why_no_auc = _calibrate(preparer, detector, rows.parsed, codes, fitted_scores)
    why_no_auc = why_no_auc or _too_few(codes)
    if why_no_auc:
        return calibration, None, why_no_auc
    return calibration, auc_with_interval(calibration.codes, calibration.scores), ""


def _too_few(codes: Codes) -> str:
    """Why the labels tell no AUC, if they do not."""
    counts = count_labels(codes)
    if min(counts.normal, counts.anomaly) >= _FEWEST_FOR_AUC:
        return ""
    return f"it takes {_FEWEST_FOR_AUC} labelled rows of each kind; there are {counts}"


def _calibrate(
    preparer: TablePreparer,
    detector: Any,
    parsed: pl.DataFrame,
    codes: Codes,
    fitted_scores: NDArray[np.float64],
) -> tuple[Calibration, str]:
    """Return what decisions rest on, and where it lacks held-out rows, why."""
    # The kinds of the columns are settled; medians and levels are found anew in each fold.
    text = [name for name, kind in preparer.kinds_.items() if kind == "text"]
    number = [name for name, kind in preparer.kinds_.items() if kind == "number"]
    template = make_pipeline(TablePreparer(text=text, number=number), detector)
    zero, seed = _threshold(detector), detector.random_state
    try:
        return cross_calibrate(template, parsed, codes, fitted_scores, zero, random_state=seed), ""
    except InputError as error:
        unseen = np.full(len(codes), np.nan)
        reason = str(error).splitlines()[0]
        why_not = f"a part of the rows cannot be fitted by itself ({reason})"
        return Calibration.of(unseen, codes, fitted_scores, zero), why_not


def _facts_of(detector: object) -> dict[str, Any]:
    """What a fit found, as far as the detector remembers it."""
    if isinstance(detector, ShallowRAD):
        return {
            "lambda": float(detector.lambda_),
            "threshold": _threshold(detector),
            "solver": detector.solver_,
            "iterations": int(detector.n_iter_),
            "optimality": float(detector.optimality_),
            "converged": None,  # only the fit itself knows
            "objective": float(detector.objective_),
            "risk_parts": _risk_parts(detector),
        }
    if isinstance(detector, AutoRAD):
        return {
            "threshold": _threshold(detector),
            "leaderboard": detector.leaderboard_,
            "prior": detector.prior_,
            "rows": detector.n_rows_,
        }
    if hasattr(detector, "n_rounds_"):
        rounds = {"rounds": int(detector.n_rounds_)}
        return {"threshold": _threshold(detector), **rounds, "risk_parts": _risk_parts(detector)}
    if hasattr(detector, "best_step_"):
        return {"threshold": _threshold(detector), "steps": int(detector.best_step_)}
    return {}


def _risk_parts(detector: Any) -> dict[str, float]:
    return {name: float(part) for name, part in detector.risk_parts_.items()}


def _linear_facts(
    detector: Any, largest_norm: Callable[[], float], notes: Sequence[Warning]
) -> dict[str, Any]:
    """What bounds rest on, and whether the solver has found the minimum."""
    if not isinstance(detector, ShallowRAD):
        return {}
    return {
        "converged": not any(isinstance(note, ConvergenceWarning) for note in notes),
        "weight_norm": detector.weight_norm_,
        "row_norm": largest_norm(),
    }


def _with_effects(
    report: FitReport,
    model: Pipeline,
    parsed: pl.DataFrame,
    worst: pl.DataFrame,
    start: float,
    words: Words | None = None,
) -> FitReport:
    """The report with the columns that matter, found in what is left of the budget or a bit more.

    `start` is when the fit began, by `time.perf_counter`; `words` are those of `yes_no_words`.
    """
    seconds = _EXPLAIN_SECONDS
    _, detector = _steps(model)
    if isinstance(detector, AutoRAD):
        left = detector.budget - (time.perf_counter() - start)
        seconds = max(left, _LATER * detector.budget)
    effects, effects_of = _column_effects(model, parsed, worst, seconds, words)
    return replace(report, effects=effects, effects_of=effects_of)


def _column_effects(
    model: Pipeline,
    parsed: pl.DataFrame,
    worst: pl.DataFrame,
    seconds: float,
    words: Words | None = None,
) -> tuple[list[ColumnEffect], str]:
    """Return the columns by how far they move the score, and of which rows.

    Where a detector knows its own contributions these are many rows drawn at random; else reasons
    take long, and it is what columns add to the score of the most suspicious rows, `worst`. `words`
    are those of `yes_no_words`.
    """
    preparer, detector = _steps(model)
    one_row = detector._check_rows(preparer.transform(parsed[:1]), reset=False)
    if detector._contributions(one_row) is not None:
        sampled = parsed.sample(min(parsed.height, _EFFECT_ROWS), seed=detector.random_state or 0)
        found = _explain_quietly(model, sampled)
        whole = sampled.height == parsed.height
        sizes = found.importance()
        rows = "all rows" if whole else f"{sampled.height:,} rows at random"
    else:
        found = _explain_quietly(model, worst, seconds)
        means = found.contributions.mean(axis=0)
        order = np.argsort(-means, kind="stable")
        sizes = {found.columns[j]: float(means[j]) for j in order}
        rows = f"the {worst.height} most suspicious rows"
        if len(found) < worst.height:
            rows = f"{len(found)} of {rows}, for which the time sufficed"
    found = replace(found, words=words or {})
    effects = [
        ColumnEffect(column, size, _suspicious_value(found, found.columns.index(column)))
        for column, size in sizes.items()
        if size > 0
    ]
    return effects, rows


def _suspicious_value(found: Reasons, j: int) -> str:
    """What in a column goes with high scores: a text, or which numbers."""
    values, adds, usual = found.values[:, j], found.contributions[:, j], found.usual[j]
    known = np.array([value is not None and value == value for value in values])  # NaN is not
    if not isinstance(usual, str):  # a column of numbers; None is one that is usually blank
        said = _suspicious_number(values.astype(float), adds, known, usual)
        low, high = found.words.get(found.columns[j], ("low", "high"))
        return {"low": low, "high": high}.get(said, said)
    means = {value: adds[values == value].mean() for value in set(values[known])}
    if (~known).any():
        means[BLANK] = adds[~known].mean()
    return str(max(sorted(means), key=lambda value: means[value]))


def _suspicious_number(
    values: NDArray[np.float64],
    adds: NDArray[np.float64],
    known: NDArray[np.bool_],
    usual: float | None,
) -> str:
    """Whether high or low numbers add to the score, blanks, or where these are usual, no blank."""
    changes = np.where(known, adds, 0.0)
    size = np.abs(changes).sum()
    if not known.any() or np.abs(adds[~known]).sum() > size:
        return BLANK
    middle = float(np.median(values[known])) if usual is None else usual
    together = np.abs(changes[(changes > 0) == (values > middle)]).sum() / (size or 1.0)
    if together > _CLEARLY:
        return "high"
    if together < 1 - _CLEARLY:
        return "low"
    if usual is not None:
        return "high or low"
    return "not blank" if changes.sum() > 0 else BLANK


# --- prior -------------------------------------------------------------------------------


def estimate_table_prior(
    frame: pl.DataFrame,
    labels: Labels,
    *,
    id: str | None = None,
    drop: Sequence[str] = (),
    text: Sequence[str] = (),
    number: Sequence[str] = (),
    method: str = "auto",
    seed: int = 0,
    source: str = "table",
    progress: Progress = lambda _: None,
) -> PriorReport:
    """Estimate the anomaly rate of the unlabelled rows of a table, and check what it rests on.

    The parameters are those of `fit_table`; `method` is that of `riskad.estimate_prior`.
    """
    _check_rows(frame)
    codes = _read_labels(frame, labels)
    frame, earlier = _without_scores(frame)
    features = frame.select(_pick_features(frame.columns, labels.column, id, drop, earlier))
    preparer = TablePreparer(text=text, number=number)
    with _collect_warnings() as notes:
        progress("Preparing the columns")
        matrix = preparer.fit(features).transform(features)
        progress("Estimating the anomaly rate")
        estimate = estimate_prior(matrix, codes, method=method, random_state=seed)
        progress("Comparing labelled rows with the pile")
        names = preparer.get_feature_names_out()
        check = check_labels(matrix, codes, estimate=estimate, names=names, random_state=seed)
    return PriorReport(
        source=source,
        rows=frame.height,
        label=labels.column,
        labels=count_labels(codes),
        preparation=preparer.describe() + _describe_left_out(earlier),
        estimate=estimate,
        check=check,
        warnings=[str(note) for note in notes],
    )


# --- score -------------------------------------------------------------------------------


def score_table(
    model: Pipeline, frame: pl.DataFrame, **options: Any
) -> tuple[pl.DataFrame, ScoreReport]:
    """Return the table with `anomaly_score` and `is_anomaly` added, and a report.

    Rows and columns stay as they are; columns the model does not know are ignored. The options are
    those of `score_batches`, which does this for a table that comes in parts.
    """
    scored: list[pl.DataFrame] = []
    report = score_batches(model, [frame], scored.append, **options)
    return scored[0], report


def score_batches(
    model: Pipeline,
    batches: Iterable[pl.DataFrame],
    write: Callable[[pl.DataFrame], object],
    *,
    id: str | None = None,
    threshold: Threshold | str | None = None,
    fdr: float | None = None,
    reasons: int = 0,
    top: int = 10,
    source: str = "table",
    progress: Progress = lambda _: None,
) -> ScoreReport:
    """Score a table that comes in batches of rows, and report on all of it.

    Each batch is handed to `write` with its scores as soon as it has them, so that the table need
    not fit in memory; only the most suspicious rows are kept for the report.

    Parameters
    ----------
    model
        As `fit_table` makes it. One made from both kinds of label adds `anomaly_probability`.
    batches, write
        Parts of a table, one after the other, and what is called with each of them when it has its
        scores.
    id
        Column that names the rows; not an error if there is none.
    threshold
        Rule to decide by, in place of the model's own. The k of "top:k" counts rows of this table.
    fdr
        False discovery rate at which rows are selected instead; adds `p_value`.
    reasons
        How many columns `reason_1`, `reason_2`, ... say in words why flagged rows are flagged.
    top
        How many of the most suspicious rows to report.
    source, progress
        What to call the table in the report; a function that is told what is being done.

    Which rows are the top k, and which can be selected at a false discovery rate, depends on all of
    them. For these the batches are gone through twice, and the scores of all rows are kept.
    """
    if threshold is not None and fdr is not None:
        raise InputError("threshold and fdr are two ways to decide; give one of them.")
    preparer, detector = _steps(model)
    rule = None if threshold is None else _rule(threshold)
    added = _added(detector, fdr, reasons)
    news: list[Warning] = []
    scored = _scored(preparer, detector, batches, added, news, progress)
    kept: list[NDArray[np.float64]] = []

    def all_scores() -> NDArray[np.float64]:
        kept.extend(scores for _, scores in scored)
        return np.concatenate(kept)

    decision = _decide(detector, rule, fdr, all_scores)
    scored = _again(batches, kept, progress) if kept else scored
    n_rows = flagged = 0
    suspects: list[pl.DataFrame] = []
    for batch, scores in scored:
        id = id if id in batch.columns else None
        results = _score_frame(detector, scores, decision)
        if reasons:
            found = _reason_columns(model, batch, results["is_anomaly"], reasons)
            results = results.hstack(found)
        write(batch.hstack(results))
        seen = _suspicion(batch, results, id, n_rows)
        suspects = [_rank(pl.concat([*suspects, seen])).head(top)]
        n_rows += batch.height
        flagged += int(results["is_anomaly"].sum())
    return ScoreReport(
        source=source,
        rows=n_rows,
        id=id,
        threshold=decision.threshold,
        flagged=flagged,
        top=_suspects(suspects[0], id),
        warnings=[str(note) for note in news],
        rule=decision.rule,
        selection=decision.selection,
        added=added,
    )


Scored: TypeAlias = Iterator[tuple[pl.DataFrame, NDArray[np.float64]]]


def _scored(
    preparer: TablePreparer,
    detector: Any,
    batches: Iterable[pl.DataFrame],
    added: Sequence[str],
    news: list[Warning],
    progress: Progress,
) -> Scored:
    """Batches that have rows, with their scores; what a person should know goes into `news`."""
    n_rows = 0
    for batch in batches:
        _check_not_scored(batch.columns, added)
        if not batch.height:
            continue
        with _collect_warnings() as notes:
            matrix = preparer.transform(batch, first_row=n_rows + 1)
            scores = detector.anomaly_score(matrix)
        news[:] = _merge_warnings([*news, *notes])
        n_rows += batch.height
        progress(f"Scoring: {n_rows:,} rows done")
        yield batch, scores
    if not n_rows:
        raise InputError("The table has a header but no rows.")


def _again(
    batches: Iterable[pl.DataFrame], kept: Sequence[NDArray[np.float64]], progress: Progress
) -> Scored:
    """Go through batches once more, with the scores they had."""
    n_rows = 0
    with_rows = (batch for batch in batches if batch.height)
    for batch, scores in zip_longest(with_rows, kept):
        if batch is None or scores is None or batch.height != len(scores):
            raise InputError(
                "The table was another when it was read a second time, which this way of deciding "
                "takes. Score a copy that nothing writes to; in Python give a list of frames, or "
                "riskad.tables.reading.read_batches(path)."
            )
        n_rows += batch.height
        progress(f"Writing: {n_rows:,} rows done")
        yield batch, scores


def _suspicion(
    batch: pl.DataFrame, results: pl.DataFrame, id: str | None, rows_before: int
) -> pl.DataFrame:
    """Return what the report needs to know of the rows of a batch."""
    names = batch.select([id] if id is not None else [])
    row = _free_name(names.columns)
    return results.select(SCORE_COLUMNS).hstack(names).with_row_index(row, rows_before + 1)


@dataclass(frozen=True)
class _Decision:
    """Which rows are flagged: those above a threshold, or those with p-values up to a largest."""

    rule: str
    threshold: float | None
    largest_p: float = 0.0
    selection: str = ""


def _own_decision(detector: Any) -> _Decision:
    return _Decision(str(getattr(detector, "threshold_", "risk")), _threshold(detector))


def _decide(
    detector: Any,
    rule: Threshold | None,
    fdr: float | None,
    all_scores: Callable[[], NDArray[np.float64]],
) -> _Decision:
    """Decide by a rule or at a false discovery rate; the model stays as it is.

    `all_scores` gives those of the table, and is called where the decision depends on them.
    """
    if fdr is not None:
        calibration: Calibration = detector._calibrated("p-values")
        p_values = calibration.p_values(all_scores())
        chosen = select_at_fdr(p_values, fdr, len(calibration.normals))
        largest = float(p_values[chosen.selected].max(initial=0.0))
        return _Decision(f"fdr:{fdr:g}", None, largest, str(chosen))
    if rule is None:
        return _own_decision(detector)
    calibration = detector._calibrated("other thresholds than the model's")
    if isinstance(rule, TopK):
        calibration = calibration.over(all_scores())
    return _Decision(str(rule), rule.of(calibration))


def _added(detector: Any, fdr: float | None, reasons: int) -> list[str]:
    """Return the columns that scoring adds."""
    score, flag, probability, p_value = RESULT_COLUMNS
    return [
        score,
        flag,
        *([probability] if _knows_probabilities(detector) else []),
        *([p_value] if fdr is not None else []),
        *_reason_names(reasons),
    ]


def _knows_probabilities(detector: Any) -> bool:
    calibration = getattr(detector, "calibration_", None)
    return calibration is not None and calibration.rate is not None


def _check_not_scored(columns: Sequence[str], added: Sequence[str]) -> None:
    taken = [name for name in added if name in columns]
    if taken:
        raise InputError(
            f"The table already has a column {enumerate_names(taken)}, under which the scores "
            "would be written; it may have been scored before. Rename the column or take it out."
        )


def _steps(model: object) -> tuple[TablePreparer, Any]:
    if (
        isinstance(model, Pipeline)
        and len(model) == 2
        and isinstance(model[0], TablePreparer)
        and hasattr(model[1], "anomaly_score")
    ):
        return model[0], model[1]
    raise InputError(
        f"This model, a {type(model).__name__}, was not made by `riskad fit`, so it does not know "
        "how to read a table. Score it in Python, or save "
        "Pipeline([('prepare', TablePreparer()), ('detect', detector)]) instead."
    )


def _threshold(detector: Any) -> float:
    """Return the anomaly score above which a row is flagged, as in `predict`."""
    return -float(detector.offset_) + 0.0  # and no negative zero


def _score_frame(detector: Any, scores: NDArray[np.float64], decision: _Decision) -> pl.DataFrame:
    """The columns that scoring adds, but for reasons."""
    columns: dict[str, Any] = {"anomaly_score": scores}
    if decision.threshold is not None:
        columns["is_anomaly"] = scores > decision.threshold
    else:
        columns["p_value"] = p_values = detector.calibration_.p_values(scores)
        columns["is_anomaly"] = p_values <= decision.largest_p
    if _knows_probabilities(detector):
        columns["anomaly_probability"] = detector.calibration_.anomaly_probability(scores)
    return pl.DataFrame({name: columns[name] for name in RESULT_COLUMNS if name in columns})


def _rank(scored: pl.DataFrame) -> pl.DataFrame:
    return scored.sort("anomaly_score", descending=True, maintain_order=True)


def _free_name(columns: Sequence[str]) -> str:
    """Return a name for the row number that no column has."""
    name = "row"
    while name in columns:
        name += "_"
    return name


def _suspects(ranked: pl.DataFrame, id: str | None) -> list[Suspect]:
    rows = ranked.get_column(ranked.columns[0]).to_list()  # the index stands first
    ids = to_text(ranked[id]).to_list() if id is not None else [None] * len(rows)
    scored = ranked.select(SCORE_COLUMNS).rows()
    return [Suspect(row, name, *pair) for row, name, pair in zip(rows, ids, scored, strict=True)]


# --- explain -----------------------------------------------------------------------------


def explain_table(
    model: Pipeline,
    frame: pl.DataFrame,
    *,
    id: str | None = None,
    rows: int = 10,
    reasons: int = 3,
    source: str = "table",
    progress: Progress = lambda _: None,
) -> tuple[pl.DataFrame, ExplainReport]:
    """Return why the most suspicious rows of a table are so: all columns of them, and a report.

    The table has one line for each of these rows and each column the model uses: what it holds,
    what is usual, and what it adds to the anomaly score. The report has the first `reasons` of
    them, and the importance of all columns over a sample of the table. Scores that the table holds
    already are found anew.
    """
    _check_rows(frame)
    frame, _ = _without_scores(frame)
    preparer, detector = _steps(model)
    with _collect_warnings() as notes:
        progress("Scoring")
        parsed = preparer.parse(frame)
        scores = detector.anomaly_score(preparer.transform(parsed))
        decision = _own_decision(detector)
        results = _score_frame(detector, scores, decision).select(SCORE_COLUMNS)
    id = id if id in frame.columns else None
    scored = results if id is None else frame.select(id).hstack(results)
    suspects = _suspects(_rank(scored.with_row_index(_free_name(scored.columns), 1)).head(rows), id)
    progress("Finding reasons")
    found = _explain_quietly(model, frame[[suspect.row - 1 for suspect in suspects]])
    most = _SUSPICIOUS_ROWS if getattr(detector, "_slow_scores", False) else _IMPORTANCE_ROWS
    sampled = parsed.sample(min(parsed.height, most), seed=0)
    usual = _explain_quietly(model, sampled, _EXPLAIN_SECONDS)
    report = ExplainReport(
        source=source,
        rows=frame.height,
        id=id,
        rule=decision.rule,
        threshold=_threshold(detector),
        usual_score=found.base,
        importance=usual.importance(),
        importance_rows=len(usual),
        explained=[_explained(s, found, i, reasons) for i, s in enumerate(suspects)],
        warnings=[str(note) for note in notes],
    )
    return _reason_table(suspects, found, id), report


def _explain_quietly(model: Pipeline, frame: pl.DataFrame, seconds: float = np.inf) -> Reasons:
    """Reasons, without saying once more what is new in these rows; no row is begun too late."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return explain_rows(model, frame, seconds=seconds)


def _explained(suspect: Suspect, found: Reasons, i: int, n: int) -> ExplainedRow:
    reasons = found.top(i, n)
    others = float(found.contributions[i].sum()) - sum(reason.adds for reason in reasons)
    return ExplainedRow(**asdict(suspect), reasons=reasons, others=others)


def _reason_table(suspects: Sequence[Suspect], found: Reasons, id: str | None) -> pl.DataFrame:
    """One line for each row and column; values as text, since columns have several types."""
    kinds = {"row": pl.Int64, "id": pl.String, "anomaly_score": pl.Float64, "column": pl.String}
    kinds |= {"value": pl.String, "usual": pl.String, "adds": pl.Float64}
    lines = [
        (s.row, s.id, s.anomaly_score, r.column, _cell(r.value), _cell(r.usual), r.adds, r.error)
        for i, s in enumerate(suspects)
        for r in found.of(i)
    ]
    table = pl.DataFrame(lines, schema=kinds | {"standard_error": pl.Float64}, orient="row")
    return table if id is not None else table.drop("id")


def _cell(value: float | str | None) -> str | None:
    return None if value is None else str(value)


def _reason_names(n: int) -> list[str]:
    return [f"reason_{k}" for k in range(1, n + 1)]


def _reason_columns(
    model: Pipeline, frame: pl.DataFrame, is_anomaly: pl.Series, n: int
) -> pl.DataFrame:
    """The first reasons of flagged rows in words; blank for all others."""
    columns: list[list[str | None]] = [[None] * frame.height for _ in range(n)]
    flagged = np.flatnonzero(is_anomaly.to_numpy())
    if flagged.size:
        found = _explain_quietly(model, frame[flagged])
        for i, row in enumerate(flagged):
            for column, reason in zip(columns, found.top(i, n), strict=False):
                column[row] = str(reason)
    return pl.DataFrame(columns, schema=dict.fromkeys(_reason_names(n), pl.String), orient="col")


# --- inspect -----------------------------------------------------------------------------


def describe_model(model: Any, header: ModelHeader) -> ModelReport:
    """Say what a model and the header of its file hold."""
    steps = [type(step).__name__ for _, step in getattr(model, "steps", [("", model)])]
    detector = model.steps[-1][1] if isinstance(model, Pipeline) else model
    first = model.steps[0][1] if isinstance(model, Pipeline) else None
    return ModelReport(
        header=header,
        steps=steps,
        settings=_plain_parameters(detector),
        fitted=_facts_of(detector) | known_to_fit(header.notes.get("fit", {})),
        preparation=first.describe() if isinstance(first, TablePreparer) else [],
        decision=_decision_facts(detector),
    )


def _decision_facts(detector: Any) -> dict[str, Any]:
    """Return by what rule the model decides, and what it could decide by."""
    if not hasattr(detector, "offset_"):
        return {}
    facts = {
        "rule": str(getattr(detector, "threshold_", "risk")),
        "threshold": _threshold(detector),
    }
    if hasattr(detector, "calibration_"):
        calibration = detector.calibration_
        counts = len(calibration.normals), len(calibration.anomalies)
        facts |= {"rate": calibration.rate, "normals": counts[0], "anomalies": counts[1]}
    return facts


# --- threshold ---------------------------------------------------------------------------


def change_threshold(
    model: Any, header: ModelHeader, threshold: Threshold | str
) -> tuple[dict[str, Any], ThresholdReport]:
    """Let a model decide by another rule; return the notes for its file, and what was done."""
    detector = model.steps[-1][1] if isinstance(model, Pipeline) else model
    if not hasattr(detector, "set_threshold"):
        raise InputError(f"A {type(detector).__name__} has no threshold that riskad could set.")
    calibration: Calibration = detector._calibrated("other thresholds than the model's")
    before = str(detector.threshold_)
    detector.set_threshold(_rule(threshold))
    rule, t = str(detector.threshold_), _threshold(detector)
    flagged = round(float((calibration.pile > t).mean()) * calibration.n_pile)
    notes = dict(header.notes)
    if "fit" in notes:
        fitted = notes["fit"]["fitted"] | {"threshold": t}
        notes["fit"] = notes["fit"] | {
            "rule": rule,
            "fitted": fitted,
            "unlabelled_flagged": flagged,
        }
    return notes, ThresholdReport(rule, t, before, calibration.n_pile, flagged)


def _plain_parameters(detector: Any) -> dict[str, Any]:
    """Return the parameters of an estimator as JSON can hold them."""
    parameters = detector.get_params(deep=False)
    plain = (str, int, float, bool, type(None))
    return {k: v if isinstance(v, plain) else repr(v) for k, v in parameters.items()}


# --- bounds ------------------------------------------------------------------------------


def bound_model(header: ModelHeader, delta: float = 0.05) -> FittedBounds:
    """Return the bounds of a model from what `fit_table` noted in its file."""
    training = header.notes.get("fit", {})
    if training.get("model", "ShallowRAD") != "ShallowRAD":
        raise InputError(
            f"The bounds are for linear scores, and this model is of the kind {training['model']}: "
            "fit one with `riskad fit --model shallow`."
        )
    if "weight_norm" not in training.get("fitted", {}):
        raise InputError(
            "This model was not made by `riskad fit` of this version, so its file does not say how "
            "many rows it learned from and how long they are. Fit it again with `riskad fit`, or "
            "use riskad.app.bounds.bounds_of(model, X, y) in Python."
        )
    settings, fitted = training["settings"], training["fitted"]
    risk = get_risk(settings["risk"], settings["loss"], a=settings["a"], prior=settings["prior"])
    counts = LabelCounts(**training["labels"])
    return fitted_bounds(risk, counts, fitted["weight_norm"], fitted["row_norm"], delta=delta)


# --- warnings ----------------------------------------------------------------------------


@contextmanager
def _collect_warnings() -> Iterator[list[Warning]]:
    """Gather what a person should know about the data or the fit; let other warnings pass."""
    notes: list[Warning] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DataWarning)
        warnings.simplefilter("always", ConvergenceWarning)
        yield notes
    for warning in caught:
        if issubclass(warning.category, DataWarning | ConvergenceWarning):
            notes.append(warning.message)  # type: ignore[arg-type]
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )


def _merge_warnings(notes: Sequence[Warning]) -> list[Warning]:
    """Say once what several batches of rows have in common."""
    news = [note for note in notes if isinstance(note, NotAsInTraining)]
    others = {str(note): note for note in notes if not isinstance(note, NotAsInTraining)}
    return [*([NotAsInTraining.of_all(news)] if news else []), *others.values()]


# --- suggest -----------------------------------------------------------------------------


@dataclass(frozen=True)
class SuggestedRow:
    """A row to label, counted from 1, and why it was chosen."""

    row: int
    id: str | None
    anomaly_score: float
    reason: str


@dataclass(frozen=True)
class SuggestReport:
    """What `suggest_table` found: rows in the order to label them."""

    source: str
    rows: int
    labelled: int
    label: str | None
    id: str | None
    suggested: list[SuggestedRow]
    warnings: list[str] = field(default_factory=list)


def suggest_table(
    model: Pipeline,
    frame: pl.DataFrame,
    n: int = 20,
    *,
    label: str | None = None,
    id: str | None = None,
    source: str = "table",
    progress: Progress = lambda _: None,
) -> tuple[pl.DataFrame, SuggestReport]:
    """Return the rows of a table to label next, ready to be labelled, and a report.

    The rows have all columns, their `anomaly_score`, the `reason` for which they were chosen and,
    without `id`, their number. Rows with a label in the column `label` are not suggested; where the
    table has no such column, the rows get it, blank.
    """
    _check_rows(frame)
    frame, _ = _without_scores(frame)
    _check_not_scored(frame.columns, ("anomaly_score", "reason"))
    preparer, detector = _steps(model)
    labelled, said = _labelled_rows(frame, label)
    with _collect_warnings() as notes:
        progress("Preparing the columns")
        matrix = preparer.transform(frame)
        progress("Choosing rows")
        found = suggest_rows(
            detector, matrix, n, y=read_codes(np.where(labelled, NORMAL, UNLABELLED))
        )
    if len(found) < n:
        said.append(f"{n:,} rows were asked for, and only {len(found):,} have no label: all came.")
    id = id if id in frame.columns else None
    chosen = frame[found.rows]
    if id is None:  # else rows are known by their names
        chosen.insert_column(0, pl.Series(_free_name(frame.columns), found.rows + 1))
    if label is not None and label not in frame.columns:
        chosen = chosen.with_columns(pl.lit(None, dtype=pl.String).alias(label))
    reasons = pl.Series(found.reasons, dtype=pl.String)
    table = chosen.with_columns(anomaly_score=found.anomaly_score, reason=reasons)
    report = SuggestReport(
        source=source,
        rows=frame.height,
        labelled=int(labelled.sum()),
        label=label,
        id=id,
        suggested=_suggested(found, chosen, id),
        warnings=said + [str(note) for note in notes],
    )
    return table, report


def _labelled_rows(frame: pl.DataFrame, label: str | None) -> tuple[NDArray[np.bool_], list[str]]:
    """Which rows have a label, and what is to be said of the column."""
    if label is None:
        return np.zeros(frame.height, dtype=bool), []
    if label not in frame.columns:
        said = f"there is no column {label!r} yet: no row counts as labelled"
        return np.zeros(frame.height, dtype=bool), [said]
    words = to_text(frame[label]).str.strip_chars()
    return (~words.fill_null("").is_in(["", "unlabelled"])).to_numpy(), []


def _suggested(found: Suggestion, chosen: pl.DataFrame, id: str | None) -> list[SuggestedRow]:
    ids = to_text(chosen[id]).to_list() if id is not None else [None] * len(found)
    parts = ((found.rows + 1).tolist(), ids, found.anomaly_score.tolist(), found.reasons)
    return [SuggestedRow(*line) for line in zip(*parts, strict=True)]


# --- drift -------------------------------------------------------------------------------


@dataclass(frozen=True)
class TableDrift:
    """What `drift_table` found."""

    source: str
    drift: DriftReport
    warnings: list[str] = field(default_factory=list)


def drift_table(
    model: Pipeline,
    frame: pl.DataFrame,
    *,
    level: float = 0.05,
    source: str = "table",
    progress: Progress = lambda _: None,
) -> TableDrift:
    """Compare the rows of a table with the pile that the model was fitted to."""
    _check_rows(frame)
    _steps(model)
    with _collect_warnings() as notes:
        progress("Comparing the rows with those of the fit")
        found = drift_report(model, frame, level=level)
    return TableDrift(source, found, [str(note) for note in notes])
