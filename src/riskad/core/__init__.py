"""Only mathematics: labels, losses, risks, objectives and theorems.

No files, no rows, no estimators.
"""

from riskad._lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__, __path__)
