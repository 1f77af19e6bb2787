"""Studies: experiments that measure something else than the AUC of estimators.

A module of this package has a function `measure`, which is given a cell and returns what its record
is to say, and a function `report`, which makes one result of the records of all cells; `figures` if
there is something to draw. Their descriptions are in `riskad/bench/experiments/studies`.

================  ======================================================================
study             asks
================  ======================================================================
`bounds`          how often the paper's bounds hold, and how loose they are
`choosing`        what choosing a, prior and lambda from the data is worth
`cv_rules`        which way of choosing lambda from held-out labelled rows is best
`groups`          what comparing rows within their group is worth
`kinds_unseen`    what becomes of kinds of anomaly that nobody labelled
`lambda_rules`    how the rules for lambda rank held-out rows, by number of labels
`looking`         whether intervals of anomalies found hold what is counted
`mixtures`        how well the anomaly rate is found where it is known
`priors`          how well the anomaly rate is found on the paper's sets
`probabilities`   whether calibrated probabilities are right
`raw_tables`      what it costs to give a table as it is, beside columns made by hand
`stopping`        when to stop training networks on few labels
`suggesting`      what labelling the suggested rows is worth
================  ======================================================================
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from riskad.bench.records import OK
from riskad.storage.files import atomic_path

__all__ = ["by_dataset", "write_studies"]

Record = Mapping[str, Any]


def write_studies(records: Sequence[Record], folder: Path, figures: bool = True) -> list[Path]:
    """Write the result of each study that records are of.

    Parameters
    ----------
    records
        Of studies alone, whatever their status.
    folder
        Where to write: tables/NAME.json, and figures/*.svg.
    figures
        Whether to draw.

    Returns
    -------
    The paths that were written.
    """
    written = []
    for name in dict.fromkeys(row["experiment"] for row in records):
        rows = [row for row in records if row["experiment"] == name and row["status"] == OK]
        if not rows:
            continue
        study = import_module(rows[0]["measure"].rpartition(".")[0])
        result = {**_about(rows), **study.report(rows)}
        path = folder / "tables" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path, force=True) as part:
            part.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8", newline="\n")
        written.append(path)
        if figures and hasattr(study, "figures"):
            from riskad.bench.canvas import write_svgs

            written += write_svgs(study.figures(result), folder / "figures")
    return written


def _about(rows: Sequence[Record]) -> dict[str, Any]:
    """What all results say: seeds, and the code that made the records."""
    return {
        "seeds": sorted({row["root"] for row in rows}),
        "commits": sorted({row["commit"] for row in rows if "commit" in row}),
    }


def by_dataset(rows: Iterable[Record]) -> dict[str, list[Record]]:
    """Records of each dataset, in the order of their trials; datasets as they came.

    Returns
    -------
    A list of records by the dataset's name.
    """
    found: dict[str, list[Record]] = {}
    for row in sorted(rows, key=lambda row: (row["root"], row["trial"])):
        found.setdefault(row["dataset"], []).append(row)
    return found
