"""The harness: descriptions, seeds, records that survive anything, and parallel runs."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from bench_estimators import Dying, Failing, Slow
from click.testing import CliRunner
from conftest import PATIENCE, make_contaminated_rows
from sklearn.metrics import roc_auc_score

import riskad
from riskad.bench import provenance
from riskad.bench.experiment import (
    PARTS_OF,
    Experiment,
    Method,
    Tables,
    built_in,
    identity_key,
    load_experiment,
    seed_of,
)
from riskad.bench.paper import PAPER_SETS
from riskad.bench.records import FAILED, NOT_RUN, OK, open_records, read_records
from riskad.bench.runner import _interrupt_later, _pool, _submit, run_experiment
from riskad.bench.trial import find_object, make_split, run_cell
from riskad.cli.main import cli
from riskad.core.checks import InputError
from riskad.detectors.shallow import ShallowRAD

# Sets of ADBench without a known checksum, so that made-up data can stand in for them.
SETS = ("glass", "wine")
TIMES = ("fit_seconds", "score_seconds", "commit")  # which may change while tests run


@pytest.fixture(scope="module", autouse=True)
def sets(tmp_path_factory):
    """Made-up data under the names of two sets."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "adbench").mkdir()
    for number, name in ((14, "glass"), (45, "wine")):
        X, _, truth = make_contaminated_rows(300, 3, seed=number)
        np.savez(folder / "adbench" / f"{number}_{name}.npz", X=X, y=(truth == -1).astype(int))
    before = os.environ.get("RISKAD_DATA")
    os.environ["RISKAD_DATA"] = str(folder)
    yield folder
    del os.environ["RISKAD_DATA"]
    if before is not None:
        os.environ["RISKAD_DATA"] = before


def experiment(estimator=ShallowRAD, trials=3, datasets=SETS, losses=("squared", "hinge"), **more):
    path = f"{estimator.__module__}.{estimator.__name__}"
    method = Method("rad", path, {"tol": 1e-3}, {"loss": list(losses)})
    return Experiment("small", "A small one", tuple(datasets), (method,), trials, **more)


def results(path):
    """Records less their times, by cell."""
    rows = read_records(path)
    kept = {
        identity_key(row): {k: v for k, v in row.items() if k not in TIMES}
        for row in rows
        if row["status"] != NOT_RUN
    }
    assert len(kept) == sum(row["status"] != NOT_RUN for row in rows), "a cell was run twice"
    return kept


@pytest.fixture(scope="module")
def straight(tmp_path_factory, sets):
    """The records of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("straight")
    run_experiment(experiment(), folder)
    return results(folder / "small.jsonl")


# --- descriptions ------------------------------------------------------------------------


def test_seeds_depend_on_every_part_of_the_path_and_never_change():
    assert seed_of(0, "pendigits", 3, "split") == 1317296130
    places = [(0, "a", 1), (1, "a", 1), (0, "b", 1), (0, "a", 2), (0, "a", 1, "x"), (0, "a1")]
    assert len({seed_of(*place) for place in places}) == len(places)


def test_every_combination_is_a_cell_and_trials_come_first():
    method = Method("m", "riskad.ShallowRAD", {"a": 0.2}, {"loss": ["squared", "hinge"], "b": [1]})
    described = Experiment("e", "", ("x", "y"), (method,), trials=2)
    cells = list(described.cells())
    assert [(c.trial, c.dataset, c.settings["loss"]) for c in cells] == [
        (t, d, loss) for t in (0, 1) for d in ("x", "y") for loss in ("squared", "hinge")
    ]
    assert all(cell.settings | {"a": 0.2, "b": 1} == cell.settings for cell in cells)
    assert len({cell.key for cell in cells}) == len(cells)


def test_a_method_may_have_fewer_trials():
    methods = (Method("all", "riskad.ShallowRAD"), Method("few", "riskad.ShallowRAD", trials=1))
    cells = list(Experiment("e", "", ("wine", "glass"), methods, 3).cells())
    assert [cell.trial for cell in cells if cell.method == "few"] == [0, 0]
    assert sum(cell.method == "all" for cell in cells) == 6


def test_an_experiment_can_be_narrowed():
    narrow = experiment().narrowed(datasets=["wine"], trials=1)
    assert {(cell.dataset, cell.trial) for cell in narrow.cells()} == {("wine", 0)}
    assert experiment(trials=2).narrowed(trials=9).trials == 2
    with pytest.raises(InputError, match="Did you mean 'wine'"):
        experiment().narrowed(datasets=["wien"])
    with pytest.raises(InputError, match="method='rat'"):
        experiment().narrowed(methods=["rat"])


def test_the_built_in_descriptions_cover_the_papers_tables():
    known = {name: load_experiment(path) for name, path in built_in("shallow").items()}
    assert set(known) == {"main", "prior", "a", "published"}
    for described in known.values():
        assert (described.trials, described.protocol) == (30, Tables(0.3, (0.05,)))
        assert described.seed == known["main"].seed  # the same splits throughout
        assert sorted(described.datasets) == sorted(PAPER_SETS)
        for method in described.methods:
            for settings in method.combinations():
                settings = {k: v for k, v in settings.items() if v not in ("true", "published")}
                find_object(method.estimator)(**settings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title = 1 2", "not a description"),
        ("titel = 'x'", "not a description.*titel.*It may hold title"),
        ("title = 'x'\ntrials = 1\ndatasets = []", "at least one of datasets"),
        ("title = 'x'\ntrials = 0\ndatasets = ['wine']", "trials must be"),
        ("title = 'x'\ntrials = 1\ndatasets = ['wine']\ntest_share = 2", "test_share"),
        (
            "title='x'\ntrials=1\ndatasets=['wine']\n[[methods]]\nname='m'\nestimator='a.b'\n"
            "grid={loss='hinge'}",
            "loss must be a list",
        ),
        (
            "title='x'\ntrials=1\ndatasets=['wine']\n[[methods]]\nname='m'\nestimater='a.b'",
            "estimater",
        ),
    ],
)
def test_bad_descriptions_are_refused(tmp_path, text, message):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=f"(?s){message}"):
        load_experiment(path)


def test_an_unknown_estimator_is_refused_before_any_work(tmp_path):
    method = Method("m", "riskad.ShalowRAD")
    with pytest.raises(InputError, match="ShalowRAD"):
        run_experiment(Experiment("e", "", SETS, (method,), 1), tmp_path)


# --- one cell ----------------------------------------------------------------------------


def test_a_split_hides_labels_and_shares_no_row_with_the_test():
    split = make_split("wine", 0, 0, 0.3, 0.05)
    assert split.X_test.shape == (90, 3)
    assert split.X_train.shape == (210, 3)
    assert (split.y_train != 0).sum() == round(0.05 * 210)
    assert {-1, 0, 1} == set(split.y_train)
    rows = {row.tobytes() for row in split.X_train} | {row.tobytes() for row in split.X_test}
    assert len(rows) == 300
    again = make_split.__wrapped__("wine", 0, 0, 0.3, 0.05)
    np.testing.assert_array_equal(split.y_train, again.y_train)
    other = make_split("wine", 1, 0, 0.3, 0.05)
    assert not np.array_equal(split.X_test, other.X_test)


def test_a_record_holds_what_the_fit_gives(straight):
    cell = next(experiment().cells())
    split = make_split(cell.dataset, cell.trial, cell.root, cell.test_share, cell.labelled)
    model = ShallowRAD("squared", tol=1e-3).fit(split.X_train, split.y_train)
    expected = roc_auc_score(split.truth_test == 1, model.score_samples(split.X_test))
    record = straight[cell.key]
    assert record["auc"] == pytest.approx(expected, abs=1e-6)
    assert record["lambda"] == pytest.approx(model.lambda_, rel=1e-5)
    assert record["settings"] == {"tol": 1e-3, "loss": "squared"}
    assert record["n_anomaly"] == (split.y_train == -1).sum()
    assert "scikit-learn" in record["versions"]


def test_a_cell_run_alone_gives_the_same_record(straight):
    for cell in list(experiment().cells())[::5]:
        alone = {k: v for k, v in run_cell(cell).items() if k not in TIMES}
        assert json.loads(json.dumps(alone)) == straight[cell.key]


def test_words_for_settings_are_resolved_with_the_split():
    settings = {"prior": "true", "lam": "published", "loss": "squared"}
    method = Method("rad", "riskad.ShallowRAD", settings)
    cell = next(Experiment("e", "", ("wine",), (method,), 1).cells())
    record = run_cell(cell)
    assert record["status"] == OK
    assert record["lambda"] == pytest.approx(0.005 * 210)
    assert record["settings"] == settings


def test_warnings_of_a_fit_are_kept(monkeypatch):
    def fit(self, X, y=None, sample_weight=None):
        return ShallowRAD.fit(self, X * [0, 1, 1], y)

    monkeypatch.setattr(Slow, "fit", fit)
    record = run_cell(next(experiment(Slow).cells()))
    assert "single value" in record["warnings"][0]


# --- records -----------------------------------------------------------------------------


def test_a_torn_line_is_cut_off_and_nothing_else(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(b'{"status":"ok","x":1}\n{"status":"ok","x":2}\n{"status":"o')
    assert [row["x"] for row in read_records(path)] == [1, 2]
    with open_records(path) as records:
        assert [row["x"] for row in records.rows] == [1, 2]
        records.append({"status": "ok", "x": 3})
    assert [row["x"] for row in read_records(path)] == [1, 2, 3]


@pytest.mark.parametrize("line", ["nonsense", "[]", "{}"])
def test_a_line_that_is_no_record_is_named(tmp_path, line):
    path = tmp_path / "r.jsonl"
    path.write_text(f'{{"status":"ok"}}\n{line}\n')
    with pytest.raises(InputError, match=r"line 2 of .*r\.jsonl is not a record"):
        read_records(path)


@pytest.mark.skipif(os.name != "posix", reason="files are locked on POSIX systems only")
def test_two_runs_cannot_write_to_one_file(tmp_path):
    path = tmp_path / "r.jsonl"
    with (
        open_records(path),
        pytest.raises(InputError, match="another run is writing"),
        open_records(path),
    ):
        pass


# --- runs --------------------------------------------------------------------------------


def test_processes_give_the_same_records(tmp_path, straight):
    run_experiment(experiment(), tmp_path, jobs=2)
    assert results(tmp_path / "small.jsonl") == straight


@pytest.mark.parametrize("cut", [1, 7, 40, 700])
def test_an_interrupted_file_is_completed_to_the_same_records(tmp_path, straight, cut):
    path = tmp_path / "small.jsonl"
    run_experiment(experiment().narrowed(trials=2), tmp_path)
    path.write_bytes(path.read_bytes()[:-cut])
    outcome = run_experiment(experiment(), tmp_path)
    assert outcome.before + outcome.done == 12
    assert outcome.before == {1: 7, 7: 7, 40: 7, 700: 6}[cut]
    assert results(path) == straight


def test_a_finished_run_repeats_nothing(tmp_path):
    first = run_experiment(experiment(), tmp_path)
    data = (tmp_path / "small.jsonl").read_bytes()
    seen = []
    second = run_experiment(experiment(), tmp_path, progress=lambda *state: seen.append(state))
    assert (first.before, first.done, second.before, second.done) == (0, 12, 12, 0)
    assert (tmp_path / "small.jsonl").read_bytes() == data
    assert seen == [(12, 12)]


def test_processes_import_nothing_from_the_working_folder(planted):
    with _pool(1) as pool, pytest.raises(AttributeError):
        _submit(pool, None).result(PATIENCE)  # the process has started: no cell is an error there
    assert planted() == ""


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_killed_run_loses_only_what_was_in_flight(tmp_path):
    """Killed twice at arbitrary moments, with its workers; the third run completes the records."""
    method = {"name": "rad", "estimator": "bench_estimators.Slow", "settings": {"tol": 1e-3}}
    text = f"title = 'x'\ntrials = 6\ndatasets = {list(SETS)}\n[[methods]]\n"
    text += "".join(f"{key} = {value!r}\n" for key, value in method.items() if key != "settings")
    text += "settings = { tol = 1e-3 }\ngrid = { loss = ['squared', 'hinge'] }\n"
    description = tmp_path / "small.toml"
    description.write_text(text)
    program = (
        "import sys; from pathlib import Path; from riskad.bench.experiment import *;"
        "from riskad.bench.runner import run_experiment\n"
        "if __name__ == '__main__':\n"
        "    run_experiment(load_experiment(Path(sys.argv[1])), Path(sys.argv[2]), jobs=2)"
    )
    script = tmp_path / "go.py"
    script.write_text(program)
    command = [sys.executable, str(script), str(description), str(tmp_path)]
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": paths}
    path = tmp_path / "small.jsonl"
    written = 0
    for wanted in (3, 9):
        process = subprocess.Popen(command, env=environment)
        wait_for(lambda wanted=wanted: path.exists() and path.read_bytes().count(b"\n") >= wanted)
        workers = children(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
        wait_for(lambda workers=workers: not any(map(alive, workers)))  # no orphan goes on
        kept = path.read_bytes().count(b"\n")
        assert kept >= max(wanted, written)
        written = kept
    run_experiment(load_experiment(description), tmp_path)
    found = results(path)
    assert len(found) == 24
    expected = tmp_path / "expected"
    run_experiment(load_experiment(description), expected)
    assert found == results(expected / "small.jsonl")


def wait_for(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def children(pid):
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True)
    return [int(word) for word in listed.stdout.split()]


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_failure_is_a_row_with_its_reason(tmp_path, straight):
    outcome = run_experiment(experiment(Failing), tmp_path)
    assert outcome.failed == 6
    rows = results(tmp_path / "small.jsonl").values()
    reasons = [row["reason"] for row in rows if row["status"] == FAILED]
    assert reasons == ["RuntimeError: no hinge today"] * 6
    assert all("auc" not in row for row in rows if row["status"] == FAILED)
    assert run_experiment(experiment(Failing), tmp_path).done == 0
    assert run_experiment(experiment(Failing), tmp_path, retry_failed=True).done == 6


def test_a_process_that_dies_is_a_failed_row_and_the_others_go_on(tmp_path):
    outcome = run_experiment(experiment(Dying, trials=1), tmp_path, jobs=2)
    rows = results(tmp_path / "small.jsonl").values()
    states = {(row["dataset"], row["settings"]["loss"]): row["status"] for row in rows}
    assert outcome.failed == 2
    assert states == {
        (s, loss): FAILED if loss == "hinge" else OK for s in SETS for loss in ("squared", "hinge")
    }
    assert all("died" in row["reason"] for row in rows if row["status"] == FAILED)


def test_a_missing_set_is_noted_once_and_the_others_are_run(tmp_path):
    described = experiment(datasets=(*SETS, "letter"), trials=1)
    assert run_experiment(described, tmp_path).missing == ("letter",)
    assert run_experiment(described, tmp_path).missing == ("letter",)
    rows = read_records(tmp_path / "small.jsonl")
    (noted,) = (row for row in rows if row["status"] == NOT_RUN)
    assert noted["dataset"] == "letter"
    assert noted["reason"] == "20_letter.npz is not in the folder that RISKAD_DATA names"
    assert sum(row["status"] == OK for row in rows) == 4


def test_nothing_at_hand_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"none of the datasets.*20_letter"):
        run_experiment(experiment(datasets=("letter",)), tmp_path)


# --- the command line --------------------------------------------------------------------


def test_the_command_line_runs_an_experiment_and_writes_its_tables(tmp_path):
    description = tmp_path / "mine.toml"
    description.write_text(
        "title = 'Mine'\ntrials = 2\ndatasets = ['glass', 'wine', 'letter']\n[[methods]]\n"
        "name = 'rad'\nestimator = 'riskad.ShallowRAD'\ngrid = { loss = ['squared'] }\n"
    )
    command = ["bench", "run", str(description), "--out", str(tmp_path / "out"), "--jobs", "1"]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 0, result.output
    assert "4 cells run" in result.output
    assert "not to be had: letter" in result.output
    assert "4 were there" in CliRunner().invoke(cli, command).output
    assert list((tmp_path / "out" / "tables").glob("mine.*"))


def test_the_command_line_runs_all_parts_the_main_one_first():
    assert next(iter(built_in("shallow"))) == "main"
    folder = built_in("shallow")["main"].parent
    assert set(PARTS_OF["shallow"]) == {path.stem for path in folder.glob("*.toml")}


@pytest.mark.skipif(os.name != "posix", reason="needs process groups")
@pytest.mark.parametrize("done", [0, 2], ids=["workers-importing", "cells-done"])
def test_an_interrupted_run_ends_in_a_sentence_and_goes_on_later(tmp_path, done):
    described = experiment(Slow)
    text = f"title = 'x'\ntrials = 2000\ndatasets = {list(SETS)}\n[[methods]]\nname = 'rad'\n"
    text += f"estimator = {described.methods[0].estimator!r}\n"
    (tmp_path / "small.toml").write_text(text)
    out = tmp_path / "out"
    command = [
        sys.executable,
        "-m",
        "riskad",
        "bench",
        "run",
        str(tmp_path / "small.toml"),
    ]
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [*command, "--out", str(out), "--jobs", "2"],
        env=os.environ | {"PYTHONPATH": paths},
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    path = out / "records" / "small.jsonl"
    if done:
        wait_for(lambda: path.exists() and path.read_bytes().count(b"\n") >= done)
    else:
        assert b"0 of 4,000 cells" in process.stderr.readline()
        wait_for(lambda: len(children(process.pid)) > 1)  # a tracker, and a worker that imports
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does in a terminal
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert b"Interrupted" in said
    assert b"Traceback" not in said
    assert done <= len(results(path)) < 4000


@pytest.mark.skipif(os.name != "posix", reason="needs signals of threads")
def test_ctrl_c_waits_until_a_worker_is_started():
    """Threads of libraries let the signal through, whatever the main thread blocks."""
    begin, sent = threading.Event(), threading.Event()

    def interrupt():
        begin.wait(PATIENCE)
        signal.raise_signal(signal.SIGINT)  # in this thread, which does not block it
        sent.set()

    reached = []

    def start():
        with _interrupt_later():
            begin.set()
            sent.wait(PATIENCE)
            reached.append(True)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        start()
    thread.join()
    assert reached


def test_the_command_line_guesses_misspelt_parts(tmp_path):
    result = CliRunner().invoke(cli, ["bench", "shallow", "mian", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "Did you mean 'main'?" in result.output


def test_a_report_without_records_says_what_to_run(tmp_path):
    result = CliRunner().invoke(cli, ["bench", "report", str(tmp_path)])
    assert result.exit_code == 1
    assert "run an experiment into this folder" in result.output


# --- where records come from -------------------------------------------------------------------


def test_records_carry_the_commit():
    root = Path(riskad.__file__).parents[2]
    if not (root / ".git").exists():
        pytest.skip("riskad is not run from a working tree")
    head = subprocess.run(
        ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    )
    name = provenance.commit.__wrapped__().removesuffix("-dirty")
    short = name.rpartition("-g")[2]  # after a tag git writes v1-3-gabcdef
    assert head.stdout.startswith(short)
    record = run_cell(next(experiment().cells()))
    assert record["commit"] == provenance.commit()


def test_outside_a_working_tree_the_version_stands_for_the_commit(monkeypatch, tmp_path):
    monkeypatch.setattr(riskad, "__file__", str(tmp_path / "lib" / "riskad" / "__init__.py"))
    monkeypatch.setattr(provenance, "built_from", lambda: None)
    assert provenance.commit.__wrapped__() == riskad.__version__


def test_where_git_is_missing_the_version_stands_for_the_commit(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(provenance, "built_from", lambda: None)
    assert provenance.commit.__wrapped__() == riskad.__version__
