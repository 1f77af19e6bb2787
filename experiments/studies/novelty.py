"""What becomes of kinds of anomaly that nobody labelled, and of tables without labelled anomalies.

On 60 real tables, every second of those with at least 600 rows and 60 anomalies, the anomalies of a
table are parted into three kinds by k-means over its columns. A trial keeps up to 800 rows to learn
from and at most half of the table; of these, max(40, 5 %) are picked at random, and labels are
given to

==============  ===========================================================================
labels          of
==============  ===========================================================================
`random`        the rows picked
`one kind`      the normal rows picked, and at random 3 to 20 anomalies of one kind, at most half
`normals`       the normal rows picked
==============  ===========================================================================

AUCs are on the other rows: by `AutoRAD`, by the same without novelty in its average, by its
novelty alone, and by scikit-learn's isolation forest fitted to the same rows. Where one kind has
labels, for that kind and for the other two against all normal rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score

from experiments.datasets import load_collected
from experiments.runner import Cell, Experiment, seed_of
from experiments.summaries import (
    COLLECTED,
    Row,
    commits,
    difference,
    grid,
    group,
    json_page,
    rounded,
)
from riskad import AutoRAD
from riskad.core.labels import ANOMALY, NORMAL
from riskad.detectors.auto.novelty import NOVELTY
from riskad.detectors.features import SmoothScaler

_NUMBERS = (
    *(175, 229, 205, 101, 317, 259, 357, 43, 365, 403, 133, 27, 321, 217, 219, 319, 135, 269, 237),
    *(195, 381, 33, 11, 385, 181, 211, 275, 1, 231, 91, 199, 347, 215, 227, 283, 331, 411, 243),
    *(225, 377, 105, 295, 333, 353, 305, 167, 161, 97, 327, 303, 415, 71, 351, 171, 235, 313, 393),
    *(249, 173, 241),
)
_TABLES = [f"table {number:03d}" for number in _NUMBERS]
_LABELS = ("one kind", "normals", "random")
_SCORES = ("AutoRAD", "without novelty", "novelty", "isolation forest")
_KINDS = 3
_MOST_ROWS, _FEWEST_PICKED, _PICKED = 800, 40, 0.05
_FEWEST_LABELLED, _MOST_LABELLED = 3, 20


def run_unseen(cell: Cell) -> dict[str, Any]:
    """Return AUCs by way of scoring, for all anomalies and by whether their kind has labels."""
    data, labels = load_collected(cell["dataset"]), cell["labels"]
    X, anomalous = data.X, np.asarray(data.y == ANOMALY)
    kinds = np.full(len(X), -1)
    columns = SmoothScaler().fit_transform(X)[anomalous]
    kinds[anomalous] = KMeans(_KINDS, n_init=5, random_state=0).fit_predict(columns)
    rng = np.random.default_rng(seed_of(0, cell["dataset"], 0, labels))
    order = rng.permutation(len(X))
    train, test = order[: min(_MOST_ROWS, len(X) // 2)], order[len(X) // 2 :]
    codes = draw_labels(labels, anomalous[train], kinds[train], rng)
    seed = seed_of(0, cell["dataset"], 0, "method")
    model = AutoRAD(random_state=seed).fit(X[train], codes)
    score, novelty = model._anomaly_score_and_novelty(X[test])
    weight = model.weights_[NOVELTY]
    forest = IsolationForest(random_state=seed % 2**32).fit(X[train])
    # The scale does not matter to a rank.
    scores = (score, score - weight * novelty, novelty, -forest.score_samples(X[test]))
    labelled = np.unique(kinds[train][codes == ANOMALY])
    metrics = {
        "normals": int((codes == NORMAL).sum()),
        "anomalies": int((codes == ANOMALY).sum()),
        "weight": weight,
        "held_out": None if model.auc_ is None else model.auc_.value,
        "held_out_kinds": None if model.kinds_auc_ is None else model.kinds_auc_.value,
    }
    for which, rows in _judged(labels, kinds[test], labelled).items():
        truth = anomalous[test][rows]
        if 0 < truth.sum() < len(truth):
            for name, values in zip(_SCORES, scores, strict=True):
                metrics[f"{which}: {name}"] = float(roc_auc_score(truth, values[rows]))
    return metrics


def draw_labels(
    labels: str, anomalous: np.ndarray, kinds: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return codes of the training rows."""
    codes = np.zeros(len(anomalous), dtype=np.int16)
    picked = rng.permutation(len(codes))[: max(_FEWEST_PICKED, int(_PICKED * len(codes)))]
    codes[picked[~anomalous[picked]]] = NORMAL
    if labels == "random":
        codes[picked[anomalous[picked]]] = ANOMALY
    elif labels == "one kind":
        counts = np.bincount(kinds[kinds >= 0], minlength=_KINDS)
        one = rng.choice(np.flatnonzero(counts > _FEWEST_LABELLED))
        most = max(_FEWEST_LABELLED, min(_MOST_LABELLED, counts[one] // 2))
        codes[rng.permutation(np.flatnonzero(kinds == one))[:most]] = ANOMALY
    return codes


def _judged(labels: str, kinds: np.ndarray, labelled: np.ndarray) -> dict[str, np.ndarray]:
    """Rows to judge by: all normal ones, and anomalies of some kinds."""
    normal, seen = kinds < 0, np.isin(kinds, labelled)
    rows = {"all": np.ones(len(kinds), bool)}
    if labels == "one kind":
        rows |= {"labelled kind": normal | seen, "other kinds": normal | ~seen}
    return rows


def unseen_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return mean AUCs by labels and kinds, each way of scoring less the isolation forest's."""
    by_labels = {}
    for labels, tables in group(rows, "labels").items():
        kinds = ("all", "labelled kind", "other kinds") if labels == "one kind" else ("all",)
        by_labels[labels] = {
            "tables": len(tables),
            "mean_weight_of_novelty": _mean(tables, "weight"),
            "mean_held_out_auc": _mean(tables, "held_out"),
            "mean_held_out_auc_of_kinds": _mean(tables, "held_out_kinds"),
            "auc": {which: _compared(tables, which) for which in kinds},
        }
    return rounded({"most_rows": _MOST_ROWS, "labels": by_labels}) | {"commits": commits(rows)}


def _mean(rows: Sequence[Row], name: str) -> float | None:
    values = [row[name] for row in rows if row[name] is not None]
    return float(np.mean(values)) if values else None


def _compared(rows: Sequence[Row], which: str) -> dict[str, Any]:
    """Means over tables, and differences from the isolation forest and from no novelty."""
    judged = [row for row in rows if row[f"{which}: AutoRAD"] is not None]
    aucs = {name: np.array([row[f"{which}: {name}"] for row in judged]) for name in _SCORES}
    figures: dict[str, Any] = {}
    for name, values in aucs.items():
        figures[name] = {"mean": values.mean()}
        for other in ("isolation forest", "without novelty"):
            gaps = values - aucs[other]
            counts = {"better": int((gaps > 0).sum()), "of": len(gaps)}
            figures[name][f"less_{other.replace(' ', '_')}"] = (
                difference(gaps) | {"least": gaps.min()} | counts
            )
    return figures


def by_novelty(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the figures of novelty as it is, and of an earlier one, of which records are kept."""
    return {name: unseen_figures(cells) for name, cells in group(rows, "novelty").items()}


EXPERIMENTS = (
    Experiment(
        name="kinds-unseen",
        title="Kinds of anomaly that nobody labelled",
        cells=grid(dataset=_TABLES, labels=_LABELS, novelty=("as it is",)),
        run_cell=run_unseen,
        report=json_page("kinds_unseen.json", by_novelty),
        folder="decisions",
        needs=COLLECTED,
        minutes="half an hour",
    ),
)
