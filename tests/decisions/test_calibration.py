"""One cross-fit for thresholds, p-values and probabilities."""

from typing import ClassVar

import numpy as np
import pytest
from conftest import make_contaminated_rows
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, logit
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support.loops import each
from support.rows import label_first

import riskad
from riskad import InputError, ShallowRAD, calibrate
from riskad.decisions.anomaly_rate import as_rate_estimate
from riskad.decisions.calibration import Calibration, on_scale
from riskad.decisions.score_line import ScoreLine
from riskad.decisions.thresholds import AnomalyRate, RiskZero
from riskad.metrics.folds import cross_splits
from riskad.metrics.ranking import auc_with_interval


@pytest.fixture(scope="module")
def rows():
    return make_contaminated_rows(1500, shift=2.0, anomaly_rate=0.1, labelled=0.15)


@pytest.fixture(scope="module")
def model(rows):
    X, y, _ = rows
    return calibrate(ShallowRAD().fit(X, y), X, y)


class Recorder(ShallowRAD):
    """A detector that notes what it is fitted to, in scales that differ from fit to fit."""

    seen: ClassVar = []

    def fit(self, X, y=None, sample_weight=None):
        Recorder.seen.append({tuple(row) for row in np.asarray(X)})
        self.factor_ = 10.0 ** len(Recorder.seen)
        return super().fit(X, y)

    def _scores(self, X):
        return super()._scores(X) * getattr(self, "factor_", 1.0)


def test_held_out_rows_are_unseen_and_scales_are_reconciled(rows):
    X, y, _ = rows
    Recorder.seen = []
    odd = calibrate(Recorder().fit(X, y), X, y)
    assert len(Recorder.seen) == 6
    for row in map(tuple, X):
        assert sum(row not in seen for seen in Recorder.seen[1:]) == 1
    plain = calibrate(ShallowRAD().fit(X, y), X, y)
    assert_allclose(odd.calibration_.scores / 10, plain.calibration_.scores, rtol=1e-6)
    assert_array_equal(odd.calibration_.codes, y[y != 0])


def test_scores_beyond_all_shared_ones_keep_their_order():
    own = np.array([0.0, 1.0, 2.0])
    assert_allclose(on_scale(np.array([-1.0, 0.5, 3.0]), own, 10 * own), [-10, 5, 30])


def test_the_only_row_of_a_kind_is_in_every_fit():
    codes = np.repeat([1, -1, 0], [7, 1, 20])
    held = np.concatenate([held for _, held in cross_splits(codes)])
    assert sorted(held) == [*range(7), *range(8, 28)]
    assert not list(cross_splits(np.repeat([-1, 0], [1, 9])))


def test_few_labels_leave_what_they_cannot_tell_undone(rows):
    X, _, truth = rows
    y = label_first(truth, 30, 1)
    model = calibrate(ShallowRAD().fit(X, y), X, y)
    c = model.calibration_
    assert (len(c.normals), len(c.anomalies)) == (30, 0)
    assert c.rate.low < 1 / 31 < c.rate.high  # of the labels alone
    assert model.p_values(X).min() == pytest.approx(1 / 31)
    with pytest.raises(InputError, match="at least 2 labelled rows of each kind"):
        model.anomaly_probability(X)
    assert model.set_threshold("rate").threshold_ == AnomalyRate()


def test_labels_matter(model, rows):
    X, y, _ = rows
    y = y.copy()
    y[y != 0] = np.random.default_rng(0).permutation(y[y != 0])
    other = calibrate(ShallowRAD().fit(X, y), X, y)
    c = other.calibration_
    assert auc_with_interval(c.codes, c.scores).value < 0.7
    assert not np.allclose(other.p_values(X), model.p_values(X))


def test_uncalibrated_detectors_say_what_to_call(rows):
    X, y, _ = rows
    plain = ShallowRAD().fit(X, y)
    offset = plain.offset_
    assert plain.threshold_ == RiskZero()
    assert plain.set_threshold("risk").offset_ == offset
    for ask in (
        lambda: plain.p_values(X),
        lambda: plain.anomaly_probability(X),
        lambda: plain.select_anomalies(X),
        lambda: plain.set_threshold("top:5"),
    ):
        with pytest.raises(InputError, match=r"riskad\.calibrate\(model, X, y\)"):
            ask()


def test_a_new_fit_forgets_and_a_clone_has_nothing(rows):
    X, y, _ = rows
    model = calibrate(ShallowRAD().fit(X, y), X, y).set_threshold("top:5")
    zero = model.calibration_.zero
    assert not hasattr(clone(model), "calibration_")
    assert calibrate(model, X, y).threshold_.k == 5  # keeps what was chosen
    assert model.calibration_.zero == zero
    model.fit(X, y)
    assert not hasattr(model, "calibration_")
    assert model.threshold_ == RiskZero()
    assert_allclose(model.offset_, -zero)


def test_pipelines_are_calibrated_at_their_end(rows):
    X, y, _ = rows
    pipeline = make_pipeline(StandardScaler(), ShallowRAD(scale=False)).fit(X, y)
    calibrate(pipeline, X, y)
    detector, Z = pipeline[-1], pipeline[:-1].transform(X)
    assert detector.select_anomalies(Z, 0.2).n_selected > 0
    detector.set_threshold("rate:0.2")
    assert (pipeline.predict(X)[y == 0] == -1).mean() == pytest.approx(0.2, abs=0.001)


@each("what", [StandardScaler(), ShallowRAD()])
def test_what_is_not_a_fitted_detector_is_refused(what, rows):
    with pytest.raises(InputError, match="takes a fitted detector"):
        calibrate(what, *rows[:2])


def test_files_keep_all_of_it(tmp_path, rows):
    X, y, _ = rows
    model = calibrate(ShallowRAD().fit(X, y), X, y).set_threshold("cost:1:5")
    riskad.save(model, tmp_path / "model.riskad")
    loaded = riskad.load(tmp_path / "model.riskad")
    assert loaded.threshold_ == model.threshold_
    for method in ("predict", "p_values", "anomaly_probability"):
        assert_array_equal(getattr(loaded, method)(X), getattr(model, method)(X))
    assert loaded.set_threshold("risk").offset_ == -model.calibration_.zero


def gaussian_calibration(rng, n=4000, m=1000, pi_n=0.05):
    """Scores N(0, 1) of normals and N(2, 1) of anomalies: log r(s) = 2 s - 2."""
    scores = np.concatenate([rng.normal(0, 1, n), rng.normal(2, 1, m)])
    codes = np.repeat([1, -1], [n, m]).astype(np.int16)
    unlabelled = np.sort(rng.normal(0, 1, 2000) + 2 * (rng.random(2000) < pi_n))
    return Calibration(scores, codes, unlabelled, 2000, 0.0, as_rate_estimate(pi_n))


def test_probabilities_are_the_posterior_at_the_rate_of_the_unlabelled_rows():
    c = gaussian_calibration(np.random.default_rng(0))
    s = np.linspace(-2, 4, 13)
    assert_allclose(c.anomaly_probability(s), expit(2 * s - 2 + logit(0.05)), atol=0.03)


def test_probabilities_never_fall_with_the_score_even_if_labels_say_so():
    c = gaussian_calibration(np.random.default_rng(0))
    assert np.all(np.diff(c.anomaly_probability(np.linspace(-30, 30, 99))) >= 0)
    turned = Calibration(-c.scores, c.codes, c.unlabelled, c.n_unlabelled, 0.0, c.rate)
    assert_allclose(turned.anomaly_probability(np.array([-3.0, 3.0])), 0.05)


@pytest.mark.parametrize("anomalies", [3, 10, 15, 20, 60])
@pytest.mark.parametrize("between", [0, 10, 25])
def test_the_line_of_kinds_far_apart_is_that_of_another_solver(anomalies, between):
    """Newton's steps go to and fro there, and the slope would be that of no information."""
    parts = ((-1, 1, 485), (1, 5, between), (4, 6, anomalies))
    scores = np.concatenate([np.linspace(*part) for part in parts])
    anomalous = np.arange(len(scores)) >= 485 + between
    line = ScoreLine.through(scores, anomalous)
    z = (scores - scores.mean()) / scores.std()
    other = LogisticRegression(C=2.5**2, tol=1e-9, max_iter=1000).fit(z[:, None], anomalous)
    assert line.steepest * scores.std() == pytest.approx(float(other.coef_[0, 0]), rel=1e-4)
