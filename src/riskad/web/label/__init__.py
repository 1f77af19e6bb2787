"""Labelling in the browser: a local page, a journal that loses nothing, and background fits.

| file | knows |
|---|---|
| `cards` | how a row is shown to a person, and where its values lie in their columns |
| `fit_process` | one fit in its own process: scores, rows to judge, reasons |
| `fits` | starting these processes, their results, and what new labels changed |
| `row_queue` | which row comes next |
| `harmless` | rules of the known harmless: one from a row, what it would hide, their file |
| `session` | the table, the answers and the next rows |
| `server` | addresses and answers |
| `notebook` | the same from Python |

Answers are kept by `riskad.app.journal`.
"""

from riskad._lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__, __path__)
