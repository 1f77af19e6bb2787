"""riskad beside other people's methods: the field of the paper's sets, and learning curves."""

from experiments.field import cells, learning_curves, pages
from experiments.runner import Experiment

EXPERIMENTS = (
    Experiment(
        name="field",
        title="27 methods on the paper's sets, with four budgets of labels",
        cells=cells.cells,
        run_cell=cells.run_cell,
        report=pages.report,
        folder="field",
        needs="ADBench, and the peers of experiments/requirements.txt; recent ones have "
        "environments of their own (experiments/field/README.md)",
        minutes="two days on one core; a cell of AutoRAD takes about 10 seconds",
    ),
    Experiment(
        name="learning-curves",
        title="AutoRAD beside boosted trees by share of labels",
        cells=learning_curves.cells,
        run_cell=learning_curves.run_cell,
        report=learning_curves.report,
        folder="field",
        needs="ADBench, tables/tables.npz in RISKAD_DATA, catboost, lightgbm",
        minutes="two hours on one core",
    ),
)
