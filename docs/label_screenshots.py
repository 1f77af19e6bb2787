"""Make the pictures of docs/howto/label.md, with playwright and chromium."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
from payments import make_payments
from playwright.sync_api import Page, expect, sync_playwright

IMAGES = Path(__file__).parent / "images"
ANSWERS = 30
# Name, width and height in pixels, colour scheme.
PICTURES = (
    ("label-light", 1280, 900, "light"),
    ("label-dark", 1280, 900, "dark"),
    ("label-phone", 390, 844, "light"),
)


def judge(page: Page, table: pl.DataFrame) -> None:
    """Answer as somebody would who knows the labels that the table does not show."""
    for _ in range(ANSWERS):
        title = page.inner_text("#row-title")
        row = int(re.search(r"Row ([\d,]+)", title)[1].replace(",", ""))
        payment = table.row(row - 1, named=True)
        strange = payment["country"] != "BE" or payment["attempts"] >= 3
        page.keyboard.press("a" if strange else "n")
        expect(page.locator("#status")).to_contain_text(f"Row {row} saved")


def main() -> None:
    """Label until there is a model, then look at the page."""
    IMAGES.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder, sync_playwright() as driver:
        table = make_payments().drop("label")
        table.write_csv(Path(folder, "payments.csv"))
        command = ["-m", "riskad", "label", f"{folder}/payments.csv", "--id", "payment"]
        server = subprocess.Popen(
            [sys.executable, *command, "--who", "ada", "--budget", "60"],
            stdout=subprocess.PIPE,
            text=True,
        )
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        try:
            page = browser.new_page()
            page.goto(server.stdout.readline().split()[-1])
            expect(page.locator("#row-cells table").first).to_be_visible()
            judge(page, table)
            expect(page.locator("#model-body")).to_contain_text("AUC", timeout=300_000)
            expect(page.locator("#progress")).to_be_empty(timeout=300_000)
            page.keyboard.press("ArrowRight")
            expect(page.locator(".adds .meter").first).to_be_visible(timeout=60_000)
            for name, width, height, scheme in PICTURES:
                page.emulate_media(color_scheme=scheme)
                page.set_viewport_size({"width": width, "height": height})
                page.screenshot(path=IMAGES / f"{name}.png")
        finally:
            browser.close()
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
