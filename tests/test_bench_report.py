import csv
import io
import json
import math
import random
import re
import xml.etree.ElementTree as ET
from collections import Counter

import pytest

from riskad.bench.comparisons import gaps, headline_rule, overall, reach_by_loss, set_gaps, sweeps
from riskad.bench.paper import PAPER_SETS, Published, paper_set, published
from riskad.bench.render import csv_text, latex_text, markdown_text, write_report
from riskad.bench.summarise import summarise
from riskad.bench.summary import TrialMean
from riskad.bench.tables import tables_of
from riskad.core.checks import InputError

LOSSES = ("squared", "hinge", "modified_huber")
IDENTITY = {"root": 0, "estimator": "riskad.ShallowRAD", "test_share": 0.3, "labelled": 0.05}
VERSIONS = "riskad 0.1.0; numpy 2.4.6"


def record(dataset="pendigits", auc=0.9, trial=0, *, method="rad", experiment="main", **more):
    """One trial; names that no record has are settings."""
    settings = {"a": 0.1, "prior": 0.8, "loss": "hinge", "lam": "theorem"}
    if method != "rad":
        settings = {}
    counts = {"n_train": 70, "n_test": 30, "n_normal": 9, "n_anomaly": 7}
    known = {*counts, *IDENTITY, "versions", "warnings"}
    row = {
        "experiment": experiment,
        "dataset": dataset,
        "method": method,
        "settings": settings | {key: more[key] for key in more if key not in known},
        "trial": trial,
        "status": "ok",
        "auc": auc,
        "average_precision": auc / 2,
        "fit_seconds": 0.01,
        "score_seconds": 0.001,
        "versions": VERSIONS,
    }
    return row | IDENTITY | counts | {key: more[key] for key in more if key in known}


def failed(reason, *args, **more):
    row = record(*args, **more)
    for key in ("auc", "average_precision", "fit_seconds", "score_seconds"):
        del row[key]
    return row | {"status": "failed", "reason": reason}


def not_run(dataset, reason, experiment="main"):
    return {"experiment": experiment, "dataset": dataset, "status": "not run", "reason": reason}


def small_run(sets=("pendigits", "Stamps", "CIFAR10_1", "magic.gamma"), trials=3):
    """All experiments on a few sets, each AUC the published one and a little noise."""
    rng = random.Random(0)
    columns = [("main", "rad", {"loss": loss, "lam": lam}) for loss in LOSSES for lam in RULES]
    columns += [("main", "pu", {"loss": loss, "lam": "cv", "prior": 0.8}) for loss in LOSSES]
    columns += [("main", "ocsvm", {"nu": 0.1}), ("main", "semi_ocsvm", {"kernel": "laplacian"})]
    unlabelled = ("normal", "outside")
    columns += [
        ("main", "semi_ocsvm", {"kernel": "biased", "unlabelled": kind}) for kind in unlabelled
    ]
    for loss in LOSSES:
        for lam in ("theorem", "cv"):
            both = {"loss": loss, "lam": lam}
            columns += [("prior", "rad", {"prior": p} | both) for p in ("true", 0.9, 0.7, 0.6)]
            columns += [("a", "rad", {"a": a} | both) for a in (0.3, 0.7, 0.9)]
        columns.append(("published", "rad", {"loss": loss, "lam": "published"}))
    rows = []
    for experiment, method, settings in columns:
        for name in sets:
            mean = published(experiment, name, method, settings).mean
            for trial in range(trials):
                auc = min(1.0, rng.gauss(mean, 0.01))
                more = {"method": method, "experiment": experiment, **settings}
                rows.append(record(name, auc, trial, **more))
    return rows


RULES = ("theorem", "tight", "cv")


def write_records(folder, rows):
    (folder / "records").mkdir(parents=True)
    for name in {row["experiment"] for row in rows}:
        lines = [json.dumps(row) + "\n" for row in rows if row["experiment"] == name]
        (folder / "records" / f"{name}.jsonl").write_text("".join(lines))


@pytest.fixture(scope="module")
def summary():
    return summarise(small_run())


# --- what the paper printed --------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (("main", "Stamps", "rad", {"loss": "squared", "lam": "cv"}), (0.82, 0.0356)),
        (("main", "20news_1", "pu", {"loss": "modified_huber"}), (0.59, 0.0163)),
        (("main", "optdigits", "ocsvm", {"nu": 0.1}), (0.48, 0.0064)),
        (("main", "SpamBase", "semi_ocsvm", {"kernel": "laplacian"}), (0.63, 0.0084)),
        (("published", "fault", "rad", {"loss": "hinge", "a": 0.1}), (0.62, 0.0054)),
        (("prior", "InternetAds", "rad", {"loss": "squared", "prior": 0.6}), (0.6, None)),
        (("prior", "vowels", "rad", {"loss": "hinge", "prior": "true"}), (0.69, None)),
        (("a", "yelp", "rad", {"loss": "squared", "a": 0.3, "prior": 0.8}), (0.9, None)),
    ],
)
def test_published_numbers(place, expected):
    assert published(*place) == expected


@pytest.mark.parametrize(
    "place",
    [
        ("main", "letter", "rad", {"loss": "hinge"}),
        ("main", "Stamps", "forest", {}),
        ("main", "Stamps", "rad", {"loss": "logistic"}),
        ("main", "Stamps", "rad", {"loss": "hinge", "a": 0.3}),
        ("main", "Stamps", "pu", {"loss": "hinge", "prior": 0.7}),
        ("prior", "Stamps", "rad", {"loss": "hinge", "prior": 0.8}),
        ("prior", "Stamps", "rad", {"loss": "hinge", "prior": 0.9, "a": 0.3}),
        ("a", "Stamps", "pu", {"loss": "hinge", "a": 0.3}),
        ("kernel", "Stamps", "rad", {"loss": "hinge"}),
    ],
)
def test_what_the_paper_does_not_have_is_none(place):
    assert published(*place) is None


def test_paper_sets():
    assert len(PAPER_SETS) == 26
    assert PAPER_SETS[0] == "pendigits"
    assert {"CIFAR10_1", "SVHN_1", "20news_1", "agnews_1"} <= set(PAPER_SETS)
    assert paper_set("campaign")[1:] == (62, 41188, 0.11, "3")
    assert paper_set("letter") is None


@pytest.mark.needs_data
def test_every_published_number_is_that_of_the_paper(data_folder):
    path = data_folder.parent / "paper" / "tables.json"
    if not path.is_file():
        pytest.skip("the paper's tables are not beside the benchmark data")
    tables = json.loads(path.read_text())
    losses = dict(zip(LOSSES, ("square", "hinge", "mhuber"), strict=True))
    ours = {name.replace("_", "-"): name for name in PAPER_SETS}
    assert list(tables["shallow"]) == list(ours)
    for printed, name in ours.items():
        row = tables["shallow"][printed]
        facts = paper_set(name)
        assert (facts.d, facts.n, facts.pi_n) == (row["d"], row["n"], row["pi_n"])
        assert row["source"].startswith(f"Table {facts.table} ")
        columns = {("ocsvm", ""): "ocsvm", ("semi_ocsvm", ""): "semi_ocsvm"}
        columns |= {(m, loss): f"{m}_{losses[loss]}" for m in ("rad", "pu") for loss in LOSSES}
        assert set(columns.values()) == set(row["results"])
        for (method, loss), column in columns.items():
            mean, se = published("main", name, method, {"loss": loss})
            assert mean == row["results"][column]["auc_mean"]
            assert 100 * se == pytest.approx(row["results"][column]["auc_se_x100"], abs=1e-9)
        for experiment in ("prior", "a"):
            for loss, column in losses.items():
                values = tables[f"shallow_{experiment}_sensitivity"][printed][column]
                for value, mean in values.items():
                    number = value if value == "true" else float(value)
                    settings = {"loss": loss, experiment: number}
                    assert published(experiment, name, "rad", settings) == (mean, None)


# --- from records to numbers -------------------------------------------------------------


def test_mean_standard_error_and_difference_by_hand():
    # Of 0.97, 0.98, 1.00: mean 0.98333, variance (n - 1) 7 / 30,000, so SE = sqrt(7 / 90,000).
    rows = [record(auc=auc, trial=i) for i, auc in enumerate((0.97, 0.98, 1.00))]
    (cell,) = summarise(rows).cells
    se = math.sqrt(7 / 90_000)
    assert cell.auc.mean == pytest.approx(2.95 / 3)
    assert cell.auc.se == pytest.approx(se)
    assert cell.average_precision.mean == pytest.approx(2.95 / 6)
    assert cell.average_precision.se == pytest.approx(se / 2)
    assert cell.fit_seconds == pytest.approx(0.01)
    assert (cell.n_ok, cell.n_failed) == (3, 0)
    assert cell.published == (0.98, 0.0013)
    assert cell.difference_in_se == pytest.approx((2.95 / 3 - 0.98) / math.sqrt(se**2 + 0.0013**2))
    assert cell.reaches
    assert cell.within


@pytest.mark.parametrize(("auc", "reaches"), [(0.9775, True), (0.9773, False)])
def test_reaching_is_two_published_errors_below(auc, reaches):
    # Published 0.98 (0.0013): the line is at 0.9774.
    (cell,) = summarise([record(auc=auc, trial=i) for i in range(2)]).cells
    assert cell.reaches is reaches


def test_without_published_error_ours_stands_in():
    rows = [
        record("vowels", auc, i, experiment="prior", prior=0.9) for i, auc in enumerate((0.7, 0.8))
    ]
    (cell,) = summarise(rows).cells
    assert cell.published == (0.77, None)
    assert cell.auc.se == pytest.approx(0.05)
    assert cell.difference_in_se == pytest.approx(-0.02 / 0.05)
    assert cell.reaches


def test_no_difference_without_spread():
    (single,) = summarise([record(auc=0.5)]).cells
    assert single.auc == TrialMean(0.5, None, 1)
    assert single.difference_in_se is None
    same = [record("vowels", 0.7, i, experiment="prior", prior=0.9) for i in range(2)]
    (cell,) = summarise(same).cells
    assert cell.auc.se == 0
    assert cell.difference_in_se is None
    assert cell.within is None


def test_rounding_of_the_published_mean_is_allowed_for():
    # 0.98 may have been 0.9849; standard errors of 0.001 and 0.0013 alone do not reach so far.
    rows = [record(auc=auc, trial=i) for i, auc in enumerate((0.985, 0.987))]
    (cell,) = summarise(rows).cells
    assert (cell.within, cell.within_rounded) == (False, True)
    assert Published(0.996, 0.1).rounding == 0.0005


def test_a_cell_recorded_twice_counts_once_as_recorded_last():
    rows = [record(auc=0.1), record(auc=0.5, trial=1), record(auc=0.9)]
    (cell,) = summarise(rows).cells
    assert cell.n_ok == 2
    assert cell.auc.mean == pytest.approx(0.7)
    (again,) = summarise([failed("no luck"), record(auc=0.9)]).cells
    assert (again.n_ok, again.n_failed) == (1, 0)


def test_another_root_is_another_trial():
    (cell,) = summarise([record(), record(root=1)]).cells
    assert cell.n_ok == 2


def test_another_protocol_is_not_compared_with_the_paper():
    cells = summarise([record(), record(labelled=0.1)]).cells
    assert [cell.published is None for cell in cells] == [False, True]


def test_the_order_of_records_plays_no_part():
    rows = small_run()
    shuffled = random.Random(1).sample(rows, len(rows))
    first, second = summarise(rows), summarise(shuffled)
    for name in first.experiments:
        assert markdown_text(first, name) == markdown_text(second, name)


# --- over datasets -----------------------------------------------------------------------


def test_overall_by_hand():
    # Published, hinge: pendigits 0.98 (0.13), Stamps 0.81 (4.08), both over 100.
    rows = [record(auc=auc, trial=i) for i, auc in enumerate((0.89, 0.91))]
    rows += [record("Stamps", auc, i) for i, auc in enumerate((0.80, 0.84))]
    rows += [record("letter", 0.1, i) for i in range(2)]  # not in the paper
    (entry,) = overall(summarise(rows), "main")
    assert entry.n_sets == 2
    assert entry.auc == pytest.approx(0.86)
    assert entry.published == pytest.approx(0.895)
    assert entry.difference == pytest.approx(-0.035)
    assert (entry.n_judged, entry.n_reach) == (2, 1)
    assert (entry.n_compared, entry.n_within, entry.n_within_rounded) == (2, 1, 1)


def test_overall_of_an_experiment_of_ones_own():
    rows = [record(name, auc, experiment="mine") for name, auc in (("pendigits", 0.5), ("x", 0.7))]
    (entry,) = overall(summarise(rows), "mine")
    assert (entry.n_sets, entry.published) == (2, None)
    assert entry.auc == pytest.approx(0.6)


def test_overall_is_over_the_sets_that_all_rows_have():
    rows = [record(auc=0.5), record("Stamps", 0.7), record("Stamps", 0.9, lam="cv")]
    theorem, cv = overall(summarise(rows), "main")
    assert theorem.sets == cv.sets == ("Stamps",)
    assert (theorem.auc, cv.auc) == (0.7, 0.9)
    table = tables_of(summarise(rows), "main")[1]
    assert "Only sets that all rows have, so without pendigits." in table.note
    rows = [record(auc=0.5), record("Stamps", 0.9, lam="cv")]
    assert [entry.sets for entry in overall(summarise(rows), "main")] == [
        ("pendigits",),
        ("Stamps",),
    ]
    assert "rows cannot be compared" in tables_of(summarise(rows), "main")[1].note


def test_cv_stands_for_rad_where_it_was_run():
    rows = [record(), record(lam="tight")]
    assert headline_rule(summarise(rows)) == "theorem"
    assert headline_rule(summarise([*rows, record(lam="cv")])) == "cv"
    assert headline_rule(summarise([record(lam=0.5)])) == 0.5
    assert headline_rule(summarise([record(experiment="mine")])) is None


def test_reach_by_hand():
    # Published, hinge: pendigits 0.98 (0.13), Stamps 0.81 (4.08), both over 100.
    rows = [record("pendigits", 0.97, lam="cv"), record("Stamps", 0.75, lam="cv")]
    rows += [failed("no memory", "fault", lam="cv"), record("x", 0.1, lam="cv")]
    rows += [record("pendigits", 1.0), record("Stamps", 1.0)]  # another rule
    (reach,) = reach_by_loss(summarise(rows))
    assert (reach.rule, reach.n_reach, reach.n_sets) == ("cv", 1, 3)
    assert reach.missed == ("pendigits", "fault")
    assert reach.auc == pytest.approx(0.86)
    assert reach.published == pytest.approx(0.895)


def test_gaps_by_hand():
    # Published, hinge, rAD - PU: pendigits (pi_n 0.02) 0.98 - 0.78, magic.gamma (0.35) 0.
    aucs = {"pendigits": (0.9, 0.6), "magic.gamma": (0.8, 0.75)}
    rows = [record(name, rad) for name, (rad, _) in aucs.items()]
    rows += [record(name, pu, method="pu", loss="hinge") for name, (_, pu) in aucs.items()]
    rows.append(record("Stamps", 0.5))  # without PU
    found = {gap.sets: gap for gap in gaps(summarise(rows), "pu")}
    assert found["all"].n_sets == 2
    assert found["all"].ours == pytest.approx(0.175)
    assert found["all"].published == pytest.approx(0.1)
    assert found["small"].ours == pytest.approx(0.3)
    assert found["small"].published == pytest.approx(0.2)
    assert found["large"].ours == pytest.approx(0.05)
    assert found["large"].published == pytest.approx(0)


def test_the_semi_supervised_svm_compared_is_that_of_the_published_column():
    rows = [record(auc=0.9)]
    variants = (("biased", "outside", 0.1), ("biased", "normal", 0.6), ("laplacian", None, 0.2))
    for kernel, unlabelled, auc in variants:
        settings = {"kernel": kernel} | ({"unlabelled": unlabelled} if unlabelled else {})
        rows.append(record(auc=auc, method="semi_ocsvm", **settings))
    (gap,) = set_gaps(summarise(rows), "hinge", "theorem", "semi_ocsvm")
    assert gap.ours == pytest.approx(0.3)
    assert gap.published == pytest.approx(0.98 - 0.77)


def test_sweep_takes_the_default_from_main_and_only_common_sets():
    rows = [record("vowels", 0.8), record("Stamps", 0.9)]
    rows += [
        record("vowels", auc, experiment="prior", prior=value)
        for value, auc in (("true", 0.7), (0.9, 0.75), (0.6, 0.85))
    ]
    rows.append(record("Stamps", 0.1, experiment="prior", prior=0.9))  # not at every value
    (sweep,) = sweeps(summarise(rows), "prior")
    assert sweep.values == ("true", 0.9, 0.8, 0.6)
    assert sweep.n_sets == 1
    assert sweep.ours == pytest.approx((0.7, 0.75, 0.8, 0.85))
    assert sweep.published == pytest.approx((0.69, 0.77, 0.83, 0.85))
    assert sweep.spread == pytest.approx(0.15)
    assert sweep.published_spread == pytest.approx(0.16)


def test_a_rule_run_at_some_values_only_does_not_stand_in_the_way_of_others():
    rows = [record("vowels", 0.8, experiment="a", a=a) for a in (0.3, 0.9)]
    rows += [record("vowels", 0.7, experiment="a", a=0.3, lam="cv")]
    (sweep,) = sweeps(summarise(rows), "a")
    assert (sweep.rule, sweep.values) == ("theorem", (0.3, 0.9))


def test_sweep_over_a_rises():
    rows = [record("vowels", 0.8)]
    rows += [record("vowels", 0.7, experiment="a", a=a) for a in (0.9, 0.3)]
    (sweep,) = sweeps(summarise(rows), "a")
    assert sweep.values == (0.1, 0.3, 0.9)
    assert sweep.published == pytest.approx((0.83, 0.85, 0.78))


# --- Markdown ----------------------------------------------------------------------------


def markdown_tables(text):
    """Tables of a Markdown text as {title: rows of cells}."""
    tables = {}
    for part in text.split("\n## ")[1:]:
        title, _, body = part.partition("\n")
        lines = [line for line in body.splitlines() if line.startswith("|")]
        if lines:
            rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
            tables[title] = [[cell.strip() for cell in row] for row in rows]
    return tables


@pytest.mark.parametrize("experiment", ["main", "prior", "a", "published"])
def test_markdown_has_each_dataset_once_in_each_table(summary, experiment):
    tables = markdown_tables(markdown_text(summary, experiment))
    by_set = [rows for rows in tables.values() if rows[0][0].startswith("dataset")]
    assert len(by_set) == {"main": 5, "prior": 6, "a": 6, "published": 1}[experiment]
    for rows in by_set:
        assert {len(row) for row in rows} == {len(rows[0])}
        assert len(rows[0]) <= 8
        names = [row[0].split(" ")[0] for row in rows[2:6]]
        assert names == ["pendigits", "Stamps", "magic.gamma", "CIFAR10_1"]  # the paper's order
        assert rows[6][0] == "*mean of 4 sets*"


def test_markdown_cells_are_written_as_in_the_paper():
    rows = [record(auc=auc, trial=i) for i, auc in enumerate((0.97, 0.98, 1.00))]
    rows += [record("optdigits", 0.996), failed("no luck", "optdigits", trial=1)]
    tables = markdown_tables(markdown_text(summarise(rows), "main"))
    table = tables["rAD, hinge loss, by rule for lambda"]
    assert table[0] == ["dataset (d, n, pi_n)", "published", "theorem", "theorem: difference"]
    assert table[2] == ["pendigits (16, 6870, 0.02)", "0.98 (0.13)", "0.983 (0.88)", "+0.4"]
    assert table[3] == ["optdigits (64, 5216, 0.03)", "0.996 (0.07)", "0.996 (-) [1]", "-"]


def test_mean_row_is_over_sets_that_all_columns_have():
    rows = [record(auc=0.5), record("Stamps", 0.7), record("Stamps", 0.9, lam="cv")]
    table = markdown_tables(markdown_text(summarise(rows), "main"))
    means = table["rAD, hinge loss, by rule for lambda"][4]
    assert means == ["*mean of 1 set*", "*0.810*", "*0.700*", "*0.900*", ""]


@pytest.mark.parametrize(("n_low", "said"), [(1, "is met"), (2, "is missed for hinge")])
def test_the_target_comes_first(n_low, said):
    # 90 % of ten cells are nine. Published, hinge, fault: 0.62.
    names = PAPER_SETS[:9]
    means = {name: published("main", name, "rad", {"loss": "hinge"}).mean for name in names}
    rows = [record(name, means[name] - 0.5 * (i < n_low - 1)) for i, name in enumerate(names)]
    text = markdown_text(summarise([*rows, record("fault", 0.5)]), "main")
    title, table = next(iter(markdown_tables(text).items()))
    assert title == "Target: rAD reaches what was published, lambda by rule theorem"
    assert f"at least 90 % of the sets for each loss, {said}." in text
    assert table[2][:3] == ["hinge", f"{10 - n_low} of 10", f"{100 - 10 * n_low}.0 %"]
    assert table[2][6].split(", ")[-1] == "fault"


def test_the_target_counts_the_cells_of_all_losses(summary):
    title, *_ = tables = markdown_tables(markdown_text(summary, "main"))
    assert title == "Target: rAD reaches what was published, lambda by rule cv"
    by_loss = [row[1].split(" of ") for row in tables[title][2:5]]
    n_reach = sum(int(n) for n, _ in by_loss)
    assert {total for _, total in by_loss} == {"4"}
    assert tables[title][5][:2] == ["*all*", f"*{n_reach} of 12*"]


def test_sweep_tables_say_what_stands_on_which_side(summary):
    text = markdown_text(summary, "prior")
    tables = re.findall(r"^## rAD, .*\n\nOurs / published\.$", text, re.MULTILINE)
    assert len(tables) == 6
    assert "SE x 100" not in text
    rows = [row for row in small_run() if row["trial"] < 2 or row["dataset"] != "Stamps"]
    table = tables_of(summarise(rows), "prior")[1]
    assert re.fullmatch(r"\d\.\d{3} \[2\] / 0\.\d\d", table.rows[1][1])


@pytest.mark.parametrize(
    ("ours", "said"), [(0.9797, "0.000"), (0.9803, "0.000"), (0.979, "-0.001"), (0.981, "+0.001")]
)
def test_a_difference_that_rounds_to_zero_has_no_sign(ours, said):
    table = markdown_tables(markdown_text(summarise([record(auc=ours)]), "main"))
    rows = table["Means over datasets"]
    assert rows[2][rows[0].index("AUC - published")] == said


def test_warnings_that_differ_in_numbers_and_lists_are_one():
    texts = [f"{n} column(s) are constant: {', '.join(map(str, range(n)))}." for n in (2, 3, 4)]
    texts.append("12 column(s) are constant: 1, 2, 3 and 9 more.")
    rows = [record(trial=i, warnings=[text]) for i, text in enumerate([*texts, texts[1]])]
    rows.append(record(trial=9, warnings=texts[:2]))  # one trial, though it says it twice
    rows.append(record("Stamps", warnings=["stopped after 100 rounds, gap 1.5e-03"]))
    rows.append(record("Stamps", trial=1, warnings=["stopped after 20 rounds, gap 0.2"]))
    table = markdown_tables(markdown_text(summarise(rows), "main"))["Warnings"]
    assert [row[0] for row in table[2:]] == ["6", "2"]
    assert table[2][3] == "3 column(s) are constant: 0, 1, 2. (an example of 4 alike)"
    assert table[3][2:] == [
        "Stamps 2",
        "stopped after 100 rounds, gap 1.5e-03 (an example of 2 alike)",
    ]


def test_failures_that_differ_in_a_setting_are_two():
    rows = [
        failed(f"lam={lam!r} needs {i} labels", trial=i) for i, lam in enumerate(["cv", "cv", 1])
    ]
    assert [remark.count for remark in summarise(rows).failures] == [2, 1]


def test_only_the_most_frequent_warnings_are_listed():
    rows = [record(trial=i, warnings=[f"odd {'x' * (i % 9)}"]) for i in range(20)]
    table = markdown_tables(markdown_text(summarise(rows), "main"))["Warnings"]
    assert len(table) == 2 + 6 + 1
    assert table[-1] == ["", "", "", "*and 3 other messages*"]


def test_markdown_says_what_was_not_run_and_what_failed():
    rows = [record(), not_run("imdb", "there is no file " + "very " * 60 + "long")]
    rows += [failed("needs two | anomalies", "Stamps", trial=i, lam="cv") for i in range(3)]
    rows += [failed("needs two | anomalies", "fault", method="pu", loss="hinge")]
    rows += [record("fault", warnings=["did not converge"])]
    text = markdown_text(summarise(rows), "main")
    assert re.search(r"^- imdb: there is no file very .{0,160}\.\.\.$", text, re.MULTILINE)
    assert "no record at all: mammography" in text
    tables = markdown_tables(text)
    said = r"needs two \| anomalies"
    assert tables["Failed trials"][2:] == [["4", "rAD 3, PU 1", "Stamps 3, fault 1", said]]
    assert tables["Warnings"][2:] == [["1", "rAD 1", "fault 1", "did not converge"]]
    assert tables["rAD, hinge loss, by rule for lambda"][3][3] == "failed"
    assert tables["PU"][2][1] == "failed / 0.59 (1.02)"  # without a rule for lambda


def test_markdown_says_that_nothing_failed():
    rows = [record(name) for name in PAPER_SETS]
    text = markdown_text(summarise(rows), "main")
    for sentence in ("Every dataset of the paper was run.", "No trial failed."):
        assert sentence in text


def test_a_set_that_was_run_after_all_is_not_listed_as_not_run():
    assert summarise([not_run("imdb", "no network"), record("imdb")]).not_run == ()


def test_markdown_opens_with_trials_and_versions():
    rows = [record(trial=i) for i in range(3)]
    text = markdown_text(summarise(rows), "main")
    assert "3 trials per cell at most (root seed 0), on 1 of the 26 datasets" in text
    assert f"Versions: {VERSIONS}." in text
    assert "Careful" not in text
    mixed = markdown_text(summarise([*rows, record(trial=3, versions="riskad 0.2")]), "main")
    assert "Careful: these records were made with more than one set of versions" in mixed


def test_markdown_names_the_commits_that_records_carry():
    old, new = record(trial=0), record(trial=1) | {"commit": "v1-3-gabcdef0"}
    assert "Code: v1-3-gabcdef0." in markdown_text(summarise([old, new]), "main")
    assert "Code:" not in markdown_text(summarise([old]), "main")


def test_settings_that_no_table_shows_are_said_to_differ():
    rows = [record(auc=0.5, tol=1e-4, trial=i) for i in range(2)] + [record(auc=0.9, tol=1e-6)]
    text = markdown_text(summarise(rows), "main")
    assert "Careful: some cells were run with several values of tol" in text
    table = markdown_tables(text)["rAD, hinge loss, by rule for lambda"]
    assert table[2][2].startswith("0.500")  # the one with more trials


def test_experiment_of_ones_own_has_plain_tables():
    rows = [record(name, 0.5, i, experiment="mine", depth=3) for name in ("x", "y") for i in (0, 1)]
    tables = tables_of(summarise(rows), "mine")
    assert tables[0].head == ["method", "sets", "AUC", "average precision", "fit (ms)"]
    assert tables[0].note == ""
    assert [table.rows[0][0] for table in tables[1:]] == ["x"]
    assert tables[1].head[0] == "dataset"
    assert tables[1].rows[0] == ["x", "0.500 (0.00)", "0.250 (0.00)", "2"]
    assert tables[1].foot[0] == ["mean of 2 sets", "0.500", "0.250", ""]


def test_experiment_of_ones_own_does_not_speak_of_the_paper():
    rows = [record("x", experiment="mine", lam=lam) for lam in ("cv", "theorem")]
    rows += [record("x", experiment="mine", method="forest", depth=3)]
    text = markdown_text(summarise(rows), "mine")
    assert "1 trial per cell at most (root seed 0), on 1 dataset." in text
    for word in ("paper", "published", "no record at all", "lam ", "reach"):
        assert word not in text
    tables = markdown_tables(text)
    names = ["rAD, lambda theorem", "rAD, lambda cv", "forest"]  # by what differs, and alike
    assert [row[0] for row in tables["Means over datasets"][2:]] == names
    assert set(names) < set(tables)


def test_variants_of_ones_own_with_and_without_a_setting_are_told_apart():
    rows = [record("x", 0.5, experiment="mine", method="forest")]
    rows += [record("x", 0.9, i, experiment="mine", method="forest", depth=3) for i in range(2)]
    tables = {table.title: table for table in tables_of(summarise(rows), "mine")}
    assert tables["forest"].rows[0][1] == "0.500 (-) [1]"
    assert tables["forest, depth 3"].rows[0][1] == "0.900 (0.00)"


# --- CSV and LaTeX -----------------------------------------------------------------------


def test_csv_holds_every_cell_and_reads_back_exactly(summary):
    rows = list(csv.DictReader(io.StringIO(csv_text(summary, "main"))))
    cells = summary.of("main")
    assert len(rows) == len(cells)
    for row, cell in zip(rows, cells, strict=True):
        assert (row["dataset"], row["method"]) == (cell.dataset, cell.method)
        assert float(row["auc_mean"]) == cell.auc.mean
        assert float(row["auc_se"]) == cell.auc.se
        assert float(row["published_se"]) == cell.published.se
        assert float(row["difference_in_joint_se"]) == cell.difference_in_se
        assert row["reaches"] == str(cell.reaches).lower()
        assert row["loss"] == cell.settings.get("loss", "")
        assert row["unlabelled"] == cell.settings.get("unlabelled", "")
    keys = [
        (r["dataset"], r["method"], r["loss"], r["lam"], r["kernel"], r["unlabelled"]) for r in rows
    ]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("experiment", ["main", "prior", "a", "published"])
def test_latex_is_balanced_and_escaped(summary, experiment):
    text = latex_text(summary, experiment)
    begun = Counter(re.findall(r"\\begin\{(\w+)\}", text))
    assert begun == Counter(re.findall(r"\\end\{(\w+)\}", text))
    assert begun["table"] == begun["tabular"] > 0
    assert r"CIFAR10\_1" in text
    maths = re.sub(r"\$[^$]*\$", "", text)
    assert "$" not in maths
    assert not re.search(r"(?<!\\)[_^#]", maths)
    assert maths.count("{") == maths.count("}")
    for tabular in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end", text, re.DOTALL):
        check_columns(*tabular)


def check_columns(spec, body):
    """Each row of a tabular has as many cells as its head declares."""
    for line in body.splitlines():
        if line.endswith(r"\\"):
            spans = map(int, re.findall(r"\\multicolumn\{(\d+)\}", line))
            cells = len(re.findall(r"(?<!\\)&", line)) + 1
            assert cells + sum(span - 1 for span in spans) == len(spec)


def test_latex_has_the_layout_of_the_paper(summary):
    text = latex_text(summary, "main")
    head = "dataset & square & hinge & m-Huber & square & hinge & m-Huber & OC-SVM & semi-OC-SVM"
    assert text.count(head) == 3  # theorem, tight and cv
    assert r"(16, 6870, 0.02) & \textit{0.98(0.13)} & \textit{0.98(0.13)}" in text
    assert r"\multicolumn{3}{c}{rAD} & \multicolumn{3}{c}{PU}" in text
    assert r"1 $-$ $\pi_n$ & 0.9 & 0.7 & 0.6" in latex_text(summary, "prior")


def test_latex_marks_few_trials_and_failures_and_has_means():
    rows = [record(auc=0.9, trial=i) for i in range(3)] + [record("Stamps", 0.8)]
    rows += [failed("no luck", "fault")]
    rows += [failed("no luck", "fault", experiment="prior", prior=0.9)]
    summary = summarise(rows)
    text = latex_text(summary, "main")
    assert "pendigits & 0.900(0.00) & - &" in text
    assert "Stamps & 0.800(-)[1] & - &" in text
    assert "fault & failed & - &" in text
    assert "mean & 0.850 &  &" in text
    assert r"of 2 sets & \textit{0.895} & \textit{}" in text
    assert "[n]: only n trials succeeded." in text
    assert "fault & failed" in latex_text(summary, "prior")


# --- the report of a folder --------------------------------------------------------------


@pytest.mark.parametrize("make", [False, True])
def test_a_folder_without_records_says_what_to_run(tmp_path, make):
    folder = tmp_path / "results"
    if make:
        write_records(folder, [])
    with pytest.raises(InputError, match="run an experiment into this folder first"):
        write_report(folder)


def test_report_without_figures_and_once_more(tmp_path):
    write_records(tmp_path, small_run())
    written = write_report(tmp_path, figures=False)
    names = {path.relative_to(tmp_path).as_posix() for path in written}
    experiments = ("main", "prior", "a", "published")
    assert names == {f"tables/{e}.{ending}" for e in experiments for ending in ("md", "csv", "tex")}
    before = [path.read_bytes() for path in written]
    assert [path.read_bytes() for path in write_report(tmp_path, figures=False)] == before
    assert len(list((tmp_path / "tables").iterdir())) == len(written)  # no temporary file left


@pytest.mark.parametrize(
    "keep",
    [
        lambda row: row["experiment"] == "prior",
        lambda row: row["experiment"] == "a" and row["settings"]["a"] == 0.7,
        lambda row: row["method"] == "pu",
        lambda row: row["method"] == "rad" and row["settings"]["lam"] == "cv",
        lambda row: row["trial"] == 0 and row["dataset"] == "Stamps",
        lambda row: row["settings"].get("loss") == "hinge" and row["experiment"] == "main",
        lambda row: row["settings"].get("lam") != "theorem" or row["dataset"] != "Stamps",
    ],
)
def test_part_of_the_records_is_enough(tmp_path, keep):
    pytest.importorskip("matplotlib")
    write_records(tmp_path, [row for row in small_run(trials=2) if keep(row)])
    for path in write_report(tmp_path):
        assert path.stat().st_size > 0


def test_a_number_for_lambda_is_a_rule_like_any_other(tmp_path):
    pytest.importorskip("matplotlib")
    rows = [
        record(name, 0.8, experiment=experiment, lam=lam, a=a, prior=prior, loss=loss)
        for name in ("pendigits", "Stamps")
        for experiment, a, prior in (("main", 0.1, 0.8), ("prior", 0.1, 0.9), ("a", 0.3, 0.8))
        for lam in ("theorem", 0.5, 1)
        for loss in LOSSES
    ]
    rows += [record(name, 0.7, method="pu", lam=0.5, loss="hinge") for name in ("Stamps", "x")]
    write_records(tmp_path, rows)
    write_report(tmp_path)
    text = (tmp_path / "tables" / "main.md").read_text()
    assert "rAD, hinge, lambda 0.5" in text
    assert "## PU, lambda 0.5" in text
    assert re.search(r"^\| hinge +\| 0\.5 ", text, re.MULTILINE)  # in the claims
    assert "## rAD, hinge loss, lambda 0.5, by a" in (tmp_path / "tables" / "a.md").read_text()


def test_only_failures_are_a_report_too(tmp_path):
    rows = [failed("no memory", "Stamps", trial=i) for i in range(2)]
    rows += [not_run("imdb", "no network"), not_run("imdb", "no network", "prior")]
    write_records(tmp_path, rows)
    write_report(tmp_path, figures=False)
    assert "no memory" in (tmp_path / "tables" / "main.md").read_text()
    assert "- imdb: no network" in (tmp_path / "tables" / "prior.md").read_text()


# --- figures -----------------------------------------------------------------------------


def test_figures_are_valid_and_the_same_each_time(tmp_path):
    pytest.importorskip("matplotlib")
    from riskad.bench.figures import write_figures

    rows = small_run()
    first = write_figures(summarise(rows), tmp_path / "one")
    second = write_figures(summarise(list(rows)), tmp_path / "two")
    assert [path.name for path in first] == ["agreement.svg", "prior.svg", "a.svg", "gap.svg"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
        root = ET.parse(one).getroot()
        assert root.tag.endswith("svg")
        assert b"dc:date" not in one.read_bytes()
        text = one.read_text()
        assert all(f"{name} loss" in text for name in ("square", "hinge", "m-Huber"))


def test_only_sets_far_from_the_diagonal_are_named(tmp_path):
    pytest.importorskip("matplotlib")
    from riskad.bench.figures import write_figures

    (path,) = write_figures(summarise([record("Stamps", 0.81), record("vowels", 0.5)]), tmp_path)
    text = path.read_text()
    assert "vowels" in text
    assert "Stamps" not in text


def test_figures_without_matplotlib_say_what_to_install(monkeypatch, tmp_path):
    import sys

    from riskad.bench.figures import write_figures

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'riskad\[bench\]'"):
        write_figures(summarise([record()]), tmp_path)
