"""How the network of `riskad.PretrainedRAD` was trained, and what it finds in tables kept for that.

`split.py` says which tables are trained on, `synthetic.py` and `batches.py` make what is read in
training, `network.py` has the network in torch, and `train.py` trains it, on a GPU:
`python -m experiments.pretraining.train`. `evaluation.py` judges the weights in the package.
"""

from experiments.pretraining import evaluation
from experiments.runner import Experiment

EXPERIMENTS = (
    Experiment(
        name="pretrained-kept",
        title="The network beside trees, on tables that it was not trained on",
        cells=evaluation.kept_cells,
        run_cell=evaluation.run_kept,
        report=evaluation.report_kept,
        folder="pretrained",
        needs="tables/tables.npz in RISKAD_DATA, catboost",
        minutes="20 minutes on one core",
    ),
)
