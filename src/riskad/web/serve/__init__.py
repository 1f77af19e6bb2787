"""`riskad serve`: a model behind HTTP, for rows as they arrive.

| file | knows |
|---|---|
| `scoring` | a row's way: JSON in, scores, decisions and reasons as JSON out |
| `model` | the model file: loading it, and switching to another one when the file changes |
| `metrics` | what happened since the start, and the last rows, for Prometheus |
| `schemas` | labels that come back, and the OpenAPI document |
| `server` | addresses, what each does, and how much may wait |
"""

from riskad._lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__, __path__)
