"""What runs in the environment of a peer that cannot share ours; `environments.py` starts it.

    PYTHON -I worker.py PEER FOLDER

riskad is not installed there. A line on the standard input is a command, and a line on the output
says that it is done: "fit" reads job.json and train.npz of the folder, "score" reads test.npz and
writes scores.npy, high for anomalies. In train.npz "target" is 1 for an anomaly, 0 for a normal row
and -1 for an unlabelled one.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

FOLDER: Path


class AutoGluon:
    """Its predictor, with what it is told by the options of its `fit`."""

    def __init__(self, options: dict[str, Any], seed: int | None):
        from autogluon.tabular import TabularDataset, TabularPredictor

        self.table, self.options = TabularDataset, options
        self.predictor = TabularPredictor(
            "target",
            problem_type="binary",
            eval_metric="roc_auc",
            path=str(FOLDER / "model"),
            verbosity=0,
        )

    def fit(self, X: np.ndarray, target: np.ndarray) -> None:
        table = self._table(X)
        table["target"] = target
        self.predictor.fit(table, **self.options)

    def score(self, X: np.ndarray) -> np.ndarray:
        return self.predictor.predict_proba(self._table(X), as_multiclass=False).to_numpy()

    def _table(self, X: np.ndarray) -> Any:
        return self.table({f"column {j}": X[:, j] for j in range(X.shape[1])})


class TabPFNv1:
    """The first TabPFN."""

    def __init__(self, options: dict[str, Any], seed: int | None):
        from tabpfn import TabPFNClassifier

        self.model = TabPFNClassifier(device="cpu", seed=seed, **options)

    def fit(self, X: np.ndarray, target: np.ndarray) -> None:
        self.model.fit(X, target)

    def score(self, X: np.ndarray) -> np.ndarray:
        most = 4000  # bounds the memory of attention; a row does not depend on the others
        parts = [X[i : i + most] for i in range(0, len(X), most)]
        return np.concatenate([self.model.predict_proba(part)[:, 1] for part in parts])


class TabPFNv2:
    """TabPFN v2: its regressor on 0 and 1, since the weights of its classifier cannot be had."""

    def __init__(self, options: dict[str, Any], seed: int | None):
        os.environ["TABPFN_DISABLE_TELEMETRY"] = "1"
        import torch
        from tabpfn import TabPFNRegressor

        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = TabPFNRegressor(device=device, random_state=seed, **options)

    def fit(self, X: np.ndarray, target: np.ndarray) -> None:
        self.model.fit(X, target.astype(float))

    def score(self, X: np.ndarray) -> np.ndarray:
        most = 2000  # likewise
        parts = [X[i : i + most] for i in range(0, len(X), most)]
        return np.concatenate([self.model.predict(part, output_type="mean") for part in parts])


class Spade:
    """The steps of its `Runner.run` in the setting PNU, on arrays in place of CSV files.

    An ensemble of Gaussian mixtures labels rows of which all its members agree, and a random forest
    learns from these and from the labelled rows. How many get a label follows from the share of
    anomalies among labelled rows, as it does there. No labelled rows are held out.
    """

    def __init__(self, options: dict[str, Any], seed: int | None):
        self.options, self.seed = options, (seed or 0) % 2**31

    def fit(self, X: np.ndarray, target: np.ndarray) -> None:
        import tensorflow as tf
        from spade_anomaly_detection.occ_ensemble import GmmEnsemble
        from spade_anomaly_detection.supervised_model import (
            RandomForestModel,
            RandomForestParameters,
        )

        n_anomalies, n_normal, n_unlabelled = (int((target == k).sum()) for k in (1, 0, -1))
        share = 100 * n_anomalies / (n_anomalies + n_normal)
        ensemble = GmmEnsemble(
            positive_threshold=share,
            negative_threshold=100 - share,
            random_seed=self.seed,
            unlabeled_record_count=n_unlabelled,
            negative_record_count=n_normal,
            unlabeled_data_value=-1,
            negative_data_value=0,
            **self.options,
        )
        rest = target != 1
        rows = tf.data.Dataset.from_tensor_slices((X[rest], target[rest]))
        ensemble.fit(rows.batch((n_unlabelled + n_normal) // ensemble.ensemble_count), 1)
        labelled = ensemble.pseudo_label(
            features=X,
            labels=target,
            positive_data_value=1,
            negative_data_value=0,
            unlabeled_data_value=-1,
        )
        forest = RandomForestModel(RandomForestParameters(random_seed=self.seed))
        forest.train(labelled.new_features, labelled.new_labels, labelled.weights)
        self.forest = forest.supervised_model

    def score(self, X: np.ndarray) -> np.ndarray:
        return self.forest.predict(X, verbose=0).ravel()


PEERS = {"AutoGluon": AutoGluon, "TabPFN v1": TabPFNv1, "TabPFN v2": TabPFNv2, "SPADE": Spade}


def main() -> None:
    """Answer commands until the input ends."""
    global FOLDER
    name, FOLDER = sys.argv[1], Path(sys.argv[2])
    # Libraries print what they like; answers go where nothing else does.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    peer: Any = None
    for line in sys.stdin:
        if line.strip() == "fit":
            job = json.loads((FOLDER / "job.json").read_text())
            rows = np.load(FOLDER / "train.npz")
            peer = PEERS[name](job["options"], job["seed"])
            peer.fit(rows["X"], rows["target"])
        else:
            np.save(FOLDER / "scores.npy", peer.score(np.load(FOLDER / "test.npz")["X"]))
        print("done", file=answers, flush=True)


if __name__ == "__main__":
    main()
