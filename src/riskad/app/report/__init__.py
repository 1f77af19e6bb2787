"""The ways to show a report: on the terminal, as an HTML page, as a model card, as JSON.

`sections` turns a record, such as a `riskad.app.fit_report.FitReport`, into `blocks` of text,
tables and charts, with the sentences of `wording` and the charts of `charts`. `terminal` prints
them, and `documents` writes them into files.
"""

from riskad._lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__, __path__)
