"""Make the pictures of docs/images: python docs/screenshots.py, with playwright and chromium.

With `label` after it, those of the labelling page alone; with `report`, those of the report.
"""

from __future__ import annotations

import re
import shutil
import sys
import threading
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from click.testing import CliRunner
from payments import make_payments
from playwright.sync_api import expect, sync_playwright

from riskad.cli.main import cli
from riskad.web.label.server import Binding, Server
from riskad.web.label.session import Options, Session

IMAGES = Path(__file__).parent / "images"
COMMAND = (
    "fit payments.csv --label label --normal ok --anomaly fraud --id payment -o payments.riskad "
    "--report report.html --top 4"
)
# Name, width and height in pixels, colour scheme, section to begin with.
PICTURES = (
    ("report-light", 1280, 1500, "light", ""),
    ("report-dark", 1280, 1300, "dark", "#scores"),
    ("report-phone", 390, 1500, "light", ""),
)

LABEL_PICTURES = (
    ("label-light", 1280, 900, "light"),
    ("label-dark", 1280, 900, "dark"),
    ("label-phone", 390, 844, "light"),
)
JUDGED = 40


def main() -> None:
    """Make the pictures that are asked for, or all."""
    IMAGES.mkdir(exist_ok=True)
    asked = sys.argv[1:] or ["report", "label"]
    with TemporaryDirectory() as folder, chdir(folder), sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for each in asked:
            {"report": report_pictures, "label": label_pictures}[each](browser)
        browser.close()


def report_pictures(browser: Any) -> None:
    """Fit, write the report, and look at it three times."""
    make_payments().write_csv("payments.csv")
    result = CliRunner().invoke(cli, COMMAND.split())
    assert result.exit_code == 0, result.output
    for name, width, height, scheme, section in PICTURES:
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        page.goto(Path("report.html").resolve().as_uri() + section)
        page.screenshot(path=IMAGES / f"{name}.png")


def label_pictures(browser: Any) -> None:
    """Label some rows, wait for the model, and look at the page three times."""
    table = make_payments(looked_at=1.0)
    options = Options(id="payment", who="ada", budget=15.0)
    session = Session(table.drop("label"), "labels.jsonl", options, "payments.csv")
    server = Server(session, Binding())
    running = threading.Thread(target=server.run)
    running.start()
    try:
        page = browser.new_page()
        page.goto(server.invite())
        for _ in range(JUDGED):
            judge(page, table["label"].to_list())
        expect(page.locator("#progress")).to_be_empty(timeout=300_000)
        for name, width, height, scheme in LABEL_PICTURES:
            size = {"width": width, "height": height}
            page = browser.new_context(viewport=size, color_scheme=scheme).new_page()
            page.goto(server.invite())
            expect(page.locator("#row-cells td.adds .meter").first).to_be_visible(timeout=60_000)
            page.screenshot(path=IMAGES / f"{name}.png")
    finally:
        server.stop()
        running.join()


def judge(page: Any, truth: list[str]) -> None:
    """Label the row that is shown as it is."""
    expect(page.locator("#row-title")).to_contain_text("Row ")
    row = int(re.search(r"Row ([\d,]+)", page.inner_text("#row-title"))[1].replace(",", ""))
    page.keyboard.press("a" if truth[row - 1] == "fraud" else "n")
    expect(page.locator("#status")).to_contain_text(f"Row {row} saved")


if __name__ == "__main__":
    main()
