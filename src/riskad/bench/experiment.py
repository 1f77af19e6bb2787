"""What is to be run: datasets x methods x settings x trials, read from a TOML description.

    title = "What is compared, in a line"
    trials = 30                 # random splits of each dataset
    seed = 0                    # root of the seed tree; of several, if it is a list
    datasets = ["pendigits"]    # names of riskad.datasets.load_adbench, or tables of your own
    test_share = 0.3            # rows held back for testing
    labelled = 0.05             # share of the training rows whose label is kept, or a list:
                                # [0.01, 0.05, "5 anomalies"], the last with no other label

    [[methods]]
    name = "rad"                                 # how records and tables call it
    estimator = "riskad.ShallowRAD"              # any class with the face of a Detector
    settings = { a = 0.1, prior = 0.8 }          # the same in every cell
    grid = { lam = ["theorem", "cv"] }           # every combination is a column

A dataset may be any table whose truth is known, in CSV, Parquet or npz (arrays X and y); its path
is relative to the description. `riskad.datasets.sources` has all kinds, and how to add one.

    [[datasets]]
    path = "payments.csv"
    label = "state"             # the column with the truth, of every row; npz has it in y
    normal = "ok"               # what its values mean; a list if there are several
    anomaly = ["fraud", "theft"]
    drop = ["customer"]         # columns to leave out, if any
    name = "payments"           # the file's name, if not given

With `anomaly_rates` the datasets are images, those of riskad.datasets.load_images, and the splits
those of `one_class_split`: in trial t class t % 10 is normal, and each of the rates is a condition,
as is each share of labelled rows. In place of test_share and labelled there are then

    anomaly_rates = [0.01, 0.1]     # pi_n
    labelled = [0.05, 0.1]          # gamma_l

A method may measure something else than the AUC of an estimator. Its function is given the cell and
returns what the record is to say; beside it in its module, a function `report` makes one result of
all records (`riskad.bench.studies` has those that come with the package).

    [[methods]]
    name = "tight"
    measure = "riskad.bench.studies.suggesting.measure"
    settings = { lam = "tight" }

A description may rest on another in the same folder: what it does not say is as there, and so is
what one of its [[methods]] does not say of a method of the same name.

    like = "field.toml"

Settings that depend on the dataset are written once for all methods; a method's own go before:

    [by_dataset.MNIST]
    module = "lenet-mnist"

Some settings are spelled in words because they depend on the split: prior = "true" is the share of
normal rows, prior = "flipped" that of anomalies, and lam = "published" the regularisation the
published runs amounted to (`riskad.bench.trial`).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from riskad.core.checks import (
    InputError,
    check_choice,
    check_in_interval,
    enumerate_names,
    lookup,
)
from riskad.datasets import DatasetSource, read_source
from riskad.storage.files import check_input_file

__all__ = [
    "SUITES",
    "Cell",
    "Experiment",
    "Images",
    "Method",
    "Tables",
    "anomaly_budget",
    "built_in",
    "find_experiment",
    "load_experiment",
    "seed_of",
]


T = TypeVar("T")
SUITES = ("shallow", "deep", "field", "studies")


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
    """An estimator under a name, with each combination of settings it is run with.

    With `trials` it is run in the first so many trials only. `measure` is the function to call in
    place of fitting an estimator.
    """

    name: str
    estimator: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, list[Any]] = field(default_factory=dict)
    trials: int | None = None
    measure: str | None = None

    def combinations(self) -> Iterator[dict[str, Any]]:
        """All settings: the fixed ones with every combination of the grid."""
        for values in itertools.product(*self.grid.values()):
            yield dict(self.settings) | dict(zip(self.grid, values, strict=True))


@dataclass(frozen=True)
class Tables:
    """Random splits of tables: the share of rows to test with, and each budget of labels.

    A budget is the share of training rows to label, or a number of anomalies: "5 anomalies".
    """

    test_share: float = 0.3
    labelled: tuple[float | str, ...] = (0.05,)

    def conditions(self) -> list[dict[str, Any]]:
        """What distinguishes cells beside dataset, method and trial."""
        return [{"test_share": self.test_share, "labelled": budget} for budget in self.labelled]

    def check(self) -> None:
        """Refuse shares that are none, and words that are no number of anomalies."""
        check_in_interval("test_share", self.test_share, 0, 1)
        if not self.labelled:
            raise InputError("labelled must be a budget of labels or a list of some.")
        for budget in self.labelled:
            if anomaly_budget(budget) is None:
                remedy = 'Or give a number of anomalies, as "5 anomalies".'
                check_in_interval("labelled", budget, 0, 1, remedy)


def anomaly_budget(labelled: float | str) -> int | None:
    """How many anomalies alone a budget labels; None for a share of all rows.

    >>> anomaly_budget("5 anomalies"), anomaly_budget(0.05)
    (5, None)
    """
    found = re.fullmatch(r"([1-9]\d*) anomal(?:y|ies)", str(labelled))
    return int(found[1]) if found else None


@dataclass(frozen=True)
class Images:
    """One class of images is normal: each anomaly rate pi_n, with each share gamma_l of labels."""

    anomaly_rates: tuple[float, ...]
    labelled: tuple[float, ...] = (0.05,)

    def conditions(self) -> list[dict[str, Any]]:
        """What distinguishes cells beside dataset, method and trial; test parts are published."""
        return [
            {"test_share": None, "labelled": gamma_l, "anomaly_rate": pi_n}
            for pi_n, gamma_l in itertools.product(self.anomaly_rates, self.labelled)
        ]

    def check(self) -> None:
        """Refuse rates and shares that are none."""
        for name, values in (("anomaly_rates", self.anomaly_rates), ("labelled", self.labelled)):
            if not values:
                raise InputError(f"{name} must be a list of at least one number.")
            for value in values:
                check_in_interval(f"each of {name}", value, 0, 1)


@dataclass(frozen=True)
class Cell:
    """One trial of one method with one setting on one dataset: the unit of work and of record.

    test_share is None for images, and anomaly_rate for tables. `data` is the state of a table that
    may change; `source` says where the dataset is, which is no part of the identity.
    """

    experiment: str
    dataset: str
    method: str
    estimator: str | None
    settings: Mapping[str, Any]
    trial: int
    root: int
    test_share: float | None
    labelled: float | str
    anomaly_rate: float | None = None
    data: str | None = None
    measure: str | None = None
    source: DatasetSource | None = None

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What a record says about the cell; the same identity is never run twice."""
        values = {name: getattr(self, name) for name in _IDENTITY}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def key(self) -> str:
        """The identity as a text to compare."""
        return identity_key(self.identity)


_IDENTITY = tuple(entry.name for entry in fields(Cell) if entry.name != "source")


def identity_key(record: Mapping[str, Any]) -> str:
    """The identity of a record's cell as a text to compare; what it does not name is None."""
    return json.dumps([record.get(name) for name in _IDENTITY], sort_keys=True)


@dataclass(frozen=True)
class Experiment:
    """A named description; `cells` are in the order in which they are run.

    `sources` say where datasets are that are not just names.
    """

    name: str
    title: str
    datasets: tuple[str, ...]
    methods: tuple[Method, ...]
    trials: int
    seed: int | tuple[int, ...] = 0
    protocol: Tables | Images = Tables()
    by_dataset: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sources: Mapping[str, DatasetSource] = field(default_factory=dict)

    def source(self, dataset: str) -> DatasetSource:
        """Where a dataset of this experiment comes from, in its present state."""
        images = isinstance(self.protocol, Images)
        source = self.sources.get(dataset) or read_source(dataset, images=images)
        return source.pinned()

    def cells(self) -> Iterator[Cell]:
        """All cells, trial by trial.

        After each trial the records hold a complete small experiment, and what is still to come
        resembles what was done, which makes the time left foreseeable.
        """
        roots = self.seed if isinstance(self.seed, tuple) else (self.seed,)
        sources = {name: self.source(name) for name in self.datasets}
        for trial, root, dataset, method, condition in itertools.product(
            range(self.trials), roots, self.datasets, self.methods, self.protocol.conditions()
        ):
            if method.trials is not None and trial >= method.trials:
                continue
            for settings in method.combinations():
                yield Cell(
                    self.name,
                    dataset,
                    method.name,
                    method.estimator,
                    {**self.by_dataset.get(dataset, {}), **settings},
                    trial,
                    root,
                    **condition,
                    data=sources[dataset].state,
                    measure=method.measure,
                    source=sources[dataset],
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


PARTS_OF = {
    "shallow": ("main", "prior", "a", "published"),
    "deep": ("images", "images-prior", "images-a"),
    "field": (
        "field",
        "field-slow",
        "field-recent",
        "field-budgets",
        "field-five",
        "field-budgets-slow",
    ),
}
"""Experiments that come with the package and belong together; the main one is run first."""


def built_in(suite: str) -> dict[str, Path]:
    """Descriptions that come with the package, by their short names: main, prior, ..."""
    folder = Path(str(files("riskad.bench") / "experiments" / suite))
    found = {path.stem: path for path in sorted(folder.glob("*.toml"))}
    return {name: found[name] for name in PARTS_OF.get(suite, tuple(found))}


def find_experiment(given: str | Path) -> Path:
    """The description that a path leads to, or that comes with the package under this name.

    >>> find_experiment("choosing").name
    'choosing.toml'
    """
    path = Path(given)
    if path.suffix or path.exists():
        return path
    known = {name: own for suite in SUITES for name, own in built_in(suite).items()}
    return lookup("experiment", str(given), known)


def _made(path: Path, kind: type[T], entries: Any) -> T:
    """An object of entries of a description, if they are those that it has."""
    if not isinstance(entries, Mapping):
        raise _not_a_description(path, f"{entries!r} is no table of entries")
    known = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    unknown = [name for name in entries if name not in known]
    absent = [
        each.name
        for each in known.values()
        if each.name not in entries and each.default is MISSING and each.default_factory is MISSING
    ]
    if unknown or absent:
        said = f"unexpected {enumerate_names(unknown)}" if unknown else ""
        said += " and " * bool(unknown and absent)
        raise _not_a_description(path, said + (f"no {enumerate_names(absent)}" if absent else ""))
    return kind(**entries)


def _not_a_description(path: Path, why: str) -> InputError:
    return InputError(
        f"{path.name} is not a description of an experiment: {why}. It may hold title, "
        "trials, seed, datasets, like, by_dataset, methods, and test_share and labelled for "
        "tables or anomaly_rates and labelled for images; each of [[methods]] holds name, "
        "estimator or measure, settings, grid, trials."
    )


def load_experiment(path: Path) -> Experiment:
    """Read and check a TOML description; the file's name is the experiment's."""
    path = check_input_file(path)
    try:
        description = _read(path)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _not_a_description(path, str(error)) from None
    entries = description.pop("methods", [])
    methods = tuple(_made(path, Method, method) for method in entries)
    protocol = _protocol(description)
    parts = {
        "methods": methods,
        "protocol": protocol,
        "sources": _sources(description, path.parent, isinstance(protocol, Images)),
    }
    experiment = _made(path, Experiment, {"name": path.stem, **_as_tuples(description), **parts})
    _check(experiment)
    return experiment


def _read(path: Path, readers: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Read a description, completed by the one that it is like; `readers` rest on this one.

    A method of the same name is completed in the same way, entry by entry.
    """
    if path in readers:
        raise InputError(f"{path.name} is like itself in the end. Remove one entry like = ...")
    own = tomllib.loads(path.read_text(encoding="utf-8"))
    if "like" not in own:
        return own
    base = _read(check_input_file(path.parent / str(own.pop("like"))), (*readers, path))
    methods = {method.get("name"): method for method in base.get("methods", [])}
    for method in own.get("methods", []):
        methods[method.get("name")] = methods.get(method.get("name"), {}) | method
    return base | own | {"methods": list(methods.values())}


def _sources(description: dict[str, Any], folder: Path, images: bool) -> dict[str, DatasetSource]:
    """Leave the names of datasets in a description, and say where each comes from."""
    given = description.get("datasets", [])
    found = [read_source(entry, folder, images=images) for entry in given]
    names = [source.name for source in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f'two datasets are named {twice[0]!r}. Give one of them name = "...".')
    description["datasets"] = names
    return dict(zip(names, found, strict=True))


def _protocol(description: dict[str, Any]) -> Tables | Images:
    """Take the protocol's entries out of a description; anomaly_rates are for images alone."""
    if "anomaly_rates" not in description:
        return Tables(**_taken(description, "test_share"), **_lists(description, "labelled"))
    return Images(**_lists(description, "anomaly_rates", "labelled"))


def _taken(description: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: description.pop(name) for name in names if name in description}


def _lists(description: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: _listed(value) for name, value in _taken(description, *names).items()}


def _listed(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list) else (value,)


def _as_tuples(description: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(v) if isinstance(v, list) else v for key, v in description.items()}


def _check(experiment: Experiment) -> None:
    experiment.protocol.check()
    if not isinstance(experiment.trials, int) or experiment.trials < 1:
        raise InputError(f"trials must be a whole number >= 1, got {experiment.trials!r}.")
    seeds = experiment.seed if isinstance(experiment.seed, tuple) else (experiment.seed,)
    if not seeds or not all(isinstance(seed, int) for seed in seeds):
        raise InputError(f"seed must be a whole number or a list of some, got {experiment.seed!r}.")
    if not experiment.datasets or not experiment.methods:
        raise InputError(
            f"experiment {experiment.name!r} needs at least one of datasets and [[methods]]."
        )
    for name in experiment.by_dataset:
        check_choice("by_dataset", name, experiment.datasets)
    for method in experiment.methods:
        _check_grid(method)
        if (method.estimator is None) == (method.measure is None):
            raise InputError(
                f"method {method.name!r} needs an estimator to fit or a function to measure, one "
                "of the two."
            )
        if method.trials is not None and (not isinstance(method.trials, int) or method.trials < 1):
            raise InputError(
                f"trials of method {method.name!r} must be a whole number >= 1, got "
                f"{method.trials!r}."
            )


def _check_grid(method: Method) -> None:
    for key, values in method.grid.items():
        if not isinstance(values, list) or not values:
            raise InputError(
                f"grid of method {method.name!r}: {key} must be a list of values, got {values!r}."
            )
