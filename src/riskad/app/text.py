"""Reports as text for people and as JSON for machines.

Text goes through Rich: colours and width on a terminal, plain text when piped. Values from
tables are printed as they are, never read as markup, and control characters are shown, not sent.
"""

from __future__ import annotations

import json
import math
import shlex
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from riskad.app.demo import DemoReport, Quality
from riskad.app.onnx import ExportReport
from riskad.app.workflow import (
    SCORE_COLUMNS,
    ColumnEffect,
    ExplainedRow,
    ExplainReport,
    FitReport,
    ModelReport,
    PriorReport,
    ScoreReport,
    SuggestReport,
    Suspect,
    TableDrift,
    ThresholdReport,
)
from riskad.core.bounds import EstimationError, FittedBounds
from riskad.core.checks import with_article
from riskad.core.labels import LabelCounts
from riskad.core.risks import KIND_NAMES
from riskad.decisions.drift import say_shift
from riskad.decisions.ranking_metrics import Auc

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "model_lines",
    "print_bounds",
    "print_demo",
    "print_explain",
    "print_export",
    "print_fit",
    "print_model",
    "print_prior",
    "print_score",
    "print_suggest",
    "print_threshold",
    "quality_lines",
    "say_held_out",
    "to_json",
]

_LAMBDA_SOURCES = {
    "theorem": "by Theorem 1: the objective cannot be negative",
    "tight": "the smallest proved to keep the objective from being negative",
    "cv": "cross-validated on the labelled rows",
}
_INDENT = 10
_WIDEST = 100  # longer lines are hard to read, however wide the terminal
_LONGEST_CELL = 40
_MOST_INPUTS = 20
_MOST_DRIFTS = 10


# --- JSON --------------------------------------------------------------------------------


def to_json(report: Any, **more: Any) -> str:
    """Return a report as one JSON object; what is not a finite number becomes null.

    >>> from riskad.app.workflow import ScoreReport
    >>> print(to_json(ScoreReport("new.csv", 3, None, 0.5, 1, []), command="score"))
    {
      "command": "score",
      "source": "new.csv",
      "rows": 3,
      "id": null,
      "threshold": 0.5,
      "flagged": 1,
      "top": [],
      "warnings": [],
      "rule": "risk",
      "selection": "",
      "added": [
        "anomaly_score",
        "is_anomaly"
      ]
    }
    """
    return json.dumps(_finite(more | asdict(report)), indent=2, ensure_ascii=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return _finite(value.tolist())
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# --- text --------------------------------------------------------------------------------


def print_fit(console: Console, report: FitReport, written: Mapping[str, str]) -> None:
    """Print what a fit did; `written` holds the paths of the model and of the ranked rows."""
    _title(console, f"{report.source}: {report.rows:,} rows")
    _facts(
        console,
        {
            "Read": report.reading,
            "Labels": [f"{report.labels} (column {report.label!r})"],
            "Columns": report.preparation,
            "Model": model_lines(report.model, report.settings, report.fitted),
        },
    )
    _members(console, report.fitted)
    _facts(
        console,
        {
            "Quality": quality_lines(report.auc, report.why_no_auc, report.model, report.labels),
            "Weights": _effect_line(report),
            "Notes": report.warnings,
            "Flagged": [
                _say_flagged(
                    report.unlabelled_flagged, report.labels.unlabelled, "unlabelled rows"
                ),
                _say_threshold(report.fitted["threshold"], report.rule),
                *_rate_line(report.rate),
            ],
        },
    )
    _suspects(console, report.top, report.id)
    _facts(
        console,
        {
            "Written": [f"{path} ({what})" for what, path in written.items()],
            "Next": [
                _Command(f"riskad score {shlex.quote(written['model'])} new.csv -o scored.csv")
            ],
        },
    )


def print_score(console: Console, report: ScoreReport, path: str) -> None:
    """Print what scoring found; `path` is where the scored table went."""
    _title(console, f"{report.source}: {report.rows:,} rows scored")
    _facts(
        console,
        {
            "Flagged": [
                _say_flagged(report.flagged, report.rows, "rows"),
                report.selection or _say_threshold(report.threshold, report.rule),
            ],
            "Notes": report.warnings,
        },
    )
    _suspects(console, report.top, report.id)
    *first, last = report.added
    names = f"{', '.join(first)} and {last}"
    _facts(console, {"Written": [f"{path} (all columns, and {names})"]})


def print_explain(console: Console, report: ExplainReport, path: str | None) -> None:
    """Print why rows are suspicious; `path` is where all their columns went, if anywhere."""
    _title(console, f"{report.source}: {report.rows:,} rows scored")
    sizes = [f"{column} {size:.3g}" for column, size in list(report.importance.items())[:5]]
    _facts(
        console,
        {
            "Usual": [
                f"a row that is usual in every column scores {report.usual_score:.4g}",
                _say_threshold(report.threshold, report.rule),
            ],
            "Columns": [
                f"change the score, in {report.importance_rows:,} rows on average, by: "
                + ", ".join(sizes)
            ],
            "Notes": report.warnings,
        },
    )
    for explained in report.explained:
        _print(console)
        _facts(console, {"Row": _explained_lines(explained)})
    if path is not None:
        _print(console)
        _facts(console, {"Written": [f"{path} (every column of these rows)"]})


def _explained_lines(explained: ExplainedRow) -> list[str]:
    name = "" if explained.id is None else f" ({explained.id})"
    flagged = "" if explained.is_anomaly else ", not flagged"
    return [
        f"{explained.row:,}{name}: anomaly_score {explained.anomaly_score:.4g}{flagged}",
        *(f"- {reason}" for reason in explained.reasons),
        *_others_line(explained.others),
    ]


def _others_line(change: float) -> list[str]:
    if abs(change) < 1e-9:  # there are no others, or they hold what is usual
        return []
    does = f"add {change:.3g}" if change > 0 else f"take off {-change:.3g}"
    return [f"- all other columns {does}"]


def print_threshold(console: Console, report: ThresholdReport, path: str) -> None:
    """Print by what a model decides now; `path` is where it was written."""
    _title(console, f"threshold {report.rule} (before: {report.before})")
    _facts(
        console,
        {
            "Flagged": [
                _say_flagged(report.flagged, report.unlabelled, "unlabelled rows of the fit"),
                _say_threshold(report.threshold, report.rule),
            ],
            "Written": [path],
        },
    )


def print_export(console: Console, report: ExportReport, path: str) -> None:
    """Print what a graph takes and gives, and how it compares with the model."""
    _title(console, f"{path}: {with_article(report.model)} as an ONNX graph")
    listed = list(report.inputs.items())
    takes = [f"{name}: {what}" for name, what in listed[:_MOST_INPUTS]]
    takes += [f"and {len(listed) - _MOST_INPUTS} more"] * (len(listed) > _MOST_INPUTS)
    checked = "not compared with the model: onnxruntime is not installed"
    if report.largest_difference is not None:
        checked = (
            f"scores of {report.checked_rows:,} random rows differ from the model's by at most "
            f"{report.largest_difference:.1g}"
        )
    _facts(
        console,
        {
            "Takes": takes,
            "Gives": [", ".join(report.outputs)],
            "Checked": [checked],
            "Written": [f"{path} ({report.bytes:,} bytes)"],
        },
    )


def print_suggest(console: Console, report: SuggestReport, path: str | None) -> None:
    """Print which rows to label next, and where they went, if anywhere."""
    _title(console, f"{report.source}: {report.rows:,} rows, {report.labelled:,} labelled")
    _facts(console, {"Notes": report.warnings})
    head = ["row", *([report.id] if report.id else []), "anomaly_score", "reason"]
    rows = [
        [f"{s.row:,}", *([s.id or ""] if report.id else []), f"{s.anomaly_score:.4f}", s.reason]
        for s in report.suggested
    ]
    _table(console, "Label", head, rows, left={1, 3} if report.id else {2})
    if path is not None:
        _facts(console, {"Written": [f"{path} (these rows, all columns, to be labelled)"]})


def print_drift(console: Console, report: TableDrift) -> None:
    """Print whether rows have moved, and the columns that have moved most."""
    found = report.drift
    _title(console, f"{report.source}: {found.rows:,} rows, beside {found.pile:,} of the fit")
    rates = {}
    if found.rate is not None and found.rate_before is not None:
        rates = {"these rows": found.rate, "the pile": found.rate_before}
    lines = [
        f"{100 * pi_n:.1f} % of {of} (95% interval {100 * low:.1f} % to {100 * high:.1f} %)"
        for of, (pi_n, low, high) in rates.items()
    ]
    _facts(console, {"Verdict": [found.verdict], "Anomalies": lines, "Notes": report.warnings})
    head = ["column", "distance", "shift in SD", "p-value", "moved"]
    compared = [*found.columns, *([found.scores] if found.scores is not None else [])]
    largest = sorted(compared, key=lambda column: column.p_value)[:_MOST_DRIFTS]
    rows = [
        [
            column.name,
            f"{column.distance:.3f}",
            say_shift(column.shift).removesuffix(" SD"),
            f"{column.p_value:.2g}",
            _yes(column.moved),
        ]
        for column in largest
    ]
    _table(console, "Largest", head, rows, left={0})


def print_prior(console: Console, report: PriorReport) -> None:
    """Print the anomaly rate, what speaks for and against it, and how to use it."""
    _title(console, f"{report.source}: {report.rows:,} rows")
    _facts(
        console,
        {
            "Labels": [f"{report.labels} (column {report.label!r})"],
            "Columns": report.preparation,
            "Rate": [str(report.estimate)],
            "Check": [report.check.verdict],
            "Notes": report.warnings,
            "Next": [
                f"riskad fit with --model shallow --prior {_prior_to_pass(report.estimate.pi_p)}"
            ],
        },
    )


def _prior_to_pass(pi_p: float) -> str:
    """A prior lies strictly between 0 and 1; three digits are more than the interval knows."""
    return f"{min(max(pi_p, 0.001), 0.999):.3f}"


def print_model(console: Console, report: ModelReport, name: str) -> None:
    """Print what a model file holds."""
    header, training = report.header, report.training
    _title(console, f"{name}: {' and '.join(with_article(step) for step in report.steps)}")
    facts: dict[str, Iterable[str]] = {"Made": [_say_made(header.created, header.versions)]}
    if training:
        facts["Trained"] = _training_lines(training)
    facts["Columns"] = report.preparation
    if report.fitted:
        facts["Model"] = model_lines(report.steps[-1], report.settings, report.fitted)
        _facts(console, facts)
        _members(console, report.fitted)
        facts = {"Risk": _risk_lines(report.fitted)}
    else:
        facts["Settings"] = [f"{key} = {value!r}" for key, value in report.settings.items()]
    facts["Decides"] = _decision_lines(report.decision)
    effects = [ColumnEffect(**effect) for effect in training.get("effects", [])]
    facts["Weights"] = _effect_lines(effects[:10], training.get("effects_of", ""))
    facts["Versions"] = [", ".join(f"{key} {value}" for key, value in header.versions.items())]
    _facts(console, facts)


def print_bounds(console: Console, bounds: FittedBounds, name: str) -> None:
    """Print how far a model may be from the best of its class, and why."""
    error, sure = bounds.error, f"with probability {100 * (1 - bounds.delta):.4g} %"
    _title(console, f"{name}: {bounds.risk} risk, {bounds.loss} loss")
    _facts(
        console,
        {
            "Rows": [str(bounds.counts)],
            "Class": [
                f"weights of norm at most {bounds.C_w:.4g} (fitted: {bounds.weight_norm:.4g}), "
                f"over rows of norm at most {bounds.C_x:.4g}, both as standardised"
            ],
            "Risk": [
                f"{sure}, the risk of the fitted model exceeds that of the best model of its class "
                f"by at most {error.value:.4g} ({error.theorem})",
                _say_use(bounds),
            ],
            "Errors": [
                f"{sure}, its error rate at score 0 exceeds the lowest possible one by at most "
                f"{bounds.excess.value:.4g}, if the best score is in the class (corollary)",
                *(["vacuous: no error rate is further off"] if bounds.excess.vacuous else []),
            ],
        },
    )
    _print(console)
    _table(console, "Terms", *_term_rows(error), left={0})
    _facts(
        console,
        {
            "": [f"most comes from the {error.by_kind.largest} rows: more of them help most"],
            "Assumed": [
                f"{bounds.prior:.4g} of the rows are normal (prior); labelled rows are like those "
                "of their kind in the pile; rows to come are no longer than those seen; the solver "
                "has found the minimum"
            ],
        },
    )


def print_demo(console: Console, report: DemoReport) -> None:
    """Print the demonstration: what was done, how good it was, and what to type next."""
    _title(console, "A run on scikit-learn's breast cancer data: benign is normal")
    fit = report.fit
    _facts(
        console,
        {
            "Data": [
                f"samples.csv: {report.rows:,} rows, {fit.labels}",
                f"new.csv: {report.new_rows:,} rows without labels, of which "
                f"{report.new_anomalies} are malignant",
            ],
            "Did": map(_Command, report.commands),
            "Columns": fit.preparation,
            "Model": model_lines(fit.model, fit.settings, fit.fitted),
        },
    )
    _members(console, fit.fitted)
    _facts(
        console,
        {
            "Quality": quality_lines(fit.auc, fit.why_no_auc, fit.model, fit.labels),
            "Weights": _effect_line(fit),
            "Notes": [*fit.warnings, *report.score.warnings],
        },
    )
    _facts(
        console, {"Truth": ["of the new rows, beside an isolation forest, which uses no labels:"]}
    )
    methods = {"riskad": report.riskad, "isolation forest": report.isolation_forest}
    columns = [_quality_cells(quality) for quality in methods.values()]
    names = ["AUC", "  95% interval", "average precision", "right in top 10", "right if flagged"]
    _table(console, "", ["", *methods], list(zip(names, *columns, strict=True)), left={0, 1, 2})
    _print(console)
    command = "riskad fit data.csv --label COLUMN --normal VALUE --anomaly VALUE -o model.riskad"
    _facts(console, {"Yours": [_Command(command)], "": [_Command(report.commands[1])]})


def _quality_cells(quality: Quality) -> list[str]:
    return [
        f"{quality.auc.value:.3f}",
        f"{quality.auc.low:.3f} to {quality.auc.high:.3f}",
        f"{quality.average_precision:.3f}",
        f"{quality.top_right} of {quality.top}",
        f"{quality.flagged_right} of {quality.flagged}",
    ]


# --- lines -------------------------------------------------------------------------------


def model_lines(model: str, settings: Mapping[str, Any], fitted: Mapping[str, Any]) -> list[str]:
    """Say what was fitted, by the name of its class, and how it came about."""
    if "leaderboard" in fitted:
        return _average_lines(fitted)
    if "lambda" in fitted:
        return _linear_lines(settings, fitted)
    shapes = {"rounds": "boosted trees", "steps": "neural network"}
    for unit, shape in shapes.items():
        if unit in fitted:
            return [_say_risk(shape, settings), f"{fitted[unit]:,} {unit}"]
    return [model]


def _average_lines(fitted: Mapping[str, Any]) -> list[str]:
    members = [member for member in fitted["leaderboard"] if not member.get("left_out")]
    left_out = [member["member"] for member in fitted["leaderboard"] if member.get("left_out")]
    no_time = [f"left out, since time was short (--budget): {', '.join(left_out)}"]
    if len(members) == 1:
        only = f"one kind of detector ({members[0]['member']}), for which the time sufficed"
        return [only, *(no_time if left_out else [])]
    known = any(member["auc"] is not None for member in members)
    weighted = "weighted by held-out labels" if known else "of which no label could be held out"
    return [
        f"average of {len(members)} kinds of detector, {weighted}",
        *(no_time if left_out else []),
        f"learned from {fitted['rows']:,} rows",
    ]


def _say_risk(shape: str, settings: Mapping[str, Any]) -> str:
    """Say what was minimised, as far as the detector has such settings.

    >>> _say_risk("neural network", {"loss": "sigmoid", "prior": 0.8})
    'neural network, sigmoid loss, prior = 0.8 normal'
    """
    words = {"risk": "{} risk", "loss": "{} loss", "a": "a = {:g}", "prior": "prior = {:g} normal"}
    said = (words[name].format(settings[name]) for name in words if name in settings)
    return ", ".join([shape, *said])


def _linear_lines(settings: Mapping[str, Any], fitted: Mapping[str, Any]) -> list[str]:
    shape = "linear" if settings["feature_map"] is None else f"{settings['feature_map']} features"
    source = _LAMBDA_SOURCES.get(str(settings["lam"]), "as given")
    steps = "1 step" if fitted["iterations"] == 1 else f"{fitted['iterations']} steps"
    ending = {True: "converged", False: "not converged"}.get(fitted["converged"], "stopped")
    return [
        _say_risk(shape, settings),
        f"lambda = {fitted['lambda']:.4g} ({settings['penalty']}), {source}",
        f"{ending} after {steps} of {fitted['solver']} (optimality {fitted['optimality']:.1e})",
    ]


def _say_use(bounds: FittedBounds) -> str:
    """Say what a bound is good for."""
    error, zero = bounds.error, f"{bounds.zero_risk:.4g}, the risk of the score 0 for every row"
    if error.vacuous:
        return f"vacuous: no risk in this class exceeds {error.C_l:.4g} in the first place"
    if error.value >= bounds.zero_risk:
        return f"of little use: it is above {zero}"
    return f"of use: it is below {zero}"


def _term_rows(error: EstimationError) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table of terms."""
    rows = []
    for kind in KIND_NAMES.values():
        parts = [getattr(part, kind) for part in (error.complexity, error.chance)]
        rows.append([f"{kind} rows", *(f"{part:.4g}" for part in (*parts, sum(parts)))])
    bias = [["bias of the guard", "", "", f"{error.bias:.4g}"]] if error.bias else []
    return ["", "complexity", "chance", "both"], [*rows, *bias]


def _risk_lines(fitted: Mapping[str, Any]) -> list[str]:
    parts = [f"{name}: {value:.4g}" for name, value in fitted.get("risk_parts", {}).items()]
    objective = [f"objective: {fitted['objective']:.4g}"] if "objective" in fitted else []
    return [*objective, *parts]


def quality_lines(
    auc: Auc | None, why_not: str, model: str, labels: LabelCounts | None
) -> list[str]:
    """Say how well labelled rows are ranked, or why that is not known.

    `labels` are those of the fit; those of the AUC are fewer where not all were held out.
    """
    if auc is None:
        return [f"no AUC on labelled rows: {why_not}"]
    held_out = auc.n_normal + auc.n_anomaly
    labelled = held_out if labels is None else labels.normal + labels.anomaly
    rows = f"the {held_out:,}" if held_out == labelled else f"{held_out:,} of the {labelled:,}"
    return [f"{_say_auc(auc)} on {rows} labelled rows, {say_held_out(model)}"]


def say_held_out(model: str) -> str:
    """Say what labelled rows were scored by."""
    if model == "AutoRAD":
        return (
            "each scored by members that had not seen its label; but their weights and settings "
            "were chosen on these labels, so that new rows may be ranked somewhat worse"
        )
    return "each scored by a fit that had not seen its label"


def _say_auc(auc: Auc) -> str:
    return f"AUC {auc.value:.3f} (95% interval {auc.low:.3f} to {auc.high:.3f})"


def _effect_line(report: FitReport) -> list[str]:
    """Say which columns move the score farthest."""
    listed = ", ".join(f"{each.column} ({each.suspicious})" for each in report.effects[:5])
    where = f" in {report.effects_of}" if "suspicious" in report.effects_of else ""
    return [f"largest{where}, with what is suspicious: {listed}"] if listed else []


def _effect_lines(effects: Sequence[ColumnEffect], rows: str) -> list[str]:
    """Say how far columns move the score, the farthest first."""
    lines = [f"{e.column}: {e.effect:.3f}, suspicious when {e.suspicious}" for e in effects]
    return [*lines, f"(means over {rows})"] if lines and rows else lines


def _say_flagged(flagged: int, n_rows: int, what: str) -> str:
    share = f" ({flagged / n_rows:.1%})" if n_rows else ""
    return f"{flagged:,} of {n_rows:,} {what}{share} look anomalous"


def _say_threshold(threshold: float | None, rule: str) -> str:
    return f"is_anomaly where anomaly_score > {threshold:.4g} (threshold {rule})"


def _rate_line(rate: Sequence[float] | None) -> list[str]:
    if rate is None:
        return []
    return [f"estimated anomaly rate {rate[0]:.1%} (95% interval {rate[1]:.1%} to {rate[2]:.1%})"]


def _decision_lines(decision: Mapping[str, Any]) -> list[str]:
    """Say by what a model decides and what other rules can rest on."""
    if not decision:
        return []
    lines = [_say_threshold(decision["threshold"], decision["rule"])]
    if "normals" in decision:
        n, m = decision["normals"], decision["anomalies"]
        lines.append(
            f"calibrated on {n:,} normal rows and {m:,} anomalies that were held out"
            + (f"; no p-value below {1 / (n + 1):.2g}" if n > 1 else "")
        )
    return lines + _rate_line(decision.get("rate"))


def _say_made(created: str, versions: Mapping[str, str]) -> str:
    day, _, time = created.partition("T")
    return f"{day} {time[:5]} UTC by riskad {versions.get('riskad', '?')}"


def _training_lines(training: Mapping[str, Any]) -> list[str]:
    labels = LabelCounts(**training["labels"])
    auc = Auc(**training["auc"]) if training["auc"] else None
    return [
        f"on {training['source']}: {training['rows']:,} rows, {labels} "
        f"(column {training['label']!r})",
        *training.get("reading", []),
        *quality_lines(auc, training["why_no_auc"], training.get("model", ""), labels),
    ]


# --- layout ------------------------------------------------------------------------------


class _Command(str):
    """A line to be copied: never broken."""


def _clean(text: object) -> str:
    r"""Show control characters instead of sending them to the terminal.

    >>> print(_clean("a\x1b[31mb"))
    a\x1b[31mb
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))


def _print(console: Console, *parts: tuple[str, str]) -> None:
    """Print (text, style) pairs as one line, which only the terminal may break."""
    from rich.text import Text

    console.print(Text.assemble(*parts), soft_wrap=True)


def _title(console: Console, text: str) -> None:
    _print(console, (_clean(text), "bold"))
    _print(console)


def _facts(console: Console, facts: Mapping[str, Iterable[str]]) -> None:
    """Print names and their lines in two columns; a name without lines is left out."""
    for name, lines in facts.items():
        heads = chain([name], repeat(""))
        for line in chain.from_iterable(_wrap(console, line) for line in lines):
            _print(console, (f"{next(heads):<{_INDENT}}", "cyan"), (line, ""))


def _wrap(console: Console, line: str) -> list[str]:
    if isinstance(line, _Command):
        return [_clean(line)]
    width = min(console.width, _WIDEST) - _INDENT
    wrapper = textwrap.TextWrapper(width, subsequent_indent="  ", break_on_hyphens=False)
    return [piece for part in line.splitlines() for piece in wrapper.wrap(_clean(part))]


def _table(
    console: Console,
    name: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: Collection[int],
) -> None:
    """Print a table beside its name, columns to the right except those counted in `left`."""
    from rich.cells import cell_len, set_cell_size

    cells = [[_shorten(_clean(cell)) for cell in row] for row in (head, *rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    for i, row in enumerate(cells):
        padded = [
            set_cell_size(cell, width) if j in left else " " * (width - cell_len(cell)) + cell
            for j, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        beside = f"{'' if i else name:<{_INDENT}}"
        _print(console, (beside + "  ".join(padded).rstrip(), "" if i else "cyan"))


def _members(console: Console, fitted: Mapping[str, Any]) -> None:
    """Print the members of an average, with their weights."""
    rows = [
        [
            each["member"],
            f"{each['weight']:.2f}",
            "" if each["auc"] is None else f"{each['auc']:.3f}",
        ]
        for each in fitted.get("leaderboard", [])
        if not each.get("left_out")
    ]
    if rows:
        _table(console, "", ["member", "weight", "held-out AUC"], rows, left={0})


def _shorten(cell: str) -> str:
    return cell if len(cell) <= _LONGEST_CELL else cell[: _LONGEST_CELL - 1] + "\u2026"


def _suspects(console: Console, suspects: Sequence[Suspect], id: str | None) -> None:
    if not suspects:
        return
    head = ["row", *([id] if id else []), *SCORE_COLUMNS]
    rows = [
        [f"{s.row:,}", *([s.id or ""] if id else []), f"{s.anomaly_score:.4f}", _yes(s.is_anomaly)]
        for s in suspects
    ]
    _table(console, f"Top {len(rows)}", head, rows, left={1} if id else ())


def _yes(value: bool) -> str:
    return "yes" if value else "no"
