"""`riskad label` and `riskad serve`: two applications of Starlette behind one guard.

| file | knows |
|---|---|
| `connections` | where a server listens, TLS, and clients that are too slow |
| `guard` | who may send requests, how long their bodies are, how mistakes are answered, the log |
| `label/` | the page on which a person labels rows |
| `serve/` | a model behind HTTP |
"""

from riskad._lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__, __path__)
