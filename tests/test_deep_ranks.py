"""Two processes on gloo end with what one process with the same batches ends with."""

import os
from datetime import timedelta
from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist
import torch.multiprocessing as mp
from conftest import PATIENCE, make_contaminated_rows
from torch import nn

from riskad.core.checks import InputError
from riskad.core.risks import get_risk
from riskad.deep import Together
from riskad.deep.batches import Draws, NetworkRows, hold_out, pools_of
from riskad.deep.criteria import RiskCriterion
from riskad.deep.deep_sad import DeepSAD
from riskad.deep.nets import ARCHITECTURES, StackedNet, find_architecture
from riskad.deep.ranks import ALONE, Ranks, world
from riskad.deep.risk_detectors import NNPU, DeepRAD
from riskad.deep.trainer import Settings, Validation, evaluate, train

torch.set_num_threads(1)
QUICK = {"n_steps": 12, "check_every": 4, "hidden": (16, 8)}

if not dist.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)


def images(n=90, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.choice([1, -1, 0], n)
    return (rng.standard_normal((n, 8, 8)) + y[:, None, None]).astype("float32"), y


def own_module():
    """Other weights in every process, as nobody set a seed."""
    torch.manual_seed(os.getpid())
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 1))


# --- cases that are run alone and by two ranks --------------------------------------------------


def descend(kind, name, guard, loss="logistic", share=0.0):
    """Weights and scores in double precision, of two networks that are trained together."""
    architecture, shape = {
        "mlp": (find_architecture("mlp", (16, 8)), (4,)),
        "lenet": (ARCHITECTURES["lenet-mnist"], (1, 8, 8)),
    }[kind]
    rng = np.random.default_rng(0)
    codes = torch.tensor(rng.choice([1, -1, 0], 150))
    # Unlabelled rows without anomalies, far from those that are labelled: what is guarded gets
    # negative.
    data = NetworkRows(torch.tensor(rng.standard_normal((150, *shape))))
    data.data[codes == -1] += 2
    risks = [get_risk(name, loss, a=a, prior=0.5) for a in (0.9, 0.2)]
    left, held = hold_out(pools_of(codes), share, 0)
    stack = StackedNet(architecture, shape, [0, 1], centred=[risks[0].loss.bounded] * 2).double()
    # 7 rows of P, 5 of N and 9 of U: no kind can be halved, and neither can the batch.
    draws = Draws([left] * 2, {1: 7, -1: 5, 0: 9}, [0, 1])
    criterion = RiskCriterion(risks, draws.kinds, guard).double()
    validation = Validation([held] * 2, risks, data.device) if share else None
    if validation is not None:
        validation.criterion.double()
    settings = Settings(n_steps=12, learning_rate=1e-2, check_every=3, patience=2)
    history = train(stack, criterion, data, draws, settings, validation)
    found = {key: value.numpy() for key, value in stack.state_dict().items()}
    return found | {"scores": evaluate(stack, data).numpy(), "curve": history.risk}


def fitted(make, rows):
    """What a detector has learned, and its scores."""
    X, y = rows()[:2]
    model = make().fit(X, y)
    found = {"offset": model.offset_, "scores": model.score_samples(X), "mean": model._mean}
    return found | model.weights_ | {"curve": model.history_["risk"]}


def team():
    X, y, _ = make_contaminated_rows()
    both = Together([DeepRAD(prior=prior, **QUICK) for prior in (0.7, 0.9)])
    both.fit(X, [np.arange(600)] * 2, [y] * 2)
    return {"scores": both.score_samples(X), "offset": both.detector(1).offset_}


EXACT = {
    f"{kind}-{name}-{guard}": partial(descend, kind, name, guard)
    for kind in ("mlp", "lenet")
    for name, guard in (("rad", "clip"), ("nnrad", "clip"), ("nnrad", "kiryo"))
} | {
    "mlp-centred": partial(descend, "mlp", "nnrad", "kiryo", "sigmoid"),
    "mlp-held-out": partial(descend, "mlp", "nnrad", "clip", share=0.3),
}
MODELS = {
    "rad": partial(fitted, partial(DeepRAD, **QUICK), make_contaminated_rows),
    "validation": partial(
        fitted, partial(DeepRAD, validation=0.3, **QUICK), make_contaminated_rows
    ),
    "lenet": partial(fitted, partial(DeepRAD, "lenet-mnist", n_steps=12), images),
    "nnpu": partial(fitted, partial(NNPU, **QUICK), make_contaminated_rows),
    "sad": partial(fitted, partial(DeepSAD, pretrain_steps=6, **QUICK), make_contaminated_rows),
    "sad-lenet": partial(
        fitted, partial(DeepSAD, "lenet-mnist", pretrain_steps=6, n_steps=6), images
    ),
    "together": team,
}


# --- mistakes, on both ranks -------------------------------------------------------------------


def rank_has_fewer_rows():
    X, y, _ = make_contaminated_rows(600 - 10 * world().rank)
    DeepRAD(**QUICK).fit(X, y)


def rank_has_other_labels():
    X, y, _ = make_contaminated_rows()
    y[0] = world().rank
    DeepRAD(**QUICK).fit(X, y)


def rank_has_another_seed():
    X, y, _ = make_contaminated_rows()
    DeepRAD(random_state=world().rank, **QUICK).fit(X, y)


def batch_is_too_small():
    X, y, _ = make_contaminated_rows()
    DeepRAD(risk="pn", batch=(1, 1, 1), **QUICK).fit(X, y)  # two rows for two ranks
    train(*_a_single_row())


def _a_single_row():
    data, pools = NetworkRows(torch.zeros(3, 2)), {0: torch.arange(3)}
    stack = StackedNet(find_architecture("mlp", (4, 2)), (2,), [0])
    return stack, lambda outputs: outputs, data, Draws([pools], {0: 1}, [0]), Settings()


def module_has_batch_norm():
    X, y, _ = make_contaminated_rows()
    DeepRAD(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1)), n_steps=2).fit(X, y)


MISTAKES = {
    rank_has_fewer_rows: "the 2 processes were not given the same: the shape of X and the",
    rank_has_other_labels: "not given the same: the labels differ. Fit the same detector to all",
    rank_has_another_seed: "not given the same: settings differ",
    batch_is_too_small: "a batch of 1 rows cannot be shared by 2 processes",
    module_has_batch_norm: "layer 'module.0' of your module is BatchNorm1d",
}


def one_rank_ends():
    def leave(progress):
        if world().rank == 1:
            os._exit(0)

    X, y, _ = make_contaminated_rows()
    DeepRAD(callback=leave, **QUICK).fit(X, y)


def message_of(mistake):
    try:
        mistake()
    except (InputError, ConnectionError) as error:
        return str(error)
    return ""


# --- the two processes -------------------------------------------------------------------------


def join_group(rank, folder):
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), 2)
    limit = timedelta(seconds=PATIENCE)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=limit)


def run_all(rank, folder):
    join_group(rank, folder)
    found = {name: case() for name, case in (EXACT | MODELS).items()}
    found["own"] = fitted(lambda: DeepRAD(own_module(), n_steps=6), make_contaminated_rows)
    found["messages"] = {mistake.__name__: message_of(mistake) for mistake in MISTAKES}
    if rank == 0:
        found["loss"] = message_of(one_rank_ends)
        torch.save(found, folder / "0.pt")
    else:
        torch.save(found, folder / "1.pt")
        one_rank_ends()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    mp.spawn(run_all, (folder,), nprocs=2)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]


@pytest.mark.parametrize("case", EXACT)
def test_in_double_precision_two_ranks_are_one_process(ranks, case):
    alone = EXACT[case]()
    for name, value in ranks[0][case].items():
        np.testing.assert_allclose(value, alone[name], rtol=1e-8, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("case", MODELS)
def test_detectors_of_two_ranks_are_those_of_one_process(ranks, case):
    alone = MODELS[case]()
    for name, value in ranks[0][case].items():
        np.testing.assert_allclose(value, alone[name], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("case", [*EXACT, *MODELS, "own"])
def test_both_ranks_end_with_the_same_bits(ranks, case):
    for name, value in ranks[0][case].items():
        np.testing.assert_array_equal(value, ranks[1][case][name], err_msg=name)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_refused_on_both_ranks(ranks, mistake):
    for rank in ranks:
        assert MISTAKES[mistake] in rank["messages"][mistake.__name__]


def test_a_process_that_has_ended_is_missed(ranks):
    assert ranks[0]["loss"].startswith("this process lost the others that it trains with: one of")


@pytest.mark.parametrize("kind", ["mlp", "lenet"])
def test_guards_were_at_work(kind):
    """Otherwise the cases above would not tell a guard on parts from one on the whole batch."""
    plain, clip, kiryo = (
        EXACT[f"{kind}-{name}"]()["scores"] for name in ("rad-clip", "nnrad-clip", "nnrad-kiryo")
    )
    for one, other in ((plain, clip), (clip, kiryo)):
        assert not np.allclose(one, other, rtol=1e-2)


# --- one process -------------------------------------------------------------------------------


def test_a_process_by_itself_does_nothing():
    assert world() == ALONE
    x = torch.arange(6.0).view(2, 3)
    assert ALONE.join(x, ALONE.columns, 3) is x
    mean, n = ALONE.mean(x, [1])
    assert mean.tolist() == [[1.0], [4.0]]
    assert n == 3


def test_shares_are_disjoint_and_complete():
    for n, size in ((7, 3), (224, 8), (5, 5)):
        columns = [torch.arange(n)[Ranks(r, size).columns] for r in range(size)]
        parts = [torch.arange(n)[Ranks(r, size).part(n)] for r in range(size)]
        assert torch.cat(columns).sort().values.tolist() == list(range(n))
        assert torch.cat(parts).tolist() == list(range(n))
        assert min(map(len, columns)) >= n // size
