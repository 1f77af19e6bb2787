"""Pictures: files that can be read and files that cannot, networks, and what is learned of them."""

import os
import struct
import sys
import zlib

import numpy as np
import pandas
import polars as pl
import pytest

pytest.importorskip("PIL")
pytest.importorskip("onnxruntime")
from PIL import Image
from scipy.ndimage import binary_dilation
from support.loops import each
from support.pictures import folder_of_surfaces, surface, tiny_network

from riskad import InputError, TablePreparer, read_pictures, trust_backbone
from riskad.tables.backbones import Backbone, find_backbone
from riskad.tables.kinds.images import PictureFeatures, _learn_memory, _nearest, _whitening
from riskad.tables.notes import ReadingNote
from riskad.tables.pictures import (
    PictureError,
    decode_picture,
    is_picture_folder,
    join_labels,
    picture_bytes,
    picture_columns,
)
from riskad.tables.reading import read_table


@pytest.fixture
def network(tmp_path, monkeypatch):
    monkeypatch.setattr("riskad.tables.backbones._TRUSTED", {})
    return trust_backbone(tiny_network(tmp_path / "tiny.onnx"))


def pixels_of(path):
    return np.asarray(decode_picture(picture_bytes(str(path)), str(path)))


# --- one picture ----------------------------------------------------------------------------------


def test_grey_colour_palette_and_16_bits_come_out_as_the_same_bytes(tmp_path):
    grey = np.tile(np.arange(0, 256, 8, dtype=np.uint8), (32, 1))
    Image.fromarray(grey).save(tmp_path / "grey.png")
    Image.fromarray(grey).convert("P").save(tmp_path / "palette.png")
    Image.fromarray(np.dstack([grey] * 3)).save(tmp_path / "colour.tif")
    Image.fromarray(grey.astype(np.uint16) * 257).save(tmp_path / "deep.png")
    Image.fromarray(grey.astype(np.float32) / 255).save(tmp_path / "float.tif")
    for name in ("grey.png", "palette.png", "colour.tif", "deep.png", "float.tif"):
        np.testing.assert_array_equal(pixels_of(tmp_path / name), np.dstack([grey] * 3), name)


def test_a_photograph_is_turned_as_its_exif_says(tmp_path):
    pixels = np.zeros((20, 30, 3), dtype=np.uint8)
    pixels[:, :15] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees
    Image.fromarray(pixels).save(tmp_path / "turned.jpg", exif=exif, quality=95)
    upright = pixels_of(tmp_path / "turned.jpg")
    assert upright.shape == (30, 20, 3)
    assert upright[:10].mean() > 200 > 50 > upright[-10:].mean()


def bomb(path, side=60_000):
    """A PNG of some bytes that claims to be 60,000 pixels wide and high."""

    def chunk(kind, content):
        head = struct.pack(">I", len(content)) + kind + content
        return head + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    content = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 100))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + content + chunk(b"IEND", b""))


def test_what_cannot_be_read_says_why_in_a_sentence(tmp_path):
    whole = tmp_path / "whole.png"
    Image.fromarray(surface(np.random.default_rng(0))[0]).save(whole)
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "cut.png").write_bytes(whole.read_bytes()[:300])
    (tmp_path / "text.png").write_text("no picture at all")
    Image.new("RGB", (9, 9)).save(tmp_path / "other.gif")
    (tmp_path / "other.gif").rename(tmp_path / "gif.png")
    bomb(tmp_path / "bomb.png")
    for name, words in {
        "empty.jpg": "is empty: it has 0 bytes",
        "cut.png": "is damaged or cut short",
        "text.png": "is not a JPEG, PNG or TIFF file",
        "gif.png": "is not a JPEG, PNG or TIFF file",
        "bomb.png": "is larger than 89,478,485 pixels",
        "missing.png": "does not exist",
        "http://example.org/a.jpg": "is an address, and only files are read",
        "": "is not a file",
    }.items():
        path = name if "://" in name else str(tmp_path / name) if name else str(tmp_path)
        with pytest.raises(PictureError, match=words) as caught:
            decode_picture(picture_bytes(path), path)
        assert "\n" not in str(caught.value)
    with pytest.raises(PictureError, match="not base64"):
        picture_bytes("data:image/png;base64,!!!")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(PictureError, match=r"pipe.png' is not a file"):
        picture_bytes(str(tmp_path / "pipe.png"))


# --- folders --------------------------------------------------------------------------------------


def test_a_folder_is_a_table_labelled_by_its_folders(tmp_path):
    folder = folder_of_surfaces(tmp_path / "photos", n=10, n_labelled=2)
    assert is_picture_folder(folder)
    assert not is_picture_folder(tmp_path / "none")
    table = read_table(folder)
    assert table.columns == ["picture", "label"]
    assert table["label"].value_counts().sort("count").rows()[-1] == (None, 10)
    assert picture_columns(table) == ["picture"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="There is no picture in"):
        read_pictures(tmp_path / "empty")


def test_labels_join_by_the_name_of_the_file(tmp_path):
    pictures = pl.DataFrame({"picture": ["x/a/1.png", "x/b/1.png", "x/b/2.jpg"]})
    labels = pl.DataFrame({"file": ["a/1.png", "2.jpg"], "what": ["ok", "bad"], "age": [3, 4]})
    table, label = join_labels(pictures, labels, "what")
    assert label == "what"
    assert table["picture"].equals(pictures["picture"])
    assert table.drop("picture").rows() == [("ok", 3), (None, None), ("bad", 4)]
    assert join_labels(pictures, labels.drop("age"))[1] == "what"
    for file, words in {"1.png": "several pictures", "3.png": "no picture"}.items():
        with pytest.raises(InputError, match=words):
            join_labels(pictures, labels.with_columns(file=pl.Series(["2.jpg", file])), "what")
    with pytest.raises(InputError, match="earlier row"):
        join_labels(pictures, labels.with_columns(file=pl.Series(["2.jpg", "b/2.jpg"])), "what")


def test_a_table_of_labels_that_does_not_join_says_what_to_do():
    pictures = pl.DataFrame({"picture": ["x/a/1.png", "x/b/1.png", "x/b/2.jpg"]})
    labels = pl.DataFrame({"file": ["2.jpg"], "what": ["ok"], "age": [3]})
    for table, words in [
        (labels, r"no column 'label', but, beside 'file', 'what', 'age'. Name .* label=..."),
        (labels.select("file"), "no column 'label', but, beside 'file', none"),
        (
            labels.select(pl.lit("1.png").alias("file"), label="what"),
            "Write the folder, too, as in 'a/1.png'",
        ),
        (labels.rename({"what": "label", "age": "picture"}), "'picture' beside 'file'"),
        (labels.select(pl.lit("3.png").alias("file"), label="what"), "Correct the name, or delete"),
        (
            pl.DataFrame({"file": ["2.jpg", "b/2.jpg"], "label": ["ok", "ok"]}),
            "names 'b/2.jpg', and an earlier row names that picture, too. Delete one",
        ),
    ]:
        with pytest.raises(InputError, match=words):
            join_labels(pictures.head(3), table)


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are Unicode")
def test_a_name_that_is_not_utf_8_is_refused_in_a_sentence(tmp_path):
    (tmp_path / os.fsdecode(b"lat\xe9.png")).write_bytes(b"")
    with pytest.raises(InputError, match=r"lat\\udce9.png' is not UTF-8.*rename it"):
        read_pictures(tmp_path)


def test_a_link_to_nothing_is_a_picture_that_does_not_exist(tmp_path):
    try:
        (tmp_path / "link.png").symlink_to(tmp_path / "nothing.png")
    except OSError:
        pytest.skip("links are not allowed here")
    (tmp_path / "folder.png").mkdir()
    (cell,) = read_pictures(tmp_path)["picture"]
    with pytest.raises(PictureError, match=r"link.png' does not exist"):
        picture_bytes(cell)


def test_labels_of_pandas_and_cells_that_are_no_pictures():
    grey = np.zeros((4, 8, 8), dtype=np.uint8)
    labels = ["ok", float("nan"), None, pandas.NA]
    assert read_pictures(grey, labels)["label"].to_list() == ["ok", None, None, None]
    assert read_pictures(grey, [1, 0, 1, None])["label"].to_list() == ["1", "0", "1", None]
    assert read_pictures([None, "a.png"])["picture"].to_list() == [None, "a.png"]
    with pytest.raises(InputError, match=r"path of a file, or an array of bytes.*got Image"):
        read_pictures([Image.fromarray(grey[0])])
    with pytest.raises(InputError, match="There is no folder 'nowhere'"):
        read_pictures("nowhere")


def test_pictures_without_a_network_are_left_out_with_a_hint():
    names = pl.DataFrame(
        {"photo": [f"p/{i}.png" for i in range(40)], "x": [i * i % 7 for i in range(40)]}
    )
    preparer = TablePreparer().fit(names)
    assert any("riskad fit --backbone" in r for r in preparer.columns_["photo"].remarks)
    with pytest.raises(InputError, match=r"for image give the word alone, without 'tiny.onnx'"):
        TablePreparer(kinds={"photo": "image:tiny.onnx"}).fit(names)


def test_arrays_come_back_as_they_were():
    pixels, _ = surface(np.random.default_rng(0))
    (cell,) = read_pictures([pixels])["picture"]
    np.testing.assert_array_equal(np.asarray(decode_picture(picture_bytes(cell), cell)), pixels)
    with pytest.raises(InputError, match="got float64 of shape"):
        read_pictures([pixels / 255])


# --- networks -------------------------------------------------------------------------------------


def test_layers_are_found_in_the_graph_and_agree_with_convolutions_by_hand(network):
    assert (network.side, network.layers, network.grid) == (32, ["fine", "coarse"], (16, 16))
    from scipy.signal import correlate

    pixels = np.random.default_rng(1).normal(size=(1, 3, 32, 32)).astype(np.float32)
    pooled, places = network.describe(pixels)
    kernels = np.random.default_rng(0).normal(size=(8, 3, 3, 3))
    padded = np.pad(pixels[0], ((0, 0), (1, 1), (1, 1)))
    by_hand = [correlate(padded, k, "valid")[0, ::2, ::2].clip(0) for k in kernels]
    kernels = np.random.default_rng(0)
    kernels.normal(size=(8, 3, 3, 3))
    kernels = kernels.normal(size=(16, 8, 3, 3)) / 3
    padded = np.pad(np.stack(by_hand), ((0, 0), (1, 1), (1, 1)))
    coarse = [correlate(padded, k, "valid")[0, ::2, ::2].clip(0) for k in kernels]
    np.testing.assert_allclose(pooled[0], [x.mean() for x in coarse], rtol=1e-4)
    assert places.shape == (1, 16, 16, 8 + 16)
    around = [x[4:7, 9:12].mean() for x in by_hand]
    np.testing.assert_allclose(places[0, 5, 10, :8], around, rtol=1e-4)
    edge = np.pad(coarse, ((0, 0), (1, 1), (1, 1)), mode="edge")
    corner = edge[:, :3, :3].mean(axis=(1, 2))
    np.testing.assert_allclose(places[0, 0, 0, 8:], corner, rtol=1e-4)


def test_places_are_those_of_residual_blocks(tmp_path):
    network = Backbone(tiny_network(tmp_path / "residual.onnx", residual=True))
    assert network.layers == ["fine", "sum"]  # and not "wide", which is pooled
    assert network.grid_width == 8 + 16
    assert network.record["pooled"].shape == (32,)


@each(
    ("settings", "words"),
    [({"flat": True}, "no layer with places"), ({"channels": 1}, "one input of shape")],
)
def test_networks_that_cannot_look_are_refused(tmp_path, settings, words):
    with pytest.raises(InputError, match=words):
        Backbone(tiny_network(tmp_path / "other.onnx", **settings))
    (tmp_path / "no.onnx").write_bytes(b"\x08\x99nothing")
    with pytest.raises(InputError):
        Backbone(tmp_path / "no.onnx")


def test_what_was_seen_is_kept_beside_the_pictures_by_content(tmp_path, network, monkeypatch):
    folder = folder_of_surfaces(tmp_path / "photos", n=4, n_labelled=1)
    cells = read_pictures(folder)["picture"].to_list()
    seen = dict(network.look(cells))
    (cache,) = folder.glob(".riskad-*.features")
    assert cache.stat().st_size == len(cells) * network.record.itemsize
    with open(cache, "ab") as file:
        file.write(b"cut off")  # a write that was killed
    (folder / "normal" / "new.png").write_bytes((folder / "normal" / "part_004.png").read_bytes())
    monkeypatch.setattr(network, "describe", lambda _: pytest.fail("looked again"))
    again = dict(network.look([*cells, str(folder / "normal" / "new.png")]))
    for i in seen:
        np.testing.assert_array_equal(seen[i]["pooled"], again[i]["pooled"])
    monkeypatch.undo()
    damaged = bytearray(cache.read_bytes())
    damaged[32 : 32 + 4 * 8] = b"\xff" * 32  # not numbers
    cache.write_bytes(damaged)
    np.testing.assert_array_equal(dict(network.look(cells[:1]))[0]["pooled"], seen[0]["pooled"])


def test_a_network_that_is_not_there_is_named(network):
    assert find_backbone(network.sha256) is network
    with pytest.raises(InputError, match=r"SHA-256 is 0000.*from who made the model"):
        find_backbone("0" * 64, "resnet50.onnx")
    with pytest.raises(InputError, match=r"\(not that of 'tiny.onnx'\).*--backbone FILE.onnx"):
        find_backbone("0" * 64, "resnet50.onnx")


# --- what is learned ------------------------------------------------------------------------------


def test_distances_are_those_of_the_nearest_place():
    rng = np.random.default_rng(0)
    rows, others = rng.normal(size=(7, 5)), rng.normal(size=(9, 5))
    by_hand = np.linalg.norm(rows[:, None] - others, axis=2).min(axis=1)
    np.testing.assert_allclose(_nearest(rows, others), by_hand)


def test_the_memory_leaves_out_places_that_only_one_picture_has():
    rng = np.random.default_rng(0)
    pool = [rng.normal(0, 0.1, (16, 2)) + (9 if i % 20 == 0 else 0) for i in range(60)]
    memory, owners = _learn_memory(pool, np.repeat(np.arange(60), 16))
    assert np.abs(memory).max() < 2
    assert not set(owners % 20) & {0}


def test_whitened_places_spread_equally_but_in_directions_of_noise():
    rng = np.random.default_rng(0)
    places = rng.normal(size=(5_000, 3)) @ np.array([[9, 3, 0], [0, 1, 0], [0, 0, 1e-9]])
    variances = np.linalg.eigvalsh(3 * np.cov((places @ _whitening(places)).T))
    assert variances[0] < 1e-6
    np.testing.assert_allclose(variances[1:], 1, atol=0.25)


def test_a_column_of_pictures_has_the_same_numbers_in_training_and_later(tmp_path, network):
    folder = folder_of_surfaces(tmp_path / "photos")
    table = read_pictures(folder)
    preparer = TablePreparer(kinds={"picture": "image"}, encode=False)
    first = preparer.fit_transform(table.drop("label"))
    later = preparer.transform(table[::-1])
    np.testing.assert_allclose(first.values, later.values[::-1], rtol=1e-5)
    assert preparer.kinds_["picture"] == "image"
    defects = (table["label"] == "anomaly").fill_null(False).to_numpy()
    usual = (table["label"] == "normal").fill_null(False).to_numpy()
    higher = first.values[defects, 1][:, None] > first.values[usual, 1]
    assert higher.mean() > 0.8


def test_maps_point_at_defects(tmp_path, network):
    folder = folder_of_surfaces(tmp_path / "photos")
    records = [record for _, record in network.look(read_pictures(folder)["picture"].to_list())]
    learned = PictureFeatures.learn(network, records)
    rng, shares = np.random.default_rng(5), []
    for _ in range(10):
        pixels, inside = surface(rng, defect=True)
        cell = read_pictures([pixels])["picture"][0]
        (_, record), *_ = network.look([cell])
        heat = learned.heat(record)
        grid = np.asarray(Image.fromarray(inside).resize(heat.shape[::-1], 0))
        near = binary_dilation(grid, np.ones((5, 5)))  # a place sees two places further
        highest = np.argsort(heat.ravel())[-5:]
        shares.append(near.ravel()[highest].mean())
    assert np.mean(shares) > 0.7  # chance is a quarter; the network is random


def test_broken_pictures_count_as_blank_and_are_named(tmp_path, network):
    folder = folder_of_surfaces(tmp_path / "photos", n=8, n_labelled=1)
    (folder / "normal" / "empty.jpg").write_bytes(b"")
    table = read_pictures(folder).drop("label")
    words = r"empty.jpg' is empty: it has 0 bytes, and counts as blank"
    with pytest.warns(ReadingNote, match=words):
        rows = TablePreparer(kinds={"picture": "image"}, encode=False).fit_transform(table)
    broken = table["picture"].str.ends_with("empty.jpg").to_numpy()
    np.testing.assert_array_equal(np.isnan(rows.values).all(axis=1), broken)
