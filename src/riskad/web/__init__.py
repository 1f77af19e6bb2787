"""`riskad label` and `riskad serve`: two applications of Starlette behind one guard."""

from riskad._lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__, __path__)
