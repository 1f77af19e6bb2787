r"""Lines about requests and events, as `key=value` (logfmt): one line each, on stderr.

A line tells of a request who sent it (address), its method, its path without what follows a "?",
the status of the answer and how long it took; never a token, a header, a body or an answer. What
others chose (paths, messages) is quoted and escaped, so that it can neither begin a line nor reach
a terminal. Of an exception only its type and place are told, because its message may quote a cell.

>>> to_line(event="request", path="/a b\x1b[2J", status=404)
'event=request path="/a b\\u001b[2J" status=404'
"""

from __future__ import annotations

import json
import logging
import re
import time
import traceback
from pathlib import Path

from riskad.web.guard import LOG

_PLAIN = re.compile(r"[\w./:+-]+", re.ASCII)


def to_line(**values: object) -> str:
    """Return `key=value` pairs; a value that is not plain is quoted as JSON, in ASCII."""
    pairs = []
    for key, value in values.items():
        text = str(value)
        pairs.append(f"{key}={text if _PLAIN.fullmatch(text) else json.dumps(text)}")
    return " ".join(pairs)


def start_log(level: str) -> None:
    """Write lines of this level and above to stderr, also what the web server has to say."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Line())
    logging.basicConfig(handlers=[handler])
    LOG.setLevel(level.upper())
    logging.getLogger("uvicorn.error").setLevel(max(LOG.level, logging.WARNING))


class _Line(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        start = to_line(time=f"{seconds}.{int(record.msecs):03d}Z", level=record.levelname.lower())
        text = record.getMessage()
        if record.name != LOG.name:  # of a library
            text = to_line(event=text.strip())
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return f"{start} {text}"
        places = traceback.extract_tb(error.__traceback__)
        at = " ".join(f"{Path(place.filename).name}:{place.lineno}" for place in places)
        return f"{start} {text} {to_line(error=type(error).__name__, at=at)}"
