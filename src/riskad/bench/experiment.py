"""What is to be run: datasets x methods x settings x trials, read from a TOML description.

    title = "What is compared, in a line"
    trials = 30                 # random splits of each dataset
    seed = 0                    # root of the seed tree
    datasets = ["pendigits"]    # names of riskad.datasets.load_adbench
    test_share = 0.3            # rows held back for testing
    labelled = 0.05             # share of the training rows whose label is kept

    [[methods]]
    name = "rad"                                 # how records and tables call it
    estimator = "riskad.ShallowRAD"              # any class with the face of a Detector
    settings = { a = 0.1, prior = 0.8 }          # the same in every cell
    grid = { lam = ["theorem", "cv"] }           # every combination is a column

Two settings are spelled in words because they depend on the split: prior = "true" is the share of
normal rows in the whole dataset, and lam = "published" the regularisation the published runs
amounted to (`riskad.bench.trial`).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from riskad._checks import InputError, check_choice, check_in_interval
from riskad._files import check_input_file

__all__ = ["Cell", "Experiment", "Method", "built_in", "load_experiment", "seed_of"]


def seed_of(root: int, *path: object) -> int:
    """Seed at the place `path` of the tree that grows from `root`.

    Each random draw of an experiment has a place of its own, so a cell that is run alone draws
    what it draws in the full run, whatever ran before it.

    >>> seed_of(0, "pendigits", 3, "split") == seed_of(0, "pendigits", 3, "split")
    True
    >>> seed_of(0, "pendigits", 3, "split") == seed_of(0, "pendigits", 4, "split")
    False
    """
    place = json.dumps([root, *map(str, path)])
    return int.from_bytes(hashlib.sha256(place.encode()).digest()[:4])


@dataclass(frozen=True)
class Method:
    """An estimator under a name, with each combination of settings it is run with."""

    name: str
    estimator: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, list[Any]] = field(default_factory=dict)

    def combinations(self) -> Iterator[dict[str, Any]]:
        """All settings: the fixed ones with every combination of the grid."""
        for values in itertools.product(*self.grid.values()):
            yield dict(self.settings) | dict(zip(self.grid, values, strict=True))


@dataclass(frozen=True)
class Cell:
    """One trial of one method with one setting on one dataset: the unit of work and of record."""

    experiment: str
    dataset: str
    method: str
    estimator: str
    settings: Mapping[str, Any]
    trial: int
    root: int
    test_share: float
    labelled: float

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What a record says about the cell; the same identity is never run twice."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}

    @property
    def key(self) -> str:
        """The identity as a text to compare."""
        return identity_key(self.identity)


def identity_key(record: Mapping[str, Any]) -> str:
    """The identity of a record's cell as a text to compare."""
    return json.dumps([record.get(entry.name) for entry in fields(Cell)], sort_keys=True)


@dataclass(frozen=True)
class Experiment:
    """A named description; `cells` are in the order in which they are run."""

    name: str
    title: str
    datasets: tuple[str, ...]
    methods: tuple[Method, ...]
    trials: int
    seed: int = 0
    test_share: float = 0.3
    labelled: float = 0.05

    def cells(self) -> Iterator[Cell]:
        """All cells, trial by trial.

        After each trial the records hold a complete small experiment, and what is still to come
        resembles what was done, which makes the time left foreseeable.
        """
        for trial, dataset, method in itertools.product(
            range(self.trials), self.datasets, self.methods
        ):
            for settings in method.combinations():
                yield Cell(
                    self.name,
                    dataset,
                    method.name,
                    method.estimator,
                    settings,
                    trial,
                    self.seed,
                    self.test_share,
                    self.labelled,
                )

    def narrowed(
        self,
        *,
        datasets: Iterable[str] = (),
        methods: Iterable[str] = (),
        trials: int | None = None,
    ) -> Experiment:
        """The same experiment on some of its datasets, methods and first trials."""
        chosen = [check_choice("dataset", name, self.datasets) for name in datasets]
        names = list(dict.fromkeys(method.name for method in self.methods))
        kept = [check_choice("method", name, names) for name in methods] or names
        return replace(
            self,
            datasets=tuple(name for name in self.datasets if not chosen or name in chosen),
            methods=tuple(method for method in self.methods if method.name in kept),
            trials=self.trials if trials is None else min(trials, self.trials),
        )


def built_in(suite: str) -> dict[str, Path]:
    """Descriptions that come with the package, by their short names: main, prior, ..."""
    folder = Path(str(files("riskad.bench") / "experiments" / suite))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def load_experiment(path: Path) -> Experiment:
    """Read and check a TOML description; the file's name is the experiment's."""
    path = check_input_file(path)
    try:
        description = tomllib.loads(path.read_text(encoding="utf-8"))
        methods = tuple(Method(**method) for method in description.pop("methods", []))
        experiment = Experiment(path.stem, methods=methods, **_as_tuples(description))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, TypeError) as error:
        known = ", ".join(entry.name for entry in fields(Experiment) if entry.name != "name")
        raise InputError(
            f"{path.name} is not a description of an experiment: {error}. It may hold {known}; "
            "each of [[methods]] holds name, estimator, settings, grid."
        ) from None
    _check(experiment)
    return experiment


def _as_tuples(description: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(v) if isinstance(v, list) else v for key, v in description.items()}


def _check(experiment: Experiment) -> None:
    check_in_interval("test_share", experiment.test_share, 0, 1)
    check_in_interval("labelled", experiment.labelled, 0, 1)
    if not isinstance(experiment.trials, int) or experiment.trials < 1:
        raise InputError(f"trials must be a whole number >= 1, got {experiment.trials!r}.")
    if not isinstance(experiment.seed, int):
        raise InputError(f"seed must be a whole number, got {experiment.seed!r}.")
    if not experiment.datasets or not experiment.methods:
        raise InputError(
            f"experiment {experiment.name!r} needs at least one of datasets and [[methods]]."
        )
    for method in experiment.methods:
        for key, values in method.grid.items():
            if not isinstance(values, list) or not values:
                raise InputError(
                    f"grid of method {method.name!r}: {key} must be a list of values, "
                    f"got {values!r}."
                )
