"""Speed and memory, measured side by side so that ratios can be compared."""

from experiments.speed import auto, core, scale, serve, tables

EXPERIMENTS = (
    *core.EXPERIMENTS,
    *auto.EXPERIMENTS,
    *tables.EXPERIMENTS,
    *serve.EXPERIMENTS,
    *scale.EXPERIMENTS,
)
