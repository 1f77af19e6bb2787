"""What a person does with pictures: fit on a folder, and see where a picture is unusual."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from riskad.app.spec import FitSpec
from riskad.core.checks import InputError
from riskad.files.atomic import atomic_path
from riskad.tables.backbones import report_to, trust_backbone
from riskad.tables.kinds.images import ImageColumn
from riskad.tables.pictures import (
    LABEL,
    PICTURE,
    PictureError,
    decode_picture,
    encode_picture,
    is_picture_folder,
    picture_bytes,
    picture_columns,
    read_pictures,
)
from riskad.tables.preparation import TablePreparer

_THUMBNAIL = 192  # pixels of the longer side
_STRONGEST = 0.65  # of the colour over the picture
_MOST_MAPS = 1_000


def open_pictures(
    table: Any, spec: FitSpec, progress: Callable[[str], object]
) -> tuple[Any, FitSpec]:
    """Return a folder of pictures as a table, and columns of pictures as such in the specification.

    In a table, columns are looked for if a network is named. Folders label their pictures.
    """
    if isinstance(table, (str, os.PathLike)) and is_picture_folder(table):
        table = read_pictures(table)
    if not isinstance(table, pl.DataFrame):
        return table, spec
    of_folder = PICTURE in table.columns and PICTURE in picture_columns(table.select(PICTURE))
    if of_folder and spec.label is None and LABEL in table.columns:
        spec = replace(spec, label=LABEL)
    if spec.backbone is None:
        if of_folder and PICTURE not in spec.kinds and PICTURE not in spec.drop:
            spec = replace(spec, kinds={**spec.kinds, PICTURE: "image"})
        report_to(progress)
        return table, spec
    left_out = {spec.label, spec.id, *spec.drop, *spec.kinds}
    kind = f"image:{trust_backbone(spec.backbone).sha256}"
    named = {name: kind for name, each in spec.kinds.items() if each == "image"}
    others = {name: kind for name in picture_columns(table) if name not in left_out}
    kinds = spec.kinds | named | others
    if kind not in kinds.values():
        raise InputError(
            f"backbone={str(spec.backbone)!r} looks at pictures, and no column holds any: paths of "
            ".jpg, .png or .tif. Say which it is: kinds={'COLUMN': 'image'}."
        )
    report_to(progress)
    return table, replace(spec, kinds=kinds)


def refuse_broken(notes: Sequence[Warning], spec: FitSpec) -> None:
    """Refuse a fit on pictures that cannot be read, if that was asked for."""
    broken = [str(note) for note in notes if str(note).endswith("counts as blank")]
    if broken and spec.broken_pictures == "refuse":
        n = f"\nand {len(broken) - 20:,} more" if len(broken) > 20 else ""
        sentences = "\n".join(line.removesuffix(", and counts as blank") for line in broken[:20])
        raise InputError(
            f"Pictures that cannot be read are refused (broken_pictures='refuse'):\n{sentences}{n}"
        )


# --- maps -----------------------------------------------------------------------------------------


def picture_maps(
    preparer: TablePreparer, rows: pl.DataFrame, longest: int = _THUMBNAIL
) -> list[dict[str, str]]:
    """For each row its first picture, small, and the same with a map of what is unusual in it.

    Both are data URIs; a row without a picture that can be read has none. From yellow to red is
    what lies above the usual range of places of training pictures, on one scale for all pictures.
    """
    columns = [column for column in preparer.used() if isinstance(column, ImageColumn)]
    maps: list[dict[str, str]] = []
    for row in rows.iter_rows(named=True) if columns else []:
        maps.append({})
        for column in columns:
            if drawn := _draw(column, row.get(column.name), longest):
                small, over = (encode_picture(each, "JPEG") for each in drawn)
                maps[-1] = {"picture": small, "map": over}
                break
    return maps


def write_maps(
    preparer: TablePreparer, rows: pl.DataFrame, numbers: Sequence[int], folder: Path
) -> None:
    """Write the map of each picture of these rows into a folder, as large as the picture is."""
    columns = [column for column in preparer.used() if isinstance(column, ImageColumn)]
    if not columns:
        raise InputError("The model has no column of pictures, so there are no maps.")
    folder.mkdir(parents=True, exist_ok=True)
    for number, row in zip(numbers[:_MOST_MAPS], rows.iter_rows(named=True), strict=False):
        for column in columns:
            if (drawn := _draw(column, row.get(column.name), None)) is None:
                continue
            cell = str(row[column.name])
            file = "" if cell.startswith("data:") else f"{Path(cell).stem}-"
            name = re.sub(r"[^\w-]", "_", f"row-{number}-{file}{column.name}")
            with atomic_path(folder / f"{name}.png", force=True) as part:
                drawn[1].save(part, "PNG")


def _draw(column: ImageColumn, cell: Any, longest: int | None) -> tuple[Any, Any] | None:
    """A picture and the same with its map over it; None if it cannot be read."""
    if not isinstance(cell, str):
        return None
    try:
        picture = decode_picture(picture_bytes(cell), cell)
    except PictureError:
        return None
    if longest is not None:
        picture.thumbnail((longest, longest))
    from PIL import Image

    (_, record), *_ = column.pictures.backbone.look([cell])
    grid = Image.fromarray(np.uint8(255 * column.pictures.share_unusual(record)))
    strength = np.asarray(grid.resize(picture.size, 2), dtype=np.float64)[..., None] / 255
    grey = np.asarray(picture.convert("L"), dtype=np.float64)[..., None]
    colour = np.concatenate(
        [np.full_like(strength, 255), 225 * (1 - strength), np.zeros_like(strength)], axis=2
    )
    share = _STRONGEST * np.sqrt(strength)
    return picture, Image.fromarray(np.uint8((1 - share) * grey + share * colour))
