"""A complete run on data that comes with scikit-learn, compared with hidden truth."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import IsolationForest
from sklearn.metrics import average_precision_score
from sklearn.model_selection import train_test_split

from riskad.app.fit import fit_table
from riskad.app.fit_report import FitReport
from riskad.app.model_files import load, save
from riskad.app.score import Progress, ScoreReport, score_table
from riskad.app.spec import FitSpec
from riskad.core.labels import ANOMALY, NORMAL
from riskad.metrics.ranking import Auc, auc_with_interval
from riskad.tables.reading import read_table
from riskad.tables.writing import write_table

_ANOMALIES = 60  # of the 212 malignant samples: anomalies should be rare
_LABELLED = {"benign": 20, "malignant": 6}
_TOP = 10


@dataclass(frozen=True)
class Quality:
    """How well scores sort rows whose truth was hidden."""

    auc: Auc
    average_precision: float
    top: int
    top_right: int
    flagged: int
    flagged_right: int


@dataclass(frozen=True)
class DemoReport:
    """What the demonstration did and how good it was."""

    rows: int
    new_rows: int
    new_anomalies: int
    commands: list[str]
    fit: FitReport
    score: ScoreReport
    riskad: Quality
    isolation_forest: Quality


def make_tables(seed: int = 0) -> tuple[pl.DataFrame, pl.DataFrame, pl.Series]:
    """Return a table with few labels, a table with none, and the truth about the second.

    It uses all 357 benign samples and 60 of the malignant ones; 40 % are set aside as new.
    """
    rng = np.random.default_rng(seed)
    bunch = load_breast_cancer()
    names = [str(name).replace(" ", "_") for name in bunch.feature_names]
    full = pl.DataFrame(bunch.data, schema=names, orient="row").with_columns(
        truth=pl.Series(bunch.target_names[bunch.target].tolist())
    )
    benign = np.flatnonzero(full["truth"] == "benign")
    malignant = np.flatnonzero(full["truth"] == "malignant")
    rows = rng.permutation(np.concatenate([benign, rng.choice(malignant, _ANOMALIES, False)]))
    samples = pl.Series("sample", [f"S{i:03}" for i in range(1, len(rows) + 1)])
    full = full[rows].insert_column(0, samples)
    old, new = train_test_split(
        np.arange(full.height), test_size=0.4, stratify=full["truth"], random_state=seed
    )
    table, truth = full[old].drop("truth"), full[old]["truth"]
    labels = np.full(len(truth), "", dtype=object)
    for value, count in _LABELLED.items():
        labels[rng.choice(np.flatnonzero(truth == value), count, replace=False)] = value
    labelled = table.with_columns(label=pl.Series(labels.tolist(), dtype=pl.String))
    return labelled, full[new].drop("truth"), full[new]["truth"]


def run_demo(folder: Path, *, seed: int = 0, progress: Progress = lambda _: None) -> DemoReport:
    """Fit, save, load and score in `folder`, in the same way as with a user's own files."""
    table, new, truth = make_tables(seed)
    write_table(table, folder / "samples.csv")
    write_table(new, folder / "new.csv")
    labels = FitSpec(label="label", normal=("benign",), anomaly=("malignant",), id="sample")
    samples = read_table(folder / "samples.csv")
    fit = fit_table(samples, labels, seed=seed, source="samples.csv", progress=progress)
    save(fit.model, folder / "model.riskad", report=fit.report)
    model = load(folder / "model.riskad")
    scored, score = score_table(
        model, read_table(folder / "new.csv"), id="sample", source="new.csv", progress=progress
    )
    write_table(scored, folder / "scored.csv")
    progress("Comparing with an isolation forest")
    preparer = model[0]
    rows, new_rows = (preparer.matrix(preparer.parse(each)) for each in (table, new))
    forest = IsolationForest(random_state=seed).fit(rows)
    anomalous = truth.to_numpy() == "malignant"
    codes = np.where(anomalous, ANOMALY, NORMAL).astype(np.int16)

    def judge(scores: NDArray[np.float64], flagged: NDArray[np.bool_]) -> Quality:
        top = np.argsort(-scores, kind="stable")[:_TOP]
        return Quality(
            auc=auc_with_interval(codes, scores),
            average_precision=float(average_precision_score(anomalous, scores)),
            top=_TOP,
            top_right=int(anomalous[top].sum()),
            flagged=int(flagged.sum()),
            flagged_right=int((anomalous & flagged).sum()),
        )

    return DemoReport(
        rows=table.height,
        new_rows=new.height,
        new_anomalies=int(anomalous.sum()),
        commands=[
            "riskad fit samples.csv --label label --normal benign --anomaly malignant "
            "--id sample -o model.riskad",
            "riskad score model.riskad new.csv -o scored.csv",
        ],
        fit=fit.report,
        score=score,
        riskad=judge(scored["anomaly_score"].to_numpy(), scored["is_anomaly"].to_numpy()),
        isolation_forest=judge(-forest.score_samples(new_rows), forest.predict(new_rows) == -1),
    )
