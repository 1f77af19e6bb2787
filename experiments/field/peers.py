"""Methods of other packages with the interface of our detectors, to be compared with.

A peer is named by its dotted path and imported when it is fitted. Rows come with our codes (+1
normal, -1 anomaly, 0 unlabelled), scores are high for normal rows, and the seed is passed on to
whatever takes one. Peers that need an environment of their own are in `environments.py`.
"""

from __future__ import annotations

import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module, metadata
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier
from threadpoolctl import threadpool_limits

from experiments.runner import Skipped
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, check_codes

# DeepOD asks for a torch of 2022, but runs with today's.
_INSTALL = {"deepod": "pip install tqdm && pip install --no-deps deepod==0.4.1"}
_INSTALL_OTHERS = "pip install -r experiments/requirements.txt"
_SEED_NAME = {"flaml": "seed"}  # all others call it random_state


class Peer(BaseEstimator, ABC):
    """What adapters share: the peer's class, its options, and columns brought to one scale.

    Columns are scaled by all training rows, labelled or not.
    """

    peer: str
    standardise: bool
    options: Mapping[str, Any] | None
    random_state: int | None

    def missing(self) -> str | None:
        """Why the peer cannot be imported and how to install it; None if it can."""
        try:
            self._peer_class()
        except ImportError as error:
            package = self.peer.partition(".")[0]
            return f"{error}. To install it: {_INSTALL.get(package, _INSTALL_OTHERS)}"
        return None

    def version(self) -> str:
        """The peer's package and its version."""
        package = self.peer.partition(".")[0]
        try:
            number = metadata.version(package)
        except metadata.PackageNotFoundError:  # installed under another name, as scikit-learn is
            number = getattr(import_module(package), "__version__", "of unknown version")
        return f"{package} {number}"

    def fit(self, X: Any, y: Any) -> Peer:
        """Fit the peer to rows and their codes."""
        X, codes = np.asarray(X, dtype=np.float64), check_codes(y)
        self.scaler_ = StandardScaler().fit(X) if self.standardise else None
        self.model_ = self._fitted(self._scaled(X), codes)
        return self

    def score_samples(self, X: Any) -> np.ndarray:
        """Scores, high for normal rows."""
        return -self._anomaly_scores(self._scaled(np.asarray(X, dtype=np.float64)))

    @abstractmethod
    def _fitted(self, X: np.ndarray, codes: np.ndarray) -> Any:
        """The fitted peer."""

    @abstractmethod
    def _anomaly_scores(self, X: np.ndarray) -> np.ndarray:
        """Scores of rows, high for anomalies."""

    def _scaled(self, X: np.ndarray) -> np.ndarray:
        return X if self.scaler_ is None else self.scaler_.transform(X)

    def _peer_class(self) -> Any:
        module, _, name = self.peer.rpartition(".")
        return getattr(import_module(module), name)

    def _new_peer(self) -> Any:
        """The unfitted peer with its options, and a device and the seed if it takes them."""
        kind, options = self._peer_class(), dict(self.options or {})
        parameters = inspect.signature(kind).parameters.values()
        if any(p.name == "device" for p in parameters):
            torch = sys.modules.get("torch")
            has_gpu = torch is not None and torch.cuda.is_available()
            options.setdefault("device", "cuda" if has_gpu else "cpu")
        seed = _SEED_NAME.get(self.peer.partition(".")[0], "random_state")
        if any(p.name == seed or p.kind is p.VAR_KEYWORD for p in parameters):
            options.setdefault(seed, self.random_state)
        return kind(**options)


class Classifier(Peer):
    """A classifier of normal rows and anomalies, such as scikit-learn's, LightGBM's and CatBoost's.

    Unlabelled rows are left out ("drop"), taken as normal ("normal"), or labelled where the
    classifier is sure, again and again ("self-training"). `options` are arguments of its class.
    """

    def __init__(
        self,
        peer: str,
        unlabelled: str = "drop",
        standardise: bool = False,
        options: Mapping[str, Any] | None = None,
        random_state: int | None = None,
    ):
        self.peer = peer
        self.unlabelled = unlabelled
        self.standardise = standardise
        self.options = options
        self.random_state = random_state

    def _fitted(self, X: np.ndarray, codes: np.ndarray) -> Any:
        target = np.where(codes == ANOMALY, 1, 0)
        if self.unlabelled == "normal":
            return self._trained(X, target)
        if not (codes == NORMAL).any():
            raise Skipped("a classifier needs labelled normal rows, and there are none.")
        if self.unlabelled == "self-training":
            target[codes == UNLABELLED] = -1  # scikit-learn's code for unlabelled
            return SelfTrainingClassifier(self._new_peer()).fit(X, target)
        labelled = codes != UNLABELLED
        return self._trained(X[labelled], target[labelled])

    def _trained(self, X: np.ndarray, target: np.ndarray) -> Any:
        model = self._new_peer()
        model.fit(X, target)  # FLAML's returns nothing
        return model

    def _anomaly_scores(self, X: np.ndarray) -> np.ndarray:
        # Probabilities of a linear model round to 0 or 1 far from the boundary, and ranks are lost.
        if hasattr(self.model_, "decision_function"):
            return self.model_.decision_function(X)
        return self.model_.predict_proba(X)[:, 1]


class Scorer(Peer):
    """A detector whose labels are 1 for known anomalies and 0 for all others: PyOD's and DeepOD's.

    It has no label for rows known to be normal: they count as the unlabelled rows do. Of more than
    `most_rows` rows, those that are not known anomalies are sampled.
    """

    def __init__(
        self,
        peer: str,
        standardise: bool = False,
        most_rows: int | None = None,
        options: Mapping[str, Any] | None = None,
        random_state: int | None = None,
    ):
        self.peer = peer
        self.standardise = standardise
        self.most_rows = most_rows
        self.options = options
        self.random_state = random_state

    def _fitted(self, X: np.ndarray, codes: np.ndarray) -> Any:
        target = (codes == ANOMALY).astype(np.int64)
        if self.most_rows is not None and len(X) > self.most_rows:
            order = np.random.default_rng(self.random_state).permutation(len(X))
            kept = order[np.argsort(-target[order], kind="stable")][: self.most_rows]
            X, target = X[kept], target[kept]
        if target.sum() == 1:  # some draw pairs of anomalies: they meet the only one twice
            X, target = np.vstack([X, X[target == 1]]), np.append(target, 1)
        model = self._new_peer()
        with threadpool_limits(1):
            return model.fit(X, target)

    def _anomaly_scores(self, X: np.ndarray) -> np.ndarray:
        with threadpool_limits(1):
            return self.model_.decision_function(X)
