"""The stacked trainer: each network is the one that a detector's own fit trains, up to rounding."""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")  # kernels run in Triton's interpreter, on a CPU

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.base import clone
from torch import nn
from torch.nn import functional as F

from experiments.records import read_records
from experiments.stack import EXPERIMENTS, StackedTrainer, layers
from experiments.stack.layers import StackedConv, stack_networks
from experiments.stack.trainer import stack_criteria
from riskad import NNPU, DeepRAD, DeepSAD
from riskad.core.checks import InputError
from riskad.core.labels import read_codes
from riskad.core.losses import LOSSES
from riskad.core.risks import RISKS, get_risk
from riskad.deep.criteria import RiskCriterion, SADCriterion
from riskad.deep.nets import ARCHITECTURES, build_decoder, build_network

torch.set_num_threads(1)
K, B = 3, 6
SHAPES = {"mlp": (7,), "lenet-mnist": (1, 8, 8), "lenet-fmnist": (1, 12, 9)}
SHAPES["lenet-cifar10"] = (3, 16, 16)
QUICK = {"max_iter": 12, "learning_rate": 3e-3, "scale": False, "device": "cpu"}


def random(*shape, seed=7):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# --- a cell by the plain trainer and by the stack ----------------------------------------------

DETECTORS = {
    "rad": [
        DeepRAD("lenet-mnist", batch_size=(8, 6, 16), loss="logistic", random_state=1, **QUICK),
        DeepRAD("lenet-mnist", batch_size=(8, 6, 16), loss="sigmoid", a=0.5, prior=0.9, **QUICK),
        DeepRAD("lenet-mnist", batch_size=(8, 6, 16), loss="squared", random_state=3, **QUICK),
    ],
    "cifar10": [DeepRAD("lenet-cifar10", random_state=k, **QUICK) for k in range(3)],
    "pu": [NNPU("lenet-fmnist", batch_size=(8, 16), random_state=k, **QUICK) for k in range(3)],
    "sad": [
        DeepSAD("lenet-mnist", pretrain_iter=6, batch_size=(4, 4, 8), random_state=k, **QUICK)
        for k in range(3)
    ],
    "tables": [DeepRAD((16, 8), random_state=k, **QUICK) for k in range(3)],
    "sad, tables": [DeepSAD((16, 8), random_state=k, **QUICK) for k in range(3)],
}


def problem(kind, n=240):
    """Rows, and for each of three detectors numbers of rows and labels of its own."""
    rng = np.random.default_rng(0)
    truth = np.where(rng.random(n) < 0.2, -1, 1)
    if "tables" in kind:
        X = (rng.normal(size=(n, 5)) + (truth == -1)[:, None]).astype(np.float32)
    else:
        X = rng.normal(100, 30, (n, 1, 8, 8)) + 50 * (truth == -1)[:, None, None, None]
        X = X.clip(0, 255).astype(np.uint8)
    rows = [np.sort(rng.permutation(n)[: 150 + 20 * k]) for k in range(3)]
    return X, rows, [np.where(rng.random(len(r)) < 0.4, truth[r], 0) for r in rows]


@pytest.mark.parametrize("kind", DETECTORS)
def test_a_cell_by_the_plain_trainer_and_by_the_stack(kind):
    X, rows, labels = problem(kind)
    trainer = StackedTrainer(DETECTORS[kind]).fit(X, rows, labels)
    scores = trainer.score_samples(X)
    assert scores.shape == (3, len(X))
    for k, detector in enumerate(DETECTORS[kind]):
        alone = clone(detector).fit(X[rows[k]], labels[k])
        expected = alone.score_samples(X)
        np.testing.assert_allclose(scores[k], expected, rtol=1e-3, atol=1e-3 * np.ptp(expected))
        np.testing.assert_allclose(trainer.risk_[:, k], alone.history_["risk"], rtol=1e-3)
        assert trainer.n_iter_[k] == alone.n_iter_


@pytest.mark.parametrize("kind", ["rad", "pu", "sad"])
def test_a_stack_of_one_network_computes_what_the_plain_trainer_computes(kind):
    """On a CPU to the last bits, as nothing is then added up in another order."""
    X, rows, labels = problem(kind)
    (scores,) = StackedTrainer(DETECTORS[kind][:1]).fit(X, rows[:1], labels[:1]).score_samples(X)
    expected = clone(DETECTORS[kind][0]).fit(X[rows[0]], labels[0]).score_samples(X)
    np.testing.assert_allclose(scores, expected, rtol=1e-6, atol=1e-6 * np.ptp(expected))


def test_settings_that_must_agree():
    for detectors, message in (
        ([DeepRAD(**QUICK), DeepRAD(**QUICK | {"max_iter": 6})], "max_iter"),
        ([DeepRAD(**QUICK), NNPU(**QUICK)], "DeepRAD.*NNPU"),
        ([DeepRAD()], "scale=True is for a detector's own fit"),
        ([DeepRAD(validation_fraction=0.2, **QUICK)], "validation_fraction=0.2"),
    ):
        with pytest.raises(InputError, match=message):
            StackedTrainer(detectors)
    key = StackedTrainer.key
    assert key(DeepRAD(prior=0.9, loss="sigmoid", **QUICK)) == key(DeepRAD(a=0.5, **QUICK))
    assert key(DeepRAD([4], **QUICK)) == key(DeepRAD((4,), **QUICK))


def test_labels_that_cannot_be_trained_on():
    X, rows, labels = problem("sad")
    no_anomaly = [labels[0], read_codes(np.abs(labels[1]))]
    with pytest.raises(InputError, match="same kinds of rows"):
        StackedTrainer(DETECTORS["sad"][:2]).fit(X, rows[:2], no_anomaly)
    with pytest.raises(InputError, match="no anomaly rows to draw from"):
        StackedTrainer(DETECTORS["rad"][:2]).fit(X, rows[:2], no_anomaly)


def test_the_page_of_speed_is_made_of_its_records(tmp_path):
    (experiment,) = EXPERIMENTS
    experiment.report(read_records(experiment.path()), tmp_path)
    committed = experiment.path().with_name("speed.json").read_text()
    assert (tmp_path / "speed.json").read_text() == committed


# --- layers against torch's own ------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("scores", [True, False])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_stack_is_its_networks_side_by_side(name, scores, training):
    shape = SHAPES[name]
    networks = [build_network(name, shape, k, scores=scores, centred=k == 1) for k in range(K)]
    stack = stack_networks(networks).train(training)
    x = random(K, B, *shape)
    alone = torch.stack([network.train(training)(x[k]) for k, network in enumerate(networks)])
    torch.testing.assert_close(stack(x), alone, rtol=1e-4, atol=1e-5)
    shared = torch.stack([network.train(training)(x[0]) for network in networks])
    torch.testing.assert_close(stack(x[:1]), shared, rtol=1e-4, atol=1e-5)
    running = {name: value for name, value in networks[2].state_dict().items() if "mean" in name}
    ours = [value[2] for name, value in stack.state_dict().items() if "mean" in name]
    for one, other in zip(ours, running.values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_decoders_and_gradients_are_those_of_separate_networks(name):
    architecture, shape = ARCHITECTURES[name], SHAPES[name]
    decoders = [build_decoder(architecture, shape, k) for k in range(K)]
    stack, x = stack_networks(decoders), random(K, B, architecture.sizes[-1])
    outputs = torch.stack([decoder(x[k]) for k, decoder in enumerate(decoders)])
    torch.testing.assert_close(stack(x), outputs, rtol=1e-4, atol=1e-5)
    together = torch.autograd.grad(stack(x).square().mean((1, 2)).sum(), list(stack.parameters()))
    for k, decoder in enumerate(decoders):
        loss = decoder(x[k]).square().mean((0, 1)).sum()
        alone = torch.autograd.grad(loss, list(decoder.parameters()))
        for many, single in zip(together, alone, strict=True):
            torch.testing.assert_close(many[k], single, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("c_in", [1, 3, 5])
def test_both_convolutions_are_those_of_separate_networks(c_in):
    convolutions = [nn.Conv2d(c_in, 4, 5, padding=2, bias=False) for _ in range(K)]
    layer = StackedConv(convolutions)
    for x in (random(K, B, c_in, 6, 8), random(1, B, c_in, 6, 8)):
        alone = torch.stack([each(x[k % len(x)]) for k, each in enumerate(convolutions)])
        for path in (layer.by_groups, layer.by_strips, layer):
            torch.testing.assert_close(path(x), alone)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer.by_strips(x).dtype == torch.bfloat16
    x = random(K, B, c_in, 6, 8).requires_grad_()
    slopes = [
        torch.autograd.grad(path(x).sin().sum(), [layer.weight, x])
        for path in (layer.by_groups, layer.by_strips)
    ]
    torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-3, atol=1e-4)


def test_few_channels_go_by_strips_on_a_gpu_if_the_width_allows_it():
    class Elsewhere:
        is_cuda = True

        def __init__(self, width):
            self.shape = (K, B, 1, 4, width)

    few, many = (StackedConv([nn.Conv2d(c, 2, 5, bias=False)]) for c in (3, 4))
    for layer in (few, many):
        layer.by_strips, layer.by_groups = lambda x: "strips", lambda x: "groups"
    paths = few(Elsewhere(8)), few(Elsewhere(9)), many(Elsewhere(8)), few(random(K, 1, 3, 4, 4))
    assert paths == ("strips", "groups", "groups", "groups")


def test_all_risks_and_losses_at_once_are_those_of_the_core():
    kinds = torch.tensor([1, 1, 1, -1, -1, 0, 0, 0, 0])
    risks = [
        get_risk(name, loss, a=0.1 + 0.8 * i / 56, prior=0.55 + 0.4 * i / 56)
        for i, (name, loss) in enumerate((name, loss) for name in RISKS for loss in LOSSES)
    ]
    scores = 2 * random(len(risks), len(kinds))
    losses = stack_criteria([RiskCriterion(risk, kinds) for risk in risks])(scores)
    expected = torch.stack([risk.value(scores[k], kinds) for k, risk in enumerate(risks)])
    torch.testing.assert_close(losses.value, expected, rtol=1e-5, atol=1e-6)
    centres, phi, counts = random(2, 3), random(2, len(kinds), 3), {1: 3, -1: 2, 0: 4}
    each = [SADCriterion(centre, kinds, counts, eta=2.0, eps=1e-6) for centre in centres]
    together = stack_criteria(each)(phi).value
    torch.testing.assert_close(together, torch.stack([each[k](phi[k]).value for k in range(2)]))


# --- the kernels against torch's own layers, on a GPU or in Triton's interpreter -----------------

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
EPS, SLOPE = 1e-4, 0.01
# Channels that fill a block, that do not, and that need several; positions of many tiles.
GROUPS = [(3, 5, 8, 12, 8), (1, 3, 4, 6, 12), (2, 40, 4, 4, 100), (1, 40, 28, 28, 1)]


def reference(y):
    """(G, B, H, W, C) through torch's layers, as (B, H / 2, W / 2, G C)."""
    images = y.permute(1, 0, 4, 2, 3).flatten(1, 2)
    normal = F.batch_norm(images, None, None, training=True, eps=EPS)
    return F.max_pool2d(F.leaky_relu(normal, SLOPE), 2).permute(0, 2, 3, 1)


@pytest.mark.skipif(not layers.HAS_TRITON, reason="Triton is for Linux")
@pytest.mark.parametrize("shape", GROUPS)
def test_kernels_give_values_gradients_and_statistics_of_the_layers(shape):
    from experiments.stack.kernels import norm_pool

    y = (2 * random(*shape) + 1).to(DEVICE).requires_grad_()
    out, mean, variance = norm_pool(y, EPS, SLOPE)
    expected = reference(y)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
    weights = random(*out.shape, seed=1).to(DEVICE)
    slopes = [torch.autograd.grad((z * weights).sum(), y)[0] for z in (out, expected)]
    torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-4, atol=1e-5)
    flat = y.permute(0, 4, 1, 2, 3).reshape(mean.numel(), -1)
    torch.testing.assert_close(mean, flat.mean(1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(variance, flat.var(1, correction=0), rtol=1e-4, atol=1e-4)
    assert torch.equal(out, norm_pool(y, EPS, SLOPE)[0])
    half = norm_pool(y.detach().bfloat16(), EPS, SLOPE)[0]
    assert half.dtype == torch.bfloat16


@pytest.mark.skipif(not layers.HAS_TRITON, reason="Triton is for Linux")
@pytest.mark.parametrize("path", ["by_strips", "by_groups"])
def test_a_network_is_the_same_by_kernels_and_by_layers(monkeypatch, path):
    networks = [build_network("lenet-cifar10", (3, 8, 8), k) for k in range(2)]
    stack, again = (stack_networks(networks).to(DEVICE) for _ in range(2))
    x = random(2, 5, 3, 8, 8).to(DEVICE)

    def forward(block, x):
        conv = getattr(block.conv, path) if x.shape[4] % 4 == 0 else block.conv
        return block.after_convolution(conv(x))

    expected = stack(x)
    monkeypatch.setattr(layers.StackedConvBlock, "forward", forward)
    torch.testing.assert_close(again(x), expected, rtol=1e-3, atol=1e-3)
    for one, other in zip(stack.buffers(), again.buffers(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
