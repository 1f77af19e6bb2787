"""What follows from scores and labels: quality, folds, rates, calibration, thresholds, drift."""

from riskad._lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__, __path__)
