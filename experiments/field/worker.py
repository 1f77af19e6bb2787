"""What runs in the environment of a peer that cannot share ours; `environments.py` starts it.

    PYTHON -I worker.py PEER FOLDER

riskad is not installed there. A line on the standard input is a command, and a line on the output
says that it is done: "fit" reads job.json and train.npz of the folder, "score" reads test.npz and
writes scores.npy, high for anomalies. In train.npz "target" is 1 for an anomaly, 0 for a normal row
and -1 for an unlabelled one.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Scores = Callable[[np.ndarray], np.ndarray]
"""What each of the functions below returns: anomaly scores of new rows."""


def fit_autogluon(X: np.ndarray, target: np.ndarray, job: dict[str, Any]) -> Scores:
    """AutoGluon's predictor, with what it is told by the options of its `fit`."""
    from autogluon.tabular import TabularDataset, TabularPredictor

    def table(X: np.ndarray) -> Any:
        return TabularDataset({f"column {j}": X[:, j] for j in range(X.shape[1])})

    predictor = TabularPredictor(
        "target", problem_type="binary", eval_metric="roc_auc", path=job["folder"], verbosity=0
    )
    rows = table(X)
    rows["target"] = target
    predictor.fit(rows, **job["options"])
    return lambda X: predictor.predict_proba(table(X), as_multiclass=False).to_numpy()


def fit_tabpfn_v1(X: np.ndarray, target: np.ndarray, job: dict[str, Any]) -> Scores:
    """The first TabPFN."""
    from tabpfn import TabPFNClassifier

    model = TabPFNClassifier(device="cpu", seed=job["seed"], **job["options"])
    model.fit(X, target)
    return functools.partial(_in_parts, lambda part: model.predict_proba(part)[:, 1], 4000)


def fit_tabpfn_v2(X: np.ndarray, target: np.ndarray, job: dict[str, Any]) -> Scores:
    """TabPFN v2: its regressor on 0 and 1, since the weights of its classifier cannot be had."""
    os.environ["TABPFN_DISABLE_TELEMETRY"] = "1"
    import torch
    from tabpfn import TabPFNRegressor

    device = "cuda" if torch.cuda.is_available() else "cpu"
    # By itself it computes in half precision where it can: bfloat16 moves an AUC by up to 0.06.
    own = {"device": device, "inference_precision": torch.float32, "random_state": job["seed"]}
    model = TabPFNRegressor(**own, **job["options"])
    model.fit(X, target.astype(float))
    return functools.partial(_in_parts, functools.partial(model.predict, output_type="mean"), 2000)


def _in_parts(score: Scores, most: int, X: np.ndarray) -> np.ndarray:
    """Bounds the memory of attention; a row does not depend on the others."""
    return np.concatenate([score(X[i : i + most]) for i in range(0, len(X), most)])


def fit_spade(X: np.ndarray, target: np.ndarray, job: dict[str, Any]) -> Scores:
    """The steps of its `Runner.run` in the setting PNU, on arrays in place of CSV files.

    An ensemble of Gaussian mixtures labels rows of which all its members agree, and a random forest
    learns from these and from the labelled rows. How many get a label follows from the share of
    anomalies among labelled rows, as it does there. No labelled rows are held out.
    """
    import tensorflow as tf
    from spade_anomaly_detection.occ_ensemble import GmmEnsemble
    from spade_anomaly_detection.supervised_model import RandomForestModel, RandomForestParameters

    seed = (job["seed"] or 0) % 2**31
    n_anomalies, n_normal, n_unlabelled = (int((target == k).sum()) for k in (1, 0, -1))
    share = 100 * n_anomalies / (n_anomalies + n_normal)
    ensemble = GmmEnsemble(
        positive_threshold=share,
        negative_threshold=100 - share,
        random_seed=seed,
        unlabeled_record_count=n_unlabelled,
        negative_record_count=n_normal,
        unlabeled_data_value=-1,
        negative_data_value=0,
        **job["options"],
    )
    rest = target != 1
    rows = tf.data.Dataset.from_tensor_slices((X[rest], target[rest]))
    ensemble.fit(rows.batch((n_unlabelled + n_normal) // ensemble.ensemble_count), 1)
    values = {"positive_data_value": 1, "negative_data_value": 0, "unlabeled_data_value": -1}
    labelled = ensemble.pseudo_label(features=X, labels=target, **values)
    forest = RandomForestModel(RandomForestParameters(random_seed=seed))
    forest.train(labelled.new_features, labelled.new_labels, labelled.weights)
    return lambda X: forest.supervised_model.predict(X, verbose=0).ravel()


PEERS = {
    "AutoGluon": fit_autogluon,
    "TabPFN v1": fit_tabpfn_v1,
    "TabPFN v2": fit_tabpfn_v2,
    "SPADE": fit_spade,
}


def main() -> None:
    """Answer commands until the input ends."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    # Libraries print what they like; answers go where nothing else does.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    score: Any = None
    for line in sys.stdin:
        if line.strip() == "fit":
            job, rows = json.loads((folder / "job.json").read_text()), np.load(folder / "train.npz")
            score = PEERS[name](rows["X"], rows["target"], job)
        else:
            np.save(folder / "scores.npy", score(np.load(folder / "test.npz")["X"]))
        print("done", file=answers, flush=True)


if __name__ == "__main__":
    main()
