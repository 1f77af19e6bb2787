#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox>=2025.2"]
# ///
"""The checks of this repository, one task each: `nox -l` lists them.

`nox` makes an environment for each task. `nox --no-venv -s lint types` uses the current one, as
`.ci/run` does, and installs nothing.
"""

import os
from pathlib import Path

import nox
from nox.virtualenv import PassthroughEnv

nox.needs_version = ">=2025.2"
nox.options.default_venv_backend = "uv|virtualenv"
PYTHONS = nox.project.python_versions(nox.project.load_toml("pyproject.toml"))
# Tests that use other libraries; all tests with their lowest versions would exceed CI's time.
LOWEST = [
    *(f"tests/test_{name}.py" for name in ("boosted", "cluster", "export", "io", "model_format")),
    *(f"tests/test_{name}.py" for name in ("page", "parquet", "prepare", "tables")),
    "tests/test_cli.py::test_the_way_through_with_every_model",
]


def install(session: nox.Session, *requirements: str) -> None:
    """Install the package with its developers' tools, unless an environment was brought along."""
    if not isinstance(session.virtualenv, PassthroughEnv):
        session.install("-c", "constraints.txt", "-e", ".[dev]")
    if requirements:
        session.run("python", "-m", "pip", "install", *requirements)


@nox.session(python=PYTHONS, default=False)
def quick(session: nox.Session) -> None:
    """Run the tests that take at most a few seconds each."""
    install(session)
    session.run("pytest", "-m", "not slow", *session.posargs)


@nox.session(default=False)
def tests(session: nox.Session) -> None:
    """Run all tests that need no benchmark data."""
    install(session)
    session.run("pytest", *session.posargs)


@nox.session(default=False)
def data(session: nox.Session) -> None:
    """Run the tests that need the benchmark data, in the folder that RISKAD_DATA names."""
    install(session)
    if "RISKAD_DATA" not in os.environ:
        session.skip("RISKAD_DATA names no folder.")
    files = [path for path in Path("tests").rglob("test_*.py") if "needs_data" in path.read_text()]
    session.run("pytest", "-m", "needs_data", *map(str, sorted(files)))


@nox.session(default=False)
def experiments(session: nox.Session) -> None:
    """Run the tests of experiments/, which is no part of the package."""
    install(session)
    session.run("pytest", "experiments/tests", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, format and the direction of imports."""
    install(session)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports")


@nox.session
def types(session: nox.Session) -> None:
    """Check types."""
    install(session)
    session.run("mypy")


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build the site; a warning is an error."""
    install(session)
    session.run("sphinx-build", "-W", "docs", "site")


@nox.session(default=False)
def lowest(session: nox.Session) -> None:
    """Run tests that use other libraries with the lowest versions that pyproject.toml promises."""
    install(session, "-r", "constraints-lowest.txt")
    session.run("pytest", *LOWEST)


@nox.session(default=False)
def build(session: nox.Session) -> None:
    """Build the wheel and the sdist."""
    install(session)
    session.run("python", "-m", "build")


if __name__ == "__main__":
    nox.main()
