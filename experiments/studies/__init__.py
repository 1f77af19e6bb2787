"""Studies: what choices, decisions and labels are worth, and whether promises are kept."""

from experiments.studies import (
    choosing,
    decisions,
    labels,
    native_columns,
    novelty,
    promises,
    segments,
    series,
    student,
    tables,
    texts,
    theory,
    wrong_labels,
)

EXPERIMENTS = (
    *theory.EXPERIMENTS,
    *choosing.EXPERIMENTS,
    *promises.EXPERIMENTS,
    *decisions.EXPERIMENTS,
    *novelty.EXPERIMENTS,
    *labels.EXPERIMENTS,
    *tables.EXPERIMENTS,
    *native_columns.EXPERIMENTS,
    *student.EXPERIMENTS,
    *segments.EXPERIMENTS,
    *wrong_labels.EXPERIMENTS,
    *series.EXPERIMENTS,
    *texts.EXPERIMENTS,
)
