"""Model files that were damaged, forged or written by something else."""

import functools
import io
import struct
import zipfile
import zlib

from . import bases
from .mutations import (
    HEADER,
    mutate_bytes,
    mutate_json,
    mutate_member,
    read_archive,
    reseal,
    write_archive,
)

MODEL = "model.riskad"
COMMANDS = (
    "inspect MODEL",
    "inspect MODEL --json",
    "threshold MODEL f1 -o new.riskad --force",
    "score MODEL plain.csv -o scored.csv --force --reasons 1",
    "score MODEL plain.csv -o scored.csv --force --fdr 0.1 --json",
    "inspect MODEL --card card.md",
    "threshold MODEL cost:1:10 -o new.riskad --force",
    "drift MODEL plain.csv",
    "suggest MODEL plain.csv -n 5",
    "explain MODEL plain.csv --json",
    "report MODEL plain.csv -o page.html",
    "report MODEL plain.csv -o page.json",
    "export MODEL model.onnx",
)
NAMES = ("", "x", "../riskad.json", "/riskad.json", "RISKAD.JSON", "riskad.json/", "model.pkl")


def steps(rng, name, same=False):
    """Load and score in Python, then three commands; with `same`, scores must not have changed."""
    load = ["python", "score", MODEL, name, *(["same"] if same else [])]
    lines = COMMANDS[:5] if "auto" in name else COMMANDS  # the rest would take it a second
    commands = [f"riskad {line}".replace("MODEL", MODEL).split() for line in lines]
    if name in bases.SHALLOW:  # others are fitted as long as their file says: no refit of theirs
        commands.append(["python", "calibrate", MODEL, name])
    return [load, *rng.sample(commands, 3)]


def header(rng, folder, store):
    """Any node of riskad.json, of another type, size, name or missing."""
    name = bases.choose(rng, ("shallow",) * 8 + bases.NAMES)
    members = read_archive((store / f"{name}.riskad").read_bytes())
    members[HEADER] = mutate_json(rng, members[HEADER])
    (folder / MODEL).write_bytes(write_archive(members))
    return steps(rng, name, same=True)


def state(rng, folder, store, network=False):
    """Any value, array, shape or type of a stored model."""
    names = tuple(name for name in bases.NAMES if (name in bases.NETWORKS) == network)
    name = bases.choose(rng, names + (("deep",) * 2 if network else ("shallow",) * 3))
    members = read_archive((store / f"{name}.riskad").read_bytes())
    stored = sorted(member for member in members if member != HEADER)
    for one in rng.sample(stored, min(len(stored), rng.choice((1, 1, 1, 2)))):
        members[one] = mutate_member(rng, one, members[one])
    if rng.random() < 0.03:  # what belongs to another model
        other = read_archive((store / f"{bases.choose(rng, bases.NAMES)}.riskad").read_bytes())
        one = rng.choice(sorted(other))
        members[one] = other[one]
    forged = rng.random() < 0.9  # otherwise an accident, which a checksum tells
    (folder / MODEL).write_bytes(write_archive(reseal(members) if forged else members))
    return steps(rng, name)


deep = functools.partial(state, network=True)


def zip_(rng, folder, store):
    """What holds the members: lengths, names, methods, flags, bombs."""
    name = bases.choose(rng, bases.NAMES)
    data = (store / f"{name}.riskad").read_bytes()
    change = rng.choice(CHANGES)
    (folder / MODEL).write_bytes(change(rng, data, store))
    return steps(rng, name, same=True)


def _bytes(rng, data, store):
    for _ in range(rng.choice((1, 1, 2))):
        data = mutate_bytes(rng, data)
    return data


def _directory(rng, data, store):
    """Damage in the directory at the end, where lengths and offsets stand."""
    start = data.rindex(b"PK\x01\x02")
    return data[:start] + mutate_bytes(rng, data[start:])


def _field(rng, data, store):
    """A flag, method, checksum or size that lies, in the directory, the member or both."""
    data, value = bytearray(data), rng.choice((0, 1, 0x800, 12, 14, 93, 99, 2**31, 2**32 - 1))
    # Where the field stands in the directory; in the member it is two bytes before.
    offset, size = rng.choice(((8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2)))
    value = (value % 2**16 if size == 2 else value).to_bytes(size, "little")
    entry = data.rindex(b"PK\x01\x02") if rng.random() < 0.5 else data.index(b"PK\x01\x02")
    member = struct.unpack_from("<L", data, entry + 42)[0]
    places = (entry + offset, member + offset - 2)
    for place in rng.choice((places, places[:1], places[1:])):
        data[place : place + size] = value
    return bytes(data)


def _names(rng, data, store):
    """Members that are missing, twice there, misnamed, superfluous or of another model."""
    pairs = list(read_archive(data).items())
    at = rng.randrange(len(pairs))
    (name, content), change = pairs[at], rng.randrange(5)
    other = read_archive((store / f"{bases.choose(rng, bases.NAMES)}.riskad").read_bytes())
    if change == 0:
        pairs[at] = (rng.choice(NAMES), content)
    elif change == 1:
        del pairs[at]
    elif change == 2:
        twin = rng.choice((content, b"", b"{}", mutate_bytes(rng, content)))
        pairs.insert(rng.randrange(len(pairs) + 1), (name, twin))
    elif change == 3:
        pairs.append((rng.choice(NAMES), rng.choice((b"", content))))
    else:
        pairs[at] = (name, rng.choice(sorted(other.items()))[1])
    return write_archive(pairs)


def _whole(rng, data, store):
    """Another compression, something around the archive, or no archive of ours."""
    members = read_archive(data)
    methods = (0, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    return rng.choice(
        (
            lambda: write_archive(members, rng.choice(methods)),
            lambda: mutate_bytes(rng, write_archive(members, rng.choice(methods))),
            lambda: data + rng.randbytes(rng.choice((1, 22, 70_000))),
            lambda: rng.randbytes(rng.choice((1, 1000))) + data,
            lambda: data + data,
            lambda: write_archive({MODEL: data}),
            lambda: write_archive(members | {HEADER: data}),
            lambda: data[:-2] + struct.pack("<H", 9) + b"a comment",
            lambda: rng.choice((b"", b"PK\x05\x06" + b"\0" * 18, b"\x1f\x8b", rng.randbytes(99))),
            lambda: (store / "plain.csv").read_bytes(),
        )
    )()


@functools.cache
def _blank(gibibytes):
    """So much white space as a raw deflate stream: a flushed piece of it, many times over."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = squeeze.compress(b" " * 2**24) + squeeze.flush(zlib.Z_FULL_FLUSH)
    return piece * (64 * gibibytes)


def _bomb(rng, data, store):
    """A member that begins with gigabytes of white space, whatever it says of its size."""
    name, content = rng.choice(sorted(read_archive(data).items()))
    gibibytes, squeeze = rng.choice((1, 3)), zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = _blank(gibibytes) + squeeze.compress(content) + squeeze.flush()
    honest = gibibytes * 2**30 + len(content)
    size = rng.choice((honest, len(content), 0)) % 2**32
    fields = struct.pack("<HHHHHLLLHH", 20, 0, 8, 0, 0, 0, len(packed), size, len(name), 0)
    directory = b"PK\x01\x02\x14\x00" + fields + struct.pack("<HHHLL", 0, 0, 0, 0, 0)
    local = b"PK\x03\x04" + fields + name.encode() + packed
    directory += name.encode()
    tail = struct.pack("<HHHHLLH", 0, 0, 1, 1, len(directory), len(local), 0)
    bomb = local + directory + b"PK\x05\x06" + tail
    out = io.BytesIO(bomb)
    with zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as archive:
        for other, content in read_archive(data).items():
            if other != name:
                archive.writestr(zipfile.ZipInfo(other), content)
    return out.getvalue()


CHANGES = (_bytes,) * 8 + (_directory,) * 6 + (_field,) * 10 + (_names,) * 10 + (_whole,) * 6
CHANGES += (_bomb,)
