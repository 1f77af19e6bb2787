"""The GPU's kernels against torch's own layers: on a GPU, or in Triton's interpreter (conftest)."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason="Triton is for Linux")

from torch.nn import functional as F

from riskad.deep import layers
from riskad.deep.kernels import norm_pool
from riskad.deep.nets import StackedNet, find_architecture

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
EPS, SLOPE = 1e-4, 0.01


def values(*shape, seed=0):
    drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return (2 * drawn + 1).to(DEVICE).requires_grad_()


def reference(y):
    """(G, B, H, W, C) through torch's layers, as (B, H / 2, W / 2, G C)."""
    images = y.permute(1, 0, 4, 2, 3).flatten(1, 2)
    normal = F.batch_norm(images, None, None, training=True, eps=EPS)
    return F.max_pool2d(F.leaky_relu(normal, SLOPE), 2).permute(0, 2, 3, 1)


# Channels that fill a block, that do not, and that need several; positions of many tiles.
SHAPES = [(3, 5, 8, 12, 8), (1, 3, 4, 6, 12), (2, 40, 4, 4, 100), (1, 40, 28, 28, 1)]


@pytest.mark.parametrize("shape", SHAPES)
def test_values_gradients_and_statistics_are_those_of_the_layers(shape):
    y = values(*shape)
    out, mean, variance = norm_pool(y, EPS, SLOPE)
    expected = reference(y)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
    weights = values(*out.shape, seed=1).detach()
    slopes = [torch.autograd.grad((z * weights).sum(), y)[0] for z in (out, expected)]
    torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-4, atol=1e-5)
    flat = y.permute(0, 4, 1, 2, 3).reshape(mean.numel(), -1)
    torch.testing.assert_close(mean, flat.mean(1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(variance, flat.var(1, correction=0), rtol=1e-4, atol=1e-4)


def test_memory_may_lie_in_any_order_of_the_outer_axes():
    y = values(6, 4, 8, 2, 5).transpose(0, 3)[:, :, :, :6]
    torch.testing.assert_close(norm_pool(y, EPS, SLOPE)[0], reference(y), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="neighbours in memory"):
        norm_pool(y.transpose(1, 4), EPS, SLOPE)


def test_of_equal_values_the_first_gets_the_gradient():
    y = torch.zeros(1, 1, 2, 4, 1, device=DEVICE)
    y[0, 0, :, 2:] = 1.0
    y.requires_grad_()
    out, _, _ = norm_pool(y, EPS, SLOPE)
    weights = torch.tensor([1.0, 3.0], device=DEVICE).view_as(out)
    ours = torch.autograd.grad((out * weights).sum(), y)[0]
    theirs = torch.autograd.grad((reference(y) * weights).sum(), y)[0]
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


def test_every_run_gives_the_same_bits():
    y = values(2, 30, 8, 8, 16)
    first, again = (norm_pool(y, EPS, SLOPE)[0] for _ in range(2))
    slopes = [torch.autograd.grad(z.square().sum(), y)[0] for z in (first, again)]
    assert torch.equal(first, again)
    assert torch.equal(*slopes)


def test_half_precision_is_kept():
    y = values(2, 10, 4, 4, 8).detach().bfloat16().requires_grad_()
    out, mean, _ = norm_pool(y, EPS, SLOPE)
    assert out.dtype == torch.bfloat16
    assert mean.dtype == torch.float32
    torch.testing.assert_close(out.float(), reference(y.float()), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("path", ["by_strips", "by_groups"])
def test_a_network_is_the_same_by_kernels_and_by_layers(monkeypatch, path):
    """What a GPU does, here on any device: both ways of convolution, then the kernels."""
    stack = StackedNet(find_architecture("lenet-cifar10"), (3, 8, 8), [0, 1]).to(DEVICE)
    x = values(2, 5, 3, 8, 8).detach()
    state = {name: value.clone() for name, value in stack.state_dict().items()}
    expected = stack(x)
    statistics = [block.norm.variance.clone() for block in stack.convs]
    stack.load_state_dict(state)

    def forward(block, x):
        return block._in_one(getattr(block.conv, path)(x) if x.shape[4] % 4 == 0 else block.conv(x))

    monkeypatch.setattr(layers.ConvBlock, "forward", forward)
    torch.testing.assert_close(stack(x), expected, rtol=1e-3, atol=1e-3)
    for block, variance in zip(stack.convs, statistics, strict=True):
        torch.testing.assert_close(block.norm.variance, variance, rtol=1e-4, atol=1e-5)
