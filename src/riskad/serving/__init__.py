"""`riskad serve`: a model behind HTTP, for rows as they arrive.

| file | knows |
|---|---|
| `rows` | JSON in: what a body may contain, and the table that it makes |
| `models` | the model file: loading it, and switching to another one when the file changes |
| `answers` | scores, decisions and reasons as JSON out |
| `queueing` | one thread that scores, and how much may wait for it |
| `window` | the last rows: share flagged, quantiles of scores, drift |
| `metrics` | counts and times, in the text format of Prometheus |
| `logs` | lines about requests and events, on stderr |
| `feedback` | returned labels, into a journal of `riskad label` |
| `openapi` | the description of all addresses |
| `access` | who may send requests: names, token, sizes |
| `service` | addresses, and what each does |
| `server` | all of it on a port |
"""

from riskad._lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__, __path__)
