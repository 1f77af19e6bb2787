"""The curves by share of labels: their page is made of the records, their splits stay the same."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
FIELD = ROOT / "results" / "field"

pytestmark = pytest.mark.skipif(
    not FIELD.is_dir(), reason="results/ is part of the repository, not of the package"
)


@pytest.fixture(scope="module")
def curves():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        yield importlib.import_module("benchmarks.learning_curves")


@pytest.fixture(scope="module")
def records():
    return list(map(json.loads, (FIELD / "learning_curves.jsonl").read_text().splitlines()))


@pytest.fixture(scope="module")
def lines(curves, records):
    return curves.by_cell(records)


@pytest.fixture(scope="module")
def sets(curves):
    return curves.by_cell(curves.read_lines(FIELD / "learning_sets.jsonl"))


@pytest.fixture(scope="module")
def kept():
    return json.loads((FIELD / "learning_curves.json").read_text())


def cell(setting, table, auto, peers=(0.7, 0.6, 0.5)):
    methods = dict(zip(("CatBoost", "LightGBM", "ExtraTrees"), peers, strict=True))
    scores = {"AutoRAD": auto} | methods
    return {"setting": setting, "table": table} | {m: [v, v / 2, 1.0] for m, v in scores.items()}


def test_the_page_is_made_of_the_records(curves, lines, sets, kept):
    text = (FIELD / "learning_curves.md").read_text(encoding="utf-8")
    assert curves.page(lines, sets, kept) == text
    means = [np.mean([c["AutoRAD"][0] for c in lines if c["setting"] == s]) for s in ("few", "1.0")]
    assert all(f"| {mean:.4f} |" in text for mean in means)


def test_every_cell_is_recorded_once_and_of_a_kept_table(curves, records):
    tables = set(json.loads(curves.SPLIT.read_text())["kept"])
    keys = [(line["setting"], line["table"], line["method"]) for line in records]
    assert len(keys) == len(set(keys))
    assert {table for _, table, _ in keys} <= tables
    assert {setting for setting, _, _ in keys} <= set(curves.SETTINGS)


def test_a_cell_counts_once_all_methods_have_been_run_on_it(curves):
    def record(table, method):
        return {"setting": "0.05", "table": table, "method": method, "figures": [0.9, 0.5, 1.0]}

    whole = [record("a", method) for method in curves.METHODS]
    assert curves.by_cell([*whole, record("b", "AutoRAD")]) == [
        {"setting": "0.05", "table": "a"} | {key: [0.9, 0.5, 1.0] for key in curves.METHODS}
    ]


def test_gains_are_over_tables_that_both_have(curves):
    cells = [cell("0.05", "a", 0.8), cell("0.05", "b", 0.9), cell("0.05", "new", 0.1)]
    old = {s: {} for s in curves.SETTINGS} | {"0.05": {"a": [0.75, 0.3], "b": [0.8, 0.4]}}
    auc, precision = curves.summed_up(cells, old)
    assert auc["gain"] == pytest.approx((0.075, 0.025))
    assert auc["means"]["AutoRAD"] == pytest.approx(0.6)
    assert (auc["best"], auc["lead"][0]) == ("CatBoost", pytest.approx(-0.1))
    assert precision["gain"][0] == pytest.approx(0.075)
    assert (auc["wanted"], precision["wanted"]) == (0.008, 0.015)


def test_a_target_that_is_missed_is_said_to_be(curves):
    cells = [cell("0.2", "a", 0.7), cell("0.2", "b", 0.69)]
    old = {s: {} for s in curves.SETTINGS} | {"0.2": {"a": [0.7, 0.3], "b": [0.69, 0.3]}}
    *_, auc, precision = curves.targets_table(curves.summed_up(cells, old))
    assert auc == (
        "| 20 % | AUC | -0.0050 (0.0050) CatBoost | -0.001 | no | +0.0000 (0.0000) | -0.002 | yes |"
    )
    assert precision.endswith("| yes |")


def test_splits_are_those_of_the_figures_before(curves):
    """A row of the truth moves no row, and labels are a table's own."""
    y = np.arange(1000) % 10 == 0
    own, test, codes = curves.drawn(y, "0.05", "004a9c15d6f2")
    order = np.random.default_rng([7, 0x004A9C15]).permutation(1000)
    assert [*own, *test] == order.tolist()
    assert (codes != 0).sum() == 35
    assert ((codes == -1) <= y[own]).all()
    assert ((codes == 1) <= ~y[own]).all()
    few = curves.drawn(y, "few", "004a9c15d6f2")[2]
    assert 1 <= (few == -1).sum() <= 3


def test_a_stopped_run_goes_on_where_its_records_end(curves, tmp_path, monkeypatch):
    rng, names = np.random.default_rng(0), ["one", "two"]
    tables = {f"{n}|X": rng.normal(size=(60, 2)).astype(np.float32) for n in names}
    tables |= {f"{n}|y": np.arange(60) % 3 == 0 for n in names}
    np.savez(tmp_path / "tables.npz", **tables)
    split = tmp_path / "split.json"
    split.write_text(json.dumps({"kept": [curves.name_hash(name) for name in names]}))
    monkeypatch.setattr(curves, "SPLIT", split)
    monkeypatch.setattr(curves, "METHODS", {"first column": lambda X, codes, new: new[:, 0]})
    monkeypatch.setattr(curves, "provenance", lambda *more: {})
    records = tmp_path / "records.jsonl"
    told = str(tmp_path / "tables.npz"), records, np.inf, ["first column"], 1
    curves.run(*told)
    whole = records.read_text().splitlines()
    records.write_text("\n".join(whole[:3]) + "\n")
    curves.run(*told)
    assert records.read_text().splitlines()[:3] == whole[:3]
    timeless = [{**line, "figures": line["figures"][:2]} for line in map(json.loads, whole)]
    again = [json.loads(line) for line in records.read_text().splitlines()]
    assert [{**line, "figures": line["figures"][:2]} for line in again] == timeless
    assert len({(line["setting"], line["table"]) for line in again}) == len(whole) > 8
