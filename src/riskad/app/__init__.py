"""One file for each task with tables and models, and ways to show the result."""

from riskad._lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__, __path__)
