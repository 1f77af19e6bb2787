"""ShallowRAD: what it learns, what it accepts, and what it says when the data is bad."""

import itertools

import numpy as np
import pandas as pd
import pytest
from conftest import make_contaminated_rows
from scipy import sparse
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import FunctionTransformer
from support.loops import each
from support.rows import label_first

from riskad.core.checks import DataWarning, InputError
from riskad.core.label_parsing import parse_labels
from riskad.core.losses import LOSSES
from riskad.core.regularization import theorem_lambda
from riskad.core.risks import RISKS, get_risk
from riskad.decisions.drift import rows_to_sum_up
from riskad.detectors.linear import lambda_search
from riskad.detectors.shallow import ShallowRAD

LOSSES_KINDS = ("squared", "modified_huber", "hinge")  # solved in three ways
NO_THEOREM = {"pu", "nu", "nnpu", "nnnu"}


def settings_for(risk):
    return {"risk": risk, "lam": 0.1} if risk in NO_THEOREM else {"risk": risk}


# --- what it learns -----------------------------------------------------------------------


@pytest.mark.slow
@each(("risk", "loss"), itertools.product(RISKS, LOSSES))
def test_every_loss_and_risk_ranks_anomalies_first(risk, loss):
    X, y, truth = make_contaminated_rows(300, shift=2.0)
    model = ShallowRAD(loss, **settings_for(risk)).fit(X, y)
    assert roc_auc_score(truth == -1, model.anomaly_score(X)) > 0.9


def test_the_unlabelled_rows_stands_in_for_normals_that_nobody_labelled():
    gains = []
    for seed in range(20):
        X, _, truth = make_contaminated_rows(2000, 10, shift=0.8, seed=seed)
        y = label_first(truth, 4, 30)
        with_unlabelled, without = (
            roc_auc_score(truth, ShallowRAD(risk=risk, a=0.9, lam=1.0).fit(X, y).score_samples(X))
            for risk in ("rad", "pn")
        )
        gains.append(with_unlabelled - without)
    assert np.mean(gains) > 3 * np.std(gains) / len(gains) ** 0.5


@each("risk", RISKS)
def test_labels_matter(risk):
    X, y, _ = make_contaminated_rows()
    shuffled = np.random.default_rng(0).permutation(y)
    model = ShallowRAD(**settings_for(risk))
    original = clone(model).fit(X, y).score_samples(X)
    assert not np.allclose(original, clone(model).fit(X, shuffled).score_samples(X), rtol=0.05)


LAMBDAS = [("modified_huber", "cv"), ("logistic", "tight"), ("squared", 0.3)]


@each(("loss", "lam", "penalty"), [*((*case, "l2") for case in LAMBDAS), ("logistic", 0.1, "l1")])
def test_the_objective_is_risk_plus_penalty_in_the_units_of_the_theorem(
    contaminated_rows, lam, loss, penalty
):
    X, y, _ = contaminated_rows
    model = ShallowRAD(loss, lam=lam, penalty=penalty).fit(X, y)
    theta = np.append(model.coef_ * X.std(axis=0), model.coef_ @ X.mean(axis=0) + model.intercept_)
    risk = get_risk("rad", loss).value(model.score_samples(X), y)
    assert model.risk_parts_["total"] == pytest.approx(risk, abs=1e-12)
    paid = model.lambda_ * (theta @ theta if penalty == "l2" else np.abs(theta).sum())
    assert model.objective_ == pytest.approx(risk + paid, abs=1e-12)
    parts = dict(model.risk_parts_)
    assert parts.pop("total") == pytest.approx(sum(parts.values()), abs=1e-12)


@each("size", [0.3, 7])
@each(
    "settings",
    [
        *({"loss": loss, "lam": lam} for loss in LOSSES_KINDS for lam in ("theorem", "tight", 0.1)),
        {"penalty": "l1", "lam": 0.02},
    ],
)
def test_intercept_scaling_is_the_size_of_a_constant_column(contaminated_rows, settings, size):
    X, y, _ = contaminated_rows
    settings = {"scale": False, "tol": 1e-9, **settings}
    model = ShallowRAD(intercept_scaling=size, **settings).fit(X, y)
    extended = np.column_stack([X, np.full(len(X), size)])
    with pytest.warns(DataWarning, match="single value"):
        oracle = ShallowRAD(intercept_scaling=0, **settings).fit(extended, y)
    assert model.lambda_ == pytest.approx(oracle.lambda_, rel=1e-12)
    assert model.objective_ == pytest.approx(oracle.objective_, rel=1e-9)
    assert model.intercept_ == pytest.approx(size * oracle.coef_[-1], rel=1e-4, abs=1e-9)
    scores = model.score_samples(X)
    np.testing.assert_allclose(scores, oracle.score_samples(extended), rtol=1e-4, atol=1e-6)
    default = ShallowRAD(**{**settings, "lam": model.lambda_}).fit(X, y)
    assert not np.allclose(scores, default.score_samples(X), rtol=1e-3)


@each(("loss", "size"), itertools.product([*LOSSES_KINDS, "logistic"], [0.1, 50.0]))
def test_theorem_1_holds_for_every_intercept_scaling(contaminated_rows, loss, size):
    X, y, _ = contaminated_rows
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    for tight in (False, True):
        lam = "tight" if tight else "theorem"
        model = ShallowRAD(loss, lam=lam, a=0.6, intercept_scaling=size).fit(X, y)
        expected = theorem_lambda(Z[y == -1], loss, a=0.6, tight=tight, intercept_scaling=size)
        assert model.lambda_ == pytest.approx(expected, rel=1e-9)
        assert model.objective_ >= 0


def test_cross_validation_takes_a_lambda_from_the_labelled_rows_and_only_them():
    X, y, _ = make_contaminated_rows(400, 10, shift=0.8, seed=3)
    chosen = ShallowRAD(lam="cv").fit(X, y).lambda_
    top = ShallowRAD().fit(X, y).lambda_
    assert top * 1e-5 <= chosen <= top
    assert chosen == ShallowRAD(lam="cv").fit(X, y).lambda_
    swapped = np.where(y == 0, 0, np.random.default_rng(1).permutation(y))
    swapped[:2] = 1, -1
    assert ShallowRAD(lam="cv").fit(X, swapped).lambda_ != chosen


def test_l1_gives_exact_zeros_for_columns_of_noise():
    X, y, _ = make_contaminated_rows(600, 3, shift=2.0)
    X = np.column_stack([X, np.random.default_rng(0).standard_normal((600, 10))])
    model = ShallowRAD(penalty="l1", lam=0.1).fit(X, y)
    assert model.coef_[:3].all()
    assert np.count_nonzero(model.coef_[3:]) <= 2


def test_scaling_a_column_does_not_change_the_scores(contaminated_rows):
    X, y, _ = contaminated_rows
    factors = np.array([1e-6, 1.0, 1e3, 1e6])
    original = ShallowRAD().fit(X, y)
    scaled = ShallowRAD().fit(X * factors + 1e3, y)
    np.testing.assert_allclose(
        original.score_samples(X), scaled.score_samples(X * factors + 1e3), atol=1e-6
    )


def test_the_threshold_separates_what_the_labels_separate():
    X, y, truth = make_contaminated_rows(2000, 3, shift=5.0, labelled=0.05)
    for settings in ({}, {"feature_map": "nystroem"}, {"loss": "squared"}):
        assert (ShallowRAD(**settings).fit(X, y).predict(X) == truth).mean() > 0.97


# --- what it accepts ----------------------------------------------------------------------


@each(
    "settings",
    [
        *({"loss": loss} for loss in LOSSES_KINDS),
        *({"loss": loss, "intercept_scaling": 20.0} for loss in LOSSES_KINDS[:2]),
        {"penalty": "l1", "lam": 0.02, "intercept_scaling": 20.0},
        {"feature_map": "poly", "scale": False},
    ],
)
def test_sparse_and_dense_rows_give_the_same_model(settings):
    X, y, _ = make_contaminated_rows(300, 5)
    X[np.abs(X) < 2] = 0
    dense = ShallowRAD(tol=1e-8, **settings).fit(X, y)
    for container in (sparse.csr_matrix, sparse.csr_array, sparse.csc_matrix):
        found = ShallowRAD(tol=1e-8, **settings).fit(container(X), y)
        np.testing.assert_allclose(found.coef_, dense.coef_, atol=1e-5)
        np.testing.assert_allclose(
            found.score_samples(container(X)), dense.score_samples(X), atol=1e-4
        )


def test_sparse_rows_are_never_made_dense(monkeypatch):
    X = sparse.random_array(
        (3000, 400), density=0.01, format="csr", random_state=np.random.default_rng(0)
    )
    y = np.tile([1, -1, 0], 1000)
    largest = []
    to_dense = sparse.csr_array.toarray

    def spy(self, *args, **kwargs):
        largest.append(self.shape[0])
        return to_dense(self, *args, **kwargs)

    monkeypatch.setattr(sparse.csr_array, "toarray", spy)
    monkeypatch.setattr(lambda_search, "to_dense", lambda X: to_dense(X))
    ShallowRAD().fit(X, y)
    # d x d products, and the sample of the unlabelled rows that is summed up for later comparison
    assert max(largest) <= max(400, rows_to_sum_up(400)) < 3000


def test_float32_rows_give_the_model_of_float64(contaminated_rows):
    X, y, _ = contaminated_rows
    narrow = ShallowRAD().fit(X.astype(np.float32), y)
    wide = ShallowRAD().fit(X.astype(np.float32).astype(np.float64), y)
    np.testing.assert_allclose(narrow.coef_, wide.coef_, rtol=1e-7)
    assert narrow.score_samples(X.astype(np.float32)).dtype == np.float64


def test_no_scaled_copy_of_x_is_made():
    import tracemalloc

    X, y, _ = make_contaminated_rows(200_000, 20)
    tracemalloc.start()
    ShallowRAD().fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.35 * X.nbytes


@pytest.mark.parametrize(
    "feature_map", ["rbf", "nystroem", "poly", PCA(2), FunctionTransformer(np.tanh)]
)
def test_feature_maps_are_fitted_on_training_rows_once(contaminated_rows, feature_map):
    X, y, truth = contaminated_rows
    model = ShallowRAD(feature_map=feature_map, random_state=0).fit(X, y)
    assert not hasattr(feature_map, "n_features_in_")  # the user's is cloned
    assert roc_auc_score(truth, model.score_samples(X)) > 0.85
    np.testing.assert_allclose(model.score_samples(X[:7]), model.score_samples(X)[:7], atol=1e-10)
    assert model.coef_.shape == (model.feature_map_.transform(X[:1]).shape[1],)
    assert model.objective_ >= 0


def test_same_data_same_model_without_a_seed(contaminated_rows):
    X, y, _ = contaminated_rows
    for settings in ({"loss": "ramp"}, {"feature_map": "nystroem"}, {"lam": "cv"}):
        first, second = (ShallowRAD(**settings).fit(X, y).score_samples(X) for _ in range(2))
        np.testing.assert_array_equal(first, second)


def test_the_direction_of_each_score(contaminated_rows):
    X, y, _ = contaminated_rows
    model = ShallowRAD().fit(X, y)
    scores = model.score_samples(X)
    np.testing.assert_array_equal(model.anomaly_score(X), -scores)
    np.testing.assert_array_equal(model.decision_function(X), scores - model.offset_)
    np.testing.assert_array_equal(model.predict(X), np.where(scores >= model.offset_, 1, -1))
    np.testing.assert_array_equal(ShallowRAD().fit_predict(X, y), model.predict(X))
    assert scores[y == 1].mean() > scores[y == -1].mean()


# --- what it says -------------------------------------------------------------------------


def fails(message, X, y, **settings):
    with pytest.raises(InputError, match=message):
        ShallowRAD(**settings).fit(X, y)


def test_no_labelled_anomaly_names_the_pu_risk(contaminated_rows):
    X, y, _ = contaminated_rows
    only = parse_labels(np.where(y == -1, 0, y), normal=1, unlabelled=0)
    fails("needs a labelled anomaly.*risk='pu'", X, only)
    pu = ShallowRAD(risk="pu", lam="cv").fit(X, only)
    assert pu.risk_parts_["total"] == pytest.approx(
        get_risk("pu").value(pu.score_samples(X), only), abs=1e-12
    )


def test_a_kind_that_is_missing_names_the_risk_that_does_without(contaminated_rows):
    X, y, truth = contaminated_rows
    only = np.where(y == 1, 0, y)
    fails("needs a labelled normal row.*risk='nu' with lam='cv'", X, only)
    ShallowRAD("logistic", risk="nu", lam="cv").fit(X, only)
    fails("needs an unlabelled row.*risk='pn'", X, truth)
    ShallowRAD(risk="pn").fit(X, truth)


def test_gaps_and_infinities_are_located():
    X, y, _ = make_contaminated_rows(50, labelled=0.6)
    table = pd.DataFrame(X, columns=["age", "income", "visits", "balance"])
    for value, word in ((np.nan, "missing value"), (np.inf, "infinity")):
        broken = table.copy()
        broken.iloc[7, 1] = value
        fails(f"{word}.*row 7, column 'income'", broken, y)
        model = ShallowRAD().fit(table, y)
        with pytest.raises(InputError, match=f"{word}.*row 7, column 'income'"):
            model.score_samples(broken)
    broken = sparse.csr_array(X)
    broken.data[5] = np.nan
    fails("missing value.*row 1, column 1", broken, y)


def test_a_gap_among_many_rows_is_found_without_a_stray_warning():
    X, y, _ = make_contaminated_rows(100_000, 40)
    X[77_777, 7], X[88_888, 1] = np.inf, np.nan
    fails("infinity.*first of 2 is in row 77777, column 7", X, y)


def test_a_gap_under_a_zero_weight_is_found_too():
    X, y, _ = make_contaminated_rows(100, 3)
    with pytest.warns(DataWarning, match="all weights are zero under lam=1e[+]03.*'tight'"):
        model = ShallowRAD(penalty="l1", lam=1e3).fit(X, y)
    assert not model.coef_.any()
    X[3, 2] = np.nan
    with pytest.raises(InputError, match="row 3, column 2"):
        model.score_samples(X)


def test_other_columns_at_scoring_time_show_the_difference(contaminated_rows):
    X, y, _ = contaminated_rows
    model = ShallowRAD().fit(pd.DataFrame(X, columns=list("abcd")), y)
    with pytest.raises(ValueError, match=r"(?s)unseen at fit time.*- e.*missing.*- d"):
        model.predict(pd.DataFrame(X, columns=list("abce")))
    with pytest.raises(ValueError, match="3 features, but ShallowRAD is expecting 4"):
        ShallowRAD().fit(X, y).predict(X[:, :3])


@each(
    ("settings", "message"),
    [
        ({"prior": 0.0}, "prior must be .* between 0 and 1, got 0.0.*anomaly rate"),
        ({"prior": 1.2}, "prior must be"),
        ({"a": -0.1}, "a must be .* between 0 and 1"),
        ({"a": 1.1}, "a must be"),
        ({"risk": "pnu", "a": -1.5}, "between -1 and 1"),
        ({"loss": "hinges"}, "Did you mean 'hinge'"),
        ({"risk": "radd"}, "Did you mean 'rad'"),
        ({"penalty": "l3"}, "choose from l2, l1"),
        ({"lam": "theorm"}, "Did you mean 'theorem'"),
        ({"lam": -1}, "lam must be a number >= 0"),
        ({"lam": None}, "lam must be a number >= 0"),
        ({"lam": np.nan}, "or one of theorem, tight, cv, got nan"),
        ({"feature_map": "nystrom"}, "Did you mean 'nystroem'"),
        ({"feature_map": 3}, "a transformer with fit and transform"),
        ({"max_iter": 0}, "max_iter must be a whole number"),
        ({"tol": 0}, "tol must be"),
        ({"intercept_scaling": -1}, "intercept_scaling must be .* got -1.*0 means none"),
        ({"intercept_scaling": np.nan}, "intercept_scaling must be"),
        ({"intercept_scaling": "1"}, "intercept_scaling must be"),
        ({"intercept_scaling": True}, "intercept_scaling must be"),
        ({"penalty": "l1", "loss": "hinge"}, "needs a smooth risk"),
        ({"risk": "pu"}, "Theorem 1 has no value for the pu risk.*lam='cv'"),
    ],
)
def test_a_wrong_setting_is_explained(contaminated_rows, settings, message):
    X, y, _ = contaminated_rows
    fails(message, X, y, **settings)


def test_too_few_labels_for_cross_validation_name_the_alternative(contaminated_rows):
    X, y, _ = contaminated_rows
    y = np.where(y == 1, 0, y)
    y[0] = 1
    fails("lam='cv' needs at least 2 labelled rows.*give a number", X, y, lam="cv", risk="pu")


def test_stopping_early_is_a_convergence_warning(contaminated_rows):
    X, y, _ = contaminated_rows
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        ShallowRAD("logistic", lam=1e-4, max_iter=1, tol=1e-9).fit(X, y)


# --- real data ----------------------------------------------------------------------------


@pytest.mark.needs_data
@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("38_thyroid", 0.95, 1.0), ("31_satimage-2", 0.95, 1.0), ("6_cardio", 0.9, 1.0)],
)
def test_on_benchmark_sets_the_auc_is_that_of_the_paper(data_folder, name, low, high):
    with np.load(data_folder / "adbench" / f"{name}.npz") as data:
        X, truth = data["X"], np.where(data["y"] == 1, -1, 1)
    aucs = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(X))
        train, test = np.split(order, [int(0.7 * len(X))])
        y = np.where(rng.random(len(train)) < 0.05, truth[train], 0)
        if (y == -1).any():
            model = ShallowRAD().fit(X[train], y)
            aucs.append(roc_auc_score(truth[test], model.score_samples(X[test])))
    assert low < np.mean(aucs) <= high


# --- wide tables and the choice of lambda -------------------------------------------------------


@pytest.mark.slow
@each(("loss", "lam"), itertools.product(LOSSES_KINDS, ["theorem", "tight", 0.05]))
def test_a_wide_table_gives_the_model_of_its_sparse_copy(loss, lam):
    """Sparse rows are never rotated, so they are an independent way to the same minimum."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 150))
    y = np.repeat([1, -1, 0], [15, 8, 37])
    X[y == -1] += 0.4
    wide = ShallowRAD(loss, lam=lam, tol=1e-8).fit(X, y)
    plain = ShallowRAD(loss, lam=lam, tol=1e-8).fit(sparse.csr_array(X), y)
    assert wide.lambda_ == pytest.approx(plain.lambda_, rel=1e-8)
    assert wide.objective_ == pytest.approx(plain.objective_, abs=1e-7)
    new = rng.normal(size=(20, 150))
    np.testing.assert_allclose(wide.score_samples(new), plain.score_samples(new), atol=1e-3)
    assert wide.coef_.shape == (150,)


@each("n_anomalies", [1, 2, 3])
def test_cross_validation_keeps_the_tight_lambda_where_labels_say_little(n_anomalies):
    X, _, truth = make_contaminated_rows(400, 3)
    y = label_first(truth, 20, n_anomalies)
    tight = ShallowRAD(lam="tight").fit(X, y).lambda_
    assert ShallowRAD(lam="cv").fit(X, y).lambda_ == pytest.approx(tight)


def test_cross_validation_leaves_the_tight_lambda_for_a_clear_gain(monkeypatch):
    X, y, _ = make_contaminated_rows(400, 3)

    def held_out_aucs(problem, lambdas, folds, settings):
        return np.where(np.arange(len(lambdas))[:, None] == len(lambdas) - 1, 0.7, [0.5, 0.5])

    monkeypatch.setattr(lambda_search, "held_out_aucs", held_out_aucs)
    tight, cv = (ShallowRAD(lam=lam).fit(X, y).lambda_ for lam in ("tight", "cv"))
    assert cv == pytest.approx(tight / 1000)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["hinge", "double_hinge", "ramp"])
def test_rounded_kinks_choose_a_lambda_that_ranks_nearly_as_well(loss):
    """The choice on rounded kinks against the best of the same grid, by the truth."""
    X, y, truth = make_contaminated_rows(500, 6, shift=0.8, seed=3)
    chosen = ShallowRAD(loss, lam="cv").fit(X, y)
    top = ShallowRAD(loss).fit(X, y).lambda_
    aucs = [
        roc_auc_score(truth, ShallowRAD(loss, lam=top * 10.0**-k).fit(X, y).score_samples(X))
        for k in range(5)
    ]
    assert roc_auc_score(truth, chosen.score_samples(X)) > max(aucs) - 0.02


@pytest.mark.parametrize("feature_map", ["poly", "rbf", "nystroem"])
def test_feature_maps_of_rows_that_are_far_out(feature_map):
    """Squares of 1e200 are infinite; rows that far out are scored, and infinities refused."""
    X, y, _ = make_contaminated_rows(60)
    model = ShallowRAD(feature_map=feature_map, lam=0.1, random_state=0).fit(X, y)
    far = X[:2].copy()
    far[0, 0], far[1, 0] = 1e200, -1e200
    assert np.isfinite(model.score_samples(far)).all()
    far[0, 0] = np.inf
    with pytest.raises(InputError, match="infinity"):
        model.score_samples(far)


def test_scores_that_are_not_finite_are_refused():
    X, y, _ = make_contaminated_rows()
    model = ShallowRAD("squared").fit(X, y)
    model.coef_ = np.full(4, 1e308)
    with pytest.raises(InputError, match=r"scores of \d+ rows are not finite, the first in row"):
        model.score_samples(X)
