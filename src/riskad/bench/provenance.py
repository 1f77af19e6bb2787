"""What the numbers of a record depend on beside its seed: versions, and the commit of the code."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import subprocess
from pathlib import Path

import riskad
from riskad._commit import built_from

__all__ = ["commit", "provenance", "versions"]


def provenance(*more: str) -> dict[str, str]:
    """Return what a record says of the code that made it; `more` are further packages.

    Returns
    -------
    The entries "versions" and "commit".
    """
    return {"versions": versions(*more), "commit": commit()}


@functools.cache
def versions(*more: str) -> str:
    """Return the versions of riskad, of the packages it computes with, and of Python."""
    packages = ("numpy", "scipy", "scikit-learn", *more)
    parts = [f"{name} {importlib.metadata.version(name)}" for name in packages]
    own = f"riskad {riskad.__version__}"
    return "; ".join([own, *parts, f"python {platform.python_version()}"])


@functools.cache
def commit() -> str:
    """Return what git calls the source tree that runs, or the commit that riskad was built from.

    The name ends in "-dirty" where files differ from the commit. Where nothing tells the commit, it
    is the version.
    """
    built, root = built_from() or riskad.__version__, Path(riskad.__file__).parents[2]
    if not (root / ".git").exists():
        return built
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--tags"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):  # no git, or a repository that it refuses
        return built
    return found.stdout.strip()
