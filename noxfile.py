#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox>=2025.2"]
# ///
"""The checks of this repository, one task each: `nox -l` lists them.

`nox` makes an environment for each task. `nox --no-venv -s lint types` uses the current one, as
`.ci/run` does; only `lowest` installs something there, older versions of the libraries.
"""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import nox
from nox.virtualenv import PassthroughEnv

nox.needs_version = ">=2025.2"
nox.options.default_venv_backend = "uv|virtualenv"
PYTHONS = nox.project.python_versions(nox.project.load_toml("pyproject.toml"))
# Tests that use other libraries; all tests with their lowest versions would exceed CI's time.
LOWEST = [
    "tests/app/test_export.py",
    "tests/app/test_page.py",
    "tests/cli/test_cli.py::test_the_way_through_with_every_model",
    "tests/detectors/test_boosted.py",
    "tests/files/test_io.py",
    "tests/files/test_model_format.py",
    "tests/rows/test_cluster.py",
    "tests/rows/test_parquet.py",
    "tests/tables/test_prepare.py",
    "tests/tables/test_tables.py",
]

# Each in a process of its own: executors have the environment in which Spark was started.
SPARK = ["tests/app/test_spark.py", "tests/repository/test_docs.py"]


def install(session: nox.Session, *requirements: str) -> None:
    """Install the package with its developers' tools, unless an environment was brought along."""
    if not isinstance(session.virtualenv, PassthroughEnv):
        session.install("-c", "constraints.txt", "-e", ".[dev]")
        if requirements:
            session.install(*requirements)  # by uv where it is there, whose environments lack pip
    elif requirements:
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
def spark(session: nox.Session) -> None:
    """Run the tests of Spark, which takes 450 MB and needs Java, and of S3."""
    if shutil.which("java") is None:
        session.skip("There is no Java, which Spark needs: nothing was tested.")
    install(session)
    env = {}
    if isinstance(session.virtualenv, PassthroughEnv):
        if find_spec("pyspark") is None:
            session.skip("pyspark is not installed: nothing was tested.")
    else:
        session.install("-c", "constraints.txt", "-e", ".[spark]")
        # The server of S3 needs other versions than those that are pinned.
        moto = Path(session.create_tmp(), "moto")
        session.run("python", "-m", "venv", str(moto))
        session.run(str(moto / "bin" / "pip"), "install", "moto[server,s3]>=5", external=True)
        env["RISKAD_MOTO"] = str(moto / "bin" / "moto_server")
    for file in SPARK:
        session.run("pytest", "-n", "0", "-k", "spark", file, *session.posargs, env=env)
    session.run("pytest", "-n", "0", "tests/app/test_object_stores.py", env=env)


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
