"""Debian's `chromium` by playwright: who imports this is skipped where one of them is missing.

With RISKAD_BROWSER=required it fails instead.
"""

import os
import shutil

import pytest

REQUIRED = os.environ.get("RISKAD_BROWSER") == "required"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if REQUIRED:
    import playwright.sync_api as playwright

    assert CHROMIUM, "RISKAD_BROWSER=required, and chromium is not installed"
else:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    if CHROMIUM is None:
        pytest.skip("needs the browser chromium", allow_module_level=True)
