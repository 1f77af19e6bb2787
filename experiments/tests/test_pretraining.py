"""The network's training and evaluation: batches, weights, steps, and records of kept tables."""

import re

import numpy as np
import pytest

from experiments.pretraining import EXPERIMENTS, evaluation
from experiments.pretraining.split import hashes, load_table, name_hash
from experiments.records import read_records
from experiments.runner import RESULTS, NotAvailable, check
from riskad.detectors.table_network import WEIGHTS, TableNetwork

torch = pytest.importorskip("torch")

from experiments.pretraining import network as module
from experiments.pretraining import train
from experiments.pretraining.batches import Batches, Real

(KEPT,) = EXPERIMENTS


# --- records and pages -------------------------------------------------------------------


def test_the_page_is_made_of_the_records(tmp_path):
    page = (RESULTS / "pretrained" / "README.md").read_text()
    (tmp_path / "README.md").write_text(page.replace("| catboost ", "| changed "))
    evaluation.report_kept(read_records(KEPT.path()), tmp_path)
    assert (tmp_path / "README.md").read_text() == page


def test_every_cell_is_recorded_once():
    rows = read_records(KEPT.path()).select("dataset", "method", "budget").rows()
    planned = {(c["dataset"], c["method"], c["budget"]) for c in KEPT.cells()}
    assert len(rows) == len(set(rows))
    assert planned <= set(rows)
    assert {method for _, method, _ in set(rows) - planned} <= {evaluation.BEFORE}


@pytest.mark.needs_data
def test_recorded_cells_come_out_again():
    """Outlier scores have changed since `pretrained-kept` was run; trees have not."""
    try:
        load_table(hashes("kept")[0])
    except NotAvailable as error:
        pytest.skip(str(error))
    trees = next(c for c in KEPT.cells() if c["method"] == "extra trees")
    assert next(iter(check(KEPT, [trees])))[1] == []


def test_the_split_has_every_table_once():
    sides = [name for side in ("train", "kept", "left_out") for name in hashes(side)]
    assert len(sides) == len(set(sides)) == 418
    assert len(hashes("kept")) == 100
    assert re.fullmatch("[0-9a-f]{12}", name_hash("any"))


# --- the network -------------------------------------------------------------------------


def random_network():
    torch.manual_seed(0)
    network = module.Network()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_((parameter + 0.1 * torch.randn_like(parameter)).half().float())
    return network


def torch_scores(network, Z, states, context):
    with torch.no_grad():
        state = torch.tensor(states)[None]
        cells = module.channels(torch.tensor(Z)[None], state, context)
        return network(cells, state, context)[0, context:]


def test_numpy_runs_the_network_as_torch_does():
    network, rng = random_network(), np.random.default_rng(0)
    Z = rng.normal(size=(50, 4)).astype(np.float32)
    Z[:, 1] = np.round(Z[:, 1])
    Z[rng.random(Z.shape) < 0.1] = np.nan
    states = np.repeat([0, 1, 2, 0], [10, 20, 5, 15])
    ours = TableNetwork({name: a.astype(np.float32) for name, a in module.arrays(network).items()})
    memory = ours.read(Z[:35], states[:35])
    expected = torch_scores(network, Z, states, 35)
    np.testing.assert_allclose(ours.score(Z[35:], memory), expected, rtol=2e-4, atol=2e-4)


def test_the_weights_have_the_shapes_of_the_script_and_training_goes_on_from_them():
    ours, network = TableNetwork.load(WEIGHTS[-1]), module.Network()
    expected = {name: a.shape for name, a in module.arrays(network).items()}
    assert {name: a.shape for name, a in ours.arrays.items()} == expected
    module.restore(network, ours.arrays)
    for name, values in module.arrays(network).items():
        np.testing.assert_array_equal(values, ours.arrays[name].astype(np.float16), err_msg=name)


def test_what_is_new_in_a_network_says_nothing_at_first():
    """`tables-3` began as a copy of weights with 3 channels of cells and no layers of rows."""
    whole = module.arrays(random_network())
    old = {name: values for name, values in whole.items() if not name.startswith("row_")}
    old["cell"] = old["cell"][[0, 1, 2, -1]]
    network = module.Network()
    module.restore(network, old)
    Z = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    states = np.repeat([1, 2, 0], [10, 5, 15])
    scores = torch_scores(network, Z, states, 20)
    with torch.no_grad():
        for layer in network.row_layers:
            for parameter in layer.parameters():
                parameter.mul_(2)
        network.row_in.weight.mul_(2)
        network.cell.weight[:, 3:].mul_(2)
    torch.testing.assert_close(torch_scores(network, Z, states, 20), scores)
    again = module.arrays(network)
    np.testing.assert_array_equal(again["cell"][[0, 1, 2, -1]], old["cell"])
    np.testing.assert_array_equal(again["cells"], old["cells"])


# --- training ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def batches():
    """Batches of synthetic tables and of two small ones that stand for real ones."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    X = {"a": rng.normal(size=(400, 6)), "b": rng.integers(0, 5, (300, 4)).astype(float)}
    tables = {name: (values, np.arange(len(values)) % 9 == 0) for name, values in X.items()}
    return Batches(Real(tables, "cpu"), "cpu")


@pytest.mark.parametrize("real", [True, False])
def test_batches_are_what_the_script_says(batches, real):
    cells, state, y = batches.make(40, 5, 100, 60, real=real)
    assert cells.shape[:2] == (40, 160)
    assert cells.shape[3] == module.CHANNELS
    assert torch.isfinite(cells).all()
    assert (state[:, 100:] == 0).all()
    assert (y[state == 2]).all()
    assert not (y[state == 1]).any()
    assert (cells[..., -1] == 1).any()  # blanks
    assert ((state[:, :100] == 2).sum(1) > 0).float().mean() > 0.8
    assert 0.02 < y[:, :100].float().mean() < 0.4
    assert ((state == 2).sum(1) <= 3).sum() > 5


def test_training_lowers_the_risk_of_a_batch_and_goes_on_from_its_files(batches, tmp_path):
    trainer = train.Trainer(module.Network(), batches, cells=5_000)
    same = batches.make(4, 2, 32, 16, real=False)
    trainer.batch = lambda: (32, same)
    trainer.steps = 300  # past the slow start
    risks = [float(trainer.step(0.0)[1]) for _ in range(6)]
    assert risks[-1] < 0.99 * risks[0]
    trainer.save(tmp_path)
    other = train.Trainer(module.Network(), batches, cells=5_000)
    other.batch = trainer.batch
    other.resume(tmp_path)
    torch.testing.assert_close(other.step(0.0)[1], trainer.step(0.0)[1])


def test_a_step_of_gradients_that_are_not_finite_is_left_out(batches):
    trainer = train.Trainer(module.Network(), batches, cells=5_000)
    cells, state, y = batches.make(4, 2, 32, 16, real=False)
    before = [one.clone() for one in trainer.network.parameters()]
    trainer.batch = lambda: (32, (cells * torch.nan, state, y))
    tables, risk, _ = trainer.step(0.0)
    assert (tables, trainer.skipped, trainer.steps) == (4, 1, 1)
    assert torch.isnan(risk)
    for one, held in zip(trainer.network.parameters(), before, strict=True):
        torch.testing.assert_close(one, held, rtol=0, atol=0)
