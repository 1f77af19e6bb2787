"""The site: `sphinx-build -W docs site`. Nothing is loaded from the network."""

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS / "extensions"), str(DOCS.parent / "src")]

from riskad import __version__  # noqa: E402

project = "riskad"
author = "The riskad developers"
copyright = "the riskad developers"
version = release = __version__
extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "architecture",
    "commands",
    "docstrings",
]
exclude_patterns = ["extensions", "images"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
default_role = "code"
smartquotes = False  # `--force` is no dash
autodoc_member_order = "bysource"
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
suppress_warnings = ["config.cache"]

html_theme = "furo"
html_title = "riskad"
html_static_path = ["_static"]
html_extra_path = ["llms.txt"]  # the map of the site for language models
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
