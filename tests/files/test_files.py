import os
import stat

import pytest
from support.loops import each

from riskad.core.checks import InputError
from riskad.files.atomic import atomic_path, check_input_file, check_output_file, together


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def write_half_and(action, target, force=False):
    with atomic_path(target, force) as part:
        part.write_text("half")
        action()


def throw(error):
    raise error


@each("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_a_failed_block_leaves_the_old_file_or_nothing(tmp_path, error):
    with pytest.raises(error):
        write_half_and(lambda: throw(error), tmp_path / "new.txt")
    (tmp_path / "out.txt").write_text("old")
    with pytest.raises(error):
        write_half_and(lambda: throw(error), tmp_path / "out.txt", force=True)
    assert (tmp_path / "out.txt").read_text() == "old"
    assert names(tmp_path) == ["out.txt"]


def test_an_existing_file_is_kept_without_force(tmp_path):
    (tmp_path / "out.txt").write_text("old")
    with pytest.raises(InputError, match="force=True"), atomic_path(tmp_path / "out.txt"):
        pytest.fail("the block must not run")
    assert (tmp_path / "out.txt").read_text() == "old"


def test_replacing_keeps_the_permissions(tmp_path):
    target = tmp_path / "out.txt"
    target.write_text("old")
    target.chmod(0o640)
    with atomic_path(target, force=True) as part:
        part.write_text("new")
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "out.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to(tmp_path / "real" / "out.txt")
    with atomic_path(tmp_path / "link.txt", force=True) as part:
        part.write_text("new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real" / "out.txt").read_text() == "new"


def test_places_that_cannot_be_written_to(tmp_path):
    with pytest.raises(InputError, match="is a folder"):
        check_output_file(tmp_path)
    with pytest.raises(InputError, match="there is no folder"):
        check_output_file(tmp_path / "nowhere" / "out.txt")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a plain file"):
        check_output_file(tmp_path / "pipe", force=True)


def test_a_folder_without_permission(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)  # root may write anywhere
    with pytest.raises(InputError, match="does not let you write"):
        check_output_file(tmp_path / "out.txt")


def test_missing_input_files(tmp_path):
    (tmp_path / "cards.csv").write_text("a\n1\n")
    assert check_input_file(tmp_path / "cards.csv") == tmp_path / "cards.csv"
    with pytest.raises(InputError, match=r"Did you mean 'cards\.csv'"):
        check_input_file(tmp_path / "card.csv")
    with pytest.raises(InputError, match=r"There is no folder .* either"):
        check_input_file(tmp_path / "no" / "cards.csv")
    with pytest.raises(InputError, match="is a folder"):
        check_input_file(tmp_path)


def test_files_appear_together_or_not_at_all(tmp_path):
    def write(*found, meanwhile=None):
        with together():
            for name in found:
                with atomic_path(tmp_path / name) as part:
                    part.write_text(name)
            assert not set(found) & set(names(tmp_path))
            if "fail" in found:
                raise RuntimeError
            if meanwhile:
                (tmp_path / meanwhile).write_text("somebody else's")

    with pytest.raises(RuntimeError):
        write("model", "fail")
    with pytest.raises(InputError, match="is named for two different outputs"):
        write("model", "model")
    assert names(tmp_path) == []
    write("model", "report")
    assert names(tmp_path) == ["model", "report"]
    with pytest.raises(InputError, match="exists already"):
        write("card", "page", meanwhile="page")
    assert names(tmp_path) == ["model", "page", "report"]
    assert (tmp_path / "page").read_text() == "somebody else's"


def test_a_part_that_failed_is_not_published_with_the_others(tmp_path):
    with together():
        with pytest.raises(RuntimeError):
            write_half_and(lambda: throw(RuntimeError), tmp_path / "half")
        with atomic_path(tmp_path / "whole") as part:
            part.write_text("whole")
    assert names(tmp_path) == ["whole"]
