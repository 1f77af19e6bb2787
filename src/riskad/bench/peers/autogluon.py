"""AutoGluon, in an environment of its own: it asks for other versions than we and other peers do.

The environment's Python is named by RISKAD_AUTOGLUON_PYTHON. Rows go there and scores come back
as files in a temporary folder; `own_environment.py` is what runs there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from riskad.bench.peers.adapters import Classifier

__all__ = ["PYTHON_VARIABLE", "AutoGluon", "repeat_rare"]

PYTHON_VARIABLE = "RISKAD_AUTOGLUON_PYTHON"
_INSTALL = (
    "python -m venv FOLDER && FOLDER/bin/pip install torch==2.13.0 "
    "'autogluon.tabular[lightgbm,catboost,xgboost,fastai]==1.6.3', and put FOLDER/bin/python into "
    f"{PYTHON_VARIABLE}"
)
_SCRIPT = Path(__file__).with_name("own_environment.py")
_LEAST_OF_A_KIND = 5
_MOST_SECONDS = 600  # a limit of time is among the options; this is for one that hangs
_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS", "LOKY")}


class AutoGluon(Classifier):
    """AutoGluon's predictor on labelled rows. It takes no seed.

    It holds out a fifth of the rows and fails where they lack one of the kinds. A kind of fewer
    than five rows is therefore repeated until there are five, as FLAML does by itself.

    Parameters
    ----------
    options
        What its `fit` is called with.
    """

    peer = "autogluon.tabular.TabularPredictor"
    unlabelled = "drop"
    standardise = False  # it prepares columns itself

    def __init__(self, options: Mapping[str, Any] | None = None):
        self.options = options

    def missing(self) -> str | None:
        """Why the environment cannot be used and how to make it; None if it can."""
        if PYTHON_VARIABLE not in os.environ:
            return f"{PYTHON_VARIABLE} is not set. To install it: {_INSTALL}"
        try:
            self.version()
        except (OSError, RuntimeError) as error:
            return f"{error}. To install it: {_INSTALL}"
        return None

    def version(self) -> str:
        """The package and its version, as its environment tells."""
        return f"autogluon {_ask('version', self.peer.rpartition('.')[0])}"

    def _trained(self, X: np.ndarray, target: np.ndarray) -> Any:
        place = Path(tempfile.mkdtemp(prefix="riskad-autogluon-"))
        weakref.finalize(self, shutil.rmtree, place, ignore_errors=True)
        kept = repeat_rare(target, _LEAST_OF_A_KIND)
        np.savez(place / "train.npz", X=X[kept], target=target[kept])
        job = {"peer": self.peer, "options": dict(self.options or {})}
        (place / "job.json").write_text(json.dumps(job), encoding="utf-8")
        _ask("fit", str(place))
        return place

    def _anomaly_scores(self, X: np.ndarray) -> np.ndarray:
        np.savez(self.model_ / "test.npz", X=X)
        _ask("score", str(self.model_))
        return np.load(self.model_ / "scores.npy")


def repeat_rare(target: np.ndarray, least: int) -> np.ndarray:
    """Places of all rows, those of a rarer value again and again until it has `least` rows.

    >>> repeat_rare(np.array([0, 0, 0, 1]), 3)
    array([0, 1, 2, 3, 3, 3])
    """
    places = [np.flatnonzero(target == value) for value in np.unique(target)]
    return np.sort(np.concatenate([np.resize(own, max(len(own), least)) for own in places]))


def _ask(*words: str) -> str:
    """What the script prints that runs in the other environment, with one thread."""
    # Isolated: neither our packages nor the modules beside the script are to be found there.
    command = [os.environ[PYTHON_VARIABLE], "-I", str(_SCRIPT), *words]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=_MOST_SECONDS,
        env=os.environ | _ONE_THREAD,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise RuntimeError(f"{Path(command[0]).name} failed with status {done.returncode}: {last}")
    return done.stdout.strip()
