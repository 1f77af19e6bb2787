"""A folder of pictures, fitted, scored, explained and served, by the command line and in Python."""

import json
import re

import numpy as np
import polars as pl
import pytest

pytest.importorskip("PIL")
pytest.importorskip("onnxruntime")
from PIL import Image
from support.commands import run
from support.pictures import folder_of_surfaces, surface, tiny_network

from riskad import InputError, fit_table, load, read_pictures, save, score_table
from riskad.app.pictures import picture_maps
from riskad.web.serve.scoring import RowScorer


@pytest.fixture(autouse=True)
def no_networks(monkeypatch):
    monkeypatch.setattr("riskad.tables.backbones._TRUSTED", {})
    monkeypatch.setenv("RISKAD_BACKBONE", "")


@pytest.fixture
def photos(tmp_path):
    return folder_of_surfaces(tmp_path / "photos")


@pytest.fixture
def network(tmp_path):
    return str(tiny_network(tmp_path / "tiny.onnx"))


@pytest.mark.slow
def test_a_folder_is_fitted_scored_and_reported_with_maps(tmp_path, photos, network):
    model, page = tmp_path / "m.riskad", tmp_path / "page.html"
    table = pl.DataFrame(
        [("part_044.png", "fine"), ("part_045.png", "fine"), ("part_040.png", "fine")]
        + [(f"anomaly/part_{n:03}.png", "cracked") for n in (46, 47, 48)],
        schema=["file", "state"],
        orient="row",
    )
    table.write_csv(tmp_path / "labels.csv")
    out = run(
        *("fit", photos, "--labels", tmp_path / "labels.csv", "--normal", "fine"),
        *("--anomaly", "cracked", "--backbone", network, "--model", "shallow"),
        *("-o", model, "--report", page),
    ).output
    assert "3 normal, 3 anomalies, 46 unlabelled" in out
    assert "new.csv -o scored.csv --backbone FILE.onnx" in " ".join(out.split())
    html = page.read_text()
    assert html.count('<img src="data:image/jpeg;base64,') == 20  # ten rows, picture and map
    assert "img-src data:" in html
    assert re.search(r"Row \d+: /.*part_\d{3}\.png<", html)  # rows are called by their file
    scored = tmp_path / "scored.csv"
    run("score", model, photos, "-o", scored, "--backbone", network)
    scores = pl.read_csv(scored)
    assert scores.height == 52
    maps = ("--rows", 3, "--maps", tmp_path / "maps")
    out = run("explain", model, photos, *maps, "--backbone", network).output
    assert "maps (maps of their pictures)" in " ".join(out.split())
    assert len(list((tmp_path / "maps").glob("row-*.png"))) == 3


@pytest.mark.slow
def test_a_model_without_its_network_says_what_to_get(tmp_path, photos, network, monkeypatch):
    fit = fit_table(photos, backbone=network, model="shallow")
    assert fit.report.labels.normal == 6
    save(fit.model, tmp_path / "m.riskad")
    before = score_table(fit.model, read_pictures(photos))[0]["anomaly_score"]
    sha = fit.model[0].columns_["picture"].pictures.sha256
    monkeypatch.setattr("riskad.tables.backbones._TRUSTED", {})
    model = load(tmp_path / "m.riskad")
    with pytest.raises(InputError, match=f"'tiny.onnx', and no model file holds one.*{sha}"):
        score_table(model, read_pictures(photos))
    other = tiny_network(tmp_path / "other.onnx", seed=1)
    monkeypatch.setenv("RISKAD_BACKBONE", str(other))
    with pytest.raises(InputError, match=sha):
        score_table(model, read_pictures(photos))
    monkeypatch.setenv("RISKAD_BACKBONE", network)
    after = score_table(model, read_pictures(photos))[0]["anomaly_score"]
    np.testing.assert_allclose(before.to_numpy(), after.to_numpy())


@pytest.mark.slow
def test_labels_matter_and_columns_beside_pictures_count(photos, network):
    weight = pl.Series("weight", np.random.default_rng(0).normal(size=52))
    table = read_pictures(photos).with_columns(weight)
    fit = fit_table(table, backbone=network, model="shallow")
    assert {"picture", "weight"} <= set(fit.report.columns)
    turned = {"normal": "anomaly", "anomaly": "normal"}
    other = fit_table(
        table.with_columns(pl.col("label").replace(turned)), backbone=network, model="shallow"
    )
    first, second = (
        each.model[-1].anomaly_score(each.model[0].transform(table)) for each in (fit, other)
    )
    assert np.corrcoef(first, second)[0, 1] < 0


@pytest.mark.slow
def test_broken_pictures_are_skipped_or_refused(photos, network):
    (photos / "unlabelled" / "empty.jpg").write_bytes(b"")
    fit = fit_table(photos, backbone=network, model="shallow")
    assert any("empty.jpg' is empty" in note for note in fit.report.warnings)
    with pytest.raises(InputError, match=r"refused.*\n.*empty.jpg' is empty: it has 0 bytes$"):
        fit_table(photos, backbone=network, model="shallow", broken_pictures="refuse")


def test_pictures_without_a_network_ask_for_one(photos):
    with pytest.raises(InputError, match="needs a network to look at them"):
        fit_table(photos, model="shallow")


def test_a_look_at_pictures_says_how_to_fit_them(photos):
    out = run("look", photos).output
    assert "--backbone FILE.onnx -o model.riskad" in out
    assert "COLUMN" not in out


@pytest.mark.slow
def test_a_server_takes_pictures_and_no_paths(photos, network):
    fit = fit_table(photos, backbone=network, model="shallow")
    scorer = RowScorer(fit.model)
    pixels, _ = surface(np.random.default_rng(9), defect=True)
    picture = read_pictures([pixels])["picture"][0]

    def answer(cell):
        body = json.dumps({"picture": cell}).encode()
        *_, (content, *_) = scorer.answer(body, {}, most_rows=10)
        return json.loads(content)

    assert np.isfinite(answer(picture)["anomaly_score"])
    with pytest.raises(InputError, match="takes no path here"):
        answer(str(next(photos.rglob("*.png"))))


@pytest.mark.slow
def test_maps_are_as_large_as_thumbnails_and_absent_for_broken_pictures(photos, network):
    fit = fit_table(photos, backbone=network, model="shallow")
    (photos / "normal" / "empty.jpg").write_bytes(b"")
    rows = pl.DataFrame(
        {"picture": [str(photos / "normal" / "empty.jpg"), *fit.ranked["picture"][:1]]}
    )
    broken, drawn = picture_maps(fit.model[0], rows)
    assert broken == {}
    assert set(drawn) == {"picture", "map"}
    with Image.open(rows["picture"][1]) as picture:
        assert picture.size == (48, 48)
