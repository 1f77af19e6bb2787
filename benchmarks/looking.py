"""Rows looked at against anomalies found, on real tables: what is said beside what is counted.

    python benchmarks/looking.py FOLDER results/decisions/looking-tables.json

FOLDER is where `benchmarks/decisions.py fit` has kept scores and the truth. For the unlabelled rows
of each fit and for its test rows it is counted how often the interval for the k highest scores has
what they hold, for k = 5, 10, ..., 200 and for the rows that `AutoRAD` flags.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from decisions import _held_out
from sklearn.metrics import average_precision_score

from riskad.app.review import review_rows
from riskad.bench.provenance import provenance
from riskad.core.labels import ANOMALY, UNLABELLED
from riskad.decisions.thresholds import Likely
from riskad.detectors.auto.deciding import calibrated

KS = (5, 10, 20, 50, 100, 200)


def judge(path: Path) -> list[dict[str, Any]]:
    """Return what was said and counted, for unlabelled rows and for test rows."""
    kept = dict(np.load(path))
    table, kind, size, _ = path.stem.split("_")
    if "none" in kept:  # no anomaly was labelled
        return []
    y, free = kept["y"], kept["y"] == UNLABELLED
    fitted, test = kept["w"] @ kept["fit"], kept["w"] @ kept["test"]
    source = "random" if kind == "random" else "chosen"
    calibration, _ = calibrated(-fitted, y, _held_out(kept), None, source, 0)
    order = np.argsort(fitted[free])
    about = {"table": table, "labels": kind, "size": size, "anomalies": int((y == ANOMALY).sum())}
    rows = {"unlabelled": (calibration.unlabelled, kept["t"][free][order])}
    rows["test"] = (test, kept["t2"])
    threshold = Likely().of(calibration)
    found = [_compare(calibration, *each, threshold) for each in rows.values()]
    return [about | {"on": on} | one for on, one in zip(rows, found, strict=True) if one]


def _compare(
    calibration: Any, scores: np.ndarray, truth: np.ndarray, threshold: float
) -> dict[str, Any]:
    review = review_rows(calibration, scores)
    if review is None:
        return {}
    counted = np.cumsum(truth[np.argsort(-scores, kind="stable")])
    flagged = int((scores > threshold).sum())
    places = {str(k): k for k in KS} | {"flagged": flagged}
    said = {}
    for name, k in places.items():
        if 0 < k <= len(scores) / 2:
            found = review.at(k).found
            said[name] = [k, int(counted[k - 1]), found.value, found.low, found.high]
    precision = review.average_precision()
    ends = [precision.value, precision.low, precision.high]
    return {"said": said, "precision": [float(average_precision_score(truth, scores)), *ends]}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how often intervals hold what is counted, and errors as shares of k."""
    found = {}
    for name in (*map(str, KS), "flagged"):
        own = np.array([row["said"][name] for row in rows if name in row["said"]])
        k, counted, value, low, high = own.T
        found[name] = {
            "tables": len(own),
            "coverage": round(float(((low <= counted) & (counted <= high)).mean()), 3),
            "mean_error": round(float(((value - counted) / k).mean()), 3),
            "mean_absolute_error": round(float((np.abs(value - counted) / k).mean()), 3),
            "width": round(float(((high - low) / k).mean()), 3),
        }
    true, value, low, high = np.array([row["precision"] for row in rows]).T
    found["average precision"] = {
        "tables": len(rows),
        "coverage": round(float(((low <= true) & (true <= high)).mean()), 3),
        "mean_error": round(float((value - true).mean()), 3),
        "mean_absolute_error": round(float(np.abs(value - true).mean()), 3),
        "width": round(float((high - low).mean()), 3),
    }
    return found


def main(folder: str, output: str) -> None:
    """Judge all records of a folder."""
    rows = [row for path in sorted(Path(folder).glob("*.npz")) for row in judge(path)]
    kinds = {"random": {"random"}, "chosen": {row["labels"] for row in rows} - {"random"}}
    found = {
        f"{name}, {on}": summary([r for r in rows if r["labels"] in kind and r["on"] == on])
        for name, kind in kinds.items()
        for on in ("unlabelled", "test")
    }
    about = {"by": provenance(), "of": found, "records": rows}
    Path(output).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
