"""The methods compared with: against independent solutions, and by scikit-learn's contract."""

import clarabel
import numpy as np
import pandas as pd
import pytest
from conftest import make_contaminated_rows
from scipy import sparse
from sklearn import svm
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.contract import TranslatesScore, as_codes

from riskad.core.checks import InputError
from riskad.core.labels import read_codes
from riskad.detectors import one_class_svm
from riskad.detectors.one_class_svm import OneClassSVM, SemiSupervisedOneClassSVM
from riskad.detectors.shallow import ShallowRAD
from riskad.detectors.shallow_pu import ShallowPU

METHODS = {
    "one_class": OneClassSVM(),
    "one_class_of_the_rest": OneClassSVM(use_labels=True),
    "laplacian": SemiSupervisedOneClassSVM(),
    "biased": SemiSupervisedOneClassSVM("biased"),
    "biased_normal": SemiSupervisedOneClassSVM("biased", unlabelled="normal"),
    "pu": ShallowPU(),
}
KERNEL_METHODS = [name for name in METHODS if name != "pu"]
LABELLED = [name for name in METHODS if name != "one_class"]


def standardised(X):
    return (X - X.mean(axis=0)) / X.std(axis=0)


# --- what all of them do ------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_anomalies_rank_below_normals(name):
    X, y, truth = make_contaminated_rows(anomaly_rate=0.05, labelled=0.6, shift=3.0)
    scores = clone(METHODS[name]).fit(X, y).score_samples(X)
    assert np.isfinite(scores).all()
    assert roc_auc_score(truth, scores) > 0.9


@pytest.mark.parametrize("name", ["laplacian", "biased", "pu"])
def test_decisions_are_better_than_calling_all_normal(name):
    X, y, truth = make_contaminated_rows(1000, labelled=0.6, shift=3.0)
    assert (clone(METHODS[name]).fit(X, y).predict(X) == truth).mean() > 0.85


@pytest.mark.parametrize("name", LABELLED)
def test_labels_matter(name):
    X, y, _ = make_contaminated_rows()
    original, shuffled = (
        clone(METHODS[name]).fit(X, labels).score_samples(X)
        for labels in (y, np.random.default_rng(0).permutation(y))
    )
    assert not np.allclose(original, shuffled, atol=0.05 * original.std())


def test_as_published_the_one_class_svm_ignores_labels(contaminated_rows):
    X, y, _ = contaminated_rows
    plain = OneClassSVM().fit(X).score_samples(X)
    np.testing.assert_array_equal(plain, OneClassSVM().fit(X, y).score_samples(X))
    np.testing.assert_array_equal(plain, OneClassSVM().fit(X, ["?"] * len(X)).score_samples(X))


@pytest.mark.parametrize("name", METHODS)
def test_the_direction_of_each_score(name, contaminated_rows):
    X, y, _ = contaminated_rows
    model = clone(METHODS[name]).fit(X, y)
    scores, decision = model.score_samples(X), model.decision_function(X)
    np.testing.assert_array_equal(decision, scores - model.offset_)
    np.testing.assert_array_equal(model.predict(X), np.where(decision >= 0, 1, -1))
    np.testing.assert_array_equal(model.anomaly_score(X), -scores)
    np.testing.assert_array_equal(clone(model).fit_predict(X, y), model.predict(X))


@pytest.mark.parametrize("name", METHODS)
def test_parameters_survive_a_round_trip(name):
    model = METHODS[name]
    parameters = model.get_params()
    assert clone(model).get_params() == parameters
    assert type(model)(**parameters).get_params() == parameters
    assert type(model)().set_params(**parameters).get_params() == parameters


@pytest.mark.parametrize("name", METHODS)
def test_the_order_of_rows_does_not_matter(name, contaminated_rows):
    X, y, _ = contaminated_rows
    model = METHODS[name] if name != "pu" else ShallowPU(lam=0.1)  # folds go by order
    order = np.random.default_rng(0).permutation(len(X))
    scores = clone(model).fit(X, y).score_samples(X)
    other = clone(model).fit(X[order], y[order]).score_samples(X)
    np.testing.assert_allclose(other, scores, atol=0.05 * scores.std())  # libsvm stops early


@pytest.mark.parametrize("name", METHODS)
def test_scale_is_learned_from_training_rows_and_does_away_with_units(name, contaminated_rows):
    X, y, _ = contaminated_rows
    factors = np.array([1e-4, 1.0, 1e2, 1e4])
    model = clone(METHODS[name]).fit(X, y)
    scores = model.score_samples(X)
    np.testing.assert_allclose(model.score_samples(X[:7]), scores[:7], atol=1e-9)
    assert not np.allclose(model.score_samples(X + 5), scores, rtol=0.05)
    rescaled = clone(model).fit(X * factors - 3, y).score_samples(X * factors - 3)
    np.testing.assert_allclose(rescaled, scores, atol=0.01 * scores.std())
    raw = clone(model).set_params(scale=False).fit(X, y).score_samples(X)
    assert not np.allclose(raw, scores, rtol=0.05)


@pytest.mark.parametrize("name", METHODS)
def test_frames_and_pipelines_work(name, contaminated_rows):
    X, y, _ = contaminated_rows
    table = pd.DataFrame(X, columns=["age", "income", "visits", "balance"])
    model = clone(METHODS[name]).fit(table, y)
    assert list(model.feature_names_in_) == list(table)
    expected = clone(METHODS[name]).fit(X, y).score_samples(X)
    # Means of columns round by their layout, and libsvm ends within 1e-3 of optimality.
    np.testing.assert_allclose(model.score_samples(table), expected, atol=0.01 * expected.std())
    pipeline = make_pipeline(StandardScaler(), clone(METHODS[name])).fit(table, y)
    np.testing.assert_allclose(pipeline.score_samples(table), expected, atol=0.01 * expected.std())


@pytest.mark.parametrize("name", ["laplacian", "biased", "biased_normal"])
def test_the_seed_decides_which_rows_of_the_unlabelled_rows_are_used(name, contaminated_rows):
    X, y, _ = contaminated_rows
    model = clone(METHODS[name]).set_params(unlabelled_rows=50)
    first, same, other = (
        clone(model).set_params(random_state=seed).fit(X, y).score_samples(X) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, same)
    assert not np.allclose(first, other)
    drawn = np.random.default_rng(1).choice(np.flatnonzero(y == 0), 50, replace=False)
    rows = np.union1d(np.flatnonzero(y), drawn)
    Z = standardised(X)
    alone = clone(model).set_params(scale=False).fit(Z[rows], y[rows]).score_samples(Z)
    np.testing.assert_allclose(first, alone, atol=0.01 * first.std())


@pytest.mark.parametrize("name", KERNEL_METHODS)
def test_rows_far_away_are_anomalies_and_constant_columns_change_only_the_width(
    name, contaminated_rows
):
    X, y, _ = contaminated_rows
    model = clone(METHODS[name]).fit(X, y)
    assert model.score_samples(np.full((1, 4), 1e300)) == 0.0
    wider = clone(model).fit(np.column_stack([X, np.full(len(X), 7.0)]), y)
    assert wider.gamma_ == 1 / 5
    same = clone(model).set_params(gamma=1 / 4).fit(np.column_stack([X, np.full(len(X), 7.0)]), y)
    np.testing.assert_allclose(
        same.score_samples(np.column_stack([X, X[:, 0]])), model.score_samples(X), atol=1e-9
    )


# --- one-class SVM ------------------------------------------------------------------------


def test_the_one_class_svm_is_scikit_learn_s_on_standardised_columns(contaminated_rows):
    X, y, _ = contaminated_rows
    Z = standardised(X)
    for nu in (0.1, 0.5):
        expected = svm.OneClassSVM(nu=nu, gamma=1 / 4).fit(Z)
        model = OneClassSVM(nu).fit(X, y)
        np.testing.assert_allclose(model.score_samples(X), expected.score_samples(Z), rtol=1e-6)
        assert model.offset_ == pytest.approx(expected.offset_[0])
        np.testing.assert_array_equal(model.predict(X), expected.predict(Z))


def test_leaving_anomalies_out_is_fitting_to_the_rest(contaminated_rows):
    X, y, _ = contaminated_rows
    expected = OneClassSVM(gamma=0.3).fit(X[y != -1]).score_samples(X)
    found = OneClassSVM(gamma=0.3, use_labels=True).fit(X, y).score_samples(X)
    np.testing.assert_array_equal(found, expected)


# --- the Laplacian kernel -----------------------------------------------------------------


def conic_dual(K, signed_costs):
    """s, rho and the value of min 1/2 s'Ks, sum s = 1, s between 0 and its signed cost."""
    n = len(K)
    eye = np.eye(n)
    A = sparse.csc_array(np.vstack([np.ones((1, n)), eye, -eye]))
    b = np.concatenate([[1.0], np.maximum(signed_costs, 0), -np.minimum(signed_costs, 0)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(2 * n)]
    P = sparse.csc_array(np.triu(K))
    solution = clarabel.DefaultSolver(P, np.zeros(n), A, b, cones, settings).solve()
    return np.array(solution.x), -solution.z[0], solution.obj_val


def costs_of(y, nu=0.1, anomaly_cost=1.0):
    C_p = 1 / (nu * (y == 1).sum())
    return np.where(y == 1, C_p, -anomaly_cost * C_p)


@pytest.mark.parametrize("anomaly_cost", [0.1, 1.0, 20.0])
@pytest.mark.parametrize("nu", [0.03, 0.3, 0.9])
def test_the_dual_reaches_the_conic_optimum(nu, anomaly_cost):
    X, _, truth = make_contaminated_rows(150, shift=0.7)
    K = rbf_kernel(standardised(X), gamma=1 / 4)
    costs = costs_of(truth, nu, anomaly_cost)
    s, rho = one_class_svm._one_class_dual(K, costs)
    _, expected_rho, value = conic_dual(K, costs)
    assert s.sum() == pytest.approx(1)
    assert (s * costs >= 0).all()
    assert (np.abs(s) <= np.abs(costs) * (1 + 1e-12)).all()
    assert s @ K @ s / 2 == pytest.approx(value, rel=1e-5)
    assert rho == pytest.approx(expected_rho, rel=1e-4)
    assert (s[truth == -1] < 0).any()
    # Strong duality: the primal objective at (s, rho) is minus the dual's.
    xi = np.maximum(0, truth * (rho - K @ s))
    assert s @ K @ s / 2 - rho + np.abs(costs) @ xi == pytest.approx(-value, rel=1e-3)


def test_the_level_between_empty_and_full_boxes():
    scores = np.array([1.0, 2.0, 4.0, 6.0])
    assert one_class_svm._level(scores, np.array([1.0, 1.0, 0.0, 0.0])) == 3.0
    assert one_class_svm._level(scores, np.array([1.0, 0.5, 0.0, 0.0])) == 2.0


def dense_laplacian(Z, n_neighbors):
    distance = ((Z[:, None] - Z) ** 2).sum(axis=2)
    np.fill_diagonal(distance, np.inf)
    W = np.zeros_like(distance)
    for i, nearest in enumerate(np.argsort(distance, axis=1)[:, :n_neighbors]):
        W[i, nearest] = W[nearest, i] = 1
    degree = W.sum(axis=1)
    return np.eye(len(Z)) - W / np.sqrt(np.outer(degree, degree))


@pytest.mark.parametrize("manifold", [0.0, 0.05, 1.0, 30.0])
def test_the_deformed_kernel_is_that_of_the_direct_formula(manifold):
    X, y, _ = make_contaminated_rows(200, shift=0.7, labelled=0.4)
    model = SemiSupervisedOneClassSVM(manifold=manifold, n_neighbors=6, nu=0.3).fit(X, y)
    Z = standardised(X)
    K = rbf_kernel(Z, gamma=1 / 4)
    M = manifold * dense_laplacian(Z, 6)
    deformed = K - K @ np.linalg.inv(np.eye(200) + M @ K) @ M @ K
    labelled = y != 0
    s, rho, _ = conic_dual(deformed[np.ix_(labelled, labelled)], costs_of(y[labelled], 0.3))
    expected = deformed[:, labelled] @ s
    np.testing.assert_allclose(model.score_samples(X), expected, atol=1e-4 * expected.max())
    assert model.offset_ == pytest.approx(rho, rel=1e-3)
    x = standardised(X)[:20] + 0.3  # rows that are not in the graph
    k_x = rbf_kernel(x, Z, gamma=1 / 4)
    off_graph = (k_x - k_x @ np.linalg.solve(np.eye(200) + M @ K, M @ K))[:, labelled] @ s
    scores = model.score_samples(x * X.std(axis=0) + X.mean(axis=0))
    np.testing.assert_allclose(scores, off_graph, atol=1e-4 * expected.max())


def test_without_graph_and_anomalies_it_is_the_one_class_svm_of_the_normals():
    X, y, _ = make_contaminated_rows(labelled=0.5)
    y = read_codes(np.abs(y))
    model = SemiSupervisedOneClassSVM(manifold=0).fit(X, y)
    Z = standardised(X)
    expected = svm.OneClassSVM(nu=0.1, gamma=1 / 4, tol=1e-8).fit(Z[y == 1])
    scale = 0.1 * (y == 1).sum()
    np.testing.assert_allclose(
        model.score_samples(X) * scale, expected.score_samples(Z), rtol=1e-4, atol=1e-4
    )
    assert model.offset_ * scale == pytest.approx(expected.offset_[0], rel=1e-4)


@pytest.mark.parametrize("nu", [0.05, 0.3])
def test_nu_bounds_the_share_of_normals_that_fall_out(nu):
    X, y, _ = make_contaminated_rows(labelled=0.5)
    model = SemiSupervisedOneClassSVM(nu=nu).fit(X, read_codes(np.abs(y)))
    margin = model.decision_function(X[y != 0]) / model.offset_
    assert (margin < -1e-5).mean() <= nu <= (margin < 1e-5).mean()


def test_costlier_anomalies_are_pushed_further_out():
    X, y, _ = make_contaminated_rows(shift=1.0)
    found = [
        SemiSupervisedOneClassSVM(anomaly_cost=cost).fit(X, y).predict(X[y == -1]).mean()
        for cost in (0.01, 1.0, 100.0)
    ]
    assert found[0] > found[1] > found[2]


def test_a_graph_of_few_rows_joins_them_all():
    X, y, _ = make_contaminated_rows(8, labelled=1.0)
    X, y = X[:5], read_codes([1, 1, 1, 0, 0])
    assert np.isfinite(SemiSupervisedOneClassSVM(n_neighbors=50).fit(X, y).score_samples(X)).all()


def test_the_unlabelled_rows_carries_labels_along_a_ring():
    """Two rings, a few labelled rows at one end: only the graph knows how they go on."""
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 600)
    inner = rng.random(600) < 0.5
    X = np.column_stack([np.cos(angle), np.sin(angle)]) * np.where(inner, 1.0, 2.0)[:, None]
    X += 0.05 * rng.standard_normal(X.shape)
    truth = np.where(inner, 1, -1)
    y = np.where(np.abs(angle - np.pi) < 0.5, truth, 0)
    with_graph, without = (
        roc_auc_score(
            truth,
            SemiSupervisedOneClassSVM(gamma=2.0, manifold=manifold).fit(X, y).score_samples(X),
        )
        for manifold in (30.0, 0.0)
    )
    assert with_graph > 0.9 > without + 0.1


# --- the biased SVM -----------------------------------------------------------------------


# libsvm ends within 1e-3 of optimality, and where within hangs on the rounding of its input.
LIBSVM = 3e-3


def test_the_biased_svm_is_an_svc_with_these_costs(contaminated_rows):
    X, y, _ = contaminated_rows
    n_p, n_u = (y == 1).sum(), (y == 0).sum()
    C_p = 3 * n_u / n_p
    weight = np.select([y == 1, y == -1], [C_p, 0.5 * C_p], 1.0)
    Z = standardised(X)
    expected = svm.SVC(C=0.7, gamma=1 / 4).fit(Z, np.where(y == 1, 1, -1), sample_weight=weight)
    model = SemiSupervisedOneClassSVM("biased", C=0.7, bias=3, anomaly_cost=0.5).fit(X, y)
    np.testing.assert_allclose(
        model.decision_function(X), expected.decision_function(Z), atol=LIBSVM
    )


def test_with_the_unlabelled_rows_as_normal_it_is_a_plain_svc(contaminated_rows):
    X, y, _ = contaminated_rows
    Z = standardised(X)
    expected = svm.SVC(gamma=1 / 4).fit(Z, np.where(y == -1, -1, 1))
    model = SemiSupervisedOneClassSVM("biased", unlabelled="normal").fit(X, y)
    np.testing.assert_allclose(
        model.decision_function(X), expected.decision_function(Z), atol=LIBSVM
    )


def test_without_unlabelled_rows_normals_and_anomalies_cost_the_same(contaminated_rows):
    X, _, truth = contaminated_rows
    Z = standardised(X)
    expected = svm.SVC(gamma=1 / 4).fit(Z, truth)
    for side in ("outside", "normal"):
        model = SemiSupervisedOneClassSVM("biased", unlabelled=side).fit(X, truth)
        found = model.decision_function(X)
        np.testing.assert_allclose(found, expected.decision_function(Z), atol=LIBSVM)


def test_bias_two_decides_like_bayes_where_few_rows_are_anomalous():
    X, y, truth = make_contaminated_rows(2000, 2, anomaly_rate=0.1, labelled=0.2, shift=4.0)
    y = read_codes(np.maximum(y, 0))  # no anomaly is known
    predicted = SemiSupervisedOneClassSVM("biased").fit(X, y).predict(X)
    assert (predicted == truth).mean() > 0.95


# --- PU -----------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["squared", "hinge", "modified_huber"])
@pytest.mark.parametrize("lam", ["cv", 0.05])
def test_pu_is_the_pu_risk_with_the_anomalies_in_the_unlabelled_rows(loss, lam):
    X, y, _ = make_contaminated_rows(200)
    weight = np.random.default_rng(0).uniform(0.5, 2, len(X))
    model = ShallowPU(loss, prior=0.7, lam=lam).fit(X, y, sample_weight=weight)
    expected = ShallowRAD(loss, risk="pu", prior=0.7, lam=lam)
    expected.fit(X, read_codes(np.maximum(y, 0)), sample_weight=weight)
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    assert model.offset_ == expected.offset_
    assert set(model.risk_parts_) == {
        "normal as normal",
        "unlabelled as anomaly",
        "normal as anomaly",
        "total",
    }


def test_pu_has_no_parameters_that_mean_nothing_to_it():
    assert not {"a", "risk", "penalty"} & set(ShallowPU().get_params())
    with pytest.raises(ValueError, match="Invalid parameter 'a'"):
        ShallowPU().set_params(a=0.5)


# --- what they say ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (OneClassSVM(nu=0), "nu must be .* between 0 and 1, got 0"),
        (OneClassSVM(nu=1.5), "nu must be"),
        (OneClassSVM(gamma=-1), "gamma must be .*got -1. None is 1 / n_features"),
        (OneClassSVM(gamma="scale"), "gamma must be"),
        (SemiSupervisedOneClassSVM("laplace"), "Did you mean 'laplacian'"),
        (SemiSupervisedOneClassSVM("bias"), "Did you mean 'biased'"),
        (SemiSupervisedOneClassSVM("biased", unlabelled="outsider"), "Did you mean 'outside'"),
        (SemiSupervisedOneClassSVM(nu=1), "nu must be"),
        (SemiSupervisedOneClassSVM(manifold=-1), "manifold must be"),
        (SemiSupervisedOneClassSVM(C=0), "C must be"),
        (SemiSupervisedOneClassSVM(bias="high"), "bias must be"),
        (SemiSupervisedOneClassSVM(anomaly_cost=0), "anomaly_cost must be"),
        (SemiSupervisedOneClassSVM(n_neighbors=0), "n_neighbors must be a whole number >= 1"),
        (
            SemiSupervisedOneClassSVM(unlabelled_rows=2.5),
            "unlabelled_rows must be a whole number >= 1",
        ),
        (ShallowPU("hinges"), "Did you mean 'hinge'"),
        (ShallowPU(prior=1), "prior must be"),
        (ShallowPU(lam="theorem"), "Theorem 1 has no value for the pu risk.*lam='cv'"),
    ],
)
def test_a_wrong_setting_is_explained(contaminated_rows, model, message):
    X, y, _ = contaminated_rows
    with pytest.raises(InputError, match=message):
        model.fit(X, y)


NO_NORMAL = r"needs a labelled normal row \(\+1\), and y has none \(0 normal"
NO_ANOMALY = r"needs a labelled anomaly \(-1\), and y has none .* OneClassSVM\(\) needs no labels"


@pytest.mark.parametrize(
    ("name", "kinds", "message"),
    [
        ("laplacian", [0, -1], NO_NORMAL),
        ("biased", [0, -1], NO_NORMAL),
        ("biased", [1], "needs an unlabelled row .* or a labelled anomaly"),
        ("biased_normal", [0, 1], NO_ANOMALY),
        ("biased_normal", [-1], "needs a labelled normal row .* or an unlabelled row"),
        ("one_class_of_the_rest", [-1], "needs a labelled normal row .* or an unlabelled row"),
        ("pu", [0, -1], NO_NORMAL),
        ("pu", [1], "needs an unlabelled row .* or a labelled anomaly"),
    ],
)
def test_a_missing_kind_of_row_is_named(contaminated_rows, name, kinds, message):
    X = contaminated_rows[0]
    with pytest.raises(InputError, match=message):
        clone(METHODS[name]).fit(X, read_codes(np.resize(kinds, len(X))))


@pytest.mark.parametrize(
    ("name", "kinds"),
    [("laplacian", [1]), ("laplacian", [1, -1]), ("biased", [1, 0]), ("biased_normal", [-1, 0])],
)
def test_kinds_that_are_not_needed_may_be_absent(contaminated_rows, name, kinds):
    X = contaminated_rows[0]
    model = clone(METHODS[name]).fit(X, read_codes(np.resize(kinds, len(X))))
    assert np.isfinite(model.score_samples(X)).all()


@pytest.mark.parametrize("name", LABELLED)
def test_labels_are_asked_for(contaminated_rows, name):
    with pytest.raises(InputError, match="requires y to be passed"):
        clone(METHODS[name]).fit(contaminated_rows[0])


@pytest.mark.parametrize("name", METHODS)
def test_gaps_and_infinities_are_located(name):
    X, y, _ = make_contaminated_rows(80, labelled=0.6)
    table = pd.DataFrame(X, columns=["age", "income", "visits", "balance"])
    model = clone(METHODS[name]).fit(table, y)
    for value, word in ((np.nan, "missing value"), (np.inf, "infinity")):
        broken = table.copy()
        broken.iloc[7, 1] = value
        message = f"{word}.*row 7, column 'income'"
        with pytest.raises(InputError, match=message):
            clone(model).fit(broken, y)
        with pytest.raises(InputError, match=message):
            model.predict(broken)


@pytest.mark.parametrize("name", KERNEL_METHODS)
def test_kernels_want_dense_rows(contaminated_rows, name):
    X, y, _ = contaminated_rows
    with pytest.raises(InputError, match=r"takes dense tables.*X\.toarray\(\)"):
        clone(METHODS[name]).fit(sparse.csr_array(X), y)
    with pytest.raises(InputError, match="overflow"):
        clone(METHODS[name]).fit(X * 1e200, y)


# --- scikit-learn's common checks ---------------------------------------------------------
#
# `OneClassSVM` needs labels only for `score`. The others refuse the labels
# that the checks invent (test_sklearn_contract.py); here the checks run on subclasses that
# translate labels, without exceptions.


class Translated(TranslatesScore):
    def fit(self, X, y=None):
        return super().fit(X, as_codes(X, y))


class ScoredOneClass(TranslatesScore, OneClassSVM):
    pass


class TranslatedOneClass(Translated, OneClassSVM):
    pass


class TranslatedSemiSupervised(Translated, SemiSupervisedOneClassSVM):
    pass


class TranslatedPU(TranslatesScore, ShallowPU):
    def fit(self, X, y=None, sample_weight=None):
        return super().fit(X, as_codes(X, y), sample_weight)


@pytest.mark.filterwarnings("ignore::riskad.core.checks.DataWarning")
@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API.*")
@parametrize_with_checks(
    [
        ScoredOneClass(),
        TranslatedOneClass(use_labels=True),
        TranslatedSemiSupervised("laplacian"),
        TranslatedSemiSupervised("biased"),
        TranslatedSemiSupervised("biased", unlabelled="normal"),
        TranslatedPU(lam=0.1),  # folds for "cv" do not take a row of weight 2 for two rows
    ]
)
def test_common_checks(estimator, check):
    check(estimator)
