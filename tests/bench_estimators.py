"""Estimators that misbehave or stand in for others, importable from other processes."""

import os
import time
from typing import ClassVar

import numpy as np

from riskad.detectors.shallow import ShallowRAD


class Slow(ShallowRAD):
    """Takes a while, so that a run can be killed in its middle."""

    def fit(self, X, y=None, sample_weight=None):
        time.sleep(0.15)
        return super().fit(X, y, sample_weight)


class Failing(ShallowRAD):
    """Refuses one loss."""

    def fit(self, X, y=None, sample_weight=None):
        if self.loss == "hinge":
            raise RuntimeError("no hinge today")
        return super().fit(X, y, sample_weight)


class Dying(ShallowRAD):
    """Takes its process with it for one loss."""

    def fit(self, X, y=None, sample_weight=None):
        if self.loss == "hinge":
            os._exit(9)
        return super().fit(X, y, sample_weight)


class Team:
    """In place of riskad.deep.Together: scores by the distance from the mean of known normals."""

    sizes: ClassVar[list[int]] = []  # of all teams that were fitted
    seconds = 0.0

    def __init__(self, detectors):
        self.detectors = detectors

    @staticmethod
    def key(detector):
        return type(detector).__name__, detector.module, detector.batch

    def fit(self, X, rows, labels):
        time.sleep(self.seconds)
        Team.sizes.append(len(self.detectors))
        assert len({self.key(detector) for detector in self.detectors}) == 1
        self.centres = [
            self._centre(*parts) for parts in zip(self.detectors, rows, labels, strict=True)
        ]
        self.n_steps_ = np.arange(len(self.detectors)) * 0 + 30
        self.best_step_ = self.n_steps_ - 10
        self.X = X
        return self

    def _centre(self, detector, rows, labels):
        """The rows that count as normal, some noise that depends on the settings besides."""
        if getattr(detector, "loss", None) == "hinge":
            raise RuntimeError("no hinge today")
        rng = np.random.default_rng(detector.random_state + round(1000 * detector.prior))
        return rows[labels == 1], rng.normal(0, 20, 1)

    def score_samples(self, X_test):
        scores = []
        for rows, noise in self.centres:
            centre = self.X[rows].astype(float).mean(0)
            scores.append(-np.abs(X_test - centre - noise).mean((1, 2, 3)))
        return np.array(scores)
