"""Benchmark sets by name, and labels hidden as in the paper's experiments.

The sets are those of ADBench (Han et al., 2022), in three groups: tables, images as ResNet-18
embeddings, and texts as BERT embeddings. None of them comes with this package, and each keeps
the terms of its own source.

Where a set is read from:

- If the environment variable `RISKAD_DATA` names a folder, from the folder `adbench` in it, under
  ADBench's file name; nothing is ever downloaded then.
- Otherwise it is downloaded once from ADBench's repository into the cache folder of the user.

Where the SHA-256 sum of a file is known, it is checked each time the file is read.
"""

from __future__ import annotations

import difflib
import hashlib
import io
import os
import textwrap
import zipfile
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from riskad._checks import InputError, check_choice, check_in_interval
from riskad.labels import ANOMALY, NORMAL, UNLABELLED, Codes, check_codes, count_labels

__all__ = ["Dataset", "DatasetMissing", "adbench_names", "load_adbench", "mask_labels"]

_FOLDER_VARIABLE = "RISKAD_DATA"
_BASE_URL = "https://github.com/Minqi824/ADBench/raw/main/adbench/datasets"


# --- which sets there are ----------------------------------------------------------------

# In ADBench's order: its files carry the place in this list as a number.
_CLASSICAL = """
    ALOI annthyroid backdoor breastw campaign cardio Cardiotocography celeba census cover donors
    fault fraud glass Hepatitis http InternetAds Ionosphere landsat letter Lymphography magic.gamma
    mammography mnist musk optdigits PageBlocks pendigits Pima satellite satimage-2 shuttle skin
    smtp SpamBase speech Stamps thyroid vertebral vowels Waveform WBC WDBC Wilt wine WPBC yeast
"""
_IMAGES = {
    "CIFAR10": "0 1 2 3 4 5 6 7 8 9",
    "FashionMNIST": "0 1 2 3 4 5 6 7 8 9",
    "SVHN": "0 1 2 3 4 5 6 7 8 9",
    "MNIST-C": """
        brightness canny_edges dotted_line fog glass_blur identity impulse_noise motion_blur rotate
        scale shear shot_noise spatter stripe translate zigzag
    """,
    "MVTec-AD": """
        bottle cable capsule carpet grid hazelnut leather metal_nut pill screw tile toothbrush
        transistor wood zipper
    """,
}
_TEXTS = """
    20news_0 20news_1 20news_2 20news_3 20news_4 20news_5 agnews_0 agnews_1 agnews_2 agnews_3
    amazon imdb yelp
"""

# Of the files without their ending ".npz".
_SHA256 = {
    "5_campaign": "74dd4d0072d6c6f1aabab63bc102f9633454f32bb936fa9bcfbd38f9f2386bcd",
    "6_cardio": "bc5009bde6930b4d298b594f31b34485a9a17210cff0e8fb00a8c3068b885a2d",
    "7_Cardiotocography": "5ae84910430f05923e11b6f537243263977c9136949dabd891e3570aeec51e29",
    "12_fault": "ec27301f9a4cf7c5d8b22c360cf37ddb043b7fb062465723dfd8b34e2771e5dd",
    "17_InternetAds": "bdd8ad5cf5bf2cb96cba53dde30d522d0f6a279083a8e2bc7efbac5981b04385",
    "19_landsat": "ba17e2158c07469597b89db49d3982c874c6b713ff6670721ddc88969da77987",
    "22_magic.gamma": "0be375984d7af9ea7a63b12206c240840d8b7daa3607021c5fb8756407dd86f1",
    "23_mammography": "a0308ac9712d78321073b1c2dc98dc37665c0f35c1cc33019416fe8f8d7de7ea",
    "24_mnist": "be7706272325fdd3592c1be555ae1a82f916a2f8545f4f8cbaa548ab102cc44c",
    "26_optdigits": "60de17a375a278ba220a7849727d998aa02b5e2f9fd17732a004bba28de4656e",
    "28_pendigits": "c4936b89dcdad59d303020e492f763a0f54170080d787c77497609acbb9c2d79",
    "30_satellite": "1f048f5686f1b8c16a227fdfa3c81a62cd9a92715714a6b24c69b1c5ad96b46e",
    "31_satimage-2": "1b056e357f801b8b20c3f380a30224a3c4088d7ed764ec5a24828dc9b1918d6f",
    "35_SpamBase": "d0c46c7928e43f6496bcd06e09de0b70f6bc8143792dfa0a43f450263d254e9b",
    "37_Stamps": "99fe739447284f613fa54bf2dccdb51c5120175ce6260adec6dad77576c42509",
    "38_thyroid": "8de161b3f235b7647bb0b39a836d983ff61d67bf234edac461da2d71e889cb87",
    "39_vertebral": "0816286f92b96fe6867664a41a031ac7228dcfbf1a5feefe50ca3883b2e9073d",
    "40_vowels": "4bfc4244d1c882773bbbc50d4a5db5e52276e53506e46b2d45e02d074cfcb1b6",
    "41_Waveform": "6c9d867337ad1a2f8372c1d27f4c032f0401237e2041b7c45f00de8d319ff30f",
    "CIFAR10_0": "f0e89be5576c37e5c2f7393f7a478d8ec0cc348559fc177c273ff076ef10db00",
    "SVHN_0": "3526704c19ae4c62337a37f1f9294e3ec065d9f7a8e21f9e7c881b5acab13579",
    "20news_3": "b5a1d572cac7c81ebc3cf485649c45b7580cb326edf07a1681679984d016831d",
}


class _Source(NamedTuple):
    """Where a set lies: its canonical name, its group and its file without ".npz"."""

    name: str
    group: str
    file: str

    @property
    def url(self) -> str:
        return f"{_BASE_URL}/{self.group}/{self.file}.npz"


_SOURCES = [
    *(_Source(name, "Classical", f"{i}_{name}") for i, name in enumerate(_CLASSICAL.split(), 1)),
    *(
        _Source(f"{family}_{member}", "CV_by_ResNet18", f"{family}_{member}")
        for family, members in _IMAGES.items()
        for member in members.split()
    ),
    *(_Source(name, "NLP_by_BERT", name) for name in _TEXTS.split()),
]
_GROUPS = tuple(dict.fromkeys(source.group for source in _SOURCES))
_BY_NAME = {source.file: source for source in _SOURCES} | {
    source.name: source for source in _SOURCES
}


def adbench_names(group: str | None = None) -> list[str]:
    """Return the names of ADBench's sets, in its order; of one group if `group` is given.

    The groups are "Classical" (47 tables), "CV_by_ResNet18" (61 sets of images) and
    "NLP_by_BERT" (13 sets of texts).

    >>> len(adbench_names()), adbench_names("NLP_by_BERT")[-3:]
    (121, ['amazon', 'imdb', 'yelp'])
    """
    if group is not None:
        check_choice("group", group, _GROUPS)
    return [source.name for source in _SOURCES if group in (None, source.group)]


def _find(name: object) -> _Source:
    """Return the set of this name, with or without its number, or guess what was meant."""
    if isinstance(name, str) and name in _BY_NAME:
        return _BY_NAME[name]
    by_lower = {known.lower(): known for known in _BY_NAME}
    close = difflib.get_close_matches(str(name).lower(), by_lower, n=1)
    hint = f" Did you mean {by_lower[close[0]]!r}?" if close else ""
    raise InputError(
        f"name={name!r} is not a dataset of ADBench.{hint} "
        f"riskad.datasets.adbench_names() lists all {len(_SOURCES)}."
    )


# --- loading -----------------------------------------------------------------------------


class DatasetMissing(InputError):
    """A known set whose file is not at hand; a benchmark can list it as not run and go on.

    `reason` says why without naming a folder of this machine, for records that others read.
    """

    def __init__(self, message: str, reason: str):
        super().__init__(message)
        self.reason = reason


class _Damage(Exception):
    """What is wrong with a file, in a few words."""


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A benchmark set: its rows, and the truth about every one of them.

    Attributes
    ----------
    name : str
        The canonical name, without a number.
    X : float64 array of shape (n_rows, n_features)
        C-contiguous; as published, not scaled.
    y : int8 array of shape (n_rows,)
        +1 normal, -1 anomaly. To learn from it, split it first and hide most of the training
        part with `mask_labels`.

    Examples
    --------
    >>> print(Dataset("tiny", np.eye(4), np.array([1, 1, 1, -1], dtype=np.int8)))
    tiny: 4 rows, 4 features, 1 anomaly (25%)
    """

    name: str
    X: NDArray[np.float64]
    y: Codes

    @property
    def anomaly_rate(self) -> float:
        """The share of anomalies among all rows."""
        return float(np.mean(self.y == ANOMALY))

    def __str__(self) -> str:
        n_rows, n_features = self.X.shape
        n_anomalies = int(np.count_nonzero(self.y == ANOMALY))
        features = "feature" if n_features == 1 else "features"
        anomalies = "anomaly" if n_anomalies == 1 else "anomalies"
        return (
            f"{self.name}: {n_rows:,} rows, {n_features:,} {features}, "
            f"{n_anomalies:,} {anomalies} ({100 * self.anomaly_rate:.3g}%)"
        )

    def __repr__(self) -> str:
        return f"<Dataset {self}>"


def load_adbench(name: str) -> Dataset:
    """Load a dataset of ADBench.

    Parameters
    ----------
    name
        ADBench's file name with or without its number: "pendigits" or "28_pendigits",
        "CIFAR10_1", "imdb". Case matters. `adbench_names` lists all.

    Returns
    -------
    Dataset with the rows and the truth, its anomalies as -1.

    Raises
    ------
    DatasetMissing
        If the file is neither in the folder that `RISKAD_DATA` names nor, without this
        variable, to be had from ADBench's repository.
    InputError
        If there is no such set, if its file is damaged, or if it must be downloaded and pooch is
        not installed.

    Examples
    --------
    >>> load_adbench("pendigits")  # doctest: +SKIP
    <Dataset pendigits: 6,870 rows, 16 features, 156 anomalies (2.27%)>
    >>> load_adbench("Pendigits")
    Traceback (most recent call last):
        ...
    riskad._checks.InputError: name='Pendigits' is not a dataset of ADBench. Did you mean \
'pendigits'? riskad.datasets.adbench_names() lists all 121.
    """
    source = _find(name)
    folder = os.environ.get(_FOLDER_VARIABLE)
    path, content = _read_local(source, folder) if folder else _read_cached(source)
    try:
        _check_sum(source, content)
        X, y = _parse(content)
    except _Damage as damage:
        raise InputError(
            f"The file {str(path)!r} of {source.name!r} is damaged ({damage}): "
            f"delete it and fetch it again from {source.url}."
        ) from None
    return Dataset(source.name, X, y)


def _read_local(source: _Source, folder: str) -> tuple[Path, bytes]:
    """Return the place and the bytes of a file in the user's own data folder."""
    path = Path(folder).absolute() / "adbench" / f"{source.file}.npz"
    try:
        return path, path.read_bytes()
    except OSError as error:
        raise DatasetMissing(
            f"The dataset {source.name!r} is missing: {str(path)!r} cannot be read "
            f"({error.strerror or error}). {_FOLDER_VARIABLE} is set, so nothing is downloaded. "
            f"Put the file there, from {source.url}, or unset {_FOLDER_VARIABLE}.",
            f"{source.file}.npz is not in the folder that {_FOLDER_VARIABLE} names",
        ) from None


def _read_cached(source: _Source) -> tuple[Path, bytes]:
    """Return the place and the bytes of a file in the cache, downloaded there if need be."""
    pooch = _import_pooch(source)
    checksum = _SHA256.get(source.file)
    try:
        path = Path(
            pooch.retrieve(
                source.url,
                known_hash=checksum and f"sha256:{checksum}",
                fname=f"{source.file}.npz",
                path=pooch.os_cache("riskad") / "adbench",
            )
        )
        return path, path.read_bytes()
    except OSError as error:  # the errors of requests, too, are OSErrors
        if (response := getattr(error, "response", None)) is not None:
            response.close()  # an answer such as 404, which pooch leaves open
        raise DatasetMissing(
            f"The dataset {source.name!r} is missing: {source.url} could not be fetched "
            f"({_in_one_line(error)}). Check the connection; or put the file into the folder "
            f"adbench of a folder of yours, and that folder's path into {_FOLDER_VARIABLE}.",
            f"{source.url} could not be fetched",
        ) from None
    except ValueError as error:  # pooch's word for a wrong checksum
        raise InputError(
            f"The download of {source.name!r} from {source.url} is damaged and was not kept "
            f"({_in_one_line(error)}). Fetch it again later."
        ) from None


def _import_pooch(source: _Source) -> Any:
    """Return the module pooch, which is optional, or say how to do with or without it."""
    try:
        return import_module("pooch")
    except ImportError:
        raise InputError(
            f"Downloading {source.name!r} needs pooch: pip install 'riskad[bench]'; or set the "
            f"environment variable {_FOLDER_VARIABLE} to a folder with adbench/{source.file}.npz."
        ) from None


def _in_one_line(error: Exception) -> str:
    r"""Say what an error says, shortly.

    >>> _in_one_line(OSError("no route\nto host"))
    'OSError: no route to host'
    """
    return textwrap.shorten(f"{type(error).__name__}: {error}", 300, placeholder=" ...")


def _check_sum(source: _Source, content: bytes) -> None:
    """Fail if the SHA-256 sum of the file is known and is another one."""
    expected = _SHA256.get(source.file)
    if expected and hashlib.sha256(content).hexdigest() != expected:
        raise _Damage("its SHA-256 sum is not that of the published file")


def _parse(content: bytes) -> tuple[NDArray[np.float64], Codes]:
    """Return the rows and the truth that an .npz file of ADBench holds."""
    X, y = _unpack(content)
    y = y.ravel()
    if X.ndim != 2 or X.size == 0 or X.dtype.kind not in "biuf" or y.dtype.kind not in "biuf":
        raise _Damage("X must be a table of numbers and y a column of numbers")
    if len(X) != len(y):
        raise _Damage(f"X has {len(X):,} rows and y {len(y):,}")
    if not np.isin(y, (0, 1)).all():
        raise _Damage("y holds other labels than 0 and 1")
    if not np.isfinite(X).all():
        raise _Damage("X holds numbers that are not finite")
    truth = np.where(y == 1, ANOMALY, NORMAL).astype(np.int8)
    return np.ascontiguousarray(X, dtype=np.float64), truth


def _unpack(content: bytes) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the arrays X and y of an .npz file, which is never unpickled."""
    if not zipfile.is_zipfile(io.BytesIO(content)):
        raise _Damage("it is not an .npz archive")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return np.asarray(archive["X"]), np.asarray(archive["y"])
    except MemoryError:
        raise  # the set is large, not damaged
    except KeyError:
        raise _Damage("it does not hold the two arrays X and y") from None
    except Exception as error:  # of zipfile, of its decompressors, of NumPy
        raise _Damage(_in_one_line(error)) from None


# --- hiding labels -----------------------------------------------------------------------


def mask_labels(
    truth: Any,
    fraction: float = 0.05,
    *,
    random_state: int | np.random.Generator | None = None,
) -> Codes:
    """Keep the labels of a few random rows and hide all others, as the paper's experiments do.

    k = round(fraction n) of the n rows are chosen uniformly at random, and chosen anew until an
    anomaly is among them. Here a normal row must be among them, too: without one the labelled
    part says nothing of normal rows, and risks that use it are not defined. At the paper's rates
    a draw without a normal row hardly ever occurs.

    Choosing anew would take long where anomalies are rare, so the last choice is drawn at once.
    Among k rows chosen uniformly from n_p normal rows and n_n anomalies, the number A of anomalies
    is hypergeometric,

        P(A = j) proportional to C(n_n, j) C(n_p, k - j),

    and given A the anomalies are uniform among the anomalies and the normal rows uniform among the
    normal rows. Choosing anew until 1 <= A <= k - 1 conditions on this event, which depends on A
    alone: it restricts A to these values in the same proportions, and leaves the rows given A as
    they are. So A is drawn from the restricted distribution, then A anomalies and k - A normal
    rows.

    Parameters
    ----------
    truth
        +1 normal or -1 anomaly for each training row, both present. Test rows are no part of it.
    fraction
        The share of rows to label, strictly between 0 and 1, at least two rows of them.
    random_state
        A seed or a generator; the same seed gives the same labels. None draws new ones each time.

    Returns
    -------
    int8 array: the truth of the chosen rows, 0 (unlabelled) for all others.

    Examples
    --------
    >>> truth = [1] * 97 + [-1] * 3
    >>> y = mask_labels(truth, 0.05, random_state=0)
    >>> count_labels(y)
    LabelCounts(normal=4, anomaly=1, unlabelled=95)
    >>> mask_labels([1, 1, -1], 0.05)
    Traceback (most recent call last):
        ...
    riskad._checks.InputError: fraction=0.05 of 3 rows labels 0 of them, but two are needed, one \
of each kind. Give at least fraction=0.67.
    """
    codes = _check_truth(truth)
    fraction = check_in_interval("fraction", fraction, 0, 1)
    k = _check_count(fraction, len(codes))
    rng = _generator(random_state)
    normal, anomalous = np.flatnonzero(codes == NORMAL), np.flatnonzero(codes == ANOMALY)
    counts, probabilities = _anomaly_counts(len(normal), len(anomalous), k)
    a = int(rng.choice(counts, p=probabilities))
    masked = np.full(len(codes), UNLABELLED, dtype=np.int8)
    masked[rng.choice(anomalous, a, replace=False)] = ANOMALY
    masked[rng.choice(normal, k - a, replace=False)] = NORMAL
    return masked


def _check_truth(truth: Any) -> Codes:
    """Return `truth` as codes if each row is normal or an anomaly and both kinds occur."""
    try:
        codes = check_codes(truth)
    except InputError as error:
        raise InputError(f"The truth cannot be used as it is: {error}") from None
    seen = count_labels(codes)
    if seen.unlabelled:
        raise InputError(
            "truth must be +1 (normal) or -1 (anomaly) for every row, got 0 for "
            f"{seen.unlabelled:,} of {len(codes):,} rows. If 0 means normal and 1 anomaly: "
            "riskad.labels.from_pyod(truth); if 0 means unlabelled, leave these rows out."
        )
    if not seen.normal or not seen.anomaly:
        raise InputError(
            "truth must hold rows of both kinds, since one of each is labelled at least; got "
            f"{seen.normal:,} normal and {seen.anomaly:,} anomalies. If they are there in the "
            "whole set, split it with stratify=truth."
        )
    return codes


def _check_count(fraction: float, n: int) -> int:
    """Return the number of rows to label if it leaves room for one of each kind."""
    k = round(fraction * n)
    if k < 2:
        raise InputError(
            f"fraction={fraction:g} of {n:,} rows labels {k} of them, but two are needed, one of "
            f"each kind. Give at least fraction={min(2 / n, 0.99):.2g}."
        )
    return k


def _generator(random_state: Any) -> np.random.Generator:
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError):
        raise InputError(
            "random_state must be None, a whole number from 0 on or a numpy.random.Generator, "
            f"got {random_state!r}."
        ) from None


def _anomaly_counts(n_p: int, n_n: int, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return how many of k rows can be anomalies, a normal row left, and how likely each number is.

    >>> counts, probabilities = _anomaly_counts(n_p=3, n_n=2, k=3)
    >>> counts.tolist(), probabilities.round(3).tolist()  # C(2, 1) C(3, 2) to C(2, 2) C(3, 1)
    ([1, 2], [0.667, 0.333])
    """
    counts = np.arange(max(1, k - n_p), min(k - 1, n_n) + 1)
    logs = _log_binomial(n_n, counts) + _log_binomial(n_p, k - counts)
    weights = np.exp(logs - logs.max())
    return counts, weights / weights.sum()


def _log_binomial(n: int, k: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return ln C(n, k), which overflows long after C(n, k) does."""
    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
