"""Pictures: features of a network beside pixels, and maps of defects on surfaces."""

from experiments.images import classes, surfaces

EXPERIMENTS = (*classes.EXPERIMENTS, *surfaces.EXPERIMENTS)
