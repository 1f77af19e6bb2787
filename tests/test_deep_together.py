"""Many detectors at once are each of them alone."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.exceptions import NotFittedError

import riskad
from riskad import NNPU, DeepRAD, DeepSAD
from riskad.core.checks import InputError
from riskad.core.labels import read_codes
from riskad.deep import Together

torch.set_num_threads(1)

RAD = {"module": "lenet-mnist", "n_steps": 12, "batch": (8, 4, 16), "check_every": 4}
MEMBERS = {
    "rad, held out": [
        DeepRAD(loss=loss, validation=0.3, random_state=4, **RAD) for loss in ("logistic",) * 3
    ],
    "rad": [
        DeepRAD(loss="logistic", random_state=1, **RAD),
        DeepRAD(loss="sigmoid", a=0.5, prior=0.9, random_state=2, **RAD),
        DeepRAD(loss="squared", random_state=3, **RAD),
    ],
    "pu": [NNPU("lenet-mnist", n_steps=12, batch=(8, 16), random_state=k) for k in range(3)],
    "sad": [
        DeepSAD("lenet-mnist", n_steps=6, pretrain_steps=6, batch=(4, 4, 8), random_state=k)
        for k in range(3)
    ],
}


def problem(n=240, dtype=np.uint8):
    """Images, and for each of three detectors rows and labels of its own."""
    rng = np.random.default_rng(0)
    truth = np.where(rng.random(n) < 0.2, -1, 1)
    X = rng.normal(100, 30, (n, 1, 8, 8)) + 50 * (truth == -1)[:, None, None, None]
    rows = [np.sort(rng.permutation(n)[: 150 + 20 * k]) for k in range(3)]
    labels = [np.where(rng.random(len(r)) < 0.4, truth[r], 0) for r in rows]
    return X.clip(0, 255).astype(dtype), rows, labels


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("kind", MEMBERS)
def test_together_is_each_alone(kind, scale):
    from sklearn.base import clone

    X, rows, labels = problem()
    members = [clone(member).set_params(scale=scale) for member in MEMBERS[kind]]
    team = Together(members, deterministic=True).fit(X, rows, labels)
    scores = team.score_samples(X)
    assert scores.shape == (3, len(X))
    for k, member in enumerate(MEMBERS[kind]):
        alone = clone(member).set_params(scale=scale).fit(X[rows[k]], labels[k])
        expected = alone.score_samples(X)
        np.testing.assert_allclose(scores[k], expected, rtol=2e-3, atol=2e-3 * np.ptp(expected))
        assert team.n_steps_[k] == alone.n_steps_
        assert team.best_step_[k] == alone.best_step_
        handed = team.detector(k)
        np.testing.assert_allclose(handed.score_samples(X), scores[k], rtol=1e-4, atol=1e-5)
        assert set(handed.history_) == set(alone.history_)
        assert set(vars(handed)) == set(vars(alone))
        assert np.mean(handed.predict(X) == alone.predict(X)) > 0.98


def test_tables_far_from_zero_keep_their_precision():
    rng = np.random.default_rng(0)
    X = rng.normal(1e9, 1.0, (300, 3))
    y = np.where(rng.random(300) < 0.5, np.where(X[:, 0] > 1e9 + 1, -1, 1), 0)
    members = [DeepRAD(n_steps=10, random_state=k) for k in range(2)]
    rows = [np.arange(200), np.arange(100, 300)]
    team = Together(members).fit(X, rows, [y[r] for r in rows])
    for k in range(2):
        alone = DeepRAD(n_steps=10, random_state=k).fit(X[rows[k]], y[rows[k]])
        expected = alone.score_samples(X)
        np.testing.assert_allclose(team.score_samples(X)[k], expected, atol=1e-3)


def test_bytes_are_brightness():
    X, rows, labels = problem()
    one = DeepRAD(random_state=0, scale=False, **RAD)
    of_bytes = Together([one]).fit(X, rows[:1], labels[:1]).score_samples(X)
    floats = X.astype(np.float32) / 255
    np.testing.assert_allclose(
        Together([one]).fit(floats, rows[:1], labels[:1]).score_samples(floats), of_bytes, atol=1e-5
    )


def test_settings_that_must_agree():
    with pytest.raises(InputError, match="n_steps=5 and 6"):
        Together([DeepRAD(n_steps=5), DeepRAD(n_steps=6)])
    with pytest.raises(InputError, match="DeepRAD and NNPU"):
        Together([DeepRAD(), NNPU()])
    with pytest.raises(InputError, match="no detectors"):
        Together([])
    with pytest.raises(InputError, match="trained together, got"):
        Together(["detector"])
    with pytest.raises(InputError, match="trained alone"):
        Together([DeepRAD(torch.nn.Linear(2, 1))])
    with pytest.raises(InputError, match="warm_start"):
        Together([DeepRAD(warm_start=True)])
    assert Together.key(DeepRAD(prior=0.9, loss="sigmoid")) == Together.key(DeepRAD(a=0.5))
    assert Together.key(DeepRAD(hidden=[4])) == Together.key(DeepRAD(hidden=(4,)))


def test_what_is_handed_out_can_be_stored(tmp_path):
    X, rows, labels = problem()
    team = Together(MEMBERS["rad"]).fit(X, rows, labels)
    riskad.save(team.detector(1), tmp_path / "one.riskad")
    again = riskad.load(tmp_path / "one.riskad")
    assert np.array_equal(again.score_samples(X), team.detector(1).score_samples(X))


def test_before_fit():
    for ask in (lambda team: team.score_samples([[0.0]]), lambda team: team.detector(0)):
        with pytest.raises(NotFittedError, match="call fit first"):
            ask(Together([DeepRAD()]))


@pytest.mark.parametrize(
    ("rows", "labels", "message"),
    [
        ([np.arange(5)], [[1, -1, 0, 0, 0]], "2 arrays each, got 1 and 1"),
        ([np.arange(5), [300]], [[1, -1, 0, 0, 0], [1]], "between 0 and 239, .* got 300 to 300"),
        ([np.arange(5), [-1]], [[1, -1, 0, 0, 0], [1]], "got -1 to -1"),
        ([np.arange(5), [0.5]], [[1, -1, 0, 0, 0], [1]], "whole numbers"),
        ([np.arange(5), []], [[1, -1, 0, 0, 0], []], "whole numbers"),
        ([np.arange(5), [1]], [[1, -1, 0, 0, 0], [-1, 0]], "has 1 rows and labels.1. 2 labels"),
    ],
)
def test_rows_and_labels_that_do_not_fit(rows, labels, message):
    with pytest.raises(InputError, match=message):
        Together([DeepRAD(**RAD), DeepRAD(**RAD)]).fit(problem()[0], rows, labels)


def test_kinds_must_be_the_same_for_deep_sad():
    X, rows, labels = problem()
    with pytest.raises(InputError, match="same kinds of rows"):
        Together(MEMBERS["sad"][:2]).fit(X, rows[:2], [labels[0], read_codes(np.abs(labels[1]))])


def test_labels_that_cannot_be_fitted():
    X, rows, labels = problem()
    no_anomaly = [labels[0], read_codes(np.abs(labels[1]))]
    with pytest.raises(InputError, match="anom"):
        Together([DeepRAD(**RAD), DeepRAD(**RAD)]).fit(X, rows[:2], no_anomaly)
    single = np.where(np.arange(len(labels[1])) == 0, -1, np.abs(labels[1]))
    with pytest.raises(InputError, match="1 of 2 networks"):
        Together([DeepRAD(validation=0.2, **RAD)] * 2).fit(X, rows[:2], [labels[0], single])
