"""Model files from others: what SECURITY.md promises, tried with files that were crafted.

Some are opened, scored, calibrated and fitted again in a process that watches itself: whatever
starts a process, opens a connection or opens a file that was not given is found by its audit event.
"""

import hashlib
import json
import struct
import subprocess
import sys
import zipfile
import zlib

import numpy as np
import pytest
from conftest import PATIENCE, make_contaminated_rows
from sklearn.feature_selection import SelectFromModel
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import riskad
from riskad.app.model_files import load, read_header, save
from riskad.bench.peers import Scorer
from riskad.core.checks import InputError

MEMBERS = ("riskad.json", "state.json", "arrays.safetensors")


def write(path, members):
    """A model file of these members, with a right checksum, as a forger would write it."""
    header = json.loads(members["riskad.json"])
    content = hashlib.sha256()
    for name in sorted(set(members) - {"riskad.json"}):
        content.update(members[name])
    header["checksum"] = content.hexdigest()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in (members | {"riskad.json": json.dumps(header).encode()}).items():
            archive.writestr(name, data)
    return path


def read(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def forge(path, change=None, **header):
    """Change the tree of a model file, and its header."""
    members = read(path)
    tree = json.loads(members["state.json"])
    if change is not None:
        changed = change(tree["$type"][1])
        tree = tree if changed is None else changed
    fields = json.loads(members["riskad.json"]) | header
    members |= {"state.json": json.dumps(tree).encode(), "riskad.json": json.dumps(fields).encode()}
    return write(path, members)


@pytest.fixture(scope="module")
def rows():
    X, y, _ = make_contaminated_rows(n_rows=120)
    return X, y


@pytest.fixture
def saved(tmp_path, rows):
    """Saves a fitted model; gives the path of its file."""

    def save_model(model):
        path = tmp_path / "model.riskad"
        save(model.fit(*rows), path)
        return path

    return save_model


# --- files that name code ------------------------------------------------------------------


def pipeline_with(step):
    """A pipeline whose first step is replaced by this tree."""

    def change(state):
        state["steps"][0]["$tuple"][1] = step

    return change


def put(name, value):
    def change(state):
        state[name] = value

    return change


SCORER = {
    "peer": "subprocess.Popen",
    "standardise": False,
    "most_rows": None,
    "options": {"$dict": [["args", ["touch", "/tmp/started"]]]},
    "random_state": None,
}
SHALLOW = riskad.ShallowRAD("squared")
PIPELINE = make_pipeline(StandardScaler(), riskad.ShallowRAD("squared"))
CRAFTED = {
    "a peer of the benchmark": (PIPELINE, pipeline_with({"$type": ["Scorer", SCORER]})),
    "a peer, by its full name": (
        PIPELINE,
        pipeline_with({"$type": ["riskad.bench.peers.Scorer", SCORER]}),
    ),
    "a selector that fits a peer": (
        PIPELINE,
        pipeline_with({"$type": ["SelectFromModel", {"estimator": {"$type": ["Scorer", SCORER]}}]}),
    ),
    "a process": (PIPELINE, pipeline_with({"$type": ["subprocess.Popen", {"args": ["true"]}]})),
    "a function": (
        PIPELINE,
        pipeline_with(
            {"$type": ["FunctionTransformer", {"func": "os.system", "n_features_in_": 4}]}
        ),
    ),
    "another key than those of the format": (
        PIPELINE,
        pipeline_with({"$call": ["os.system", "touch /tmp/started"]}),
    ),
    "a folder to cache in": (PIPELINE, put("memory", "/tmp/cache")),
    "a kernel by name": (
        make_pipeline(Nystroem(n_components=5), riskad.ShallowRAD("squared")),
        lambda state: put("kernel", "os.system")(state["steps"][0]["$tuple"][1]["$type"][1]),
    ),
    "an attribute that hides a method": (
        PIPELINE,
        lambda state: put("transform", 1)(state["steps"][0]["$tuple"][1]["$type"][1]),
    ),
    "an attribute with a special name": (
        PIPELINE,
        lambda state: put("__class__", "x")(state["steps"][0]["$tuple"][1]["$type"][1]),
    ),
    "a feature map by name": (SHALLOW, put("feature_map", "os.system")),
    "a callback": (riskad.AutoRAD(budget=1), put("callback", "print")),
    "weights by a path": (riskad.PretrainedRAD(), put("weights_", "../../../etc/passwd")),
    "a loss by name": (SHALLOW, put("loss", "builtins.eval")),
    "an array of objects": (SHALLOW, put("coef_", {"$objects": [1.0, 2.0, 3.0, 4.0]})),
    "another type in its place": (
        SHALLOW,
        put("unlabelled_", {"$type": ["RiskZero", {}]}),
    ),
    "a seed for billions of trees": (riskad.ForestRAD(n_estimators=3), put("n_estimators", 10**12)),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_crafted_files_are_refused_in_a_sentence(saved, name):
    model, change = CRAFTED[name]
    path = forge(saved(model), change)
    with pytest.raises(InputError, match=r"'model\.riskad' is not a riskad model"):
        load(path)


def test_a_selector_that_names_a_peer_cannot_even_be_saved(saved, rows):
    peer = Scorer("sklearn.ensemble.IsolationForest")
    peer.feature_importances_ = np.ones(4)
    model = make_pipeline(SelectFromModel(peer, prefit=True), riskad.ShallowRAD("squared"))
    with pytest.raises(InputError, match="SelectFromModel, not on the list"):
        saved(model)


@pytest.mark.parametrize("module", ["os.system", "subprocess"])
def test_a_network_of_another_module(saved, module):
    pytest.importorskip("torch")
    path = forge(saved(riskad.DeepRAD(n_steps=2, hidden=(3, 2))), put("module", module))
    with pytest.raises(InputError, match="damaged"):
        load(path)


# --- sizes -------------------------------------------------------------------------------


def test_a_header_of_arrays_that_declares_more_than_there_is(saved):
    path = saved(riskad.ShallowRAD("squared"))
    entry = {"coef_": {"dtype": "F64", "shape": [7 * 10**12], "data_offsets": [0, 56 * 10**12]}}
    text = json.dumps(entry).encode()
    data = struct.pack("<Q", len(text)) + text
    write(path, read(path) | {"arrays.safetensors": data})
    with pytest.raises(InputError, match="its arrays cannot be read"):
        load(path)


def test_a_member_that_expands_without_limit(saved):
    path = saved(riskad.ShallowRAD("squared"))
    members = read(path)
    with zipfile.ZipFile(path, "w", compression=zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("riskad.json", members["riskad.json"])
        archive.writestr("state.json", b" " * 200_000_000)
        archive.writestr("arrays.safetensors", members["arrays.safetensors"])
    assert path.stat().st_size < 300_000
    with pytest.raises(InputError, match=r"becomes 200,000,000 bytes"):
        load(path)


def test_a_member_that_lies_about_its_size(saved):
    path = saved(riskad.ShallowRAD("squared"))
    members = read(path)
    with zipfile.ZipFile(path, "w", compression=zipfile.ZIP_DEFLATED) as archive:
        for name, data in (members | {"riskad.json": b" " * 50_000_000}).items():
            archive.writestr(name, data)
    data = path.read_bytes().replace(struct.pack("<L", 50_000_000), struct.pack("<L", 1_000))
    path.write_bytes(data)
    for opened in (load, read_header):
        with pytest.raises(InputError, match="damaged"):
            opened(path)


@pytest.mark.parametrize("member", ["riskad.json", "state.json"])
@pytest.mark.parametrize("depth", [60, 900, 200_000])
def test_values_nested_too_deeply(saved, member, depth):
    path = saved(riskad.ShallowRAD("squared"))
    members = read(path)
    deep = "[" * depth + "]" * depth
    if member == "state.json":
        members[member] = deep.encode()
        write(path, members)
    else:
        header = members[member].decode().replace('"notes": {}', f'"notes": {{"x": {deep}}}')
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in (members | {member: header}).items():
                archive.writestr(name, data)
    with pytest.raises(InputError, match="nested too deeply"):
        load(path)


def test_a_network_larger_than_its_file_is_not_built(saved):
    pytest.importorskip("torch")
    change = put("hidden", [10**6] * 12)
    path = forge(saved(riskad.DeepRAD(n_steps=2, hidden=(3, 2))), change)
    with pytest.raises(InputError, match="expected at least 11,000,0"):
        load(path)


def test_what_shrinks_a_lot_is_saved_so_that_it_can_be_read(tmp_path):
    model = StandardScaler().fit(np.zeros((2, 200_000)))
    save(model, tmp_path / "model.riskad")
    np.testing.assert_array_equal(load(tmp_path / "model.riskad").mean_, model.mean_)
    assert len(zlib.compress(model.mean_.tobytes())) < model.mean_.nbytes / 100


# --- tampering ---------------------------------------------------------------------------


def numbers_of(value, path=()):
    """Places of all numbers, texts and references in a tree."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from numbers_of(each, (*path, key))
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from numbers_of(each, (*path, place))
    else:
        yield path


def replaced(tree, path, value):
    tree = json.loads(json.dumps(tree))
    inner = tree
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return tree


@pytest.mark.parametrize(
    "model",
    [
        make_pipeline(SimpleImputer(), riskad.ShallowRAD("squared")),
        riskad.ForestRAD(n_estimators=3),
        riskad.PretrainedRAD(),
        riskad.AutoRAD(budget=1),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_number_that_was_changed_is_refused_or_changes_nothing_that_breaks(saved, rows, model):
    """NaN, infinity, negative counts, huge numbers, other types: a sentence, or finite scores."""
    path = saved(model)
    save(riskad.calibrate(model, *rows), path, force=True)
    members = read(path)
    tree = json.loads(members["state.json"])
    places = list(numbers_of(tree))
    rng = np.random.default_rng(0)
    values = [{"$number": "nan"}, {"$number": "inf"}, -1, 10**30, "x", None, [], True, 1e300]
    for place in rng.permutation(len(places))[:60]:
        value = values[int(rng.integers(len(values)))]
        changed = json.dumps(replaced(tree, places[place], value)).encode()
        write(path, members | {"state.json": changed})
        try:
            again = load(path)
            scores = again.score_samples(rows[0])
        except InputError:
            continue
        assert np.isfinite(scores).all(), (places[place], value)


def test_the_checksum_finds_what_happened_by_accident(saved):
    path = saved(riskad.ShallowRAD("squared"))
    members = read(path)
    data = bytearray(members["arrays.safetensors"])
    data[-3] ^= 1
    with zipfile.ZipFile(path, "w") as archive:
        for name, each in (members | {"arrays.safetensors": bytes(data)}).items():
            archive.writestr(name, each)
    with pytest.raises(InputError, match="its content is not what was written"):
        load(path)


@pytest.mark.parametrize(
    "notes",
    [
        [],
        {"fit": []},
        {"fit": {"rows": -1}},
        {"fit": {"labels": {"normal": "many"}}},
        {"x": "\ud800"},
    ],
    ids=str,
)
def test_notes_that_cannot_be(saved, notes):
    path = forge(saved(riskad.ShallowRAD("squared")), notes=notes)
    for opened in (load, read_header):
        with pytest.raises(InputError, match="damaged"):
            opened(path)


# --- watched processes ----------------------------------------------------------------------

WATCHED = """
import os, sys, tempfile, warnings
warnings.simplefilter("ignore")
import numpy as np
import lightgbm, sklearn.ensemble, sklearn.linear_model, scipy.spatial.distance
import riskad, riskad.detectors.auto, riskad.detectors.boosted
import riskad.decisions.calibration, riskad.app.model_files
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.impute import SimpleImputer

rows, *paths = sys.argv[1:]
with np.load(rows) as stored:
    X, y = stored["X"], stored["y"]
riskad.ShallowRAD("squared").fit(X, y)  # whatever is imported at first use
riskad.AutoRAD(budget=1).fit(X, y).score_samples(X)
found = []
own = tuple(map(os.path.realpath, (sys.prefix, sys.base_prefix, *sys.path[1:])))

def watch(event, arguments):
    if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork",
                 "socket.connect", "ctypes.dlopen", "os.remove", "os.rename", "os.mkdir"):
        found.append(event)
    if event == "open":
        name, mode, flags = arguments
        name = os.path.realpath(os.fsdecode(name)) if isinstance(name, (str, bytes)) else ""
        reads = not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        harmless = name.startswith((*own, "/proc/", "/sys/")) and reads
        if name and name != os.path.realpath(path) and not harmless:
            found.append(f"open {name}")

path = ""
sys.addaudithook(watch)
for path in paths:
    found.clear()
    try:
        riskad.app.model_files.read_header(path)
        model = riskad.load(path)
        model.score_samples(X)
        riskad.calibrate(model, X, y)
        clone(model).fit(X, y)
        print("used")
    except riskad.InputError as error:
        print("refused:", error)
    print("found:", found)
"""


def watched(paths, rows, tmp_path):
    """What one process says of each file: two lines. It writes no bytecode, which is no file's."""
    np.savez(tmp_path / "rows.npz", X=rows[0], y=rows[1])
    command = [sys.executable, "-B", "-c", WATCHED, tmp_path / "rows.npz", *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    lines = done.stdout.splitlines()
    assert len(lines) == 2 * len(paths), done.stderr
    return list(zip(lines[::2], lines[1::2], strict=True))


def test_using_a_file_starts_nothing_and_touches_no_other_file(rows, tmp_path):
    """The pipeline of the README and AutoRAD: opened, scored, calibrated, fitted again."""
    paths = []
    for model in (make_pipeline(SimpleImputer(), riskad.ShallowRAD()), riskad.AutoRAD(budget=1)):
        paths.append(tmp_path / f"{type(model).__name__}.riskad")
        save(model.fit(*rows), paths[-1])
    assert watched(paths, rows, tmp_path) == [("used", "found: []")] * 2


def test_nor_does_a_crafted_one(saved, rows, tmp_path):
    names = ("a peer of the benchmark", "a process", "a function", "a folder to cache in")
    paths = []
    for name in names:
        model, change = CRAFTED[name]
        (tmp_path / name).mkdir()
        paths.append(forge(saved(model), change).rename(tmp_path / name / "model.riskad"))
    for name, (refused, found) in zip(names, watched(paths, rows, tmp_path), strict=True):
        assert refused.startswith("refused: 'model.riskad' is not a riskad model"), name
        assert found == "found: []", name


def test_a_step_that_transforms_nothing_is_refused(saved):
    """A pipeline that ends in a detector says nothing of what it would give to another step."""
    path = saved(PIPELINE)
    tree = json.loads(read(path)["state.json"])
    forge(path, pipeline_with(tree))
    with pytest.raises(InputError, match="transforms nothing"):
        load(path)


def test_rows_that_are_astronomically_far_out_have_scores(saved, rows):
    """A scale changed to next to nothing makes standardised rows overflow."""
    path = saved(riskad.ShallowRAD("squared", feature_map="rbf"))
    model = load(path)
    model._scale[:] = 1e-300
    assert np.isfinite(model.score_samples(rows[0] * 1e10)).all()


def test_a_scaler_without_its_scale_is_refused(saved):
    def change(state):
        del state["steps"][0]["$tuple"][1]["$type"][1]["scale_"]

    path = forge(saved(PIPELINE), change)
    with pytest.raises(InputError, match="scale_: expected one, since with_std"):
        load(path)
