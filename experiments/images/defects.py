"""Pictures of surfaces and of objects, with defects drawn in.

A surface is cut from a texture, one of scikit-image (brick, grass, gravel, ihc) or a drawn one
(weave, speckle), at random, turned, and enlarged or reduced by up to 15 %. An object is always the
same photograph, each time a little shifted, turned and bent. Both are lit differently each time,
and noisy. Defects are

- scratch: a bent line, dark or light;
- stain: a blot that is 20 to 40 % darker or lighter;
- colour: a blot tinted red, green or blue (grey pictures have it in grey, as a stain);
- blur: a blot without detail;
- foreign: a blot of another picture;
- missing: a blot of one even tone, that around it;
- bend: a region pulled aside.

A blot is an ellipse with an uneven, soft edge, of 8 to 20 % of a side across.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import gaussian_filter, map_coordinates

from experiments.runner import NotAvailable

PIECE = 192
SURFACES = ("brick", "grass", "gravel", "ihc", "weave", "speckle")
OBJECTS = ("coffee", "rocket", "cell", "astronaut", "motorcycle_left", "chelsea")
DEFECTS = ("scratch", "stain", "colour", "blur", "foreign", "missing", "bend")

Floats = NDArray[np.float64]


@functools.cache
def _photograph(name: str) -> Floats:
    """A picture of three colours; of objects a square of 192 pixels a side."""
    rng = np.random.default_rng(0)
    if name == "weave":
        y, x = np.mgrid[:512, :1024] * (2 * np.pi / 12.3)
        x, y = (a + 0.4 * gaussian_filter(rng.normal(size=a.shape), 6) * 12 for a in (x, y))
        threads = np.where(np.sin(x / 2) * np.sin(y / 2) > 0, np.sin(x) ** 2, np.sin(y) ** 2)
        grey = 60 + 130 * threads + rng.normal(0, 8, x.shape)
        return grey[..., None] * (1.0, 0.92, 0.75)
    if name == "speckle":
        fine, coarse = (gaussian_filter(rng.normal(size=(512, 1024)), s) * s for s in (1.5, 6))
        grey = 120 + 90 * np.tanh(3 * fine) * (fine > 0.25) + 40 * coarse
        return grey[..., None] * (0.8, 0.9, 1.0)
    try:
        from skimage import data
    except ImportError as error:
        raise NotAvailable(f"pip install scikit-image ({error})") from error
    (file,) = Path(data.__path__[0]).glob(f"{name}.*")
    picture = Image.open(file).convert("RGB")
    if name in OBJECTS:
        side = min(picture.size)
        left, top = ((n - side) // 2 for n in picture.size)
        picture = picture.crop((left, top, left + side, top + side)).resize((PIECE, PIECE))
    return np.asarray(picture, dtype=np.float64)


def make_picture(
    name: str, defect: str | None, rng: np.random.Generator
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """A picture, and where its defect is."""
    piece = _object(name, rng) if name in OBJECTS else _cut(name, rng)
    inside = np.zeros((PIECE, PIECE), dtype=bool)
    if defect is not None:
        piece, inside = _draw(piece, defect, name, rng)
    y, x = np.mgrid[:PIECE, :PIECE] / PIECE - 0.5
    light = rng.uniform(0.95, 1.05) + rng.uniform(-0.05, 0.05) * x + rng.uniform(-0.05, 0.05) * y
    noisy = piece * light[..., None] + rng.normal(0, 2, piece.shape)
    return noisy.clip(0, 255).astype(np.uint8), inside


def _cut(name: str, rng: np.random.Generator) -> Floats:
    whole = _photograph(name)
    zoom = rng.uniform(0.85, 1.15)
    y, x = (np.mgrid[:PIECE, :PIECE] - PIECE / 2) * zoom
    y, x = ((y, x), (x, y))[int(rng.integers(2))]
    middles = [rng.uniform(zoom * PIECE / 2, n - zoom * PIECE / 2) for n in whole.shape[:2]]
    signs = rng.choice([-1, 1], 2)
    return _moved(whole, middles[0] + signs[0] * y, middles[1] + signs[1] * x)


def _object(name: str, rng: np.random.Generator) -> Floats:
    y, x = np.mgrid[:PIECE, :PIECE] - PIECE / 2
    angle, (dy, dx) = np.deg2rad(rng.normal(0, 1.5)), rng.normal(0, 2.5, 2)
    u = x * np.cos(angle) + y * np.sin(angle) + dx
    v = y * np.cos(angle) - x * np.sin(angle) + dy
    u, v = (a + 24 * gaussian_filter(rng.normal(size=a.shape), 24) for a in (u, v))
    return _moved(_photograph(name), v + PIECE / 2, u + PIECE / 2)


def _moved(picture: Floats, y: Floats, x: Floats) -> Floats:
    colours = [
        map_coordinates(c, [y, x], order=1, mode="nearest") for c in picture.T.swapaxes(1, 2)
    ]
    return np.stack(colours, axis=2)


def _draw(
    piece: Floats, defect: str, name: str, rng: np.random.Generator
) -> tuple[Floats, NDArray[np.bool_]]:
    y, x = np.mgrid[:PIECE, :PIECE]
    cy, cx = rng.uniform(0.22 * PIECE, 0.78 * PIECE, 2)
    angle = rng.uniform(0, np.pi)
    u = (x - cx) * np.cos(angle) + (y - cy) * np.sin(angle)
    v = (y - cy) * np.cos(angle) - (x - cx) * np.sin(angle)
    if defect == "scratch":
        half = rng.uniform(0.08, 0.2) * PIECE
        line = (np.abs(u) < half) & (np.abs(v + rng.uniform(-0.3, 0.3) * u**2 / half) < 1.5)
        share = gaussian_filter(line.astype(float), 0.7)[..., None]
        return piece * (1 - share) + rng.choice([30.0, 225.0]) * share, line
    radii = rng.uniform(0.04, 0.1, 2) * PIECE
    uneven = 1 + 6 * gaussian_filter(rng.normal(size=u.shape), 8)
    inside = (u / radii[0]) ** 2 + (v / radii[1]) ** 2 < uneven
    share = gaussian_filter(inside.astype(float), 1.5)[..., None]
    if defect == "bend":
        strength = gaussian_filter(inside.astype(float), radii.min() / 2)
        dy, dx = rng.choice([-1, 1], 2) * rng.uniform(5, 9, 2)
        return _moved(piece, y + dy * strength, x + dx * strength), inside
    if defect == "stain":
        changed = piece * (1 + rng.choice([-1, 1]) * rng.uniform(0.2, 0.4))
    elif defect == "colour":
        changed = piece * rng.permutation([1.3, 0.8, 0.8])
    elif defect == "blur":
        changed = gaussian_filter(piece, (4, 4, 0))
    elif defect == "foreign":
        others = [other for other in SURFACES[:3] if other != name]
        changed = _cut(str(rng.choice(others)), rng)
    else:
        ring = gaussian_filter(inside.astype(float), 6) > 0.05
        changed = np.broadcast_to(piece[ring & ~inside].mean(axis=0), piece.shape)
    return piece * (1 - share) + changed * share, inside
