import itertools
import math
from datetime import date, datetime, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pytest
from conftest import make_contaminated_rows
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.ensemble import IsolationForest
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from support.loops import each

from riskad import BoostedRAD, DataWarning, ForestRAD, InputError, RADSearchCV, ShallowRAD
from riskad.app import reasons as reasons_module
from riskad.app.explain import suspicious_value
from riskad.app.fit import fit_table as app_fit_table
from riskad.app.model_files import load, save
from riskad.app.reasons import Reason, explain_rows
from riskad.app.spec import FitSpec
from riskad.decisions import shapley
from riskad.detectors.base import Detector
from riskad.detectors.description import DetectorTags
from riskad.files.codec import build, state_of
from riskad.tables.preparation import TablePreparer


def make_table(n=400, seed=0):
    """Payments with numbers, text, blanks of both kinds; and their labels."""
    rng = np.random.default_rng(seed)
    fraud = rng.random(n) < 0.2
    table = pl.DataFrame(
        {
            "amount": np.where(fraud, rng.normal(90, 10, n), rng.normal(30, 10, n)).round(2),
            "age": [x if x < 70 else None for x in rng.integers(18, 80, n).tolist()],
            "country": np.where(fraud, rng.choice(["KP", "FR"], n), rng.choice(["FR", "DE"], n)),
            "note": rng.choice(["gift", "", "rent"], n, p=[0.2, 0.6, 0.2]),
        }
    )
    y = np.where(rng.random(n) < 0.3, np.where(fraud, -1, 1), 0)
    return table, y


@pytest.fixture(scope="module")
def table():
    return make_table()


def fit_table(table, detector):
    frame, y = table
    return Pipeline([("prepare", TablePreparer()), ("detect", detector)]).fit(frame, y)


def deep_rad(**settings):
    pytest.importorskip("torch")
    from riskad import DeepRAD

    return DeepRAD(max_iter=30, module=(16,), random_state=0, device="cpu", **settings)


def assert_adds_up(reasons, scores):
    total = reasons.base + reasons.contributions.sum(axis=1)
    assert_allclose(total, scores, atol=1e-8)


def boosted(**settings):
    pytest.importorskip("lightgbm")
    return BoostedRAD(**{"max_iter": 30, **settings})


MODELS = {
    "linear": lambda: ShallowRAD(),
    "l1": lambda: ShallowRAD(penalty="l1", lam=0.05),
    "rbf": lambda: ShallowRAD(feature_map="rbf", lam=0.01),
    "nystroem": lambda: ShallowRAD(feature_map="nystroem", lam=0.01),
    "poly": lambda: ShallowRAD(feature_map="poly", lam=0.1),
    "net": deep_rad,
    "forest": lambda: IsolationForest(random_state=0, n_estimators=20),
}
kinds = each("kind", list(MODELS))
MODELS["boosted"] = boosted  # whose contributions compare with all rows, not with the usual one


# --- sums --------------------------------------------------------------------------------


@kinds
@each("n_features", [4, 14])  # enumerated, sampled
def test_the_sum_is_the_score(kind, n_features):
    X, y, _ = make_contaminated_rows(n_features=n_features)
    model = MODELS[kind]().fit(X, y)
    reasons = explain_rows(model, X[:15], background=X)
    scores = -model.score_samples(X[:15])
    assert_array_equal(reasons.anomaly_score, scores)
    assert_adds_up(reasons, scores)
    assert_allclose(reasons.base, -model.score_samples(np.median(X, axis=0)[None])[0], atol=1e-6)
    assert_allclose(reasons.usual, np.median(X, axis=0))
    assert_array_equal(reasons.values, X[:15])
    assert reasons.contributions.std() > 0


@kinds
def test_the_sum_is_the_score_for_tables_with_text_and_blanks(kind, table):
    model = fit_table(table, MODELS[kind]())
    reasons = explain_rows(model, table[0].head(30))
    assert reasons.columns == ("amount", "age", "country", "note")
    assert reasons.usual[2:] == ("FR", "(blank)")
    scores = -model.score_samples(table[0].head(30))
    assert_adds_up(reasons, scores)
    same = reasons.values == np.array(reasons.usual, dtype=object)
    assert same.any()
    assert np.all(reasons.contributions[same] == 0)
    sizes = dict(zip(reasons.columns, np.abs(reasons.contributions).mean(axis=0), strict=True))
    assert reasons.importance() == sizes
    assert list(reasons.importance().values()) == sorted(sizes.values(), reverse=True)


@each("kind", ["linear", "rbf", "boosted"])
def test_the_sum_is_the_score_for_sparse_rows(kind):
    rng = np.random.default_rng(0)
    X = sparse.random_array((300, 40), density=0.1, random_state=rng, format="csr")
    model = MODELS[kind]().fit(X, rng.choice([1, -1, 0], 300))
    for background in (X,) if kind == "boosted" else (None, X):
        reasons = explain_rows(model, X[:5], background=background)
        assert_adds_up(reasons, model.anomaly_score(X[:5]))


# --- values ------------------------------------------------------------------------------


def test_linear_reasons_by_hand():
    X, y, _ = make_contaminated_rows()
    model = ShallowRAD().fit(X, y)
    usual = np.median(X[y == 1], axis=0)
    reasons = explain_rows(model, X, background=X[y == 1])
    assert_allclose(reasons.contributions, -model.coef_ * (X - usual), atol=1e-10)
    assert_allclose(reasons.base, -(usual @ model.coef_ + model.intercept_))
    assert not reasons.errors.any()
    by_mean = explain_rows(model, X)
    assert_allclose(by_mean.usual, X.mean(axis=0))
    assert_allclose(by_mean.contributions, -model.coef_ * (X - X.mean(axis=0)), atol=1e-10)


def brute_force(score, x, r):
    """Shapley values by their definition: the mean over all orders."""
    k = len(x)
    phi = np.zeros(k)
    for order in itertools.permutations(range(k)):
        mixed = r.copy()
        before = score(mixed)
        for j in order:
            mixed[j] = x[j]
            after = score(mixed)
            phi[j] += after - before
            before = after
    return phi / math.factorial(k)


@each("kind", ["rbf", "nystroem", "poly", "net"])
def test_enumeration_is_the_mean_over_all_orders(kind):
    X, y, _ = make_contaminated_rows(n_features=4)
    model = MODELS[kind]().fit(X, y)
    reasons = explain_rows(model, X[:3], background=X)
    for x, contributions in zip(X, reasons.contributions, strict=False):
        usual = np.median(X, axis=0)
        expected = brute_force(lambda row: -model.score_samples(row[None])[0], x, usual)
        assert_allclose(contributions, expected, atol=1e-6)


@pytest.fixture(params=["fast", "slow"])
def drawn(request, monkeypatch):
    """A function after which no number of columns is small enough to take all sets."""

    def change():
        few = {name: getattr(shapley, name)._replace(enumerated=3) for name in ("_FAST", "_SLOW")}
        for name, effort in few.items():
            monkeypatch.setattr(shapley, name, effort)
        tags = DetectorTags(slow_to_score=request.param == "slow")
        monkeypatch.setattr(reasons_module, "detector_tags", lambda model: tags)

    return change


@pytest.mark.parametrize("kind", ["nystroem", "net", "forest", "trees"])
def test_samples_agree_with_enumeration_within_their_error(kind, drawn):
    X, y, _ = make_contaminated_rows(n_features=9)
    model = (ForestRAD(n_estimators=50) if kind == "trees" else MODELS[kind]()).fit(X, y)
    exact = explain_rows(model, X[:40], background=X)
    drawn()
    sampled = explain_rows(model, X[:40], background=X)
    assert not exact.errors.any()
    assert sampled.errors.any()
    assert_adds_up(sampled, sampled.anomaly_score)
    off = np.abs(sampled.contributions - exact.contributions)
    largest = np.abs(exact.contributions).max(axis=1, keepdims=True)
    assert np.mean(off < 2 * sampled.errors + 1e-7) > 0.85
    assert off.max() < 0.1 * largest.max()
    if not reasons_module.detector_tags(model).slow_to_score:
        assert np.mean(sampled.errors <= 0.022 * largest) > 0.8  # else 63 sets a column were drawn


@pytest.mark.parametrize("kind", ["linear", "poly"])
def test_sets_and_their_complements_are_exact_for_pairs_of_columns(kind, drawn):
    X, y, _ = make_contaminated_rows(n_features=8)
    model = make_pipeline(StandardScaler(), MODELS[kind]()).fit(X, y)
    exact = explain_rows(model, X[:5], background=X)
    drawn()
    sampled = explain_rows(model, X[:5], background=X)
    assert_allclose(sampled.contributions, exact.contributions, atol=1e-9)
    assert sampled.errors.max() < 1e-9


def test_rows_that_are_scored_together_get_the_reasons_that_they_get_alone(drawn):
    drawn()
    X, y, _ = make_contaminated_rows(n_features=9)
    model, usual = MODELS["nystroem"]().fit(X, y), X[10:11]
    X[2, 4:], X[3] = usual[0, 4:], usual[0]  # few columns differ, or none
    together = explain_rows(model, X[:7], background=usual)
    for i in range(7):
        alone = explain_rows(model, X[i : i + 1], background=usual)
        assert_allclose(together.contributions[i], alone.contributions[0], atol=1e-9)
    assert not together.contributions[3].any()
    assert len(explain_rows(model, X[:7], background=usual, seconds=0)) == 1


class Knowing(Detector):
    """g = x0 x1, halved between its columns; they do not add up if `wrong`."""

    def __init__(self, wrong=False):
        self.wrong = wrong

    def fit(self, X, y=None):
        self._check_rows(X, reset=True)
        self.offset_ = 0.0
        return self

    def _scores(self, X):
        return X[:, 0] * X[:, 1] + 3

    def _contributions(self, X):
        share = X[:, :1] * X[:, 1:] / 2
        return np.repeat(-share if self.wrong else share, 2, axis=1), 3.0


def test_contributions_that_a_detector_knows_are_taken():
    X = np.array([[1.0, 2.0], [3.0, 4.0]])
    reasons = explain_rows(Knowing().fit(X), X, background=[[1.0, 1.0]])
    assert_allclose(reasons.contributions, [[-0.5, -0.5], [-5.5, -5.5]])
    assert reasons.base == -4.0
    with pytest.raises(RuntimeError, match=r"Knowing\._contributions does not add up"):
        explain_rows(Knowing(wrong=True).fit(X), X, background=X)


# --- properties --------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_reasons():
    X, y, _ = make_contaminated_rows(n_features=12)
    model = ShallowRAD(feature_map="nystroem", lam=0.01).fit(X, y)
    first, second = (explain_rows(model, X[:4], background=X) for _ in range(2))
    other = explain_rows(model, X[:4], background=X, random_state=1)
    assert_array_equal(first.contributions, second.contributions)
    assert not np.array_equal(first.contributions, other.contributions)


def test_background_of_a_table_says_what_is_usual(table):
    frame, _ = table
    model = fit_table(table, ShallowRAD())
    odd = frame.filter(country="KP").with_columns(age=None)
    reasons = explain_rows(model, frame.head(5), background=odd)
    assert reasons.usual == (odd["amount"].median(), None, "KP", "(blank)")
    assert_adds_up(reasons, -model.score_samples(frame.head(5)))


def test_values_never_seen_are_explained(table):
    model = fit_table(table, ShallowRAD())
    row = table[0].head(1).with_columns(country=pl.lit("ZZ"), amount=None)
    with pytest.warns(DataWarning, match="new value"):
        reasons = explain_rows(model, row)
    by_column = {reason.column: reason for reason in reasons.of(0)}
    assert by_column["country"].value == "ZZ"
    assert by_column["amount"].value is None
    assert by_column["amount"].adds == 0  # it is filled with what is usual
    assert_allclose(reasons.base + reasons.contributions.sum(), reasons.anomaly_score[0])


def test_frames_keep_their_names():
    X, y, _ = make_contaminated_rows(n_features=3)
    names = ["b", "a", "c"]
    for frame in (pd.DataFrame(X, columns=names), pl.DataFrame(X, schema=names)):
        for model in (ShallowRAD(), make_pipeline(StandardScaler(), ShallowRAD())):
            model.fit(frame, y)
            reasons = explain_rows(model, frame[:4], background=frame)
            assert reasons.columns == ("b", "a", "c")
            assert_adds_up(reasons, -model.score_samples(frame[:4]))


def test_a_search_is_explained_by_what_it_found():
    X, y, _ = make_contaminated_rows()
    search = RADSearchCV(ShallowRAD(lam=1.0), {"lam": [1.0, 0.1]}).fit(X, y)
    reasons = explain_rows(search, X[:5])
    expected = -search.best_estimator_.coef_ * (X[:5] - X.mean(axis=0))
    assert_allclose(reasons.contributions, expected, atol=1e-10)


# --- what is accepted --------------------------------------------------------------------


def test_mistakes(table):
    X, y, _ = make_contaminated_rows()
    model, forest = ShallowRAD().fit(X, y), IsolationForest().fit(X)
    words = pd.DataFrame({"a": ["x", "y"]})
    network = deep_rad().fit(np.zeros((6, 4)) + np.arange(6)[:, None], [1, -1, 0] * 2)
    begin = r"begin the pipeline with riskad\.tables\.preparation"
    for model_, rows, background, message in (
        (model, np.where(X > 0, np.nan, X), None, "missing value"),
        (ShallowRAD(scale=False).fit(X, y), X, None, "background="),
        (forest, X, None, "background="),
        (forest, X, X[:, :2], "4 columns and the background has 2"),
        (StandardScaler().fit(X), X, None, "gives no scores"),
        (fit_table(table, ShallowRAD()), table[0].drop("amount"), None, "missing: 'amount'"),
        (make_pipeline(StandardScaler(), model), words, words, begin),
        (network, np.zeros((2, 1, 8, 8)), None, "images have none"),
    ):
        with pytest.raises(InputError, match=message):
            explain_rows(model_, rows, background=background)
    with pytest.raises(ValueError, match="features"):
        explain_rows(model, X[:, :2])


# --- words -------------------------------------------------------------------------------


@each(
    ("value", "usual", "adds", "text"),
    [
        (9500.0, 43.0, 1.874, "c 9,500 (usual 43) adds 1.87"),
        (0.00012345678, -2.5, -0.3, "c 0.000123457 (usual -2.5) takes off 0.3"),
        ("KP", "FR", 0.7, "c KP (usual FR) adds 0.7"),
        (None, "(blank)", 0.0, "c is blank (usually blank) adds 0"),
        (1e15, 1234567.0, 1e-9, "c 1e+15 (usual 1,234,567) adds 1e-09"),
        ("x" * 50, math.inf, 1.0, f"c {'x' * 20}…{'x' * 19} (usual inf) adds 1"),
    ],
)
def test_a_reason_in_words(value, usual, adds, text):
    assert str(Reason("c", value, usual, adds)) == text


def test_reasons_in_words():
    X, y, _ = make_contaminated_rows()
    reasons = explain_rows(ShallowRAD().fit(X, y), X, background=X)
    assert len(reasons) == len(X)
    for i in range(20):
        listed = reasons.of(i)
        assert [r.adds for r in listed] == sorted((r.adds for r in listed), reverse=True)
        assert {r.column for r in listed} == {"x0", "x1", "x2", "x3"}
        assert all(r.adds > 0 for r in reasons.top(i, 4))
        assert reasons.text(i, 2).count("adds") <= max(1, len(reasons.top(i, 2)))
    usual = explain_rows(ShallowRAD().fit(X, y), np.median(X, axis=0)[None], background=X)
    assert str(usual).endswith(": nothing adds to its score")
    assert str(reasons).count("\n") == len(X) - 1


@each("risk", ["rad", "nnrad"])
def test_the_sum_is_the_score_for_boosted_trees(risk, table):
    X, y, _ = make_contaminated_rows(n_features=14)
    X[::5, 3] = np.nan
    model = boosted(risk=risk).fit(X, y)
    reasons = explain_rows(model, X[:50], background=X)
    assert_adds_up(reasons, model.anomaly_score(X[:50]))
    assert not reasons.errors.any()
    model = fit_table(table, boosted(risk=risk))
    reasons = explain_rows(model, table[0].head(30))
    assert reasons.columns == ("amount", "age", "country", "note")
    assert_adds_up(reasons, -model.score_samples(table[0].head(30)))
    assert next(iter(reasons.importance())) == "amount"


@each("offset", [1e6, 1e16, 1e99])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_columns_that_differ_in_their_last_digits_are_explained(offset):
    """Terms of a sum that all but cancel leave rounding errors, which are no mistake of riskad."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    X[:, 1] = offset * (1 + 1e-15 * rng.integers(0, 50, 200))
    model = ShallowRAD().fit(X, np.repeat([1, 0, -1], [30, 160, 10]))
    found = explain_rows(model, X[-5:])
    assert_allclose(found.base + found.contributions.sum(axis=1), found.anomaly_score, atol=0.01)


# --- wide tables -------------------------------------------------------------------------


class Counted:
    """A score of a few of many columns, some of which act together; counts the rows it scores."""

    def __init__(self):
        self.rows = 0

    def score_samples(self, X):
        self.rows += len(X)
        return -(3 * X[:, 3] + 2 * X[:, 700] - 4 * X[:, 1200] + X[:, 5] * X[:, 900])


@pytest.mark.parametrize(("width", "slow"), [(1_300, True), (1_300, False), (6_000, False)])
def test_a_wide_row_costs_few_scores_and_finds_the_columns_that_matter(width, slow):
    """One column at a time, 5,000 columns took 80,000 scores for each row, and half an hour."""
    X = np.random.default_rng(0).normal(1, 0.1, (3, width))
    model = Counted()
    scores = -model.score_samples(X)
    model.rows = 0
    contributions, errors = shapley.shapley_values(
        lambda rows: -model.score_samples(rows),
        X,
        np.zeros(width),
        np.arange(width),
        width,
        scores=scores,
        base=0.0,
        slow=slow,
        random_state=0,
        end=math.inf,
    )
    assert model.rows <= 3 * 1_500
    assert_allclose(contributions.sum(axis=1), scores)
    singly = {3: 3 * X[:, 3], 700: 2 * X[:, 700], 1200: -4 * X[:, 1200]}
    expected = singly | dict.fromkeys((5, 900), X[:, 5] * X[:, 900] / 2)
    for j, adds in expected.items():
        assert_allclose(contributions[:, j], adds, atol=1e-9)
        assert errors[:, j].max() < 1e-9
    assert np.abs(np.delete(contributions, list(expected), axis=1)).max() < 1e-9


def test_where_scores_are_slow_a_hundred_columns_are_wide(monkeypatch):
    X, y, _ = make_contaminated_rows(300, 130)
    model = ShallowRAD(feature_map="rbf", lam=0.01).fit(X, y)
    exact = explain_rows(model, X[:2])
    monkeypatch.setattr(
        reasons_module, "detector_tags", lambda model: DetectorTags(slow_to_score=True)
    )
    grouped = explain_rows(model, X[:2])
    assert_allclose(grouped.contributions.sum(axis=1), exact.contributions.sum(axis=1))
    for few, many in zip(grouped.contributions, exact.contributions, strict=True):
        assert len(np.unique(few)) < 40 < len(np.unique(many))
        assert np.corrcoef(few, many)[0, 1] > 0.9


# --- words and usual rows ----------------------------------------------------------------


def invoices(n=600, seed=0):
    """German invoices: some are booked on a Saturday or Sunday, and these are the anomalies."""
    rng = np.random.default_rng(seed)
    first = date(2024, 1, 1)
    days = np.array([day for day in range(728) if (first + timedelta(day)).weekday() < 5])
    odd = rng.random(n) < 0.1
    booked = np.where(odd, 7 * rng.integers(0, 104, n) + rng.choice([5, 6], n), rng.choice(days, n))
    due = booked + np.where(odd, rng.integers(-20, 0, n), rng.integers(10, 30, n))
    amounts = [f"{x:,.2f}".translate(str.maketrans(",.", ".,")) for x in rng.uniform(900, 9000, n)]
    table = pl.DataFrame(
        {
            "Betrag": amounts,
            "Buchungsdatum": [f"{first + timedelta(int(d)):%d.%m.%Y}" for d in booked],
            "Faellig": [f"{first + timedelta(int(d)):%d.%m.%Y}" for d in due],
            "label": np.where(rng.random(n) < 0.3, np.where(odd, "Betrug", "ok"), ""),
        }
    )
    return table, odd


def test_a_reason_says_which_part_of_a_date_counts():
    table, odd = invoices()
    labels = FitSpec(label="label", normal=["ok"], anomaly=["Betrug"])
    fit = app_fit_table(table, labels, model="forest")
    reasons = explain_rows(fit.model, table.filter(odd).head(20))
    place = reasons.columns.index("Buchungsdatum")
    for row in range(20):
        [reason] = [each for each in reasons.of(row) if each.column == "Buchungsdatum"]
        day = datetime.strptime(table.filter(odd)["Buchungsdatum"][row], "%d.%m.%Y")
        assert reason.value == f"{day:%d.%m.%Y}, {day:%A}"
        assert reason.usual in ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
    assert suspicious_value(reasons, place) in ("Saturday", "Sunday")
    assert suspicious_value(reasons, reasons.columns.index("Buchungsdatum to Faellig")) == "before"
    assert reasons.parts["Buchungsdatum"][:3] == ["weekday"] * 3


def two_groups(n=1000, seed=0):
    """Half of the rows are at (0, 10), half at (10, 0), anomalies between them, as are medians."""
    rng = np.random.default_rng(seed)
    side, odd = rng.random(n) < 0.5, rng.random(n) < 0.1
    a, b = np.where(side, 0, 10), np.where(side, 10, 0)
    a, b = (np.where(odd, 5, x) + rng.normal(0, 0.5, n) for x in (a, b))
    known = rng.random(n) < 0.3
    label = np.where(known, np.where(odd, "Betrug", "ok"), "")
    return pl.DataFrame({"a": a, "b": b, "label": label})


def test_the_usual_row_is_not_suspicious(tmp_path):
    """Reasons compared with a row of medians, which was more suspicious than 94 % of the rows."""
    table = two_groups()
    labels = FitSpec(label="label", normal=["ok"], anomaly=["Betrug"])
    fit = app_fit_table(table, labels, model="forest")
    scores = fit.ranked["anomaly_score"].to_numpy()
    medians = table.select(pl.col("a", "b").median())
    assert (scores < -fit.model.score_samples(medians)[0]).mean() > 0.8
    reasons = explain_rows(fit.model, table.head(3))
    assert (scores < reasons.base).mean() < 0.5
    assert_adds_up(reasons, reasons.anomaly_score)
    save(fit.model, tmp_path / "model.riskad")
    assert explain_rows(load(tmp_path / "model.riskad"), table.head(3)).usual == reasons.usual
    for wrong in ({"a": "text", "b": 1.0}, {"a": 1.0}):
        fit.model[0].usual_row_ = wrong
        with pytest.raises(InputError, match="usual_row_"):
            build(TablePreparer, state_of(fit.model[0]))
