"""Networks, batches, criteria and the loop that trains: against torch, the core and formulas."""

from itertools import product

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from support.loops import each
from torch import nn

from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.core.losses import LOSSES
from riskad.core.risks import RISKS, get_risk
from riskad.deep.batches import BATCH_ORDER, BatchSampler, mix, pools_of, split_pools
from riskad.deep.criteria import RiskCriterion, SADCriterion
from riskad.deep.deep_sad import centre_of
from riskad.deep.nets import ARCHITECTURES, ScoreUnit, build_network
from riskad.deep.trainer import Settings, Validation, evaluate, train

torch.set_num_threads(1)
CPU = torch.device("cpu")
B = 6
SHAPES = {"mlp": (7,), "lenet-mnist": (1, 8, 8), "lenet-fmnist": (1, 12, 9)}
SHAPES["lenet-cifar10"] = (3, 16, 16)


def random(*shape, seed=7, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


# --- networks ---------------------------------------------------------------------------------


def from_the_table(name, shape):
    """A network as the table of the module describes it."""
    channels, sizes = {
        "mlp": ((), (128, 64)),
        "lenet-mnist": ((8, 4), (32,)),
        "lenet-fmnist": ((16, 32), (128, 64)),
        "lenet-cifar10": ((32, 64, 128), (128,)),
    }[name]
    layers = []
    c, *sides = shape
    for wider in channels:
        layers += [
            nn.Conv2d(c, wider, 5, padding=2, bias=False),
            nn.BatchNorm2d(wider, eps=1e-4, affine=False),
            nn.LeakyReLU(0.01),
            nn.MaxPool2d(2),
        ]
        c, sides = wider, [side // 2 for side in sides]
    layers.append(nn.Flatten())
    n = c * int(np.prod(sides))
    for size in sizes[:-1]:
        layers += [nn.Linear(n, size, bias=False), nn.BatchNorm1d(size, eps=1e-4, affine=False)]
        layers.append(nn.LeakyReLU(0.01))
        n = size
    layers += [nn.Linear(n, sizes[-1], bias=False), nn.LeakyReLU(0.01), nn.Linear(sizes[-1], 1)]
    return nn.Sequential(*layers)


@each("name", ARCHITECTURES)
def test_networks_are_those_of_the_table(name):
    network, other = build_network(name, SHAPES[name], 0), from_the_table(name, SHAPES[name])
    other.train()
    for own, theirs in zip(network.parameters(), other.parameters(), strict=True):
        theirs.data = own.data.clone()
    for training in (True, False):  # running statistics of the first count in the second
        x = random(B, *SHAPES[name])
        scores = other.train(training)(x).squeeze(1)
        torch.testing.assert_close(network.train(training)(x), scores, rtol=1e-4, atol=1e-5)


def test_weights_are_drawn_as_torch_draws_them_and_the_global_generator_is_left_alone():
    state = torch.get_rng_state()
    network = build_network((300, 50), (100,), 0)
    assert torch.equal(torch.get_rng_state(), state)
    for parameter, fan_in in (
        (network.linear0.weight, 100),
        (network.representation.weight, 300),
        (network.output.weight, 50),
        (network.output.bias, 50),
    ):
        assert parameter.abs().max() <= fan_in**-0.5
        if parameter.numel() > 1000:
            assert parameter.std().item() == pytest.approx((3 * fan_in) ** -0.5, rel=0.1)
    again, other = (build_network((300, 50), (100,), seed) for seed in (0, 1))
    assert torch.equal(network.linear0.weight, again.linear0.weight)
    assert not torch.equal(network.linear0.weight, other.linear0.weight)


def test_an_output_unit_is_linear_and_centred_where_asked():
    plain, centred = ScoreUnit(5, centred=False), ScoreUnit(5, centred=True)
    centred.load_state_dict(plain.state_dict())
    x = random(B, 5)
    scores = plain(x)
    without_bias = scores - plain.bias
    torch.testing.assert_close(centred(x), scores - without_bias.mean())
    torch.testing.assert_close(centred.mean, 0.1 * without_bias.mean(0, keepdim=True))
    torch.testing.assert_close(centred.eval()(x), scores - centred.mean)
    assert plain.mean == 0


@each(
    ("module", "shape", "settings", "message"),
    [
        ("lenet-mnits", (1, 8, 8), {}, "Did you mean 'lenet-mnist'"),
        ("mlp", (1, 8, 8), {}, r"reads tables.*got rows of shape \(1, 8, 8\)"),
        ("lenet-mnist", (64,), {}, r"reads images.*module='mlp'"),
        ("lenet-cifar10", (3, 8, 7), {}, "at least 8 x 8, got 8 x 7"),
        ((8, 0), (4,), {}, "sizes of layers must be whole numbers"),
        ((), (4,), {}, "sizes of layers must be whole numbers"),
        (lambda shape: 3, (4,), {}, "must return an nn.Module, got 3"),
        (3, (4,), {}, "module must be one of mlp"),
    ],
)
def test_what_cannot_be_built_says_why(module, shape, settings, message):
    with pytest.raises(InputError, match=message):
        build_network(module, shape, 0, **settings)


# --- batches ----------------------------------------------------------------------------------

SIZES = {NORMAL: 4, ANOMALY: 2, UNLABELLED: 6}


def pools(*counts):
    """Pools of so many rows of P, N and U."""
    edges = np.cumsum([0, *counts])
    return {
        kind: torch.arange(start, stop)
        for kind, start, stop in zip(BATCH_ORDER, edges, edges[1:], strict=False)
    }


def steps(n):
    return torch.arange(n).view(-1, 1)


def splitmix64(x):
    """The mixer in Python's own integers."""
    whole = (1 << 64) - 1
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & whole
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & whole
    return x ^ (x >> 31)


def test_the_mixer_is_that_of_splitmix64():
    points = [0, 1, 2, 12345, 2**31, 2**62 + 7, 2**63 - 1, -1, -2, -(2**63)]
    mixed = mix(torch.tensor(points)).tolist()
    assert [value % 2**64 for value in mixed] == [splitmix64(point % 2**64) for point in points]
    # The published sequence of the generator with seed 0 begins so.
    assert splitmix64(0x9E3779B97F4A7C15) == 0xE220A8397B1DCDAF


def test_each_column_is_drawn_from_the_pool_of_its_kind():
    each = pools(3, 1, 5)
    sampler = BatchSampler(each, SIZES, seed=0)
    assert sampler.kinds.tolist() == [1] * 4 + [-1] * 2 + [0] * 6
    for step in range(50):
        for row, kind in zip(sampler(step), sampler.kinds.tolist(), strict=True):
            assert row in each[kind]


@each("seed", [3, 2**40, -1])
def test_draws_depend_on_seed_and_step_alone(seed):
    sampler = BatchSampler(pools(30, 4, 500), SIZES, seed)
    first = sampler(10**6)
    assert not torch.equal(sampler(0), sampler(1))
    assert torch.equal(sampler(10**6), first)
    assert torch.equal(sampler(steps(9)), torch.stack([sampler(step) for step in range(9)]))
    assert not torch.equal(BatchSampler(pools(30, 4, 500), SIZES, seed + 1)(10**6), first)


@each("n", [2, 3, 7, 100])
def test_draws_are_uniform_and_independent(n):
    rows = BatchSampler(pools(n, 1, 1), {NORMAL: 2}, 11)(steps(20_000 // n)).numpy()
    joint = np.zeros((n, n))
    np.add.at(joint, (rows[:, 0], rows[:, 1]), 1)
    for counts in (joint.sum(0), joint.sum(1), joint.ravel()):
        expected = len(rows) / len(counts)
        if expected >= 1:
            chi2 = ((counts - expected) ** 2 / expected).sum()
            # Normal approximation of chi-square with len - 1 degrees of freedom, five sigmas.
            assert abs(chi2 - (len(counts) - 1)) < 5 * np.sqrt(2 * len(counts))


@each("loss", LOSSES)
@each("name", [name for name in RISKS if not RISKS[name].guarded])
def test_over_all_batches_the_gradient_is_that_of_the_full_risk(name, loss):
    """Exactly, by enumeration: every batch that tiny pools allow, each as likely."""
    each, sizes = pools(2, 2, 3), {NORMAL: 2, ANOMALY: 1, UNLABELLED: 1}
    y = torch.tensor([1, 1, -1, -1, 0, 0, 0])
    f = torch.tensor([0.3, -0.7, 1.2, -0.1, 0.6, -1.4, 2.2], dtype=torch.float64)
    f.requires_grad_()
    risk = get_risk(name, loss, a=0.3, prior=0.7)
    (full,) = torch.autograd.grad(risk.value(f, y), f)
    choices = [each[kind].tolist() for kind in BATCH_ORDER for _ in range(sizes[kind])]
    batches = torch.tensor(list(product(*choices)))
    criterion = RiskCriterion(risk, BatchSampler(each, sizes, 0).kinds).double()
    (mean,) = torch.autograd.grad(criterion(f[batches]).objective.mean(), f)
    torch.testing.assert_close(mean, full, rtol=1e-6, atol=1e-7)


def test_held_out_rows_are_a_share_of_each_kind_and_leave_something():
    left, held = split_pools(pools(10, 2, 101), 0.2, seed=0)
    assert {kind: len(rows) for kind, rows in held.items()} == {1: 2, -1: 1, 0: 20}
    for kind, rows in pools(10, 2, 101).items():
        assert sorted(torch.cat([left[kind], held[kind]]).tolist()) == rows.tolist()
    _, again = split_pools(pools(10, 2, 101), 0.2, seed=0)
    _, other = split_pools(pools(10, 2, 101), 0.2, seed=1)
    assert torch.equal(held[0], again[0])
    assert not torch.equal(held[0], other[0])


def test_an_empty_pool_is_refused_if_it_is_to_be_drawn_from():
    with pytest.raises(InputError, match="no anomaly rows to draw from"):
        BatchSampler(pools(3, 0, 5), SIZES, 0)
    BatchSampler(pools(3, 0, 5), {NORMAL: 2, UNLABELLED: 2}, 0)


# --- criteria ---------------------------------------------------------------------------------

KINDS = torch.tensor([1, 1, 1, -1, -1, 0, 0, 0, 0])


@each("loss", LOSSES)
@each("name", RISKS)
def test_risks_and_their_gradients_are_those_of_the_core(name, loss):
    risk = get_risk(name, loss, a=0.3, prior=0.7)
    scores = (2 * random(4, len(KINDS), dtype=torch.float64)).requires_grad_()
    losses = RiskCriterion(risk, KINDS).double()(scores)  # of four batches at once
    expected = torch.stack([risk.value(each, KINDS) for each in scores])
    torch.testing.assert_close(losses.value, expected, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(losses.objective, expected, rtol=1e-6, atol=1e-7)
    slopes = [torch.autograd.grad(each.sum(), scores)[0] for each in (losses.objective, expected)]
    torch.testing.assert_close(*slopes, rtol=1e-5, atol=1e-7)


@each("sign", [1, -1])
@each("name", ["nnrad", "nnpu", "nnnu"])
def test_kiryo_descends_minus_the_guarded_part_where_it_is_negative(name, sign):
    risk = get_risk(name, "logistic", a=0.9, prior=0.6)
    # The guarded part is low where labelled rows are told apart and the unlabelled rows are not.
    scores = sign * 3 * torch.tensor([-1.0, -2, -1, 1, 2, 0, 0, 0.5, 0], dtype=torch.float64)
    scores.requires_grad_()
    parts = {True: 0.0, False: 0.0}
    for term in risk.terms():
        mean = risk.loss.value(term.sign * scores[term.kind == KINDS]).mean()
        parts[term.guarded] = parts[term.guarded] + term.weight * mean
    low = bool(parts[True] < 0)
    losses = RiskCriterion(risk, KINDS, "kiryo").double()(scores)
    expected = -parts[True] if low else parts[False] + parts[True]
    (slope,) = torch.autograd.grad(losses.objective, scores, retain_graph=True)
    (same,) = torch.autograd.grad(expected, scores)
    torch.testing.assert_close(slope, same, rtol=1e-5, atol=1e-7)
    assert losses.value.item() == pytest.approx(risk.value(scores, KINDS).item(), rel=1e-6)
    assert low == (sign < 0)


def test_mistakes_are_refused():
    with pytest.raises(InputError, match=r"guard='clipp'.*Did you mean 'clip'"):
        RiskCriterion(get_risk("rad"), KINDS, "clipp")
    with pytest.raises(InputError, match="the rad risk needs unlabelled rows"):
        RiskCriterion(get_risk("rad"), KINDS[:5])


def sad_objective(phi, y, c, eta, eps):
    """As the paper writes it: exponents +1 and -1 for labelled rows."""
    d = ((phi - c) ** 2).sum(axis=1)
    unlabelled, labelled = d[y == 0].sum(), ((d + eps) ** y)[y != 0].sum()
    return (unlabelled + eta * labelled) / len(y)


@each("eta", [1.0, 4.0])
def test_the_objective_of_deep_sad_over_all_rows_also_when_a_batch_has_other_shares(eta):
    phi, c = random(len(KINDS), 3, dtype=torch.float64), random(3, dtype=torch.float64, seed=1)
    counts = {1: 3, -1: 2, 0: 4}
    value = SADCriterion(c, KINDS, counts, eta, eps=1e-6).double()(phi).value
    expected = sad_objective(phi.numpy(), KINDS.numpy(), c.numpy(), eta, 1e-6)
    assert value.item() == pytest.approx(expected, rel=1e-5)
    # Rows of a kind twice in the batch count no more than once.
    columns = torch.tensor([0, 1, 2, 0, 1, 2, 3, 4, 5, 6, 7, 8, 3, 4, 3, 4])
    twice = SADCriterion(c, KINDS[columns], counts, eta, eps=1e-6).double()(phi[columns]).value
    torch.testing.assert_close(twice, value, rtol=1e-6, atol=0.0)


def test_a_centre_is_a_mean_whose_coordinates_are_kept_from_zero():
    phi = torch.tensor([[1.0, 0.0, -0.01], [3.0, 0.1, -0.03]])
    torch.testing.assert_close(centre_of(phi), torch.tensor([2.0, 0.1, -0.1]))


# --- the loop ---------------------------------------------------------------------------------

BATCH = {1: 8, -1: 6, 0: 16}
RISK = get_risk("nnrad", "logistic", a=0.1, prior=0.8)


def problem(shape=(5,), n=300):
    """Rows of normals and shifted anomalies, the labels of some, and the truth."""
    rng = np.random.default_rng(0)
    anomalous = rng.random(n) < 0.2
    data = rng.standard_normal((n, *shape)) + anomalous.reshape(-1, *[1] * len(shape))
    truth = np.where(anomalous, -1, 1)
    codes = np.where(rng.random(n) < 0.3, truth, 0)
    return torch.tensor(data, dtype=torch.float32), torch.tensor(codes), truth


def fit(settings, share=0.3, module="mlp", shape=(5,), seed=0, **options):
    data, codes, _ = problem(shape)
    left, held = split_pools(pools_of(codes), share, seed)
    network = build_network((16, 8) if module == "mlp" else module, shape, seed)
    sampler = BatchSampler(left, BATCH, seed)
    validation = Validation(held, RISK, CPU) if share else None
    criterion = RiskCriterion(RISK, sampler.kinds, "kiryo")
    curves, best_step = train(network, criterion, data, sampler, settings, validation, **options)
    return network, curves, best_step, evaluate(network, data)


def test_the_parameters_at_the_best_check_are_kept():
    network, curves, best, _ = fit(Settings(max_iter=400, learning_rate=3e-2))
    assert best < curves["step"][-1] < 400
    assert best == curves["step"][np.argmin(curves["validation"])]
    assert curves["step"][-1] == best + 100
    again, _, _, _ = fit(Settings(max_iter=best, learning_rate=3e-2))
    for one, other in zip(network.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_evaluation_in_parts_is_evaluation_at_once(monkeypatch):
    data, network = problem((1, 8, 8))[0], build_network("lenet-mnist", (1, 8, 8), 0)
    whole = evaluate(network, data)
    monkeypatch.setattr("riskad.deep.trainer._ROWS_AT_ONCE", {"cpu": 50})
    torch.testing.assert_close(evaluate(network, data), whole)
    rows = torch.randint(len(data), (120,), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(evaluate(network, data, rows), whole[rows])


def test_the_same_seed_gives_the_same_bits_whatever_the_global_generator():
    shape = {"module": "lenet-mnist", "shape": (1, 8, 8)}
    torch.manual_seed(1)
    first = fit(Settings(max_iter=10), **shape)[3]
    state = torch.get_rng_state()
    again = fit(Settings(max_iter=10), **shape)[3]
    assert torch.equal(first, again)
    assert torch.equal(state, torch.get_rng_state())
    assert not torch.allclose(first, fit(Settings(max_iter=10), seed=1, **shape)[3])


@each(
    ("settings", "message"),
    [
        ({"max_iter": 0}, "max_iter must be a whole number >= 1, got 0"),
        ({"max_iter": 2.5}, "max_iter must be a whole number"),
        ({"learning_rate": 0}, "learning_rate must be a number strictly between 0 and inf"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(InputError, match=message):
        Settings(**settings)
