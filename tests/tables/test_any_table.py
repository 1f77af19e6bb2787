"""Tables as people keep them: dates, money, words and groups, from the file to the model file."""

from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import roc_auc_score
from support.loops import each

import riskad
from riskad.app.look import look_table
from riskad.app.onnx import feeds, to_onnx
from riskad.app.report.documents import render_look
from riskad.app.spec import FitSpec
from riskad.core.checks import InputError
from riskad.tables.preparation import TablePreparer

LABELS = FitSpec(label="label", normal=["ok"], anomaly=["fraud"])
NOTES = ("please deliver to the back door", "call before you come", "urgent refund to new account")


def payments(n=400, seed=0):
    """Payments from a spreadsheet: large ones at night are frauds."""
    rng = np.random.default_rng(seed)
    fraud = rng.random(n) < 0.15
    minutes = np.where(fraud, rng.integers(0, 5 * 60, n), rng.integers(8 * 60, 23 * 60, n))
    day = np.datetime64("2025-01-01") + rng.integers(0, 90, n).astype("timedelta64[D]")
    when = pl.Series(day.astype("datetime64[us]") + minutes.astype("timedelta64[m]"))
    amount = rng.lognormal(3 + 2 * fraud, 0.5)
    sent = when - pl.Series(rng.integers(1, 20, n)).cast(pl.Duration("us")) * 0
    label = np.where(rng.random(n) < 0.4, np.where(fraud, "fraud", "ok"), "")
    notes = np.array(NOTES)[np.where(fraud, 2, rng.integers(0, 2, n))]
    return pl.DataFrame(
        {
            "when": when.dt.strftime("%d.%m.%Y %H:%M"),
            "sent": sent.dt.offset_by("-3d").dt.strftime("%d.%m.%Y"),
            "amount": [f"{x:,.2f} €" for x in amount],
            "share": [f"{x:.1f}%" for x in rng.uniform(0, 100, n)],
            "paid": np.where(rng.random(n) < 0.5, "ja", "nein"),
            "shop": [f"Shop {i}" for i in rng.integers(0, 70, n)],
            "note": [f"{text} number {i}" for i, text in enumerate(notes)],
            "customer": [f"C{i}" for i in rng.integers(0, 40, n)],
            "label": label,
        }
    ), fraud


@pytest.fixture(scope="module")
def table():
    return payments()


def test_every_column_is_read_and_said(table):
    preparer = TablePreparer(group="customer").fit(table[0].drop("label"))
    kinds = "datetime date number number flag categories text group"
    columns = [name for name in table[0].columns if name != "label"]
    assert preparer.kinds_ == dict(zip(columns, kinds.split(), strict=True))
    said = preparer.describe()
    for words in (
        "when: dates like 27.03.2025 18:14: hour, weekday, day of month, elapsed",
        "amount: numbers in €",
        "share: numbers in %",
        "time between dates: sent to when",
        "sent: it goes with 'when': the time between them replaces its calendar",
        "1 yes/no column: paid",
        "1 many-level category column: shop (70 levels)",
    ):
        assert words in said
    assert any("compared within 40 groups" in line for line in said)


def test_time_between_dates_runs_from_the_one_that_is_usually_first():
    """A booking 2 days after its invoice was called a long gap: the difference was negative."""
    rng = np.random.default_rng(0)
    invoice = [datetime(2024, 1, 1) + timedelta(days=int(day)) for day in rng.integers(0, 700, 300)]
    gaps = rng.integers(20, 40, 300)
    booked = [at + timedelta(days=int(gap)) for at, gap in zip(invoice, gaps, strict=True)]
    table = pl.DataFrame({"booked": booked, "invoice": invoice})
    [between] = TablePreparer().fit(table).derived_
    assert between.names() == ["invoice to booked"]
    np.testing.assert_array_equal(between.values(table)[:, 0], gaps)
    assert between.typical == [np.median(gaps)]
    column = between.column("invoice to booked")
    assert column.extremes == ("short", "long")
    assert (column.show(2.0), column.show(-3.0)) == ("2 days", "3 days before")


@pytest.mark.parametrize("encode", [True, False])
def test_rows_in_parts_and_from_a_model_file_are_the_same_rows(table, encode, tmp_path):
    frame = table[0].drop("label")
    preparer = TablePreparer(group="customer", encode=encode).fit(frame)
    whole = preparer.transform(frame)
    parts = [preparer.transform(frame[i : i + 90], first_row=i + 1) for i in range(0, 400, 90)]
    joined = np.vstack(parts if encode else [part.values for part in parts])
    _assert_same(joined, whole)
    riskad.save(preparer, tmp_path / "preparer.riskad")
    _assert_same(riskad.load(tmp_path / "preparer.riskad").transform(frame), whole)
    parsed = preparer.parse(frame)
    assert preparer.parse(parsed).equals(parsed)
    again = preparer.refit().fit(parsed)
    assert list(again.get_feature_names_out()) == list(preparer.get_feature_names_out())
    _assert_same(again.transform(parsed), whole)


def _assert_same(rows, expected):
    rows, expected = (getattr(each, "values", each) for each in (rows, expected))
    np.testing.assert_array_equal(rows, expected)


def test_what_a_spreadsheet_holds_is_found(table):
    """Dates and money tell the frauds apart; nothing was written for the program."""
    frame, _ = table
    fit = riskad.fit_table(frame, LABELS, model="forest", settings={"random_state": 0})
    new, truth = payments(seed=1)
    scores = -fit.model.score_samples(new)
    assert roc_auc_score(truth, scores) > 0.97
    columns = {effect.column for effect in fit.report.effects[:4]}
    assert columns & {"when", "amount", "note"}
    assert fit.report.columns["when"] == "datetime"


def test_reasons_speak_as_the_table_does(table):
    frame, _ = table
    fit = riskad.fit_table(frame, LABELS, model="shallow", group="customer")
    found = riskad.explain_rows(fit.model, frame[:20])
    assert "sent to when" in found.columns
    assert "amount beside its customer" in found.columns
    by_name = {reason.column: reason for reason in found.of(0)}
    assert by_name["when"].value == frame["when"][0]
    assert by_name["paid"].value == frame["paid"][0]
    assert by_name["sent to when"].value.endswith(" days")
    total = found.base + found.contributions.sum(axis=1)
    np.testing.assert_allclose(total, -fit.model.score_samples(frame[:20]), atol=1e-8)


@pytest.mark.slow
@each("model", ["shallow", "boosted"])
def test_graphs_take_moments_as_seconds_and_say_what_they_cannot_do(table, model):
    onnxruntime = pytest.importorskip("onnxruntime")
    frame = table[0].drop("note", "customer")
    fit = riskad.fit_table(frame, LABELS, model=model)
    proto = to_onnx(fit.model)
    said = {entry.name: entry.doc_string for entry in proto.graph.input}
    assert said["when"].startswith("seconds since 1970-01-01")
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    rows = fit.model[0].parse(frame)
    theirs, *_ = session.run(None, feeds(proto, rows))
    np.testing.assert_allclose(theirs, -fit.model.score_samples(frame), rtol=1e-5, atol=1e-5)
    if model == "shallow":
        for column, group, words in (("note", None, "'text'"), ("customer", "customer", "look gr")):
            narrow = table[0].select("amount", "label", column)
            with pytest.raises(InputError, match=words):
                to_onnx(riskad.fit_table(narrow, LABELS, model=model, group=group).model)


def test_a_group_tells_what_is_odd_for_whom():
    rng = np.random.default_rng(0)
    n = 1500
    customer = rng.integers(0, 50, n)
    level = rng.normal(0, 5, 50)
    odd = rng.random(n) < 0.06
    amount = level[customer] + rng.normal(0, 0.5, n)
    amount[odd] = rng.normal(0, 5, odd.sum())
    label = np.where(rng.random(n) < 0.2, np.where(odd, "fraud", "ok"), "")
    frame = pl.DataFrame({"amount": amount, "customer": customer, "label": label})
    new = label == ""
    found = {}
    for group in (None, "customer"):
        options = {"drop": ["customer"], "group": group, "settings": {"n_estimators": 60}}
        fit = riskad.fit_table(frame, LABELS, model="forest", **options)
        found[group] = roc_auc_score(odd[new], -fit.model.score_samples(frame.filter(new)))
    assert found["customer"] > 0.85
    assert found[None] < 0.7
    unseen = frame.head(3).with_columns(customer=pl.lit("somebody new"))
    assert np.isfinite(fit.model.score_samples(unseen)).all()
    with pytest.raises(InputError, match="missing: 'customer'"):
        fit.model.score_samples(unseen.drop("customer"))


def test_a_blank_speaks_where_what_is_written_does_not():
    """A telephone number names a row, and frauds have none."""
    rng = np.random.default_rng(0)
    fraud = rng.random(300) < 0.2
    phone = [
        None if gone else f"0{i:07}" for i, gone in enumerate(rng.random(300) < 0.1 + 0.8 * fraud)
    ]
    frame = pl.DataFrame({"phone": phone, "x": rng.normal(size=300)})
    preparer = TablePreparer().fit(frame)
    assert preparer.kinds_["phone"] == "identifier"
    assert list(preparer.get_feature_names_out()) == ["phone is blank", "x"]
    np.testing.assert_array_equal(preparer.transform(frame)[:, 0], frame["phone"].is_null())
    parsed = preparer.parse(frame)
    _assert_same(preparer.refit().fit(parsed).transform(parsed), preparer.transform(frame))
    assert "phone: " in " ".join(preparer.describe())


def test_a_look_says_what_each_column_is(table):
    found = look_table(table[0], LABELS, id=None, source="payments")
    assert str(found.labels).endswith("unlabelled")
    columns = {column.name: column for column in found.columns}
    assert columns["amount"].use == "numbers in €"
    assert columns["amount"].examples[0].endswith("€")
    kinds = [values.kind for values in columns["amount"].values]
    assert kinds == ["normal", "anomaly", "unlabelled"]
    assert sum(columns["paid"].values[0].counts) == found.labels.normal
    page = render_look(found)
    assert page.count("<svg") == sum(column.used for column in found.columns)
    assert "Shop" in page
    unlabelled = table[0].drop("label")
    whole, parts = look_table(unlabelled), look_table([unlabelled[:150], unlabelled[150:]])
    assert parts.rows == whole.rows == 400
    assert [(c.name, c.kind) for c in parts.columns] == [(c.name, c.kind) for c in whole.columns]
    assert {values.kind for column in whole.columns for values in column.values} == {"rows"}


def test_a_look_counts_what_a_fit_counts_as_blank():
    """Also "n/a", of a sample as of all rows, and not a list, which has no text."""
    frame = pl.DataFrame(
        {
            "paid": ["1,50 €", "n/a", "2,50 €", "-", "3,00 €", "7,25 €"] * 20,
            "day": ["2025-01-01", "n/a", "2025-03-01", "", "2025-01-05", "2025-02-02"] * 20,
            "cleared": ["x", None, "x", "x", None, None] * 20,
            "list": [[1, 2]] * 120,
            "nothing": [""] * 120,
        }
    )
    for table in (frame, [frame[:50], frame[50:]]):
        found = {column.name: column for column in look_table(table).columns}
        shares = {name: round(column.blank_share, 3) for name, column in found.items()}
        assert shares == {"paid": 0.333, "day": 0.333, "cleared": 0.5, "list": 0, "nothing": 1}
        assert "n/a" not in found["paid"].examples + found["day"].examples
        assert found["cleared"].examples == ["x"]


def test_a_leak_and_copies_are_said(table):
    frame, fraud = table
    checked = pl.Series(np.where(fraud, 9.5, 1.5) + np.arange(400) / 1e4)
    leak = frame.select("share", "paid", "shop", "label", checked=checked)
    found = look_table(pl.concat([leak, leak[:40]]), LABELS)
    assert any(line.startswith("checked: ") for line in found.suspicious)
    assert any("40 rows" in line for line in found.suspicious), found.suspicious
    fit = riskad.fit_table(leak, LABELS, model="shallow")
    assert any("checked" in line for line in fit.report.warnings)


def test_a_column_that_changes_in_a_late_row_is_found_and_said():
    """Some rows tell how a long column is written, and all of them are asked."""
    rng = np.random.default_rng(0)
    amounts = [f"{x:.2f} €" for x in rng.lognormal(3, 1, 30_000)]
    preparer = TablePreparer().fit(pl.DataFrame({"x": amounts}))
    assert preparer.kinds_ == {"x": "number"}
    late = [*amounts[:29_000], *["open"] * 1_000]
    table = pl.DataFrame({"x": late, "y": rng.normal(size=30_000)})
    preparer = TablePreparer().fit(table)
    assert preparer.kinds_["x"] != "number"
    said = " ".join(preparer.describe())
    assert "most are numbers, but not 'open' in row 29,001" in said
    codes = pl.DataFrame({"x": [*map(str, rng.integers(1, 99, 29_999)), "007"]})
    assert TablePreparer().fit(codes).kinds_ == {"x": "categories"}
