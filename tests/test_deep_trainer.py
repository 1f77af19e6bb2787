"""The loop: K together are each alone, what is best is kept, seeds decide everything."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn

from riskad.core.checks import InputError
from riskad.core.risks import get_risk
from riskad.deep.batches import Draws, NetworkRows, hold_out, pools_of
from riskad.deep.criteria import RiskCriterion
from riskad.deep.nets import ARCHITECTURES, ModuleStack, StackedNet, find_architecture
from riskad.deep.trainer import Settings, Validation, choose_device, evaluate, train

torch.set_num_threads(1)
CPU = torch.device("cpu")
SIZES = {1: 8, -1: 6, 0: 16}
RISKS = [
    get_risk("nnrad", "logistic", a=0.1, prior=0.8),
    get_risk("rad", "squared", a=0.5, prior=0.9),
    get_risk("nnrad", "sigmoid", a=0.9, prior=0.7),
]
SEEDS = [0, 10, 20]
NETS = {
    "mlp": (find_architecture("mlp", (16, 8)), (5,)),
    "lenet": (ARCHITECTURES["lenet-mnist"], (1, 8, 8)),
}


def problem(shape, n=300, seed=0):
    """Rows of normals and shifted anomalies, and for each of three networks labels of its own."""
    rng = np.random.default_rng(seed)
    anomalous = rng.random(n) < 0.2
    data = rng.standard_normal((n, *shape)) + anomalous.reshape(-1, *[1] * len(shape))
    truth = np.where(anomalous, -1, 1)
    codes = [np.where(rng.random(n) < 0.3, truth, 0) for _ in SEEDS]
    return (
        NetworkRows(torch.tensor(data, dtype=torch.float32)),
        [torch.tensor(y) for y in codes],
        truth,
    )


def fit(kind, members, settings, share=0.3, **options):
    """Train the networks `members` of the three together."""
    architecture, shape = NETS[kind]
    data, codes, _ = problem(shape)
    parts = [hold_out(pools_of(codes[k]), share, SEEDS[k]) for k in members]
    seeds, risks = [SEEDS[k] for k in members], [RISKS[k] for k in members]
    centred = [risk.loss.bounded for risk in risks]
    stack = StackedNet(architecture, shape, seeds, centred=centred)
    draws = Draws([left for left, _ in parts], SIZES, seeds)
    validation = Validation([held for _, held in parts], risks, CPU) if share else None
    criterion = RiskCriterion(risks, draws.kinds, "kiryo")
    history = train(stack, criterion, data, draws, settings, validation, **options)
    return stack, history, evaluate(stack, data)


@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("kind", NETS)
def test_training_together_is_training_each_alone(kind, share):
    settings = Settings(n_steps=30, learning_rate=3e-3, check_every=3, patience=3)
    _, history, scores = fit(kind, [0, 1, 2], settings, share)
    stops = set()
    for k in range(3):
        _, own, alone = fit(kind, [k], settings, share)
        torch.testing.assert_close(scores[k], alone[0], rtol=1e-3, atol=1e-4)
        assert history.n_steps[k] == own.n_steps[0]
        assert history.best_step[k] == own.best_step[0]
        together = history.risk[: len(own.risk), k]
        np.testing.assert_allclose(together, own.risk[:, 0], rtol=1e-4, atol=1e-5)
        stops.add(int(own.n_steps[0]))
    if share == 0:
        assert stops == {30}


def test_a_network_that_has_stopped_stays_while_others_go_on():
    settings = Settings(n_steps=60, learning_rate=1e-2, check_every=2, patience=2)
    _, history, _ = fit("mlp", [0, 1, 2], settings)
    assert len(set(history.n_steps.tolist())) > 1
    for k in range(3):
        after = history.step > history.n_steps[k]
        assert np.isnan(history.risk[after, k]).all()
        assert np.isfinite(history.validation[~after, k]).all()
        assert history.best_step[k] == history.step[np.nanargmin(history.validation[:, k])]


def test_the_parameters_at_the_best_check_are_kept():
    settings = Settings(n_steps=300, learning_rate=3e-2, check_every=5, patience=3)
    stack, history, _ = fit("mlp", [0], settings)
    best = int(history.best_step[0])
    assert best < history.n_steps[0] < 300
    until_best = Settings(n_steps=best, learning_rate=3e-2, check_every=5, patience=3)
    again, _, _ = fit("mlp", [0], until_best)
    for one, other in zip(stack.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_validation_is_the_core_risk_of_the_held_out_rows():
    architecture, shape = NETS["mlp"]
    data, codes, _ = problem(shape)
    shares = 0.1, 0.5, 0.3
    held = [hold_out(pools_of(codes[k]), share, 0)[1] for k, share in enumerate(shares)]
    stack = StackedNet(architecture, shape, SEEDS)
    values = Validation(held, RISKS, CPU)(stack, data)
    scores = evaluate(stack, data)
    for k, risk in enumerate(RISKS):
        rows = torch.cat(list(held[k].values()))
        expected = risk.value(scores[k, rows], codes[k][rows])
        torch.testing.assert_close(values[k], expected)
    assert stack.training


def test_evaluation_in_parts_is_evaluation_at_once(monkeypatch):
    architecture, shape = NETS["lenet"]
    data = problem(shape)[0]
    stack = StackedNet(architecture, shape, SEEDS)
    whole = evaluate(stack, data)
    monkeypatch.setattr("riskad.deep.trainer._ROWS_AT_ONCE", {"cpu": 50})
    torch.testing.assert_close(evaluate(stack, data), whole)
    rows = torch.randint(len(data), (3, 40), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(evaluate(stack, data, rows), whole.gather(1, rows))


def test_the_same_seed_gives_the_same_bits_and_another_seed_others():
    settings = Settings(n_steps=10)
    first, again = (fit("lenet", [0, 1, 2], settings)[2] for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.allclose(first[0], first[1])


def test_the_global_generator_is_neither_read_nor_moved():
    torch.manual_seed(1)
    first = fit("mlp", [0], Settings(n_steps=5))[2]
    state = torch.get_rng_state()
    again = fit("mlp", [0], Settings(n_steps=5))[2]
    assert torch.equal(first, again)
    assert torch.equal(state, torch.get_rng_state())


def test_training_learns():
    settings = Settings(n_steps=150, learning_rate=3e-3)
    _, history, scores = fit("mlp", [0, 1, 2], settings, share=0.0)
    truth = problem((5,))[2]
    for k in range(3):
        normal, anomalous = scores[k, truth == 1], scores[k, truth == -1]
        assert (normal[:, None] > anomalous).double().mean() > 0.75
        assert history.risk[-1, k] < history.risk[0, k]


def test_a_callback_hears_of_every_check():
    heard = []
    _, history, _ = fit("mlp", [0, 1], Settings(n_steps=12, check_every=5), callback=heard.append)
    assert [progress.step for progress in heard] == [5, 10, 12] == history.step.tolist()
    assert heard[0].n_steps == 12
    for row, progress in enumerate(heard):
        np.testing.assert_array_equal(progress.risk, history.risk[row])
        np.testing.assert_array_equal(progress.validation, history.validation[row])


def test_the_schedule():
    constant, cosine = Settings(n_steps=10), Settings(n_steps=10, schedule="cosine")
    assert {constant.rate(step) for step in range(10)} == {1e-3}
    assert cosine.rate(0) == 1e-3
    assert cosine.rate(5) == pytest.approx(5e-4)
    assert 0 < cosine.rate(9) < 1e-4
    scores = [fit("mlp", [0], settings)[2] for settings in (constant, cosine)]
    assert not torch.allclose(*scores)


def test_weight_decay_shrinks_weights():
    sizes = []
    for decay in (0.0, 1.0):
        stack, _, _ = fit("mlp", [0], Settings(n_steps=60, weight_decay=decay), share=0.0)
        sizes.append(stack.representation.weight.square().sum().item())
    assert sizes[1] < 0.5 * sizes[0]


def test_a_module_of_ones_own_is_trained_and_its_best_kept():
    data, codes, _ = problem((5,))
    left, held = hold_out(pools_of(codes[0]), 0.3, 0)
    module = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    stack, draws = ModuleStack(module), Draws([left], SIZES, [0])
    criterion, settings = RiskCriterion(RISKS[:1], draws.kinds), Settings(n_steps=30)
    validation = Validation([held], RISKS[:1], CPU)
    history = train(stack, criterion, data, draws, settings, validation)
    best = validation(stack, data)
    assert best.item() == pytest.approx(np.nanmin(history.validation))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_steps": 0}, "n_steps must be a whole number >= 1, got 0"),
        ({"check_every": 2.5}, "check_every must be a whole number"),
        ({"patience": True}, "patience must be a whole number"),
        ({"learning_rate": 0}, "learning_rate must be a number strictly between 0 and inf"),
        ({"weight_decay": -1}, "weight_decay"),
        ({"schedule": "cosin"}, "Did you mean 'cosine'"),
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
