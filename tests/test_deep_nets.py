"""A stack of K networks is K networks: compared, layer by layer, with torch's own modules."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.nn import functional as F

from riskad.core.checks import InputError
from riskad.deep.layers import StackedBatchNorm, StackedConv, StackedLinear, StackedUnit
from riskad.deep.nets import (
    ARCHITECTURES,
    Architecture,
    Autoencoder,
    Decoder,
    ModuleStack,
    StackedNet,
    build_stack,
    find_architecture,
)

torch.set_num_threads(1)
K, B = 3, 6
SHAPES = {"mlp": (7,), "lenet-mnist": (1, 8, 8), "lenet-fmnist": (1, 12, 9)}
SHAPES["lenet-cifar10"] = (3, 16, 16)


def generators():
    return [torch.Generator().manual_seed(k) for k in range(K)]


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7))


def side_by_side(x):
    """(K, B, c, ...) as (B, K c, ...)."""
    return torch.cat(list(x), dim=1)


def apart(x):
    return torch.stack(x.chunk(K, dim=1))


# --- layers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("c_in", [1, 3, 5])
def test_both_convolutions_are_those_of_separate_networks(c_in):
    layer, x = StackedConv(generators(), c_in, 4), random(K, B, c_in, 6, 8)
    alone = torch.stack([F.conv2d(x[k], layer.weight[k], padding=2) for k in range(K)])
    for path in (layer.by_groups, layer.by_strips, layer):
        torch.testing.assert_close(path(x), alone)


def test_all_networks_may_see_the_same_images():
    layer, x = StackedConv(generators(), 2, 4), random(1, B, 2, 6, 8)
    alone = torch.stack([F.conv2d(x[0], layer.weight[k], padding=2) for k in range(K)])
    for path in (layer.by_groups, layer.by_strips):
        torch.testing.assert_close(path(x), alone)


def test_both_convolutions_have_the_same_gradients():
    layer, x = StackedConv(generators(), 2, 3).double(), random(K, B, 2, 6, 4).double()
    x.requires_grad_()
    slopes = []
    for path in (layer.by_groups, layer.by_strips):
        slopes.append(torch.autograd.grad(path(x).sin().sum(), [layer.weight, x]))
    torch.testing.assert_close(slopes[0], slopes[1])


def test_strips_are_made_in_the_precision_of_autocast():
    layer, x = StackedConv(generators(), 1, 4), random(K, B, 1, 6, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        maps = layer.by_strips(x)
    assert maps.dtype == torch.bfloat16
    torch.testing.assert_close(maps.float(), layer.by_groups(x), rtol=0.05, atol=0.05)


def test_few_channels_go_by_strips_on_a_gpu_where_the_width_allows_it():
    class Elsewhere:
        is_cuda = True

        def __init__(self, width):
            self.shape = (K, B, 1, 4, width)

    few, many = (StackedConv(generators(), c, 2) for c in (3, 4))
    for layer in (few, many):
        layer.by_strips, layer.by_groups = lambda x: "strips", lambda x: "groups"
    assert (few(Elsewhere(8)), few(Elsewhere(9)), many(Elsewhere(8))) == (
        "strips",
        "groups",
        "groups",
    )
    assert few(random(K, 1, 3, 4, 4)) == "groups"


def test_linear_layers_are_those_of_separate_networks():
    layer, x = StackedLinear(generators(), 5, 4), random(K, B, 5)
    for k in range(K):
        torch.testing.assert_close(layer(x)[k], F.linear(x[k], layer.weight[k]))


def test_output_units_are_linear_and_centred_where_asked():
    unit, x = StackedUnit(generators(), 5, [False, True, False]), random(K, B, 5)
    plain = torch.stack([F.linear(x[k], unit.weight[k], unit.bias[k])[:, 0] for k in range(K)])
    scores = unit(x)
    torch.testing.assert_close(scores[[0, 2]], plain[[0, 2]])
    torch.testing.assert_close(scores[1], plain[1] - (plain[1] - unit.bias[1]).mean())
    torch.testing.assert_close(unit.mean[1], 0.1 * (plain[1] - unit.bias[1]).mean()[None])
    unit.eval()
    torch.testing.assert_close(unit(x)[1], plain[1] - unit.mean[1])
    torch.testing.assert_close(unit(x)[0], plain[0])


@pytest.mark.parametrize("extra", [(), (4, 5)])
def test_batch_normalisation_is_that_of_separate_networks_running_statistics_included(extra):
    layer = StackedBatchNorm(K, 2)
    kind = nn.BatchNorm2d if extra else nn.BatchNorm1d
    own = [kind(2, eps=1e-4, affine=False) for _ in range(K)]
    for scale in (1.0, 3.0):
        x = scale * random(K, B, 2, *extra) + torch.arange(K).view(K, *[1] * (2 + len(extra)))
        alone = torch.stack([own[k](x[k]) for k in range(K)])
        torch.testing.assert_close(apart(layer(side_by_side(x))), alone)
    for module in (layer, *own):
        module.eval()
    x = random(K, B, 2, *extra)
    alone = torch.stack([own[k](x[k]) for k in range(K)])
    torch.testing.assert_close(apart(layer(side_by_side(x))), alone)
    torch.testing.assert_close(layer.variance, torch.stack([o.running_var for o in own]))


# --- whole networks ---------------------------------------------------------------------------


def ordinary(stack, k, shape):
    """Network k of a stack as torch's own modules in a row, written from the table."""
    state = {name: value[k] for name, value in stack.state_dict().items()}
    layers = []

    def norm(kind, prefix):
        layer = kind(len(state[f"{prefix}.mean"]), eps=1e-4, affine=False)
        layer.running_mean.copy_(state[f"{prefix}.mean"])
        layer.running_var.copy_(state[f"{prefix}.variance"])
        return layer

    def linear(prefix):
        weight, bias = state[f"{prefix}.weight"], state.get(f"{prefix}.bias")
        layer = nn.Linear(*reversed(weight.shape), bias=bias is not None)
        layer.weight.data = weight
        if bias is not None:
            layer.bias.data = bias
        return layer

    for i in range(len(stack.convs)):
        weight = state[f"convs.{i}.conv.weight"]
        conv = nn.Conv2d(weight.shape[1], weight.shape[0], 5, padding=2, bias=False)
        conv.weight.data = weight
        layers += [conv, norm(nn.BatchNorm2d, f"convs.{i}.norm"), nn.LeakyReLU(), nn.MaxPool2d(2)]
    layers.append(nn.Flatten())
    for i in range(len(stack.hidden)):
        layers += [linear(f"hidden.{i}.linear"), norm(nn.BatchNorm1d, f"hidden.{i}.norm")]
        layers.append(nn.LeakyReLU())
    layers.append(linear("representation"))
    if stack.output is not None:
        layers += [nn.LeakyReLU(), linear("output"), nn.Flatten(0)]
    return nn.Sequential(*layers)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("scores", [True, False])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_stack_is_its_networks_side_by_side(name, scores, training):
    shape = SHAPES[name]
    stack = StackedNet(ARCHITECTURES[name], shape, range(K), scores).train(training)
    x = random(K, B, *shape)
    alone = [ordinary(stack, k, shape).train(training)(x[k]) for k in range(K)]
    torch.testing.assert_close(stack(x), torch.stack(alone), rtol=1e-4, atol=1e-5)


def test_the_lenets_have_the_published_sizes():
    def count(name, shape):
        stack = StackedNet(ARCHITECTURES[name], shape, [0], scores=False)
        return sum(p.numel() for p in stack.parameters())

    assert count("lenet-mnist", (1, 28, 28)) == 25 * (8 + 8 * 4) + 4 * 49 * 32
    assert count("lenet-fmnist", (1, 28, 28)) == 25 * (16 + 16 * 32) + 32 * 49 * 128 + 128 * 64
    convolutions = 25 * (3 * 32 + 32 * 64 + 64 * 128)
    assert count("lenet-cifar10", (3, 32, 32)) == convolutions + 128 * 16 * 128


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_seed_gives_the_same_network_whatever_stands_beside_it(name):
    together = StackedNet(ARCHITECTURES[name], SHAPES[name], [5, 6, 7])
    for k, seed in enumerate([5, 6, 7]):
        alone = StackedNet(ARCHITECTURES[name], SHAPES[name], [seed])
        for one, many in zip(alone.parameters(), together.parameters(), strict=True):
            assert torch.equal(one[0], many[k])
    first, second, _ = together.representation.weight
    assert not torch.equal(first, second)


def test_weights_are_drawn_as_torch_draws_them():
    layer = StackedLinear([torch.Generator().manual_seed(0)], 100, 300)
    unit = StackedUnit([torch.Generator().manual_seed(k) for k in range(300)], 100, [False] * 300)
    for parameter in (layer.weight, unit.weight, unit.bias):
        assert parameter.abs().max() <= 0.1
        assert parameter.std().item() == pytest.approx(0.1 / 3**0.5, rel=0.1)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_gradients_of_a_sum_of_losses_are_those_of_each_network(name):
    stack, x = StackedNet(ARCHITECTURES[name], SHAPES[name], range(K)), random(K, B, *SHAPES[name])
    together = torch.autograd.grad(stack(x).square().mean(1).sum(), list(stack.parameters()))
    for k in range(K):
        one = StackedNet(ARCHITECTURES[name], SHAPES[name], [k])
        alone = torch.autograd.grad(one(x[[k]]).square().mean(), list(one.parameters()))
        for many, single in zip(together, alone, strict=True):
            torch.testing.assert_close(many[[k]], single, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_decoder_gives_rows_of_the_shape_that_the_encoder_took(name):
    architecture, shape = ARCHITECTURES[name], SHAPES[name]
    encoder = StackedNet(architecture, shape, range(K), scores=False)
    decoder = Decoder(architecture, shape, range(K))
    x = random(K, B, *shape)
    assert decoder(encoder(x)).shape == x.shape
    expected = (decoder(encoder(x)) - x).reshape(K, B, -1)
    torch.testing.assert_close(Autoencoder(encoder, decoder)(x), expected)
    slopes = torch.autograd.grad(decoder(encoder(x)).sum(), list(decoder.parameters()))
    assert all(slope.abs().sum() > 0 for slope in slopes)


# --- modules of one's own -----------------------------------------------------------------------


def test_a_module_is_copied_and_wrapped():
    module = nn.Linear(4, 1)
    stack = build_stack(module, (4,), [0])
    x = random(1, B, 4)
    assert isinstance(stack, ModuleStack)
    assert stack.module is not module
    torch.testing.assert_close(stack(x), module(x[0]).reshape(1, B))


def test_a_function_makes_the_module_under_the_seed_and_leaves_the_global_one_alone():
    state = torch.get_rng_state()
    first, again, other = (
        build_stack(lambda shape: nn.Linear(shape[0], 1), (4,), [seed]) for seed in (1, 1, 2)
    )
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.module.weight, again.module.weight)
    assert not torch.equal(first.module.weight, other.module.weight)


@pytest.mark.parametrize(
    ("module", "shape", "settings", "message"),
    [
        ("lenet-mnits", (1, 8, 8), {}, "Did you mean 'lenet-mnist'"),
        ("mlp", (1, 8, 8), {}, r"reads tables.*got rows of shape \(1, 8, 8\)"),
        ("lenet-mnist", (64,), {}, r"reads images.*module='mlp'"),
        ("lenet-cifar10", (3, 8, 7), {}, "at least 8 x 8, got 8 x 7"),
        ("mlp", (4,), {"hidden": (8, 0)}, "hidden must be whole numbers"),
        ("mlp", (4,), {"hidden": ()}, "hidden must be whole numbers"),
        (nn.Linear(4, 1), (4,), {"hidden": (8,)}, "hidden is for the named"),
        (lambda shape: 3, (4,), {}, "must return an nn.Module, got 3"),
        (3, (4,), {}, "module must be one of mlp"),
    ],
)
def test_what_cannot_be_built_says_why(module, shape, settings, message):
    with pytest.raises(InputError, match=message):
        build_stack(module, shape, [0], **settings)


def test_modules_are_refused_that_give_no_score_or_that_should_be_many():
    with pytest.raises(InputError, match=r"one score for each, got an output of shape \(6, 2\)"):
        build_stack(nn.Linear(4, 2), (4,), [0])(random(1, B, 4))
    with pytest.raises(InputError, match="makes one network, got 2 seeds"):
        build_stack(nn.Linear(4, 1), (4,), [0, 1])


def test_hidden_sizes_replace_those_of_the_architecture():
    assert find_architecture("mlp", hidden=[9]) == Architecture((), (9,))
    assert build_stack("mlp", (4,), [0, 1], hidden=(9,))(random(2, B, 4)).shape == (2, B)
