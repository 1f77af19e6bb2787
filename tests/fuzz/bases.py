"""The tables and the fitted models that are changed, small and the same in every run.

Models are those of tables, which the command line scores, and the files of `tests/fixtures/models`,
in which every type stands that a file may hold.
"""

import json
import warnings
from pathlib import Path
from random import Random

import numpy as np

from .mutations import HEADER, read_archive, reseal, write_archive

COLUMNS = ("txid", "amount", "age", "country", "online", "status")
N_NORMAL, N_ANOMALY, N_ROWS = 8, 6, 30
TABLE_MODELS = ("shallow", "boosted", "forest", "auto", "deep")
FIXTURES = Path(__file__).parents[1] / "fixtures" / "models"
FIXTURE_MODELS = tuple(f"fixture_{path.stem}" for path in sorted(FIXTURES.glob("*.riskad")))
NETWORKS = ("deep", "fixture_deep", "fixture_deep_sad", "fixture_nnpu")
SHALLOW = ("shallow", "fixture_shallow", "fixture_table")  # refitted in no time, whatever they say
NAMES = (*TABLE_MODELS, *FIXTURE_MODELS)


def table():
    """Rows of text as in a CSV file: 8 normal, 6 anomalies, 16 unlabelled."""
    rng = Random(0)
    rows = []
    for row in range(N_ROWS):
        odd = N_NORMAL <= row < N_NORMAL + N_ANOMALY or row > N_ROWS - 4
        label = "ok" if row < N_NORMAL else "fraud" if row < N_NORMAL + N_ANOMALY else ""
        amount = f"{rng.gauss(60 if odd else 20, 8):.2f}"
        age = "" if row % 7 == 6 else str(rng.randint(18, 80))
        country = rng.choice(("FR", "DE", "IT"))
        rows.append([f"t{row:03d}", amount, age, country, str(bool(odd or row % 3)), label])
    return rows


def matrix():
    """The same number of rows as numbers, and their codes."""
    rng = np.random.default_rng(0)
    y = np.repeat([1, -1, 0], (N_NORMAL, N_ANOMALY, N_ROWS - N_NORMAL - N_ANOMALY))
    return rng.normal(size=(N_ROWS, 3)) + 2.0 * (y == -1)[:, None], y


def frame():
    import polars as pl  # after a worker has set its threads, here and below

    return pl.DataFrame(table(), schema=COLUMNS, orient="row")


def rows_of(name):
    """The rows that a model is asked to score, as it takes them."""
    import polars as pl

    if name in TABLE_MODELS:
        return frame()
    stored = _fixture(name)
    if "columns" in stored:
        return pl.DataFrame(stored["columns"])
    return np.array(stored["rows"], dtype=float)  # None becomes NaN


def codes_of(name):
    """A label for each of these rows."""
    return matrix()[1] if name in TABLE_MODELS else np.resize([1, 1, -1, 0, 0], len(rows_of(name)))


def _fixture(name):
    path = FIXTURES / f"{name.removeprefix('fixture_')}.json"
    return json.loads(path.read_text(encoding="utf-8"))


def make(name, folder):
    """Write the file of a base model, NAME.riskad, and its scores, NAME.npy."""
    import riskad

    path = Path(folder, f"{name}.riskad")
    if name in FIXTURE_MODELS:
        path.write_bytes((FIXTURES / f"{name.removeprefix('fixture_')}.riskad").read_bytes())
        np.save(Path(folder, f"{name}.npy"), _fixture(name)["scores"])
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, report = _fit_table(name)
        riskad.save(model, path, report=report)
        np.save(Path(folder, f"{name}.npy"), model.score_samples(rows_of(name)))
    members = read_archive(path.read_bytes())
    header = json.loads(members[HEADER]) | {"created": "2026-01-01T00:00:00+00:00"}
    members[HEADER] = json.dumps(header, indent=1).encode()
    path.write_bytes(write_archive(reseal(members)))


def _fit_table(name):
    from sklearn.pipeline import Pipeline

    from riskad import ForestRAD, calibrate
    from riskad.app.fit import fit_table
    from riskad.tables.preparation import TablePreparer

    if name == "forest":
        data, y = frame().drop("txid", "status"), matrix()[1]
        forest = ForestRAD(n_estimators=5, random_state=0)
        model = Pipeline([("prepare", TablePreparer()), ("detect", forest)]).fit(data, y)
        return calibrate(model, data, y), None
    settings = {
        "shallow": {"lam": 0.1},
        "boosted": {"max_iter": 5},
        "auto": {"budget": 60.0},
        "deep": {"module": (4,), "max_iter": 5},
    }[name]
    labels = {"label": "status", "normal": "ok", "anomaly": "fraud"}
    fit = fit_table(frame(), **labels, id="txid", model=name, settings=settings)
    return fit.model, fit.report


def choose(rng, names):
    """One of these models; large ones, slow to read, are rare."""
    weights = [0.3 if "auto" in name or "every" in name else 3 for name in names]
    return rng.choices(names, weights)[0]
