"""Dates, times and durations: how they are written, looked at, read and shown."""

import datetime as dt
import math
import re

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.loops import each

from riskad.core.checks import InputError
from riskad.files.codec import build, from_tree, to_tree
from riskad.tables.formats.moments import (
    _MONTH_NAMES,
    _MONTHS,
    MomentFormat,
    MomentLook,
    read_texts,
    ways_to_read,
)

EPOCH = dt.datetime(1970, 1, 1)
MARCH = dt.datetime(2025, 3, 27)
EVENING = dt.datetime(2025, 3, 27, 18, 14)
EXACT = dt.datetime(2025, 3, 27, 18, 14, 3)
HALF = dt.datetime(2025, 3, 27, 18, 14, 3, 500_000)


def seconds_of(value):
    return (value - EPOCH).total_seconds() if isinstance(value, dt.datetime) else float(value)


def look_at(cells, name="x", **options):
    return MomentLook.of(pl.Series(name, cells, **options))


# Cells by what they say.
FORMS = {
    "date": {
        MARCH: (
            "2025-03-27|2025/03/27|2025.03.27|2025-3-27|27.03.2025|27/03/2025|27-03-2025|"
            "27.3.2025|27. 3. 2025|27 03 2025|03/27/2025|3/27/2025|03-27-2025|27.03.25|"
            "27/03/25|3/27/25|27-Mar-2025|27-MAR-2025|27 mar 2025|27Mar2025|27.Mar.2025|"
            "27-Mar-25|27/Mar/2025|Mar 27, 2025|Mar. 27, 2025|March 27, 2025|"
            "March 27th, 2025|27th March 2025|27th of March 2025|2025 March 27|2025-Mar-27|"
            "27. März 2025|27. Mrz. 2025|27. Maerz 2025|27 mars 2025|27 de marzo de 2025|"
            "Thu 27 Mar 2025|Thursday, March 27, 2025|Donnerstag, 27. März 2025|"
            "Do, 27.03.2025|jeu. 27 mars 2025"
        ),
        dt.datetime(1999, 3, 27): "27.03.99|99-03-27",
        dt.datetime(1970, 3, 27): "27.03.70",
        dt.datetime(2069, 3, 27): "27.03.69",
        dt.datetime(2024, 2, 29): "29.02.2024",
        dt.datetime(2000, 2, 29): "2000-02-29",
        dt.datetime(1, 1, 1): "0001-01-01",
        dt.datetime(9999, 12, 31): "9999-12-31",
        dt.datetime(1899, 12, 31): "1899-12-31",
        dt.datetime(2024, 12, 31): "31. Dezember 2024",
        dt.datetime(2025, 1, 1): "1. Jänner 2025",
        dt.datetime(2025, 8, 1): "1er août 2025",
        dt.datetime(2025, 7, 14): "14 juil. 2025",
        dt.datetime(2025, 2, 3): "3 févr. 2025",
        dt.datetime(2025, 1, 5): "5 ene 2025",
        dt.datetime(2025, 3, 25): "mar. 25 mars 2025",
        dt.datetime(2025, 3, 1): "2025-03|03/2025|Mar 2025|März 2025|Mar-25",
    },
    "datetime": {
        EVENING: (
            "2025-03-27 18:14|2025-03-27T18:14|2025-03-27T18:14+02:00|20250327T1814|"
            "2025/03/27 18:14|27.03.2025 18:14|27.03.2025, 18:14|27.03.25 18:14|"
            "27/03/2025 18:14|03/27/2025 6:14 PM|3/27/2025 6:14PM|3/27/2025 6:14\u202fPM|"
            "March 27, 2025 6:14 PM|March 27, 2025 at 6:14 PM|27. März 2025 18:14|"
            "27. März 2025 um 18:14 Uhr|27 mars 2025 à 18:14"
        ),
        EXACT: (
            "2025-03-27 18:14:03|2025-03-27T18:14:03|2025-03-27T18:14:03Z|"
            "2025-03-27 18:14:03 UTC|2025-03-27T18:14:03+0200|2025-03-27 18:14:03-05|"
            "20250327T181403|20250327T181403Z|27.3.2025 18:14:03|3/27/2025 06:14:03 pm|"
            "27-Mar-2025 18:14:03|Thu, 27 Mar 2025 18:14:03 GMT|27/Mar/2025:18:14:03 +0000"
        ),
        HALF: (
            "2025-03-27T18:14:03.5|2025-03-27 18:14:03,500|2025-03-27 18:14:03.500000000|"
            "2025-03-27T18:14:03.5Z|2025-03-27 18:14:03.5 +05:30"
        ),
        MARCH: "3/27/2025 12:00 AM",
        dt.datetime(2025, 3, 27, 12, 30): "3/27/2025 12:30 p.m.",
        dt.datetime(2025, 3, 28): "2025-03-27 23:59:60",
    },
    "time": {
        65640: "18:14|6:14 PM|6:14 p.m.",
        22440: "6:14",
        0: "00:00|12:00 AM",
        86399: "23:59:59",
        65643: "18:14:03",
        65643.5: "18:14:03.5|18:14:03,5",
        22443: "06:14:03 AM",
        43200: "12:00 PM",
    },
    "duration": {
        4800: "1h 20m|1h20m|1 h 20 min|PT1H20M",
        7500: "2 hours, 5 minutes",
        93784: "1d 2h 3m 4s",
        -5400: "-1h 30m",
        93600: "P1DT2H",
        0.5: "PT0.5S",
        -300: "-PT5M",
        273906: "3 days 04:05:06",
        101106: "1 day, 4:05:06",
        1.5: "0 days 00:00:01.5",
        130200: "36:10",
        360000: "100:00:00",
        -90: "-00:01:30",
    },
}


def test_forms_are_found_read_and_shown():
    for kind, value, cell in [
        (kind, seconds_of(value), cell)
        for kind, groups in FORMS.items()
        for value, cells in groups.items()
        for cell in cells.split("|")
    ]:
        look = look_at([cell, f"  {cell} ", None, "n/a"])
        assert (look.n_good, look.n_blank, look.n_bad, look.first_bad) == (2, 2, 0, None), cell
        written = look.format()
        assert written.kind == kind, cell
        seconds, bad = written.read(pl.Series([cell, f"\t{cell}", "-", "soon"]))
        assert seconds.to_list() == [value] * 2 + [None, None], cell
        assert bad.to_list() == [False, False, False, True], cell
        assert written.read(pl.Series([written.show(value)]))[0].to_list() == [value], cell
        assert from_tree(*to_tree(written)) == written
        for way, pattern in ways_to_read(cell):  # what is found may be given
            assert MomentFormat.from_pattern(pattern, way).pattern == pattern, cell


NO_MOMENTS = (
    "90s|1.5 h|250 ms|hello|1.2.3|192.168.1.1|12.5|1,234.50|5 m|5.5m|12 kg|3/4|1e5|2025|"
    "2025-13-01|31.02.2025|29.02.2023|00.01.2025|25:61|+49 30 123456|2025-03-27 24:00|"
    "27.03.2025 18:60|13:00 PM|0:30 AM|P1Y|PT|P|h|27 Foo 2025|Mar 45 2025|"
    "2025-03-27T18:14+25:00|2025-03-27 hello|v1.2.10|12/2025/03|1-2-3-4|2025-03-27-28|"
    "A27.03.2025|0000-01-01|10:20:30:40|4711-05|12/1234|1 12 10|20251301|x20250327|"
    "२०२५-०३-२७|٢:١٤|🙂 12:30"
)


def test_other_cells_are_no_moments():
    for cell in [*NO_MOMENTS.split("|"), "", "1" * 500, "27.03.2025" * 50, "\0", "1\x002"]:
        look = look_at([cell] * 10, "date")
        assert (look.format(), look.n_good) == (None, 0), cell


def test_months_of_each_language_are_read_and_shown_in_english():
    full = [
        "January|February|March|April|May|June|July|August|September|October|November|December",
        "Januar|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember",
        "janvier|février|mars|avril|mai|juin|juillet|août|septembre|octobre|novembre|décembre",
        "ene|feb|mar|abr|mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre",
    ]
    for names in full:
        cells = [f"27 {name} 2025" for name in names.split("|")]
        look = look_at(cells)
        seconds, _ = look.format().read(pl.Series(cells))
        assert seconds.to_list() == [seconds_of(dt.datetime(2025, m, 27)) for m in range(1, 13)]
        assert look.n_bad == 0
        assert look.format().show(seconds[9]) == "27 Oct 2025"
    assert len(_MONTHS) == len(_MONTH_NAMES.split())  # no name means two months


def test_one_cell_decides_the_order_for_all():
    for first, second, pattern in [
        ("03/04/2025", "27/03/2025", "%d/%m/%Y"),
        ("03/04/2025", "03/27/2025", "%m/%d/%Y"),
        ("03.04.2025", "03.27.2025", "%m.%d.%Y"),
        ("03-04-25", "03-27-25", "%m-%d-%y"),
        ("03/04/2025 10:00", "27/03/2025 11:00", "%d/%m/%Y %H:%M"),
    ]:
        look = look_at([first, second])
        assert (look.format().pattern, look.ambiguous, look.n_bad) == (pattern, False, 0)
    # The order that most cells need wins, and the others are bad.
    look = look_at(["30/04/2025", "01/22/2025", "23/01/2025", "05/05/2025"])
    assert look.format().pattern == "%d/%m/%Y"
    assert (look.n_good, look.n_bad, look.first_bad) == (3, 1, (2, "01/22/2025"))


def test_undecided_dates_have_the_day_first_and_that_is_said():
    look = look_at(["03/04/2025", "11/02/2025", "01/12/2025"])
    assert look.ambiguous
    assert look.format().pattern == "%d/%m/%Y"
    (remark,) = look.remarks()
    assert "'03/04/2025' could have the day or the month first" in remark
    assert "date:%m/%d/%Y" in remark
    look = look_at(["03/04/2025 1:00 PM", "11/02/2025 2:00 AM"])  # as in America
    assert look.format().pattern == "%m/%d/%Y %I:%M %p"
    assert "read with the month first" in look.remarks()[0]


def test_clocks_are_durations_by_the_name_or_beyond_24_hours_and_metres_beside_hours():
    cells = ["00:01:30", "00:20:00"]
    assert look_at(cells, "Duration").format().kind == "duration"
    assert look_at(cells, "lap_duration").format().kind == "duration"
    assert look_at(cells, "start").format().kind == "time"
    assert "duration:%H:%M:%S" in look_at(cells, "start").remarks()[0]
    assert look_at(cells, "start_time").remarks() == []
    written = look_at(["18:14:00", "36:00:01", "00:00:05"]).format()
    assert written.kind == "duration"
    assert written.read(pl.Series(["36:00:01"]))[0].to_list() == [129_601.0]
    assert look_at(["5m", "20m"]).format() is None
    written = look_at(["5m", "1h", "1h 20m"]).format()
    assert written.read(pl.Series(["5m", "1h"]))[0].to_list() == [300, 3_600]


@each("values", [["20250327"] * 3, [20250327] * 3, [20250327.0, None, math.nan]])
def test_eight_digits_are_dates_by_the_name_or_eight_different_dates(values):
    assert look_at(values, "amount", strict=False).format() is None
    look = look_at(values, "order_date", strict=False)
    assert look.format().pattern == "%Y%m%d"
    assert look.format().read(pl.Series(values, strict=False))[0][0] == seconds_of(MARCH)
    days = range(20250301, 20250309)
    assert look_at(list(days), "amount").format().pattern == "%Y%m%d"
    assert look_at(list(days)[1:], "amount").format() is None
    assert look_at([*days, 20250399], "amount").format() is None
    assert look_at([*days, 17], "order_date").format() is None


def test_a_number_that_is_no_moment_is_not_taken_for_a_blank():
    column = pl.Series([20250327.0, 20250327.5, 2e19, math.inf, math.nan])
    values, misfits = MomentFormat("date", "%Y%m%d").read(column)
    assert values.to_list() == [seconds_of(MARCH), None, None, None, None]
    assert misfits.to_list() == [False, True, True, True, False]


@each("name", ["time", "timestamp", "ts", "created_at", "createdAt", "EpochTime"])
def test_counts_of_seconds_are_moments_by_the_name(name):
    values = [1_743_099_240, 1_743_099_300]
    for cells in (values, [float(v) for v in values], [str(v) for v in values]):
        written = look_at(cells, name).format()
        assert written.pattern == "unix"
        assert written.read(pl.Series(cells))[0].to_list() == values
    written = look_at([each * 1000 + 500 for each in values], name).format()
    assert written.pattern == "unix ms"
    assert written.read(pl.Series([1_743_099_240_500]))[0].to_list() == [1_743_099_240.5]


def test_other_names_or_one_number_that_is_no_moment_leave_them_numbers():
    for name in ("amount", "id", "format", "what", "tsar", "at"):
        assert look_at([1_743_099_240], name).format() is None, name
        assert look_at(["1743099240"], name).format() is None, name
    for other in (17, 900_000_000, 2_300_000_000, 1_743_099_240.5):
        assert look_at([1_743_099_240, other], "time", strict=False).format() is None, other
        assert look_at(["1743099240", str(other)], "time").format() is None, other


def test_a_second_pattern_is_bad_unless_it_is_iso():
    cells = ["27.03.2025"] * 3 + ["2025-03-27", "Mar 27, 2025"]
    look = MomentLook.of(pl.Series(cells), 101)
    assert (look.n_good, look.n_bad, look.first_bad) == (4, 1, (105, "Mar 27, 2025"))
    written = look.format()
    assert (written.kind, written.pattern) == ("date", "%d.%m.%Y")
    seconds, bad = written.read(pl.Series(["2025-03-27", "27.03.2025", "03/27/2025"]))
    assert seconds.to_list() == [seconds_of(MARCH)] * 2 + [None]
    assert bad.to_list() == [False, False, True]
    look = look_at(["2025-03-28"] * 3 + ["2025-03-27 18:14", "2025-03-27T18:14:03"])
    assert (look.n_bad, look.format().kind) == (0, "datetime")
    assert look_at(["2025-03-27", "a", "b", "c"]).format() is None


def test_one_offset_keeps_the_wall_clock_and_several_are_read_as_utc():
    written = look_at(["2025-03-27T18:14:03+02:00"] * 2).format()
    assert written.zone == "+02:00"
    assert written.describe().endswith("by the clock of +02:00")
    cells = ["2025-03-27T18:14:03+02:00", "2025-03-27T16:14:03Z", "2025-03-27T16:14:03-00"]
    assert written.read(pl.Series(cells))[0].to_list() == [seconds_of(EXACT)] * 3
    assert written.show(seconds_of(EXACT)) == "2025-03-27T18:14:03+02:00"
    twice = ["2025-10-26T02:30:00+02:00", "2025-10-26T02:30:00+01:00"]  # shown twice in Berlin
    look = look_at(twice)
    first, second = look.format().read(pl.Series(twice))[0]
    assert second - first == 3_600
    assert first == seconds_of(dt.datetime(2025, 10, 26, 0, 30))
    assert "clock of UTC" in look.remarks()[0]
    spring = pl.Series(["2025-03-30T00:59:59Z", "2025-03-30T01:00:00Z"])
    written = MomentFormat("datetime", "%Y-%m-%dT%H:%M:%S%z", "Europe/Berlin")
    assert np.diff(written.read(spring)[0]).tolist() == [3_601]


def test_typed_moments_with_a_zone_keep_its_clock_in_summer_and_winter():
    utc = pl.Series("when", [dt.datetime(2025, 1, 1, 11), dt.datetime(2025, 7, 1, 10), None])
    berlin = utc.dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Berlin")
    look = MomentLook.of(berlin)
    written = look.format()
    assert (written.zone, look.n_good, look.n_blank) == ("Europe/Berlin", 2, 1)
    noon = [seconds_of(dt.datetime(2025, month, 1, 12)) for month in (1, 7)]
    for column in (
        berlin,
        berlin.dt.convert_time_zone("America/New_York"),
        pl.Series(["2025-01-01T11:00Z", "2025-07-01 06:00:00-0400", ""]),
        pl.Series(["2025-01-01 12:00", "2025-07-01T12:00:00", None]),
    ):
        seconds, bad = written.read(column)
        assert seconds.to_list() == [*noon, None]
        assert not bad.any()


TYPED = [
    (pl.Series([MARCH.date(), None]), "date", seconds_of(MARCH)),
    (pl.Series([HALF, None]), "datetime", seconds_of(HALF)),
    (pl.Series([HALF, None]).cast(pl.Datetime("ms")), "datetime", seconds_of(HALF)),
    (pl.Series([HALF, None]).cast(pl.Datetime("ns")), "datetime", seconds_of(HALF)),
    (pl.Series([dt.time(18, 14), None]), "time", 65_640.0),
    (pl.Series([dt.timedelta(hours=1.5), None]), "duration", 5_400.0),
]


@each(("column", "kind", "value"), TYPED)
def test_typed_columns(column, kind, value):
    look = MomentLook.of(column)
    assert (look.n_good, look.n_blank, look.n_bad, look.remarks()) == (1, 1, 0, [])
    written = look.format()
    assert written.kind == kind
    assert written.read(column)[0].to_list() == [value, None]
    again = from_tree(*to_tree(written))
    texts = pl.Series([again.show(value), ""])
    assert again.read(texts)[0].to_list() == [value, None]


def test_a_format_of_texts_reads_typed_columns_of_its_kind_alone():
    written = MomentFormat.from_pattern("%d.%m.%Y")
    assert written.read(pl.Series([MARCH.date()]))[0].to_list() == [seconds_of(MARCH)]
    for column in (pl.Series([dt.time(1)]), pl.Series([dt.timedelta(1)]), pl.Series([True])):
        seconds, bad = written.read(column)
        assert seconds.to_list() == [None]
        assert bad.to_list() == [True]


def test_columns_of_other_types_and_without_cells():
    values = [[True, False], [1.5, 2.5], [[1], [2]], [b"2025-03-27", b"x"], [{"a": 1}, {"a": 2}]]
    values += [[math.inf, 1.0], [math.nan, math.nan], [None, None], ["", " ", "NA"]]
    empty = [pl.Series([], dtype=pl.String), pl.Series([], dtype=pl.Float64)]
    for column in [*map(pl.Series, values), *empty]:
        look = MomentLook.of(column)
        assert (look.format(), look.n_good, look.remarks()) == (None, 0, []), column
        assert look.n_blank + look.n_bad == len(column)
        seconds, _ = MomentFormat.from_pattern("%d.%m.%Y").read(column)
        assert seconds.null_count() == len(column)


CELLS = st.sampled_from(
    [
        *("2025-03-27", "27/03/2025", "03/04/2025", "03/27/2025", "05/06/2025", "18:14", "36:10"),
        *("20250327", "20250328", "1743099240", "27. März 2025", "27 mars 2025", "1h 5m", "1h 6m"),
        *("2025-03-27T18:14+02:00", "2025-03-27T18:14Z", "soon", "", "NA", " 27/03/2025"),
        *("31.02.2025", None),
    ]
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(CELLS, min_size=1, max_size=40), st.integers(0, 40), st.sampled_from(["x", "time"]))
@example(["1h 5m", "18:14"], 1, "x")
@example(["18:14", "1h 5m"], 1, "x")
def test_joined_halves_are_the_whole(cells, cut, name):
    column = pl.Series(name, cells, dtype=pl.String)
    whole = MomentLook.of(column)
    halves = MomentLook.of(column[:cut]).joined(MomentLook.of(column[cut:], 1 + len(column[:cut])))
    assert halves.format() == whole.format()
    assert halves.remarks() == whole.remarks()
    for what in ("n_good", "n_blank", "n_bad", "first_bad"):
        assert getattr(halves, what) == getattr(whole, what), what


@each("pattern", ["%d.%m.%Y %H:%M", "%d %b %Y", "%I:%M %p", "%Y%m%d%H%M%S"])
def test_long_columns_are_read_as_short_ones(pattern):
    """Where many texts are equal each is read once."""
    rng = np.random.default_rng(0)
    seconds = rng.choice(rng.integers(-2_000_000_000, 4_000_000_000, 1_000), 5_000)
    column = (pl.Series(seconds) * 1000).cast(pl.Datetime("ms")).dt.strftime(pattern)
    others = ["", None, "31.02.2025", " ", "2025-02-30", "02/30/2025", "+2025-1-01", "1/ 3/2025"]
    column = pl.concat([column, pl.Series(others, dtype=pl.String)])
    way = "time" if "%Y" not in pattern else "date", pattern
    parts = [read_texts(column[start : start + 500], way) for start in range(0, len(column), 500)]
    long = read_texts(column, way)
    assert long.equals(pl.concat(parts))
    assert long.null_count() == len(others)


@each("tail", ["", "Z", "+02:00", " +0530"])
@each("fraction", ["", ".25", ",250"])
def test_long_columns_with_fractions_and_offsets(tail, fraction):
    column = pl.Series([f"2025-03-27T18:{m:02d}:03{fraction}{tail}" for m in range(60)] * 100)
    look = MomentLook.of(column)
    seconds, bad = look.format().read(column)
    assert look.n_bad == bad.sum() == 0
    start = seconds_of(dt.datetime(2025, 3, 27, 18, 0, 3)) + (0.25 if fraction else 0)
    expected = start + 60 * np.arange(60)
    np.testing.assert_allclose(seconds[:60].to_numpy(), expected, rtol=0, atol=1e-6)
    mixed = pl.concat([column, pl.Series(["2025-03-27T18:00:03x", "2025-03-27T18:00:03+99:00"])])
    assert look.format().read(mixed)[1].arg_true().to_list() == [6000, 6001]


def test_given_formats():
    for text, kind, cell, value, words in [
        ("%d.%m.%Y %H:%M", "date", "27.03.2025 18:14", EVENING, "dates like 27.03.2025 18:14"),
        ("%d/%m/%Y", "date", "03/04/2025", dt.datetime(2025, 4, 3), ""),
        ("%m/%d/%Y", "date", "03/04/2025", dt.datetime(2025, 3, 4), ""),
        ("%F %T", "date", "2025-03-27 18:14:03", EXACT, ""),
        ("%Y-%m-%d %H:%M:%S.%f", "date", "2025-03-27 18:14:03.5", HALF, ""),
        ("%d%m%Y", "date", "27032025", MARCH, ""),
        ("(%Y).%m+%d", "date", "(2025).03+27", MARCH, ""),
        ("%B %d, %Y", "date", "march 27, 2025", MARCH, "dates like March 27, 2025"),
        ("iso", "date", "2025-03-27T18:14:03Z", EXACT, ""),
        ("iso", "date", "2025-03-27", MARCH, ""),
        ("unix", "date", "1743033600", MARCH, "dates as Unix seconds"),
        ("unix ms", "date", "1743033600000", MARCH, ""),
        ("excel", "date", "45743.5", dt.datetime(2025, 3, 27, 12), ""),
        ("%H:%M", "time", "18:14", 65_640, ""),
        ("%I:%M %p", "time", "6:14 pm", 65_640, "times like 6:14 PM"),
        ("%H:%M:%S", "duration", "100:00:01", 360_001, ""),
        ("units", "duration", "1h 20m", 4_800, "durations like 1h 20m 30s"),
    ]:
        written = MomentFormat.from_pattern(text, kind)
        assert written.read(pl.Series([cell]))[0].to_list() == [seconds_of(value)], text
        assert from_tree(*to_tree(written)) == written
        assert not words or written.describe() == words
    written = MomentFormat.from_pattern("%d.%m.%Y")
    assert (written.show(math.nan), written.show(1e15)) == ("", "1e+15 s")


def test_mistakes_in_what_is_given_are_said():
    for text, kind, words in [
        ("%d.%m.%q", "date", "%q, which is not known"),
        ("%d.%m", "date", "no year and month"),
        ("%d.%d.%Y", "date", "the same thing twice"),
        ("dd.mm.yyyy", "date", "date:%d.%m.%Y"),
        ("%Y-%m-%d %I:%M", "date", "no whole clock"),
        ("%Y-%m-%b", "date", "one of them twice"),
        ("%Y-%m-%d %M", "date", "no whole clock"),
        ("%Y-%m-%d %", "date", "not known"),
        ("%Y-%m-%d %z %H:%M", "date", "before its end"),
        ("%Y %H:%M", "time", "not a time of day alone"),
        ("unix", "time", "time:%H:%M"),
        ("hours", "duration", "duration:%H:%M:%S"),
        ("", "date", "date:%d.%m.%Y"),
        ("%d" * 100, "date", "date:%d.%m.%Y"),
        ("%d.%m.%Y", "dates", "Did you mean 'date'"),
    ]:
        with pytest.raises(InputError, match=re.escape(words)):
            MomentFormat.from_pattern(text, kind)


def test_changed_formats_are_refused():
    wrong = {
        "kind": ("number", "datetime"),
        "pattern": ("", ["%d.%m.%Y"], "%d.%m.%Y" * 100, "(a+)+$", "%d.%m.%Y\n", 17, "%e.%m.%Y"),
        "zone": ("Mars/Olympus", None, 7),
        "more": (1,),
    }
    state = vars(MomentFormat.from_pattern("%d.%m.%Y"))
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(InputError):
                build(MomentFormat, {**state, name: value})


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.sampled_from("0123456789:-/. TZPMaprMzhms+,%\u00e4"), max_size=25))
def test_any_cell_is_looked_at_and_what_is_found_is_read(cell):
    look = look_at([cell], "date")
    assert look.n_blank + look.n_good + look.n_bad == 1
    if look.format():
        assert look.format().read(pl.Series([cell]))[1].to_list() == [False]
        assert from_tree(*to_tree(look.format())) == look.format()
