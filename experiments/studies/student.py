"""The student of `AutoRAD` (`AutoRAD.compress`) beside its teacher, on kept tables.

One split of each table, with 5 % of the training rows labelled, as in `learning-curves`. AUC and
average precision are of test rows, on which rank correlation and agreement are measured, too. Times
are of the processor and of one thread; scores of the student, of 300 extra trees fitted to the
labelled rows and of the teacher are timed in turn, and the shortest of three counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.metrics import average_precision_score, roc_auc_score

from experiments.evaluation import TrialMean
from experiments.field.learning_curves import split_rows
from experiments.pretraining.split import hashes
from experiments.records import OK
from experiments.runner import Cell, Experiment, Skipped
from experiments.speed.timing import least_seconds
from experiments.tables import Table, markdown_table, write_text
from riskad import AutoRAD
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.detectors.compressed import Fidelity

_BUDGET = "5 %"
_MOST_COLUMNS = 30  # scores of wider tables take the teacher minutes


def cells() -> Iterator[Cell]:
    """A cell for each kept table."""
    for dataset in sorted(hashes("kept")):
        yield Cell(dataset=dataset, method="student", budget=_BUDGET)


def run_cell(cell: Cell) -> dict[str, Any]:
    """Fit a teacher, let it teach, and compare both on test rows."""
    X, codes, X_test, truth = split_rows(cell["dataset"], cell["budget"])
    if (codes == ANOMALY).sum() < 1 or (codes == NORMAL).sum() < 2:
        raise Skipped("too few labels: one anomaly and two normal rows are needed.")
    if X.shape[1] > _MOST_COLUMNS:
        raise Skipped(f"more than {_MOST_COLUMNS} columns.")
    start = time.process_time()
    teacher = AutoRAD(n_jobs=1, random_state=0).fit(X, codes)
    fitted = time.process_time()
    student = teacher.compress()
    learned = time.process_time()
    labelled = codes != UNLABELLED
    trees = ExtraTreesClassifier(300, random_state=0).fit(X[labelled], codes[labelled])
    sides = {
        "student": lambda: student.score_samples(X_test),
        "trees": lambda: trees.predict_proba(X_test),
        "teacher": lambda: teacher.score_samples(X_test),
    }
    seconds = least_seconds(sides, 3, clock=time.process_time)
    before, after = teacher.score_samples(X_test), student.score_samples(X_test)
    fidelity = Fidelity.of(before, after, teacher.offset_)
    return {
        "auc": round(float(roc_auc_score(truth, -before)), 5),
        "average_precision": round(float(average_precision_score(truth, -before)), 5),
        "student_auc": round(float(roc_auc_score(truth, -after)), 5),
        "student_average_precision": round(float(average_precision_score(truth, -after)), 5),
        "rank_correlation": round(fidelity.rank_correlation, 5),
        "agreement": round(fidelity.agreement, 5),
        "flagged": fidelity.flagged_before,
        "student_flagged": fidelity.flagged_after,
        "said_rank_correlation": round(student.fidelity_.rank_correlation, 5),
        "said_agreement": round(student.fidelity_.agreement, 5),
        "rows": len(X),
        "columns": X.shape[1],
        "learn_seconds": round(learned - fitted, 2),
        "fit_seconds": round(fitted - start, 2),
        "student_ratio": round(seconds["student"] / seconds["trees"], 3),
        "teacher_ratio": round(seconds["teacher"] / seconds["trees"], 2),
    }


def report(records: pl.DataFrame, folder: Path) -> None:
    """Write student.md: means and a line for each table."""
    done = records.filter(pl.col("status") == OK).sort("dataset")
    auc = done["student_auc"] - done["auc"]
    precision = done["student_average_precision"] - done["average_precision"]
    rows = [
        ["AUC", f"{done['auc'].mean():.4f}", f"{done['student_auc'].mean():.4f}", _say(auc)],
        [
            "average precision",
            f"{done['average_precision'].mean():.4f}",
            f"{done['student_average_precision'].mean():.4f}",
            _say(precision),
        ],
    ]
    means = markdown_table(Table("", ("mean", "AutoRAD", "student", "difference (SE)"), rows))
    correlation, agreement = done["rank_correlation"], done["agreement"]
    both_flag = done.filter(pl.col("flagged") > 0)
    lines = [
        f"- Rank correlation: mean {correlation.mean():.4f}, median {correlation.median():.4f}, "
        f"{int((correlation >= 0.99).sum())} of {len(done)} tables at least 0.99, lowest "
        f"{correlation.min():.3f}. `fidelity_`, measured on stored rows that were held out: mean "
        f"{done['said_rank_correlation'].mean():.4f}.",
        f"- The same decision: mean {100 * agreement.mean():.2f} % of the rows, lowest "
        f"{100 * agreement.min():.1f} %. `fidelity_`: mean "
        f"{100 * done['said_agreement'].mean():.2f} %. Flagged rows, student over teacher: median "
        f"{(both_flag['student_flagged'] / both_flag['flagged']).median():.2f}.",
        f"- Time of scores over that of 300 extra trees: student median "
        f"{done['student_ratio'].median():.2f}, highest {done['student_ratio'].max():.2f}; AutoRAD "
        f"median {done['teacher_ratio'].median():.0f}.",
        f"- Seconds to learn the student, on one thread: median "
        f"{done['learn_seconds'].median():.1f} (the fit: {done['fit_seconds'].median():.1f}).",
    ]
    head = ("table", "AUC", "student", "AP", "student", "rank corr.", "alike", "time", "learned")
    body = [
        [
            row["dataset"],
            f"{row['auc']:.4f}",
            f"{row['student_auc']:.4f}",
            f"{row['average_precision']:.4f}",
            f"{row['student_average_precision']:.4f}",
            f"{row['rank_correlation']:.3f}",
            f"{100 * row['agreement']:.1f} %",
            f"{row['student_ratio']:.2f}",
            f"{row['learn_seconds']:.1f} s",
        ]
        for row in done.to_dicts()
    ]
    tables = markdown_table(Table("", head, body))
    parts = [_INTRODUCTION, f"{len(done)} tables.", means, "\n".join(lines), _TABLES, tables]
    write_text(folder / "student.md", "\n\n".join(part.strip() for part in parts) + "\n")


def _say(differences: pl.Series) -> str:
    mean = TrialMean.of(differences.to_list())
    return f"{mean.mean:+.4f} ({mean.se:.4f})"


_INTRODUCTION = """
# The student of AutoRAD

    RISKAD_DATA=... python -m experiments run student

`AutoRAD.compress` lets boosted trees learn the scores of a fitted `AutoRAD`, from the rows that it
stores and rows made of them, without a table. Kept tables of [pretrained](../pretrained) with at
most 30 columns, one split of each, 5 % of the training rows labelled, as in
[learning curves](learning_curves.md). All figures are of test rows, which neither saw; but settings
of the student were chosen by such figures of the first 16 tables.
"""
_TABLES = """
## Table by table

AP is average precision; time is that of scores, over 300 extra trees; learned says how long the
student took to learn.
"""

EXPERIMENTS = (
    Experiment(
        name="student",
        title="The student of AutoRAD beside its teacher",
        cells=cells,
        run_cell=run_cell,
        report=report,
        folder="field",
        needs="tables/tables.npz (RISKAD_DATA)",
        minutes="20 minutes",
    ),
)
