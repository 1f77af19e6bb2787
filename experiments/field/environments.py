"""Peers in environments of their own: they ask for other versions than we and other peers do.

Rows go there and scores come back as files in a temporary folder. A process of that environment,
which runs `worker.py`, fits and then scores; it ends with the estimator that started it. Variables
name the Python of each environment; README.md says how to make it.
"""

from __future__ import annotations

import functools
import hashlib
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
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from experiments.field.peers import Classifier
from experiments.runner import Skipped
from riskad.core.labels import ANOMALY, NORMAL

_WORKER = Path(__file__).with_name("worker.py")
_HOW = "To make the environment, see experiments/field/README.md."
_ONE_THREAD = {
    **{f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS", "LOKY")},
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


class OwnEnvironment(Classifier):
    """A peer on labelled rows, in the environment whose Python a variable names.

    Options are settings of the peer, as `worker.py` uses them.
    """

    variable: str
    package: str
    worker: str
    unlabelled = "drop"
    standardise = False  # each prepares columns itself, or below

    def __init__(self, options: Mapping[str, Any] | None = None, random_state: int | None = None):
        self.options = options
        self.random_state = random_state

    def missing(self) -> str | None:
        """Why the environment cannot be used and how to make it; None if it can."""
        if self.variable not in os.environ:
            return f"{self.variable} is not set. {_HOW}"
        try:
            self.version()
        except (OSError, subprocess.CalledProcessError) as error:
            return f"{error}. {_HOW}"
        return None

    def version(self) -> str:
        """The package and its version, as its environment tells."""
        return _version(os.environ[self.variable], self.package)

    def _trained(self, X: np.ndarray, target: np.ndarray) -> Any:
        folder = Path(tempfile.mkdtemp(prefix="riskad-peer-"))
        np.savez(folder / "train.npz", X=X, target=target)
        job = {"options": self._options(), "seed": self.random_state, "folder": f"{folder}/model"}
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        worker = _Worker(os.environ[self.variable], self.worker, folder)
        weakref.finalize(self, worker.end)
        worker.ask("fit")
        return worker

    def _options(self) -> dict[str, Any]:
        return dict(self.options or {})

    def _anomaly_scores(self, X: np.ndarray) -> np.ndarray:
        np.savez(self.model_.folder / "test.npz", X=X)
        self.model_.ask("score")
        return np.load(self.model_.folder / "scores.npy")


class AutoGluon(OwnEnvironment):
    """AutoGluon's predictor on labelled rows. It takes no seed; options are those of its `fit`.

    It holds out a fifth of the rows and fails where they lack one of the kinds. A kind of fewer
    than five rows is therefore repeated until there are five, as FLAML does by itself.
    """

    variable = "RISKAD_AUTOGLUON_PYTHON"
    package = "autogluon.tabular"
    worker = "AutoGluon"

    def _trained(self, X: np.ndarray, target: np.ndarray) -> Any:
        kinds = [np.flatnonzero(target == kind) for kind in (0, 1)]
        kept = np.sort(np.concatenate([np.resize(own, max(len(own), 5)) for own in kinds]))
        return super()._trained(X[kept], target[kept])


class TabPFNv1(OwnEnvironment):
    """TabPFN v1 on labelled rows: at most 1,000, of more a sample by class.

    Of more than 100 columns the first 100 principal components are taken, of the standardised
    training rows, labelled or not: its own way is 100 columns at random.
    """

    variable = "RISKAD_TABPFN1_PYTHON"
    package = "tabpfn"
    worker = "TabPFN v1"
    most_rows, most_columns = 1000, 100  # what the network was trained for

    def _fitted(self, X: np.ndarray, codes: np.ndarray) -> Any:
        self.components_ = None
        if X.shape[1] > self.most_columns:
            pca = PCA(min(self.most_columns, len(X)), random_state=self.random_state)
            self.components_ = make_pipeline(StandardScaler(), pca).fit(X)
        return super()._fitted(self._reduced(X), codes)

    def _trained(self, X: np.ndarray, target: np.ndarray) -> Any:
        if len(X) > self.most_rows:
            rng, parts = np.random.default_rng(self.random_state), []
            for kind in (0, 1):
                places = np.flatnonzero(target == kind)
                count = max(1, round(self.most_rows * len(places) / len(X)))
                parts.append(rng.choice(places, count, replace=False))
            kept = np.sort(np.concatenate(parts))
            X, target = X[kept], target[kept]
        return super()._trained(X, target)

    def _anomaly_scores(self, X: np.ndarray) -> np.ndarray:
        return super()._anomaly_scores(self._reduced(X))

    def _reduced(self, X: np.ndarray) -> np.ndarray:
        return X if self.components_ is None else self.components_.transform(X)


class TabPFNv2(OwnEnvironment):
    """TabPFN v2 on labelled rows: the network of its regressor, with 0 and 1 as the target.

    The package index has no weights of the classifier. Those of the regressor are in the source
    archive of tabpfn_time_series 0.1.3, of which nothing else is read; their checksum is compared
    before the package reads them.
    """

    variable = "RISKAD_TABPFN2_PYTHON"
    weights_variable = "RISKAD_TABPFN2_WEIGHTS"
    package = "tabpfn"
    worker = "TabPFN v2"
    sha256 = "e2d4a06eeb4521dee71fc68d819e277ffb97614cc3695dc9ac3030dd9da36c21"

    def missing(self) -> str | None:
        """Why its environment or its weights cannot be had; None if they can."""
        path = Path(os.environ.get(self.weights_variable, ""))
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != self.sha256:
            return f"{self.weights_variable} does not name the weights. {_HOW}"
        return super().missing()

    def _options(self) -> dict[str, Any]:
        # InternetAds has more columns than the 500 that it was trained with; it draws some itself.
        own = {"model_path": os.environ[self.weights_variable], "ignore_pretraining_limits": True}
        return own | super()._options()


class Spade(OwnEnvironment):
    """SPADE (Yoon et al., 2022), which learns from labelled and from unlabelled rows, as we do.

    Columns are brought to [0, 1] by the training rows, as its documentation asks.
    """

    variable = "RISKAD_SPADE_PYTHON"
    package = "spade-anomaly-detection"
    worker = "SPADE"
    unlabelled = "learned from"

    def _fitted(self, X: np.ndarray, codes: np.ndarray) -> Any:
        if not (codes == NORMAL).any():
            raise Skipped("the setting PNU needs labelled normal rows, and there are none.")
        self.scaler_ = MinMaxScaler().fit(X)
        target = np.select([codes == ANOMALY, codes == NORMAL], [1, 0], -1)
        return self._trained(self._scaled(X), target)


@functools.cache
def _version(python: str, package: str) -> str:
    question = f"import importlib.metadata as m; print(m.version({package!r}))"
    answer = subprocess.run([python, "-I", "-c", question], capture_output=True, check=True)
    return f"{package.partition('.')[0]} {answer.stdout.decode().strip()}"


class _Worker:
    """A process of another environment, with one thread; what it fits stays in its memory."""

    def __init__(self, python: str, peer: str, folder: Path):
        self.folder = folder
        # Isolated: neither our packages nor the modules beside the script are seen there.
        with (folder / "errors.txt").open("wb") as errors:
            self._process = subprocess.Popen(
                [python, "-I", str(_WORKER), peer, str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | _ONE_THREAD,
            )

    def ask(self, command: str) -> None:
        """Have a command done."""
        process: Any = self._process
        print(command, file=process.stdin, flush=True)
        if process.stdout.readline().strip() != "done":
            status = process.wait()
            text = (self.folder / "errors.txt").read_text(errors="replace").strip()
            last = text.rpartition("\n")[2]
            raise RuntimeError(f"the peer's process ended with status {status}: {last}")

    def end(self) -> None:
        """End the process and remove its files."""
        self._process.kill()
        self._process.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)
