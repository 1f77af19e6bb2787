"""Labelling in the browser: a local page, a journal that loses nothing, and fits meanwhile.

| file | knows |
|---|---|
| `journal` | answers on disk: appended, flushed, read again, put into a table |
| `row_hashes` | which row is meant, whatever became of the table |
| `pictures` | where a value lies in its column |
| `cards` | what a person sees of a row |
| `work` | one fit in a process of its own: scores, rows to judge, reasons |
| `fitting` | starting such processes, and taking over what they found |
| `session` | the table, the answers and the rows to come |
| `security` | who may talk to the server |
| `server` | addresses and answers; with `security` alone it knows the web |
| `notebook` | the same from Python |
"""
