"""What CONTRIBUTING promises of each kind of extension, kept from outside the package.

Toys are the examples of docs/extending, or written here as a user would: nothing in `src` knows of
them.
"""

import json
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from conftest import make_contaminated_rows
from support import commands
from support.cards import RULE

import riskad
from riskad.app import fit, fit_report, refit
from riskad.app import spec as app_spec
from riskad.app.describe import describe_model
from riskad.app.fit_report import FitReport
from riskad.app.model_files import read_header
from riskad.app.report.blocks import Lines, Section
from riskad.app.report.documents import make_card, write_report
from riskad.app.report.sections import add_section
from riskad.app.report.terminal import print_model
from riskad.app.spec import FitSpec, _option
from riskad.cli.shell import printed
from riskad.core.checks import InputError
from riskad.core.losses import LOSSES
from riskad.core.risks import RISKS
from riskad.decisions.thresholds import register_threshold
from riskad.detectors.auto.members import Recipe
from riskad.detectors.registry import DETECTORS, register_detector
from riskad.files.records import about, from_plain, json_schema, to_plain
from riskad.rows.arrays import places_of
from riskad.rows.partitions import PartitionedRows
from riskad.rows.sources import Block

DOCS = Path(__file__).parents[1] / "docs"
pytestmark = [
    pytest.mark.usefixtures("registries_as_before"),
    pytest.mark.skipif(not DOCS.is_dir(), reason="docs/ is part of the repository"),
]
sys.path.insert(0, str(DOCS))

import pages


@pytest.fixture(scope="module")
def table():
    X, y, _ = make_contaminated_rows(300, 3, shift=3.0)
    words = {1: "ok", -1: "fraud", 0: ""}
    columns = {f"c{j}": X[:, j] for j in range(X.shape[1])}
    return pl.DataFrame(columns | {"label": [words[int(code)] for code in y]})


@pytest.fixture
def folder(tmp_path, monkeypatch, table):
    monkeypatch.chdir(tmp_path)
    table.write_csv("table.csv")
    return tmp_path


FIT = ("fit", "table.csv", "--label", "label", "--normal", "ok", "--anomaly", "fraud")


def run(*arguments, code=0):
    return commands.run(*arguments, code=code).output


def example(page, name):
    """What the page of an extension defines."""
    names = {}
    assert pages.run_page(DOCS / "extending" / f"{page}.md", names=names) == []
    return names[name]


# --- a loss, a risk -----------------------------------------------------------------------------


def test_a_loss(folder):
    LOSSES["sharp_logistic"] = example("loss", "SharpLogistic")()
    options = ("-o", "m.riskad", "--model", "shallow", "--loss", "sharp_logistic", "--lam", 1)
    assert "sharp_logistic loss" in run(*FIT, *options)
    assert "sharp_logistic" in run("fit", "--help")
    assert "anomaly_score" in run("score", "m.riskad", "table.csv", "-o", "scored.csv")


def test_a_risk(folder):
    RISKS["trusting"] = example("risk", "Trusting")
    said = run(*FIT, "-o", "m.riskad", "--model", "shallow", "--risk", "trusting", "--lam", 0.1)
    assert "trusting risk" in said
    assert re.search(r"does not use the \d+ labelled normal", " ".join(said.split()))
    assert "trusting" in run("inspect", "m.riskad")


# --- a detector ---------------------------------------------------------------------------------


def test_a_detector_on_the_command_line(folder):
    example("detector", "NearestMean")
    assert "the nearer of two means" in run("fit", "--help")
    said = run(*FIT, "-o", "m.riskad", "--model", "means", "--sharpness", 2, "--report", "r.json")
    said = " ".join(said.split())
    assert "nearest of two means" in said  # the summary
    assert "labelled rows, each scored by a model fitted without its label" in said
    assert json.loads((folder / "r.json").read_text())["fitted"]["between_means"] > 0
    assert "nearest of two means" in run("inspect", "m.riskad")
    reasons = run("explain", "m.riskad", "table.csv", "--rows", 2)
    assert "adds" in reasons
    scored = run("score", "m.riskad", "table.csv", "-o", "scored.csv", "--reasons", 1, "--json")
    assert json.loads(scored)["flagged"] > 0
    refused = run("export", "m.riskad", "m.onnx", code=1)
    assert "class NearestMean cannot be exported" in refused


def test_a_detector_as_a_member_of_the_average(tmp_path):
    detector = example("detector", "NearestMean")
    recipe = Recipe("plain", ("columns",), lambda labels, seed: detector(random_state=seed))
    register_detector(replace(DETECTORS.pop("means"), member=recipe))
    X, y, _ = make_contaminated_rows(300, 3, shift=3.0)
    model = riskad.AutoRAD(random_state=0).fit(X, y)
    assert "means" in model.members_
    assert 0 < model.weights_["means"] < 1
    riskad.save(model, tmp_path / "auto.riskad")
    loaded = riskad.load(tmp_path / "auto.riskad")
    np.testing.assert_array_equal(loaded.score_samples(X), model.score_samples(X))


# --- a threshold --------------------------------------------------------------------------------


def test_a_threshold(folder):
    register_threshold(example("threshold", "BeyondNormals"))
    options = ("--model", "shallow", "--threshold", "beyond-normals:0.25")
    assert "beyond-normals:0.25)" in run(*FIT, "-o", "m.riskad", "--verbose", *options)
    assert "what scores above all labelled normals" in run("threshold", "--help")
    assert "beyond-normals:0.25" in run("inspect", "m.riskad")
    run("threshold", "m.riskad", "beyond-normals:1", "-o", "n.riskad")


# --- an option of a fit -------------------------------------------------------------------------


def check_purpose(purpose):
    if not purpose.strip():
        raise riskad.InputError(f"purpose={purpose!r} says nothing; leave it out.")


@dataclass(frozen=True)
class SpecWithPurpose(FitSpec):
    """What `riskad.app.spec` would be with one more field."""

    purpose: str | None = _option(
        None, "What the model is for.", heading="Output", metavar="TEXT", check=check_purpose
    )


@pytest.fixture
def purpose(monkeypatch):
    """An option takes a field of `FitSpec`, and its use in `riskad.app.fit`."""
    fit_table = fit.fit_table

    def with_purpose(table, spec, **options):
        found = fit_table(table, spec, **options)
        notes = [*found.report.warnings, f"made for {spec.purpose}"]
        return replace(found, report=replace(found.report, warnings=notes))

    for module in (app_spec, fit_report):
        monkeypatch.setattr(module, "FitSpec", SpecWithPurpose)
    for module in (fit, refit):
        monkeypatch.setattr(module, "fit_table", with_purpose)


@pytest.mark.usefixtures("purpose")
def test_an_option_of_a_fit(folder):
    said = run("fit", "--help")
    assert re.search("--purpose TEXT +What the model is for", said[said.index("Output:") :])
    options = (*FIT, "--model", "shallow", "-o", "m.riskad")
    assert "--purpose ' ' says nothing" in run(*options, "--purpose", " ", code=2)
    assert "made for audits" in run(*options, "--purpose", "audits")
    for command in (["inspect", "m.riskad"], ["refit", "m.riskad", "table.csv", "-o", "n.riskad"]):
        report = json.loads(run(*command, "--json"))
        assert report["spec"]["purpose"] == "audits"
        assert "made for audits" in report["warnings"]


# --- a source of rows ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Generated:
    """Rows that are made when they are read."""

    seed: int
    n_rows: int = 200

    def blocks(self):
        X, y, _ = make_contaminated_rows(self.n_rows, 3, seed=self.seed)
        codes = np.asarray(y, dtype=np.int16)
        yield Block(X, codes, None, places_of(codes))


def test_a_source_of_rows():
    rows = PartitionedRows([Generated(seed) for seed in range(3)], 3, False)
    parts = [make_contaminated_rows(200, 3, seed=seed)[:2] for seed in range(3)]
    X, y = (np.concatenate(each) for each in zip(*parts, strict=True))
    there = riskad.ShallowRAD("squared", lam=0.1).fit(rows)
    here = riskad.ShallowRAD("squared", lam=0.1).fit(X, y)
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-8)


# --- a kind of column ------------------------------------------------------------------------


def test_a_kind_of_column(folder):
    example("column", "IpColumn")
    table = pl.read_csv("table.csv")
    odd = (table["c0"] > 1.5).to_list()
    clients = [f"{192 if odd[i] else 10}.0.{i % 250}.{i // 250}" for i in range(table.height)]
    table.with_columns(client=pl.Series(clients)).write_csv("clients.csv")
    fit = ("fit", "clients.csv", *FIT[2:], "-o", "n.riskad", "--report", "n.html")
    assert "1 ip column" in run(*fit, "--model", "shallow")
    model = riskad.load("n.riskad")
    assert model[0].kinds_["client"] == "ip"
    assert "client: network" in model[0].get_feature_names_out()
    rows = table[:2].with_columns(client=pl.Series(["10.0.0.1", "192.0.0.1"]))
    place = list(model[0].get_feature_names_out()).index("client: network")
    assert model[0].transform(rows)[:, place].tolist() == [10, 192]
    [reason] = [r for r in riskad.explain_rows(model, rows[1:]).of(0) if r.column == "client"]
    assert reason.value == "192.0.0.1"
    assert reason.usual.startswith("10.")
    assert "the network of each address" in (folder / "n.html").read_text()
    run("score", "n.riskad", "clients.csv", "-o", "scored.csv", "--reasons", "2")
    assert "No column is left" not in run("look", "clients.csv", "--kind", "client=ip")
    # Rules are tried on rows made up from the columns, as a server's first rows are.
    (folder / "rules.toml").write_text(RULE.format("ours", "client LIKE '192.%'", "2999-01-01"))
    run("score", "n.riskad", "clients.csv", "-o", "known.csv", "--harmless", "rules.toml")


# --- a fact and a section of the report ---------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ReportWithWeekday(FitReport):
    """A new fact takes one field, as here, and one line in a section, as below."""

    weekday: str = about("Day of the week of the fit.", "")


def weekday_lines(report):
    """Lines of a section; a report without the fact shows nothing."""
    day = getattr(report, "weekday", "")
    return [Lines([f"fitted on a {day}"], is_text=True)] if day else []


def test_a_fact_of_the_report(folder):
    run(*FIT, "-o", "m.riskad", "--model", "shallow")
    add_section(Section("Day", "Day", weekday_lines))
    found = describe_model(riskad.load("m.riskad"), read_header("m.riskad"))
    report = ReportWithWeekday(**vars(found) | {"weekday": "Friday"})
    stored = to_plain(report)
    assert stored["weekday"] == "Friday"
    assert from_plain(ReportWithWeekday, stored).weekday == "Friday"
    with pytest.raises(InputError, match="weekday"):
        from_plain(ReportWithWeekday, stored | {"weekday": 5})
    schema = json_schema(ReportWithWeekday)["properties"]["weekday"]
    assert schema == {"type": "string", "description": "Day of the week of the fit."}
    write_report(report, "r.json")
    assert json.loads((folder / "r.json").read_text())["weekday"] == "Friday"
    write_report(report, "r.html")
    assert '<section id="day">' in (folder / "r.html").read_text()
    assert "Fitted on a Friday." in (folder / "r.html").read_text()
    assert "## Day\n\n- Fitted on a Friday.\n" in make_card(report, "m.riskad")
    assert re.search(r"^Day +fitted on a Friday$", printed(print_model, report, "m.riskad"), re.M)
    write_report(found, "without.html")
    assert '<section id="day">' not in (folder / "without.html").read_text()
