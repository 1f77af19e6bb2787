"""The sections of a report on a fit, on a model, or on a table that a model scored.

`SECTIONS` is the one list that the page, the terminal and the model card walk: the page and the
card from the first to the last, the terminal in reverse, so that what matters most is nearest to
the prompt. To show another fact, add a field to `riskad.app.fit_report.FitReport` and a line here.
"""

from __future__ import annotations

import inspect
from dataclasses import fields

from riskad.app.fit_report import FitReport, ModelBefore
from riskad.app.reasons import show_value
from riskad.app.report.blocks import (
    AT_LENGTH,
    PAGE,
    TERMINAL,
    Beside,
    Block,
    Card,
    Cards,
    Command,
    Details,
    Figure,
    Lines,
    Note,
    Section,
    Table,
    Tiles,
)
from riskad.app.report.charts import (
    curve_chart,
    distribution_chart,
    found_chart,
    rate_chart,
    reliability_chart,
)
from riskad.app.report.wording import (
    auc_cell,
    auc_is_vague,
    cost_lines,
    flagged_line,
    flagged_lines,
    found_is_vague,
    label_line,
    percent,
    quality_lines,
    rate_cell,
    rate_lines,
    review_cells,
    sampling_lines,
    share_is_vague,
    threshold_line,
    too_few_labels,
    top_lines,
)
from riskad.app.results import SCORE_COLUMNS, Suspect
from riskad.app.spec import FitSpec
from riskad.core.checks import InputError
from riskad.core.labels import LabelCounts
from riskad.decisions.thresholds import parse_threshold
from riskad.detectors.registry import DETECTORS

_FEW_ANOMALIES = 10
_MOST_EFFECTS, _MOST_EFFECTS_IN_BRIEF = 10, 5
_FOLDED = ("page", "card")  # too long for a terminal


# --- what matters most --------------------------------------------------------------------


def in_short(report: FitReport) -> list[Block]:
    """What matters most, in a few sentences and numbers."""
    lines = []
    if report.flagged_of:
        rows = "rows" if report.trained_on else "unlabelled rows"
        expected = None if report.review is None else report.review.flagged
        likely = 0 if report.review is None else report.review.likely
        lines = [
            flagged_line(report.flagged, report.flagged_of, rows),
            *flagged_lines(expected, report.flagged, report.labels, likely),
        ]
    return [Lines(lines, is_text=True), Note(_quality_in_short(report)), Tiles(_tiles(report))]


def _quality_in_short(report: FitReport) -> str:
    if report.auc is None:
        return f"The labels cannot say how good the model is: {report.why_no_auc}."
    if auc_is_vague(report.auc):
        line = too_few_labels("whether the order of the rows is better than chance")
        return f"{line[:1].upper()}{line[1:]}."
    return (
        "Of a labelled anomaly and a labelled normal row, both held out, the anomaly scores higher "
        f"in {percent(report.auc.value)} of cases ({_interval(report.auc)})."
    )


def _interval(estimate: object) -> str:
    return "95% interval {} to {}".format(*(percent(getattr(estimate, e)) for e in ("low", "high")))


def _tiles(report: FitReport) -> list[tuple[str, str, str]]:
    tiles = []
    if report.flagged_of:
        share = f"of {report.flagged_of:,} rows ({percent(report.flagged / report.flagged_of)})"
        tiles.append(("Flagged", f"{report.flagged:,}", share))
    if report.review is not None and report.flagged and not found_is_vague(report.review.flagged):
        precision = report.review.flagged.precision
        tiles.append(("Anomalies among these", percent(precision.value), _interval(precision)))
    if report.auc is not None and not auc_is_vague(report.auc):
        ends = f"95% interval {report.auc.low:.3f} to {report.auc.high:.3f}"
        tiles.append(("AUC on labelled rows", f"{report.auc.value:.3f}", ends))
    rate = report.rate
    if rate is not None and not share_is_vague(rate.low, rate.high):
        name = "Anomaly rate of the fit" if report.trained_on else "Anomaly rate"
        ends = "as given" if rate.low == rate.high else _interval(rate)
        tiles.append((name, percent(rate.value), ends))
    if report.labels is not None:
        n, m, unlabelled = report.labels.normal, report.labels.anomaly, report.labels.unlabelled
        others = f"and {unlabelled:,} unlabelled rows"
        tiles.append(("Labelled: normal + anomalies", f"{n:,} + {m:,}", others))
    return tiles


def warnings(report: FitReport) -> list[Block]:
    """What the user should know."""
    return [Lines(report.warnings)]


def model_before(report: FitReport) -> list[Block]:
    """The model beside the one before it, after a refit."""
    before = report.before
    if before is None:
        return []
    labels, labels_before = report.labels or LabelCounts(0, 0, 0), before.labels
    rows = [
        ["made", before.created[:10], report.created[:10] or "now"],
        ["from", before.source, report.source],
        ["rows", f"{before.rows:,}", f"{report.rows:,}"],
        ["labelled normal", f"{labels_before.normal:,}", f"{labels.normal:,}"],
        ["labelled anomalies", f"{labels_before.anomaly:,}", f"{labels.anomaly:,}"],
        ["AUC, own held-out labels", auc_cell(before.auc), auc_cell(report.auc)],
        ["anomaly rate", rate_cell(before.rate), rate_cell(report.rate)],
        ["threshold", before.rule, report.rule],
        ["unlabelled rows flagged", f"{before.flagged:,}", f"{report.flagged:,}"],
    ]
    both = before.comparison
    if both is not None:
        n, m = both.difference.n_normal, both.difference.n_anomaly
        old, new = both.before, both.after
        rows += [
            ["AUC, the same labels", auc_cell(old.auc), auc_cell(new.auc)],
            ["anomalies flagged", *(f"{each.anomalies_flagged:,} of {m:,}" for each in (old, new))],
            ["normal rows flagged", *(f"{each.normals_flagged:,} of {n:,}" for each in (old, new))],
        ]
    return [
        Lines([before.verdict], is_text=True, name="Verdict"),
        Lines(_difference(before), is_text=True, name="Differ"),
        Table(["", "before", "after"], rows, right=(1, 2), name="Models"),
    ]


def _difference(before: ModelBefore) -> list[str]:
    if before.comparison is None:
        return []
    difference = before.comparison.difference
    return [
        f"AUC {difference.value:+.3f} (95% interval {difference.low:+.3f} to "
        f"{difference.high:+.3f}) on {difference.n_normal:,} normal rows and "
        f"{difference.n_anomaly:,} anomalies: {before.comparison.rests_on}"
    ]


# --- rows ---------------------------------------------------------------------------------


def suspicious_rows(report: FitReport) -> list[Block]:
    """The most suspicious rows, each with the columns that add most to its score."""
    if not report.top:
        return []
    usual = ""
    if report.usual_score is not None:
        usual = (
            ", each with the columns that raise its score most, compared with a usual row, which "
            f"scores {report.usual_score:.3g}"
        )
    about = (
        f"{'The rows' if report.trained_on else 'The unlabelled rows'} with the highest anomaly "
        f"scores{usual}. Rows that score above {report.threshold:.3g} are flagged (threshold "
        f"{report.rule}). Row numbers start at 1 below the header."
    )
    # Beside "too few labels to tell", a probability of 99.9% would be a promise.
    is_vague = report.review is not None and found_is_vague(report.review.table[0])
    largest = max((reason.adds for row in report.top for reason in row.reasons), default=1.0)
    cards = [_row_card(row, largest, with_probability=not is_vague) for row in report.top]
    return [Note(about), Cards(cards), suspects_table(report.top, report.spec.id, "Top")]


def _row_card(row: Suspect, largest: float, with_probability: bool) -> Card:
    facts = [f"score {row.anomaly_score:.3g}"]
    if with_probability and row.anomaly_probability is not None:
        facts.append(f"probability {_likely(row.anomaly_probability)}")
    if row.novelty is not None:
        facts.append(f"novelty {row.novelty:.2g}")
    reasons: Block = Note("No column raises its score.")
    if row.reasons:
        cells = [
            [each.column, show_value(each.value), show_value(each.usual), f"{each.adds:.3g}"]
            for each in row.reasons
        ]
        bars = _bars([each.adds for each in row.reasons], largest)
        reasons = Table(["column", "value", "usual", "adds"], cells, bars=bars)
    return Card(
        title=f"Row {row.row:,}" + ("" if row.id is None else f": {row.id}"),
        badge="flagged" if row.is_anomaly else "not flagged",
        style="flag" if row.is_anomaly else "",
        blocks=[Note(", ".join(facts)), reasons],
    )


def _likely(probability: float) -> str:
    """A probability, which is never 0 or 1."""
    if 0.001 <= probability <= 0.999:
        return percent(probability)
    return "below 0.1%" if probability < 0.5 else "above 99.9%"


def _bars(values: list[float], largest: float) -> list[float]:
    return [min(max(value / largest, 0.0), 1.0) if largest > 0 else 0.0 for value in values]


def suspects_table(suspects: list[Suspect], id: str | None, name: str) -> Table:
    """Return the most suspicious rows, the first first, for a terminal."""
    has_novelty = suspects[0].novelty is not None
    head = ["row", *([id] if id else []), *SCORE_COLUMNS, *(["novelty"] if has_novelty else [])]
    rows = [
        [
            f"{each.row:,}",
            *([each.id or ""] if id else []),
            f"{each.anomaly_score:.4f}",
            "yes" if each.is_anomaly else "no",
            *([f"{each.novelty:.2f}"] if has_novelty else []),
        ]
        for each in suspects
    ]
    right = [i for i in range(len(head)) if not (id and i == 1)]
    return Table(head, rows, right=right, on=TERMINAL, name=f"{name} {len(rows)}")


def rows_reviewed(report: FitReport) -> list[Block]:
    """How many anomalies a review of the highest scores finds, and what it costs."""
    expected = [] if report.capacity is None else [str(report.capacity)]
    review = report.review
    if review is None:
        return [Lines(expected, is_text=True, name="Expect")]
    about = (
        "What a reviewer finds who goes through the "
        f"{'rows of this table' if report.trained_on else 'unlabelled rows'} from the highest "
        f"score down, estimated from {review.anomalies.n_anomaly:,} labelled anomalies and "
        f"{review.anomalies.n_normal:,} labelled normal rows that were held out. The 95% intervals "
        "are for the number that will be counted."
    )
    expected += cost_lines(review.cost)
    cells = review_cells(review)
    if not cells:
        few = too_few_labels("how many of the highest scores are anomalies")
        return [
            Note(about),
            Lines(expected, is_text=True, name="Expect"),
            Lines([few], is_text=True, on=PAGE),
        ]
    head = ["rows", "anomalies", "share of all", "precision", "by chance"]
    table = Table(head, cells, right=range(5))
    caption = (
        "Anomalies found against rows looked at, with 95% intervals. The point marks the "
        "threshold; the dotted line is a random choice of rows."
    )
    figure = Figure(found_chart(review), caption)
    return [Note(about), Beside([table, figure]), Lines(expected, is_text=True, name="Expect")]


def decision(report: FitReport) -> list[Block]:
    """Which rows are flagged, and by which rule."""
    if not report.rule:
        return []
    meaning = (parse_threshold(report.rule).__doc__ or "").splitlines()[0].split(".")[0]
    lines = [f"threshold {report.rule}: {meaning[:1].lower()}{meaning[1:]}"]
    if report.calibrated_on is not None:
        n, m = report.calibrated_on.normal, report.calibrated_on.anomaly
        smallest = f"; the smallest possible p-value is {1 / (n + 1):.2g}" if n > 1 else ""
        lines.append(f"calibrated on {n:,} normal rows and {m:,} anomalies, all held out{smallest}")
    return [
        Lines([threshold_line(report.threshold, report.rule)], is_text=True),
        Lines(lines, is_text=True, on=AT_LENGTH),
    ]


def scores(report: FitReport) -> list[Block]:
    """How the scores spread."""
    if report.distribution is None:
        return []
    kinds = report.distribution.kinds
    caption = ["Anomaly scores from left (usual) to right (anomalous)."]
    if any(kind.scores for kind in kinds):
        caption.append("Each tick is one row.")
    if not all(kind.scores for kind in kinds):
        caption.append(
            "Bar heights grow with the square root of the number of rows, so that few rows stay "
            "visible; the highest bar of each kind has the same height."
        )
    if report.evidence:
        caption.append(f"Each labelled row was {report.evidence}.")
    caption.append("The outermost bars also count the rows beyond them.")
    chart = distribution_chart(report.distribution, report.threshold)
    return [Figure(chart, " ".join(caption))]


# --- quality ------------------------------------------------------------------------------


def quality(report: FitReport) -> list[Block]:
    """How well held-out labelled rows are separated."""
    lines = quality_lines(report.auc, report.why_no_auc, report.evidence, report.labels)
    blocks: list[Block] = [Lines(lines + top_lines(report.review), is_text=True)]
    if report.trained_on:
        about = f"These are labelled rows of {report.trained_on}, to which the model was fitted."
        blocks.append(Note(f"{about} Labels in this table, if any, were not read."))
    curves = report.quality
    if curves is None:
        return blocks
    if curves.why_no_reliability:
        why = curves.why_no_reliability
        blocks.append(Note(f"Probabilities could not be compared with labels: {why}."))
    names, rate = ("false alarm rate", "anomalies found"), curves.precision_rate
    roc = curve_chart(curves.roc, report.threshold, *names, [(0.0, 0.0), (1.0, 1.0)])
    chance = [(0.0, rate), (1.0, rate)]
    precision = curve_chart(
        curves.precision_recall, report.threshold, "recall", "precision", chance
    )
    figures = [
        Figure(
            roc,
            "ROC with 95% intervals: the share of labelled anomalies found against the share of "
            "labelled normal rows flagged. The point marks the threshold; the dotted line is "
            "chance.",
        ),
        Figure(
            precision,
            f"Precision if {percent(rate)} of all rows are anomalies, against the share of "
            "anomalies found, with conservative 95% intervals.",
        ),
    ]
    if curves.reliability is not None:
        caption = (
            "Reliability: of labelled rows with some predicted probability, the share that are "
            "anomalies, at the estimated anomaly rate. On the dotted line predictions are right."
        )
        figures.append(Figure(reliability_chart(curves.reliability), caption))
    return [*blocks, Beside(figures)]


def over_time(report: FitReport) -> list[Block]:
    """How quality and the share of anomalies among labelled rows move over time."""
    if not report.over_time:
        return []
    about = (
        "The labelled rows of each period are ranked by a fit to all rows before it; the first "
        "period is only learned from. Shares of anomalies are those among labelled rows, which "
        "hold for all rows only if rows were labelled at random."
    )
    rows = []
    for period in report.over_time:
        labelled = period.normal + period.anomaly
        share = f"{period.anomaly:,} ({percent(period.anomaly / (labelled or 1))})"
        auc = auc_cell(period.auc) or "not judged"
        rows.append([period.start, period.end, f"{period.rows:,}", f"{labelled:,}", share, auc])
    head = ["from", "to", "rows", "labelled", "anomalies", "AUC"]
    return [Note(about), Table(head, rows, right=range(2, 6))]


def anomaly_rate(report: FitReport) -> list[Block]:
    """The estimated anomaly rate, and the rate that the fit assumed."""
    rate = report.rate
    if rate is None:
        why = "an estimate takes labelled rows of both kinds, and unlabelled ones"
        given = "if you know the rate, say so: --anomaly-rate"
        return [Lines([f"not known: {why}", given], on=_FOLDED, is_text=True)]
    assumed, lines = None, []
    prior = report.settings.get("prior")
    if isinstance(prior, float):
        assumed = 1 - prior
        lines = [f"the fit assumed {percent(assumed)}"]
        if not rate.low <= assumed <= rate.high:
            # Strictly between 0 and 1; three digits are more precise than the interval.
            better = min(max(1 - rate.value, 0.001), 0.999)
            lines[0] += f"; consider setting prior to {better:.3f}"
    return [
        Lines(rate_lines(rate) + sampling_lines(report.labels_random_p), is_text=True),
        Lines(
            [*lines, "the rate is that of the unlabelled rows of the fit"], is_text=True, on=PAGE
        ),
        Figure(rate_chart((rate.value, rate.low, rate.high), assumed)),
    ]


def limits(report: FitReport) -> list[Block]:
    """What the model cannot know, and what its file holds."""
    counts = report.labels or report.calibrated_on
    lines = []
    if counts is not None and counts.anomaly:
        m = counts.anomaly
        if m < _FEW_ANOMALIES:
            few = "1 labelled anomaly is" if m == 1 else f"{m} labelled anomalies are"
            lines.append(f"{few} few: intervals are wide, and decisions uncertain")
        lines.append("the model has learned the labelled kinds of anomaly; others may rank low")
    lines += [
        "rate, probabilities and threshold hold for rows like the training rows; `riskad drift` "
        "tells whether new rows differ",
        "the model holds no training rows, but names, levels and quantiles of columns"
        if not report.kept_rows
        else f"the model holds {report.kept_rows:,} training rows, standardised, which scoring "
        "needs: share it only with people who may see them",
    ]
    return [Lines(lines, on=AT_LENGTH)]


# --- the model ----------------------------------------------------------------------------


def model(report: FitReport) -> list[Block]:
    """What was fitted, the columns that move its scores, and all its settings."""
    tables = [*_members(report), *_effects(report), *_risk(report)]
    listed = ", ".join(
        f"{each.column} ({each.suspicious})" for each in report.effects[:_MOST_EFFECTS_IN_BRIEF]
    )
    where = f" in {report.effects_of}" if "suspicious" in report.effects_of else ""
    brief = f"columns that move the score most{where}, with suspicious values: {listed}"
    settings = _settings(report)
    return [
        Lines(report.summary),
        Beside(tables),
        Lines([brief] if listed else [], on=("brief",), name="Effects"),
        Details(f"All settings of {report.model}", [settings] if settings.rows else []),
    ]


def _members(report: FitReport) -> list[Table]:
    rows = [
        [
            each["member"],
            f"{each['weight']:.2f}",
            "" if each["auc"] is None else f"{each['auc']:.3f}",
            "" if each.get("error") is None else f"{each['error']:.3f}",
            f"{each['seconds']:.1f}",
        ]
        for each in report.fitted.get("leaderboard", [])
        if not each.get("left_out")
    ]
    head = ["member", "weight", "held-out AUC", "standard error", "seconds"]
    table = Table(head, rows, right=range(1, 5), on=AT_LENGTH, title="Members of the average")
    return [table] if rows else []


def _effects(report: FitReport) -> list[Table]:
    effects = report.effects[:_MOST_EFFECTS]
    if not effects:
        return []
    rows = [[each.column, each.suspicious, f"{each.effect:.3g}"] for each in effects]
    bars = _bars([each.effect for each in effects], max(each.effect for each in effects))
    where = f", in {report.effects_of}" if report.effects_of else ""
    title = f"Columns that move the score most{where}"
    head = ["column", "suspicious when", "moves score by"]
    return [Table(head, rows, bars=bars, on=AT_LENGTH, title=title, name="Effects")]


def _risk(report: FitReport) -> list[Table]:
    parts = dict(report.fitted.get("risk_parts", {}))
    if "objective" in report.fitted:
        parts["objective, with the penalty"] = report.fitted["objective"]
    rows = [[name, f"{part:.4g}"] for name, part in parts.items()]
    title = "Parts of the estimated risk"
    table = Table(["part", "risk"], rows, right=(1,), on=AT_LENGTH, title=title, name="Risk")
    return [table] if rows else []


def _settings(report: FitReport) -> Table:
    entry = DETECTORS.get(report.spec.model)
    defaults = {}
    if report.settings and entry is not None and entry.load().__name__ == report.model:
        parameters = inspect.signature(entry.load()).parameters.values()
        defaults = {each.name: str(each.default) for each in parameters}
    rows = [[name, str(value), defaults.get(name, "")] for name, value in report.settings.items()]
    # A terminal has no room for them, unless nothing else is known of the model.
    on = _FOLDED if report.summary else AT_LENGTH
    return Table(["setting", "value", "default"], rows, on=on, name="Settings")


# --- data and origin ----------------------------------------------------------------------


def columns(report: FitReport) -> list[Block]:
    """What was done to the columns."""
    rows = [[name, kind, report.column_uses.get(name, "")] for name, kind in report.columns.items()]
    table = Table(["column", "kind", "what becomes of it"], rows, on=_FOLDED)
    blocks: list[Block] = [Details("How they were read", [Lines(report.preparation)])]
    return [table, *blocks] if rows else blocks


def data(report: FitReport) -> list[Block]:
    """The rows and labels that were learned from, and what the fit was told."""
    if report.labels is None:
        why = "not known: the model was saved from Python, not made by `riskad fit`"
        return [Lines([why], on=AT_LENGTH)]
    rows = f"fitted to {report.trained_on}"
    if not report.trained_on:
        rows = f"{report.rows:,} rows of {report.source}"
    usual = FitSpec()
    told = [
        [each.name, show_option(value)]
        for each in fields(FitSpec)
        if (value := getattr(report.spec, each.name)) != getattr(usual, each.name)
    ]
    options = [Table(["option", "value"], told, on=_FOLDED)] if told else []
    return [
        Lines([rows], on=_FOLDED),
        Lines([label_line(report.labels, report.spec.label)]),
        Lines(report.reading, name="Read"),
        Details("What the fit was told", options),
    ]


def show_option(value: object) -> str:
    """Write the value of an option.

    >>> show_option(("ok", "fine")), show_option({"when": "date"}), show_option(True)
    ('ok, fine', 'when=date', 'yes')
    """
    if isinstance(value, dict):
        return ", ".join(f"{name}={each}" for name, each in value.items())
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "yes" if value is True else str(value)


def origin(report: FitReport) -> list[Block]:
    """How the report and the model were made."""
    version = report.versions.get("riskad", "?")
    lines = []
    if report.created:
        versions = ", ".join(f"{name} {each}" for name, each in report.versions.items())
        lines = [f"model saved {minute(report.created)} by riskad {version}", f"with {versions}"]
    return [
        *([Command(report.command)] if report.command else []),
        Lines(lines, is_text=True, on=AT_LENGTH, name="Created"),
    ]


def minute(time: str) -> str:
    """Write the minute of an ISO time.

    >>> minute("2026-01-31T12:34:56+00:00")
    '2026-01-31 12:34 UTC'
    """
    day, _, rest = time.partition("T")
    return f"{day} {rest[:5]} UTC"


SECTIONS = [
    Section("In short", "Flagged", in_short, style="headline"),
    Section("Warnings", "Notes", warnings, style="warnings"),
    Section("Compared with the model before", "Before", model_before),
    Section("Most suspicious rows", "Top", suspicious_rows),
    Section("Rows reviewed and anomalies found", "Look at", rows_reviewed),
    Section("Decision", "Decision", decision),
    Section("Scores", "Scores", scores),
    Section("Quality", "Quality", quality),
    Section("Over time", "Over time", over_time),
    Section("Anomaly rate", "Rate", anomaly_rate),
    Section("Limits", "Limits", limits),
    Section("Model", "Model", model),
    Section("Columns", "Columns", columns),
    Section("Data", "Labels", data),
    Section("How this report was made", "Made", origin),
]
"""In the order of the page."""


def add_section(section: Section) -> Section:
    """Add a section to the end of every later page and card, and to the top of the terminal.

    Returns
    -------
    Section
        The section itself.

    Examples
    --------
    >>> def blocks(report):
    ...     return [Lines([f"a seed of {report.spec.seed}"])]
    >>> _ = add_section(Section("Chance", "Chance", blocks))
    >>> del SECTIONS[-1]
    """
    if any(section.title == other.title for other in SECTIONS):
        raise InputError(
            f"There is a section {section.title!r} already: give the new one another title, or "
            "take the other out of SECTIONS first."
        )
    SECTIONS.append(section)
    return section
