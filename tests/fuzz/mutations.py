"""Changes to bytes, JSON, arrays and archives that keep the rest of them well formed."""

import copy
import hashlib
import io
import json
import math
import warnings
import zipfile
import zlib

import numpy as np
import safetensors.numpy

HEADER = "riskad.json"
NUMBERS = (-1, 0, 1, 2, 0.5, 1e-320, 1e308, -1e308, 2**31, 2**63, 2**64, 10**40, -(10**40))
UNFIT = (math.nan, math.inf, -math.inf)
# Values that json.dumps cannot write, or not in no time, are put into its text afterwards.
DEEP, OVERFLOW, BRACKETS = "<deep>", "<1e400>", "<brackets>"
VALUES = (
    *(None, True, False, "", "x", "nan", "\ud800", "é\x00\n", "x" * 10_000, "os.system", "../x"),
    *(*NUMBERS, *UNFIT, DEEP, OVERFLOW, BRACKETS, [], {}, [[]], [None]),
    *({"": None}, [1, "x", None, {}]),
)


def mutate_bytes(rng, data):
    """Flip, cut, insert, repeat or lose bytes."""
    data, at = bytearray(data), rng.randrange(len(data) + 1)
    change = rng.randrange(6)
    if change == 0:
        for _ in range(rng.choice((1, 1, 2, 8, 64))):
            if data:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif change == 1:
        del data[at:]
    elif change == 2:
        data[at:at] = rng.randbytes(rng.choice((1, 4, 1000)))
    elif change == 3:
        del data[at : at + rng.choice((1, 2, 16))]
    elif change == 4:
        data[at:at] = data[at : at + rng.choice((4, 64))]
    else:
        data[at : at + 4] = rng.choice((b"\xff" * 4, b"\0" * 4, b"\xff\xff\xff\x7f", b"\xfe"))
    return bytes(data)


def mutate_json(rng, data):
    """Change one to three nodes of a JSON text, anywhere; now and then its bytes."""
    try:
        box = [json.loads(data)]
    except (ValueError, RecursionError):
        box = []
    if not box or rng.random() < 0.05:
        return mutate_bytes(rng, data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        _change_node(rng, box)
    text = json.dumps(box[0] if box else None).replace(f'"{OVERFLOW}"', "1e400")
    text = text.replace(f'"{BRACKETS}"', "[" + "[]," * 300_000 + "0]", 1)
    return text.replace(f'"{DEEP}"', "[" * 100_000 + "]" * 100_000, 1).encode()


def _place(rng, box):
    """A random node, as the container and the key it has there; most are deep."""
    parent, key = box, 0
    while isinstance(parent[key], dict | list) and parent[key] and rng.random() < 0.93:
        parent = parent[key]
        keys = list(parent) if isinstance(parent, dict) else range(len(parent))
        full = [key for key in keys if isinstance(parent[key], dict | list) and parent[key]]
        key = rng.choice(full if full and rng.random() < 0.6 else keys)
    return parent, key


def _change_node(rng, box):
    if not box:
        return
    parent, key = _place(rng, box)
    node, change = parent[key], rng.randrange(10)
    if isinstance(node, str) and node.startswith(("{", "[")):  # JSON within JSON
        parent[key] = mutate_json(rng, node.encode(errors="replace")).decode(errors="replace")
    elif change <= 3:
        parent[key] = copy.deepcopy(rng.choice(VALUES))
    elif change == 4:
        del parent[key]
    elif change == 5:
        other, name = _place(rng, box)
        parent[key] = copy.deepcopy(other[name])
    elif change == 6 and isinstance(parent, dict):
        parent[rng.choice(("", "x", "\ud800", f"{key}_", str(key).upper()))] = parent.pop(key)
    elif isinstance(node, list):
        parent[key] = rng.choice((node[:-1], node[:1], node * 2, node[::-1], dict(enumerate(node))))
    elif isinstance(node, dict):
        parent[key] = rng.choice((list(node), list(node.values()), [node], node | {"x": 1}))
    elif isinstance(node, int | float) and not isinstance(node, bool):
        parent[key] = rng.choice((-node, node + 1, node - 1, str(node), [node], node * 1e300))
    else:
        parent[key] = rng.choice((f"{node}x", [node], {"x": node}, str(node) * 2, 7))


def mutate_array(rng, array):
    """Another array: hostile values, another shape, another type, other sizes."""
    array, change = np.array(array), rng.randrange(8)
    if change <= 2 and array.size and array.dtype.kind in "fiu":
        return _with_value(rng, array)
    if change == 3:
        return -array if array.dtype.kind in "fi" else array[::-1] if array.ndim else array
    if change == 4:
        return array.astype(rng.choice(("<f8", "<f4", "<i8", "<i4", "u1", "?")), copy=True)
    if change == 5:
        shapes = [(-1,), (1, -1), (-1, 1), (*array.shape, 1), array.shape[::-1]]
        return array.reshape(rng.choice(shapes)) if array.size else array.reshape(0, 3)
    if change == 6 and array.ndim:
        return rng.choice((array[:-1], array[:0], np.concatenate([array, array]), array[:1]))
    return np.full(array.shape, rng.choice((0, 1)), array.dtype)


def _with_value(rng, array):
    flat = array.reshape(-1)
    places = [rng.randrange(flat.size)] if rng.random() < 0.6 else range(flat.size)
    if array.dtype.kind == "f":
        value = rng.choice((*UNFIT, 1e308, -1e308, -1.0, 0.0, 1e-320))
    else:
        limits = np.iinfo(array.dtype)
        value = rng.choice((limits.min, limits.max, min(flat.size + 1, limits.max), 0, 1))
    with np.errstate(over="ignore"):
        for place in places:
            flat[place] = value
    return flat.reshape(array.shape)


def mutate_safetensors(rng, data):
    """Change one array, the names, or what the header says of them."""
    end = 8 + int.from_bytes(data[:8], "little")
    arrays = safetensors.numpy.load(data)
    change = rng.randrange(10)
    if change == 0 or not arrays:
        return mutate_bytes(rng, data[:end]) + data[end:]
    if change == 1:
        header = mutate_json(rng, data[8:end])
        return len(header).to_bytes(8, "little") + header + data[end:]
    one, other = rng.choices(sorted(arrays), k=2)
    if change == 2:
        arrays[one], arrays[other] = arrays[other], arrays[one]
    elif change == 3:
        arrays[rng.choice(("", "x", f"{one}x"))] = arrays.pop(one)
    elif change == 4:
        del arrays[one]
    else:
        arrays[one] = mutate_array(rng, arrays[one])
    return safetensors.numpy.save(arrays)


def mutate_member(rng, name, data):
    return (mutate_json if name.endswith(".json") else mutate_safetensors)(rng, data)


def read_archive(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_archive(members, method=None):
    """A zip of these members with right checksums and no date; pairs may repeat a name.

    Unless a method is given, only arrays are compressed, and no more than is allowed.
    """
    out = io.BytesIO()
    pairs = members.items() if isinstance(members, dict) else members
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w") as archive:
        warnings.simplefilter("ignore", UserWarning)  # of names that repeat
        for name, data in pairs:
            plain = name.endswith(".json") or len(data) > 9 * len(zlib.compress(data))
            own = zipfile.ZIP_STORED if plain else zipfile.ZIP_DEFLATED
            archive.writestr(zipfile.ZipInfo(name), data, own if method is None else method)
    return out.getvalue()


def reseal(members):
    """The members with a header that has their right checksum again, where it had one."""
    try:
        header = json.loads(members[HEADER])
    except (KeyError, ValueError, RecursionError):
        return members
    if not isinstance(header, dict) or "checksum" not in header:
        return members
    digest = hashlib.sha256(b"".join(members[n] for n in sorted(members) if n != HEADER))
    header["checksum"] = digest.hexdigest()
    return members | {HEADER: json.dumps(header, indent=1).encode()}
