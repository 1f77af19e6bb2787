"""The sections of reports: on a fit, a model, a table that a model scored, and a look at a table.

`SECTIONS` is the one list that the page, the terminal and the model card walk: the page and the
card from the first to the last, the terminal in reverse, so that what matters most is nearest to
the prompt. To show another fact, add a field to `riskad.app.fit_report.FitReport` and a line here.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from riskad.app.fit_report import FitReport, few_anomalies
from riskad.app.label_issues import MOST_SHOWN
from riskad.app.reasons import show_value
from riskad.app.report import charts, wording
from riskad.app.report.blocks import (
    AT_LENGTH,
    TERMINAL,
    Block,
    Card,
    Cards,
    Figure,
    Group,
    Lines,
    Note,
    Pictures,
    Section,
    Table,
    Tiles,
)
from riskad.app.spec import FitSpec
from riskad.core.checks import InputError
from riskad.core.labels import LabelCounts
from riskad.decisions.segments import MOST_SHOWN as MOST_SEGMENTS
from riskad.decisions.thresholds import parse_threshold

if TYPE_CHECKING:
    from riskad.app.look import TableLook

_FEW_ANOMALIES = 10
_MOST_EFFECTS, _MOST_EFFECTS_IN_BRIEF = 10, 5
_MOST_DIFFERENCES = 12  # columns whose values are compared on a terminal
_PAGE = ("page",)
_WRITTEN = ("page", "card")  # where there is room for long tables


# --- what matters most --------------------------------------------------------------------


def _in_short(report: FitReport) -> list[Block]:
    auc, rate, review, percent = report.auc, report.rate, report.review, wording.percent
    lines, tiles = [], []
    if report.flagged_of:
        rows = f"{report.spec.unit}s" if report.trained_on else f"unlabelled {report.spec.unit}s"
        lines = [wording.flagged_line(report.flagged, report.flagged_of, rows)]
        expected, likely = (None, 0) if review is None else (review.flagged, review.likely)
        if report.spec.threshold_by is None:  # otherwise the table of segments tells
            lines += wording.flagged_lines(expected, report.flagged, report.labels, likely)
        share = percent(report.flagged / report.flagged_of)
        share = f"of {report.flagged_of:,} {report.spec.unit}s ({share})"
        tiles.append(("Flagged", f"{report.flagged:,}", share))
    if review is not None and report.flagged and not wording.top_is_vague(review.flagged):
        precision = review.flagged.precision
        ends = wording.interval(precision)
        tiles.append(("Anomalies among these", percent(precision.value), ends))
    if auc is None:
        quality = f"the labels do not show how good the model is: {report.why_no_auc}"
    elif wording.is_vague(auc):
        quality = wording.too_few_labels("whether the order of the rows is better than chance")
    else:
        quality = (
            "of a labelled anomaly and a labelled normal row, both held out, the anomaly scores "
            f"higher in {percent(auc.value)} of cases ({wording.interval(auc)})"
        )
        tiles.append(("AUC on labelled rows", f"{auc.value:.3f}", wording.interval(auc, ".3f")))
    if rate is not None and not wording.is_vague(rate):
        name = "Anomaly rate of the fit" if report.trained_on else "Anomaly rate"
        ends = "as given" if rate.low == rate.high else wording.interval(rate)
        tiles.append((name, percent(rate.value), ends))
    tiles += _label_tiles(report.labels, report.spec.unit)
    return [Lines(lines, is_text=True), Lines([quality], is_text=True, on=_PAGE), Tiles(tiles)]


def _label_tiles(labels: LabelCounts | None, unit: str = "row") -> list[tuple[str, str, str]]:
    if labels is None:
        return []
    number, rest = f"{labels.normal:,} + {labels.anomaly:,}", f"{labels.unlabelled:,} unlabelled"
    return [("Labelled: normal + anomalies", number, f"and {rest} {unit}s")]


def _doubtful_labels(report: FitReport) -> list[Block]:
    doubtful, id = report.doubtful, report.spec.id
    if doubtful is None or doubtful.expected is None:
        return []
    if not doubtful.rows:
        return [Lines([doubtful.summary], is_text=True, on=AT_LENGTH)]
    about = (
        "Fits that had not seen these labels contradict them: a label is wrong, or its row is of a "
        "kind that this model cannot tell. The model was fitted to them as they are. Look at these "
        "rows again (`riskad suggest --doubtful`), and fit again if labels change."
    )
    rows = []
    for each in doubtful.rows[:MOST_SHOWN]:
        ids = [] if id is None else [each.id or ""]
        rows.append([f"{each.row:,}", *ids, each.label, each.percent, each.looks])
    head = ["row", *([] if id is None else [id]), "label", "wrong", "looks"]
    table = Table(head, rows, right=(0, len(head) - 2))
    return [Lines([doubtful.summary], is_text=True), Note(about), table]


def model_before(report: FitReport) -> list[Block]:
    """The model beside the one before it, after a refit."""
    before, cell = report.before, wording.cell
    if before is None:
        return []
    labels = [each or LabelCounts(0, 0, 0) for each in (before.labels, report.labels)]
    rows = [
        ["made", before.created[:10], report.created[:10] or "now"],
        ["from", before.source, report.source],
        ["rows", f"{before.rows:,}", f"{report.rows:,}"],
        ["labelled normal", *(f"{each.normal:,}" for each in labels)],
        ["labelled anomalies", *(f"{each.anomaly:,}" for each in labels)],
        ["AUC, own held-out labels", cell(before.auc), cell(report.auc)],
        ["anomaly rate", cell(before.rate), cell(report.rate)],
        ["threshold", before.rule, report.rule],
        ["unlabelled rows flagged", f"{before.flagged:,}", f"{report.flagged:,}"],
    ]
    difference, both = [], before.comparison
    if both is not None:
        delta = both.difference
        difference = [
            f"AUC {delta.value:+.3f} ({wording.interval(delta, '+.3f')}) on {delta.n_normal:,} "
            f"normal rows and {delta.n_anomaly:,} anomalies: {both.rests_on}"
        ]
        models = both.before, both.after
        n, m = f" of {delta.n_normal:,}", f" of {delta.n_anomaly:,}"
        rows += [
            ["AUC, the same labels", *(cell(each.auc) for each in models)],
            ["anomalies flagged", *(f"{each.anomalies_flagged:,}{m}" for each in models)],
            ["normal rows flagged", *(f"{each.normals_flagged:,}{n}" for each in models)],
        ]
    return [
        Lines([before.verdict], is_text=True, name="Verdict"),
        Lines(difference, is_text=True, name="Change"),
        Table(["", "before", "after"], rows, right=(1, 2), name="Models"),
    ]


# --- rows ---------------------------------------------------------------------------------


def _suspicious_rows(report: FitReport) -> list[Block]:
    if not report.top:
        return []
    unit, usual = report.spec.unit, ""
    rows = f"The {unit}s" if report.trained_on else f"The unlabelled {unit}s"
    if report.usual_score is not None:
        usual = (
            ", each with the columns that raise its score most, compared with a usual "
            f"{unit}, which scores {report.usual_score:.3g}"
        )
    numbers = "Row numbers start at 1 below the header."
    if unit == "window":
        numbers = "Of windows that overlap, or that are of one event, the highest is shown."
    about = (
        f"{rows} with the highest anomaly scores{usual}. {unit.capitalize()}s that score above "
        f"{report.threshold:.3g} are flagged (threshold {_rule(report)}). {numbers}"
    )
    table = wording.suspects_table(report.top, report.spec.row_names, "Top", unit)
    return [Note(about), Cards(partial(_row_cards, report)), table]


def _row_cards(report: FitReport) -> list[Card]:
    # Beside "too few labels to tell", a probability of 99.9% would be a promise.
    is_vague = report.review is not None and wording.top_is_vague(report.review.table[0])
    largest = max((reason.adds for row in report.top for reason in row.reasons), default=1.0)
    cards = []
    for row in report.top:
        facts, likely = [f"score {row.anomaly_score:.3g}"], row.anomaly_probability
        if likely is not None and not is_vague:  # it is never 0 or 1
            share = "below 0.1%" if likely < 0.001 else wording.percent(likely)
            facts.append(f"probability {'above 99.9%' if likely > 0.999 else share}")
        if row.novelty is not None:
            facts.append(f"novelty {row.novelty:.2g}")
        blocks: list[Block] = [Note(", ".join(facts))]
        if maps := report.maps.get(str(row.row)):
            unlike = "from yellow to red: unlike places of usual pictures"
            blocks.append(Pictures([(maps["picture"], "the picture"), (maps["map"], unlike)]))
        cells = [
            [
                each.column,
                *(v if isinstance(v, str) else show_value(v) for v in (each.value, each.usual)),
                f"{each.adds:.3g}",
            ]
            for each in row.reasons
        ]
        bars = _bars([each.adds for each in row.reasons], largest)
        reasons = Table(["column", "value", "usual", "adds"], cells, bars=bars)
        blocks.append(reasons if row.reasons else Note("No column raises its score."))
        name = "" if row.id is None else f": {row.id}"
        badge, style = ("flagged", "flag") if row.is_anomaly else ("not flagged", "")
        cards.append(
            Card(f"{report.spec.unit.capitalize()} {row.row:,}{name}", badge, style, blocks)
        )
    return cards


def _bars(values: list[float], largest: float) -> list[float]:
    return [min(max(value / largest, 0.0), 1.0) if largest > 0 else 0.0 for value in values]


def _rows_reviewed(report: FitReport) -> list[Block]:
    review, capacity = report.review, report.capacity
    lines = [] if capacity is None else [str(capacity)]
    if review is None:
        return [Lines(lines, is_text=True, name="Expect")]
    lines += wording.cost_lines(review.cost)
    rows = "rows of this table" if report.trained_on else "unlabelled rows"
    about = (
        f"What a reviewer of the {rows} finds from the highest score down, estimated "
        f"from {review.anomalies.n_anomaly:,} labelled anomalies and "
        f"{review.anomalies.n_normal:,} labelled normal rows that were held out. The 95% intervals "
        "are for the number that will be counted."
    )
    # Of 5, 10, 20, ... rows, and of those flagged, what the labels can tell.
    flagged, share = review.flagged.rows, wording.share_between
    tops = {top.rows: top for top in review.table} | {flagged: review.flagged}
    cells = [
        [
            f"{'flagged ' * (k == flagged)}{k:,}",
            f"{wording.about(top.found.value)} ({wording.between(top.found, '-')})",
            share(top.recall, "-"),
            share(top.precision, "-"),
            wording.about(top.by_chance),
        ]
        for k, top in sorted(tops.items())
        if k and not wording.top_is_vague(top)
    ]
    expectation = Lines(lines, is_text=True, name="Expect")
    if not cells:
        few = wording.too_few_labels("how many of the highest scores are anomalies")
        return [Note(about), expectation, Lines([few], is_text=True, on=_PAGE)]
    head = ["rows", "anomalies", "share of all", "precision", "by chance"]
    caption = (
        "Anomalies found against rows looked at, with 95% intervals. The point marks the "
        "threshold; the dotted line is a random choice of rows."
    )
    figure = Figure(partial(charts.found_chart, review), caption)
    return [Note(about), Group([Table(head, cells, right=range(5)), figure]), expectation]


def _rule(report: FitReport) -> str:
    by, shown = report.spec.threshold_by, report.segments
    same = 0 < len(shown) < MOST_SEGMENTS and all(each.as_the_whole for each in shown)
    return report.rule if by is None or same else f"{report.rule}, and others by {by!r}"


def _decision(report: FitReport) -> list[Block]:
    if not report.rule:
        return []
    meaning = (parse_threshold(report.rule).__doc__ or "").splitlines()[0].split(".")[0]
    lines = [f"threshold {report.rule}: {meaning[:1].lower()}{meaning[1:]}"]
    if report.calibrated_on is not None:
        n, m = report.calibrated_on.normal, report.calibrated_on.anomaly
        smallest = f"; the smallest possible p-value is {1 / (n + 1):.2g}" if n > 1 else ""
        lines.append(f"calibrated on {n:,} normal rows and {m:,} anomalies, all held out{smallest}")
    return [
        Lines([wording.threshold_line(report.threshold, _rule(report))], is_text=True),
        Lines(lines, is_text=True, on=AT_LENGTH),
    ]


def _segments(report: FitReport) -> list[Block]:
    if not report.segments:
        return []
    column = report.spec.threshold_by or "segment"
    head = [column, "rows", "labelled", "threshold", "flagged", "rate", "precision", "recall"]
    with_intervals, values = [], []
    for each in report.segments:
        facts = [
            each.name,
            f"{each.rows:,}",
            f"{each.normal:,} + {each.anomaly:,}",
            f"{each.threshold:.3g}{' (whole)' if each.as_the_whole else ''}",
            f"{each.flagged:,}",
        ]
        shares = [wording.cell(share) for share in (each.rate, each.precision, each.recall)]
        with_intervals.append(facts + shares)
        values.append(facts + [share.split(" (")[0] for share in shares])
    about = (
        f"Rates, probabilities and thresholds by {column!r}: as far as its labels tell a segment "
        "differs, and no further. Intervals hold 95%. Rows without a segment, and segments without "
        f"labels, have the threshold of the whole. Of many, the {MOST_SEGMENTS} largest are shown."
    )
    same = all(each.as_the_whole for each in report.segments)
    which = f"no {column!r}" if len(values) < MOST_SEGMENTS else "none of the largest"
    alike = [f"as far as the labels tell, {which} needs a threshold of its own"]
    chart = partial(charts.segment_chart, report.segments)
    return [
        Note(about),
        Lines(alike if same else [], is_text=True),
        Table(head, with_intervals, right=range(1, 8), on=_WRITTEN),
        Table(head, values, right=range(1, 8), on=TERMINAL),
        Figure(chart, "Anomaly rates with 95% intervals."),
    ]


def _time_series(report: FitReport) -> list[Block]:
    about = (
        "Each line is a column, drawn from its lowest to its highest value where moments are close "
        "together. Shaded stretches are alarms; a bar at the bottom is a marked incident. The "
        "series with the highest alarms come first, then these alarms closely."
    )
    blocks: list[Block] = [Lines(report.alarms), *([Note(about)] if report.series else [])]
    for picture in report.series:
        caption = f"{picture.group or 'The series'}, {charts.days(picture.start, picture.end)}."
        blocks.append(Figure(partial(charts.series_chart, picture), caption))
    return blocks


def _scores(report: FitReport) -> list[Block]:
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
    chart = partial(charts.distribution_chart, report.distribution, report.threshold)
    return [Figure(chart, " ".join(caption))]


# --- quality ------------------------------------------------------------------------------


def _quality(report: FitReport) -> list[Block]:
    lines = wording.quality_lines(report.auc, report.why_no_auc, report.evidence, report.labels)
    blocks: list[Block] = [Lines(lines + wording.precision_lines(report.review), is_text=True)]
    if report.trained_on:
        about = f"These are labelled rows of {report.trained_on}, to which the model was fitted."
        blocks.append(Note(f"{about} Labels in this table, if any, were not read."))
    curves = report.quality
    if curves is None:
        return blocks
    rate = curves.precision_rate
    draw = partial(charts.curve_chart, threshold=report.threshold)
    roc = partial(draw, curves.roc, "false alarm rate", "anomalies found", (0, 1))
    precision = partial(draw, curves.precision_recall, "recall", "precision", (rate, rate))
    captions = (
        "ROC with 95% intervals: the share of labelled anomalies found against the share of "
        "labelled normal rows flagged. The point marks the threshold; the dotted line is chance.",
        f"Precision if {wording.percent(rate)} of all rows are anomalies, against the share of "
        "anomalies found, with conservative 95% intervals.",
    )
    return [*blocks, Group([Figure(roc, captions[0]), Figure(precision, captions[1])])]


def _over_time(report: FitReport) -> list[Block]:
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
        share = f"{period.anomaly:,} ({wording.percent(period.anomaly / (labelled or 1))})"
        auc = wording.cell(period.auc) or "not judged"
        rows.append([period.start, period.end, f"{period.rows:,}", f"{labelled:,}", share, auc])
    head = ["from", "to", "rows", "labelled", "anomalies", "AUC"]
    return [Note(about), Table(head, rows, right=range(2, 6))]


def _anomaly_rate(report: FitReport) -> list[Block]:
    """The estimated rate, and the one that the fit assumed."""
    rate = report.rate
    if rate is None:
        why = "not known: an estimate takes labelled rows of both kinds, and unlabelled ones"
        remedy = "if you know the rate, say so: `--anomaly-rate`"
        return [Lines([why, remedy], on=_WRITTEN, is_text=True)]
    lines = ["the rate is that of the unlabelled rows of the fit"]
    prior = report.settings.get("prior")
    if isinstance(prior, float):
        lines.append(f"the fit assumed {wording.percent(1 - prior)}")
        if not rate.low <= 1 - prior <= rate.high:
            # Strictly between 0 and 1; three digits are more precise than the interval.
            better = min(max(1 - rate.value, 0.001), 0.999)
            lines[1] += f"; consider setting prior to {better:.3f}"
    estimate = wording.rate_lines(rate) + wording.sampling_lines(report.labels_random_p)
    return [Lines(estimate, is_text=True), Lines(lines, is_text=True, on=_PAGE)]


def _limits(report: FitReport) -> list[Block]:
    """What the model cannot know, and what its file holds."""
    counts = report.labels or report.calibrated_on
    lines = []
    if counts is not None and counts.anomaly:
        if counts.anomaly < _FEW_ANOMALIES:
            few = few_anomalies(counts.anomaly)
            lines.append(f"{few}: intervals are wide and decisions uncertain")
        lines.append("the model has learned the labelled kinds of anomaly; others may rank low")
    lines.append(
        "rate, probabilities and threshold hold for rows like the training rows; `riskad drift` "
        "tells whether new rows differ"
    )
    contents = "the model holds no training rows, but names, levels and quantiles of columns"
    if report.kept_rows:
        contents = (
            f"the model holds training rows, standardised ({report.kept_rows:,} in all its parts "
            "together), which scoring needs: share it only with people who may see them"
        )
    return [Lines([*lines, contents], on=AT_LENGTH)]


# --- the model ----------------------------------------------------------------------------


def _model(report: FitReport) -> list[Block]:
    """What was fitted, the columns that move its scores, and all its settings."""
    members = [
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
    effects = report.effects[:_MOST_EFFECTS]
    moves = [each.effect for each in effects]
    columns = [[each.column, each.suspicious, f"{each.effect:.3g}"] for each in effects]
    where = f" in {report.effects_of}" if report.effects_of else ""
    parts = dict(report.fitted.get("risk_parts", {}))
    if "objective" in report.fitted:
        parts["objective, with the penalty"] = report.fitted["objective"]
    tables = [
        Table(
            ["member", "weight", "held-out AUC", "standard error", "seconds"],
            members,
            right=range(1, 5),
            title="Members of the average",
        ),
        Table(
            ["column", "suspicious when", "moves score by"],
            columns,
            bars=_bars(moves, max(moves, default=0.0)),
            title=f"Columns that move the score most{where}",
            name="Effects",
        ),
        Table(
            ["part", "risk"],
            [[name, f"{part:.4g}"] for name, part in parts.items()],
            right=(1,),
            title="Parts of the estimated risk",
            name="Risk",
        ),
    ]
    settings = Table(
        ["setting", "value"],
        [[name, str(value)] for name, value in report.settings.items()],
        # A terminal has no room for them, unless nothing else is known of the model.
        on=_WRITTEN if report.summary else AT_LENGTH,
        name="Settings",
    )
    brief = [
        f"{each.column} ({each.suspicious.strip('()')})"  # "(blank)" has its own
        for each in effects[:_MOST_EFFECTS_IN_BRIEF]
    ]
    where = where if "suspicious" in where else ""
    most = f"columns that move the score most{where}, with suspicious values: {', '.join(brief)}"
    return [
        Lines(report.summary),
        Group([table for table in tables if table.rows], on=AT_LENGTH),
        Group([settings], f"All settings of {report.model}"),
        Lines([most] if effects else [], on=("brief",), name="Effects"),
    ]


# --- data and origin ----------------------------------------------------------------------


def _columns(report: FitReport) -> list[Block]:
    rows = [[name, kind, report.column_uses.get(name, "")] for name, kind in report.columns.items()]
    return [
        *([Table(["column", "kind", "how it is used"], rows, on=_WRITTEN)] if rows else []),
        Group([Lines(report.preparation)], "How they were read"),
    ]


def _data(report: FitReport) -> list[Block]:
    """The rows and labels that were learned from, and what the fit was told."""
    if report.labels is None:
        why = "not known: the model was saved from Python, not made by `riskad fit`"
        return [Lines([why], is_text=True, on=AT_LENGTH)]
    rows = f"{report.rows:,} {report.spec.unit}s of {report.source}"
    rows = f"fitted to {report.trained_on}" if report.trained_on else rows
    labels = wording.label_line(report.labels, report.spec.label)
    usual = vars(FitSpec())
    options = [
        [name, wording.option(value)]
        for name, value in vars(report.spec).items()
        if name not in usual or value != usual[name]
    ]
    return [
        Lines([rows, labels], on=_WRITTEN),
        Lines([labels], on=TERMINAL),
        Lines(report.reading, name="Read"),
        Group([Table(["option", "value"], options)], "Options of the fit", on=_WRITTEN),
    ]


def _origin(report: FitReport) -> list[Block]:
    """How the report and the model were made."""
    lines = []
    if report.created:
        versions = ", ".join(f"{name} {each}" for name, each in report.versions.items())
        origin = f"{wording.minute(report.created)} by riskad {report.versions.get('riskad', '?')}"
        lines = [f"model saved {origin}", f"versions: {versions}"]
    return [
        *([Note(f"`{report.command}`")] if report.command else []),
        Lines(lines, is_text=True, on=AT_LENGTH, name="Created"),
    ]


SECTIONS = [
    Section("In short", "Flagged", _in_short, style="headline"),
    Section("Warnings", "Notes", lambda report: [Lines(report.warnings)], style="warnings"),
    Section("Labels that look wrong", "Doubtful", _doubtful_labels),
    Section("Compared with the model before", "Before", model_before),
    Section("Most suspicious rows", "Top", _suspicious_rows),
    Section("Rows reviewed and anomalies found", "Review", _rows_reviewed),
    Section("Decision", "Decision", _decision),
    Section("Segments", "Segments", _segments),
    Section("Time series", "Alarms", _time_series),
    Section("Scores", "Scores", _scores),
    Section("Quality", "Quality", _quality),
    Section("Over time", "Over time", _over_time),
    Section("Anomaly rate", "Rate", _anomaly_rate),
    Section("Limits", "Limits", _limits),
    Section("Model", "Model", _model),
    Section("Columns", "Columns", _columns),
    Section("Data", "Labels", _data),
    Section("How this report was made", "Made", _origin),
]
"""In the order of the page."""


def add_section(section: Section) -> None:
    """Add a section to the end of every later page and card, and to the top of the terminal.

    Examples
    --------
    >>> def blocks(report):
    ...     return [Lines([f"a seed of {report.spec.seed}"])]
    >>> add_section(Section("Chance", "Chance", blocks))
    >>> del SECTIONS[-1]
    """
    if any(section.title == other.title for other in SECTIONS):
        raise InputError(
            f"There is a section {section.title!r} already: give the new one another title, or "
            "take the other out of SECTIONS first."
        )
    SECTIONS.append(section)


# --- a look at a table --------------------------------------------------------------------


def _look_in_short(look: TableLook) -> list[Block]:
    used = sum(column.used for column in look.columns)
    tiles = [
        ("Rows", f"{look.rows:,}", ""),
        ("Columns", f"{len(look.columns):,}", f"{used:,} used"),
        *_label_tiles(look.labels),
    ]
    lines = [] if look.labels is None else [wording.label_line(look.labels, look.label)]
    return [Tiles(tiles), Lines(lines, on=TERMINAL)]


def _look_suspicions(look: TableLook) -> list[Block]:
    return [
        Lines(look.suspicious),
        Lines(look.warnings, name="Notes"),
    ]


def _look_columns(look: TableLook) -> list[Block]:
    """Each column: its kind, what becomes of it, and its values by kind of row."""
    about = (
        "Bars count rows by value, or by the most frequent levels; their heights grow with the "
        "square root, and the highest of each kind of row has the same height."
    )
    by_label, rows, cards = [], [], []
    for column in look.columns:
        blank, examples = column.blank_share, ", ".join(column.examples)
        share = f"{blank:.0%}" if blank else ""
        rows.append([column.name, column.kind, share, examples, column.use])
        if len(column.values) > 1:
            texts = (f"{values.kind} {values.text}" for values in column.values)
            by_label.append(f"{column.name}: {'; '.join(texts)}")
        share = f"; blank in {wording.percent(blank)}" if blank else ""
        blocks: list[Block] = [Note(column.use + share)]
        if examples:
            blocks.append(Note(f"For example {examples}"))
        if any(any(values.counts) for values in column.values):
            legend = [(values.kind, f"{values.kind}: {values.text}") for values in column.values]
            blocks.append(Figure(partial(charts.values_chart, column), legend=legend))
        blocks.append(Lines(column.remarks))
        cards.append(Card(column.name, column.kind, "" if column.used else "unused", blocks))
    more = len(by_label) - _MOST_DIFFERENCES
    if more > 0:
        by_label[_MOST_DIFFERENCES:] = [f"and {more} more: see the page (--page)"]
    remarks = [f"{column.name}: {each}" for column in look.columns for each in column.remarks]
    head = ["column", "kind", "blank", "for example", "how it is used"]
    return [
        Cards(lambda: cards),
        Note(about),
        Table(head, rows, on=TERMINAL),
        Lines(by_label, on=TERMINAL, name="By label"),
        Lines(remarks, on=TERMINAL, name="Remarks"),
    ]


LOOK_SECTIONS = [
    Section("In short", "Labels", _look_in_short, style="headline"),
    Section("What looks wrong", "Look at", _look_suspicions, style="warnings"),
    Section("Columns", "Columns", _look_columns),
]
