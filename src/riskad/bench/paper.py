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
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

__all__ = [
    "COLUMN_LOSSES",
    "DEFAULT_A",
    "DEFAULT_PRIOR",
    "IMAGE_EXPERIMENTS",
    "IMAGE_SETS",
    "PAPER_SETS",
    "PaperSet",
    "Published",
    "paper_set",
    "published",
]

DEFAULT_A = 0.1
DEFAULT_PRIOR = 0.8

# The experiments with deep detectors, and their sets in the paper's order.
IMAGE_EXPERIMENTS = ("images", "images-prior", "images-a")
IMAGE_SETS = ("MNIST", "F-MNIST", "CIFAR-10")

# Our names of the losses, and how the columns of the tables are named.
COLUMN_LOSSES = {"squared": "square", "hinge": "hinge", "modified_huber": "mhuber"}


class PaperSet(NamedTuple):
    """A set as the paper describes it: columns, rows, share of anomalies, and its table."""

    name: str
    d: int
    n: int
    pi_n: float
    table: str


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


@cache
def _tables() -> dict[str, Any]:
    text = resources.files("riskad.bench").joinpath("published.json").read_text("utf-8")
    return dict(json.loads(text))


@cache
def _paper_sets() -> dict[str, PaperSet]:
    return {
        name: PaperSet(name, row["d"], row["n"], row["pi_n"], row["table"])
        for name, row in _tables()["sets"].items()
    }


# In the paper's order, under ADBench's names (the paper prints CIFAR10-1 for CIFAR10_1).
PAPER_SETS: tuple[str, ...] = tuple(_paper_sets())


def paper_set(name: str) -> PaperSet | None:
    """Return what the paper says about a set, or None if it has no such set.

    >>> paper_set("Stamps")
    PaperSet(name='Stamps', d=9, n=340, pi_n=0.09, table='1')
    """
    return _paper_sets().get(name)


def published(
    experiment: str,
    dataset: str,
    method: str,
    settings: Mapping[str, Any],
    anomaly_rate: float | None = None,
) -> Published | None:
    """Return the printed number that a cell of an experiment is to be compared with, if any.

    Experiments "main" and "published" meet the columns of Tables 1 and 3, "prior" Table 4 and "a"
    Table 5. Which rule chose lambda plays no part: the paper has one number for all of them. The
    one printed semi-supervised OC-SVM stands beside every variant of ours. "images-prior" meets
    the table of deep rAD, whose cells have a share of anomalies that the experiment sets.

    >>> published("main", "pendigits", "rad", {"loss": "hinge", "lam": "tight"})
    Published(mean=0.98, se=0.0013)
    >>> published("prior", "vowels", "rad", {"loss": "hinge", "prior": "true"})
    Published(mean=0.69, se=None)
    >>> published("images-prior", "MNIST", "rad", {"loss": "sigmoid", "prior": "flipped"}, 0.2)
    Published(mean=0.95, se=0.01)
    """
    if experiment == "images-prior":
        return _from_images(dataset, method, settings, anomaly_rate)
    row = _tables()["sets"].get(dataset)
    if row is None:
        return None
    loss = COLUMN_LOSSES.get(str(settings.get("loss")))
    a = _say(settings.get("a", DEFAULT_A))
    prior = _say(settings.get("prior", DEFAULT_PRIOR))
    if experiment in ("main", "published"):
        if method in ("rad", "pu") and prior != _say(DEFAULT_PRIOR):
            return None
        if method == "rad" and a != _say(DEFAULT_A):
            return None
        return _from_columns(row, f"{method}_{loss}" if method in ("rad", "pu") else method)
    if method != "rad" or loss is None:
        return None
    if experiment == "prior" and a == _say(DEFAULT_A):
        return _from_values(row, "prior", loss, prior)
    if experiment == "a" and prior == _say(DEFAULT_PRIOR):
        return _from_values(row, "a", loss, a)
    return None


def _say(value: object) -> str:
    """Name a setting as the tables do: "true", "0.9"."""
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _from_columns(row: Mapping[str, Any], column: str) -> Published | None:
    columns = _tables()["columns"]
    return Published(*row["auc"][columns.index(column)]) if column in columns else None


def _from_values(row: Mapping[str, Any], name: str, loss: str, value: str) -> Published | None:
    values = _tables()[f"{name}_values"]
    if value not in values:
        return None
    return Published(row[name][_tables()["losses"].index(loss)][values.index(value)], None)


def _from_images(
    dataset: str, method: str, settings: Mapping[str, Any], anomaly_rate: float | None
) -> Published | None:
    table = _tables()["images"]
    prior = _say(settings.get("prior", DEFAULT_PRIOR))
    losses = table["sets"].get(dataset, {}).get(_say(anomaly_rate), {})
    row = losses.get(settings.get("loss"))
    if method != "rad" or row is None or prior not in table["priors"]:
        return None
    if _say(settings.get("a", DEFAULT_A)) != _say(DEFAULT_A):
        return None
    return Published(*row[table["priors"].index(prior)])
