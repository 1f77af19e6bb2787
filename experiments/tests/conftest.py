"""What tests of experiments share: where results and benchmark data are."""

import os
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import pytest


def pytest_runtest_setup(item):
    """Skip what needs the benchmark data where they are not."""
    folder = Path(os.environ.get("RISKAD_DATA") or "no such folder")
    if item.get_closest_marker("needs_data") and not (folder / "adbench").is_dir():
        pytest.skip("RISKAD_DATA does not name a folder with the benchmark data")
