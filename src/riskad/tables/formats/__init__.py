"""How the cells of a column are written: gaps, numbers, yes and no, dates and times."""

from riskad._lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__, __path__)
