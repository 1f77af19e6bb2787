"""How good scores and probabilities are, with intervals; folds of rows; searches over settings.

Functions take labels as codes (+1 normal, -1 anomaly, 0 unlabelled) and anomaly scores (high =
anomalous). Unlabelled rows never count as truth.
"""

from riskad._lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__, __path__)
