"""Many networks of one shape trained at once: how the paper's deep tables are made fast.

`StackedTrainer(detectors)` takes K unfitted `DeepRAD`, `NNPU` or `DeepSAD` (with `scale=False` and
without early stopping) that differ in loss, a, prior and random_state, and

    trainer.fit(X, rows, labels, callback=None)   trains each on its own rows of X, with its labels;
                                                  callback(step) at each check
    trainer.score_samples(X)                      scores (K, n) of the same rows by each network
    trainer.score_rows(rows)                      each network's scores of its own rows of the X of
                                                  fit: a list of K arrays (also in a callback)
    trainer.n_steps_                              the steps that each took, (K,)
    StackedTrainer.key(detector)                  what detectors must share to be trained together

Each network is the one that the detector's own `fit` trains, up to rounding.
"""

from experiments.stack.speed import EXPERIMENTS
from experiments.stack.trainer import StackedTrainer

__all__ = ["EXPERIMENTS", "StackedTrainer"]
