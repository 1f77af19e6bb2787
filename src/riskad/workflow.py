"""The main job, from a table to an answer: fit a detector on one, score another, say what happened.

The command line is a thin face on these functions; everything it prints is in the reports here.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from riskad.explain import Reason, Reasons, explain_rows
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
from riskad.prepare import TablePreparer
from riskad.priors import LabelCheck, PriorEstimate, check_labels, estimate_prior
from riskad.risks import get_risk
from riskad.shallow import ShallowRAD
from riskad.suggest import Suggestion, suggest_rows
from riskad.tables import check_columns

__all__ = [
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
    "bound_model",
    "describe_model",
    "estimate_table_prior",
    "explain_table",
    "fit_table",
    "score_table",
    "suggest_table",
]

SCORE_COLUMNS = ("anomaly_score", "is_anomaly")

Progress: TypeAlias = Callable[[str], object]

_FEWEST_FOR_AUC = 3  # labelled rows of each kind; with fewer, an AUC is a coin toss
_MAX_FOLDS = 5
_EFFECT_ROWS = 1_000  # enough to see which columns move the score
_IMPORTANCE_ROWS = 100  # fewer where reasons may have to be sampled
_REASON_COLUMN = re.compile(r"reason(_\d+)?")


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
    """How far a column moves the score from that of a usual row, and what is suspicious in it."""

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
        effects=_column_effects(model, parsed),
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
    if earlier:
        earlier += [name for name in frame.columns if _REASON_COLUMN.fullmatch(name)]
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


def _column_effects(model: Pipeline, parsed: pl.DataFrame) -> list[ColumnEffect]:
    """Return the columns by how far they move the score; none where a feature map mixes them."""
    preparer, detector = _steps(model)
    if detector.feature_map is not None:
        return []
    sampled = parsed.sample(min(parsed.height, _EFFECT_ROWS), seed=detector.random_state or 0)
    return [
        ColumnEffect(column, effect, _most_suspicious(preparer, detector.coef_, column))
        for column, effect in _explain_quietly(model, sampled).importance().items()
        if effect > 0
    ]


def _most_suspicious(preparer: TablePreparer, w: NDArray[np.float64], column: str) -> str:
    own = np.flatnonzero(np.array(preparer.source_columns_) == column)
    if column in preparer.medians_:
        return "low" if w[own[0]] > 0 else "high"
    names = preparer.get_feature_names_out()
    return str(names[own[np.argmin(w[own])]]).removeprefix(f"{column}=")


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
    reasons: int = 0,
    source: str = "table",
    progress: Progress = lambda _: None,
) -> tuple[pl.DataFrame, ScoreReport]:
    """Return the table with `anomaly_score` and `is_anomaly` added, and a report.

    Rows and columns stay as they are; columns the model does not know are ignored. With `reasons`,
    so many columns `reason_1`, `reason_2`, ... say in words why flagged rows are flagged.
    """
    _check_rows(frame)
    _check_not_scored(frame, reasons)
    preparer, detector = _steps(model)
    with _collect_warnings() as notes:
        progress("Preparing the columns")
        matrix = preparer.transform(frame)
        progress("Scoring")
        scored = frame.hstack(_score_frame(detector, matrix))
    if reasons:
        progress("Finding reasons")
        scored = scored.hstack(_reason_columns(model, scored, reasons))
    ranked = _rank(scored.with_row_index(_free_name(frame.columns), 1))
    id = id if id in frame.columns else None
    report = ScoreReport(
        source=source,
        rows=frame.height,
        id=id,
        threshold=_threshold(detector),
        flagged=int(scored["is_anomaly"].sum()),
        top=_suspects(ranked.head(top), id),
        warnings=[str(note) for note in notes],
    )
    return scored, report


def _check_not_scored(frame: pl.DataFrame, reasons: int) -> None:
    added = (*SCORE_COLUMNS, *_reason_names(reasons))
    taken = [name for name in added if name in frame.columns]
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
        scored = frame.hstack(_score_frame(detector, preparer.transform(parsed)))
    id = id if id in frame.columns else None
    suspects = _suspects(_rank(scored.with_row_index(_free_name(scored.columns), 1)).head(rows), id)
    progress("Finding reasons")
    found = _explain_quietly(model, parsed[[suspect.row - 1 for suspect in suspects]])
    sampled = parsed.sample(min(parsed.height, _IMPORTANCE_ROWS), seed=0)
    report = ExplainReport(
        source=source,
        rows=frame.height,
        id=id,
        threshold=_threshold(detector),
        usual_score=found.base,
        importance=_explain_quietly(model, sampled).importance(),
        importance_rows=sampled.height,
        explained=[_explained(s, found, i, reasons) for i, s in enumerate(suspects)],
        warnings=[str(note) for note in notes],
    )
    return _reason_table(suspects, found, id), report


def _explain_quietly(model: Pipeline, frame: pl.DataFrame) -> Reasons:
    """Reasons, without saying once more what is new in these rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return explain_rows(model, frame)


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


def _reason_columns(model: Pipeline, scored: pl.DataFrame, n: int) -> pl.DataFrame:
    """The first reasons of flagged rows in words; blank for all others."""
    columns: list[list[str | None]] = [[None] * scored.height for _ in range(n)]
    flagged = np.flatnonzero(scored["is_anomaly"].to_numpy())
    if flagged.size:
        found = _explain_quietly(model, scored[flagged])
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
    _check_free(frame, ("anomaly_score", "reason"))
    preparer, detector = _steps(model)
    labelled, said = _labelled_rows(frame, label)
    with _collect_warnings() as notes:
        progress("Preparing the columns")
        matrix = preparer.transform(frame)
        progress("Choosing rows")
        found = suggest_rows(detector, matrix, n, y=np.where(labelled, NORMAL, UNLABELLED))
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


def _check_free(frame: pl.DataFrame, added: Sequence[str]) -> None:
    taken = [name for name in added if name in frame.columns]
    if taken:
        raise InputError(
            f"The table already has a column {enumerate_names(taken)}, under which results would "
            "be written. Rename the column or take it out."
        )


def _labelled_rows(frame: pl.DataFrame, label: str | None) -> tuple[NDArray[np.bool_], list[str]]:
    """Which rows have a label, and what is to be said of the column."""
    if label is None:
        return np.zeros(frame.height, dtype=bool), []
    if label not in frame.columns:
        said = f"there is no column {label!r} yet: no row counts as labelled"
        return np.zeros(frame.height, dtype=bool), [said]
    words = frame[label].cast(pl.String).str.strip_chars()
    return (~words.fill_null("").is_in(["", "unlabelled"])).to_numpy(), []


def _suggested(found: Suggestion, chosen: pl.DataFrame, id: str | None) -> list[SuggestedRow]:
    ids = chosen[id].cast(pl.String).to_list() if id is not None else [None] * len(found)
    parts = ((found.rows + 1).tolist(), ids, found.anomaly_score.tolist(), found.reasons)
    return [SuggestedRow(*line) for line in zip(*parts, strict=True)]
