"""What becomes of kinds of anomaly that nobody labelled, and of tables without labelled anomalies.

On real tables (`riskad.bench.collected`: by number, every second of those with at least 600 rows
and 60 anomalies). The anomalies of a table are parted into three kinds by k-means over its columns.
A trial keeps up to 800 rows to learn from and at most half of the table; of these,
max(40, 5 %) are picked at random, and labels are given to

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

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score

from riskad import AutoRAD
from riskad.bench.collected import load_collected
from riskad.bench.experiment import Cell, seed_of
from riskad.bench.studies import Record
from riskad.core.labels import ANOMALY, NORMAL, LabelCodes
from riskad.detectors.auto.novelty import NOVELTY
from riskad.detectors.features import SmoothScaler

__all__ = ["LABELS", "measure", "report"]

_KINDS = 3
_MOST_ROWS, _FEWEST_PICKED, _PICKED = 800, 40, 0.05
_FEWEST_LABELLED, _MOST_LABELLED = 3, 20


def _one_kind(kinds: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Places of anomalies of one kind, not too many."""
    counts = np.bincount(kinds[kinds >= 0], minlength=_KINDS)
    one = rng.choice(np.flatnonzero(counts > _FEWEST_LABELLED))
    most = max(_FEWEST_LABELLED, min(_MOST_LABELLED, counts[one] // 2))
    return rng.permutation(np.flatnonzero(kinds == one))[:most]


def _none(kinds: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.array([], dtype=int)


def _picked(kinds: np.ndarray, rng: np.random.Generator) -> None:
    return None


LABELS: dict[str, Callable[[np.ndarray, np.random.Generator], np.ndarray | None]] = {
    "random": _picked,
    "one kind": _one_kind,
    "normals": _none,
}
"""Which anomalies have labels: places, or None for those among the rows picked."""


# --- a trial -------------------------------------------------------------------------------


def measure(cell: Cell) -> dict[str, Any]:
    """Return AUCs by way of scoring, for all anomalies and by whether their kind has labels."""
    place = (cell.root, cell.dataset, cell.trial)
    X, anomalous = load_collected(cell.dataset)
    kinds = _kinds_of(X, anomalous)
    rng = np.random.default_rng(seed_of(*place, cell.settings["labels"]))
    order = rng.permutation(len(X))
    train, test = order[: min(_MOST_ROWS, len(X) // 2)], order[len(X) // 2 :]
    codes = _codes(cell.settings["labels"], anomalous[train], kinds[train], rng)
    seed = seed_of(*place, "method")
    model = AutoRAD(random_state=seed).fit(X[train], LabelCodes.of(codes))
    scores = _scores(model, X[train], X[test], seed)
    labelled = np.unique(kinds[train][codes == ANOMALY])
    return {
        "normals": int((codes == NORMAL).sum()),
        "anomalies": int((codes == ANOMALY).sum()),
        "weight": model.weights_[NOVELTY],
        "held_out": None if model.auc_ is None else model.auc_.value,
        "held_out_kinds": None if model.kinds_auc_ is None else model.kinds_auc_.value,
        "auc": {
            which: {name: _auc(anomalous[test], found, rows) for name, found in scores.items()}
            for which, rows in _which(cell.settings["labels"], kinds[test], labelled).items()
        },
    }


def _kinds_of(X: np.ndarray, anomalous: np.ndarray) -> np.ndarray:
    """The kind of each anomaly; -1 for normal rows."""
    kinds = np.full(len(X), -1)
    columns = SmoothScaler().fit_transform(X)[anomalous]
    kinds[anomalous] = KMeans(_KINDS, n_init=5, random_state=0).fit_predict(columns)
    return kinds


def _codes(
    labels: str, anomalous: np.ndarray, kinds: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    codes = np.zeros(len(anomalous), dtype=np.int8)
    picked = rng.permutation(len(codes))[: max(_FEWEST_PICKED, int(_PICKED * len(codes)))]
    codes[picked[~anomalous[picked]]] = NORMAL
    known = LABELS[labels](kinds, rng)
    codes[picked[anomalous[picked]] if known is None else known] = ANOMALY
    return codes


def _scores(model: AutoRAD, X: np.ndarray, new: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    score, novelty = model.anomaly_score_and_novelty(new)
    share = model.weights_[NOVELTY]
    forest = IsolationForest(random_state=seed % 2**32).fit(X)
    return {
        "AutoRAD": score,
        "without novelty": score - share * novelty,  # the scale does not matter to a rank
        "novelty": novelty,
        "isolation forest": -forest.score_samples(new),
    }


def _which(labels: str, kinds: np.ndarray, labelled: np.ndarray) -> Mapping[str, np.ndarray]:
    """Rows to judge by: all normal ones, and anomalies of some kinds."""
    normal = kinds < 0
    everything = {"all": normal | (kinds >= 0)}
    if labels != "one kind":
        return everything
    seen = np.isin(kinds, labelled)
    return everything | {"labelled kind": normal | seen, "other kinds": normal | ~seen}


def _auc(anomalous: np.ndarray, scores: np.ndarray, rows: np.ndarray) -> float | None:
    truth = anomalous[rows]
    return float(roc_auc_score(truth, scores[rows])) if 0 < truth.sum() < len(truth) else None


# --- the report ----------------------------------------------------------------------------


def report(rows: Sequence[Record]) -> dict[str, Any]:
    """Return mean AUCs by labels and kinds, each way of scoring less the isolation forest's."""
    by_labels = {}
    for labels in dict.fromkeys(row["settings"]["labels"] for row in rows):
        own = [row for row in rows if row["settings"]["labels"] == labels]
        which = list(dict.fromkeys(name for row in own for name in row["auc"]))
        by_labels[labels] = {
            "tables": len({row["dataset"] for row in own}),
            "mean_weight_of_novelty": _mean([row["weight"] for row in own]),
            "mean_held_out_auc": _mean([row["held_out"] for row in own]),
            "mean_held_out_auc_of_kinds": _mean([row["held_out_kinds"] for row in own]),
            "auc": {name: _compared([row["auc"][name] for row in own]) for name in which},
        }
    return {"most_rows": _MOST_ROWS, "labels": by_labels}


def _compared(found: Sequence[Mapping[str, float | None]]) -> dict[str, Any]:
    """Means over tables, and differences from the isolation forest and from no novelty."""
    complete = [each for each in found if None not in each.values()]
    values = {name: np.array([each[name] for each in complete], float) for name in complete[0]}
    forest, without = values["isolation forest"], values["without novelty"]
    return {
        name: {
            "mean": _mean(own.tolist()),
            "less_isolation_forest": _difference(own - forest),
            "less_without_novelty": _difference(own - without),
        }
        for name, own in values.items()
    }


def _difference(gaps: np.ndarray) -> dict[str, float | int]:
    return {
        "mean": round(float(gaps.mean()), 4),
        "se": round(float(gaps.std(ddof=1) / np.sqrt(len(gaps))), 4) if len(gaps) > 1 else 0.0,
        "least": round(float(gaps.min()), 4),
        "better": int((gaps > 0).sum()),
        "of": len(gaps),
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(float(np.mean(known)), 4) if known else None
