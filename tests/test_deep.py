"""Networks, batches, criteria and the loop that trains: against torch, the core and formulas."""

from itertools import product

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn

from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.core.losses import LOSSES
from riskad.core.risks import RISKS, get_risk
from riskad.deep.batches import BATCH_ORDER, BatchSampler, hold_out, mix, pools_of, read_rows
from riskad.deep.criteria import RiskCriterion, SADCriterion, mean_square
from riskad.deep.deep_sad import Autoencoder, centre_of
from riskad.deep.nets import (
    ARCHITECTURES,
    Architecture,
    OwnModule,
    ScoreUnit,
    build_decoder,
    build_network,
    find_architecture,
    lay_out,
)
from riskad.deep.trainer import Settings, Validation, choose_device, evaluate, train

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


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_networks_are_those_of_the_table(name):
    network, other = build_network(name, SHAPES[name], 0), from_the_table(name, SHAPES[name])
    other.train()
    for own, theirs in zip(network.parameters(), other.parameters(), strict=True):
        theirs.data = own.data.clone()
    for training in (True, False):  # running statistics of the first count in the second
        x = random(B, *SHAPES[name])
        scores = other.train(training)(x).squeeze(1)
        torch.testing.assert_close(network.train(training)(x), scores, rtol=1e-4, atol=1e-5)


def test_the_lenets_have_the_published_sizes():
    def count(name, shape):
        return sum(p.numel() for p in lay_out(ARCHITECTURES[name], shape, False).parameters())

    assert count("lenet-mnist", (1, 28, 28)) == 25 * (8 + 8 * 4) + 4 * 49 * 32
    assert count("lenet-fmnist", (1, 28, 28)) == 25 * (16 + 16 * 32) + 32 * 49 * 128 + 128 * 64
    convolutions = 25 * (3 * 32 + 32 * 64 + 64 * 128)
    assert count("lenet-cifar10", (3, 32, 32)) == convolutions + 128 * 16 * 128


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


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_decoder_gives_rows_of_the_shape_that_the_encoder_took(name):
    encoder = build_network(name, SHAPES[name], 0, scores=False)
    decoder = build_decoder(ARCHITECTURES[name], SHAPES[name], 1)
    x = random(B, *SHAPES[name])
    assert encoder(x).shape == (B, ARCHITECTURES[name].sizes[-1])
    assert decoder(encoder(x)).shape == x.shape
    expected = (decoder(encoder(x)) - x).reshape(B, -1)
    torch.testing.assert_close(Autoencoder(encoder, decoder)(x), expected)
    slopes = torch.autograd.grad(decoder(encoder(x)).sum(), list(decoder.parameters()))
    assert all(slope.abs().sum() > 0 for slope in slopes)


def test_a_module_is_copied_and_wrapped():
    module, x = nn.Linear(4, 1), random(B, 4)
    network = build_network(module, (4,), 0)
    assert isinstance(network, OwnModule)
    assert network.module is not module
    torch.testing.assert_close(network(x), module(x)[:, 0])
    with pytest.raises(InputError, match=r"one score for each, got an output of shape \(6, 2\)"):
        build_network(nn.Linear(4, 2), (4,), 0)(x)


def test_a_function_makes_the_module_under_the_seed_and_leaves_the_global_one_alone():
    state = torch.get_rng_state()
    first, again, other = (
        build_network(lambda shape: nn.Linear(shape[0], 1), (4,), seed) for seed in (1, 1, 2)
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
        ((8, 0), (4,), {}, "sizes of layers must be whole numbers"),
        ((), (4,), {}, "sizes of layers must be whole numbers"),
        (lambda shape: 3, (4,), {}, "must return an nn.Module, got 3"),
        (3, (4,), {}, "module must be one of mlp"),
    ],
)
def test_what_cannot_be_built_says_why(module, shape, settings, message):
    with pytest.raises(InputError, match=message):
        build_network(module, shape, 0, **settings)


def test_hidden_sizes_replace_those_of_the_architecture():
    assert find_architecture([9]) == Architecture((), (9,))
    assert build_network((9,), (4,), 0, scores=False)(random(B, 4)).shape == (B, 9)


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


@pytest.mark.parametrize("seed", [3, 2**40, -1])
def test_draws_depend_on_seed_and_step_alone(seed):
    sampler = BatchSampler(pools(30, 4, 500), SIZES, seed)
    first = sampler(10**6)
    assert not torch.equal(sampler(0), sampler(1))
    assert torch.equal(sampler(10**6), first)
    assert torch.equal(sampler(steps(9)), torch.stack([sampler(step) for step in range(9)]))
    assert not torch.equal(BatchSampler(pools(30, 4, 500), SIZES, seed + 1)(10**6), first)


def test_the_rows_of_a_kind_do_not_depend_on_how_many_are_drawn_of_another():
    one = BatchSampler(pools(20, 20, 20), {NORMAL: 4, ANOMALY: 2, UNLABELLED: 6}, 0)(3)
    other = BatchSampler(pools(20, 20, 20), {NORMAL: 1, ANOMALY: 0, UNLABELLED: 9}, 0)(3)
    assert torch.equal(one[6:], other[1:7])
    assert torch.equal(one[:1], other[:1])


@pytest.mark.parametrize("n", [2, 3, 7, 100])
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


def test_consecutive_steps_and_seeds_are_not_related():
    draws = [
        BatchSampler(pools(2, 1, 1), {NORMAL: 400}, seed)(step)
        for seed, step in product(range(10), range(10))
    ]
    correlation = np.corrcoef(torch.stack(draws).double().numpy()) - np.eye(100)
    assert np.abs(correlation).max() < 5.5 / np.sqrt(400)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", [name for name in RISKS if not RISKS[name].guarded])
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


def test_over_many_draws_the_gradient_is_that_of_the_full_risk():
    y = torch.tensor([1] * 5 + [-1] * 3 + [0] * 40)
    f = random(48, seed=0).requires_grad_()
    risk = get_risk("rad", "logistic", a=0.4, prior=0.7)
    (full,) = torch.autograd.grad(risk.value(f, y), f)
    sampler = BatchSampler(pools(5, 3, 40), SIZES, 5)
    losses = RiskCriterion(risk, sampler.kinds)(f[sampler(steps(4_000))])
    (mean,) = torch.autograd.grad(losses.objective.mean(), f)
    assert (mean - full).abs().max() < 0.05 * full.abs().max()


def test_pools_of_codes():
    found = pools_of(torch.tensor([0, 1, -1, 0, 1]))
    assert {kind: rows.tolist() for kind, rows in found.items()} == {1: [1, 4], -1: [2], 0: [0, 3]}


def test_held_out_rows_are_a_share_of_each_kind_and_leave_something():
    left, held = hold_out(pools(10, 2, 101), 0.2, seed=0)
    assert {kind: len(rows) for kind, rows in held.items()} == {1: 2, -1: 1, 0: 20}
    for kind, rows in pools(10, 2, 101).items():
        assert sorted(torch.cat([left[kind], held[kind]]).tolist()) == rows.tolist()
    _, again = hold_out(pools(10, 2, 101), 0.2, seed=0)
    _, other = hold_out(pools(10, 2, 101), 0.2, seed=1)
    assert torch.equal(held[0], again[0])
    assert not torch.equal(held[0], other[0])


def test_nothing_is_held_out_where_a_kind_has_a_single_row():
    left, held = hold_out(pools(10, 1, 50), 0.2, seed=0)
    assert all(len(rows) == 0 for rows in held.values())
    assert {kind: len(rows) for kind, rows in left.items()} == {1: 10, -1: 1, 0: 50}
    _, held = hold_out(pools(10, 0, 50), 0.2, seed=0)
    assert {kind: len(rows) for kind, rows in held.items()} == {1: 2, -1: 0, 0: 10}


def test_an_empty_pool_is_refused_if_it_is_to_be_drawn_from():
    with pytest.raises(InputError, match="no anomaly rows to draw from"):
        BatchSampler(pools(3, 0, 5), SIZES, 0)
    BatchSampler(pools(3, 0, 5), {NORMAL: 2, UNLABELLED: 2}, 0)


def test_bytes_are_seen_as_brightness_from_0_to_1():
    data = torch.tensor([[0, 51], [102, 255]], dtype=torch.uint8)
    torch.testing.assert_close(read_rows(data, slice(0, 2)), torch.tensor([[0.0, 0.2], [0.4, 1.0]]))
    assert torch.equal(read_rows(data.float(), torch.tensor([1])), data[1:].float())


# --- criteria ---------------------------------------------------------------------------------

KINDS = torch.tensor([1, 1, 1, -1, -1, 0, 0, 0, 0])


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", RISKS)
def test_risks_and_their_gradients_are_those_of_the_core(name, loss):
    risk = get_risk(name, loss, a=0.3, prior=0.7)
    scores = (2 * random(4, len(KINDS), dtype=torch.float64)).requires_grad_()
    losses = RiskCriterion(risk, KINDS).double()(scores)  # of four batches at once
    expected = torch.stack([risk.value(each, KINDS) for each in scores])
    torch.testing.assert_close(losses.value, expected, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(losses.objective, expected, rtol=1e-6, atol=1e-7)
    slopes = [torch.autograd.grad(each.sum(), scores)[0] for each in (losses.objective, expected)]
    torch.testing.assert_close(*slopes, rtol=1e-5, atol=1e-7)


def test_scores_of_lower_precision_are_summed_in_float32():
    losses = RiskCriterion(get_risk("rad"), KINDS)(random(len(KINDS)).bfloat16())
    assert losses.value.dtype == torch.float32


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("name", ["nnrad", "nnpu", "nnnu"])
def test_kiryo_descends_minus_gamma_times_the_guarded_part_where_it_is_too_low(name, beta, sign):
    risk, gamma = get_risk(name, "logistic", a=0.9, prior=0.6), 0.7
    # The guarded part is low where labelled rows are told apart and the unlabelled rows are not.
    scores = sign * 3 * torch.tensor([-1.0, -2, -1, 1, 2, 0, 0, 0.5, 0], dtype=torch.float64)
    scores.requires_grad_()
    parts = {True: 0.0, False: 0.0}
    for term in risk.terms():
        mean = risk.loss.value(term.sign * scores[term.kind == KINDS]).mean()
        parts[term.guarded] = parts[term.guarded] + term.weight * mean
    low = bool(parts[True] < -beta)
    losses = RiskCriterion(risk, KINDS, "kiryo", beta, gamma).double()(scores)
    expected = -gamma * parts[True] if low else parts[False] + parts[True]
    (slope,) = torch.autograd.grad(losses.objective, scores, retain_graph=True)
    (same,) = torch.autograd.grad(expected, scores)
    torch.testing.assert_close(slope, same, rtol=1e-5, atol=1e-7)
    assert losses.value.item() == pytest.approx(risk.value(scores, KINDS).item(), rel=1e-6)
    assert low == (sign < 0)


def test_the_guards_differ_only_where_the_guarded_part_is_negative():
    risk = get_risk("nnrad", "sigmoid", a=0.9)
    scores = torch.zeros(2, len(KINDS), dtype=torch.float64)
    scores[0, KINDS == 0], scores[0, KINDS == -1] = 5.0, -5.0  # R_u^+ ~ 0, R_n^+ ~ 1: negative
    scores[1, KINDS == 0], scores[1, KINDS == -1] = -5.0, 5.0
    clip, kiryo = (RiskCriterion(risk, KINDS, guard).double()(scores).objective for guard in
                   ("clip", "kiryo"))  # fmt: skip
    assert clip[0] != kiryo[0]
    assert clip[1] == kiryo[1]
    rad, scores = get_risk("rad", a=0.9), 3 * random(len(KINDS), dtype=torch.float64)
    clip, kiryo = (RiskCriterion(rad, KINDS, guard).double()(scores).objective for guard in
                   ("clip", "kiryo"))  # fmt: skip
    assert torch.equal(clip, kiryo)


def test_mistakes_are_refused():
    with pytest.raises(InputError, match=r"guard='clipp'.*Did you mean 'clip'"):
        RiskCriterion(get_risk("rad"), KINDS, "clipp")
    with pytest.raises(InputError, match="the rad risk needs unlabelled rows"):
        RiskCriterion(get_risk("rad"), KINDS[:5])
    with pytest.raises(InputError, match="gamma must be a number between 0 and 1"):
        RiskCriterion(get_risk("rad"), KINDS, "kiryo", gamma=2.0)


def sad_objective(phi, y, c, eta, eps):
    """As the paper writes it: exponents +1 and -1 for labelled rows."""
    d = ((phi - c) ** 2).sum(axis=1)
    unlabelled, labelled = d[y == 0].sum(), ((d + eps) ** y)[y != 0].sum()
    return (unlabelled + eta * labelled) / len(y)


@pytest.mark.parametrize("eta", [1.0, 4.0])
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


def test_the_loss_of_an_autoencoder_is_the_mean_square():
    x = random(5, 3)
    assert mean_square(x).objective.item() == pytest.approx(np.mean(x.numpy() ** 2), rel=1e-6)


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
    left, held = hold_out(pools_of(codes), share, seed)
    network = build_network((16, 8) if module == "mlp" else module, shape, seed)
    sampler = BatchSampler(left, BATCH, seed)
    validation = Validation(held, RISK, CPU) if share else None
    criterion = RiskCriterion(RISK, sampler.kinds, "kiryo")
    curves, best_step = train(network, criterion, data, sampler, settings, validation, **options)
    return network, curves, best_step, evaluate(network, data)


def test_the_parameters_at_the_best_check_are_kept():
    rapid = {"learning_rate": 3e-2, "check_every": 5, "patience": 3}
    network, curves, best, _ = fit(Settings(max_iter=300, **rapid))
    assert best < curves["step"][-1] < 300
    assert best == curves["step"][np.argmin(curves["validation"])]
    assert curves["step"][-1] == best + 15
    again, _, _, _ = fit(Settings(max_iter=best, **rapid))
    for one, other in zip(network.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_validation_is_the_core_risk_of_the_held_out_rows():
    data, codes, _ = problem()
    _, held = hold_out(pools_of(codes), 0.3, 0)
    network = build_network("mlp", (5,), 0)
    rows = torch.cat(list(held.values()))
    expected = RISK.value(evaluate(network, data)[rows], codes[rows])
    assert Validation(held, RISK, CPU)(network, data) == pytest.approx(expected.item(), rel=1e-5)
    assert network.training


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


def test_training_learns():
    _, curves, best, scores = fit(Settings(max_iter=150, learning_rate=3e-3), share=0.0)
    truth = problem()[2]
    assert (scores[truth == 1][:, None] > scores[truth == -1]).double().mean() > 0.75
    assert curves["risk"][-1] < curves["risk"][0]
    assert best == 150
    assert set(curves) == {"step", "risk"}


def test_weight_decay_shrinks_weights():
    sizes = [
        fit(Settings(max_iter=60, weight_decay=decay), share=0.0)[0].representation.weight.norm()
        for decay in (0.0, 1.0)
    ]
    assert sizes[1] < 0.7 * sizes[0]


def test_a_module_of_ones_own_is_trained_and_its_best_kept():
    data, codes, _ = problem()
    left, held = hold_out(pools_of(codes), 0.3, 0)
    module = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    network, sampler = OwnModule(module), BatchSampler(left, BATCH, 0)
    criterion, validation = RiskCriterion(RISK, sampler.kinds), Validation(held, RISK, CPU)
    curves, _ = train(network, criterion, data, sampler, Settings(max_iter=30), validation)
    assert validation(network, data) == pytest.approx(min(curves["validation"]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_iter": 0}, "max_iter must be a whole number >= 1, got 0"),
        ({"check_every": 2.5}, "check_every must be a whole number"),
        ({"patience": True}, "patience must be a whole number"),
        ({"learning_rate": 0}, "learning_rate must be a number strictly between 0 and inf"),
        ({"weight_decay": -1}, "weight_decay"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(InputError, match=message):
        Settings(**settings)


def test_devices():
    assert choose_device("cpu") == CPU
    assert choose_device("auto").type in ("cpu", "cuda")
    with pytest.raises(InputError, match="device must be 'auto', 'cpu'"):
        choose_device("gpu")
