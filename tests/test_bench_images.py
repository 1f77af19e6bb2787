"""Image experiments: descriptions, metrics, and cells that are trained together."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from bench_estimators import Team
from click.testing import CliRunner
from conftest import PATIENCE
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

pytest.importorskip("torch")

from riskad.bench import image_trial
from riskad.bench.curves import FALSE_POSITIVE_RATES, rank_metrics
from riskad.bench.experiment import (
    PARTS_OF,
    Experiment,
    Images,
    Method,
    built_in,
    identity_key,
    load_experiment,
)
from riskad.bench.image_trial import Device, find_device, image_split, run_images, run_together
from riskad.bench.records import FAILED, NOT_RUN, OK, read_records
from riskad.bench.runner import run_experiment
from riskad.bench.trial import find_object
from riskad.cli import bench as cli_bench
from riskad.cli.main import cli
from riskad.core.checks import InputError
from riskad.datasets import images as image_files
from riskad.datasets import read_source
from riskad.deep.deep_sad import DeepSAD
from riskad.deep.risk_detectors import NNPU, DeepRAD

CPU = Device("cpu", "cpu")
VARY = ("commit", "fit_seconds", "score_seconds", "together")
N_CLASS = 60  # training images of each class

METHODS = (
    Method("rad", "riskad.DeepRAD", {"a": 0.1}, {"loss": ["squared", "logistic"]}),
    Method("sad", "riskad.DeepSAD"),
    Method("nnpu", "riskad.NNPU", {"prior": "true"}),
)


def make_images(n, seed):
    """Images (n, 28, 28) that are brighter in another line for each class, and their classes."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % 10).astype(np.uint8)
    X = rng.integers(0, 210, (n, 28, 28))
    X[np.arange(n), 2 * y] += 40
    return X.astype(np.uint8), y


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Small sets in the real formats: MNIST and F-MNIST, but no CIFAR-10."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "images").mkdir()
    for seed, name in enumerate(("mnist", "fmnist")):
        X, y = make_images(10 * N_CLASS, seed)
        X_test, y_test = make_images(100, seed + 7)
        path = folder / "images" / f"{name}.npz"
        np.savez(path, x_train=X, y_train=y, x_test=X_test, y_test=y_test)
    return folder


@pytest.fixture(autouse=True)
def sets(folder, monkeypatch):
    """The small sets, and a team that needs no training."""
    monkeypatch.setenv("RISKAD_DATA", str(folder))
    monkeypatch.setattr(image_files, "_SHA256", dict.fromkeys(image_files._SHA256))
    monkeypatch.setattr(image_trial, "team_class", lambda: Team)
    for cached in (image_trial.image_set, image_trial.image_split):
        cached.cache_clear()
    Team.sizes.clear()
    yield folder
    for cached in (image_trial.image_set, image_trial.image_split):
        cached.cache_clear()


def experiment(methods=METHODS, trials=3, datasets=("MNIST", "F-MNIST"), **more):
    protocol = Images((0.1, 0.2), (0.1, 0.2))
    return Experiment(
        "small", "", tuple(datasets), tuple(methods), trials, protocol=protocol, **more
    )


def results(path):
    """Records less what depends on the company, by cell."""
    rows = [row for row in read_records(path) if row["status"] != NOT_RUN]
    kept = {identity_key(r): {k: v for k, v in r.items() if k not in VARY} for r in rows}
    assert len(kept) == len(rows), "a cell was run twice"
    return kept


def steady(record):
    return {key: value for key, value in record.items() if key not in VARY}


# --- descriptions ------------------------------------------------------------------------


def test_every_condition_is_a_cell():
    cells = list(experiment(by_dataset={"MNIST": {"module": "lenet-mnist", "a": 0.5}}).cells())
    assert len(cells) == 3 * 2 * 4 * (2 + 1 + 1)
    assert len({cell.key for cell in cells}) == len(cells)
    assert {(cell.anomaly_rate, cell.labelled) for cell in cells} == {
        (pi_n, gamma_l) for pi_n in (0.1, 0.2) for gamma_l in (0.1, 0.2)
    }
    first = cells[0]
    assert "test_share" not in first.identity
    assert first.settings == {"module": "lenet-mnist", "a": 0.1, "loss": "squared"}
    other = next(cell for cell in cells if cell.dataset == "F-MNIST")
    assert other.settings == {"a": 0.1, "loss": "squared"}


def test_cells_of_tables_say_nothing_of_images():
    method = Method("rad", "riskad.ShallowRAD")
    cell = next(Experiment("e", "", ("wine",), (method,), 1).cells())
    assert "anomaly_rate" not in cell.identity
    assert cell.key == identity_key(cell.identity)


def test_the_built_in_descriptions_cover_the_papers_experiments():
    known = {name: load_experiment(path) for name, path in built_in("deep").items()}
    assert sorted(known) == sorted(PARTS_OF["deep"])
    sizes = {name: sum(1 for _ in described.cells()) for name, described in known.items()}
    # Datasets x trials x rates x (shares x methods and losses, or values x losses).
    assert sizes == {
        "images": 3 * 20 * 4 * 3 * 6,
        "images-prior": 3 * 20 * 4 * 5 * 4,
        "images-a": 3 * 20 * 4 * 3 * 4,
    }
    for described in known.values():
        assert described.seed == 0
        assert described.protocol.anomaly_rates == (0.01, 0.05, 0.1, 0.2)
        for cell in described.narrowed(trials=1).cells():
            words = {key: v for key, v in cell.settings.items() if v not in ("true", "flipped")}
            assert find_object(cell.estimator)(**words).module.startswith("lenet-")


HEAD = "title = 'x'\ntrials = 1\ndatasets = ['MNIST']\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("anomaly_rates = []", "anomaly_rates must be a list"),
        ("anomaly_rates = [0.1, 2]", "each of anomaly_rates must be a number strictly between"),
        ("anomaly_rates = [0.1]\nlabelled = ['x']", "each of labelled"),
        ("anomaly_rates = [0.1]\ntest_share = 0.3", "(?s)test_share.*or anomaly_rates"),
        ("labelled = [0.1, 2]", "labelled must be a number"),
        (
            "anomaly_rates = [0.1]\nby_dataset = { MNITS = {} }\n"
            "[[methods]]\nname = 'm'\nestimator = 'a.b'",
            "by_dataset='MNITS' is not known",
        ),
    ],
)
def test_bad_descriptions_are_refused(tmp_path, text, message):
    (tmp_path / "mine.toml").write_text(HEAD + text)
    with pytest.raises(InputError, match=message):
        load_experiment(tmp_path / "mine.toml")


def test_a_single_number_is_a_list_of_one(tmp_path):
    method = "[[methods]]\nname = 'rad'\nestimator = 'riskad.DeepRAD'"
    (tmp_path / "mine.toml").write_text(f"{HEAD}anomaly_rates = 0.1\nlabelled = 0.2\n{method}")
    assert load_experiment(tmp_path / "mine.toml").protocol == Images((0.1,), (0.2,))


# --- metrics -----------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(
    n_p=st.integers(1, 60),
    n_n=st.integers(1, 60),
    levels=st.sampled_from([1, 2, 5, 1000]),
    seed=st.integers(0, 2**32),
)
def test_metrics_are_those_of_scikit_learn(n_p, n_n, levels, seed):
    """Also with many ties, of which few levels make sure."""
    rng = np.random.default_rng(seed)
    truth = rng.permutation(np.repeat([1, -1], [n_p, n_n]))
    scores = rng.integers(0, levels, n_p + n_n) + 0.5 * levels * truth * rng.integers(0, 2)
    found = rank_metrics(truth, scores)
    anomalous = truth == -1
    assert found["auc"] == pytest.approx(roc_auc_score(anomalous, -scores), abs=1e-6)
    precision = average_precision_score(anomalous, -scores)
    assert found["average_precision"] == pytest.approx(precision, abs=1e-6)
    false, true, _ = roc_curve(anomalous, -scores, drop_intermediate=False)
    expected = [rate_at(x, false, true) for x in FALSE_POSITIVE_RATES]
    assert found["roc"] == pytest.approx(expected, abs=1e-4)


def rate_at(x, false, true):
    """The highest point of the curve at x."""
    heights = [t for f, t in zip(false, true, strict=True) if f == x]
    for i in range(len(false) - 1):
        if false[i] < x < false[i + 1]:
            share = (x - false[i]) / (false[i + 1] - false[i])
            heights.append(true[i] + share * (true[i + 1] - true[i]))
    return max(heights)


def test_scores_that_are_not_finite_are_refused():
    with pytest.raises(InputError, match="not finite"):
        rank_metrics(np.array([1, -1]), np.array([0.0, np.nan]))


# --- one group ---------------------------------------------------------------------------


def test_a_record_says_what_was_done():
    cell = list(experiment().cells())[-1]  # nnPU in trial 2
    (record,) = run_together([cell], CPU)
    split = image_split(read_source("F-MNIST", images=True), 2, 0, 0.2, 0.2)
    assert record["status"] == OK
    assert record["normal_class"] == 2
    assert (record["n_train"], record["n_test"]) == (N_CLASS, 100)
    assert (record["n_normal"], record["n_anomaly"]) == ((split.y_pu == 1).sum(), 0)
    assert (record["n_steps"], record["best_step"], record["together"]) == (30, 20, 1)
    assert 0.5 < record["auc"] < 1
    assert len(record["roc"]) == 26
    assert record["roc"] == sorted(record["roc"])
    assert record["roc"][-1] == 1
    assert record["device"] == "cpu"
    assert "torch" in record["versions"]
    assert record["settings"] == {"prior": "true"}


def test_nnpu_is_told_of_normals_only_and_the_others_of_both_kinds(monkeypatch):
    told = {}
    fit = Team.fit

    def listen(self, X, rows, labels):
        told[type(self.detectors[0])] = labels[0]
        assert X is image_trial.image_set(read_source("MNIST", images=True)).X_train
        return fit(self, X, rows, labels)

    monkeypatch.setattr(Team, "fit", listen)
    cells = list(experiment(datasets=("MNIST",), trials=1).cells())
    list(run_images(cells, CPU, together=1))
    split = image_split(read_source("MNIST", images=True), 0, 0, 0.2, 0.2)
    assert set(told) == {DeepRAD, DeepSAD, NNPU}
    np.testing.assert_array_equal(told[NNPU], split.y_pu)
    for kind in (DeepRAD, DeepSAD):
        np.testing.assert_array_equal(told[kind], split.y_rad)


def test_priors_in_words_are_resolved(monkeypatch):
    method = Method("rad", "riskad.DeepRAD", {}, {"prior": ["true", "flipped", 0.7]})
    cells = list(experiment([method], trials=1, datasets=("MNIST",)).cells())
    built = [image_trial._detector(cell, CPU) for cell in cells]
    assert [detector.prior for detector in built[:3]] == [0.9, 0.1, 0.7]
    assert [detector.prior for detector in built[-3:]] == [0.8, 0.2, 0.7]
    assert len({detector.random_state for detector in built}) == 1
    assert {detector.device for detector in built} == {"cpu"}


def test_splits_depend_on_dataset_trial_and_condition_only():
    kinds = {}
    for cell in experiment(trials=2).cells():
        place = (cell.dataset, cell.trial, cell.anomaly_rate, cell.labelled)
        split = image_split(cell.source, cell.trial, 0, cell.anomaly_rate, cell.labelled)
        kinds.setdefault(place, set()).add(split.rows.tobytes() + split.y_rad.tobytes())
    assert all(len(found) == 1 for found in kinds.values())
    assert len(set.union(*kinds.values())) == len(kinds) == 2 * 2 * 4


def test_a_cell_alone_gives_the_record_it_has_in_company():
    cells = [cell for cell in experiment().cells() if cell.method == "rad"]
    cells = [cell for cell in cells if cell.dataset == "MNIST"]
    for cell, record in zip(cells, run_together(cells, CPU), strict=True):
        assert record["together"] == len(cells)
        assert steady(run_together([cell], CPU)[0]) == steady(record)


def test_a_split_that_fails_is_one_row(monkeypatch):
    cells = list(experiment(METHODS[:1], datasets=("MNIST",)).cells())
    original = image_trial.image_split

    def refuse(dataset, trial, *condition):
        if trial == 1:
            raise InputError("no such split")
        return original(dataset, trial, *condition)

    with monkeypatch.context() as patch:
        patch.setattr(image_trial, "image_split", refuse)
        records = run_together(cells, CPU)
    assert [record["status"] for record in records] == [
        FAILED if cell.trial == 1 else OK for cell in cells
    ]
    failed = next(record for record in records if record["status"] == FAILED)
    assert failed["reason"] == "InputError: no such split"
    assert failed["normal_class"] == 1
    assert "n_train" not in failed


def test_only_the_culprit_of_a_joint_training_fails():
    method = Method("rad", "riskad.DeepRAD", {}, {"loss": ["squared", "logistic", "hinge"]})
    cells = list(experiment([method], trials=1, datasets=("MNIST",)).cells())
    records = run_together(cells, CPU)
    reasons = [record.get("reason") for record in records]
    assert reasons == [None, None, "RuntimeError: no hinge today"] * 4
    assert [record["settings"]["loss"] for record in records] == [
        "squared",
        "logistic",
        "hinge",
    ] * 4


def test_scores_of_one_network_that_broke_are_one_row(monkeypatch):
    score = Team.score_samples

    def broken(self, X):
        scores = score(self, X)
        scores[1, 5] = np.inf
        return scores

    monkeypatch.setattr(Team, "score_samples", broken)
    cells = list(experiment(METHODS[:1], trials=1, datasets=("MNIST",)).cells())
    states = [record["status"] for record in run_together(cells, CPU)]
    assert states == [OK, FAILED, *[OK] * 6]


def test_warnings_of_a_training_are_kept(monkeypatch):
    def fit(self, X, rows, labels):
        import warnings

        warnings.warn("steep", UserWarning, stacklevel=2)
        return original(self, X, rows, labels)

    original = Team.fit
    monkeypatch.setattr(Team, "fit", fit)
    (record,) = run_together([next(experiment().cells())], CPU)
    assert record["warnings"] == ["steep"]


def test_a_setting_that_no_detector_has_is_a_row(tmp_path):
    method = Method("rad", "riskad.DeepRAD", {"los": "squared"})
    outcome = run_experiment(experiment([method, *METHODS[1:]], trials=1), tmp_path)
    assert outcome.failed == 2 * 4
    rows = read_records(tmp_path / "small.jsonl")
    assert all("los" in row["reason"] for row in rows if row["status"] == FAILED)


# --- runs --------------------------------------------------------------------------------


def test_groups_are_as_large_as_possible_and_dataset_by_dataset(tmp_path):
    run_experiment(experiment(), tmp_path, together=10, device="cpu")
    rows = read_records(tmp_path / "small.jsonl")
    # 24 cells of rAD and 12 each of Deep SAD and nnPU, in nearly equal parts.
    assert Team.sizes == [8, 8, 8, 6, 6, 6, 6] * 2
    assert [row["dataset"] for row in rows] == ["MNIST"] * 48 + ["F-MNIST"] * 48


def test_a_gpu_trains_more_together_than_a_core():
    assert Device("cuda", "NVIDIA H200").together == 400
    assert CPU.together == 4


def test_devices_are_found_or_refused(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert find_device() == find_device("cpu") == CPU
    with pytest.raises(InputError, match="torch finds none"):
        find_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    assert find_device() == Device("cuda", "NVIDIA H200")
    assert find_device("cpu") == CPU
    with pytest.raises(InputError, match="choose from auto, cpu, cuda"):
        find_device("gpu")


@pytest.mark.parametrize("cut", [1, 50, 3000, 30000])
def test_an_interrupted_file_is_completed_to_the_same_records(tmp_path, cut):
    run_experiment(experiment(), tmp_path / "straight")
    straight = tmp_path / "straight" / "small.jsonl"
    path = tmp_path / "small.jsonl"
    path.write_bytes(straight.read_bytes()[:-cut])
    outcome = run_experiment(experiment(), tmp_path, together=7)
    assert 0 < outcome.done < 96
    assert outcome.before + outcome.done == 96
    assert results(path) == results(straight)


def test_an_interrupt_loses_only_the_chunk_in_flight(tmp_path, monkeypatch):
    fit = Team.fit

    def interrupted(self, X, rows, labels):
        if len(Team.sizes) == 3:
            raise KeyboardInterrupt
        return fit(self, X, rows, labels)

    monkeypatch.setattr(Team, "fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(experiment(), tmp_path, together=8)
    assert len(results(tmp_path / "small.jsonl")) == sum(Team.sizes) == 24
    monkeypatch.setattr(Team, "fit", fit)
    outcome = run_experiment(experiment(), tmp_path, together=8)
    assert (outcome.before, outcome.done) == (24, 72)
    run_experiment(experiment(), tmp_path / "straight")
    assert results(tmp_path / "small.jsonl") == results(tmp_path / "straight" / "small.jsonl")


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_killed_run_goes_on_to_the_same_records(tmp_path, sets):
    methods = "[[methods]]\nname = 'rad'\nestimator = 'riskad.DeepRAD'\n"
    methods += "grid = { loss = ['squared', 'logistic'] }\n"
    text = "title = 'x'\ntrials = 5\ndatasets = ['MNIST', 'F-MNIST']\nanomaly_rates = [0.1, 0.2]\n"
    (tmp_path / "small.toml").write_text(f"{text}labelled = 0.2\n{methods}")
    script = tmp_path / "go.py"
    script.write_text(
        "import sys; from pathlib import Path; from bench_estimators import Team\n"
        "from riskad.bench import image_trial; from riskad.datasets import images as files\n"
        "from riskad.bench.experiment import load_experiment\n"
        "from riskad.bench.runner import run_experiment\n"
        "image_trial.team_class = lambda: Team\n"
        "Team.seconds = property(lambda team: 3600 * (len(Team.sizes) > 1))\n"
        "files._SHA256 = dict.fromkeys(files._SHA256)\n"
        "run_experiment(load_experiment(Path(sys.argv[1])), Path(sys.argv[2]), together=4)\n"
    )
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(script), str(tmp_path / "small.toml"), str(tmp_path)]
    process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": paths})
    path = tmp_path / "small.jsonl"
    end = time.monotonic() + PATIENCE
    while not path.exists() or path.read_bytes().count(b"\n") < 8:
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    described = load_experiment(tmp_path / "small.toml")
    outcome = run_experiment(described, tmp_path)
    assert 8 <= outcome.before < 40
    assert outcome.before + outcome.done == 40
    run_experiment(described, tmp_path / "straight")
    assert results(path) == results(tmp_path / "straight" / "small.jsonl")


def test_a_finished_run_repeats_nothing_and_failures_are_retried(tmp_path):
    method = Method("rad", "riskad.DeepRAD", {}, {"loss": ["squared", "hinge"]})
    described = experiment([method], trials=1)
    seen = []
    first = run_experiment(described, tmp_path, progress=lambda *state: seen.append(state))
    assert (first.done, first.failed) == (16, 8)
    assert seen == [(i, 16) for i in range(17)]
    assert run_experiment(described, tmp_path).done == 0
    assert run_experiment(described, tmp_path, retry_failed=True).done == 8


def test_a_missing_set_is_noted_once_and_the_others_are_run(tmp_path):
    described = experiment(METHODS[1:2], trials=1, datasets=("CIFAR-10", "MNIST"))
    for _ in range(2):
        assert run_experiment(described, tmp_path).missing == ("CIFAR-10",)
    rows = read_records(tmp_path / "small.jsonl")
    (noted,) = (row for row in rows if row["status"] == NOT_RUN)
    assert "cifar-10-binary.tar.gz is not in the folder" in noted["reason"]
    assert sum(row["status"] == OK for row in rows) == 4


def test_a_misspelt_set_is_an_error(tmp_path):
    with pytest.raises(InputError, match="name='MNITS' is not known"):
        run_experiment(experiment(datasets=("MNITS",)), tmp_path)


# --- the command line --------------------------------------------------------------------


@pytest.fixture
def no_report(monkeypatch):
    monkeypatch.setattr(cli_bench, "_write_report", lambda folder: None)


def test_the_command_line_runs_the_papers_experiments(tmp_path, no_report):
    command = ["bench", "deep", "images-a", "--out", str(tmp_path), "--dataset", "MNIST"]
    command += ["--trials", "1", "--together", "5", "--device", "cpu"]
    # With 60 images of a class an anomaly rate of 0.01 leaves one anomaly, which is labelled.
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 0, result.output
    assert "48 cells run" in result.output
    assert "failed" not in result.output
    assert max(Team.sizes) == 5
    assert sum(Team.sizes) == 48
    assert "48 were there" in CliRunner().invoke(cli, command).output


def test_the_command_line_runs_a_description_of_images(tmp_path, no_report):
    text = f"{HEAD}anomaly_rates = [0.2]\nlabelled = 0.2\n[[methods]]\nname = 'sad'\n"
    (tmp_path / "mine.toml").write_text(f"{text}estimator = 'riskad.DeepSAD'\n")
    command = ["bench", "run", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 0, result.output
    assert "1 cells run" in result.output


def test_without_torch_a_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "riskad.deep.risk_detectors")
    monkeypatch.setitem(sys.modules, "torch", None)
    result = CliRunner().invoke(cli, ["bench", "deep", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "pip install 'riskad[deep]'." in result.output
    assert result.output.count("\n") == 1
    assert ".." not in result.output


def test_the_command_line_guesses_misspelt_parts(tmp_path):
    result = CliRunner().invoke(cli, ["bench", "deep", "imags", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "Did you mean 'images'?" in result.output
