"""Make the pictures of docs/images: python docs/screenshots.py, with playwright and chromium."""

from __future__ import annotations

import shutil
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
from click.testing import CliRunner
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


def make_payments(n: int = 3000, seed: int = 4) -> pl.DataFrame:
    """Payments of which 6 % are fraud; one in fifteen was looked at."""
    rng = np.random.default_rng(seed)
    fraud, known = rng.random(n) < 0.06, rng.random(n) < 0.067
    hour = np.where(fraud, rng.normal(4, 4, n), rng.normal(14, 4, n)) % 24
    abroad = rng.random(n) < np.where(fraud, 0.5, 0.05)
    return pl.DataFrame(
        {
            "payment": [f"P{i:05}" for i in range(1, n + 1)],
            "amount": np.exp(rng.normal(np.where(fraud, 4.7, 3.6), 0.7)).round(2),
            "hour": hour.round(1),
            "country": np.where(abroad, rng.choice(["BR", "SG", "US"], n), "BE"),
            "device_age_days": np.exp(rng.normal(np.where(fraud, 3, 5.5), 1)).round(),
            "attempts": 1 + rng.poisson(np.where(fraud, 1.5, 0.2)),
            "currency": "EUR",
            "label": np.where(known, np.where(fraud, "fraud", "ok"), ""),
        }
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
