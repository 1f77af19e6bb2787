"""`riskad label` and `riskad serve`: two applications of Starlette behind one guard.

| file | knows |
|---|---|
| `listening` | where a server listens, TLS, and clients that are too slow |
| `guard` | who may send requests, how long their bodies are, and how mistakes are answered |
| `label/` | the page on which a person labels rows |
| `serve/` | a model behind HTTP |
"""

from riskad._lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__, __path__)
