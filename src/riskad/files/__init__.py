"""How models are stored: checked plain values, bounded archives, files written atomically."""

from riskad._lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__, __path__)
