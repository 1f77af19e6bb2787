"""Draws: uniform, from the right pools, the same whatever stands beside them."""

from itertools import product

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.core.losses import LOSSES
from riskad.core.risks import RISKS, get_risk
from riskad.deep.batches import BATCH_ORDER, Draws, NetworkRows, hold_out, mix, pools_of
from riskad.deep.criteria import RiskCriterion

torch.set_num_threads(1)
SIZES = {NORMAL: 4, ANOMALY: 2, UNLABELLED: 6}


def pools(*counts, first=0):
    """Pools of so many rows of P, N and U, numbered on from `first`."""
    edges = first + np.cumsum([0, *counts])
    return {
        kind: torch.arange(start, stop)
        for kind, start, stop in zip(BATCH_ORDER, edges, edges[1:], strict=False)
    }


def steps(n):
    return torch.arange(n).view(-1, 1, 1)


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
    state = 0x9E3779B97F4A7C15
    assert splitmix64(state) == 0xE220A8397B1DCDAF


def test_each_column_is_drawn_from_the_pool_of_its_kind():
    each = [pools(3, 1, 5), pools(7, 2, 9, first=100)]
    draws = Draws(each, SIZES, seeds=[0, 1])
    assert draws.kinds.tolist() == [1] * 4 + [-1] * 2 + [0] * 6
    for step in range(50):
        rows = draws(step)
        assert rows.shape == (2, 12)
        for k, (column, kind) in product(range(2), enumerate(draws.kinds.tolist())):
            assert rows[k, column] in each[k][kind]


def test_draws_do_not_depend_on_the_networks_beside_nor_on_calls_before():
    each, seeds = [pools(3, 2, 50), pools(30, 4, 500, first=60), pools(9, 2, 80)], [3, 2**40, -1]
    together = Draws(each, SIZES, seeds)
    for k in range(3):
        alone = Draws([each[k]], SIZES, [seeds[k]])
        for step in (7, 0, 10**6):
            assert torch.equal(together(step)[k], alone(step)[0])
    assert not torch.equal(together(0), together(1))
    assert torch.equal(together(torch.tensor(5)), together(5))
    assert torch.equal(together(steps(9)), torch.stack([together(step) for step in range(9)]))


def test_the_rows_of_a_kind_do_not_depend_on_how_many_are_drawn_of_another():
    one = Draws([pools(20, 20, 20)], {NORMAL: 4, ANOMALY: 2, UNLABELLED: 6}, [0])(3)[0]
    other = Draws([pools(20, 20, 20)], {NORMAL: 1, ANOMALY: 0, UNLABELLED: 9}, [0])(3)[0]
    assert torch.equal(one[6:], other[1:7])
    assert torch.equal(one[:1], other[:1])


@pytest.mark.parametrize("n", [2, 3, 7, 100])
def test_draws_are_uniform_and_independent(n):
    draws = Draws([pools(n, 1, 1)], {NORMAL: 2}, [11])
    rows = draws(steps(20_000 // n))[:, 0].numpy()
    joint = np.zeros((n, n))
    np.add.at(joint, (rows[:, 0], rows[:, 1]), 1)
    for counts in (joint.sum(0), joint.sum(1), joint.ravel()):
        expected = len(rows) / len(counts)
        if expected >= 1:
            chi2 = ((counts - expected) ** 2 / expected).sum()
            # Normal approximation of chi-square with len - 1 degrees of freedom, five sigmas.
            assert abs(chi2 - (len(counts) - 1)) < 5 * np.sqrt(2 * len(counts))


def test_consecutive_steps_and_seeds_are_not_related():
    bits = torch.stack([Draws([pools(2, 1, 1)], {NORMAL: 400}, [s])(t)[0] for s, t in
                        product(range(10), range(10))]).double().numpy()  # fmt: skip
    correlation = np.corrcoef(bits) - np.eye(100)
    assert np.abs(correlation).max() < 5.5 / np.sqrt(400)


# --- the expectation of a batch's risk and of its gradient ------------------------------------


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
    kinds = Draws([each], sizes, [0]).kinds
    criterion = RiskCriterion([risk] * len(batches), kinds).double()
    (mean,) = torch.autograd.grad(criterion(f[batches]).objective.mean(), f)
    torch.testing.assert_close(mean, full, rtol=1e-6, atol=1e-7)


def test_over_many_draws_the_gradient_is_that_of_the_full_risk():
    each = pools(5, 3, 40)
    y = torch.tensor([1] * 5 + [-1] * 3 + [0] * 40)
    f = torch.randn(48, generator=torch.Generator().manual_seed(0)).requires_grad_()
    risk = get_risk("rad", "logistic", a=0.4, prior=0.7)
    (full,) = torch.autograd.grad(risk.value(f, y), f)
    draws = Draws([each], SIZES, [5])
    rows = draws(steps(4_000))[:, 0]
    criterion = RiskCriterion([risk] * len(rows), draws.kinds)
    (mean,) = torch.autograd.grad(criterion(f[rows]).objective.mean(), f)
    assert (mean - full).abs().max() < 0.05 * full.abs().max()


# --- pools ------------------------------------------------------------------------------------


def test_pools_of_codes():
    codes = torch.tensor([0, 1, -1, 0, 1])
    found = pools_of(codes)
    assert {kind: rows.tolist() for kind, rows in found.items()} == {1: [1, 4], -1: [2], 0: [0, 3]}
    found = pools_of(codes, rows=torch.tensor([0, 1, 2]))
    assert {kind: rows.tolist() for kind, rows in found.items()} == {1: [1], -1: [2], 0: [0]}


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
    with pytest.raises(InputError, match="network 1 has no anomaly rows"):
        Draws([pools(3, 1, 5), pools(3, 0, 5)], SIZES, [0, 1])
    Draws([pools(3, 0, 5)], {NORMAL: 2, UNLABELLED: 2}, [0])


# --- rows -----------------------------------------------------------------------------------


def test_rows_are_seen_as_each_network_standardises_them():
    data = torch.randn(10, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    mean, scale = torch.tensor([[0.0, 1, 2], [3, 4, 5]]), torch.tensor([[1.0, 2, 4], [1, 1, 2]])
    rows, index = NetworkRows(data, mean, scale), torch.tensor([[1, 5, 5], [9, 0, 2]])
    for k in range(2):
        expected = (data - mean[k].view(3, 1, 1)) / scale[k].view(3, 1, 1)
        torch.testing.assert_close(rows.own(index)[k], expected[index[k]])
        torch.testing.assert_close(rows.shared(4, 7)[k], expected[4:7])


def test_without_standardisation_shared_rows_are_there_once():
    data = torch.arange(12.0).view(6, 2)
    assert torch.equal(NetworkRows(data).shared(1, 4), data[None, 1:4])
    assert torch.equal(NetworkRows(data).own(torch.tensor([[5, 0]])), data[None, [5, 0]])
    assert len(NetworkRows(data)) == 6


def test_bytes_are_seen_as_brightness_from_0_to_1():
    data = torch.tensor([[0, 51], [102, 255]], dtype=torch.uint8)
    expected = torch.tensor([[[0.0, 0.2], [0.4, 1.0]]])
    torch.testing.assert_close(NetworkRows(data).shared(0, 2), expected)
