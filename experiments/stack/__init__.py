"""Many networks of one shape trained at once: how the paper's deep tables are made fast."""

from experiments.stack.speed import EXPERIMENTS
from experiments.stack.trainer import StackedTrainer

__all__ = ["EXPERIMENTS", "StackedTrainer"]
