"""Answers on disk: nothing acknowledged is lost, nothing is overwritten, rows are found again."""

import os
import re
import subprocess
import sys

import polars as pl
import pytest
from support.commands import result_of, run
from support.labelling import make_payments
from support.loops import each

import riskad
from riskad.app.journal import Answer, Journal, apply_labels, hash_rows, table_codes
from riskad.core.checks import InputError
from riskad.tables.labelled import LabelColumn

COLUMNS = ["card", "amount"]


@pytest.fixture
def table():
    return pl.DataFrame({"card": ["a", "b", "c", "d"], "amount": ["1", "2", "3", "900"]})


@pytest.fixture
def journal(tmp_path, table):
    return Journal(tmp_path / "labels.jsonl", "cards.csv", COLUMNS, table.height)


def add(journal, table, row, label, who="ada", source="suggested", note=""):
    (held,) = hash_rows(table[[row - 1]], journal.columns)
    journal.add(Answer(row, held, label, source, who, note=note))


@pytest.mark.parametrize("content", [None, ""])
def test_a_journal_is_begun_in_no_file_that_a_link_names(tmp_path, content):
    target, link = tmp_path / "elsewhere", tmp_path / "cards.csv.labels.jsonl"
    link.symlink_to(target)
    if content is not None:
        target.write_text(content)
    with pytest.raises(InputError, match=r"a link to a file that is no journal\. Give another"):
        Journal(link, "cards.csv", COLUMNS, 4)
    assert not target.exists() if content is None else not target.read_text()


def test_a_journal_may_be_kept_elsewhere_behind_a_link(tmp_path, journal, table):
    link = tmp_path / "link.jsonl"
    link.symlink_to(journal.path)
    add(Journal(link, "cards.csv", COLUMNS, 4), table, 2, "anomaly")
    assert [answer.row for answer in Journal(journal.path).log] == [2]


def test_answers_are_read_again(journal, table):
    add(journal, table, 4, "anomaly", note="too much: “900”\n")
    add(journal, table, 1, "normal")
    add(journal, table, 2, "unsure")
    again = Journal(journal.path)
    assert again.labels() == {4: "anomaly", 1: "normal"}
    assert again.columns == COLUMNS
    assert again.log == journal.log
    assert again.log[0].note == "too much: “900”\n"
    assert again.unreadable == 0


def test_the_last_answer_of_a_person_counts_and_all_stay(journal, table):
    for label in ("normal", "anomaly", ""):
        add(journal, table, 3, label)
        assert journal.labels() == ({3: label} if label else {})
    assert [answer.label for answer in journal.log] == ["normal", "anomaly", ""]
    assert len(journal.path.read_text().splitlines()) == 4


def test_people_who_differ_leave_no_label(journal, table):
    add(journal, table, 3, "normal", who="ada")
    add(journal, table, 3, "anomaly", who="bob")
    add(journal, table, 1, "normal", who="ada")
    add(journal, table, 1, "unsure", who="bob")
    assert journal.disputes() == [3]
    assert journal.labels() == {1: "normal"}
    applied = apply_labels(table, journal)
    assert applied.frame["label"].to_list() == ["normal", None, None, None]
    assert "People disagree about row 3" in applied.notes[0]
    add(journal, table, 3, "anomaly", who="ada")
    assert journal.disputes() == []
    assert journal.labels()[3] == "anomaly"


def test_a_torn_line_is_skipped_and_the_next_answer_is_whole(journal, table):
    add(journal, table, 1, "normal")
    with journal.path.open("ab") as file:
        file.write(b'{"row": 2, "hash": "12')
    torn = Journal(journal.path)
    assert torn.labels() == {1: "normal"}
    add(torn, table, 4, "anomaly")
    again = Journal(journal.path)
    assert (again.labels(), again.unreadable) == ({1: "normal", 4: "anomaly"}, 1)


@each(
    "line",
    [
        "null",
        "[1]",
        "\x00\x00",
        "[" * 100_000,
        '{"row": -1, "hash": "x", "label": "normal", "source": "chosen", "who": "a"}',
        '{"row": true, "hash": "x", "label": "normal", "source": "chosen", "who": "a"}',
        '{"row": 1, "hash": 5, "label": "normal", "source": "chosen", "who": "a"}',
        '{"row": 1, "hash": "x", "label": "fraud", "source": "chosen", "who": "a"}',
        '{"row": 1, "hash": "x", "label": "normal", "source": "found", "who": "a"}',
        '{"row": 1, "hash": "x", "label": "normal", "source": "chosen", "who": ""}',
    ],
)
def test_a_line_that_is_no_answer_is_counted_and_left_out(journal, table, line):
    with journal.path.open("a") as file:
        file.write(f"{line}\n")
    add(journal, table, 4, "anomaly")
    assert journal.labels() == {4: "anomaly"}
    assert journal.unreadable == len(journal.path.read_text().splitlines()) - 1 - len(journal.log)


def test_what_another_process_wrote_is_seen(journal, table):
    other = Journal(journal.path)
    add(other, table, 2, "normal", who="bob")
    journal.refresh()
    assert journal.labels() == {2: "normal"}


WRITER = """
import sys
from riskad.app.journal import Answer, Journal
journal = Journal(sys.argv[1])
for row in range(1, 61):
    journal.add(Answer(row, "x" * 2000, "normal", "chosen", sys.argv[2]))
"""


@pytest.mark.slow
def test_two_processes_do_not_tear_each_others_lines(journal):
    command = [sys.executable, "-c", WRITER, str(journal.path)]
    both = [subprocess.Popen([*command, who]) for who in ("ada", "bob")]
    assert [each.wait() for each in both] == [0, 0]
    journal.refresh()
    assert len(journal.log) == 120
    assert journal.unreadable == 0


def test_an_answer_is_on_the_disk_before_it_counts(journal, table, monkeypatch):
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda file: flushed.append(os.fstat(file).st_size))
    add(journal, table, 1, "normal")
    assert flushed == [journal.path.stat().st_size]


def test_a_full_disk_is_no_answer_and_takes_no_row_number(journal, monkeypatch):
    """Rows of feedback have no number; the next free one is that of what is on the disk."""

    def feedback(*hashes):
        journal.add(*(Answer(0, each, "normal", "chosen", "ada") for each in hashes))

    def full(file, data):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            feedback("a", "b")
    assert journal.log == []
    feedback("c", "d", "c")
    feedback("a", "c")
    n = journal.rows
    assert [answer.row - n for answer in journal.log] == [1, 2, 1, 3, 1]


def test_another_file_is_no_journal(tmp_path):
    path = tmp_path / "cards.csv"
    path.write_text("card,amount\n1,2\n")
    with pytest.raises(InputError, match="no journal of answers"):
        Journal(path)
    with pytest.raises(InputError, match="no journal of answers"):
        Journal(path, "cards.csv", ["card", "amount"], 1)
    assert path.read_text() == "card,amount\n1,2\n"
    with pytest.raises(InputError, match="Cannot write the journal"):
        Journal(tmp_path / "nowhere" / "labels.jsonl", "t", ["a"], 1)


def test_a_journal_that_is_read_only_is_said_before_the_first_answer(journal, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write to any file
    with pytest.raises(InputError, match="it is read-only"):
        Journal(journal.path, "cards.csv", COLUMNS, 4)
    assert Journal(journal.path).columns == COLUMNS  # readers need not write


@pytest.mark.parametrize("torn", ["", '{"riskad_', '{"riskad_journal": 1, "table": "t", "colu'])
def test_a_journal_whose_first_line_was_torn_begins_anew(tmp_path, table, torn):
    path = tmp_path / "labels.jsonl"
    path.write_text(torn)
    with pytest.raises(InputError, match="no journal of answers"):
        Journal(path)  # as by a reader, which changes nothing
    assert path.read_text() == torn
    add(Journal(path, "cards.csv", table.columns, table.height), table, 1, "normal")
    assert Journal(path).labels() == {1: "normal"}
    assert Journal(path).unreadable == 0


def test_lines_that_were_skipped_are_said(journal, table):
    with journal.path.open("a") as file:
        file.write('{"row": 2, "ha\nnull\n')
    add(journal, table, 1, "normal")
    said = "2 lines of the journal 'labels.jsonl' hold no answer and were skipped."
    assert apply_labels(table, journal.path).notes == [said]


# --- rows that moved ------------------------------------------------------------------------------


def test_rows_are_found_again_in_a_sorted_and_longer_table(journal, table):
    add(journal, table, 4, "anomaly", source="random")
    add(journal, table, 2, "normal")
    changed = pl.concat([table.reverse(), pl.DataFrame({"card": ["e"], "amount": ["5"]})])
    changed = changed.with_columns(pl.lit("new").alias("shop"))
    applied = apply_labels(changed, journal.path)
    assert applied.frame["label"].to_list() == ["anomaly", None, "normal", None, None]
    assert applied.sources == ["random", "", "suggested", "", ""]
    assert applied.notes == ["The table has changed: of 2 judged rows 2 have moved."]


def test_a_changed_row_loses_its_label_and_that_is_said(journal, table):
    add(journal, table, 4, "anomaly")
    add(journal, table, 1, "normal")
    changed = table.with_columns(pl.Series("amount", ["1", "2", "3", "901"]))
    applied = apply_labels(changed, journal)
    assert applied.frame["label"].to_list() == ["normal", None, None, None]
    assert "1 is gone" in applied.notes[0]


def test_new_answers_go_to_the_rows_as_they_are_now(journal, table):
    add(journal, table, 1, "normal")
    turned = table.reverse()
    journal.locate(turned)
    assert journal.labels() == {4: "normal"}
    add(journal, turned, 1, "anomaly")
    assert journal.labels() == {4: "normal", 1: "anomaly"}
    again = Journal(journal.path)
    again.locate(turned)
    assert again.labels() == {4: "normal", 1: "anomaly"}


def test_rows_that_hold_the_same_keep_their_own_label(journal):
    twins = pl.DataFrame({"card": ["a", "a", "b"], "amount": ["1", "1", "2"]})
    add(journal, twins, 2, "anomaly")
    assert apply_labels(twins, journal).frame["label"].to_list() == [None, "anomaly", None]


def test_a_table_without_a_column_of_the_journal_is_refused(journal, table):
    add(journal, table, 1, "normal")
    with pytest.raises(InputError, match="a column 'amount', which this one lacks"):
        apply_labels(table.drop("amount"), journal)


# --- labels of tables -----------------------------------------------------------------------------


def test_answers_go_before_the_labels_of_the_table_in_its_own_words(journal, table):
    table = table.with_columns(pl.Series("status", ["ok", "ok", "", "ok"]))
    add(journal, table, 4, "anomaly")
    add(journal, table, 3, "normal")
    add(journal, table, 2, "skip")
    said = LabelColumn("status", normal=["ok"], anomaly=["fraud"])
    applied = apply_labels(table, journal, said)
    assert applied.frame["status"].to_list() == ["ok", "ok", "ok", "fraud"]
    assert applied.labels == LabelColumn("status", ["ok"], ["fraud"], [])


def test_words_that_nobody_explained_are_asked_for(journal, table):
    table = table.with_columns(pl.Series("status", ["ok", "fraud", "", "ok"]))
    with pytest.raises(InputError, match="Say what the values of column 'status' mean"):
        apply_labels(table, journal, LabelColumn("status"))


def test_words_that_no_row_has_yet_are_no_mistake(journal, table):
    add(journal, table, 4, "anomaly")
    applied = apply_labels(table, journal, LabelColumn("status", ["ok"], ["fraud"]))
    assert applied.labels == LabelColumn("status", [], ["fraud"], [])
    codes, _ = table_codes(applied.frame, LabelColumn("status", ["ok"], ["fraud"]))
    assert codes.tolist() == [0, 0, 0, -1]
    with pytest.raises(InputError, match="'okay' never occurs"):
        table_codes(applied.frame, LabelColumn("status", ["okay"], ["frad"]))


@pytest.fixture
def labelled(tmp_path):
    """A table on disk and a journal about it."""
    table, fraud = make_payments()
    table.write_csv(tmp_path / "cards.csv")
    texts = riskad.read_table(tmp_path / "cards.csv")
    path = tmp_path / "cards.csv.labels.jsonl"
    journal = Journal(path, "cards.csv", texts.columns, texts.height)
    for row in range(1, 61):
        add(journal, texts, row, "anomaly" if fraud[row - 1] else "normal", source="random")
    return tmp_path, fraud


def test_export_writes_as_the_table_was_written(labelled):
    folder, fraud = labelled
    table = folder / "cards.csv"
    before = table.read_text().replace(",", ";").encode("utf-8-sig")
    table.write_bytes(before)
    for name in ("out.csv", "out.xlsx"):
        assert "60 rows have a label" in run("label", table, "--export", folder / name).output
        labels = riskad.read_table(folder / name)["label"].to_list()
        assert labels[:60] == ["anomaly" if bad else "normal" for bad in fraud[:60]]
        assert set(labels[60:]) == {None}
        assert table.read_bytes() == before
    lines = (folder / "out.csv").read_bytes().splitlines()
    assert [line.rpartition(b";")[0] for line in lines] == table.read_bytes().splitlines()


@pytest.mark.parametrize(
    ("source", "rests_on"), [("random", "as a random sample"), ("suggested", "were chosen")]
)
def test_fit_reads_the_journal_directly(labelled, source, rests_on):
    folder, fraud = labelled
    journal = folder / "cards.csv.labels.jsonl"
    journal.write_text(journal.read_text().replace('"random"', f'"{source}"'))
    command = ("fit", folder / "cards.csv", "--id", "card", "--model", "shallow")
    report = result_of(*command, "--journal", journal, "-o", folder / "m.riskad")
    assert report["labels"]["anomaly"] == fraud[:60].sum()
    assert report["labels"]["unlabelled"] == 240
    assert rests_on in report["rate"]["assumption"]


@pytest.mark.parametrize("how", ["no column", "blank column", "unsure answers"])
def test_fit_ranks_rows_where_none_is_labelled_and_says_so(labelled, how):
    folder, _ = labelled
    table, command = folder / "cards.csv", ["fit", folder / "cards.csv", "--id", "card"]
    if how == "blank column":
        riskad.read_table(table).with_columns(status=pl.lit(" ")).write_csv(table)
        command += ["--label", "status"]
    if how == "unsure answers":
        journal = folder / "cards.csv.labels.jsonl"
        journal.write_text(re.sub('"(normal|anomaly)"', '"unsure"', journal.read_text()))
        command += ["--journal", journal]
    said = " ".join(run(*command, "-o", folder / "m.riskad").stdout.split())
    assert "no row is labelled, so rows are ranked by how unlike" in said
    assert "(--model outliers)" in said
    assert "unsupervised: no label was learned from" in said


def test_fit_does_not_learn_from_forgotten_labels_as_from_a_column(labelled):
    folder, _ = labelled
    table = riskad.read_table(folder / "cards.csv")
    table.with_columns(Label=pl.lit("ok")).write_csv(folder / "with.csv")
    command = ("fit", folder / "with.csv", "--id", "card", "-o", folder / "m.riskad")
    assert "If it holds labels, say so: --label Label" in run(*command, code=1).output
    run(*command, "--drop", "Label")


def test_fit_without_labels_says_what_is_missing(labelled):
    folder, _ = labelled
    command = ("fit", folder / "cards.csv", "-o", folder / "m")
    said = run(*command, "--model", "shallow", code=1).output
    assert "--label" in said
    assert "--journal" in said
    said = run(*command, "--journal", "none.jsonl", code=1).output
    assert "There is no file 'none.jsonl'" in said
