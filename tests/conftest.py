"""Data that several test files share."""

import os
import sys
import warnings
from collections import Counter
from decimal import Decimal
from pathlib import Path

# Small matrices: more threads than free cores only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# AutoRAD asks LightGBM for all cores all the same. Threads that spin while they wait for each other
# take them from the other test process, and three times the processor time.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import hypothesis
import numpy as np
import pytest
from support import PATIENCE as PATIENCE

# How long an example takes says how busy the machine is, and not whether the code is right.
hypothesis.settings.register_profile(
    "patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("patient")

# Files with few tests that take long. One that is begun last keeps a single worker busy.
LONG = ("test_docs", "test_export_auto", "test_fuzz", "test_kinds", "test_label_browser")

# Table 1 of the paper, for Decimals of any precision.
DECIMAL_LOSSES = {
    "hinge": lambda z: max(Decimal(0), 1 - z),
    "double_hinge": lambda z: max(Decimal(0), (1 - z) / 2, -z),
    "squared": lambda z: (z - 1) ** 2 / 2,
    "modified_huber": lambda z: max(Decimal(0), 1 - z) ** 2 if z >= -1 else -4 * z,
    "logistic": lambda z: (1 + (-z).exp()).ln(),
    "sigmoid": lambda z: 1 / (1 + z.exp()),
    "ramp": lambda z: max(Decimal(0), min(Decimal(1), (1 - z) / 2)),
}
THEOREM_CONSTANTS = {  # (b1, b2, b3)
    "hinge": (2, 1, 1),
    "double_hinge": (1, 1 / 2, 1),
    "squared": (2, 1 / 2, 1 / 2),
    "modified_huber": (4, 1, 1 / 2),
    "logistic": (1, 1, float(Decimal(2).ln())),
    "sigmoid": (1, 1 / 2, 1),
    "ramp": (1, 1 / 2, 1),
}


def pytest_collection_modifyitems(items):
    """Begin with what takes long; files with few tests fill the gaps at the end."""
    tests = Counter(item.path.stem for item in items)
    items.sort(key=lambda item: (item.path.stem not in LONG, -tests[item.path.stem], item.path))


def make_contaminated_rows(
    n_rows=600, n_features=4, *, anomaly_rate=0.2, labelled=0.3, shift=1.5, seed=0
):
    """Gaussian rows with shifted anomalies, some of them labelled: X, y codes, truth."""
    rng = np.random.default_rng(seed)
    anomalous = rng.random(n_rows) < anomaly_rate
    X = rng.standard_normal((n_rows, n_features)) + shift * anomalous[:, None]
    X = X * rng.uniform(0.5, 5, n_features) + rng.normal(0, 3, n_features)
    truth = np.where(anomalous, -1, 1).astype(np.int16)
    y = np.where(rng.random(n_rows) < labelled, truth, 0).astype(np.int16)
    return X, y, truth


@pytest.fixture(scope="session")
def card_model(tmp_path_factory):
    """A model file of a table of cards, for those who copy or read it."""
    from support.cards import SHALLOW, make_cards
    from support.commands import run

    folder = tmp_path_factory.mktemp("cards")
    make_cards().write_csv(folder / "cards.csv")
    run("fit", folder / "cards.csv", *SHALLOW, "--id", "card", "-o", folder / "model.riskad")
    return folder / "model.riskad"


@pytest.fixture
def contaminated_rows():
    return make_contaminated_rows()


@pytest.fixture(scope="session", autouse=True)
def no_hurry():
    """Nothing runs out of time: on a very busy machine a fit leaves out steps, or some reasons."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("riskad.detectors.auto.members._LEAST_PATIENCE", 100.0 * PATIENCE)
        for limit in ("explain._LATER", "explain._SECONDS"):
            patch.setattr(f"riskad.app.{limit}", PATIENCE)
        yield


def pytest_runtest_setup(item):
    """Skip what needs the benchmark data where they are not."""
    if item.get_closest_marker("needs_data") and not (data_path() / "adbench").is_dir():
        pytest.skip("RISKAD_DATA does not name a folder with the benchmark data")


def data_path():
    return Path(os.environ.get("RISKAD_DATA") or "no such folder")


@pytest.fixture
def data_folder(request):
    """The benchmark data, for tests marked needs_data."""
    assert request.node.get_closest_marker("needs_data"), "only tests marked needs_data may read it"
    return data_path()


@pytest.fixture(scope="module")
def browser():
    from support.browser import CHROMIUM, playwright

    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=1000 * PATIENCE
        )
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def cluster():
    """Two workers of Dask."""
    from distributed import LocalCluster

    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(n_workers=2, **options) as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with cluster.get_client() as client:
        yield client


@pytest.fixture
def read(tmp_path):
    """Write bytes under a name, read them as a table, and return it with what was noted."""
    import polars as pl

    from riskad.tables.notes import ReadingNote
    from riskad.tables.reading import read_batches, read_table

    def write_and_read(data, name="cards.csv", part=""):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            frame = read_table(f"{path}{part}")
            batches = list(read_batches(f"{path}{part}"))
        assert pl.concat(batches).equals(frame)
        assert all(isinstance(w.message, ReadingNote) for w in caught)
        notes = [str(w.message) for w in caught]
        assert notes[: len(notes) // 2] == notes[len(notes) // 2 :]  # each reading says the same
        return frame, notes[: len(notes) // 2]

    return write_and_read


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """Be in a folder with files that Python might import; the names of those it did import."""
    folder = tmp_path / "planted"
    folder.mkdir()
    monkeypatch.chdir(folder)
    code = f"open({str(folder / 'imported')!r}, 'a').write(__name__ + ' ')\n"
    names = {*sys.stdlib_module_names, "sitecustomize", "usercustomize"}
    for name in names | {"riskad", "numpy", "polars", "sklearn", "lightgbm", "threadpoolctl"}:
        (folder / f"{name}.py").write_text(code)
    return lambda: (folder / "imported").read_text() if (folder / "imported").exists() else ""


@pytest.fixture
def few_members():
    """AutoRAD averages its quick members alone."""
    from riskad.detectors.auto.members import MEMBERS

    members = dict(MEMBERS)
    for name in members.keys() - {"kernel", "smooth forest", "novelty"}:
        del MEMBERS[name]
    yield
    MEMBERS.clear()  # the order of members is part of a model
    MEMBERS.update(members)


@pytest.fixture
def registries_as_before():
    """Leave the registries as they were: what a test adds is gone after it."""
    from riskad.app.report.sections import SECTIONS
    from riskad.core.losses import LOSSES
    from riskad.core.risks import RISKS
    from riskad.decisions.thresholds import THRESHOLD_TYPES, THRESHOLDS
    from riskad.detectors.auto.members import MEMBER_TYPES, MEMBERS
    from riskad.detectors.registry import DETECTORS
    from riskad.files.codec import _REGISTERED
    from riskad.tables.kinds.base import KINDS, STORED

    dicts = (LOSSES, RISKS, THRESHOLDS, DETECTORS, MEMBERS, KINDS, STORED, _REGISTERED)
    lists = (MEMBER_TYPES, THRESHOLD_TYPES, SECTIONS)
    before = [dict(each) for each in dicts], [list(each) for each in lists]
    yield
    for each, old in zip(dicts, before[0], strict=True):
        each.clear()
        each.update(old)
    for each, old in zip(lists, before[1], strict=True):
        each[:] = old
