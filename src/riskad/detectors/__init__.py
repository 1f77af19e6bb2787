"""Detectors: the protocol that all share, and each detector."""

from riskad._lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__, __path__)
