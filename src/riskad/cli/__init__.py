"""The command line: parse, call one function of `riskad.app`, print."""

from riskad._lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__, __path__)
