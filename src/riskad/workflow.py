"""The main job, from a table to an answer: fit a detector on one, score another, say what happened.

The command line is a thin face on these functions; everything it prints is in the reports here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline, make_pipeline

from riskad._checks import DataWarning, InputError, enumerate_names
from riskad.bounds import FittedBounds, fitted_bounds
from riskad.io import ModelHeader
from riskad.labels import (
    ANOMALY,
    NORMAL,
    UNLABELLED,
    Codes,
    LabelCounts,
    count_labels,
    parse_labels,
)
from riskad.metrics import Auc, auc_with_interval, out_of_fold_scores
from riskad.prepare import NotAsInTraining, TablePreparer
from riskad.priors import LabelCheck, PriorEstimate, check_labels, estimate_prior
from riskad.risks import get_risk
from riskad.shallow import ShallowRAD
from riskad.tables import check_columns

__all__ = [
    "SCORE_COLUMNS",
    "ColumnEffect",
    "Fit",
    "FitReport",
    "Labels",
    "ModelReport",
    "PriorReport",
    "ScoreReport",
    "Suspect",
    "bound_model",
    "describe_model",
    "estimate_table_prior",
    "fit_table",
    "score_batches",
    "score_table",
]

SCORE_COLUMNS = ("anomaly_score", "is_anomaly")

Progress: TypeAlias = Callable[[str], object]

_FEWEST_FOR_AUC = 3  # labelled rows of each kind; with fewer, an AUC is a coin toss
_MAX_FOLDS = 5


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
    """How far a column moves the score (a standard deviation) and which values are suspicious."""

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

    def notes(self) -> dict[str, Any]:
        """Return what is kept in the model file: all but the rows themselves."""
        return {"fit": {key: value for key, value in asdict(self).items() if key != "top"}}


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
    threshold: float
    flagged: int
    top: list[Suspect]
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
    settings: Mapping[str, Any] | None = None,
    top: int = 10,
    source: str = "table",
    progress: Progress = lambda _: None,
) -> Fit:
    """Fit a detector on a table in which one column holds the labels.

    Parameters
    ----------
    frame
        A table as `riskad.tables.read_table` gives it.
    labels
        The label column and what its values mean.
    id, drop
        Columns not to learn from: the one that names the rows, and others.
    text, number
        Columns to be read as text or as numbers, whatever they look like.
    settings
        Parameters of `ShallowRAD`. Here the default of `lam` is "cv".
    top
        How many of the most suspicious unlabelled rows to report.
    source, progress
        What to call the table in the report; a function that is told what is being done.

    Examples
    --------
    >>> import numpy as np, polars as pl
    >>> rng = np.random.default_rng(0)
    >>> amount = np.concatenate([rng.normal(20, 5, 180), rng.normal(60, 5, 20)])
    >>> label = ["ok"] * 30 + [""] * 160 + ["fraud"] * 10
    >>> table = pl.DataFrame({"amount": amount, "label": label})
    >>> fit = fit_table(table, Labels("label", normal=["ok"], anomaly=["fraud"]))
    >>> print(fit.report.labels)
    30 normal, 10 anomalies, 160 unlabelled
    >>> fit.report.auc.value
    1.0
    >>> sorted(suspect.row for suspect in fit.report.top)
    [181, 182, 183, 184, 185, 186, 187, 188, 189, 190]
    """
    _check_rows(frame)
    codes = _read_labels(frame, labels)
    _check_kinds(codes, (settings or {}).get("risk", "rad"))
    frame, earlier = _without_scores(frame)
    features = _pick_features(frame, labels.column, id, [d for d in drop if d not in earlier])
    preparer = TablePreparer(text=text, number=number)
    detector = ShallowRAD(**{"lam": "cv", **(settings or {})})
    with _collect_warnings() as notes:
        progress("Preparing the columns")
        parsed = preparer.fit(features).parse(features)
        matrix = preparer.transform(parsed)
        progress("Fitting the model")
        detector.fit(matrix, codes)
        scored = _score_frame(detector, matrix)
    model = Pipeline([("prepare", preparer), ("detect", detector)])
    progress("Checking it on labelled rows it has not seen")
    auc, why_no_auc = _cross_validate(preparer, detector, parsed, codes)
    row = _free_name(frame.columns)
    ranked = _rank(frame.hstack(scored).with_row_index(row, 1).filter(codes == 0))
    report = FitReport(
        source=source,
        rows=frame.height,
        label=labels.column,
        id=id,
        labels=count_labels(codes),
        columns=preparer.kinds_,
        preparation=preparer.describe() + _describe_left_out(earlier),
        settings=_plain_parameters(detector),
        fitted=_fitted_facts(detector)
        | {"converged": not _unconverged(notes)}
        | {"weight_norm": detector.weight_norm_, "row_norm": detector.largest_norm(matrix)},
        effects=_column_effects(preparer, detector, matrix),
        auc=auc,
        why_no_auc=why_no_auc,
        unlabelled_flagged=int(ranked["is_anomaly"].sum()),
        top=_suspects(ranked.head(top), id),
        warnings=_unused_labels(detector.risk, codes) + [str(note) for note in notes],
    )
    return Fit(model, report, ranked.select(row, *SCORE_COLUMNS, *frame.columns))


def _unused_labels(risk: str, codes: Codes) -> list[str]:
    """Say which labels a risk leaves lying; labels are too dear for that to go unnoticed."""
    counts = count_labels(codes)
    found = {NORMAL: (counts.normal, "normal rows"), ANOMALY: (counts.anomaly, "anomalies")}
    unused = [found[kind] for kind in found if kind not in get_risk(risk).kinds()]
    return [
        f"the {risk} risk does not use the {count:,} labelled {name}; rad uses both kinds of label."
        for count, name in unused
        if count
    ]


def _check_rows(frame: pl.DataFrame) -> None:
    if not frame.height:
        raise InputError("The table has a header but no rows.")


def _without_scores(frame: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Rows that were scored, then labelled, come back with the scores still beside them."""
    earlier = [name for name in SCORE_COLUMNS if name in frame.columns]
    return frame.drop(earlier), earlier


def _describe_left_out(earlier: Sequence[str]) -> list[str]:
    return [f"left out {', '.join(earlier)}: results of an earlier run"] if earlier else []


def _read_labels(frame: pl.DataFrame, labels: Labels) -> Codes:
    check_columns([labels.column], frame.columns)
    column = frame[labels.column]
    if not (labels.normal or labels.anomaly):
        labels = _own_words(column, labels)
    try:
        return parse_labels(
            column,
            normal=labels.normal or None,
            anomaly=labels.anomaly or None,
            unlabelled=labels.unlabelled or None,
            others=labels.others,
            name=f"column {column.name!r}",
        )
    except InputError as error:
        options = "--normal, --anomaly, --unlabelled (each may repeat) and --others-unlabelled"
        raise InputError(f"{error}\nOn the command line these are {options}.") from error


_ABSENT = {
    ANOMALY: "No row is labelled as an anomaly ({counts}), and the {risk} risk needs some. Label "
    "some, or do without: risk='pu' and lam='cv' (--risk pu --lam cv).",
    NORMAL: "No row is labelled as normal ({counts}), and the {risk} risk needs some. Label some, "
    "or do without: risk='nu' and lam='cv' (--risk nu --lam cv).",
    UNLABELLED: "Every row is labelled ({counts}), and the {risk} risk needs rows that are not. "
    "Leave blank what nobody checked, or do without: risk='pn' (--risk pn).",
}


def _check_kinds(codes: Codes, risk: str) -> None:
    """Say, before any work, which labels the risk needs and how to do without them."""
    for kind in (ANOMALY, NORMAL, UNLABELLED):
        if kind in get_risk(risk).kinds() and not (codes == kind).any():
            raise InputError(_ABSENT[kind].format(counts=count_labels(codes), risk=risk))


def _own_words(column: pl.Series, labels: Labels) -> Labels:
    """Accept labels spelled 'normal' and 'anomaly' as they are; for others, ask what they mean."""
    texts = column.cast(pl.String).str.strip_chars()
    counts = texts.filter(texts != "").alias("value").value_counts(sort=True, name="rows")
    if counts.is_empty():
        raise InputError(
            f"Column {column.name!r} is blank in every row: no row is labelled. Mark some rows "
            "that you know to be normal and some that you know to be anomalies."
        )
    values = counts["value"].to_list()
    if set(values) <= {"normal", "anomaly", "unlabelled"}:
        normal, anomaly = ([word] if word in values else [] for word in ("normal", "anomaly"))
        return Labels(labels.column, normal, anomaly, ["unlabelled"])
    seen = ", ".join(f"{value!r} ({rows:,})" for value, rows in counts.head(8).rows())
    flags = f"--normal {values[0]!r}" + (f" --anomaly {values[1]!r}" if len(values) > 1 else "")
    raise InputError(
        f"Say what the values of column {column.name!r} mean. Seen, with rows: {seen}"
        f"{' and others' * (counts.height > 8)}. For example: {flags}"
    )


def _pick_features(
    frame: pl.DataFrame, label: str, id: str | None, drop: Sequence[str]
) -> pl.DataFrame:
    out = [label, *([id] if id is not None else []), *drop]
    check_columns(out, frame.columns)
    features = frame.drop(set(out))
    if not features.width:
        raise InputError("Every column is left out; there is nothing to learn from.")
    return features


def _cross_validate(
    preparer: TablePreparer, detector: ShallowRAD, parsed: pl.DataFrame, codes: Codes
) -> tuple[Auc | None, str]:
    """Return the AUC of labelled rows, each scored by a fit that had not seen its label."""
    counts = count_labels(codes)
    fewest = min(counts.normal, counts.anomaly)
    if fewest < _FEWEST_FOR_AUC:
        return None, f"it takes {_FEWEST_FOR_AUC} labelled rows of each kind; there are {counts}"
    # The kinds of the columns are settled; medians and levels are found anew in each fold.
    text = [name for name, kind in preparer.kinds_.items() if kind == "text"]
    number = [name for name, kind in preparer.kinds_.items() if kind == "number"]
    model = make_pipeline(TablePreparer(text=text, number=number), detector)
    folds = min(_MAX_FOLDS, fewest)
    with warnings.catch_warnings():
        # What the folds lack by chance (a level, a step more) is not news about the model.
        warnings.simplefilter("ignore", DataWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            scores = out_of_fold_scores(model, parsed, codes, folds, detector.random_state)
        except InputError as error:
            reason = str(error).splitlines()[0]
            return None, f"a part of the rows cannot be fitted by itself ({reason})"
    return auc_with_interval(codes, scores), ""


def _unconverged(notes: Sequence[Warning]) -> bool:
    return any(isinstance(note, ConvergenceWarning) for note in notes)


def _fitted_facts(detector: ShallowRAD) -> dict[str, Any]:
    return {
        "lambda": float(detector.lambda_),
        "threshold": _threshold(detector),
        "solver": detector.solver_,
        "iterations": int(detector.n_iter_),
        "optimality": float(detector.optimality_),
        "converged": None,  # only the fit itself knows
        "objective": float(detector.objective_),
        "risk_parts": {name: float(part) for name, part in detector.risk_parts_.items()},
    }


def _column_effects(
    preparer: TablePreparer, detector: ShallowRAD, matrix: Any
) -> list[ColumnEffect]:
    """Return the columns by how far they move the score; none where a feature map mixes them."""
    if detector.feature_map is not None:
        return []
    names, sources = preparer.get_feature_names_out(), np.array(preparer.source_columns_)
    effects = []
    for column in dict.fromkeys(preparer.source_columns_):
        own = np.flatnonzero(sources == column)
        moves = float(np.std(matrix[:, own] @ detector.coef_[own]))
        most_suspicious = names[own[np.argmin(detector.coef_[own])]].removeprefix(f"{column}=")
        if column in preparer.medians_:
            most_suspicious = "low" if detector.coef_[own[0]] > 0 else "high"
        effects.append(ColumnEffect(column, moves, most_suspicious))
    moving = [effect for effect in effects if effect.effect > 0]
    return sorted(moving, key=lambda effect: -effect.effect)


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
    features = _pick_features(frame, labels.column, id, [d for d in drop if d not in earlier])
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
    model: Pipeline,
    frame: pl.DataFrame,
    *,
    id: str | None = None,
    top: int = 10,
    source: str = "table",
    progress: Progress = lambda _: None,
) -> tuple[pl.DataFrame, ScoreReport]:
    """Return the table with `anomaly_score` and `is_anomaly` added, and a report.

    Rows and columns stay as they are; columns the model does not know are ignored.
    """
    scored: list[pl.DataFrame] = []
    report = score_batches(
        model, [frame], scored.append, id=id, top=top, source=source, progress=progress
    )
    return scored[0], report


def score_batches(
    model: Pipeline,
    batches: Iterable[pl.DataFrame],
    write: Callable[[pl.DataFrame], object],
    *,
    id: str | None = None,
    top: int = 10,
    source: str = "table",
    progress: Progress = lambda _: None,
) -> ScoreReport:
    """Score a table that comes in batches of rows, and report on all of it.

    Each batch is handed to `write` with its scores as soon as it has them, so that the table need
    not fit in memory; only the most suspicious rows are kept for the report.
    """
    preparer, detector = _steps(model)
    n_rows = flagged = 0
    suspects: list[pl.DataFrame] = []
    news: list[Warning] = []
    for batch in batches:
        if not n_rows:
            _check_not_scored(batch)
            id = id if id in batch.columns else None
        if not batch.height:
            continue
        with _collect_warnings() as notes:
            matrix = preparer.transform(batch, first_row=n_rows + 1)
            scores = _score_frame(detector, matrix)
        write(batch.hstack(scores))
        suspects = [_rank(pl.concat([*suspects, _suspicion(batch, scores, id, n_rows)])).head(top)]
        news = _merge_warnings([*news, *notes])
        n_rows += batch.height
        flagged += int(scores["is_anomaly"].sum())
        progress(f"Scoring: {n_rows:,} rows done")
    if not n_rows:
        raise InputError("The table has a header but no rows.")
    return ScoreReport(
        source=source,
        rows=n_rows,
        id=id,
        threshold=_threshold(detector),
        flagged=flagged,
        top=_suspects(suspects[0], id),
        warnings=[str(note) for note in news],
    )


def _suspicion(
    batch: pl.DataFrame, scores: pl.DataFrame, id: str | None, rows_before: int
) -> pl.DataFrame:
    """Return what the report needs to know of the rows of a batch."""
    names = batch.select([id] if id is not None else [])
    row = _free_name(names.columns)
    return scores.hstack(names).with_row_index(row, rows_before + 1)


def _check_not_scored(frame: pl.DataFrame) -> None:
    taken = [name for name in SCORE_COLUMNS if name in frame.columns]
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


def _score_frame(detector: Any, matrix: Any) -> pl.DataFrame:
    scores: NDArray[np.float64] = detector.anomaly_score(matrix)
    return pl.DataFrame({"anomaly_score": scores, "is_anomaly": scores > _threshold(detector)})


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
    ids = ranked[id].cast(pl.String).to_list() if id is not None else [None] * len(rows)
    scored = ranked.select(SCORE_COLUMNS).rows()
    return [Suspect(row, name, *pair) for row, name, pair in zip(rows, ids, scored, strict=True)]


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
        fitted=header.notes.get("fit", {}).get("fitted") or _facts_of(detector),
        preparation=first.describe() if isinstance(first, TablePreparer) else [],
    )


def _facts_of(detector: object) -> dict[str, Any]:
    return _fitted_facts(detector) if isinstance(detector, ShallowRAD) else {}


def _plain_parameters(detector: Any) -> dict[str, Any]:
    """Return the parameters of an estimator as JSON can hold them."""
    parameters = detector.get_params(deep=False)
    plain = (str, int, float, bool, type(None))
    return {k: v if isinstance(v, plain) else repr(v) for k, v in parameters.items()}


# --- bounds ------------------------------------------------------------------------------


def bound_model(header: ModelHeader, delta: float = 0.05) -> FittedBounds:
    """Return the bounds of a model from what `fit_table` noted in its file."""
    training = header.notes.get("fit", {})
    if "weight_norm" not in training.get("fitted", {}):
        raise InputError(
            "This model was not made by `riskad fit` of this version, so its file does not say how "
            "many rows it learned from and how long they are. Fit it again with `riskad fit`, or "
            "use riskad.bounds.bounds_of(model, X, y) in Python."
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
