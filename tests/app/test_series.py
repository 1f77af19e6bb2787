"""Time series from labels to alarms: labels of windows, folds, scores by moment, streams."""

from __future__ import annotations

import json
import warnings
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import riskad
import riskad.app.explain
import riskad.app.suggest
from riskad import InputError
from riskad.app.describe import describe_fit, describe_table
from riskad.app.model_files import load, read_header, save
from riskad.app.report.documents import make_card, render_page
from riskad.app.score import score_table
from riskad.app.series import (
    Alarms,
    WindowTable,
    codes_to_learn,
    cut_table,
    find_events,
    plain_model,
    stretches,
    window_codes,
)
from riskad.app.stream import Stream
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.tables.labelled import FrameTable
from riskad.tables.windows import END, Windower, Windows

pytestmark = pytest.mark.filterwarnings("ignore::riskad.DataWarning")

START = datetime(2024, 1, 1)
LABELS = {"label": "label", "normal": "ok", "anomaly": "bad"}
CUT = {"time": "t", "window": "4h", "step": "1h"}
SHARES = (0.25, 0.5, 1.0)


def make_points(n: int = 4_000, seed: int = 0, start: datetime = START) -> pl.DataFrame:
    """Points every 15 minutes with a day, and an incident of noise for 4 hours every 4 days."""
    rng = np.random.default_rng(seed)
    x = 10 + np.sin(2 * np.pi * np.arange(n) / 96) + 0.1 * rng.normal(size=n)
    incident = (np.arange(n) // 16) % 24 == 20
    x[incident] += rng.normal(size=incident.sum())
    t = [start + timedelta(minutes=15 * i) for i in range(n)]
    return pl.DataFrame({"t": t, "x": x, "incident": incident})


def label(points: pl.DataFrame) -> pl.DataFrame:
    """Mark the incidents, and as many stretches without one."""
    place = np.arange(points.height) // 16 % 24
    words = np.select([points["incident"].to_numpy(), place == 8], ["bad", "ok"], default="")
    return points.drop("incident").with_columns(pl.Series("label", words))


@pytest.fixture(scope="module")
def fit() -> riskad.app.fit.Fit:
    return riskad.fit_table(label(make_points()), **LABELS, **CUT, model="shallow")


def test_spans_without_a_row_are_said() -> None:
    points = make_points(n=100).drop("incident")
    spans = pl.DataFrame(
        {"from": ["2024-01-01 02:00", "2034-01-01 00:00"], "to": ["2024-01-01 03:00", None]}
    )
    with pytest.warns(riskad.tables.notes.ReadingNote, match=r"in 1 of 2 spans.*2034"):
        marked = riskad.mark_spans(points, spans, time="t")
    assert marked["label"].drop_nulls().len() == 5
    with pytest.raises(InputError, match="in 1 of 1 span;"):
        riskad.mark_spans(points, spans[1:], time="t")


@pytest.mark.parametrize("typed", [False, True])
def test_spans_and_rows_in_different_zones_are_compared_by_one_clock(typed: bool) -> None:
    hours = pl.Series([f"2025-10-25T{hour:02d}:00:00Z" for hour in range(24)])
    if typed:
        hours = hours.str.to_datetime().dt.convert_time_zone("Asia/Tokyo")
    points = pl.DataFrame({"t": hours, "x": np.arange(24.0)})
    # 10:00 and 12:00 UTC; `from` alone has two offsets.
    spans = {
        "from": ["2025-10-25T12:00:00+02:00", "2025-12-01T00:00:00+01:00"],
        "to": ["2025-10-25T14:00:00+02:00", "2025-12-01T01:00:00+02:00"],
    }
    for height in (1, 2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", riskad.tables.notes.ReadingNote)
            marked = riskad.mark_spans(points, pl.DataFrame(spans)[:height], time="t")
        assert marked.filter(pl.col("label") == "anomaly")["x"].to_list() == [10.0, 11.0, 12.0]


def test_spans_without_a_group_are_of_all_and_blank_labels_stay_blank() -> None:
    points = pl.DataFrame({"t": [0, 60, 120] * 2, "g": ["a"] * 3 + ["b"] * 3})
    spans = pl.DataFrame({"from": [60, 120], "to": [60, 120], "label": ["bad", None]})
    with pytest.warns(riskad.tables.notes.ReadingNote, match=r"no column 'g'.*all groups"):
        marked = riskad.mark_spans(points, spans, time="t", group="g")
    assert marked["label"].to_list() == [None, "bad", None] * 2


def test_a_span_that_ends_before_it_begins_is_said() -> None:
    points = make_points(n=100).drop("incident")
    spans = pl.DataFrame({"from": ["2024-01-01 03:00"], "to": ["2024-01-01 02:00"]})
    with pytest.raises(InputError, match="from 2024-01-01 03:00 to 2024-01-01 02:00, before it"):
        riskad.mark_spans(points, spans, time="t")


@pytest.mark.parametrize("marked", ["nothing", "one incident"])
def test_few_labels_that_time_does_not_order_are_enough_for_windows(marked: str) -> None:
    points = make_points(n=900).drop("incident")
    words = np.full(900, "", dtype=object)
    options: dict[str, Any] = {"model": "outliers"}
    if marked == "one incident":
        words[320:336] = "bad"
        options = {"model": "shallow", "settings": {"risk": "nu", "lam": "cv"}}
        options |= {"label": "label", "anomaly": "bad"}
        points = points.with_columns(pl.Series("label", words.tolist()))
    found = riskad.fit_table(points, **CUT, **options)
    assert found.report.top
    assert found.report.auc is None


def windows_of(n: int, window: str = "4h") -> Windows:
    """Windows of one point every 15 minutes."""
    frame = pl.DataFrame({"t": np.arange(n) * 900.0, "x": np.random.default_rng(0).random(n)})
    return Windower.fit(frame, time="t", window=window, step="1h")


def test_labels_of_windows_by_definition() -> None:
    rng = np.random.default_rng(3)
    codes = np.repeat(rng.choice([0, 0, 1, -1], 120), rng.integers(1, 12, 120))
    windows = windows_of(len(codes))
    starts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
    runs = [np.arange(a, b) for a, b in zip(starts, [*starts[1:], len(codes)], strict=True)]
    incidents = [run for run in runs if codes[run[0]] == ANOMALY]
    for code, first in zip(window_codes(windows, codes), windows.end - 4, strict=True):
        held = np.arange(first * 4, min((first + 4) * 4, len(codes)))
        anomalies = (codes[held] == ANOMALY).sum()
        share = sum(np.isin(run, held).mean() for run in incidents)
        if anomalies and (anomalies >= len(held) / 2 or share >= 0.5):
            assert code == ANOMALY
        elif not anomalies and (codes[held] == NORMAL).mean() >= 0.5:
            assert code == NORMAL
        else:
            assert code == UNLABELLED


def test_what_is_enough_of_an_incident_can_be_set() -> None:
    codes = np.zeros(160, dtype=int)
    codes[64:80] = -1  # as long as a window
    windows = windows_of(len(codes))
    shares = {enough: (window_codes(windows, codes, enough) == ANOMALY).sum() for enough in SHARES}
    assert shares == {0.25: 7, 0.5: 5, 1.0: 1}
    table = label(make_points(n=900))
    spec = riskad.FitSpec(**LABELS, **CUT)
    counts = [
        WindowTable(FrameTable(table, spec.labels), spec.updated(enough=enough)).counts.anomaly
        for enough in SHARES
    ]
    assert counts == sorted(counts, reverse=True)
    assert len(set(counts)) == len(SHARES)


@pytest.mark.parametrize("seed", range(5))
def test_stretches_share_no_point(seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = np.repeat(rng.choice([0, 1, 1, -1], 60), rng.integers(1, 90, 60))
    windows = windows_of(len(codes))
    before = window_codes(windows, codes)
    after, stretch = stretches(windows, before)
    assert ((after == before) | (after == UNLABELLED)).all()
    assert (after[before == ANOMALY] == ANOMALY).all()
    for row in np.flatnonzero(after != UNLABELLED):
        overlaps = np.abs(windows.end - windows.end[row]) < 4
        labelled = overlaps & (after != UNLABELLED)
        assert (stretch[labelled] == stretch[row]).all()
    normal = stretch[after == NORMAL]
    assert np.bincount(normal).max() <= 10 * 4 + 4


def test_a_fit_to_windows_finds_later_incidents(fit: riskad.app.fit.Fit) -> None:
    later = make_points(seed=1, start=START + timedelta(minutes=15 * 4_000))
    scored, report = score_table(fit.model, later.drop("incident"), reasons=2)
    assert scored.columns[:2] == ["t", "x"]
    inside = scored.filter(later["incident"])["anomaly_score"].mean()
    assert inside > scored.filter(~later["incident"])["anomaly_score"].quantile(0.95)
    assert scored["event"].drop_nulls().n_unique() == int(report.alarms[0].split()[0])
    assert scored.filter("is_anomaly")["reason_1"].null_count() == 0
    assert scored.filter(~pl.col("is_anomaly"))["reason_1"].drop_nulls().is_empty()
    assert fit.report.auc is not None
    assert "stretch" in fit.report.evidence
    assert "a day" in fit.report.alarms[0]
    assert fit.report.top[0].id.startswith("2024-0")


def test_a_fit_lists_the_highest_window_of_each_alarm() -> None:
    # No label near the first 4 incidents: their alarms are of many unlabelled windows each.
    table = label(make_points(n=2_400)).with_row_index("n")
    table = table.with_columns(
        pl.when(pl.col("n") < 1_500).then(pl.lit("")).otherwise(pl.col("label")).alias("label")
    )
    found = riskad.fit_table(table.drop("n"), **LABELS, **CUT, model="shallow")
    flagged = found.ranked.filter("is_anomaly").sort("t")
    assert flagged.height > 2 * len(found.report.top) > 4
    ends = np.sort([datetime.fromisoformat(suspect.id) for suspect in found.report.top])
    assert (np.diff(ends) >= timedelta(hours=4)).all()
    for suspect in found.report.top:  # the highest of those that overlap it
        at = datetime.fromisoformat(suspect.id)
        near = flagged.filter((pl.col("t") - at).abs() < timedelta(hours=4))
        assert near["anomaly_score"].max() == suspect.anomaly_score
    # Each with its own reasons.
    rows = [suspect.row - 1 for suspect in found.report.top]
    windows = riskad.windows(table.drop("n", "label"), **CUT)[rows]
    shown = describe_fit(found).top
    assert shown[0].reasons
    for i, suspect in enumerate(shown):
        for reason in suspect.reasons:
            assert windows[reason.column][i] == pytest.approx(reason.value)


def test_pictures_show_alarms_where_they_are(fit: riskad.app.fit.Fit) -> None:
    pictures = fit.report.series
    assert [line.name for line in pictures[0].lines] == ["x", "anomaly score"]
    whole, close = pictures[0], pictures[1]
    assert len(whole.events) == int(fit.report.alarms[0].split()[0])
    assert whole.start < close.start < close.events[0][0] < close.events[0][1] < close.end
    marked = make_points()["incident"].to_numpy()
    assert len(whole.marked) == (np.diff(marked.astype(int)) == 1).sum()
    x = make_points()["x"]
    assert (min(whole.lines[0].low), max(whole.lines[0].high)) == (x.min(), x.max())
    page = render_page(fit.report)
    assert page.count('class="alarm"') == sum(len(each.events) for each in pictures)
    assert page.count('class="moves"') == len(pictures)
    assert "alarms in" in make_card(fit.report, "m.riskad")


def test_a_long_table_without_alarms_is_drawn_in_whole_lines() -> None:
    windows = windows_of(4_000, window="1h")
    nothing = np.zeros(4_000, dtype=bool)
    alarms = Alarms(windows, np.arange(4_000.0), nothing, 5_000.0, nothing)
    assert str(alarms).startswith("0 alarms")
    (picture,) = alarms.pictures()
    assert picture.events == picture.marked == []
    assert np.diff(picture.moments).max() < picture.gap  # a bin is longer than a window
    assert picture.gap < 86_400


def test_the_worst_alarms_are_told_in_the_order_of_time() -> None:
    windows = windows_of(400, window="1h")
    scores = np.zeros(400)
    scores[[10, 100, 200, 300]] = 1, 4, 2, 3
    alarms = Alarms(windows, scores, scores > 0, 0.0)
    first, *lines = alarms.in_words(2)
    assert first.startswith("4 alarms")
    assert [line.split(" to ")[0] for line in lines] == [
        "1970-01-02 01:00:00",
        "1970-01-04 03:00:00",
    ]


def test_panes_without_a_value_are_saved(tmp_path: Path) -> None:
    points = label(make_points(n=900)).with_columns(pl.col("x").cast(pl.String))
    broken = pl.int_range(pl.len()).is_between(400, 420)  # some panes have no other points
    points = points.with_columns(x=pl.when(broken).then(pl.lit("n/a")).otherwise("x"))
    fit = riskad.fit_table(points, **LABELS, **CUT, model="shallow")
    save(fit.model, tmp_path / "m.riskad", report=fit.report)
    later = make_points(n=200, start=START + timedelta(minutes=15 * 900)).drop("incident")
    frames = [m[0].windower_.cut(later).frame for m in (fit.model, load(tmp_path / "m.riskad"))]
    assert frames[0].equals(frames[1])
    assert (
        fit.model[0].windower_.history.values.size
        > np.isfinite(fit.model[0].windower_.history.values).sum()
    )


def test_a_report_on_new_points_is_about_windows_and_their_alarms(
    fit: riskad.app.fit.Fit, tmp_path: Path
) -> None:
    save(fit.model, tmp_path / "m.riskad", report=fit.report)
    later = make_points(n=800, seed=1, start=START + timedelta(days=42)).drop("incident")
    report = describe_table(fit.model, read_header(tmp_path / "m.riskad"), later)
    scored, _ = score_table(fit.model, later, reasons=2)
    assert report.rows == len(fit.model[0].windower_.cut(later).frame)
    events = scored.drop_nulls("event")
    assert len(report.series[0].events) == events["event"].n_unique() > 0
    assert events["reason_1"][0] in report.alarms[1]


def test_labels_matter(fit: riskad.app.fit.Fit) -> None:
    points = label(make_points())
    swapped = points.with_columns(pl.col("label").replace({"ok": "bad", "bad": "ok"}))
    other = riskad.fit_table(swapped, fit.report.spec)
    new = points.drop("label")
    scores = [score_table(each.model, new)[0]["anomaly_score"] for each in (fit, other)]
    assert not np.allclose(*scores)


def test_scores_of_a_moment_are_the_mean_of_its_windows(fit: riskad.app.fit.Fit) -> None:
    points = make_points(n=500, seed=2).drop("incident")
    scored, _ = score_table(fit.model, points.reverse())
    windows = fit.model[0].windower_.cut(points).frame
    of_windows = score_table(plain_model(fit.model), windows)[0]
    for row in scored.sample(20, seed=0).iter_rows(named=True):
        holds = (pl.col("t") <= row["t"]) & (pl.col(END) > row["t"])
        assert row["anomaly_score"] == pytest.approx(
            of_windows.filter(holds)["anomaly_score"].mean()
        )


@pytest.mark.parametrize("seed", range(3))
def test_a_stream_scores_as_batch_and_survives_a_restart(
    fit: riskad.app.fit.Fit, seed: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(seed)
    points = make_points(n=900, seed=seed, start=START + timedelta(days=42)).drop("incident")
    points = points.filter(pl.Series(rng.random(points.height) < 0.8))
    save(fit.model, tmp_path / "m.riskad", report=fit.report)
    model, parts, place = load(tmp_path / "m.riskad"), [], 0
    batch = model[0].windower_.cut(points).frame
    expected = score_table(plain_model(model), batch)[0]
    stream = Stream(model, tmp_path / "state")
    while place < points.height:
        size = int(rng.integers(1, 40))
        parts.append(stream.push(points[place : place + size]))
        place += size
        if rng.random() < 0.3:
            stream = Stream(model, tmp_path / "state")
    scored = pl.concat(part for part in parts if part.height)
    assert scored["t"].to_list() == expected["t"].to_list()[: scored.height]
    assert expected.height - scored.height <= 1  # the last one is not complete yet
    assert scored["anomaly_score"].to_numpy() == pytest.approx(
        expected["anomaly_score"].to_numpy()[: scored.height], rel=1e-9
    )
    assert stream.points.height < 40


def test_points_that_come_too_late_are_counted(fit: riskad.app.fit.Fit) -> None:
    points = make_points(n=200, start=START + timedelta(days=42)).drop("incident")
    stream = Stream(fit.model)
    stream.push(points)
    assert stream.push(points[:3]).height == 0
    assert stream.left_out == 3


def test_a_state_of_another_model_is_refused(fit: riskad.app.fit.Fit, tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"nothing")
    with pytest.raises(InputError, match="no state of a stream"):
        Stream(fit.model, tmp_path / "state")


def test_events_are_runs_of_flagged_moments() -> None:
    windows = windows_of(400, window="1h")
    flagged = np.zeros(400, dtype=bool)
    flagged[[10, 11, 13, 100, 300, 301]] = True
    events = find_events(windows, flagged, np.arange(400.0))
    assert events["first_point"].to_list() == [10, 100, 300]
    assert events["peak_point"].to_list() == [13, 100, 301]
    nothing = find_events(windows, np.zeros(400, dtype=bool), np.zeros(400))
    assert nothing.height == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"window": "1h"}, "needs time"),
        ({"step": "1h"}, "say window"),
        ({"enough": 0}, "must be a share"),
    ],
)
def test_options_that_lack_others(options: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        riskad.FitSpec(**options)


@pytest.mark.parametrize("options", [{"id": "nosuch"}, {"drop": ["nosuch"]}])
def test_columns_that_are_not_there_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="nosuch"):
        riskad.fit_table(label(make_points(n=400)), **LABELS, **CUT, model="shallow", **options)


def _corrupt(rng: np.random.Generator) -> pl.DataFrame:
    """A table whose clock is broken in one or more ways."""
    points = label(make_points(n=int(rng.integers(1, 300))))
    texts = points["t"].dt.strftime(str(rng.choice(["%Y-%m-%d %H:%M", "%d.%m.%Y %H:%M:%S", "%s"])))
    t = texts.to_list()
    for way in rng.choice(6, int(rng.integers(0, 4)), replace=False):
        some = rng.random(len(t)) < rng.choice([0.02, 0.5, 1.0])
        t = [
            _broken(int(way), cell, rng) if hit else cell for cell, hit in zip(t, some, strict=True)
        ]
    frame = points.with_columns(pl.Series("t", t, dtype=pl.String))
    return frame.sample(fraction=1, shuffle=bool(rng.integers(2)), seed=0)


def _broken(way: int, cell: str | None, rng: np.random.Generator) -> str | None:
    odd = ["", "n/a", "1970-01-01 00:00", "9999-12-31 23:59", "25:61", "-5", "1e300", "ümlaut"]
    text = cell or ""
    return [None, str(rng.choice(odd)), cell, text[:7], f"{text}Z", "2024-01-01 00:00"][way]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_bad_clocks_end_in_a_fit_or_a_sentence(part: int) -> None:
    for number in range(50):
        frame = _corrupt(np.random.default_rng([part, number]))
        try:
            windows = riskad.windows(frame.drop("label"), time="t", window="4h", step="1h")
        except InputError as error:
            sentence = str(error)
        else:
            sentence = f"There are {windows.height} windows."
        assert len(sentence) > 10
        assert "There are 0" not in sentence


def test_a_server_answers_with_the_windows_that_points_complete(
    fit: riskad.app.fit.Fit, tmp_path: Path
) -> None:
    from riskad.web.serve.scoring import RowScorer

    points = make_points(n=60, start=START + timedelta(days=42)).drop("incident")
    rows = points.with_columns(pl.col("t").dt.to_string("iso")).to_dicts()
    answers = []
    for part in (rows[:20], rows[20:]):  # a server each
        scorer = RowScorer(fit.model, tmp_path / "state")
        scorer.warm_up()
        body = json.dumps({"rows": part}).encode()
        (answer,) = scorer.answer(body, {}, most_rows=100, reasons=2)
        assert answer is not None
        answers += json.loads(answer[0])["windows"]
    batch = fit.model[0].windower_.cut(points).frame
    expected = score_table(plain_model(fit.model), batch)[0]["anomaly_score"].to_list()
    assert [each["anomaly_score"] for each in answers] == pytest.approx(expected[: len(answers)])
    assert len(answers) >= len(expected) - 1
    assert answers[0]["t"].startswith("2024-02-12T00:00")


def test_unmarked_windows_far_apart_are_learned_as_normal() -> None:
    codes = np.zeros(2_000, dtype=np.int16)
    codes[640:656], codes[1_200:1_280] = ANOMALY, NORMAL
    windows = windows_of(len(codes))
    marked, _ = stretches(windows, window_codes(windows, codes))
    learned = codes_to_learn(windows, marked)
    assert (learned[marked != UNLABELLED] == marked[marked != UNLABELLED]).all()
    more = windows.end[learned != marked]
    assert (learned[learned != marked] == NORMAL).all()
    labelled = np.sort(np.append(more, windows.end[marked != UNLABELLED]))
    assert np.diff(more).min() >= 4  # none shares a point with another, nor with a marked one
    assert min(np.abs(end - labelled[labelled != end]).min() for end in more) >= 4
    assert len(set(more % 24)) == 24  # of all hours of the day
    day = windows_of(8_000, window="23h")  # whose windows end 24 hours apart, if one hour is left
    codes = np.where(day.end == 100, ANOMALY, UNLABELLED)
    assert len(set(day.end[codes_to_learn(day, codes) == NORMAL] % 24)) > 6
    nothing = np.where(marked == NORMAL, NORMAL, UNLABELLED)
    assert (codes_to_learn(windows, nothing) == nothing).all()


def test_a_cross_fitting_fit_learns_more_windows_and_is_judged_by_marked_ones() -> None:
    table = label(make_points(n=1_500))
    spec = riskad.FitSpec(**LABELS, **CUT, settings={"budget": 2})
    fit, counts = riskad.fit_table(table, spec), WindowTable(FrameTable(table, spec.labels), spec)
    assert fit.report.labels == counts.counts
    assert any("learned" in line and "as normal" in line for line in fit.report.reading)
    calibration = fit.model[1].calibration_
    assert len(calibration.normals) <= counts.counts.normal
    assert len(calibration.anomalies) <= counts.counts.anomaly
    assert fit.ranked.height == counts.counts.unlabelled


def test_one_window_of_each_event_is_explained_and_suggested(fit: riskad.app.fit.Fit) -> None:
    later = make_points(n=1_200, seed=1, start=START + timedelta(days=42)).drop("incident")
    windows = fit.model[0].windower_.cut(later).frame
    _, report = riskad.app.explain.explain_table(fit.model, windows, id="t", rows=4)
    suggested, _ = riskad.app.suggest.suggest_table(fit.model, windows, 12, id="t")
    explained = [datetime.fromisoformat(suspect.id or "") for suspect in report.explained]
    for starts in (explained, suggested["t"].to_list()):
        assert np.diff(np.sort(starts)).min() >= timedelta(hours=4)
    named = [str(explained[0]), str(explained[0] + timedelta(hours=1))]
    _, report = riskad.app.explain.explain_table(fit.model, windows, id="t", only=named)
    assert len(report.explained) == 2


def test_labelled_windows_are_not_suggested(fit: riskad.app.fit.Fit) -> None:
    table = label(make_points())
    frame = cut_table(fit.model[0].windower_, table, fit.report.spec)
    marked = frame.filter(pl.col("label").is_not_null())["t"].to_list()
    options: dict[str, Any] = {"label": "label", "id": "t"}
    suggested, report = riskad.app.suggest.suggest_table(fit.model, frame, 20, **options)
    assert report.labelled == len(marked) > 0
    assert not set(suggested["t"]) & set(marked)
