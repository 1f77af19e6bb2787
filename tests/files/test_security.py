"""Model files from others: what SECURITY.md promises, tried with files that were crafted.

Some are opened, scored, calibrated and fitted again in a process that watches itself: whatever
starts a process, opens a connection or opens a file that was not given is found by its audit event.
"""

import json
import struct
import subprocess
import sys
import zipfile
import zlib

import numpy as np
import pytest
from conftest import PATIENCE, make_contaminated_rows
from fuzz.mutations import read_archive, reseal, write_archive
from safetensors.numpy import save as save_arrays
from sklearn.pipeline import make_pipeline

import riskad
from riskad.app.fit_report import FitReport
from riskad.app.model_files import load, read_header, save
from riskad.app.spec import FitSpec
from riskad.core.checks import InputError
from riskad.detectors.features import SmoothScaler
from riskad.files.codec import build, state_of
from riskad.files.records import to_plain


def write(path, members):
    """A model file of these members, with a right checksum, as a forger would write it."""
    members = reseal(members)
    header = json.dumps(json.loads(members["riskad.json"]))  # as many values as its bytes can hold
    members |= {"riskad.json": header.encode()}
    path.write_bytes(write_archive(members, zipfile.ZIP_STORED))
    return path


def read(path):
    return read_archive(path.read_bytes())


def pack(path, members, deflated=(), level=None):
    """An archive of these members, some of them compressed."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            method = zipfile.ZIP_DEFLATED if name in deflated else zipfile.ZIP_STORED
            archive.writestr(name, data, method, level)


def forge(path, change=None, **header):
    """Change the tree of a model file, and its header."""
    members = read(path)
    tree = json.loads(members["state.json"])
    if change is not None:
        changed = change(tree["$type"][1] if "$type" in tree else tree["$pipeline"])
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

    def change(steps):
        steps[0][1] = step

    return change


def in_first_step(name, value):
    return lambda steps: put(name, value)(steps[0][1]["$type"][1])


def put(name, value):
    def change(state):
        state[name] = value

    return change


SCORER = {"peer": "subprocess.Popen", "options": {"$dict": [["args", ["touch", "/tmp/started"]]]}}
SHALLOW = riskad.ShallowRAD("squared")
PIPELINE = make_pipeline(SmoothScaler(), riskad.ShallowRAD("squared"))
CRAFTED = {
    "a peer of the benchmark": (
        PIPELINE,
        pipeline_with({"$type": ["experiments.field.peers.Scorer", SCORER]}),
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
    "a folder to cache in": (PIPELINE, lambda steps: {"$pipeline": steps, "memory": "/tmp/cache"}),
    "64 processes of scikit-learn": (
        PIPELINE,
        pipeline_with({"$type": ["ColumnTransformer", {"transformers": [], "n_jobs": 64}]}),
    ),
    "64 threads": (riskad.ForestRAD(n_estimators=3), put("n_jobs", 64)),
    "an attribute that hides a method": (PIPELINE, in_first_step("transform", 1)),
    "an attribute with a special name": (PIPELINE, in_first_step("__class__", "x")),
    "a step that is not fitted": (PIPELINE, pipeline_with({"$type": ["SmoothScaler", {}]})),
    "a step for other columns": (PIPELINE, lambda steps: {"$pipeline": [*steps[:1], *steps[:1]]}),
    "a step that is a value": (PIPELINE, pipeline_with({"$type": ["RiskZero", {}]})),
    "a pipeline without steps": (PIPELINE, lambda steps: {"$pipeline": []}),
    "a feature map by name": (SHALLOW, put("feature_map", "os.system")),
    "a callback": (riskad.AutoRAD(budget=1), put("callback", "print")),
    "weights by a path": (riskad.PretrainedRAD(), put("weights_", "../../../etc/passwd")),
    "a loss by name": (SHALLOW, put("loss", "builtins.eval")),
    "an array of objects": (SHALLOW, put("coef_", {"$objects": [1.0, 2.0, 3.0, 4.0]})),
    "another type in its place": (SHALLOW, put("unlabelled_", {"$type": ["RiskZero", {}]})),
    "a seed for billions of trees": (riskad.ForestRAD(n_estimators=3), put("n_estimators", 10**12)),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_crafted_files_are_refused_in_a_sentence(saved, name):
    model, change = CRAFTED[name]
    path = forge(saved(model), change)
    with pytest.raises(InputError, match=r"'model\.riskad' is not a riskad model"):
        load(path)


# --- sizes -------------------------------------------------------------------------------


@pytest.fixture
def path(saved):
    return saved(SHALLOW)


def test_a_header_of_arrays_that_declares_more_than_there_is(path):
    entry = {"coef_": {"dtype": "F64", "shape": [7 * 10**12], "data_offsets": [0, 56 * 10**12]}}
    write(path, read(path) | {"arrays.safetensors": safetensors(entry)})
    with pytest.raises(InputError, match="its arrays cannot be read"):
        load(path)


@pytest.mark.parametrize(
    ("member", "more"),
    [("riskad.json", 100_000), ("state.json", 100_000), ("arrays.safetensors", 200_000_000)],
)
def test_a_member_that_expands_without_limit(path, member, more):
    """Of JSON at most 100 kB may be compressed."""
    members = read(path)
    members[member] += b" " * more
    pack(path, members, [member])
    assert path.stat().st_size < 300_000
    with pytest.raises(
        InputError, match=f"'{member}' says that it becomes {len(members[member]):,}"
    ):
        load(path)


def test_a_member_that_lies_about_its_size(path):
    members = read(path) | {"riskad.json": b" " * 50_000_000}
    pack(path, members, members)
    data = path.read_bytes().replace(struct.pack("<L", 50_000_000), struct.pack("<L", 1_000))
    path.write_bytes(data)
    for opened in (load, read_header):
        with pytest.raises(InputError, match="damaged"):
            opened(path)


@pytest.mark.parametrize("member", ["riskad.json", "state.json"])
@pytest.mark.parametrize("depth", [60, 900, 200_000])
def test_values_nested_too_deeply(path, member, depth):
    members = read(path)
    deep = "[" * depth + "]" * depth
    if member == "state.json":
        members[member] = deep.encode()
        write(path, members)
    else:
        header = members[member].decode().replace('"notes": {}', f'"notes": {{"x": {deep}}}')
        pack(path, members | {member: header})
    with pytest.raises(InputError, match=r"nested too deeply|nothing but brackets"):
        load(path)


def test_what_shrinks_a_lot_is_saved_so_that_it_can_be_read(tmp_path):
    model = SmoothScaler().fit(np.zeros((2, 200_000)))
    save(model, tmp_path / "model.riskad")
    np.testing.assert_array_equal(load(tmp_path / "model.riskad").median_, model.median_)
    assert len(zlib.compress(model.median_.tobytes())) < model.median_.nbytes / 100


# --- tampering ---------------------------------------------------------------------------


def _report(**fields):
    return to_plain(FitReport()) | fields


@pytest.mark.parametrize(
    "header",
    [
        {"notes": []},
        {"notes": {"x": "\ud800"}},
        {"report": []},
        {"report": {"rows": 3}},
        {"report": _report(rows=-1)},
        {"report": _report(labels={"normal": "many", "anomaly": 0, "unlabelled": 0})},
        {"report": _report(rule="no such rule")},
        {"report": _report(spec=to_plain(FitSpec()) | {"model": "no such model"})},
        {"report": _report(spec=to_plain(FitSpec()) | {"seed": -1})},
        {"report": _report(rate={"value": 0.1, "low": 0.0, "high": 2.0})},
        {"report": _report(warnings="one")},
        {"report": _report(other=1)},
    ],
    ids=lambda header: ascii(header)[:60],
)
def test_notes_and_reports_that_cannot_be(path, header):
    forge(path, **header)
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


@pytest.mark.slow
def test_using_a_file_starts_nothing_and_touches_no_other_file(saved, rows, tmp_path):
    """A pipeline and AutoRAD: opened, scored, calibrated, fitted again; and crafted files."""
    crafted = (
        *("a peer of the benchmark", "a process", "a function", "a folder to cache in"),
        *("64 processes of scikit-learn", "64 threads"),
    )
    paths = []
    for model in (make_pipeline(SmoothScaler(), riskad.ShallowRAD()), riskad.AutoRAD(budget=1)):
        paths.append(tmp_path / f"{type(model).__name__}.riskad")
        save(model.fit(*rows), paths[-1])
    for name in crafted:
        model, change = CRAFTED[name]
        (tmp_path / name).mkdir()
        paths.append(forge(saved(model), change).rename(tmp_path / name / "model.riskad"))
    np.savez(tmp_path / "rows.npz", X=rows[0], y=rows[1])
    command = [sys.executable, "-B", "-c", WATCHED, tmp_path / "rows.npz", *paths]  # no bytecode
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    lines = done.stdout.splitlines()  # two of each file
    assert len(lines) == 2 * len(paths), done.stderr
    used, more, *refused = zip(lines[::2], lines[1::2], strict=True)
    assert used == more == ("used", "found: []")
    for name, (sentence, found) in zip(crafted, refused, strict=True):
        assert sentence.startswith("refused: 'model.riskad' is not a riskad model"), name
        assert found == "found: []", name


def test_a_step_that_transforms_nothing_is_refused(saved):
    path = forge(saved(PIPELINE), lambda steps: {"$pipeline": steps[::-1]})
    with pytest.raises(InputError, match="'shallowrad' transforms nothing"):
        load(path)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("unlabelled", np.empty(0), "unlabelled: none of their scores"),
        ("unlabelled", np.full(4, 1e308), "expected values between -1e\\+150 and 1e\\+150"),
        ("scores", np.full(20, -1e308), "expected values between -1e\\+150 and 1e\\+150"),
    ],
)
def test_scores_that_no_threshold_can_be_found_on_are_refused(rows, name, value, why):
    """`riskad threshold` would end in a traceback."""
    calibration = riskad.calibrate(riskad.ShallowRAD("squared").fit(*rows), *rows).calibration_
    with pytest.raises(InputError, match=why):
        build(type(calibration), state_of(calibration) | {name: value})


# --- memory and time of loading ----------------------------------------------------------------

MOST_TIMES = 100  # the bytes of a file, which SECURITY.md states
MEASURED = """
import gc, sys, time, riskad, riskad.app.model_files
import riskad.tables.preparation, riskad.detectors.features, riskad.detectors.auto
import riskad.deep.risk_detectors

def memory(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name))

valid, *paths = sys.argv[1:]
riskad.load(valid)  # whatever is imported at first use
header = riskad.app.model_files.read_header
for read, path in ((read, path) for path in paths for read in (header, riskad.load)):
    gc.collect()
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")
    before, start = memory("VmRSS:"), time.process_time()
    try:
        read(path)
        print("loaded")
    except riskad.InputError as error:
        print("refused:", error)
    print(memory("VmHWM:") - before, time.process_time() - start)
"""


def safetensors(entries, body=b""):
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def prepared(column, name="x", **others):
    """The tree of a `TablePreparer` with one column."""
    column = {"$type": [column[0], {"name": name, "kind": "x", "remarks": []} | column[1]]}
    state = {"kinds": None, "group": None, "max_levels": 50, "form": "matrix", "shifts_": None}
    state |= {"n_features_in_": 1, "feature_names_in_": {"$objects": [name]}, "n_rows_": 5}
    state |= {"columns_": {"$dict": [[name, column]]}, "derived_": []} | others
    return {"$type": ["TablePreparer", state]}


def levels(n):
    return {"levels": [f"{i:x}" for i in range(n)], "n_levels": n, "rare": 0} | {
        "rare_hashes": None,
        "most_frequent": "0",
    }


def repeated(text, n=2_000_000):
    """A list of this many bytes of a JSON text."""
    return ("[" + f"{text}," * (n // (len(text.encode()) + 1)) + "0]").encode()


def forged(model, **attributes):
    name, state = model["$type"]
    return {"$type": [name, state | attributes]}


def layers(model, n):
    """A network whose layers all name one array."""
    size = 400
    names = [[str(layer), {"$array": "one"}] for layer in range(n)]
    model = forged(model, module=[size] * n, weights_={"$dict": names})
    entry = {"one": {"dtype": "F32", "shape": [size, size], "data_offsets": [0, 4 * size**2]}}
    return model, safetensors(entry, np.zeros(size**2, np.float32).tobytes())


def many_arrays(n):
    entry = {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
    return safetensors({f"{i:x}": entry for i in range(n)})


def squeezable(n, kind):
    """Numbers that shrink to about an eighth."""
    rng = np.random.default_rng(0)
    if kind is bool:
        return rng.random(n) < 0.94
    values = np.zeros(n, kind)
    values[::8] = rng.random(len(values[::8]))
    return values


def native(n):
    """A view of n columns, with n categories that are all of the same columns."""
    column = np.arange(n)
    state = {"parts": ["columns", "native"], "smooth": False, "widths": [1.0], "n_components": 20}
    state |= {"random_state": 0, "marks": None, "levels": [{"$tuple": [0, n]}] * n}
    scale = {"mean": {"$array": "mean"}, "scale": {"$array": "scale"}}
    state |= {"scaler_": {"$type": ["ColumnScale", scale]}, "kept_": {"$array": "kept"}}
    state |= {"maps_": {"$dict": []}}
    state |= {"n_features_in_": n, "n_features_out_": n}
    arrays = {"mean": np.zeros(n), "scale": np.ones(n), "kept": column}
    return {"$type": ["LearnedFeatures", state]}, save_arrays(arrays)


def chain(n):
    """Whole numbers that a dict puts behind each other: twice as many take four times as long."""
    return [[k * (2**61 - 1), 0] for k in range(n)]


NODES = ("splits", "feature", "threshold", "missing_left", "value")
TREES = {"n_trees": 1, "n_features": 1, "cover": None, "categorical": None}
TREES |= {name: {"$array": name} for name in NODES}
NO_TREES = {"feature": np.zeros(0, np.int32), "threshold": np.zeros(0), "value": np.zeros(1)}
NO_TREES |= {"missing_left": np.zeros(0, bool)}
SCALER = {"n_features_in_": 1, "n_features_out_": 1} | {
    name: {"$array": name} for name in ("median_", "scale_", "kept_")
}
ONE_COLUMN = {"scale_": np.ones(1), "kept_": np.zeros(1, int)}


def a_name_for_many_levels(model):
    column = "CategoryColumn", levels(100_000)
    return {"$pipeline": [["a", prepared(column, "x" * 10_000)], ["b", model]]}


# A JSON text that a file of this kind repeats in place of a model's tree.
REPEATED = {
    "brackets": "[]",
    "nested brackets": "[" * 30 + " " * 120 + "]" * 30,
    "small dicts": '{"":0}',
    "small lists": "[0,1]",
    "small tuples": '{"$tuple":[1]}',
    "short texts": '"\u0436\u0436"',
    "numbers": "1.5",
    "types": '{"$type":["RiskZero",{}]}',
}
# What a file of another kind holds, given the tree of a network: its state, and its arrays if they
# are others than those of the network.
LARGE = {
    "texts of which one has a rare letter": lambda model: (
        '["\U0001f600",'.encode() + repeated('"ab"')[1:],
        None,
    ),
    "number keys": lambda model: ({"$dict": chain(30_000)}, None),
    "layers of one array": lambda model: layers(model, 600),
    "layers of no array": lambda model: (forged(model, module=[1] * 200_000), None),
    "many arrays": lambda model: (model, many_arrays(100_000)),
    "many arrays and as many bytes": lambda model: (repeated('"xxxxxxxx"'), many_arrays(60_000)),
    "a long array": lambda model: (
        {"$type": ["SmoothScaler", SCALER]},
        save_arrays({"median_": squeezable(3_000_000, float)} | ONE_COLUMN),
    ),
    "nodes of no tree": lambda model: (
        {"$type": ["Trees", TREES]},
        save_arrays({"splits": squeezable(20_000_000, bool)} | NO_TREES),
    ),
    "a name for many levels": lambda model: (a_name_for_many_levels(model), None),
    "categories of the same columns": lambda model: native(20_000),
}
LARGE_NOTES = {"notes of brackets": "[]", "notes of dicts": '{"":0}'}


@pytest.fixture(scope="module")
def readings(tmp_path_factory, rows):
    """What one process says of each file, and how much it took: of its header, and of all."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("large")
    valid = folder / "valid.riskad"
    save(riskad.DeepRAD(max_iter=2, module=(3, 2)).fit(*rows), valid)
    before, paths = read(valid), []
    for kind in (*REPEATED, *LARGE, *LARGE_NOTES):
        (folder / kind).mkdir()
        paths.append(folder / kind / "model.riskad")
        members = dict(before)
        if kind in REPEATED:
            members["state.json"] = repeated(REPEATED[kind])
        elif kind in LARGE:
            tree, arrays = LARGE[kind](json.loads(before["state.json"]))
            members["state.json"] = tree if type(tree) is bytes else json.dumps(tree).encode()
            members["arrays.safetensors"] = arrays or before["arrays.safetensors"]
        else:
            notes = f'"notes": {{"x": {repeated(LARGE_NOTES[kind]).decode()}}}'
            header = before["riskad.json"].decode().replace('"notes": {}', notes)
            members["riskad.json"] = header.encode()
        squeeze_arrays(write(paths[-1], members))
    command = [sys.executable, "-c", MEASURED, valid, *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    lines = done.stdout.splitlines()
    assert len(lines) == 4 * len(paths), done.stderr
    return {
        path.parent.name: (path.stat().st_size, lines[4 * i : 4 * i + 4])
        for i, path in enumerate(paths)
    }


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what a process holds")
@pytest.mark.parametrize("kind", [*REPEATED, *LARGE, *LARGE_NOTES])
def test_memory_and_time_of_loading_are_bounded_by_the_size_of_the_file(readings, kind):
    size, (_, header, said, whole) = readings[kind]
    if kind != "notes of dicts":  # which are a valid model's
        assert said.startswith("refused: 'model.riskad' is not a riskad model"), said
    for figures in (header, whole):
        memory, seconds = map(float, figures.split())
        assert memory < 10_000_000 + MOST_TIMES * size, memory / size
        assert seconds < 20  # of processor time


def squeeze_arrays(path):
    """Compress the arrays of a file as far as it may be."""
    members = read(path)
    data = members["arrays.safetensors"]
    shrunk = len(zlib.compress(data, 1)) - 6
    pack(path, members, ["arrays.safetensors"] if len(data) <= 10 * shrunk else [], 1)
