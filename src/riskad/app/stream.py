"""Score the points of time series as they come, as `riskad score` does all at once."""

from __future__ import annotations

import io
import json
import zipfile
from operator import attrgetter
from pathlib import Path

import numpy as np
import polars as pl
from sklearn.pipeline import Pipeline

from riskad.app.score import score_table
from riskad.app.series import plain_model
from riskad.core.checks import InputError
from riskad.decisions.calibration import quietly
from riskad.files.atomic import atomic_path
from riskad.files.codec import from_members, to_members
from riskad.tables.windows import END, MEMORY, Windower

_NEVER = -(2**62)


class Stream:
    """The last window of each series, and what later windows are compared with.

    A window is scored when a point comes after it. Points that come too late for a window that was
    scored, and points without a moment, are left out and counted in `left_out`.
    """

    def __init__(self, model: Pipeline, state: Path | None = None):
        self.windower, self.model, self.state = model[0].windower_, plain_model(model), state
        group = self.windower.group
        self.names = [*([] if group is None else [group]), self.windower.time, END]
        self.columns = [*self.windower.reader.read_columns, *([] if group is None else [group])]
        self.points = pl.DataFrame()
        self.last: dict[str, int] = {}  # pane of each series
        self.left_out = 0
        if state is not None and state.exists():
            self._load(state)

    def push(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Take rows, and return the windows that they complete, with scores."""
        with quietly():
            pane, group = self.windower.panes_of(rows)
        last = group.replace_strict(self.last, default=_NEVER, return_dtype=pl.Int64)
        in_time = pane.is_not_null() & (pane >= last)
        self.left_out += int((~in_time).sum())
        rows = rows.select(self.columns).filter(in_time)
        if not rows.height:
            return rows.clear()
        rows = pl.concat([self.points, rows], how="vertical_relaxed") if len(self.points) else rows
        with quietly():
            windows = self.windower.cut(rows)
        self.windower = windows.windower
        points, width = windows.points, self.windower.width
        number = np.repeat(windows.panes.number, windows.panes.points)
        names = points.groups
        before = np.array([self.last.get(name, _NEVER) for name in names])
        after = before.copy()
        np.maximum.at(after, points.group, number)
        kept = np.zeros(len(number), dtype=bool)
        for place in np.unique(points.group):
            own = np.flatnonzero(points.group == place)
            # Of earlier panes, the last points: the features of the first window reach that far.
            first = np.searchsorted(number[own], after[place] - width + 1)
            kept[own[number[own] >= number[own[max(0, first - MEMORY)]]]] = True
        self.points = rows[np.sort(points.rows[kept])]
        self.last = dict(zip(names, after.tolist(), strict=True))
        if self.state is not None:
            self._save(self.state)
        complete = (windows.end <= after[windows.group]) & (windows.end > before[windows.group])
        frame = windows.frame.filter(complete)
        return score_table(self.model, frame)[0] if frame.height else frame

    def _save(self, path: Path) -> None:
        """Write the state, whole or not at all."""
        points = io.BytesIO()
        self.points.write_parquet(points)
        tree, arrays = to_members(self.windower)
        with atomic_path(path, force=True) as part, zipfile.ZipFile(part, "w") as archive:
            archive.writestr("tree", tree)
            archive.writestr("arrays", arrays)
            archive.writestr("points", points.getvalue())
            archive.writestr("last", json.dumps([self.last, self.left_out]))

    def _load(self, path: Path) -> None:
        """Go on where another run stopped, if it was of this model."""
        try:
            with zipfile.ZipFile(path) as archive:
                if set(archive.namelist()) != {"tree", "arrays", "points", "last"}:
                    raise InputError("other parts")
                windower = from_members(archive.read("tree"), archive.read("arrays"))
                points = pl.read_parquet(io.BytesIO(archive.read("points")))
                last, self.left_out = json.loads(archive.read("last"))
            if not isinstance(windower, Windower):
                raise InputError(f"a {type(windower).__name__}")
            names = attrgetter("time", "group", "window", "step", "centres", "scales", "levels")
            same = names(windower) == names(self.windower)
        except (OSError, ValueError, zipfile.BadZipFile, pl.exceptions.PolarsError) as error:
            raise InputError(f"{path.name!r} holds no state of a stream ({error}).") from None
        if not same:
            raise InputError(
                f"{path.name!r} is the state of a stream of another model. Name another file."
            )
        self.windower, self.points, self.last = windower, points, last
