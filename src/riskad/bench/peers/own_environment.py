"""What runs in AutoGluon's environment, where riskad is not installed; `autogluon.py` calls it.

`version PACKAGE` prints the version; `fit FOLDER` reads job.json and train.npz and leaves a model;
`score FOLDER` reads test.npz and writes scores.npy.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np

LABEL = "target"


def fit(folder: Path) -> None:
    """Fit the predictor that the job names; it stores itself."""
    job, rows = json.loads((folder / "job.json").read_text()), np.load(folder / "train.npz")
    module, kind = _peer(folder)
    table = _table(module, rows["X"])
    table[LABEL] = rows["target"]
    predictor = kind(
        LABEL,
        problem_type="binary",
        eval_metric="roc_auc",
        path=str(folder / "model"),
        verbosity=0,
    )
    predictor.fit(table, **job["options"])


def score(folder: Path) -> None:
    """Write the probabilities of being an anomaly, by the predictor that was stored."""
    module, kind = _peer(folder)
    predictor = kind.load(str(folder / "model"), verbosity=0)
    table = _table(module, np.load(folder / "test.npz")["X"])
    np.save(folder / "scores.npy", predictor.predict_proba(table, as_multiclass=False).to_numpy())


def _peer(folder: Path) -> tuple[Any, Any]:
    path = json.loads((folder / "job.json").read_text())["peer"]
    module = import_module(path.rpartition(".")[0])
    return module, getattr(module, path.rpartition(".")[2])


def _table(module: Any, X: np.ndarray) -> Any:
    names = [f"column {j}" for j in range(X.shape[1])]
    return module.TabularDataset({name: X[:, j] for j, name in enumerate(names)})


if __name__ == "__main__":
    command, given = sys.argv[1:]
    if command == "version":
        print(metadata.version(given))
    else:
        {"fit": fit, "score": score}[command](Path(given))
