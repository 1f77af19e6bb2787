import functools
import hashlib
import io
import itertools
import math
import sys
import threading
import zipfile
from collections import Counter
from fractions import Fraction
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from riskad.core.checks import InputError
from riskad.datasets import (
    Dataset,
    DatasetMissing,
    adbench,
    adbench_names,
    load_adbench,
    mask_labels,
    protocols,
)
from riskad.datasets.fetch import Damage

X = np.array([[1.0, 2.5], [3.0, 4.0], [-5.0, 6.0]])
Y = np.array([0, 1, 0])
URL = "https://github.com/Minqi824/ADBench/raw/main/adbench/datasets/Classical/45_wine.npz"


def npz(**arrays):
    """The bytes of an .npz file."""
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def one_error(call, *args, **kwargs):
    """The InputError of a call: in one line, and without the errors it came from."""
    with pytest.raises(InputError) as caught:
        call(*args, **kwargs)
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__
    assert "\n" not in str(error)
    return error


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of the .npz files, named by RISKAD_DATA; pooch must not be touched."""
    monkeypatch.setenv("RISKAD_DATA", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pooch", None)
    (tmp_path / "adbench").mkdir()
    return tmp_path / "adbench"


class FakePooch(SimpleNamespace):
    """Records the calls of `retrieve`, which gives `content` or raises it."""

    def __init__(self, cache, content):
        super().__init__(cache=cache, content=content, calls=[])

    def os_cache(self, project):
        return self.cache / project

    def retrieve(self, url, known_hash, fname=None, path=None):
        self.calls.append((url, known_hash, fname, path))
        if isinstance(self.content, Exception):
            raise self.content
        path.mkdir(parents=True)
        (path / fname).write_bytes(self.content)
        return str(path / fname)


@pytest.fixture
def fake_pooch(tmp_path, monkeypatch):
    monkeypatch.delenv("RISKAD_DATA", raising=False)
    fake = FakePooch(tmp_path, npz(X=X, y=Y))
    monkeypatch.setitem(sys.modules, "pooch", fake)
    return fake


# --- the registry ------------------------------------------------------------------------


def test_all_sets_are_registered_once():
    sizes = {group: len(adbench_names(group)) for group in adbench._GROUPS}
    assert sizes == {"Classical": 47, "CV_by_ResNet18": 61, "NLP_by_BERT": 13}
    names = adbench_names()
    assert len(names) == len(set(names)) == len({name.lower() for name in names}) == 121
    assert names == [name for group in adbench._GROUPS for name in adbench_names(group)]
    families = Counter(name.rsplit("_", 1)[0].split("_")[0] for name in names[47:])
    assert families == {
        "CIFAR10": 10,
        "FashionMNIST": 10,
        "SVHN": 10,
        "MNIST-C": 16,
        "MVTec-AD": 15,
        "20news": 6,
        "agnews": 4,
        "amazon": 1,
        "imdb": 1,
        "yelp": 1,
    }


@pytest.mark.parametrize(
    "file", ["1_ALOI", "10_cover", "22_magic.gamma", "28_pendigits", "31_satimage-2", "47_yeast"]
)
def test_the_numbers_are_those_of_adbench(file):
    source = adbench._find(file)
    assert source.file == file
    assert source == adbench._find(file.split("_", 1)[1])


@pytest.mark.parametrize("name", ["CIFAR10_1", "MNIST-C_fog", "MVTec-AD_metal_nut", "20news_3"])
def test_images_and_texts_have_no_number(name):
    assert adbench._find(name).file == adbench._find(name).name == name


def test_no_name_means_two_sets():
    files = {source.file for source in adbench._SOURCES}
    assert len(files) == 121
    # 74 sets without a number are known by one name, 47 by two.
    assert len(adbench._BY_NAME) == 74 + 2 * 47


def test_the_known_sums_are_of_registered_files():
    assert len(adbench._SHA256) == len(set(adbench._SHA256.values())) == 22
    assert set(adbench._SHA256) <= {source.file for source in adbench._SOURCES}
    assert all(len(value) == 64 and int(value, 16) for value in adbench._SHA256.values())


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("pendigit", "pendigits"),
        ("Pendigits", "pendigits"),
        ("cifar10_1", "CIFAR10_1"),
        ("mnist-c_FOG", "MNIST-C_fog"),
        ("28_PENDIGITS", "28_pendigits"),
        ("wbc", "WBC"),
        ("satimage2", "satimage-2"),
        ("28_pendigits.npz", "28_pendigits"),
    ],
)
def test_a_misspelled_name_is_guessed(wrong, meant):
    error = one_error(load_adbench, wrong)
    assert f"name={wrong!r}" in str(error)
    assert f"Did you mean {meant!r}?" in str(error)
    assert "adbench_names()" in str(error)
    assert not isinstance(error, DatasetMissing)


@pytest.mark.parametrize("wrong", ["", "???", None, 28, [1, 2]])
def test_a_name_like_no_other_is_refused_without_a_guess(wrong):
    assert "Did you mean" not in str(one_error(load_adbench, wrong))


def test_an_unknown_group_is_refused():
    assert "'Classical'?" in str(one_error(adbench_names, "classical"))


# --- the files of a local folder ---------------------------------------------------------


def test_a_local_file_is_loaded_by_both_names(folder):
    (folder / "45_wine.npz").write_bytes(npz(X=X, y=Y))
    for name in ("wine", "45_wine"):
        wine = load_adbench(name)
        assert wine.name == "wine"
        assert_array_equal(wine.X, X)
        assert_array_equal(wine.y, [1, -1, 1])
        assert wine.anomaly_rate == pytest.approx(1 / 3)


@pytest.mark.parametrize("dtype", ["float64", "float32", "uint8", "int64", "bool"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_the_rows_are_float64_in_c_order_and_the_truth_int8(folder, dtype, order):
    given = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype, order=order)
    (folder / "45_wine.npz").write_bytes(npz(X=given, y=np.array([1.0, 0.0])))
    wine = load_adbench("wine")
    assert wine.X.dtype == np.float64
    assert wine.X.flags.c_contiguous
    assert wine.y.dtype == np.int8
    assert_array_equal(wine.X, [[0, 1, 1], [1, 0, 1]])
    assert_array_equal(wine.y, [-1, 1])


def test_a_dataset_is_shown_in_one_line_without_its_rows():
    y = np.ones(2000, dtype=np.int8)
    y[:3] = -1
    tiny = Dataset("tiny", np.zeros((2000, 1)), y)
    assert str(tiny) == "tiny: 2,000 rows, 1 feature, 3 anomalies (0.15%)"
    assert repr(tiny) == f"<Dataset {tiny}>"
    with pytest.raises(AttributeError):
        tiny.name = "other"


def test_a_missing_file_says_where_it_was_looked_for(folder):
    error = one_error(load_adbench, "wine")
    assert isinstance(error, DatasetMissing)
    for part in ("'wine'", repr(str(folder / "45_wine.npz")), URL, "RISKAD_DATA", "No such file"):
        assert part in str(error)


def test_a_relative_folder_is_shown_in_full(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv("RISKAD_DATA", ".")
    assert str(folder / "45_wine.npz") in str(one_error(load_adbench, "wine"))


def test_a_folder_instead_of_the_file_is_no_file(folder):
    (folder / "45_wine.npz").mkdir()
    assert isinstance(one_error(load_adbench, "wine"), DatasetMissing)


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def zip_of(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


DAMAGED = {
    "empty": (b"", "not an .npz archive"),
    "a web page": (b"<!DOCTYPE html><html></html>", "not an .npz archive"),
    "a single array": (npy(X), "not an .npz archive"),
    "cut short": (npz(X=X, y=Y)[:-40], "not an .npz archive"),
    "one byte wrong": (None, "BadZipFile"),
    "no X": (npz(y=Y), "arrays X and y"),
    "no y": (npz(X=X), "arrays X and y"),
    "nothing inside": (zip_of(), "arrays X and y"),
    "a text inside": (zip_of(X="1, 2", y="0"), "table of numbers"),
    "text as numbers": (npz(X=X.astype(str), y=Y), "table of numbers"),
    "labels as text": (npz(X=X, y=Y.astype(str)), "column of numbers"),
    "one column flat": (npz(X=X[:, 0], y=Y), "table of numbers"),
    "no rows": (npz(X=X[:0], y=Y[:0]), "table of numbers"),
    "a label too few": (npz(X=X, y=Y[:2]), "X has 3 rows and y 2"),
    "labels -1 and 1": (npz(X=X, y=[1, -1, 1]), "other labels than 0 and 1"),
    "labels that are fractions": (npz(X=X, y=[0, 0.5, 1]), "other labels than 0 and 1"),
    "a missing label": (npz(X=X, y=[0, np.nan, 1]), "other labels than 0 and 1"),
    "a missing number": (npz(X=np.where(X == 4, np.nan, X), y=Y), "not finite"),
    "an infinite number": (npz(X=np.where(X == 4, -np.inf, X), y=Y), "not finite"),
}


def with_one_byte_wrong():
    content = bytearray(zip_of(**{"X.npy": npy(X), "y.npy": npy(Y)}))
    content[content.index(X.tobytes()) + 5] ^= 1
    return bytes(content)


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_file_is_named_in_one_sentence(folder, kind):
    content, reason = DAMAGED[kind]
    (folder / "45_wine.npz").write_bytes(content if content is not None else with_one_byte_wrong())
    error = one_error(load_adbench, "wine")
    assert not isinstance(error, DatasetMissing)
    for part in ("'wine'", repr(str(folder / "45_wine.npz")), "is damaged", reason, URL):
        assert part in str(error)
    assert str(error).endswith(f"fetch it again from {URL}.")


class Trap:
    """Unpickled, it would fail the test."""

    def __reduce__(self):
        return pytest.fail, ("the file was unpickled",)


def test_nothing_is_unpickled(folder):
    traps = np.array([[Trap()], [Trap()], [Trap()]], dtype=object)
    (folder / "45_wine.npz").write_bytes(npz(X=traps, y=Y))
    assert "is damaged (ValueError: Object arrays" in str(one_error(load_adbench, "wine"))


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_changed_byte_is_found_or_changes_nothing(data):
    content = bytearray(npz(X=X, y=Y))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    try:
        rows, truth = adbench._parse(bytes(content))
    except Damage:
        return  # found
    assert_array_equal(rows, X)
    assert_array_equal(truth, [1, -1, 1])


def test_a_known_sum_is_checked(folder):
    (folder / "28_pendigits.npz").write_bytes(npz(X=X, y=Y))
    error = one_error(load_adbench, "pendigits")
    assert not isinstance(error, DatasetMissing)
    assert "28_pendigits.npz' of 'pendigits' is damaged (its SHA-256 sum" in str(error)
    assert "delete it and fetch it again" in str(error)


def test_a_file_with_its_known_sum_is_loaded(folder, monkeypatch):
    content = npz(X=X, y=Y)
    monkeypatch.setitem(adbench._SHA256, "28_pendigits", sha256(content))
    (folder / "28_pendigits.npz").write_bytes(content)
    assert load_adbench("pendigits").X.shape == (3, 2)


# --- downloading -------------------------------------------------------------------------


def test_the_url_and_the_cache_folder_are_given_to_pooch(fake_pooch):
    assert_array_equal(load_adbench("wine").X, X)
    place = fake_pooch.cache / "riskad" / "adbench"
    assert fake_pooch.calls == [(URL, None, "45_wine.npz", place)]


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("CIFAR10_0", "CV_by_ResNet18/CIFAR10_0.npz"),
        ("20news_3", "NLP_by_BERT/20news_3.npz"),
        ("22_magic.gamma", "Classical/22_magic.gamma.npz"),
    ],
)
def test_the_known_sum_is_given_to_pooch(fake_pooch, monkeypatch, name, place):
    file = place.split("/")[1].removesuffix(".npz")
    expected = sha256(fake_pooch.content)
    monkeypatch.setitem(adbench._SHA256, file, expected)
    load_adbench(name)
    [(url, known_hash, fname, _)] = fake_pooch.calls
    assert url == f"https://github.com/Minqi824/ADBench/raw/main/adbench/datasets/{place}"
    assert known_hash == f"sha256:{expected}"
    assert fname == f"{file}.npz"


def test_an_empty_variable_is_as_good_as_none(fake_pooch, monkeypatch):
    monkeypatch.setenv("RISKAD_DATA", "")
    load_adbench("wine")
    assert len(fake_pooch.calls) == 1


def test_with_a_folder_nothing_is_downloaded(fake_pooch, monkeypatch, tmp_path):
    monkeypatch.setenv("RISKAD_DATA", str(tmp_path))
    for name in ("wine", "pendigits", "imdb"):
        assert isinstance(one_error(load_adbench, name), DatasetMissing)
    assert fake_pooch.calls == []


def test_a_failed_download_says_url_reason_and_remedy(fake_pooch):
    fake_pooch.content = ConnectionError("no route\nto host " + "x " * 1000)
    error = one_error(load_adbench, "wine")
    assert isinstance(error, DatasetMissing)
    for part in ("'wine'", URL, "(ConnectionError: no route to host", "RISKAD_DATA"):
        assert part in str(error)
    assert len(str(error)) < 800


def test_a_damaged_download_is_not_a_missing_set(fake_pooch):
    fake_pooch.content = ValueError("SHA256 hash of downloaded file does not match")
    error = one_error(load_adbench, "pendigits")
    assert not isinstance(error, DatasetMissing)
    assert "download of 'pendigits' from https" in str(error)
    assert "does not match" in str(error)


def test_without_pooch_the_message_says_what_to_install(monkeypatch):
    monkeypatch.delenv("RISKAD_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "pooch", None)
    error = one_error(load_adbench, "wine")
    assert not isinstance(error, DatasetMissing)
    for part in ("'wine'", "pip install 'riskad[bench]'", "RISKAD_DATA", "adbench/45_wine.npz"):
        assert part in str(error)


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        self.server.requests.append(self.path)


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server on this machine in ADBench's place, and a cache of its own, for the real pooch."""
    pooch = pytest.importorskip("pooch")
    pooch.get_logger().setLevel("WARNING")
    monkeypatch.delenv("RISKAD_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache" / project)
    (tmp_path / "web" / "Classical").mkdir(parents=True)
    handler = functools.partial(Handler, directory=str(tmp_path / "web"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        running.requests = []
        running.folder = tmp_path / "web" / "Classical"
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setattr(adbench, "_BASE_URL", f"http://127.0.0.1:{running.server_port}")
        yield running
        running.shutdown()
        thread.join()


def test_a_set_is_downloaded_once(server, tmp_path):
    (server.folder / "45_wine.npz").write_bytes(npz(X=X, y=Y))
    for _ in range(2):
        assert_array_equal(load_adbench("wine").X, X)
    assert server.requests == ["/Classical/45_wine.npz"]
    assert (tmp_path / "cache" / "riskad" / "adbench" / "45_wine.npz").is_file()


def test_a_set_that_the_server_lacks_is_missing(server):
    error = one_error(load_adbench, "wine")
    assert isinstance(error, DatasetMissing)
    assert "/Classical/45_wine.npz could not be fetched (HTTPError: 404" in str(error)


def test_a_set_is_missing_where_nobody_answers(server, monkeypatch):
    monkeypatch.setattr(adbench, "_BASE_URL", "http://127.0.0.1:1")
    error = one_error(load_adbench, "wine")
    assert isinstance(error, DatasetMissing)
    assert "ConnectionError" in str(error)


def test_a_download_with_another_sum_is_not_kept(server, tmp_path):
    (server.folder / "28_pendigits.npz").write_bytes(npz(X=X, y=Y))
    error = one_error(load_adbench, "pendigits")
    assert not isinstance(error, DatasetMissing)
    assert "is damaged and was not kept" in str(error)
    assert list((tmp_path / "cache").rglob("*.npz")) == []


def test_a_damaged_file_in_the_cache_is_named(server, tmp_path):
    (server.folder / "45_wine.npz").write_bytes(b"cut short")
    cached = tmp_path / "cache" / "riskad" / "adbench" / "45_wine.npz"
    assert f"{str(cached)!r} of 'wine' is damaged" in str(one_error(load_adbench, "wine"))
    cached.unlink()
    (server.folder / "45_wine.npz").write_bytes(npz(X=X, y=Y))
    assert_array_equal(load_adbench("wine").X, X)


# --- the published files -----------------------------------------------------------------


@pytest.mark.needs_data
@pytest.mark.parametrize("file", adbench._SHA256)
def test_published_files_are_whole(data_folder, monkeypatch, file):
    if not (data_folder / "adbench" / f"{file}.npz").exists():
        pytest.skip("not among the benchmark data")
    monkeypatch.setenv("RISKAD_DATA", str(data_folder))
    monkeypatch.setitem(sys.modules, "pooch", None)
    found = load_adbench(file)
    assert found.X.shape[0] == len(found.y)
    assert found.X.dtype == np.float64
    assert found.X.flags.c_contiguous
    assert set(np.unique(found.y)) == {-1, 1}
    assert 0.01 < found.anomaly_rate < 0.45
    assert found.X.std(axis=0).any()


@pytest.mark.needs_data
@pytest.mark.parametrize(
    ("name", "shape", "n_anomalies"),
    [
        ("pendigits", (6870, 16), 156),
        ("satellite", (6435, 36), 2036),
        ("20news_3", (615, 768), 30),
    ],
)
def test_published_files_have_their_published_sizes(
    data_folder, monkeypatch, name, shape, n_anomalies
):
    monkeypatch.setenv("RISKAD_DATA", str(data_folder))
    found = load_adbench(name)
    assert found.X.shape == shape
    assert np.count_nonzero(found.y == -1) == n_anomalies


@pytest.mark.needs_data
def test_a_published_file_with_one_wrong_bit_is_found(data_folder, folder, monkeypatch):
    content = bytearray(Path(data_folder, "adbench", "39_vertebral.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "39_vertebral.npz").write_bytes(bytes(content))
    assert "its SHA-256 sum" in str(one_error(load_adbench, "vertebral"))


# --- hiding labels -----------------------------------------------------------------------


def make_truth(n_normal, n_anomalies, seed=0):
    truth = np.array([1] * n_normal + [-1] * n_anomalies, dtype=np.int8)
    return np.random.default_rng(seed).permutation(truth)


@settings(max_examples=200, deadline=None)
@given(
    n_normal=st.integers(1, 300),
    n_anomalies=st.integers(1, 300),
    fraction=st.floats(0.001, 0.999),
    seed=st.integers(0, 2**32),
)
def test_the_right_number_of_true_labels_with_both_kinds_is_kept(
    n_normal, n_anomalies, fraction, seed
):
    truth = make_truth(n_normal, n_anomalies, seed)
    before = truth.copy()
    k = round(fraction * len(truth))
    if k < 2:
        error = one_error(mask_labels, truth, fraction)
        assert f"labels {k} of them" in str(error)
        # What the message advises does work.
        advised = float(str(error).rsplit("=", 1)[1].removesuffix("."))
        assert np.count_nonzero(mask_labels(truth, advised)) == 2
        return
    y = mask_labels(truth, fraction, random_state=seed)
    assert y.dtype == np.int8
    assert y.shape == truth.shape
    assert np.count_nonzero(y) == k
    assert set(y.tolist()) >= {-1, 1}
    assert_array_equal(y[y != 0], truth[y != 0])
    assert_array_equal(truth, before)


@pytest.mark.parametrize(("n_normal", "n_anomalies", "k"), [(4, 2, 3), (2, 3, 4), (5, 1, 2)])
def test_all_choices_with_both_kinds_are_equally_likely(n_normal, n_anomalies, k):
    truth = make_truth(n_normal, n_anomalies)
    n = len(truth)
    allowed = [
        chosen
        for chosen in itertools.combinations(range(n), k)
        if 0 < np.count_nonzero(truth[list(chosen)] == -1) < k
    ]
    rng = np.random.default_rng(0)
    n_draws = 6000
    seen = Counter(
        tuple(np.flatnonzero(mask_labels(truth, k / n, random_state=rng)).tolist())
        for _ in range(n_draws)
    )
    assert set(seen) == set(allowed)
    p = 1 / len(allowed)
    tolerance = 5 * math.sqrt(p * (1 - p) / n_draws)  # five standard deviations
    assert_allclose([seen[chosen] / n_draws for chosen in allowed], p, rtol=0, atol=tolerance)


def redraw(truth, k, rng):
    """The rule as it is told: choose until both kinds are among the chosen."""
    while True:
        y = np.zeros_like(truth)
        chosen = rng.choice(len(truth), k, replace=False)
        y[chosen] = truth[chosen]
        if (y == -1).any() and (y == 1).any():
            return y


def test_as_many_anomalies_are_labelled_as_by_choosing_anew():
    truth, k, n_draws = make_truth(54, 6), 6, 4000
    rng = np.random.default_rng(1)
    ours = Counter(
        np.count_nonzero(mask_labels(truth, k / 60, random_state=rng) == -1) for _ in range(n_draws)
    )
    theirs = Counter(np.count_nonzero(redraw(truth, k, rng) == -1) for _ in range(n_draws))
    for count in range(k + 1):
        p, q = ours[count] / n_draws, theirs[count] / n_draws
        assert abs(p - q) <= 5 * math.sqrt((p + q) / n_draws)


@settings(max_examples=100, deadline=None)
@given(n_p=st.integers(1, 400), n_n=st.integers(1, 400), data=st.data())
def test_the_number_of_anomalies_has_the_restricted_hypergeometric_distribution(n_p, n_n, data):
    k = data.draw(st.integers(2, n_p + n_n))
    counts, probabilities = protocols._anomaly_counts(n_p, n_n, k)
    ways = {j: math.comb(n_n, j) * math.comb(n_p, k - j) for j in range(1, k)}
    possible = {j: n_ways for j, n_ways in ways.items() if n_ways}
    assert counts.tolist() == list(possible)
    total = sum(possible.values())
    exact = [float(Fraction(n_ways, total)) for n_ways in possible.values()]
    assert_allclose(probabilities, exact, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("rare", [1, -1])
def test_one_rare_row_is_found_at_once(rare):
    # Choosing anew would take some 50,000 draws of 100,000 rows.
    truth = np.full(100_000, -rare, dtype=np.int8)
    truth[777] = rare
    others = set()
    for seed in range(5):
        y = mask_labels(truth, 2e-5, random_state=seed)
        assert y[777] == rare
        [other] = np.flatnonzero(y == -rare)
        others.add(int(other))
    assert len(others) == 5


def test_a_million_rows_are_no_trouble():
    truth = np.where(np.arange(1_000_000) % 3 == 0, -1, 1)
    y = mask_labels(truth, 0.05, random_state=0)
    assert np.count_nonzero(y) == 50_000
    assert np.count_nonzero(y == -1) / 50_000 == pytest.approx(1 / 3, abs=0.01)


def test_the_same_seed_gives_the_same_labels():
    truth = make_truth(190, 10)
    first = mask_labels(truth, random_state=3)
    assert_array_equal(mask_labels(truth, random_state=3), first)
    assert_array_equal(mask_labels(truth, random_state=np.random.default_rng(3)), first)
    assert_array_equal(mask_labels(truth.tolist(), random_state=3), first)
    assert (mask_labels(truth, random_state=4) != first).any()
    rng = np.random.default_rng(3)
    assert (mask_labels(truth, random_state=rng) != mask_labels(truth, random_state=rng)).any()
    assert np.count_nonzero(mask_labels(truth)) == 10


def test_the_global_generator_is_left_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002 - that it is not used
    mask_labels(make_truth(190, 10))
    assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_permuted_truth_gives_other_labels():
    truth = make_truth(150, 50)
    permuted = make_truth(150, 50, seed=1)
    y = mask_labels(permuted, 0.2, random_state=0)
    assert (y != mask_labels(truth, 0.2, random_state=0)).any()
    assert_array_equal(y[y != 0], permuted[y != 0])


@pytest.mark.parametrize(
    ("truth", "parts"),
    [
        ([0, 1, 1, 0], ["0 for 2 of 4 rows", "riskad.core.label_parsing.from_pyod(truth)"]),
        ([1, -1, 0], ["0 for 1 of 3 rows", "leave these rows out"]),
        (["ok", "fraud"], ["'ok' (1 row)", "parse_labels"]),
        ([1, -1, np.nan], ["The truth cannot be used"]),
        ([1, 2], ["The truth cannot be used", "2 (1 row)"]),
        ([[1, -1], [1, 1]], ["one label for each row"]),
        ([1, 1, 1], ["3 normal and 0 anomalies", "stratify=truth"]),
        ([-1, -1], ["0 normal and 2 anomalies"]),
        ([], ["0 normal and 0 anomalies"]),
    ],
)
def test_truth_that_is_none_is_refused(truth, parts):
    message = str(one_error(mask_labels, truth, 0.9))
    for part in parts:
        assert part in message


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, 5, math.nan, "0.05", None, True])
def test_a_fraction_must_be_one(fraction):
    message = str(one_error(mask_labels, make_truth(90, 10), fraction))
    assert "fraction must be a number strictly between 0 and 1" in message


@pytest.mark.parametrize("seed", [-1, 0.5, "zero"])
def test_a_seed_must_be_one(seed):
    message = str(one_error(mask_labels, make_truth(90, 10), random_state=seed))
    assert "random_state must be" in message
    assert repr(seed) in message
