"""Labelling in the browser: a local page, and fits in the background.

Answers are kept by `riskad.app.journal`.
"""

from riskad._lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__, __path__)
