"""Losses of K networks, compared with the core's risks and with Deep SAD's formula."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from riskad.core.checks import InputError
from riskad.core.losses import LOSSES
from riskad.core.risks import RISKS, get_risk
from riskad.deep.criteria import PADDING, RiskCriterion, SADCriterion, SquareCriterion

torch.set_num_threads(1)
KINDS = torch.tensor([1, 1, 1, -1, -1, 0, 0, 0, 0])
MANY = [
    get_risk(name, loss, a=0.1 + 0.8 * i / 56, prior=0.55 + 0.4 * i / 56)
    for i, (name, loss) in enumerate((name, loss) for name in RISKS for loss in LOSSES)
]


def random(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def test_all_risks_and_losses_at_once_are_those_of_the_core():
    scores = 2 * random(len(MANY), len(KINDS))
    losses = RiskCriterion(MANY, KINDS).double()(scores)
    expected = torch.stack([risk.value(scores[k], KINDS) for k, risk in enumerate(MANY)])
    torch.testing.assert_close(losses.value, expected, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(losses.objective, expected, rtol=1e-6, atol=1e-7)


def test_all_gradients_are_those_of_the_core():
    scores = (2 * random(len(MANY), len(KINDS))).requires_grad_()
    objective = RiskCriterion(MANY, KINDS).double()(scores).objective
    (together,) = torch.autograd.grad(objective.sum(), scores)
    for k, risk in enumerate(MANY):
        f = scores[k].detach().requires_grad_()
        (alone,) = torch.autograd.grad(risk.value(f, KINDS), f)
        torch.testing.assert_close(together[k], alone, rtol=1e-5, atol=1e-7)


def test_kinds_may_differ_from_network_to_network_and_padding_does_not_count():
    kinds = torch.stack([KINDS, KINDS.flip(0), torch.where(KINDS == 0, PADDING, KINDS)])
    kinds[2, -1] = 0
    scores = random(3, len(KINDS))
    risks = [get_risk("rad"), get_risk("nnrad", "ramp"), get_risk("pnu", a=-0.2)]
    values = RiskCriterion(risks, kinds).double()(scores).value
    for k, risk in enumerate(risks):
        counted = kinds[k] != PADDING
        expected = risk.value(scores[k, counted].numpy(), kinds[k, counted].numpy())
        assert values[k].item() == pytest.approx(float(expected), rel=1e-6)


def test_scores_of_lower_precision_are_summed_in_float32():
    losses = RiskCriterion([get_risk("rad")], KINDS)(random(1, len(KINDS)).bfloat16())
    assert losses.value.dtype == torch.float32


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("name", ["nnrad", "nnpu", "nnnu"])
def test_kiryo_descends_minus_gamma_times_the_guarded_part_where_it_is_too_low(name, beta, sign):
    risk, gamma = get_risk(name, "logistic", a=0.9, prior=0.6), 0.7
    # The guarded part is low where labelled rows are told apart and the unlabelled rows are not.
    scores = sign * 3 * torch.tensor([[-1.0, -2, -1, 1, 2, 0, 0, 0.5, 0]], dtype=torch.float64)
    scores.requires_grad_()
    parts = {True: 0.0, False: 0.0}
    for term in risk.terms():
        mean = risk.loss.value(term.sign * scores[0, term.kind == KINDS]).mean()
        parts[term.guarded] = parts[term.guarded] + term.weight * mean
    low = bool(parts[True] < -beta)
    losses = RiskCriterion([risk], KINDS, "kiryo", beta, gamma).double()(scores)
    expected = -gamma * parts[True] if low else parts[False] + parts[True]
    (slope,) = torch.autograd.grad(losses.objective.sum(), scores, retain_graph=True)
    (same,) = torch.autograd.grad(expected, scores)
    torch.testing.assert_close(slope, same, rtol=1e-5, atol=1e-7)
    assert losses.value.item() == pytest.approx(risk.value(scores[0], KINDS).item(), rel=1e-6)
    assert low == (sign < 0)


def test_the_guards_differ_only_where_the_guarded_part_is_negative():
    risk = get_risk("nnrad", "sigmoid", a=0.9)
    scores = torch.zeros(2, len(KINDS), dtype=torch.float64)
    scores[0, KINDS == 0], scores[0, KINDS == -1] = 5.0, -5.0  # R_u^+ ~ 0, R_n^+ ~ 1: negative
    scores[1, KINDS == 0], scores[1, KINDS == -1] = -5.0, 5.0
    objectives = [
        RiskCriterion([risk] * 2, KINDS, guard).double()(scores).objective
        for guard in ("clip", "kiryo")
    ]
    assert objectives[0][0] != objectives[1][0]
    assert objectives[0][1] == objectives[1][1]


def test_the_guard_of_an_unguarded_risk_does_nothing():
    scores = 3 * random(1, len(KINDS))
    clip, kiryo = (
        RiskCriterion([get_risk("rad", a=0.9)], KINDS, guard).double()(scores).objective
        for guard in ("clip", "kiryo")
    )
    assert torch.equal(clip, kiryo)


def test_mistakes_are_refused():
    with pytest.raises(InputError, match=r"guard='clipp'.*Did you mean 'clip'"):
        RiskCriterion([get_risk("rad")], KINDS, "clipp")
    with pytest.raises(InputError, match="the rad risk needs unlabelled rows"):
        RiskCriterion([get_risk("rad")], KINDS[:5])
    with pytest.raises(InputError, match="gamma must be a number between 0 and 1"):
        RiskCriterion([get_risk("rad")], KINDS, "kiryo", gamma=2.0)


# --- Deep SAD ---------------------------------------------------------------------------------


def sad_objective(phi, y, c, eta, eps):
    """As the paper writes it: exponents +1 and -1 for labelled rows."""
    d = ((phi - c) ** 2).sum(axis=1)
    unlabelled, labelled = d[y == 0].sum(), ((d + eps) ** y)[y != 0].sum()
    return (unlabelled + eta * labelled) / len(y)


@pytest.mark.parametrize("eta", [1.0, 4.0])
def test_the_objective_of_deep_sad_over_all_rows(eta):
    y, phi, c = KINDS.numpy(), random(2, len(KINDS), 3), random(2, 3, seed=1)
    counts = torch.tensor([[3, 2, 4]] * 2)
    values = SADCriterion(c, KINDS, counts, eta, eps=1e-6).double()(phi).value
    expected = [sad_objective(phi[k].numpy(), y, c[k].numpy(), eta, 1e-6) for k in range(2)]
    np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_the_objective_of_deep_sad_is_kept_when_a_batch_has_other_shares():
    """Rows of a kind twice in the batch count no more than once."""
    phi, c, counts = random(1, len(KINDS), 3), random(1, 3, seed=1), torch.tensor([[3, 2, 4]])
    once = SADCriterion(c, KINDS, counts).double()(phi).value
    columns = torch.tensor([0, 1, 2, 0, 1, 2, 3, 4, 5, 6, 7, 8, 3, 4, 3, 4])
    twice = SADCriterion(c, KINDS[columns], counts).double()(phi[:, columns]).value
    torch.testing.assert_close(once, twice, rtol=1e-6, atol=0.0)


def test_the_square_criterion_is_the_mean_square():
    x = random(2, 5, 3)
    expected = [np.mean(x[k].numpy() ** 2) for k in range(2)]
    np.testing.assert_allclose(SquareCriterion()(x).objective, expected, rtol=1e-6)
