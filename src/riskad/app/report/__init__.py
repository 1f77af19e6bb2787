"""The ways to show a result: on the terminal, as an HTML page, as JSON.

`summary` collects the content of a report (`ReportData`), with `held_out` and `distribution`.
`sections` lists its parts, `html` and `charts` draw them through the Jinja templates of
`templates/`, `json` writes the same for machines, and `files` writes either to a file. `terminal`
prints what each command did. `facts` and `wording` hold the sentences that page and terminal share.
"""

from riskad._lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__, __path__)
