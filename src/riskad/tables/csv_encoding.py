"""Text of any usual encoding as UTF-8, some bytes at a time.

UTF-16 and UTF-32 are told by a byte order mark or by their zeros, UTF-8 by being valid. What is
not valid is Windows-1252, which most spreadsheets wrote for decades; Latin-1 is a part of it.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator

from riskad.core.checks import InputError
from riskad.tables.notes import note
from riskad.tables.paths import check_is_text

__all__ = ["Utf8", "check_utf8", "find_mark", "utf8_blocks"]

_MARKS = {  # the longer ones first: that of UTF-32 begins as that of UTF-16
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_SNIFFED_BYTES = 1 << 12
_WINDOWS = "cp1252"
_REMEDY = "Save it again as UTF-8 (in a spreadsheet: 'CSV UTF-8')."


def utf8_blocks(blocks: Iterable[bytes], name: str) -> Iterator[bytes]:
    r"""Take off a byte order mark, and recode UTF-16 and UTF-32; leave all else as it is.

    >>> b"".join(utf8_blocks([b"\xff\xfea\0", b",\0"], "cards.csv"))
    b'a,'
    """
    blocks = iter(blocks)
    first = next(blocks, b"")
    check_is_text(first, name)
    encoding, mark = find_mark(first)
    if encoding == "utf-8":
        yield first[len(mark) :]
        yield from blocks
        return
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        yield decoder.decode(first[len(mark) :]).encode()
        for block in blocks:
            yield decoder.decode(block).encode()
        decoder.decode(b"", final=True)
    except UnicodeError as error:
        raise InputError(
            f"{name!r} begins as {encoding[:6].upper()} and goes on as something else, or was cut "
            f"short. {_REMEDY}"
        ) from error


def find_mark(start: bytes) -> tuple[str, bytes]:
    r"""The encoding of a file that begins so, and its byte order mark.

    Text without wide letters is UTF-8 here; `Utf8` finds out what else it may be.

    >>> find_mark(b"\xef\xbb\xbfa,b")
    ('utf-8', b'\xef\xbb\xbf')
    """
    for mark, encoding in _MARKS.items():
        if start.startswith(mark):
            return encoding, mark
    sample = start[:_SNIFFED_BYTES]
    zeros = [sample[k::2].count(0) / max(len(sample) // 2, 1) for k in (0, 1)]
    if max(zeros) > 0.6 and min(zeros) < 0.1:  # text of the West: every other byte is zero
        return ("utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"), b""
    return "utf-8", b""


def check_utf8(data: bytes, name: str, lines_before: int) -> None:
    """Fail, naming line and byte, if `data` is not UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        why = "is not UTF-8, which the rest of the file is"
        raise _refused(data, error, name, lines_before, why) from error


class Utf8:
    """Recodes the parts of a file by the first that is not plain ASCII.

    Later parts of a file in UTF-8 are not looked at: who parses them finds what is not.

    Attributes
    ----------
    encoding
        What was decided; None while all was plain ASCII.
    """

    def __init__(self, name: str):
        self._name = name
        self.encoding: str | None = None

    def __call__(self, data: bytes, lines_before: int) -> bytes:
        """The part as UTF-8; `lines_before` are for messages."""
        if self.encoding == "utf-8" or data.isascii():
            return data
        if self.encoding is None:
            self.encoding = self._find(data, lines_before)
        if self.encoding == "utf-8":
            return data
        try:
            return data.decode(_WINDOWS).encode()
        except UnicodeDecodeError as error:
            why = "is neither UTF-8 nor Windows-1252"
            raise _refused(data, error, self._name, lines_before, why) from error

    def _find(self, data: bytes, lines_before: int) -> str:
        try:
            data.decode()
        except UnicodeDecodeError as error:
            if _is_mostly_utf8(data):
                check_utf8(data, self._name, lines_before)
            line = _line(data, error.start, lines_before)
            note(
                f"{self._name!r} was read as Windows-1252: byte 0x{data[error.start]:02x} on line "
                f"{line} is not UTF-8. If letters look wrong, save it again as UTF-8."
            )
            return _WINDOWS
        return "utf-8"


def _refused(
    data: bytes, error: UnicodeDecodeError, name: str, lines_before: int, why: str
) -> InputError:
    line, byte = _line(data, error.start, lines_before), data[error.start]
    return InputError(f"{name!r}, line {line}: byte 0x{byte:02x} {why}. {_REMEDY}")


def _is_mostly_utf8(data: bytes) -> bool:
    """Whether letters of more than one byte are more frequent than bytes that fit in none."""
    text = data.decode(errors="replace")
    beyond_ascii = len(text) - len(text.encode("ascii", "ignore"))
    return beyond_ascii > 2 * text.count("\ufffd")


def _line(data: bytes, place: int, lines_before: int) -> int:
    return lines_before + data.count(b"\n", 0, place) + 1
