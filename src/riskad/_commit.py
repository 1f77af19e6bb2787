"""The commit that an installed riskad was built from."""

from __future__ import annotations

from importlib.resources import files

__all__ = ["built_from"]


def built_from() -> str:
    """Return the commit; "" in a checkout, whose files may change after any commit.

    What is built carries it in `commit.txt` (`hatch_build.py`); git is not asked.
    """
    written = files("riskad").joinpath("commit.txt").read_text("utf-8").strip()
    return "" if written.startswith("$Format") else written
