"""`riskad serve`: a model behind HTTP, for rows as they arrive."""

from riskad._lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__, __path__)
