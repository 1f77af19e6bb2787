r"""Columns of pictures, as numbers learned without a label.

A network looks at each picture (`riskad.tables.backbones`). *Global* features are of its pooled
vector, divided by its length: the distance within which 5 % of the training pictures lie, and
components along leading principal directions. Where all pictures show the same, a surface or a
part (their mean cosine is above 2/3), these are eight: few labels choose better among few columns.
Where pictures show different things, they are twelve, and 32 more that were turned at random,
V' = V R. Detectors divide each column by its spread, which makes the twelfth as large as the
first; columns that were turned spread about equally (results/images).

*Local* features compare each place of a picture with a memory of places of other pictures. Places
of some training pictures make a pool. They are whitened,

    x = diag(l + 0.01)^-1/2 V' diag(1 / s) (what the network saw),

with s the standard deviations in the pool and V diag(l) V' the correlations, so that the many
directions in which all pictures vary do not hide the few in which a defect differs. With d_j(x) the
distance to the nearest place of picture j,

    r(x) = the 25 % quantile of d_j(x) over all other pictures j

is large for what fewer than a quarter of the pictures have. Of the pool, the 15 % with the largest
r are left out, since a contaminated pile has anomalies, often alike, and a memory of them would
call the next one normal; what is rare within pictures, but in most of them, stays. The memory is a
core of the rest, chosen greedily: the next place is always the one farthest from those chosen. A
place y of a picture, at the position p, is then as unusual as it is far from the memory without
places of the picture itself, for its position:

    a(y) = (min |y - m| - b_p) / s_p,

with b_p the median of this distance over training pictures, and s_p its 90 % quantile minus the
median, or the mean of that over all positions where it is less; a network sees the edge of any
picture. The numbers of a picture are the largest a, the mean of the largest hundredth, and the
mean. The same picture has the same numbers in training and later. `heat` is a as a map.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from riskad.core.checks import InputError, quoted
from riskad.files.codec import register
from riskad.files.fields import Array, Number, Text
from riskad.tables.backbones import Backbone, find_backbone, state_of
from riskad.tables.cells import Value
from riskad.tables.kinds.base import Column, ColumnProfile, Feature, VectorColumn, Vectors
from riskad.tables.notes import note, pluralize
from riskad.tables.pictures import PictureError

_FEW, _LEADING, _TURNED = 8, 12, 32  # directions
_ALIKE = 2 / 3  # the mean cosine between pooled vectors, above which pictures show the same
_MOST_LEARNED = 5_000  # pictures of which directions are learned
_MOST_COMPARED = 500  # pictures
_NEAR = 0.05  # the share of them that is near
_POOL = 10_000  # places
_LEAST_VARIANCE = 0.01  # of a direction in which places differ, beside 1 on average
_POOL_PICTURES = 200
_SHARED = 0.25
_LEFT_OUT = 0.15
_MEMORY = 1_000
_TOP_SHARE = 0.01
_SCALED = 200  # pictures that show which distances are usual
_NAMES = ("most unusual place", "most unusual places", "mean of places", "distance to others")
_KEPT = 100_000  # pictures whose numbers stay in memory

Floats = NDArray[np.float32]


@register
@dataclass(frozen=True, eq=False)
class PictureFeatures(Vectors):
    """Pictures as numbers: components of what a network sees, and how unusual their places are."""

    sha256: Annotated[str, Text(shortest=64, longest=64)]  # of the network
    network: Annotated[str, Text(longest=255)]  # the name of its file
    compared: Annotated[Floats, Array("f", ("pictures", "pooled"), low=-2, high=2)]
    ids: Annotated[NDArray[np.int64], Array("i", ("pictures",))]  # which picture each is
    center: Annotated[Floats, Array("f", ("pooled",))]
    directions: Annotated[Floats, Array("f", ("pooled", "directions"))]
    whitening: Annotated[Floats, Array("f", ("width", "width"))]
    memory: Annotated[Floats, Array("f", ("places", "width"), low=-1e5, high=1e5)]
    owners: Annotated[NDArray[np.int64], Array("i", ("places",))]  # which picture each is from
    ground: Annotated[NDArray[np.float64], Array("f", ("rows", "columns"))]  # b
    spread: Annotated[NDArray[np.float64], Array("f", ("rows", "columns"), low=1e-9)]  # s
    usual: Annotated[float, Number(0)] = 0.0  # what one training place in 10 exceeds
    unusual: Annotated[float, Number(0)] = 1.0  # what one in 200 exceeds

    shape = _NAMES

    @classmethod
    def learn(cls, backbone: Backbone, records: Sequence[Any]) -> PictureFeatures:
        """Learn directions and the memory from records of pictures; always the same."""
        rng = np.random.default_rng(0)
        some = [records[i] for i in rng.permutation(len(records))[:_MOST_LEARNED]]
        units = _unit(np.stack([record["pooled"] for record in some]))
        center = units.mean(axis=0)
        alike = center @ center > _ALIKE
        size = min(_FEW if alike else _TURNED, len(some) - 1, len(center))
        right = cls.leading(units - center, size)
        if not alike:
            turn, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(size, size)))
            right = np.vstack([right[:_LEADING], turn @ right])
        directions = np.ascontiguousarray(right.T, dtype=np.float32)
        ids = np.array([_id(record) for record in some[:_MOST_COMPARED]])
        pool, owners = _some_places(records, rng)
        whitening = _whitening(np.concatenate(pool))
        memory, owners = _learn_memory([places @ whitening for places in pool], owners)
        learned = cls(
            *(backbone.sha256, backbone.name, units[:_MOST_COMPARED], ids, center, directions),
            *(whitening, memory, owners, np.zeros(backbone.grid), np.ones(backbone.grid)),
        )
        shown = rng.permutation(len(records))[:_SCALED]
        heats = np.stack([learned.heat(records[i]) for i in shown])
        ground, high = np.quantile(heats, (0.5, 0.9), axis=0)
        spread = np.maximum(high - ground, max(float((high - ground).mean()), 1e-9))
        usual, unusual = np.quantile((heats - ground) / spread, (0.9, 0.995)).clip(0).tolist()
        return replace(learned, ground=ground, spread=spread, usual=usual, unusual=unusual)

    @property
    def backbone(self) -> Backbone:
        """The network, if the user has named it."""
        network = find_backbone(self.sha256, self.network)
        shapes = network.record["pooled"].shape, network.grid_width, network.grid
        if shapes != (self.center.shape, self.memory.shape[1], self.ground.shape):
            raise InputError(f"The network {self.network!r} does not fit the model's directions.")
        return network

    def features(self, records: Iterable[Any]) -> NDArray[np.float64]:
        # One by one, so that the numbers of a picture do not depend on those beside it.
        rows = [self._numbers_of(record) for record in records]
        return np.array(rows).reshape(-1, len(self.names))

    def _numbers_of(self, record: Any) -> list[float]:
        heat = np.sort(self.heat(record), axis=None)
        highest = heat[-max(3, int(_TOP_SHARE * len(heat))) :]
        unit = _unit(record["pooled"])
        distances = np.linalg.norm(self.compared[self.ids != _id(record)] - unit, axis=1)
        near = np.quantile(distances, _NEAR) if len(distances) else 0.0
        components = (unit - self.center) @ self.directions
        return [heat[-1], highest.mean(), heat.mean(), near, *components]

    def heat(self, record: Any) -> NDArray[np.float64]:
        """Return how unusual each place of a picture is."""
        rows, columns, width = record["places"].shape
        others = self.owners != _id(record)
        if not others.any():
            return np.zeros((rows, columns))
        places = record["places"].reshape(-1, width).astype(np.float64) @ self.whitening
        distance = _nearest(places, self.memory[others].astype(np.float64))
        return (distance.reshape(rows, columns) - self.ground) / self.spread

    def share_unusual(self, record: Any) -> NDArray[np.float64]:
        """Return `heat` on a scale from 0, usual, to 1, which hardly a training place exceeds."""
        scale = max(2 * (self.unusual - self.usual), 1e-9)
        return ((self.heat(record) - self.usual) / scale).clip(0, 1)


def _id(record: Any) -> int:
    """A number for the picture of a record."""
    return int(np.frombuffer(bytes(record["picture"]), dtype="<i8", count=1)[0])


def _unit(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-9), dtype=np.float32)


def _squares(rows: NDArray[Any], others: NDArray[Any]) -> Any:
    """The squares of the distances between rows of two matrices, but for rounding."""
    return (rows**2).sum(axis=1)[:, None] - 2 * rows @ others.T + (others**2).sum(axis=1)


def _nearest(rows: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.sqrt(_squares(rows, others).min(axis=1).clip(0)))


def _some_places(records: Sequence[Any], rng: np.random.Generator) -> tuple[list[Floats], Any]:
    """As many places of each of some pictures, and the picture of each place."""
    chosen = [records[i] for i in rng.permutation(len(records))[:_POOL_PICTURES]]
    n_places = -(-_POOL // len(chosen))
    pool = []
    for record in chosen:
        places = record["places"].reshape(-1, record["places"].shape[-1])
        pool.append(places[rng.permutation(len(places))[:n_places]].astype(np.float32))
    return pool, np.repeat([_id(record) for record in chosen], len(pool[0]))


def _whitening(places: Floats) -> Floats:
    """The matrix by which places spread equally in all directions, or less in the least ones."""
    deviations = places.std(axis=0, dtype=np.float64)
    scale = np.divide(1, deviations, out=np.zeros_like(deviations), where=deviations > 1e-6)
    correlations = np.atleast_2d(np.cov(places.T)) * scale * scale[:, None]
    variances, directions = np.linalg.eigh(correlations)
    whitened = scale[:, None] * directions / np.sqrt(variances.clip(0) + _LEAST_VARIANCE)
    return np.asarray(whitened / np.sqrt(len(scale)), dtype=np.float32)


def _learn_memory(pool: Sequence[Floats], owners: Any) -> tuple[Floats, NDArray[np.int64]]:
    """The core of the usual places of pictures, and the picture of each."""
    # For each place, the distance within which a quarter of the other pictures have one.
    radii = []
    for i, places in enumerate(pool):
        squares = _squares(places, np.concatenate([*pool[:i], *pool[i + 1 :]]))
        nearest = squares.reshape(len(places), len(pool) - 1, -1).min(axis=2)
        radii.append(np.sqrt(np.quantile(nearest, _SHARED, axis=1).clip(0)))
    radius = np.concatenate(radii)
    usual = radius <= np.quantile(radius, 1 - _LEFT_OUT)
    points, owners = np.concatenate(pool)[usual], owners[usual]
    # Greedy: the distance to the places chosen so far shrinks with each one that is chosen.
    core = [int(np.argmin(radius[usual]))]
    distance = cdist(points[core], points)[0]
    while len(core) < min(_MEMORY, len(points)):
        core.append(int(np.argmax(distance)))
        np.minimum(distance, cdist(points[core[-1:]], points)[0], out=distance)
    return points[core], owners[core]


# Reasons ask for the same pictures thousands of times.
_numbers: WeakKeyDictionary[PictureFeatures, dict[Any, NDArray[np.float64]]] = WeakKeyDictionary()


@dataclass(frozen=True)
class ImageColumn(VectorColumn):
    """Paths of pictures, or pictures: a network that the user trusts looks at each."""

    pictures: PictureFeatures = None  # type: ignore[assignment]

    @classmethod
    def learn(cls, profile: ColumnProfile) -> Column | None:
        """Return the column if the user asked for it: pictures are opened for nobody else."""
        if profile.requested != "image":
            return None
        backbone = find_backbone(profile.written)
        cells = profile.values.drop_nulls().unique(maintain_order=True).to_list()
        if any(not cell.startswith("data:") for cell in cells):
            for _ in backbone.look(cells):  # then all are in the cache, and not in memory
                pass
        seen = dict(backbone.look(cells))
        errors = [record for record in seen.values() if isinstance(record, PictureError)]
        records = [seen[i] for i in sorted(seen) if not isinstance(seen[i], PictureError)]
        if len(records) < 2:
            why = f": {errors[0]}" if errors else ""
            raise InputError(
                f"Column {quoted(profile.name)} has {len(records)} pictures that can be read, and "
                f"it takes two{why}."
            )
        pictures = PictureFeatures.learn(backbone, records)
        return cls(profile.name, "image", pictures=pictures, blanks=profile.sketch.blanks)

    @property
    def requested_kind(self) -> str:
        return f"image:{self.pictures.sha256}"

    def features(self, values: pl.Series) -> list[Feature]:
        kept = _numbers.setdefault(self.pictures, {})
        if len(kept) > _KEPT:
            kept.clear()
        blank = np.full(len(self.pictures.names), np.nan)
        cells = values.to_list()
        states = {cell: state_of(cell) for cell in set(cells) - {None}}
        new = [cell for cell, state in states.items() if state not in kept]
        if new:
            kept |= {states[cell]: row for cell, row in self._look(sorted(new)).items()}
        rows = np.array([blank if cell is None else kept[states[cell]] for cell in cells])
        return self.named(self.pictures, rows.reshape(-1, len(blank)))

    def _look(self, cells: list[str]) -> dict[str, NDArray[np.float64]]:
        """The numbers of pictures; not-a-number for those that cannot be read."""
        seen = list(self.pictures.backbone.look(cells))
        numbers = dict.fromkeys(cells, np.full(len(self.pictures.names), np.nan))
        for error in [record for _, record in seen if isinstance(record, PictureError)]:
            note(f"{error}, and counts as blank")
        read = [(i, record) for i, record in seen if not isinstance(record, PictureError)]
        rows = self.pictures.features(record for _, record in read)
        return numbers | {cells[i]: row for (i, _), row in zip(read, rows, strict=True)}

    def show(self, value: Value) -> Value:
        return "(a picture)" if str(value).startswith("data:") else super().show(value)

    def describe(self) -> str:
        n = pluralize(len(self.pictures.names), "number")
        return f"{n} for each picture, by {self.pictures.network}"
