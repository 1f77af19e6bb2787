"""How speed is measured: side by side in one run, so that ratios can be compared.

The load of a machine changes from minute to minute; the ratio of the least times of two sides that
take turns changes little. What must not profit from an earlier measurement, such as memory, is
measured in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from experiments.records import IDENTITY
from experiments.summaries import Row

_ABOUT = {*IDENTITY, "status", "reason", "commit", "versions", "warnings"}


def least_seconds(
    sides: Mapping[str, Callable[[], Any]],
    runs: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the least seconds of each side, the sides taking turns.

    With `time.process_time` as the clock, other work on the machine counts little.
    """
    least = dict.fromkeys(sides, float("inf"))
    for _ in range(runs):
        for name, side in sides.items():
            start = clock()
            side()
            least[name] = min(least[name], clock() - start)
    return least


def in_own_process(function: str, *arguments: Any) -> Any:
    """Return what a function, named as "module.function", returns in a fresh process."""
    command = [sys.executable, "-m", __name__, function, json.dumps(arguments)]
    root = Path(__file__).parents[2]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=root).stdout
    return json.loads(answer.splitlines()[-1])


def memory(name: str) -> float:
    """Return the MiB that this process has (VmRSS) or had at most (VmHWM), as Linux tells."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) / 1024


def reset_peak() -> None:
    """Let the peak of this process's memory begin anew (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def flat(nest: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return figures as columns of a record.

    >>> flat({"ms": {"median": 1.2, "p99": 2.0}, "rows": 7})
    {'ms: median': 1.2, 'ms: p99': 2.0, 'rows': 7}
    """
    columns: dict[str, Any] = {}
    for name, value in nest.items():
        more = flat(value, f"{prefix}{name}: ") if isinstance(value, Mapping) else None
        columns |= {f"{prefix}{name}": value} if more is None else more
    return columns


def figures(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return the figures of each record, without what all records say."""
    names = _ABOUT - {"method"}
    return [
        {name: value for name, value in row.items() if name not in names and value is not None}
        for row in rows
    ]


def by_method(rows: Iterable[Row]) -> dict[str, Any]:
    """Return the figures of each record under what was measured."""
    return {row.pop("method"): row for row in figures(rows)}


if __name__ == "__main__":
    place, given = sys.argv[1:]
    module, _, name = place.rpartition(".")
    print(json.dumps(getattr(import_module(module), name)(*json.loads(given))))
