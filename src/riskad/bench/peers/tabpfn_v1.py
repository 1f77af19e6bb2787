"""The first TabPFN, a network that reads labelled rows and answers, without being trained on them.

Of all its versions this one alone has weights on the package index: in the source archive of
tabpfn 0.1, which holds code besides. The code that is run is that of tabpfn 0.1.11, the last of the
same network. Of the archive nothing but the weights is read, their checksum is compared, and torch
is told to unpickle nothing but tensors and plain containers.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import tarfile
import typing
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from riskad.bench.peers.adapters import Classifier
from riskad.core.checks import InputError

__all__ = ["ARCHIVE_VARIABLE", "TabPFN", "read_weights", "sample_by_class"]

ARCHIVE_VARIABLE = "RISKAD_TABPFN_ARCHIVE"
_INSTALL = (
    "pip install 'riskad[peers]', which has tabpfn 0.1.11, download tabpfn-0.1.tar.gz, the source "
    f"archive of tabpfn 0.1, from the package index, and put its path into {ARCHIVE_VARIABLE}"
)
_MEMBER = "tabpfn-0.1/tabpfn/models_diff/prior_diff_real_checkpoint_n_0_epoch_42.cpkt"
_SHA256 = "3c9aadaeddbf51462af8c0ee4b3ca3c697890f77e92318abbb0821b75261c392"
_PREDICTION = "tabpfn.scripts.transformer_prediction_interface"
_BUILDER = "tabpfn.scripts.model_builder"

# What the network was trained for.
_MOST_ROWS, _MOST_COLUMNS = 1000, 100
_ROWS_AT_ONCE = 4000  # the result is the same row by row; this bounds the memory of attention


class TabPFN(Classifier):
    """TabPFN v1 on labelled rows: at most 1,000, of more a sample by class.

    Of more than 100 columns the first 100 principal components are taken, of the standardised
    training rows, labelled or not: its own way is 100 columns at random.

    Parameters
    ----------
    options
        What its classifier is called with.
    random_state
        Seed of the sample and of its ensemble.
    """

    peer = "tabpfn.TabPFNClassifier"
    unlabelled = "drop"
    standardise = False  # it scales columns itself

    def __init__(self, options: Mapping[str, Any] | None = None, random_state: int | None = None):
        self.options = options
        self.random_state = random_state

    def missing(self) -> str | None:
        """Why its code or its weights cannot be had, and how to get them; None if they can."""
        try:
            _prediction()
        except ImportError as error:
            return f"{error}. To install it: {_INSTALL}"
        given = os.environ.get(ARCHIVE_VARIABLE, "")
        if not Path(given).is_file():
            return f"{ARCHIVE_VARIABLE} names no file: {given!r}. To install it: {_INSTALL}"
        return None

    def _fitted(self, X: np.ndarray, codes: np.ndarray) -> Any:
        self.components_ = None
        if X.shape[1] > _MOST_COLUMNS:
            pca = PCA(min(_MOST_COLUMNS, len(X)), random_state=self.random_state)
            self.components_ = make_pipeline(StandardScaler(), pca).fit(X)
        return super()._fitted(self._reduced(X), codes)

    def _trained(self, X: np.ndarray, target: np.ndarray) -> Any:
        kept = sample_by_class(target, _MOST_ROWS, np.random.default_rng(self.random_state))
        return super()._trained(X[kept], target[kept])

    def _anomaly_scores(self, X: np.ndarray) -> np.ndarray:
        X = self._reduced(X)
        parts = [X[i : i + _ROWS_AT_ONCE] for i in range(0, len(X), _ROWS_AT_ONCE)]
        return np.concatenate([self.model_.predict_proba(part)[:, 1] for part in parts])

    def _reduced(self, X: np.ndarray) -> np.ndarray:
        return X if self.components_ is None else self.components_.transform(X)

    def _new_peer(self) -> Any:
        kind = _prediction().TabPFNClassifier
        # It looks here before it would read, or download, a file by itself.
        kind.models_in_memory["|cpu"] = _network(os.environ[ARCHIVE_VARIABLE])
        return kind(device="cpu", seed=self.random_state, **(self.options or {}))


def sample_by_class(target: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    """Places of at most `most` rows, each class with its share and at least one row.

    >>> target = np.array([0] * 90 + [1] * 10)
    >>> kept = sample_by_class(target, 20, np.random.default_rng(0))
    >>> np.bincount(target[kept])
    array([18,  2])
    """
    if len(target) <= most:
        return np.arange(len(target))
    parts = []
    for value in np.unique(target):
        places = np.flatnonzero(target == value)
        count = max(1, round(most * len(places) / len(target)))
        parts.append(rng.choice(places, count, replace=False))
    return np.sort(np.concatenate(parts))


def read_weights(archive: Path) -> Any:
    """The weights and the settings of the network, from the archive of tabpfn 0.1."""
    import torch

    with tarfile.open(archive) as opened:
        member = opened.extractfile(_MEMBER)
        assert member is not None, "a folder"
        data = member.read()
    if hashlib.sha256(data).hexdigest() != _SHA256:
        raise InputError(f"{archive.name} holds other weights than tabpfn 0.1. {_INSTALL}.")
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


@functools.cache
def _network(archive: str) -> tuple[Any, ...]:
    """What its classifier keeps of a network that it has read."""
    import torch

    weights = read_weights(Path(archive))
    with patch.object(torch, "load", lambda *args, **options: weights):
        network, settings = import_module(_BUILDER).load_model_only_inference("", "", "cpu")
    return network, settings, None


@functools.cache
def _prediction() -> Any:
    """Its module of 2023, made to run with today's torch and scikit-learn."""
    import torch.nn.modules.transformer as layers

    with patch.object(layers, "Optional", typing.Optional, create=True):
        module: Any = import_module(_PREDICTION)
    module.check_X_y = _with_new_word(module.check_X_y)
    module.check_array = _with_new_word(module.check_array)
    # Without gradients there is nothing to recompute, and torch wants a word that it does not give.
    module.checkpoint = lambda function, *args: function(*args)
    return module


def _with_new_word(check: Callable[..., Any]) -> Callable[..., Any]:
    """A check of scikit-learn's, called with the word that it had before version 1.6."""

    def renamed(*args: Any, force_all_finite: bool, **options: Any) -> Any:
        return check(*args, ensure_all_finite=force_all_finite, **options)

    return renamed
