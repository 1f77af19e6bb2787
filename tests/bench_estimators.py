"""Estimators that misbehave, importable from worker processes."""

import os
import time

from riskad.shallow import ShallowRAD


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
