"""What the paper printed: AUC means and standard errors of its experiments.

The numbers are facts from the tables of the paper and its supplement, kept in `published.json`:
Tables 1 and 3 (26 sets, eight columns, 30 trials each), Table 4 (other priors) and Table 5 (other
a), of which the last two give means only; and the one table of deep rAD (three image sets, four
shares of anomalies, four losses, five priors, 20 trials each). Of its other deep experiments the
paper has figures, which give no numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

_TABLES = json.loads(Path(__file__).with_name("published.json").read_text("utf-8"))

DEFAULTS = {"a": 0.1, "prior": 0.8}
"""The paper's values of what it varies in the experiments "a" and "prior"."""

# How the columns of the tables name the losses.
_COLUMN_LOSSES = {"squared": "square", "hinge": "hinge", "modified_huber": "mhuber"}


class Published(NamedTuple):
    """A printed mean AUC, and its standard error (None where the paper gives none)."""

    mean: float
    se: float | None

    @property
    def rounding(self) -> float:
        """Half a unit of the last printed digit: how far the mean before rounding may lie.

        >>> Published(0.98, None).rounding, Published(0.996, None).rounding
        (0.005, 0.0005)
        """
        return 0.005 if round(self.mean, 2) == self.mean else 0.0005


# What the paper says of a set ("d", "n" and "pi_n") under ADBench's name: CIFAR10-1 is CIFAR10_1.
PAPER_FACTS: dict[str, dict[str, Any]] = _TABLES["sets"]


def published(
    experiment: str, dataset: str, method: str, settings: Mapping[str, Any]
) -> Published | None:
    """Return the printed number that a cell of an experiment is to be compared with, if any.

    Which rule chose lambda plays no part: the paper has one number for all of them. The one printed
    semi-supervised OC-SVM stands beside every variant of ours.

    >>> published("main", "pendigits", "rad", {"loss": "hinge", "lam": "tight"})
    Published(mean=0.98, se=0.0013)
    """
    loss, row = settings.get("loss"), _TABLES["sets"].get(dataset)
    if experiment == "images-prior":
        table = _TABLES["images"]
        by_loss = table["sets"][dataset][f"{settings['anomaly_rate']:g}"]
        return Published(*by_loss[loss][table["priors"].index(_say(settings["prior"]))])
    if row is None or experiment.startswith("images"):
        return None
    column = _COLUMN_LOSSES.get(str(loss))
    if experiment in ("main", "published"):
        name = f"{method}_{column}" if method in ("rad", "pu") else method
        return Published(*row["auc"][_TABLES["columns"].index(name)])
    value = _TABLES[f"{experiment}_values"].index(_say(settings[experiment]))
    return Published(row[experiment][_TABLES["losses"].index(column)][value], None)


def _say(value: object) -> str:
    """Name a setting as the tables do: "true", "0.9"."""
    return f"{value:g}" if isinstance(value, int | float) else str(value)
