"""The labelling page from Python: in a notebook as a frame, otherwise as an address to open."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from riskad.app.journal import LabelledFrame, apply_labels
from riskad.core.checks import InputError, required
from riskad.core.labels import Codes
from riskad.tables.cells import as_polars, is_frame
from riskad.tables.labelled import LabelColumn
from riskad.web.label.session import Options, Session

if TYPE_CHECKING:
    from riskad.web.label.server import Server

__all__ = ["Labelling", "label"]

# A notebook on this machine; its page and ours must use the same host name for the cookie to work.
_NOTEBOOKS = "http://localhost:* http://127.0.0.1:* https://localhost:*"


class Labelling:
    """A page that is being served, and the answers so far.

    A notebook shows the page if this is the last value of a cell.
    """

    def __init__(self, server: Server, height: int):
        self._server, self._session, self._height = server, server.session, height
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """A new address of the page, which works once."""
        return self._server.invite()

    def labels(self) -> Codes:
        """Return the labels so far: +1 normal, -1 anomaly, 0 unlabelled, one for each row."""
        return self._session.codes_of(range(1, self._session.frame.height + 1))

    def applied(self) -> LabelledFrame:
        """Return the table with its labels, and how each row was chosen for labelling."""
        session = self._session
        return apply_labels(session.whole, session.journal, session.options.labels)

    def stop(self) -> Codes:
        """Stop serving, and return the labels."""
        self._server.stop()
        self._thread.join()
        return self.labels()

    def __enter__(self) -> Labelling:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        counts = self._session.counts()
        return f"Labelling({counts['normal']} normal, {counts['anomaly']} anomalies; open .address)"

    def _repr_html_(self) -> str:
        here, there = (escape(self.address, quote=True) for _ in range(2))
        style = "width: 100%; border: 1px solid #888"
        return (
            f'<iframe src="{here}" height="{self._height}" style="{style}"></iframe>'
            f'<p><a href="{there}" target="_blank" rel="noopener">Open in a tab of its own</a></p>'
        )


def label(
    table: Any,
    journal: str | os.PathLike[str] = "labels.jsonl",
    *,
    labels: LabelColumn | None = None,
    id: str | None = None,
    drop: Sequence[str] = (),
    kinds: Mapping[str, str] | None = None,
    group: str | None = None,
    who: str = "",
    budget: float = 20.0,
    host: str = "localhost",
    height: int = 900,
) -> Labelling:
    """Label the rows of a table in the browser, while a model learns from the answers.

    Parameters
    ----------
    table
        A frame of polars, pandas, pyarrow or DuckDB.
    journal
        The file in which answers are stored; an existing one is continued.
    labels
        The existing label column of the table, and the meaning of its values.
    id, drop, kinds, group
        As in `riskad.fit_table`.
    who
        Name of the person who answers; by default the user's name.
    budget
        Seconds that a fit in the background may take.
    host
        The host name of this machine in the browser, the same as for the notebook.
    height
        Height of the frame in a notebook, in pixels.

    Returns
    -------
    Labelling
        The page: its `address`, the `labels()` so far, and `stop()`.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import polars as pl
    >>> rng = np.random.default_rng(0)
    >>> table = pl.DataFrame({"amount": rng.normal(40, 9, 60), "age": rng.normal(50, 9, 60)})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = label(table, f"{folder}/labels.jsonl")
    ...     page.address.startswith("http://localhost:")
    ...     page.stop().tolist() == [0] * 60
    True
    True
    """
    if not is_frame(table):
        raise InputError(
            f"table must be a frame, got {type(table).__name__}. Read one: "
            "riskad.read_table('cards.csv')."
        )
    with required("The page needs other libraries: pip install 'riskad[app]'."):
        from riskad.web.connections import Binding
        from riskad.web.label.server import Server
    options = Options(labels, id, tuple(drop), dict(kinds or {}), group, who=who, budget=budget)
    session = Session(as_polars(table), str(journal), options)
    return Labelling(Server(session, Binding(host), frames=_NOTEBOOKS), height)
