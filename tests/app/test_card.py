"""The model card: what it says, and that names of the data are no markup."""

import numpy as np
import polars as pl
import pytest
from support.commands import run

import riskad
from riskad.app.describe import describe_model
from riskad.app.model_files import read_header
from riskad.app.report.documents import make_card

HOSTILE = "<script>alert(1)</script> | *x*"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A file of `fit`, of a table with a hostile name."""
    rng = np.random.default_rng(0)
    values = np.append(rng.normal(20, 5, 180), rng.normal(60, 5, 20))
    words = ["ok"] * 30 + [""] * 162 + ["fraud"] * 8
    table = pl.DataFrame({HOSTILE: values, "noise": rng.normal(0, 1, 200), "label": words})
    labels = riskad.FitSpec(label="label", normal=["ok"], anomaly=["fraud"])
    fit = riskad.fit_table(table, labels, model="shallow", source="cards.csv")
    path = tmp_path_factory.mktemp("card") / "cards.riskad"
    riskad.save(fit.model, path, report=fit.report)
    return path


def described(path):
    return describe_model(riskad.load(path), read_header(path))


def test_a_card_says_data_quality_decisions_and_limits(model, tmp_path):
    card = tmp_path / "card.md"
    run("inspect", model, "--card", card)
    text = card.read_text("utf-8")
    for title in ("In short", "Quality", "Decision", "Limits", "Model", "Columns", "Data"):
        assert f"\n## {title}\n" in text
    assert "200 rows of cards.csv" in text
    assert "30 normal, 8 anomalies, 162 unlabelled" in text
    assert "- AUC 1.000 (95% interval" in text
    assert "8 labelled anomalies are few" in text
    assert "holds no training row" in text
    assert "--force" in run("inspect", model, "--card", card, code=1).output


def test_names_of_the_data_are_no_markup(model):
    card = make_card(described(model), "a|b.riskad")
    assert "<script>" not in card
    assert r"\<script\>alert(1)\</script\> \| \*x\*" in card
    assert card.startswith("# a\\|b.riskad\n")


def test_a_model_saved_from_python_says_what_is_not_known(tmp_path):
    X, y = np.array([[0.0], [1.0], [8.0], [0.5]]), np.array([1, 1, -1, 0])
    riskad.save(riskad.ShallowRAD().fit(X, y), tmp_path / "m.riskad")
    card = make_card(described(tmp_path / "m.riskad"), "m.riskad")
    assert card.startswith("# m.riskad\n\nA ShallowRAD.\n")
    assert "Not known: the model was saved from Python" in card
    assert "## Anomaly rate\n\n- Not known: an estimate takes labelled rows of both kinds" in card
