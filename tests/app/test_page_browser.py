"""The page in a real browser: drawn, readable, quiet, and deaf to what stands in the data."""

from dataclasses import replace

import pytest
import support.browser  # noqa: F401
from conftest import PATIENCE
from support.page import HOSTILE, LABELS, fit_table, make_cards, make_hostile, with_words

from riskad.app.describe import describe_fit
from riskad.app.report.documents import write_report

pytestmark = pytest.mark.slow
SCREENS = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]

# Of every element that shows words of its own: size, colour and what is behind it.
WORDS = """
() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const f = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b);
  };
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = rgb(getComputedStyle(node).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const shown = [];
  for (const node of document.body.querySelectorAll("*")) {
    const words = [...node.childNodes].filter((n) => n.nodeType === 3 && n.data.trim());
    const box = node.getBoundingClientRect();
    if (!words.length || !box.width) continue;
    const style = getComputedStyle(node);
    const scale = node.ownerSVGElement ? node.getScreenCTM().a || node.getScreenCTM().b : 1;
    const pair = [rgb(node.ownerSVGElement ? style.fill : style.color), behind(node)].map(light);
    shown.push({
      words: words[0].data.trim().slice(0, 40),
      size: parseFloat(style.fontSize) * Math.abs(scale),
      contrast: (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05),
      left: box.left, right: box.right, svg: !!node.ownerSVGElement,
    });
  }
  return shown;
}
"""
CHARTS = """
() => [...document.querySelectorAll("svg")].map((svg) => {
  const box = svg.getBoundingClientRect();
  const kinds = "path, rect, circle, line:not(.axis):not(.grid):not(.base)";
  const marks = [...svg.querySelectorAll(kinds)]
    .map((mark) => mark.getBoundingClientRect())
    .filter((mark) => mark.width + mark.height > 1);
  const outside = marks.filter((mark) =>
    mark.left < box.left - 8 || mark.right > box.right + 8 ||
    mark.top < box.top - 8 || mark.bottom > box.bottom + 8);
  return {width: box.width, height: box.height, marks: marks.length, outside: outside.length};
})
"""


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """A page, one of hostile names and values, one in which every text is hostile."""
    plain = fit_table(make_cards(), LABELS, id="card", source="cards.csv")
    members = [{"member": "linear", "weight": 1.0, "auc": 0.9, "seconds": 1.0}]
    options = {"source": HOSTILE[0], "kinds": {HOSTILE[0]: "category"}, "top": 20}
    hostile = fit_table(make_hostile(), LABELS, id="card", **options)
    found = describe_fit(plain)
    fitted = found.fitted | {"leaderboard": members}
    reports = {
        "plain": replace(found, warnings=["something to mind"], fitted=fitted),
        "hostile": describe_fit(hostile, command=HOSTILE[1]),
        "all hostile": with_words(found, HOSTILE),
    }
    folder = tmp_path_factory.mktemp("pages")
    for name, report in reports.items():
        write_report(report, folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in reports}


def look_at(browser, path, width, scheme):
    """Open a page as a file, offline; return it, and all that it complained of or asked for."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
    )
    page, noise = context.new_page(), []
    page.on("console", lambda message: noise.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: noise.append(f"error: {error}"))
    page.on("request", lambda request: noise.append(f"request: {request.url}"))
    page.on("requestfailed", lambda request: noise.append(f"failed: {request.url}"))
    page.on("dialog", lambda dialog: (noise.append("dialog"), dialog.dismiss()))
    page.set_default_timeout(1000 * PATIENCE)
    page.goto(path.as_uri())
    page.evaluate("new Promise(requestAnimationFrame)")  # it has been drawn
    return page, [line for line in noise if line != f"request: {path.as_uri()}"]


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
@pytest.mark.parametrize("which", ["plain", "hostile"])
def test_the_page_is_readable(browser, paths, which, width, scheme):
    page, noise = look_at(browser, paths[which], width, scheme)
    assert noise == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.evaluate("document.querySelectorAll('details').forEach((each) => each.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    words = page.evaluate(WORDS)
    assert len(words) > 100
    assert [each for each in words if each["contrast"] < 4.5] == []
    assert [each for each in words if each["size"] < 11] == []
    cut = [each for each in words if each["svg"] and not 0 <= each["left"] < each["right"] <= width]
    assert cut == []
    charts = page.evaluate(CHARTS)
    assert len(charts) == 4
    for chart in charts:
        assert chart["width"] > 250
        assert chart["height"] > 50
        assert chart["marks"] > 2
        assert chart["outside"] == 0
    page.context.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_no_word_of_a_table_is_broken(browser, tmp_path, width):
    found = describe_fit(fit_table(make_cards(), LABELS, id="card"))
    reasons = [
        replace(each, value="Wednesday 2025-12-31", usual="Thursday")
        for each in found.top[0].reasons
    ]
    path = tmp_path / "report.html"
    write_report(replace(found, top=[replace(found.top[0], reasons=reasons)]), path)
    page, _ = look_at(browser, path, width, "light")
    heights = page.evaluate(
        """() => [...document.querySelectorAll(".cards td bdi")]
        .filter((each) => each.innerText === "Thursday")
        .map((each) => each.getClientRects().length)"""
    )
    assert heights == [1] * len(reasons)
    page.context.close()


@pytest.mark.parametrize("which", ["hostile", "all hostile"])
def test_names_and_values_of_the_data_become_no_elements(browser, paths, which):
    page, noise = look_at(browser, paths[which], 1280, "light")
    assert noise == []
    loading = "script, img, iframe, a, [src], [href], [onerror], [onmouseover]"
    assert page.evaluate(f"document.querySelectorAll('{loading}').length") == 0
    assert page.evaluate("document.querySelectorAll('h1').length") == 1
    text = page.evaluate("document.body.innerText")
    assert HOSTILE[0] in text
    assert "onerror" in text
    assert "{{7*7}}" in text
    assert "49" not in text.split("{{7*7}}")[1][:10]
    page.context.close()
