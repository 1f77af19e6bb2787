"""What every detector is given, through every door: labels and rows, from wherever they come.

The same rows with the same labels are the same model, whoever keeps them; labels that can be read
in several ways are refused, and so are tables that are none, with a sentence.
"""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support.loops import each

import riskad
from riskad import InputError, parse_labels
from riskad.app.bounds import bounds_of
from riskad.core.labels import check_codes, read_codes
from riskad.decisions.drift import remember_unlabelled
from riskad.detectors.features import LearnedFeatures
from riskad.metrics.ranking import auc_with_interval
from riskad.metrics.search import evaluate_nested, out_of_fold_scores
from riskad.rows.parquet import ParquetRows
from riskad.rows.partitions import PartitionedRows
from riskad.rows.sources import RowBlocks

pytestmark = [
    pytest.mark.filterwarnings("ignore::riskad.DataWarning"),
    pytest.mark.filterwarnings("ignore:The given NumPy array is not writable"),
]

# Each with the settings under which it learns from normals and unlabelled rows alone, if it can.
DETECTORS = {
    "shallow": riskad.ShallowRAD(risk="pu", lam=0.1),
    "shallow nystroem": riskad.ShallowRAD(risk="pu", lam=0.1, feature_map="nystroem"),
    "boosted": riskad.BoostedRAD(risk="pu", max_iter=10),
    "forest": riskad.ForestRAD(risk="pu", n_estimators=10),
    "pretrained": riskad.PretrainedRAD(),
    "auto": riskad.AutoRAD(budget=1000),
    "deep": riskad.DeepRAD(risk="nnpu", max_iter=5),
    "deep pu": riskad.NNPU(max_iter=5),
    "deep sad": riskad.DeepSAD(max_iter=5, pretrain_iter=0),
}
TAKE_TEXT = ("auto", "boosted", "forest")
TAKE_SPARSE = ("shallow", "boosted", "forest", "pretrained", "auto")
every_detector = each("name", DETECTORS)


def make_rows(seed=0, n=120):
    """Whole numbers and halves, which every container holds exactly; a few labels of each kind."""
    rng = np.random.default_rng(seed)
    X = np.vstack([rng.normal(0, 4, (n - 20, 3)), rng.normal(10, 4, (20, 3))]).round() / 2
    return X, np.repeat([1, 0, -1], [30, n - 38, 8])


def frame_of(X, names="abc"):
    return pd.DataFrame(X, columns=list(names))


# --- 0 and 1 alone ------------------------------------------------------------------------

READINGS = r"(?s)holds only 0 .* and 1 .*\(y, normal=1, unlabelled=0\).*\(y, anomaly=1, normal=0\)"


@pytest.mark.slow
@every_detector
def test_normals_and_unlabelled_rows_alone_can_be_said(name):
    X, y = make_rows()
    said = parse_labels(np.maximum(y, 0), normal=1, unlabelled=0)
    scores = clone(DETECTORS[name]).fit(X, said).score_samples(X)
    assert np.isfinite(scores).all()


def test_auto_ranks_the_right_way_up_by_either_call():
    X, y = make_rows()
    truth = parse_labels(np.r_[np.zeros(100), np.ones(20)], anomaly=1, normal=0)
    model = riskad.AutoRAD(budget=1000).fit(X, truth)
    assert auc_with_interval(truth, model.anomaly_score(X)).value > 0.9
    model.fit(X, parse_labels(np.maximum(y, 0), normal=1, unlabelled=0))
    assert auc_with_interval(truth, model.anomaly_score(X)).value > 0.7


@each("name", ["shallow", "forest", "deep"])
def test_zeros_and_ones_are_refused_from_any_source(name, tmp_path):
    X, y = make_rows()
    said = (y == -1).astype(int)
    for container, (given, _) in containers(X, said, tmp_path, np.int8).items():  # int16 is ours
        if container != "label codes" and (name in TAKE_SPARSE or "csr" not in container):
            with pytest.raises(InputError, match=r"holds only [01] .* can mean several things"):
                clone(DETECTORS[name]).fit(*given())


TABLE_DOORS = {
    "calibrate": lambda model, X, y: riskad.calibrate(model, X, y).calibration_.scores,
    "estimate_prior": lambda model, X, y: riskad.estimate_prior(X, y).value,
    "suggest_rows": lambda model, X, y: riskad.suggest_rows(model, X, 5, y=y).rows,
    "explain_rows": lambda model, X, y: riskad.explain_rows(model, X, background=X).contributions,
    "drift_report": lambda model, X, y: riskad.drift_report(model, X).scores.p_value,
    "evaluate_nested": lambda model, X, y: evaluate_nested(model, X, y).value,
    "out_of_fold_scores": lambda model, X, y: out_of_fold_scores(model, X, y, random_state=0),
    "LearnedFeatures": lambda model, X, y: LearnedFeatures().fit_transform(X, y),
}
LABELS_DO_NOT_MATTER = ("explain_rows", "drift_report", "LearnedFeatures")
DOORS = {
    **{k: v for k, v in TABLE_DOORS.items() if k not in LABELS_DO_NOT_MATTER},
    "labelled_auc": lambda model, X, y: riskad.metrics.search.labelled_auc(model, X, y),
    "RiskScorer": lambda model, X, y: riskad.metrics.search.RiskScorer(risk="pu")(model, X, y),
    "RADSearchCV": lambda model, X, y: riskad.RADSearchCV(model, {"lam": [0.1]}).fit(X, y),
    "auc_with_interval": lambda model, X, y: auc_with_interval(y, X[:, 0]),
    "folds": lambda model, X, y: list(riskad.PNUStratifiedKFold(2).split(X, y)),
    "remember_unlabelled": lambda model, X, y: remember_unlabelled(model, X, y),
    "bounds_of": lambda model, X, y: bounds_of(model, X, y),
    "partial_fit": lambda model, X, y: riskad.StreamingRAD(risk="pu", lam=0.1).partial_fit(X, y),
    "StreamingRAD": lambda model, X, y: riskad.StreamingRAD().fit(X, y),
    "pipeline": lambda model, X, y: make_pipeline(StandardScaler(), clone(model)).fit(X, y),
    "cv": lambda model, X, y: riskad.ShallowRAD(lam="cv").fit(X, y),
    "fit_predict": lambda model, X, y: clone(model).fit_predict(X, y),
}


@each("door", DOORS)
def test_zeros_and_ones_are_refused_at_every_door(door):
    X, y = make_rows()
    model = riskad.ShallowRAD(risk="pu", lam=0.1).fit(X, y)
    with pytest.raises(InputError, match=READINGS):
        DOORS[door](model, X, (y == -1).astype(int))


def test_a_column_of_ones_and_blanks_is_asked_about_too(tmp_path):
    X, y = make_rows()
    path = tmp_path / "rows.parquet"
    frame_of(X).assign(label=pd.array(np.where(y == -1, 1, None), dtype="Int64")).to_parquet(path)
    with pytest.raises(InputError, match=r"'label' holds only missing \(112 rows\), 1 \(8 rows\)"):
        ParquetRows(path, label="label")
    assert ParquetRows(path, label="label", anomaly=1).counts().anomaly == 8
    assert ParquetRows(path, label="label", normal=1).counts().normal == 8


def test_a_batch_may_lack_anomalies_where_the_stream_has_them():
    X, y = make_rows()
    model = riskad.StreamingRAD()
    for rows in np.array_split(np.arange(120), 4):  # the anomalies are in the last batch
        model.partial_fit(X[rows], y[rows])
    expected = riskad.ShallowRAD().fit(X, y)
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-5)
    model.partial_fit(X[:10], y[:10])


def test_a_stream_of_zeros_and_ones_gives_no_model_unless_it_is_said_what_they_mean():
    X, y = make_rows()
    waiting = riskad.StreamingRAD().partial_fit(X, (y == -1).astype(int))
    with pytest.raises(ValueError, match=r"no model yet.*riskad\.parse_labels"):
        waiting.score_samples(X)
    said = parse_labels(np.maximum(y, 0), normal=1, unlabelled=0)
    model = riskad.StreamingRAD(risk="pu", lam=0.1).partial_fit(X, said)
    assert np.isfinite(model.score_samples(X)).all()


def test_a_fold_without_anomalies_is_no_news():
    """Of labels whose meaning is known, a part is known as well, inside and outside."""
    X, y = make_rows()
    y[-7:] = 0  # one anomaly is left
    riskad.calibrate(riskad.ForestRAD(n_estimators=5).fit(X, y), X, y)
    said = read_codes(y)
    scores = cross_val_score(
        riskad.PretrainedRAD(), X, said, cv=KFold(3), scoring=lambda model, X, y: 0.0
    )
    assert len(scores) == 3


def test_codes_keep_their_meaning_as_long_as_they_are_codes():
    said = parse_labels([0, 1, 1, 0], normal=1, unlabelled=0)
    frame = pl.DataFrame({"y": said})
    same = [said[:2], said[[0, 1]], said[said >= 0], np.asarray(said), np.concatenate([said, said])]
    same += [pd.Series(said), pd.Series(said, dtype="Int16"), frame, frame["y"], torch.tensor(said)]
    for part in (*same, pickle.loads(pickle.dumps(said))):
        assert set(check_codes(part)) == {0, 1}
    for other in (np.where(said == 1, 0, 1), said.astype(int), said.tolist(), said.astype(float)):
        with pytest.raises(InputError, match="which can mean several things"):
            check_codes(other)


# --- the same rows are the same model -----------------------------------------------------


def containers(X, y, tmp_path, whole=np.int16):
    """(what gives what fit takes, what score_samples takes) of the same rows."""
    import dask.array as da

    path = tmp_path / "rows.parquet"
    frame = frame_of(X)
    frame.assign(label=y).to_parquet(path)
    codes = y.astype(whole)
    parts = [RowBlocks(X[:50], codes[:50]), RowBlocks(X[50:], codes[50:])]
    arrow = frame.convert_dtypes(dtype_backend="pyarrow")
    decimals = frame.astype({"a": pd.ArrowDtype(pa.decimal128(10, 1))})
    polars = pl.DataFrame(frame.to_dict("list"))
    tensors = torch.from_numpy(X), torch.from_numpy(y)
    table = {
        "list": X.tolist(),
        "fortran": np.asfortranarray(X),
        "csr_array": sparse.csr_array(X),
        "csr_matrix": sparse.csr_matrix(X),
        "pandas": frame,
        "pandas nullable": frame.convert_dtypes(),
        "pandas arrow": arrow,
        "pandas arrow decimals": decimals,
        "pandas objects": frame.astype(object),
        "polars": polars,
        "polars decimals": polars.cast({"a": pl.Decimal(10, 1)}),
        "polars lazy": polars.lazy(),
        "tensor": torch.from_numpy(X),
        "tensor that learns": torch.from_numpy(X.copy()).requires_grad_(),
    }
    made = {key: (lambda rows=rows: (rows, y), rows) for key, rows in table.items()}
    labels = {
        "label list": y.tolist(),
        "label floats": y.astype(float),
        "label series": pd.Series(y),
        "label frame": pd.DataFrame({"y": y}),
        "label arrow": pd.Series(y, dtype="int64[pyarrow]"),
        "label polars": pl.Series(y),
        "label polars frame": pl.DataFrame({"y": y}),
        "label tensor": torch.from_numpy(y),
        "label dask": da.from_array(y),
        "label codes": read_codes(y),
    }
    made |= {key: (lambda each=each: (X, each), X) for key, each in labels.items()}
    return made | {
        "both tensors": (lambda: tensors, tensors[0]),
        "rows": (lambda: (RowBlocks(X, codes),), RowBlocks(X, codes)),
        "rows of int64": (lambda: (RowBlocks(X, y),), RowBlocks(X, y)),
        "rows of tensors": (
            lambda: (RowBlocks(tensors[0], torch.from_numpy(codes)),),
            RowBlocks(tensors[0], torch.from_numpy(codes)),
        ),
        "parts": (lambda: (PartitionedRows(parts, 3),), PartitionedRows(parts, 3)),
        "parquet": (
            lambda: (ParquetRows(path, label="label"),),
            ParquetRows(path, columns=["a", "b", "c"]),
        ),
        "dask": (lambda: (da.from_array(X, chunks=(60, 3)), y), da.from_array(X, chunks=(60, 3))),
    }


# For a detector whose fits take seconds.
FEW = ("csr_array", "pandas arrow decimals", "both tensors", "parts")


@pytest.mark.slow
@every_detector
def test_the_same_rows_are_the_same_model(name, tmp_path):
    X, y = make_rows()
    expected = clone(DETECTORS[name]).fit(X, y).score_samples(X)
    # Networks compute in single precision: 100 units of it, as for other orders of rows.
    close = 1e-5 if name.startswith(("auto", "deep", "pretrained")) else 1e-6
    for container, (make, rows) in containers(X, y, tmp_path).items():
        if "csr" in container and name not in TAKE_SPARSE:
            continue
        if name == "auto" and container not in FEW:
            continue
        if name == "shallow nystroem" and "tensor" in container and "label" not in container:
            with pytest.raises(InputError, match="feature_map takes rows in the computer's own"):
                clone(DETECTORS[name]).fit(*make())
            continue
        scores = clone(DETECTORS[name]).fit(*make()).score_samples(rows)
        scores = np.asarray(scores.detach() if hasattr(scores, "detach") else scores)
        difference = np.abs(scores - expected).max() / expected.std()
        assert difference < close, f"{container}: differs by {difference:.3g}"


@each("name", ["boosted", "forest", "auto"])
def test_gaps_are_the_same_in_every_frame(name):
    X, y = make_rows()
    X[::7, 0], X[::5, 1] = np.nan, np.nan
    frame = frame_of(X)
    flags = frame.assign(c=pd.array(np.where(X[:, 2] > 0, X[:, 2] > 2, None), dtype="boolean"))
    for gappy in (frame, flags):
        expected = gappy.to_numpy(dtype=float, na_value=np.nan)
        for kind, given in {
            "nullable": gappy.convert_dtypes(),
            "arrow": gappy.convert_dtypes(dtype_backend="pyarrow"),
            "arrow doubles": gappy.astype(float).astype("double[pyarrow]"),
            "arrow decimals": gappy.astype(float).astype(pd.ArrowDtype(pa.decimal128(10, 1))),
            "polars": pl.from_pandas(gappy),
            "polars lazy": pl.from_pandas(gappy).lazy(),
            "objects": gappy.astype(object).where(gappy.notna(), pd.NA),
            "numbers": gappy.astype(float),
        }.items():
            seen = clone(DETECTORS[name])._check_rows(given, reset=True)
            np.testing.assert_array_equal(seen, expected, err_msg=kind)
    arrow = frame.convert_dtypes(dtype_backend="pyarrow")
    if name != "auto":
        expected = clone(DETECTORS[name]).fit(X, y).score_samples(X)
        scores = clone(DETECTORS[name]).fit(arrow, y).score_samples(arrow)
        np.testing.assert_array_equal(scores, expected)


def test_single_precision_stays_so_in_every_frame():
    X, _ = make_rows()
    single = frame_of(X.astype(np.float32))
    arrow, nullable = single.astype("float[pyarrow]"), single.astype("Float32")
    for given in (single, arrow, nullable, pl.from_pandas(single)):
        assert riskad.ShallowRAD()._check_rows(given, reset=True).dtype == np.float32
    mixed = single.assign(a=1.0)
    for given in (mixed, mixed.convert_dtypes(), pl.from_pandas(mixed)):
        assert riskad.ShallowRAD()._check_rows(given, reset=True).dtype == np.float64


def test_large_whole_numbers_of_a_tensor_are_not_rounded():
    X, y = make_rows()
    X = (X * 1e9).astype(int)
    whole = riskad.ShallowRAD().fit(torch.from_numpy(X), y)
    np.testing.assert_allclose(whole.coef_, riskad.ShallowRAD().fit(X, y).coef_, rtol=1e-9)


# --- tables that are none -----------------------------------------------------------------


TEXT = "Column 'country' holds text, '(FR|XX)' for instance.*AutoRAD"
DATES = "neither numbers nor categories.*TablePreparer turns them"


def mistakes(X, y):
    text = frame_of(X).assign(country=np.where(X[:, 0] > 0, "FR", "XX"))
    objects = X.astype(object)
    objects[3, 1] = "FR"
    dates = frame_of(X).assign(a=pd.Timestamp("2024-01-01"))
    arrow = {"dtype_backend": "pyarrow"}
    return {
        "names twice": (frame_of(X, "aba"), y, "several columns of one name: 'a'"),
        "numbers as names twice": (frame_of(X, [0, 1, 0]), y, "several columns of one name: 0"),
        "names of two types": (
            frame_of(X, ["a", 1, "c"]),
            y,
            r"must all be texts, and X has 1 of type int.*astype\(str\)",
        ),
        "complex": (X + 1j, y, "Complex data not supported: X must hold real numbers"),
        "complex column": (frame_of(X).assign(a=1j), y, "'a' holds values of type complex128"),
        "dates": (dates, y, DATES),
        "arrow dates": (dates.convert_dtypes(**arrow), y, "neither numbers nor categories"),
        "text in objects": (objects, y, "X holds text, 'FR' for instance"),
        "text in lists": (objects.tolist(), y, "X holds text, 'FR' for instance"),
        "text": (text, y, TEXT),
        "arrow text": (text.convert_dtypes(**arrow), y, TEXT),
        "polars text": (pl.from_pandas(text), y, TEXT),
        "categories": (text.astype({"country": "category"}), y, TEXT),
        "a label too few": (X, y[1:], "X has 120 rows and y 119 labels"),
        "two columns of labels": (X, np.c_[y, y], r"one label for each row.*shape \(120, 2\)"),
        "two columns of a frame": (X, pd.DataFrame({"a": y, "b": y}), "one label for each row"),
        "one dimension": (X[:, 0], y, "Expected 2D array"),
        "four dimensions": (X.reshape(30, 2, 2, 3), y[:30], "dim 4|module|shape"),
        "no rows": (X[:0], y[:0], "minimum of [12]"),
        "ragged": ([[1.0, 2.0], [3.0]], [1, -1], "inhomogeneous|sequence"),
    }


@every_detector
def test_a_mistake_is_a_sentence(name):
    taken = ("text", "arrow text", "polars text", "categories", "dates", "arrow dates")
    for mistake, (X, y, message) in mistakes(*make_rows()).items():
        if mistake in taken and name in TAKE_TEXT:
            assert clone(DETECTORS[name])._check_rows(X, reset=True).shape == X.shape
        elif mistake != "four dimensions" or not name.startswith("deep"):  # those of images
            with pytest.raises(InputError, match=message):
                clone(DETECTORS[name]).fit(X, y)


@pytest.mark.slow
@every_detector
def test_a_mistake_when_scoring_is_a_sentence(name):
    X, y = make_rows()
    model = clone(DETECTORS[name]).fit(frame_of(X), y)
    for given, message in [
        (frame_of(X).assign(b="FR"), "'b' held numbers when the model was fitted and now holds"),
        (frame_of(X, "aba"), "several columns of one name"),
        (pd.DataFrame(X, columns=["a", 1, "c"]), "must all be texts"),
        (frame_of(X).assign(b=1j), "complex128"),
        (frame_of(X, "abd"), "feature names"),
    ]:
        with pytest.raises(InputError, match=message):
            model.score_samples(given)
    with pytest.raises(InputError, match="Complex data not supported"):
        clone(model).fit(X, y).score_samples(X + 1j)


@each("name", sorted(set(DETECTORS) - set(TAKE_SPARSE) - {"shallow nystroem"}))
def test_who_takes_no_sparse_tables_says_so(name):
    X, y = make_rows()
    with pytest.raises(InputError, match="takes dense tables, and X is sparse"):
        clone(DETECTORS[name]).fit(sparse.csr_array(X), y)


def test_numbers_that_are_spelled_as_text_are_numbers():
    X, y = make_rows()
    frame = frame_of(X)
    spelled = frame.assign(a=frame["a"].astype(str))
    expected = riskad.ShallowRAD().fit(frame, y).score_samples(frame)
    for given in (spelled, pl.from_pandas(spelled), frame.astype({"a": "category"})):
        scores = riskad.ShallowRAD().fit(given, y).score_samples(given)
        np.testing.assert_allclose(scores, expected)


@each("door", TABLE_DOORS)
def test_other_doors_take_and_refuse_the_same_tables(door):
    X, y = make_rows()
    frame = frame_of(X)
    model = riskad.ShallowRAD().fit(frame, y)
    expected = TABLE_DOORS[door](model, frame, y)
    for given in (
        frame.convert_dtypes(dtype_backend="pyarrow"),
        frame.convert_dtypes(),
        pl.from_pandas(frame).lazy(),
    ):
        np.testing.assert_allclose(TABLE_DOORS[door](model, given, y), expected, 1e-9, 1e-9)
    with pytest.raises(InputError, match="several columns of one name"):
        TABLE_DOORS[door](model, frame_of(X, "aba"), y)
    if door not in LABELS_DO_NOT_MATTER:
        with pytest.raises(InputError, match="X has 120 rows and y 119 labels"):
            TABLE_DOORS[door](model, frame, read_codes(y[1:]))
