"""Labelling in the browser: a local page, a journal that loses nothing, and background fits.

| file | knows |
|---|---|
| `journal` | answers on disk: appended, flushed, read again, put into a table |
| `row_hashes` | which row is meant, even if the table has changed |
| `pictures` | where a value lies in its column |
| `cards` | how a row is shown to a person |
| `work` | one fit in its own process: scores, rows to judge, reasons |
| `fitting` | starting these processes, and using their results |
| `session` | the table, the answers and the next rows |
| `security` | who may talk to the server |
| `server` | addresses and answers; only this and `security` use the web |
| `notebook` | the same from Python |
"""
