"""Decisions of `AutoRAD` on real tables: rate, list, probabilities, expected precision, AUC.

    OMP_NUM_THREADS=1 python benchmarks/decisions.py fit TABLES.npz FOLDER [--processes 2]
    python benchmarks/decisions.py judge FOLDER results/decisions/tables.json
    python benchmarks/decisions.py simulate results/decisions/simulations.json [--draws 200]

`fit` fits each table once for each setting and keeps scores, held-out scores and the truth; `judge`
makes all decisions from these, with the code that `AutoRAD.fit` runs, and writes the figures.

The tables are 418 real ones of the OddBench and OvRBench collections (arXiv 2602.09329), at most
3,000 rows each; they are taken in the order of the SHA-256 of their names, and records have its
first digits in place of the name. Half of the rows, drawn at random, are there to fit, the others
to test. Of the former 60, or 5 %, are labelled:

- random: drawn by chance;
- more: anomalies are 5 times as likely to be labelled as normal rows;
- rule: rows beyond the 70 % quantile of one column, drawn by chance, are 5 times as likely;
- easy: the tenth with the highest score of an isolation forest is 10 times as likely;
- suggested: half by chance, the other half by `riskad.suggest_rows` after a fit to these.

"rotate" gives each table one of the last four in turn.

`simulate` draws tables of 300 rows whose law is known, 10 % of them anomalies and 60 labelled at
random, and asks of `AutoRAD` on 2,000 new rows what its intervals, p-values, thresholds and
probabilities promise.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score

from riskad import AutoRAD, suggest_rows
from riskad.bench.provenance import provenance
from riskad.bench.records import OK, SKIPPED, open_records
from riskad.core.labels import ANOMALY, UNLABELLED, read_codes
from riskad.decisions.conformal import select_at_fdr
from riskad.decisions.thresholds import FalseAlarms, parse_threshold
from riskad.detectors.auto.deciding import calibrated
from riskad.detectors.auto.held_out import HeldOut
from riskad.detectors.auto.views import Views

SELECTED = ("more", "rule", "easy", "suggested")
BANDS = (0.7, 0.85, 0.95)
DEVELOPED_ON = 60  # the first tables: what is shrunk and capped was chosen on these
RULES = ("likely", "risk", "rate", "f1", "p > 1/2")


# --- tables and labels ----------------------------------------------------------------------


def names_in_order(tables: Any) -> list[str]:
    """Names of all tables, in an order that has nothing to do with them."""
    return sorted({key.split("|")[0] for key in tables.files}, key=digits)


def digits(name: str) -> str:
    """What stands for a table in records."""
    return hashlib.sha256(name.encode()).hexdigest()


def split(tables: Any, name: str) -> tuple[np.ndarray, ...]:
    """Rows to fit, their truth, rows to test, their truth; and a generator for labels."""
    X, t = tables[f"{name}|X"].astype(float), tables[f"{name}|y"] == 1
    rng = np.random.default_rng([0, int(digits(name)[:8], 16)])
    order, half = rng.permutation(len(t)), len(t) // 2
    own, other = order[:half], order[half:]
    return X[own], t[own], X[other], t[other], rng


def draw(kind: str, X: np.ndarray, t: np.ndarray, n: int, rng: Any) -> np.ndarray:
    """Which rows are labelled."""
    weight = np.ones(len(t))
    if kind == "more":
        weight = np.where(t, 5.0, 1.0)
    elif kind == "rule":
        several = [j for j in range(X.shape[1]) if len(np.unique(X[:, j])) > 2]
        x = X[:, rng.choice(several)] * rng.choice([-1, 1]) + 1e-9 * rng.random(len(t))
        weight = np.where(x >= np.quantile(x, 0.7), 5.0, 1.0)
    elif kind == "easy":
        s = -IsolationForest(random_state=0).fit(X).score_samples(X)
        weight = np.where(s >= np.quantile(s, 0.9), 10.0, 1.0)
    if kind == "random":
        return rng.choice(len(t), n, replace=False)
    return rng.choice(len(t), n, replace=False, p=weight / weight.sum())


def codes_of(rows: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Codes where these rows are labelled with the truth."""
    y = np.zeros(len(t), int)
    y[rows] = np.where(t[rows], -1, 1)
    return y


def label(kind: str, X: np.ndarray, t: np.ndarray, n: int, rng: Any) -> tuple[Any, Any]:
    """Labelled rows, and 1 for those that were chosen."""
    if kind != "suggested":
        rows = draw(kind, X, t, n, rng)
        return rows, np.full(n, float(kind != "random"))
    rows = draw("random", X, t, n // 2, rng)
    if not t[rows].any():
        rows[0] = np.flatnonzero(t)[0]
    model, _ = fit(X, codes_of(rows, t))
    more = suggest_rows(model, X, n - n // 2, y=codes_of(rows, t)).rows
    return np.r_[rows, more], np.r_[np.zeros(len(rows)), np.ones(len(more))]


# --- fits -----------------------------------------------------------------------------------


def fit(X: np.ndarray, y: np.ndarray) -> tuple[AutoRAD, HeldOut | None]:
    """The model, and what its members gave to held-out rows."""
    kept: list[HeldOut | None] = []

    class Watched(AutoRAD):
        def _hold_out(self, *told: Any) -> HeldOut | None:
            kept.append(super()._hold_out(*told))
            return kept[0]

    return Watched(budget=600, random_state=0).fit(X, read_codes(y)), kept[0]


def member_scores(model: AutoRAD, X: np.ndarray) -> np.ndarray:
    """Anomaly scores of each member, standardised."""
    matrix = model.table_.transform(model._seen(model._check_rows(X, reset=False)))
    views = Views.of(model.views_, matrix)
    return np.array(
        [
            -(member.score_samples(views.seen_by(name)) - model.scales_[name][0])
            / model.scales_[name][1]
            for name, member in model.members_.items()
        ]
    )


def fit_one(source: Path, name: str, kind: str, size: str, folder: Path) -> None:
    """Keep what decisions on a table are made of."""
    path = folder / f"{digits(name)[:12]}_{kind}_{size}_0.npz"
    if path.exists():
        return
    with np.load(source) as tables:
        X, t, X_test, t_test, rng = split(tables, name)
    n = int(size) if size != "5" else max(10, round(0.05 * len(t)))
    rows, chosen = label(kind, X, t, n, rng)
    y = codes_of(rows, t)
    if len(np.unique(y)) < 3:  # no anomaly was labelled
        np.savez(path, none=1, t=t, y=y)
        return
    start = time.process_time()
    model, held_out = fit(X, y)
    kept = {
        **{"t": t, "y": y, "t2": t_test, "rows": rows, "src": chosen},
        **{"names": list(model.members_), "w": list(model.weights_.values())},
        **{"fit": member_scores(model, X), "test": member_scores(model, X_test)},
        "cpu": time.process_time() - start,
    }
    if held_out is not None:
        kept |= {"hrows": held_out.rows, "nf": len(held_out.folds), "ns": held_out.n_splits}
        for i, fold in enumerate(held_out.folds):
            scores = [held_out.scores[member][i] for member in model.members_]
            kept |= {f"fold{i}": fold, f"hs{i}": -np.array(scores)}
    np.savez_compressed(path, **kept)


def run(source: Path, folder: Path, n_tables: int, settings: list[str], processes: int) -> None:
    """Fit all tables, setting by setting; those that are there already are left as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    with np.load(source) as tables:
        names = names_in_order(tables)[:n_tables]
    with ProcessPoolExecutor(processes) as pool:
        fits = {}
        for setting in settings:
            kind, size = setting.split("/")
            for place, name in enumerate(names):
                own = SELECTED[place % len(SELECTED)] if kind == "rotate" else kind
                told = f"table {digits(name)[:12]}, {setting}"
                fits[told] = pool.submit(fit_one, source, name, own, size, folder)
        for told, fitted in fits.items():
            if (error := fitted.exception()) is not None:
                print(f"{told}: {error!r}", flush=True)


# --- decisions ------------------------------------------------------------------------------


def judge(path: Path) -> dict[str, Any] | None:
    """What the decisions on a table came to; None where no anomaly was labelled."""
    kept = dict(np.load(path))
    table, kind, size, _ = path.stem.split("_")
    about = {"table": table, "labels": kind, "size": size}
    y, t = kept["y"], kept["t"]
    if "none" in kept:
        return about | {"labelled_anomalies": 0}
    held_out, weights = _held_out(kept), kept["w"]
    fitted, test = weights @ kept["fit"], weights @ kept["test"]
    free, truth = y == UNLABELLED, kept["t2"]
    found = about | {
        "labelled_anomalies": int((y == ANOMALY).sum()),
        "test_auc": float(roc_auc_score(truth, test)),
        "true_rate": float(t[free].mean()),
        "cpu": float(kept["cpu"]),
        "best_f1": {"test": best_f1(test, truth), "unlabelled": best_f1(fitted[free], t[free])},
        "nested_auc": None,
    }
    if held_out is not None:
        auc = held_out.combined_auc()
        found["nested_auc"] = [auc.value, auc.low, auc.high]
        found["plain_auc"] = plain_auc(held_out)
    words = ["unknown", "random"] if kind == "random" else ["unknown", "chosen"]
    for word in words:
        found[word] = decide(kept, fitted, test, held_out, word)
    if kind == "suggested":
        source = np.full(len(y), "", dtype=object)
        source[kept["rows"]] = np.where(kept["src"] == 1, "suggested", "random")
        found["each"] = decide(kept, fitted, test, held_out, source)
    return found


def plain_auc(held_out: HeldOut) -> float:
    """The AUC as it would be with one set of weights, by all held-out labels, for all folds."""
    weights, folds = held_out.weights(), range(len(held_out.folds))
    same = [sum(w * held_out.scores[name][i] for name, w in weights.items()) for i in folds]
    return float(held_out._auc(same, folds).value)


def _held_out(kept: dict[str, Any]) -> HeldOut | None:
    if "nf" not in kept:
        return None
    folds = range(int(kept["nf"]))
    scores = {
        str(name): [-kept[f"hs{i}"][place] for i in folds]
        for place, name in enumerate(kept["names"])
    }
    rows = kept["hrows"]
    taken = [kept[f"fold{i}"] for i in folds]
    return HeldOut(rows, kept["y"][rows], scores, taken, int(kept["ns"]))


def decide(
    kept: dict[str, Any], fitted: np.ndarray, test: np.ndarray, held_out: Any, source: Any
) -> dict[str, Any]:
    """Rate, probabilities, lists and what is expected of them."""
    y, t, truth = kept["y"], kept["t"], kept["t2"]
    free = y == UNLABELLED
    calibration, _ = calibrated(-fitted, y, held_out, None, source, 0)
    rate = calibration.rate
    found: dict[str, Any] = {"rate": None if rate is None else [*rate]}
    found["random_p_value"] = calibration.random_p_value
    thresholds = {}
    for rule in RULES:
        try:
            thresholds[rule] = (
                calibration.line().threshold(0.5)
                if rule == "p > 1/2"
                else parse_threshold(rule).of(calibration)
            )
        except Exception:  # too few labels for this rule
            continue
    found["rules"] = {
        rule: {"test": result(test > at, truth), "unlabelled": result(fitted[free] > at, t[free])}
        for rule, at in thresholds.items()
    }
    if not calibration.knows_probabilities:
        return found
    for name, s, of in (("test", test, truth), ("unlabelled", fitted[free], t[free])):
        found[f"probabilities on {name}"] = losses(
            calibration.anomaly_probability(s), of, calibration.pi_n
        )
    if isinstance(source, str) and source == "random":
        found["validity"] = validity(calibration, test, truth)
    expected = calibration.expected_precision(thresholds["likely"])
    if expected is not None:
        flagged = fitted[free] > thresholds["likely"]
        found["precision"] = float(t[free][flagged].mean())
        found["expected"] = [expected.value, expected.low, expected.high]
    return found


def validity(calibration: Any, test: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """What normal test rows make of p-values and thresholds that promise a share of them."""
    p = calibration.p_values(test)
    chosen = select_at_fdr(p, 0.2, len(calibration.normals)).selected
    return {
        "p <= 0.05": float((p[~truth] <= 0.05).mean()),
        "p <= 0.1": float((p[~truth] <= 0.1).mean()),
        "false-alarms:0.1": float((test[~truth] > FalseAlarms(0.1).of(calibration)).mean()),
        "false discoveries at 0.2": float((~truth[chosen]).mean()) if chosen.any() else 0.0,
    }


def best_f1(s: np.ndarray, t: np.ndarray) -> float:
    """The highest F1 of any threshold."""
    found = np.cumsum(t[np.argsort(-s)])
    return float((2 * found / (np.arange(1, len(t) + 1) + t.sum())).max())


def result(flagged: np.ndarray, t: np.ndarray) -> list[float]:
    """F1, precision, recall and the share that is flagged."""
    hits = float((flagged & t).sum())
    many, all_of = float(flagged.sum()), float(t.sum())
    return [2 * hits / (many + all_of), hits / max(many, 1), hits / all_of, many / len(t)]


def losses(p: np.ndarray, t: np.ndarray, rate: float) -> dict[str, float]:
    """Brier and log score of probabilities, of their mean's constant, and of the best constant."""
    p, best = np.clip(p, 1e-12, 1 - 1e-12), np.full(len(t), t.mean())
    constant = np.full(len(t), rate)
    scores = {"mean": float(p.mean()), "rate": rate}
    for name, q in (("", p), (" constant", constant), (" best constant", best)):
        scores[f"brier{name}"] = float(np.mean((q - t) ** 2))
        scores[f"log{name}"] = float(-np.mean(np.where(t, np.log(q), np.log(1 - q))))
    return scores


# --- simulations ----------------------------------------------------------------------------


def easy(rng: Any, anomalous: np.ndarray) -> np.ndarray:
    """Gaussians far apart."""
    return rng.normal(size=(len(anomalous), 4)) + 2.0 * anomalous[:, None]


def overlapping(rng: Any, anomalous: np.ndarray) -> np.ndarray:
    """Gaussians that overlap."""
    return rng.normal(size=(len(anomalous), 4)) + 0.5 * anomalous[:, None]


def heavy_tailed(rng: Any, anomalous: np.ndarray) -> np.ndarray:
    """Student's t with 2 degrees of freedom, shifted."""
    return rng.standard_t(2, size=(len(anomalous), 4)) + 1.5 * anomalous[:, None]


def discrete(rng: Any, anomalous: np.ndarray) -> np.ndarray:
    """Columns of at most 5 values."""
    return rng.binomial(4, np.where(anomalous, 0.55, 0.3)[:, None], (len(anomalous), 4)) * 1.0


LAWS = {law.__name__: law for law in (easy, overlapping, heavy_tailed, discrete)}


def simulated(place: tuple[str, int]) -> dict[str, Any]:
    """What one fit promises, and whether new rows keep it."""
    law, seed = place
    about = {"law": law, "draw": seed, **provenance()}
    rng = np.random.default_rng([seed, *law.encode()])
    t, t_new = rng.random(300) < 0.1, rng.random(2_000) < 0.1
    X, new = LAWS[law](rng, t), LAWS[law](rng, t_new)
    y = codes_of(rng.choice(300, 60, replace=False), t)
    if (y == ANOMALY).sum() < 2:
        return {**about, "status": SKIPPED}
    model = AutoRAD(budget=600, random_state=seed).fit(X, read_codes(y), label_source="random")
    return {**about, "status": OK, "found": _rounded(kept_promises(model, X, y, t, new, t_new))}


def kept_promises(
    model: AutoRAD, X: np.ndarray, y: np.ndarray, t: np.ndarray, new: np.ndarray, t_new: np.ndarray
) -> dict[str, float]:
    """Errors of a fit, 1 for each interval that holds the truth and 0 for one that does not."""
    found, s, free = model.calibration_, model.anomaly_score(new), y == UNLABELLED
    at, true = model.anomaly_threshold, float(roc_auc_score(t_new, s))
    flagged = model.anomaly_score(X[free]) > at
    expected = found.expected_precision(at)
    told = losses(found.anomaly_probability(s), t_new, found.pi_n)
    return {
        **{"test AUC": true, "nested AUC less it": model.auc_.value - true},
        "AUC covered": float(model.auc_.low <= true <= model.auc_.high),
        "rate covered": float(found.rate.low <= t[free].mean() <= found.rate.high),
        "error of the rate": abs(found.rate.value - float(t[free].mean())),
        "F1 / best": result(s > at, t_new)[0] / best_f1(s, t_new),
        "expected precision covered": float(
            expected.low <= t[free][flagged].mean() <= expected.high
        ),
        "Brier not above the constant's": float(told["brier"] <= told["brier constant"] + 1e-12),
        "mean probability - rate": abs(told["mean"] - told["rate"]),
        **validity(found, s, t_new),
    }


def simulate(path: Path, draws: int, processes: int) -> dict[str, Any]:
    """Means over draws, law by law, with what chance leaves open (standard errors).

    Each draw is a line of `path`; those that are there already are not drawn again. All laws have
    a draw before the next one begins, so that a run may be stopped at any time.
    """
    with open_records(path) as records:
        there = {(row["law"], row["draw"]) for row in records.rows}
        wanted = [(law, draw) for draw in range(draws) for law in LAWS]
        with ProcessPoolExecutor(processes) as pool:
            for row in pool.map(simulated, [each for each in wanted if each not in there]):
                records.append(row)
                print(row["law"], row["draw"], row["status"], flush=True)
        rows = [row for row in records.rows if (row["law"], row["draw"]) in set(wanted)]
    commits = sorted({row["commit"] for row in rows})
    return {"commits": commits, "laws": {law: means_of(rows, law) for law in LAWS}}


def means_of(rows: list[dict[str, Any]], law: str) -> dict[str, Any]:
    """Means and standard errors of the draws of a law."""
    kept = [row["found"] for row in rows if row["law"] == law and row["status"] == OK]
    values = {key: np.array([each[key] for each in kept]) for key in (kept[0] if kept else ())}
    return {
        "draws": len(kept),
        **_rounded({key: float(value.mean()) for key, value in values.items()}),
        "standard errors": _rounded(
            {key: float(value.std() / len(value) ** 0.5) for key, value in values.items()}
        ),
    }


# --- figures --------------------------------------------------------------------------------


def summary(rows: list[dict[str, Any]], word: str) -> dict[str, Any]:
    """What the issue of decisions asks for, over some records, with labels taken for `word`."""
    rows = [row for row in rows if row.get(word, {}).get("rate") is not None]
    if not rows:
        return {}
    own = [row[word] for row in rows]
    rate = np.array([each["rate"] for each in own])
    true = np.array([row["true_rate"] for row in rows])
    found: dict[str, Any] = {
        "tables": len(rows),
        "true rate": true.mean(),
        "estimated": rate[:, 0].mean(),
        "mean error": np.abs(rate[:, 0] - true).mean(),
        "coverage": ((rate[:, 1] <= true) & (true <= rate[:, 2])).mean(),
        "width": (rate[:, 2] - rate[:, 1]).mean(),
    }
    several = [row for row in rows if row["labelled_anomalies"] >= 3]
    lists = [row[word]["rules"]["likely"] for row in several]
    for on in ("test", "unlabelled"):
        best = np.mean([row["best_f1"][on] for row in several])
        found[f"{on}: best F1"] = best
        for rule in RULES:
            f1 = [row[word]["rules"].get(rule, {}).get(on, [0.0])[0] for row in several]
            found[f"{on}: F1 of {rule} / best"] = np.mean(f1) / best
        found[f"{on}: precision"] = np.mean([each[on][1] for each in lists])
        found[f"{on}: recall"] = np.mean([each[on][2] for each in lists])
        found[f"{on}: share flagged"] = np.mean([each[on][3] for each in lists])
        found[f"{on}: nothing flagged"] = np.mean([each[on][3] == 0 for each in lists])
        told = [each[f"probabilities on {on}"] for each in own if f"probabilities on {on}" in each]
        found |= _of_probabilities(on, told)
    held = [each["validity"] for each in own if "validity" in each]
    for name in held[0] if held else ():
        found[name] = np.mean([each[name] for each in held])
    sure = [each for each in own if "expected" in each]
    inside = [each["expected"][1] <= each["precision"] <= each["expected"][2] for each in sure]
    found["expected precision"] = np.mean([each["expected"][0] for each in sure])
    found["precision found"] = np.mean([each["precision"] for each in sure])
    found["expected precision covers"] = np.mean(inside)
    return {key: round(float(value), 4) for key, value in found.items()}


def _of_probabilities(on: str, told: list[dict[str, float]]) -> dict[str, float]:
    better = {
        kind: np.mean([each[kind] <= each[f"{kind} constant"] + 1e-12 for each in told])
        for kind in ("brier", "log")
    }
    strictly = [each["brier"] <= each["brier best constant"] + 1e-12 for each in told]
    distance = [abs(each["mean"] - each["rate"]) for each in told if "rate" in each]
    return {
        f"{on}: Brier not above the constant's": better["brier"],
        f"{on}: log not above the constant's": better["log"],
        f"{on}: Brier not above the true rate's": np.mean(strictly),
        **({f"{on}: mean probability - rate": np.mean(distance)} if distance else {}),
    }


def nested(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Optimism and coverage of the printed AUC."""
    rows = [row for row in rows if row.get("nested_auc")]
    test = np.array([row["test_auc"] for row in rows])
    value, low, high = np.array([row["nested_auc"] for row in rows]).T
    return {
        "tables": len(rows),
        "optimism": round(float((value - test).mean()), 4),
        "standard error": round(float((value - test).std() / len(rows) ** 0.5), 4),
        "optimism with one set of weights": round(
            float(np.mean([row["plain_auc"] for row in rows]) - test.mean()), 4
        ),
        "coverage": round(float(((low <= test) & (test <= high)).mean()), 4),
    }


def by_band(rows: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Records by the test AUC of their table."""
    ends = (0.0, *BANDS, 1.01)
    for low, high in pairwise(ends):
        yield f"{low:g} to {min(high, 1):g}", [r for r in rows if low <= r["test_auc"] < high]
    yield "all", rows


def report(folder: Path) -> dict[str, Any]:
    """All figures, and a record for each fit."""
    records = [found for path in sorted(folder.glob("*.npz")) if (found := judge(path))]
    fitted = [row for row in records if "test_auc" in row]
    figures: dict[str, Any] = {}
    for kind in ("random", "selected"):
        for size in sorted({row["size"] for row in fitted}):
            of = [r for r in fitted if (r["labels"] == "random") == (kind == "random")]
            of = [row for row in of if row["size"] == size]
            for word in ("random", "chosen", "unknown", "each"):
                bands = {band: summary(own, word) for band, own in by_band(of)}
                if bands["all"]:
                    figures[f"{kind}, {size} labels, taken for {word}"] = bands
            if of:
                figures[f"{kind}, {size} labels, nested AUC"] = {
                    band: nested(own) for band, own in by_band(of) if own
                }
    order = sorted({row["table"] for row in records})  # names are digits, which set the order
    later = [r for r in fitted if r["table"] in order[DEVELOPED_ON:] and r["labels"] == "random"]
    for word in ("random", "unknown"):
        if found := summary([row for row in later if row["size"] == "60"], word):
            figures[f"the tables that nothing was chosen on, taken for {word}"] = {"all": found}
    for kind in SELECTED:
        of = [row for row in fitted if row["labels"] == kind]
        for word in ("chosen", "unknown", "each"):
            if found := summary(of, word):
                figures[f"{kind}, taken for {word}"] = {"all": found}
    return {**provenance(), "figures": figures, "records": records}


def markdown(figures: dict[str, Any]) -> str:
    """The figures as tables, a line for each band."""
    parts = []
    for title, bands in figures.items():
        shown = [(band, found) for band, found in bands.items() if found]
        columns = [name for name in shown[-1][1] if not name.startswith("unlabelled: F1 of")]
        head = ["test AUC", *columns]
        lines = [[band, *(f"{found.get(name, '')}" for name in columns)] for band, found in shown]
        turned = list(zip(head, *lines, strict=True))
        rows = ["| " + " | ".join(row) + " |" for row in turned]
        rows.insert(1, "|---" * (len(lines) + 1) + "|")
        parts.append(f"### {title}\n\n" + "\n".join(rows))
    return "\n\n".join(parts)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else value


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    fits = commands.add_parser("fit")
    fits.add_argument("tables", type=Path)
    fits.add_argument("folder", type=Path)
    fits.add_argument("--tables", dest="n_tables", type=int, default=110)
    fits.add_argument("--settings", nargs="+", default=["random/60", "rotate/60", "random/5"])
    fits.add_argument("--processes", type=int, default=2)
    judged = commands.add_parser("judge")
    judged.add_argument("folder", type=Path)
    judged.add_argument("output", type=Path)
    drawn = commands.add_parser("simulate")
    drawn.add_argument("output", type=Path)
    drawn.add_argument("--draws", type=int, default=200)
    drawn.add_argument("--processes", type=int, default=2)
    told = parser.parse_args()
    if told.command == "simulate":
        records = told.output.parent / "records" / "simulations.jsonl"
        found = simulate(records, told.draws, told.processes)
        told.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        return
    if told.command == "fit":
        run(told.tables, told.folder, told.n_tables, told.settings, told.processes)
        return
    found = report(told.folder)
    figures = json.dumps(found.pop("figures"), indent=1)
    records = ",\n".join(json.dumps(_rounded(row)) for row in found.pop("records"))
    about = json.dumps(found, indent=1)[:-2]
    text = f'{about},\n"figures": {figures},\n"records": [\n{records}\n]\n}}\n'
    told.output.write_text(text, encoding="utf-8")
    print(markdown(json.loads(text)["figures"]))


if __name__ == "__main__":
    main()
