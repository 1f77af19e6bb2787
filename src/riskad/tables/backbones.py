"""Networks that look at pictures: ONNX files of the user's, and what was seen, beside the data.

A backbone is any convolutional network as an ONNX file, `resnet50.onnx` for instance. Its input and
its layers are found in the graph. A picture then becomes

- a pooled vector: the mean over the places of the widest layer of the coarsest resolution with more
  than one place, which knows most of what a picture shows;
- places, on a grid of a resolution two steps finer, of at most 32 places a side: what the layers of
  this resolution and of its two neighbours say there, each averaged over 3 x 3 of its places. Of a
  resolution it is the output of the last residual block, or else the widest layer. A layer of more
  than 64 channels is projected to 64 random directions that depend on nothing but its width.

Networks are known by the SHA-256 of their file. Model files hold this hash and no network.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from riskad.core.checks import InputError, enumerate_names, required
from riskad.files.atomic import check_input_file
from riskad.tables.pictures import PictureError, decode_picture, picture_bytes

__all__ = ["Backbone", "trust_backbone"]

VARIABLE = "RISKAD_BACKBONE"
"""The environment variable that names the file of a trusted network."""
_DIRECTIONS = 64
_SIDE = 224  # of a graph that takes any size
_BATCH = 16
_FINEST = 32  # places a side, so that what is kept of a picture stays small
# Of the pictures that networks of torchvision and timm were trained on; a graph may say others in
# its metadata, as `mean` and `std`.
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_QUIET_SECONDS = 2.0

Side = tuple[int, int]

_TRUSTED: dict[str, Backbone] = {}
_listener: list[Callable[[str], object]] = []


class Backbone:
    """A network in an ONNX file, which looks at pictures."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = check_input_file(path)
        self.name = self.path.name
        content = self.path.read_bytes()
        self.sha256 = hashlib.sha256(content).hexdigest()
        with required("Pictures need onnx and onnxruntime: pip install 'riskad[images]'."):
            import onnx
            import onnxruntime as runtime
        try:
            model = onnx.load_model_from_string(content)
        except Exception as error:
            raise InputError(f"{self.name!r} is not an ONNX file: it cannot be parsed.") from error
        if any(each.external_data for each in model.graph.initializer):
            raise InputError(
                f"{self.name!r} keeps its weights in other files, which its hash does not cover. "
                "Save it as one file (onnx.save_model with save_as_external_data=False)."
            )
        self.input, self.side = _find_input(model, self.name)
        (self._pooled, width), placed, self.grid = _find_layers(model, self.name, onnx)
        self.layers = [layer for layer, _, _ in placed]
        about = {each.key: each.value for each in model.metadata_props}
        colours = (
            json.loads(about.get(key, "null")) or usual
            for key, usual in (("mean", _MEAN), ("std", _STD))
        )
        self._mean, self._std = (np.array(c, np.float32).reshape(-1, 1, 1) for c in colours)
        self._outputs = list(dict.fromkeys([*self.layers, self._pooled]))
        # Without other outputs the runtime leaves out what comes after: the classifier.
        del model.graph.output[:]
        model.graph.output.extend(
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
            for name in self._outputs
        )
        options = runtime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS") or 0)
        try:
            self._session = runtime.InferenceSession(
                model.SerializeToString(), options, runtime.get_available_providers()
            )
        except Exception as error:
            reason = str(error).strip().splitlines()[0]
            raise InputError(f"{self.name!r} cannot be run by onnxruntime: {reason}") from error
        self._resize = [
            [_average_and_resize(*sizes) for sizes in zip(side, self.grid, strict=True)]
            for _, _, side in placed
        ]
        self._projections = [_projection(channels) for _, channels, _ in placed]
        self.grid_width = sum(projection.shape[1] for projection in self._projections)
        self.record = np.dtype(
            [
                ("picture", "V32"),  # the hash of its bytes
                ("pooled", "<f4", width),
                ("places", "<f2", (*self.grid, self.grid_width)),
            ]
        )

    def look(self, cells: Sequence[str]) -> Iterator[tuple[int, Any]]:
        """Yield the position and the record of each picture, or the `PictureError` in its place.

        Records that are not in the cache beside the pictures come last.
        """
        store = _Store(self, [cell for cell in cells if not cell.startswith("data:")])
        waiting: list[tuple[int, bytes, Any]] = []
        start, spoken = time.perf_counter(), 0.0
        for i, cell in enumerate(cells):
            try:
                key = _keys.get(state := state_of(cell), b"")
                record = store.get(key)
                if record is None:
                    content = picture_bytes(cell)
                    if len(_keys) > _MOST_KEYS:
                        _keys.clear()
                    _keys[state] = key = hashlib.sha256(content).digest()
                    record = store.get(key)
                if record is None:
                    waiting.append((i, key, decode_picture(content, cell, self.side)))
            except PictureError as error:
                yield i, error
                continue
            if record is not None:
                yield i, record
            if len(waiting) == _BATCH:
                yield from self._run(waiting, store)
                now = time.perf_counter() - start
                waiting.clear()
                if now - spoken > _QUIET_SECONDS and _listener:
                    left = now / (i + 1) * (len(cells) - i - 1)
                    _listener[-1](
                        f"Looking at pictures: {i + 1:,} of {len(cells):,}, {left:,.0f} s left"
                    )
                    spoken = now
        yield from self._run(waiting, store)

    def _run(self, waiting: Sequence[tuple[int, bytes, Any]], store: _Store) -> Iterator[Any]:
        if not waiting:
            return
        places, keys, pictures = zip(*waiting, strict=True)
        records = np.zeros(len(waiting), dtype=self.record)
        records["picture"] = np.array(keys, dtype="V32")
        pixels = np.empty((len(waiting), 3, self.side, self.side), dtype=np.float32)
        for place, picture in zip(pixels, pictures, strict=True):
            # All of the picture, for a defect may be at its edge; bilinear.
            resized = np.asarray(picture.resize((self.side, self.side), 2), dtype=np.float32)
            place[:] = (resized.transpose(2, 0, 1) / 255 - self._mean) / self._std
        records["pooled"], records["places"] = self.describe(pixels)
        store.add(records)
        yield from zip(places, records, strict=True)

    def describe(self, pixels: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[Any]]:
        """The pooled vectors and the places of pictures of shape (n, 3, side, side)."""
        arrays = self._session.run(self._outputs, {self.input: pixels})
        seen = dict(zip(self._outputs, arrays, strict=True))
        places = [
            (down @ seen[layer] @ across.T).transpose(0, 2, 3, 1) @ projection
            for layer, (down, across), projection in zip(
                self.layers, self._resize, self._projections, strict=True
            )
        ]
        largest = np.finfo(np.float16).max
        pooled = seen[self._pooled].mean(axis=(2, 3))
        return pooled, np.concatenate(places, axis=3).clip(-largest, largest)


def _projection(n: int) -> NDArray[np.float32]:
    """The matrix that leaves n numbers as they are, or projects more than 64 to 64."""
    matrix = np.eye(n)
    if n > _DIRECTIONS:
        matrix = np.random.default_rng(n).normal(size=(n, _DIRECTIONS)) / np.sqrt(_DIRECTIONS)
    return matrix.astype(np.float32)


def _average_and_resize(n: int, m: int) -> NDArray[np.float32]:
    """The matrix that averages n numbers over three neighbours and resizes them to m."""
    padded = np.pad(np.eye(n), ((1, 1), (0, 0)), mode="edge")
    average = (padded[:-2] + padded[1:-1] + padded[2:]) / 3
    if n >= m:  # the share of each number in an interval of length n / m
        ends = np.clip(np.arange(m + 1)[:, None] * n / m - np.arange(n), 0, 1)
        resize = np.diff(ends, axis=0) * m / n
    else:  # linear between the middles of the numbers
        middles = (np.arange(m) + 0.5) * n / m - 0.5
        resize = np.maximum(0, 1 - np.abs(middles.clip(0, n - 1)[:, None] - np.arange(n)))
    return (resize @ average).astype(np.float32)


# --- which networks are trusted -------------------------------------------------------------------


def trust_backbone(path: str | os.PathLike[str]) -> Backbone:
    """Load a network that you trust, so that models whose pictures it looks at can be used.

    Parameters
    ----------
    path
        An ONNX file of a convolutional network, whose weights are in the file.

    Returns
    -------
    Backbone
        With its `sha256`, by which model files name it.

    Examples
    --------
    >>> trust_backbone("resnet50.onnx")
    Traceback (most recent call last):
    ...
    riskad.core.checks.InputError: There is no file 'resnet50.onnx'.
    """
    backbone = Backbone(path)
    return _TRUSTED.setdefault(backbone.sha256, backbone)


def find_backbone(sha256: str = "", name: str = "") -> Backbone:
    """The trusted network of this hash; without one, the only network that was named."""
    path = os.environ.get(VARIABLE)
    if path and sha256 not in _TRUSTED:
        trust_backbone(path)
    if sha256 in _TRUSTED:
        return _TRUSTED[sha256]
    if not sha256 and len(_TRUSTED) == 1:
        return next(iter(_TRUSTED.values()))
    if not sha256:
        raise InputError(
            "A column of pictures needs a network to look at them, as an ONNX file that you trust: "
            "backbone='resnet50.onnx' (docs/howto/images.md says how to make one)."
        )
    others = enumerate_names([each.name for each in _TRUSTED.values()])
    raise InputError(
        f"This model looks at pictures by the network {name!r}, and no model file holds one. Get "
        f"the file whose SHA-256 is {sha256} {f'(not that of {others}) ' if others else ''}from "
        f"who made the model, and name it: --backbone FILE.onnx, {VARIABLE}=FILE.onnx, or, in "
        "Python, riskad.trust_backbone('FILE.onnx')."
    )


def report_to(progress: Callable[[str], object]) -> None:
    """Say to `progress` from now on how many pictures were looked at, and how long it takes."""
    _listener[:] = [progress]


# --- the graph ------------------------------------------------------------------------------------


def _find_input(model: Any, name: str) -> tuple[str, int]:
    """The input of a graph and the side of pictures; sets both, where the graph takes any."""
    weights = {each.name for each in model.graph.initializer}
    inputs = [each for each in model.graph.input if each.name not in weights]
    dims = inputs[0].type.tensor_type.shape.dim if len(inputs) == 1 else []
    sizes = [each.dim_value for each in dims]
    if len(sizes) != 4 or sizes[1] not in (0, 3) or sizes[2] != sizes[3]:
        raise InputError(
            f"{name!r} must take one input of shape (pictures, 3, side, side), and takes "
            f"{[[d.dim_value or '?' for d in i.type.tensor_type.shape.dim] for i in inputs]}."
        )
    side = sizes[2] or _SIDE
    if side > 2048:
        raise InputError(f"{name!r} takes pictures of {side:,} pixels a side; at most 2,048.")
    dims[0].dim_param, dims[1].dim_value = "pictures", 3
    dims[2].dim_value = dims[3].dim_value = side
    return inputs[0].name, side


def _find_layers(
    model: Any, name: str, onnx: Any
) -> tuple[tuple[str, int], list[tuple[str, int, Side]], Side]:
    """The layer to pool and its width; layers of places, each with its width and side; the grid."""
    del model.graph.value_info[:]
    try:
        inferred = onnx.shape_inference.infer_shapes(model)
    except Exception as error:
        raise InputError(f"{name!r}: the shapes of its layers cannot be inferred.") from error
    shapes: dict[str, tuple[int, Side]] = {}
    for each in (*inferred.graph.value_info, *inferred.graph.output):
        tensor = each.type.tensor_type
        sizes = tuple(dim.dim_value for dim in tensor.shape.dim)
        if len(sizes) == 4 and all(sizes[1:]) and tensor.elem_type == onnx.TensorProto.FLOAT:
            shapes[each.name] = sizes[1], (sizes[2], sizes[3])
    widest: dict[Side, tuple[str, int]] = {}
    blocks: dict[Side, tuple[str, int]] = {}
    for node in model.graph.node:
        output = node.output[0]
        channels, side = shapes.get(output, (0, (0, 0)))
        if min(side) < 2:
            continue
        if channels >= widest.get(side, ("", 0))[1]:
            widest[side] = (output, channels)
        residual = node.op_type == "Add" and all(
            shapes.get(x) == shapes[output] for x in node.input
        )
        activated = node.op_type == "Relu" and node.input[0] == blocks.get(side, ("", 0))[0]
        if residual or activated:
            blocks[side] = (output, channels)
    if not widest:
        raise InputError(
            f"{name!r} has no layer with places (of shape (pictures, channels, height, width)): it "
            "is not a convolutional network, of which a heat map could be made."
        )
    sides = sorted(widest, reverse=True)
    n = max(0, len(sides) - 3)
    while n < len(sides) - 1 and max(sides[n]) > _FINEST:
        n += 1
    placed = [(*blocks.get(side, widest[side]), side) for side in sides[max(0, n - 1) : n + 2]]
    grid = min(sides[n][0], _FINEST), min(sides[n][1], _FINEST)
    return widest[sides[-1]], placed, grid


# --- what was seen, beside the pictures -----------------------------------------------------------


_keys: dict[Any, bytes] = {}  # hashes of files that have not changed since
_MOST_KEYS = 1_000_000


def state_of(cell: str) -> Any:
    """What differs between pictures, and changes if a file does."""
    if cell.startswith("data:"):
        return hashlib.sha256(cell.encode()).digest()
    with suppress(OSError, ValueError):
        status = os.stat(cell)
        return cell, status.st_mtime_ns, status.st_size
    return cell


class _Store:
    """Records of pictures in a file of their folder, by the hash of their bytes; only added to."""

    def __init__(self, backbone: Backbone, files: Sequence[str]):
        self._record, self._rows = backbone.record, dict[bytes, Any]()
        self._path = None
        with suppress(OSError, ValueError):  # of files on several disks, there is no common folder
            if files:
                folder = Path(os.path.commonpath([os.path.dirname(file) or "." for file in files]))
                self._path = folder / f".riskad-{backbone.sha256[:16]}.features"
                n = self._path.stat().st_size // self._record.itemsize  # one may be cut off
                seen = np.memmap(self._path, self._record, mode="r", shape=(n,))
                self._rows = {
                    bytes(key): row for key, row in zip(seen["picture"], seen, strict=True)
                }

    def get(self, key: bytes) -> Any:
        record = self._rows.get(key)
        # A folder may come from anywhere: what is not a number there is looked at again.
        if record is None or not (
            np.isfinite(record["pooled"]).all() and np.isfinite(record["places"]).all()
        ):
            return None
        return record

    def add(self, records: NDArray[Any]) -> None:
        """Append records in one write; a write that was cut off earlier is overwritten."""
        if self._path is None:
            return
        try:
            with open(self._path, "ab") as file:
                whole = file.tell() // self._record.itemsize * self._record.itemsize
                file.truncate(whole)
                file.write(records.tobytes())
        except OSError:  # read-only, or full: pictures are looked at again next time
            self._path = None
