"""Make the pictures of docs/images: python docs/screenshots.py, with playwright and chromium."""

from __future__ import annotations

import shutil
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

from click.testing import CliRunner
from payments import make_payments
from playwright.sync_api import sync_playwright

from riskad.cli.main import cli

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


def main() -> None:
    """Fit, write the report, and look at it three times."""
    IMAGES.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder, chdir(folder):
        make_payments().write_csv("payments.csv")
        result = CliRunner().invoke(cli, COMMAND.split())
        assert result.exit_code == 0, result.output
        with sync_playwright() as driver:
            browser = driver.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            for name, width, height, scheme, section in PICTURES:
                page = browser.new_page(
                    viewport={"width": width, "height": height}, color_scheme=scheme
                )
                page.goto(Path("report.html").resolve().as_uri() + section)
                page.screenshot(path=IMAGES / f"{name}.png")
            browser.close()


if __name__ == "__main__":
    main()
