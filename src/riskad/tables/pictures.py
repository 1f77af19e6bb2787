"""Pictures in files: a folder of them as a table, and what a damaged or hostile file is.

A cell of a column of pictures is the path of a file, or the picture itself, as a data URI. JPEG,
PNG and TIFF are read, of any size and depth, grey or in colour, turned as their EXIF says. What
cannot be read is a `PictureError` that says why in a sentence.
"""

from __future__ import annotations

import base64
import binascii
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.core.checks import InputError, enumerate_names, is_unicode, required
from riskad.tables.cells import check_columns

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["read_pictures"]

ENDINGS = (".jpg", ".jpeg", ".png", ".tif", ".tiff")
KIND_FOLDERS = ("normal", "anomaly", "unlabelled")
PICTURE, LABEL = "picture", "label"
"""The columns of a folder."""

_FORMATS = ("JPEG", "PNG", "TIFF")  # the decoders that bytes from anywhere may reach
_URI = "data:image/"
_MOST_BYTES = 1 << 28
_MOST_PIXELS = 89_478_485  # a file of a few bytes may claim any number; Pillow's own limit
_MOST_PICTURES = 1_000_000
_MOSTLY = 0.9


class PictureError(InputError):
    """A picture that cannot be read: which one, and why."""


# --- a folder as a table --------------------------------------------------------------------------


def read_pictures(pictures: Any, labels: Sequence[str | None] | None = None) -> pl.DataFrame:
    """Return pictures as a table for `fit_table`, `score_table` and the like.

    Parameters
    ----------
    pictures
        A folder, with pictures in it or in its folders; paths of pictures; or arrays of bytes, of
        shape (n, height, width) or (n, height, width, 3), or a list of such of different sizes.
    labels
        A label for each picture, or None for unlabelled. In a folder, folders named normal, anomaly
        and unlabelled label what is in them.

    Returns
    -------
    polars.DataFrame
        The columns picture, a path or an encoded picture, and, if there are labels, label.

    Examples
    --------
    >>> import numpy as np
    >>> grey = np.zeros((3, 8, 8), dtype=np.uint8)
    >>> read_pictures(grey, ["normal", "anomaly", None])["label"].to_list()
    ['normal', 'anomaly', None]
    """
    if isinstance(pictures, (str, os.PathLike)):
        table = folder_table(Path(pictures))
    else:
        table = _as_table([_as_cell(picture) for picture in pictures])
    if labels is None:
        return table
    if len(labels) != table.height:
        raise InputError(f"There are {table.height:,} pictures and {len(labels):,} labels.")
    blank = {"nan", "NaT", "<NA>"}  # what pandas has in place of None
    words = [None if each is None or str(each) in blank else str(each) for each in labels]
    return table.with_columns(pl.Series(LABEL, words, dtype=pl.String))


def is_picture_folder(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a folder with a picture in it or in its folders, and no Parquet file."""
    if not Path(path).is_dir():
        return False
    names = (name for _, _, files in os.walk(path) for name in files)
    first = next((n for n in names if n.lower().endswith((*ENDINGS, ".parquet", ".pq"))), "")
    return first.lower().endswith(ENDINGS)


def _as_table(cells: Sequence[str | None]) -> pl.DataFrame:
    if (name := next((cell for cell in cells if cell and not is_unicode(cell)), None)) is not None:
        raise InputError(f"The name {name!r} is not UTF-8, and no table can hold it: rename it.")
    return pl.DataFrame({PICTURE: pl.Series(cells, dtype=pl.String)})


def folder_table(folder: Path) -> pl.DataFrame:
    """The pictures below a folder, by name, labelled by folders called normal, anomaly, ..."""
    paths: list[Path] = []
    for file in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        if file.suffix.lower() in ENDINGS and not hidden and not file.is_dir():
            paths.append(file)
            if len(paths) > _MOST_PICTURES:
                raise InputError(
                    f"{str(folder)!r} holds more than {_MOST_PICTURES:,} pictures. Name a folder "
                    "in it, or a table of their paths."
                )
    if not folder.is_dir():
        raise InputError(f"There is no folder {str(folder)!r}.")
    if not paths:
        raise InputError(
            f"There is no picture in {str(folder)!r}: names end in {', '.join(ENDINGS)}."
        )
    paths.sort()
    folders = [map(str.lower, path.relative_to(folder).parts[:-1]) for path in paths]
    labels = [next((name for name in names if name in KIND_FOLDERS), None) for names in folders]
    table = _as_table(list(map(str, paths)))
    if any(labels):
        labels = [None if label == "unlabelled" else label for label in labels]
        table = table.with_columns(pl.Series(LABEL, labels, dtype=pl.String))
    return table


def join_labels(
    pictures: pl.DataFrame, labels: pl.DataFrame, label: str | None = None
) -> tuple[pl.DataFrame, str]:
    """Add to each picture its row of another table, found by the name of its file.

    That table has a column of file names, or of paths that end as those of the pictures do.
    Returns the name of the column of labels, too: the only other one, if no name is given.
    """
    column = next(iter(picture_columns(labels)), None)
    if column is None:
        raise InputError(
            "The table of labels has no column of names of pictures (such as part_17.jpg). Its "
            f"columns are {enumerate_names(labels.columns)}."
        )
    paths = [Path(path).parts for path in pictures[PICTURE]]
    by_name: dict[str, list[int]] = {}
    for row, parts in enumerate(paths):
        by_name.setdefault(parts[-1], []).append(row)
    rows: list[int | None] = [None] * len(paths)
    for place, name in enumerate(labels[column]):
        if name is None:
            continue
        parts = tuple(part for part in Path(name.strip()).parts if part != ".")
        among = by_name.get(parts[-1], []) if parts else []
        matches = [row for row in among if paths[row][-len(parts) :] == parts[-len(paths[row]) :]]
        wrong = ""
        if not matches:
            wrong = "the folder has no picture of that name. Correct the name, or delete the row."
        elif len(matches) > 1:
            path = "/".join(paths[matches[0]][-len(parts) - 1 :])
            wrong = f"several pictures have it. Write the folder, too, as in {path!r}."
        elif rows[matches[0]] is not None:
            wrong = "an earlier row names that picture, too. Delete one of the two rows."
        if wrong:
            raise InputError(f"Row {place + 1:,} of the labels names {name!r}, and {wrong}")
        rows[matches[0]] = place
    others = labels.drop(column)
    if label is None:
        label = LABEL if LABEL in others.columns or others.width != 1 else others.columns[0]
        if label not in others.columns:
            raise InputError(
                f"The table of labels has no column 'label', but, beside {column!r}, "
                f"{enumerate_names(others.columns) or 'none'}. Name the one with labels: label=..."
            )
    check_columns([label], others.columns)
    if taken := set(others.columns) & {PICTURE}:
        raise InputError(
            f"The table of labels has a column {taken.pop()!r} beside {column!r}, which names the "
            "pictures: rename or delete one of them."
        )
    kept = pictures.drop([name for name in pictures.columns if name in others.columns])
    return kept.hstack(others.select(pl.all().gather(pl.Series(rows, dtype=pl.UInt32)))), label


def picture_columns(table: pl.DataFrame) -> list[str]:
    """The columns of a table whose cells are names of pictures, or pictures."""
    names = []
    for column in table.select(pl.col(pl.String)):
        some = column.drop_nulls().head(1_000).str.to_lowercase().str.strip_chars()
        fits = some.str.contains(rf"(^{_URI}|\.(jpe?g|png|tiff?)$)")
        if len(some) and fits.sum() >= _MOSTLY * len(some):
            names.append(column.name)
    return names


# --- one picture ----------------------------------------------------------------------------------


def picture_bytes(cell: str) -> bytes:
    """The bytes of a picture in a file, or in the cell itself."""
    if cell[: len(_URI)].lower() == _URI:
        try:
            return base64.b64decode(cell.partition(",")[2], validate=True)
        except binascii.Error as error:
            raise PictureError("an encoded picture is not base64 after its comma") from error
    shown = repr(cell if len(cell) <= 200 else f"{cell[:197]}...")
    if os.path.exists(cell) and not os.path.isfile(cell):  # a pipe opens when somebody writes
        raise PictureError(f"{shown} is not a file")
    try:
        with open(cell, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        missing = isinstance(error, FileNotFoundError)
        reason = "does not exist" if missing else f"cannot be opened ({type(error).__name__})"
        if "://" in cell:
            reason = "is an address, and only files are read: copy it to this machine"
        raise PictureError(f"{shown} {reason}") from error
    if not content:
        raise PictureError(f"{shown} is empty: it has 0 bytes")
    if len(content) > _MOST_BYTES:
        raise PictureError(f"{shown} has more than {_MOST_BYTES:,} bytes")
    return content


def decode_picture(content: bytes, name: str, size: int | None = None) -> Image:
    """The picture in these bytes, in RGB and upright; at least `size` pixels a side if reduced."""
    pillow, ops = _pillow()
    shown = "an encoded picture" if name.startswith(_URI) else repr(name)
    try:
        with pillow.open(io.BytesIO(content), formats=_FORMATS) as picture:
            width, height = picture.size
            if width * height > _MOST_PIXELS:
                raise pillow.DecompressionBombError
            if size is not None and picture.format == "JPEG":
                picture.draft("RGB", (2 * size, 2 * size))  # decodes no finer than is needed
            picture.load()
            return _to_rgb(ops.exif_transpose(picture), pillow)
    except (pillow.DecompressionBombError, pillow.DecompressionBombWarning) as error:
        raise PictureError(
            f"{shown} is larger than {_MOST_PIXELS:,} pixels, as no photograph is"
        ) from error
    except pillow.UnidentifiedImageError as error:
        raise PictureError(
            f"{shown} is not a JPEG, PNG or TIFF file, whatever its name says"
        ) from error
    except Exception as error:  # decoders raise whatever comes to them
        raise PictureError(f"{shown} is damaged or cut short") from error


def _to_rgb(picture: Any, pillow: Any) -> Image:
    """Bytes of three colours; of deeper pictures the upper bits."""
    if not picture.mode.startswith(("I", "F")):
        return picture.convert("RGB")
    values = np.nan_to_num(np.asarray(picture, dtype=np.float64), posinf=0.0, neginf=0.0)
    if picture.mode.startswith("I"):
        values /= 257.0  # 65,535 is white
    elif values.max(initial=0.0) <= 1:
        values *= 255.0
    return pillow.fromarray(values.clip(0, 255).round().astype(np.uint8)).convert("RGB")


def encode_picture(picture: Image, form: str = "PNG") -> str:
    """A picture as a data URI."""
    buffer = io.BytesIO()
    picture.save(buffer, form, **({"quality": 80} if form == "JPEG" else {}))
    return f"{_URI}{form.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _as_cell(picture: Any) -> str | None:
    if isinstance(picture, np.ndarray):
        return _as_uri(picture)
    if picture is not None and not isinstance(picture, (str, os.PathLike)):
        raise InputError(
            "A picture is the path of a file, or an array of bytes (numpy.asarray(picture)), got "
            f"{type(picture).__name__}."
        )
    return None if picture is None else str(picture)


def _as_uri(pixels: NDArray[Any]) -> str:
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or 0 in pixels.shape:
        raise InputError(
            "A picture is an array of uint8 of shape (height, width) or (height, width, 3), "
            f"got {pixels.dtype} of shape {pixels.shape}. Scale to 0 to 255 first."
        )
    if pixels.ndim == 3 and pixels.shape[2] not in (1, 3):
        raise InputError(
            f"A picture has 1 or 3 colours in its last dimension, got shape {pixels.shape}."
        )
    squeezed = pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    return encode_picture(_pillow()[0].fromarray(np.ascontiguousarray(squeezed)))


def _pillow() -> tuple[Any, Any]:
    with required("Pictures need Pillow: pip install 'riskad[images]'."):
        from PIL import Image, ImageOps
    return Image, ImageOps
