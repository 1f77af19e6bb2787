"""The wheel and the sdist: built here, installed and used where the repository is not."""

import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "riskad"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (ROOT / "pyproject.toml").exists()
        or not all(map(find_spec, ("build", "hatchling", "hatch_vcs"))),
        reason="needs the repository, build, hatchling and hatch-vcs",
    ),
]
LARGEST_WHEEL = 12e6
CARDS = "amount,country,status\n" + "".join(
    f"{amount},{country},{status}\n"
    for i in range(60)
    for amount, country, status in [
        (10 + i % 7, "FR" if i % 3 else "DE", "ok" if i < 12 else ""),
        *([(900 + i, "US", "fraud" if i < 30 else "")] if i % 6 == 0 else []),
    ]
)


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist, and the wheel that is built from it, as `python -m build` makes them."""
    folder = tmp_path_factory.mktemp("dist")
    options = ("--no-isolation", "--skip-dependency-check", "--outdir", folder)
    run(sys.executable, "-m", "build", *options, ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """An environment of its own that has the wheel, and borrows the libraries of this one."""
    folder = tmp_path_factory.mktemp("env")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index")
    run(*pip, built[0])
    (packages,) = folder.glob("lib/python*/site-packages")
    borrowed = Path(find_spec("numpy").origin).parents[1]
    (packages / "borrowed.pth").write_text(f"{borrowed}\n", encoding="utf-8")
    return folder / "bin"


def test_the_wheel_is_small_and_holds_every_file_of_the_package(built):
    assert built[0].stat().st_size < LARGEST_WHEEL
    with zipfile.ZipFile(built[0]) as wheel:
        held = [name for name in wheel.namelist() if name.startswith("riskad/")]
    files = (path for path in SOURCES.rglob("*") if path.is_file())
    own = [p.relative_to(SOURCES.parent).as_posix() for p in files if "__pycache__" not in p.parts]
    assert sorted(held) == sorted(own)  # and none of them twice


def test_the_sdist_holds_tests_and_documents_but_no_results(built):
    with tarfile.open(built[1]) as sdist:
        parts = [Path(name).parts[1] for name in sdist.getnames() if len(Path(name).parts) > 1]
    assert {"src", "tests", "docs", "LICENSE", "README.md", "pyproject.toml"} <= set(parts)
    assert not {"results", "experiments", ".ci"} & set(parts)


def test_the_installed_command_names_the_commit(installed, tmp_path):
    printed = run(installed / "riskad", "--version", cwd=tmp_path, env={"PATH": ""})
    version = re.fullmatch(r"riskad (\d\S+)\n", printed)[1]
    if (ROOT / ".git").exists() and "+" in version:  # commits after the last tag
        head = run("git", "-C", ROOT, "rev-parse", "HEAD").strip()
        assert head.startswith(re.search(r"\+g([0-9a-f]{7,})", version)[1])


def test_the_installed_package_fits_and_scores_without_the_repository(installed, tmp_path):
    where = run(installed / "python", "-I", "-c", "import riskad; print(riskad.__file__)")
    assert installed.parent.resolve() in Path(where).resolve().parents
    (tmp_path / "cards.csv").write_text(CARDS, encoding="utf-8")
    labels = ("--label", "status", "--normal", "ok", "--anomaly", "fraud")
    command = installed / "riskad"
    run(command, "fit", "cards.csv", *labels, "--model", "forest", "-o", "c.riskad", cwd=tmp_path)
    printed = run(command, "score", "c.riskad", "cards.csv", "-o", "scored.csv", cwd=tmp_path)
    assert "scored.csv" in printed
    head, *rows = (tmp_path / "scored.csv").read_text("utf-8").splitlines()
    assert "anomaly_score" in head
    assert len(rows) == 70
