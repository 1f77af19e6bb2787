"""How things are written down: checked plain values, bounded archives, files that appear whole."""

from riskad._lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__, __path__)
