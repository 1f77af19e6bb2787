"""One input: made from its seed, given to the product in this process, and judged.

Verdicts: `ok`; `sentence`, a refusal that says why (exit code 1 or 2, or InputError in Python); and
what must not be:

- `traceback`: any other exception, `memory`: a MemoryError;
- `mute`: another exit code, or a refusal without a word;
- `half-written`: a command that failed, yet left, changed or lost a file, or any `.part` file;
- `silent`: a model file was changed, loads, and scores the fixed rows with NaN or infinity without
  a DataWarning; or its container or header was changed (not the model) and the scores are others;
  or `riskad score` writes a score that is NaN.

The runner adds `hang`, `crash` and `memory` for what only another process can tell.
"""

import contextlib
import csv
import io
import math
import os
import shlex
import shutil
import tempfile
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

import riskad
from riskad.app.model_files import read_header
from riskad.cli.main import main
from riskad.tables.paths import check_readable
from riskad.tables.reading import csv_format

from . import bases, models, options, tables

GENERATORS = {
    "csv": tables.csv,
    "numbers": tables.numbers,
    "parquet": tables.parquet,
    "zip": models.zip_,
    "header": models.header,
    "state": models.state,
    "deep": models.deep,
    "options": options.options,
}


@dataclass
class Played:
    """What came of one step of an input."""

    step: str
    verdict: str
    message: str = ""
    where: str = ""


def warm_up():
    """Import what commands import when they are called, so that it is in no input's time."""
    import lightgbm  # noqa: F401
    import onnxruntime  # noqa: F401
    import torch

    torch.set_num_threads(1)


def prepare(name, store):
    """Make one of the files that inputs are made of."""
    if name == "plain.csv":
        lines = [",".join(row) for row in (bases.COLUMNS, *bases.table())]
        Path(store, name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    else:
        bases.make(name, store)


def play(kind, number, seed, store, tell=lambda step: None):
    """Play one input step by step; the first failure ends it."""
    rng, played = Random(f"{seed}/{kind}/{number}"), []
    with tempfile.TemporaryDirectory(dir=store) as place, contextlib.chdir(place):
        for step in GENERATORS[kind](rng, Path(place), Path(store)):
            for word in step:
                if word.endswith(".riskad") and Path(store, word).is_file():
                    shutil.copyfile(Path(store, word), word)
            if "plain.csv" in step:
                shutil.copyfile(Path(store, "plain.csv"), "plain.csv")
            tell(shlex.join(step))
            played.append(_judge(step, Path(store)))
            refused = played[0].verdict == "sentence" and len(played) == 2
            if refused or is_failure(played[-1].verdict):
                break  # every command would refuse it in the same way
    return played


def is_failure(verdict):
    return verdict not in ("ok", "sentence")


def _judge(step, store):
    before, told, where = _files(), io.StringIO(), ""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run = _command if step[0] == "riskad" else _python
            verdict, message = run(step[1:], store)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a panic of polars is no Exception
        traceback.print_exc(file=told)
        verdict = "memory" if isinstance(error, MemoryError) else "traceback"
        message, where = told.getvalue(), _where(error)
    after = _files()
    left = sorted({name for name, _ in before.items() ^ after.items()})
    if (verdict != "ok" and left) or any(name.endswith(".part") for name in left):
        message = f"files left or changed: {left}\n{message}"
        verdict = verdict if is_failure(verdict) else "half-written"
    if verdict == "silent" and any(issubclass(w.category, riskad.DataWarning) for w in caught):
        verdict = "ok"
    return Played(shlex.join(step), verdict, message, where)


def _command(words, store):
    """Call the command line as the shell does; text that has no bytes fails here, too."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main(words)
    except SystemExit as end:
        code = end.code
    said = err.buffer.getvalue().decode()
    if code == 0:
        shown = out.buffer.getvalue().decode()
        bad = words[0] == "score" and _has_nan("scored.csv", words[2])
        return ("silent", "NaN in scored.csv") if bad else ("ok", shown)
    return ("sentence" if code in (1, 2) and said.strip() else "mute"), f"exit {code}: {said}"


def _python(words, store):
    """What a program does with a model file: read its header, load it, score or calibrate."""
    action, path, name, *same = words
    try:
        read_header(path)
        model = riskad.load(path)
        if action == "calibrate":
            riskad.calibrate(model, bases.rows_of(name), bases.codes_of(name))
        if not hasattr(model, "score_samples"):
            return "ok", "no detector, which can be loaded as well"
        scores = np.asarray(model.score_samples(bases.rows_of(name)), dtype=float)
    except riskad.InputError as error:
        return "sentence", str(error)
    if not np.isfinite(scores).all():
        return "silent", f"scores that are not finite: {scores[:8]}"
    expected = np.load(store / f"{name}.npy")
    if same and not np.allclose(scores, expected, rtol=1e-5, atol=1e-6):
        return "silent", f"other scores than before the change: {scores[:4]} and {expected[:4]}"
    return "ok", ""


def _has_nan(name, table):
    """Whether a score is missing in a CSV that is written as the table was."""
    if not os.path.exists(name):
        return False
    written = csv_format([check_readable(table)])
    with open(name, "rb") as file:
        text = file.read().removeprefix(written.mark).decode(written.encoding)
    csv.field_size_limit(10**9)
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=written.separator)
    scores = [row.get("anomaly_score") or "nan" for row in rows]
    return any(math.isnan(float(score.replace(",", "."))) for score in scores)


def _files():
    """What is in the folder: length, time and number of each file."""
    found = {}
    for path in Path().rglob("*"):
        facts = path.lstat()
        if not path.is_dir():
            found[str(path)] = (facts.st_size, facts.st_mtime_ns, facts.st_ino)
    return found


def _where(error):
    """The kind of a failure: its type, and the last line of ours that it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if f.filename.startswith(os.path.dirname(riskad.__file__) + os.sep)]
    last = f"{Path(ours[-1].filename).name}:{ours[-1].name}" if ours else "outside riskad"
    return f"{type(error).__name__} in {last}"
