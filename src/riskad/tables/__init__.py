"""Users' tables: reading, kinds of column, summaries over all rows, preparation."""

from riskad._lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__, __path__)
