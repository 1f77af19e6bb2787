"""Rows from Parquet files: what is read, what is refused, and what damage does."""

from datetime import date, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from polars.testing import assert_frame_equal
from support.rows import make_table

from riskad import InputError, ShallowRAD

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from riskad.rows import parquet_files
from riskad.rows.parquet import ParquetRows
from riskad.rows.parquet_files import find_parquet
from riskad.tables.reading import read_batches, read_table

NAMES = list("abcd")


def write(path, X, y=None, row_group_size=300, **columns):
    data = {name: X[:, j] for j, name in enumerate(NAMES)} | columns
    if y is not None:
        data["label"] = y
    pq.write_table(pa.table(data), path, row_group_size=row_group_size, write_page_checksum=True)


@pytest.fixture
def table():
    return make_table()


@pytest.fixture
def folder(tmp_path, table):
    X, y = table
    for i in range(3):
        rows = slice(1000 * i, 1000 * (i + 1))
        write(tmp_path / f"{i}.parquet", X[rows], y[rows])
    return tmp_path


def test_files_give_the_fit_of_the_table(folder, table):
    X, y = table
    write(folder / "1b.parquet", X[:0], y[:0])  # a file without rows adds nothing
    rows = ParquetRows(folder, label="label")
    model = ShallowRAD(lam=0.1, tol=1e-9).fit(rows)
    whole = ShallowRAD(lam=0.1, tol=1e-9).fit(X, y)
    assert_allclose(model.coef_, whole.coef_, rtol=1e-8)
    assert list(model.feature_names_in_) == NAMES
    assert rows.n_rows == 3000
    assert rows.passes <= 4
    scores = model.score_samples(ParquetRows(folder, columns=NAMES))
    assert_allclose(scores, whole.score_samples(X), rtol=1e-6)


@pytest.mark.parametrize("how", ["folder", "pattern", "list", "one file"])
def test_files_may_be_named_in_several_ways(folder, how):
    paths = {
        "folder": folder,
        "pattern": str(folder / "*.parquet"),
        "list": [folder / "0.parquet", str(folder / "[12].parquet")],
        "one file": folder / "0.parquet",
    }
    found = find_parquet(paths[how])
    assert [path.stem for path in found] == (["0"] if how == "one file" else ["0", "1", "2"])


def test_a_folder_that_is_a_whole_disk_is_not_searched_to_the_end(folder, monkeypatch):
    for name in ("notes.txt", "more.txt"):
        (folder / name).touch()
    assert find_parquet(folder)
    monkeypatch.setattr(parquet_files, "_MOST_OTHERS", 1)
    with pytest.raises(InputError, match=r"not searched to the end. Name the folder"):
        find_parquet(folder)


def test_labels_in_words_weights_and_single_precision(tmp_path, table):
    X, y = table
    words = np.array(["fraud", None, "ok"], dtype=object)[y + 1]
    weight = np.linspace(0.5, 2, len(y))
    write(tmp_path / "a.parquet", X.astype(np.float32), words, w=weight, other=words)
    rows = ParquetRows(
        tmp_path, label="label", normal="ok", anomaly="fraud", weight="w", columns=NAMES
    )
    assert (rows.counts().normal, rows.counts().anomaly) == (60, 30)
    model = ShallowRAD(lam=0.1, tol=1e-9).fit(rows)
    whole = ShallowRAD(lam=0.1, tol=1e-9).fit(X.astype(np.float32), y, weight)
    assert_allclose(model.coef_, whole.coef_, rtol=1e-7)


def test_columns_may_be_prepared(tmp_path, table):
    X, y = table
    town = np.where(X[:, 3] > 0, "Ulm", "Bonn")
    write(tmp_path / "a.parquet", X, y, town=town)

    def prepare(frame):
        return frame.select("a", (pl.col("town") == "Ulm").cast(float)).to_numpy()

    rows = ParquetRows(tmp_path, label="label", prepare=prepare, feature_names=["a", "is Ulm"])
    assert_array_equal(rows.first()[:9], np.column_stack([X[:9, 0], town[:9] == "Ulm"]))
    assert list(ShallowRAD(lam=0.1).fit(rows).feature_names_in_) == ["a", "is Ulm"]


def test_a_column_that_changes_its_type(folder, table):
    X, y = table
    texts = X[:10].astype(str)
    write(folder / "3.parquet", texts, y[:10])
    with pytest.raises(InputError, match=r"'a' is double in .*0.parquet and string in .*3.parquet"):
        ParquetRows(folder, label="label")


def test_a_damaged_row_group_in_the_middle(folder):
    path = folder / "1.parquet"
    data = bytearray(path.read_bytes())
    group = pq.read_metadata(path).row_group(1).column(2)
    start = group.data_page_offset + 40
    data[start : start + 64] = bytes(64)
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"1.parquet, row group 1 cannot be read as Parquet"):
        ShallowRAD(lam=0.1).fit(ParquetRows(folder, label="label"))


def test_a_file_that_is_empty_or_was_cut(folder):
    path = folder / "2.parquet"
    for length in (-100, 0):
        path.write_bytes(path.read_bytes()[:length])
        with pytest.raises(InputError, match=r"2.parquet cannot be read as Parquet"):
            ParquetRows(folder, label="label")


def test_labels_that_change_and_a_file_that_goes_between_two_passes(folder, table):
    X, _ = table
    rows = ParquetRows(folder, label="label")
    write(folder / "2.parquet", X[2000:], np.full(1000, 7, dtype=np.int16))
    with pytest.raises(InputError, match="changed while it was read"):
        ShallowRAD(lam=0.1).fit(rows)
    (folder / "2.parquet").unlink()
    with pytest.raises(InputError, match=r"2.parquet is no longer there"):
        ShallowRAD(lam=0.1).fit(rows)


def test_two_columns_of_one_name_are_refused(tmp_path):
    table = pa.Table.from_arrays([pa.array([1.0, 2.0])] * 2, names=["a", "a"])
    pq.write_table(table, tmp_path / "twice.parquet")
    with pytest.raises(InputError, match="more than one column named 'a'"):
        ParquetRows(tmp_path / "twice.parquet")


def test_a_page_that_declares_fewer_values_than_none(tmp_path):
    """A reader that believed it would reserve memory without end."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": [f"t{i}" for i in range(60)]}), path, use_dictionary=False)
    data = bytearray(path.read_bytes())
    # A page header: type 0, two sizes, then the struct of the data page, whose first field is 60.
    place = data.index(b"\x2c\x15" + bytes([120]))
    data[place + 2] = 119  # zigzag of -60
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"cannot be read as Parquet: .*write it again"):
        read_table(path)


def test_a_text_that_is_not_utf8_is_refused(tmp_path):
    """Nothing else would notice: a text is taken as it stands in the file."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": ["gulls", "terns"] * 30}), path, use_dictionary=False)
    path.write_bytes(path.read_bytes().replace(b"gulls", b"gu\xfflls"[:5]))
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        read_table(path)
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        list(read_batches(path))


def test_types_that_a_file_names_are_kept(tmp_path):
    frame = pl.DataFrame(
        {
            "whole": pl.Series([1, None], dtype=pl.Int32),
            "number": [0.5, float("nan")],
            "flag": [True, None],
            "text": ["a", None],
            "kind": pl.Series(["x", "y"], dtype=pl.Categorical),
            "day": [date(2025, 3, 27), None],
            "moment": pl.Series([datetime(2025, 3, 27, 18, 14), None]).dt.replace_time_zone("UTC"),
            "took": [timedelta(minutes=5), None],
            "price": pl.Series(["12.50", "0.10"]).cast(pl.Decimal(10, 2)),
        }
    )
    path = tmp_path / "types.parquet"
    frame.write_parquet(path)
    assert_frame_equal(read_table(path), frame)
    assert_frame_equal(pl.concat(read_batches(path)), frame)
    frame.clear().write_parquet(path)
    assert read_table(path).schema == frame.schema


def test_batches_do_not_follow_row_groups(tmp_path):
    """Products of a matrix come out the same only if batches are multiples of what BLAS takes."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": np.arange(1000.0)}), path, row_group_size=130)
    batches = list(read_batches(path))
    assert all(batch.height % 64 == 0 for batch in batches[:-1])
    np.testing.assert_array_equal(pl.concat(batches)["a"], np.arange(1000.0))
