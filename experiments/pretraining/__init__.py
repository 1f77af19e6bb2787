"""How the network of `riskad.PretrainedRAD` was trained, and what it finds in tables kept for that.

`split.py` says which tables are trained on, `synthetic.py` and `batches.py` make what is read in
training, `network.py` has the network in torch, and `train.py` trains it, on a GPU:
`python -m experiments.pretraining.train`. `evaluation.py` judges the weights in the package.
"""

from experiments.pretraining import evaluation
from experiments.runner import Experiment

_NEEDS = "tables/tables.npz in RISKAD_DATA"

EXPERIMENTS = (
    Experiment(
        name="pretrained-kept",
        title="The network beside trees, on tables that it was not trained on",
        cells=evaluation.kept_cells,
        run_cell=evaluation.run_kept,
        report=evaluation.report_kept,
        folder="pretrained",
        needs=f"{_NEEDS}, catboost",
        minutes="20 minutes on one core",
    ),
    Experiment(
        name="pretrained-readings",
        title="The network reads a table several times, in different forms",
        cells=evaluation.reading_cells,
        run_cell=evaluation.run_reading,
        report=evaluation.report_readings,
        folder="pretrained",
        needs=_NEEDS,
        minutes="20 minutes on one core",
    ),
)
