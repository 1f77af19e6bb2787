"""Wrong labels: what they cost, which are found, and what a fit gains by setting them aside.

A fifth of the training rows of each table is labelled, and some labels are turned around: of all
labelled rows, of anomalies or of normal rows alone, or of rows near the boundary, which are those
nearest to one half by the out-of-bag votes of a forest that knows all labels. `AutoRAD` is fitted
to them, `find_label_issues` looks at its held-out scores, and it is fitted again: with the labels
that look wrong set aside (unlabelled), or turned around. Peers see the same labels. cleanlab ranks
the same labels by its self-confidence, and names some by confident learning, both with our held-out
probabilities and with those of extra trees.

Whether to fit again, and the p-value from which on labels are named, were chosen on tables on which
the network was trained; the page is about kept tables. No test row took part in either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from experiments.field.cells import make_estimator
from experiments.field.learning_curves import draw_rows
from experiments.field.ranking import METRICS
from experiments.pretraining.split import hashes, load_table
from experiments.runner import Cell, Experiment, NotAvailable, seed_of
from experiments.summaries import Row, group, ok_rows
from experiments.tables import Table, markdown_table, write_text
from riskad import AutoRAD
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.decisions.label_issues import LEVEL, find_label_issues, number_interval

BUDGET = "20 %"
N_KEPT, N_TRAIN = 60, 20
TOO_FEW = (
    *("0604c3af0f7a", "0e90f96379e5", "30e5f8cdd41d", "36ea89c95a32", "39e2c5f7017c"),
    *("0e879000fd44", "17a7a353c2e3", "1f5b0b6b6090", "313587dbeeb4", "45e905222ae6"),
    "4747c8875add",
)
"""Tables before the last one chosen of which fewer than ten anomalies are labelled."""
CONDITIONS = (
    ("clean", 0.0),
    ("all", 0.1),
    ("all", 0.2),
    ("all", 0.05),
    ("boundary", 0.1),
    ("anomalies", 0.1),
    ("normals", 0.1),
)
"""Which labels are turned around, and which share of these."""
PEERS = ("CatBoost", "ExtraTrees", "LogReg", "RandomForest")
REFITS = ("set aside", "turned around")
LIKELY = 0.5
STRICT = 0.05  # the largest p-value at which a second fit lost nothing on clean tables to choose by


def tables(side: str, count: int) -> list[str]:
    """The first tables of a side, in the order of hashes, with ten labelled anomalies or more."""
    return [table for table in sorted(hashes(side)) if table not in TOO_FEW][:count]


def cells() -> Iterator[Cell]:
    """Kept tables first, then those to choose by; AutoRAD's cells hold all its fits."""
    kept, train = tables("kept", N_KEPT), tables("train", N_TRAIN)
    for flipped, share in CONDITIONS:
        for table in kept:
            yield Cell(dataset=table, method="AutoRAD", side="kept", flipped=flipped, share=share)
        for table in train if flipped in ("clean", "all") else []:
            yield Cell(dataset=table, method="AutoRAD", side="train", flipped=flipped, share=share)
    for method in PEERS:
        for flipped, share in CONDITIONS:
            for table in kept:
                yield Cell(dataset=table, method=method, side="kept", flipped=flipped, share=share)


def run_cell(cell: Cell) -> dict[str, Any]:
    """Fit to labels of which some are turned around, and score the test rows."""
    table = cell["dataset"]
    X, y = load_table(table)
    train, test, right = draw_rows(y, BUDGET, table)
    rng = np.random.default_rng(seed_of(0, table, cell["flipped"], cell["share"], "flips"))
    codes = turn_around(X[train], y[train], right, cell["flipped"], cell["share"], rng)
    labelled = right != UNLABELLED
    wrong = np.flatnonzero((codes != right)[labelled])
    record: dict[str, Any] = {"n_labelled": int(labelled.sum()), "n_wrong": len(wrong)}
    if cell["method"] != "AutoRAD":
        peer = make_estimator(cell["method"], seed=0).fit(X[train], codes)
        return record | _ranking(y[test], -peer.score_samples(X[test]))
    model = AutoRAD(n_jobs=1, random_state=0).fit(X[train], codes)
    record |= _ranking(y[test], -model.score_samples(X[test]))
    scores = held_out(model, X[train], codes)
    issues = find_label_issues(scores, codes)
    forest = ExtraTreesClassifier(200, random_state=0)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    votes = cross_val_predict(
        forest, X[train][labelled], codes[labelled] == ANOMALY, cv=folds, method="predict_proba"
    )
    chances = model.calibration_.anomaly_probability(scores[labelled])
    p_wrong = issues.probabilities[labelled]
    record |= compare_ranks(codes[labelled], wrong, p_wrong, chances, votes[:, 1])
    record["p_value"] = issues.p_value
    if issues.expected is not None:
        record["expected"] = round(issues.expected.value, 2)
    doubtful = np.nan_to_num(issues.probabilities) > LIKELY
    for refit in REFITS if cell["flipped"] in ("clean", "all", "boundary") else ():
        changed = codes.copy()
        changed[doubtful] = UNLABELLED if refit == "set aside" else -codes[doubtful]
        name = refit.replace(" ", "_")
        kinds = [(changed == kind).sum() for kind in (ANOMALY, NORMAL)]
        if not doubtful.any() or min(kinds) < 2:
            record |= {f"{key}_{name}": record[key] for key in ("auc", "average_precision")}
            continue
        again = AutoRAD(n_jobs=1, random_state=0).fit(X[train], changed)
        ranked = _ranking(y[test], -again.score_samples(X[test]))
        record |= {f"{key}_{name}": value for key, value in ranked.items()}
        if refit == "set aside":  # their labels are not seen by any fit, those of others not by one
            scores = held_out(again, X[train], changed)
            scores[doubtful] = -again.score_samples(X[train][doubtful])
            second = np.nan_to_num(find_label_issues(scores, codes).probabilities[labelled])
            record["hits_second"] = _hits(second, wrong)
    return record


def turn_around(
    X: np.ndarray,
    y: np.ndarray,
    right: np.ndarray,
    flipped: str,
    share: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """The codes with a share of the labels of some rows turned around."""
    pools = {"anomalies": right == ANOMALY, "normals": right == NORMAL}
    pool = np.flatnonzero(pools.get(flipped, right != UNLABELLED))
    count = round(share * len(pool))
    if flipped == "boundary":
        forest = RandomForestClassifier(300, oob_score=True, random_state=0).fit(X, y)
        votes = np.nan_to_num(forest.oob_decision_function_[pool, 1], nan=0.5)
        pool = pool[np.argsort(np.abs(votes - 0.5), kind="stable")][: 2 * count]
    codes = right.copy()
    places = rng.choice(pool, count, replace=False)
    codes[places] = -codes[places]
    return codes


def held_out(model: AutoRAD, X: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Anomaly scores of labelled rows by fits that have not seen the label; NaN for others."""
    from riskad.rows.equal_rows import number_copies, repeats_label

    single = (codes != UNLABELLED) & ~repeats_label(codes, number_copies(X, codes))
    scores = np.full(len(codes), np.nan)
    if single.sum() == len(model.calibration_.scores):
        scores[single] = model.calibration_.scores
    return scores


def _ranking(truth: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    return {
        "auc": round(float(roc_auc_score(truth, scores)), 5),
        "average_precision": round(float(average_precision_score(truth, scores)), 5),
    }


def compare_ranks(
    codes: np.ndarray,
    wrong: np.ndarray,
    p_wrong: np.ndarray,
    chances: np.ndarray,
    votes: np.ndarray,
) -> dict[str, Any]:
    """Wrong labels among as many as are wrong, by rank, and labels that each method names.

    `chances` and `votes` are held-out probabilities of being an anomaly, by `AutoRAD` and by extra
    trees, for the labelled rows.
    """
    try:
        from cleanlab.filter import find_label_issues as confident_learning
        from cleanlab.rank import get_label_quality_scores
    except ImportError as error:
        reason = f"{error}. To install it: pip install -r experiments/requirements.txt"
        raise NotAvailable(reason, method="AutoRAD") from error
    y = (codes == ANOMALY).astype(int)
    p_wrong = np.nan_to_num(p_wrong)
    named = p_wrong > LIKELY
    record = {"hits": _hits(p_wrong, wrong)}
    record |= {"likely": int(named.sum()), "likely_right": int(named[wrong].sum())}
    for name, p in (("ours", np.nan_to_num(chances, nan=0.5)), ("forest", votes)):
        both = np.column_stack([1 - p, p])
        doubt = 1 - get_label_quality_scores(y, both, method="self_confidence")
        record[f"hits_self_{name}"] = _hits(doubt, wrong)
        try:
            found = confident_learning(y, both, return_indices_ranked_by="self_confidence")
        except ValueError:  # no label is confidently of one kind
            found = np.empty(0, dtype=int)
        record[f"hits_confident_{name}"] = int(np.isin(found[: len(wrong)], wrong).sum())
        record[f"named_confident_{name}"] = len(found)
    return record


def _hits(doubt: np.ndarray, wrong: np.ndarray) -> int:
    """How many of the most doubtful labels are wrong, of as many as are wrong."""
    return int(np.isin(np.argsort(-doubt, kind="stable")[: len(wrong)], wrong).sum())


# --- the page ----------------------------------------------------------------------------


def report(frame: pl.DataFrame, folder: Path) -> None:
    """Write wrong_labels.md."""
    rows = ok_rows(frame)
    kept = [row for row in rows if row["side"] == "kept"]
    train = [row for row in rows if row["side"] == "train"]
    parts = [_INTRODUCTION, _FOUND, _found(kept), _named(kept), _COST]
    parts += [_cost(kept, metric) for metric in METRICS.values()]
    parts += [_REFITS, _refits(train, "20 tables to choose by"), _refits(kept, "kept tables")]
    write_text(folder / "wrong_labels.md", "\n\n".join(part.strip() for part in parts) + "\n")


def _by_condition(rows: Sequence[Row], method: str) -> dict[Any, dict[str, Row]]:
    own = [row for row in rows if row["method"] == method]
    return {
        key: {row["dataset"]: row for row in each}
        for key, each in group(own, "flipped", "share").items()
    }


def _found(kept: Sequence[Row]) -> str:
    """Precision, which is recall, among as many labels as are wrong."""
    lines, by_flips = [], dict[str, list[list[float]]]()
    for condition, rows in _by_condition(kept, "AutoRAD").items():
        if condition[0] == "clean":
            continue
        shares = [
            float(np.mean([row[name] / row["n_wrong"] for row in rows.values()]))
            for name in RANKINGS
        ]
        by_flips.setdefault(condition[0], []).append(shares)
        lines.append([*_say_condition(condition), str(len(rows)), *(f"{s:.3f}" for s in shares)])
    head = ("turned around", "share", "tables", *RANKINGS.values())
    (ours, *theirs), (near, *others) = (
        np.mean(by_flips[flipped], axis=0) for flipped in ("all", "boundary")
    )
    means = (
        f"In the mean over shares of all labels ours is {ours:.3f} and the best of cleanlab's "
        f"{max(theirs):.3f}, near the boundary {near:.3f} and {max(others):.3f}."
    )
    return f"{markdown_table(Table('', head, lines))}\n\n{means}"


def _named(kept: Sequence[Row]) -> str:
    clean = list(_by_condition(kept, "AutoRAD")["clean", 0.0].values())
    ours = np.mean([named(row) / row["n_labelled"] for row in clean])
    tables_with = sum(named(row) > 0 for row in clean)
    theirs = [
        np.mean([row[f"named_confident_{side}"] / row["n_labelled"] for row in clean])
        for side in ("ours", "forest")
    ]
    covered, random_ones, boundary = (
        [held(row) for row in kept if row.get("expected") is not None and row["flipped"] in flipped]
        for flipped in (("clean", "all"), ("all",), ("boundary",))
    )
    standing_out = [
        held(row)
        for row in kept
        if row.get("expected") is not None and row["flipped"] == "all" and row["p_value"] <= LEVEL
    ]
    return (
        f"Where all labels are right, {ours:.2%} of them look wrong, on {tables_with} of "
        f"{len(clean)} tables; confident learning names {theirs[0]:.1%} with our probabilities and "
        f"{theirs[1]:.1%} with those of extra trees.\n\n"
        f"The interval of the number of wrong labels holds it in {np.mean(random_ones):.0%} of "
        f"{len(random_ones)} fits with labels turned around at random ({np.mean(standing_out):.0%} "
        f"of the {len(standing_out)} in which labels stand out), in {np.mean(covered):.0%} if "
        f"clean labels count, too, and near the boundary in {np.mean(boundary):.0%}: there it is "
        "far too low, since overlap and wrong labels look alike. It was chosen on the 20 tables to "
        "choose by. Quantiles of the model's own errors, tried before, held the number in 64% of "
        "the same fits."
    )


def held(row: Row) -> bool:
    """Whether the interval holds the number of wrong labels."""
    low, high = number_interval(row["expected"], row["p_value"], row["n_labelled"])
    return low <= row["n_wrong"] <= high


def named(row: Row) -> int:
    """How many labels look wrong by the p-value that was chosen."""
    p_value = row["p_value"]
    return row["likely"] if p_value is not None and p_value <= LEVEL else 0


def _cost(kept: Sequence[Row], metric: str) -> str:
    lines = []
    by_method = {name: _by_condition(kept, name) for name in ("AutoRAD", *PEERS)}
    for condition in CONDITIONS:
        cells = []
        # The same tables for all methods, if AutoRAD has been run on some.
        own = by_method["AutoRAD"].get(condition, {})
        among = own or by_method["ExtraTrees"].get(condition, {})
        for conditions in by_method.values():
            clean, rows = conditions.get(("clean", 0.0), {}), conditions.get(condition, {})
            both = [table for table in rows if table in clean and table in among]
            if not both:
                cells.append("")
            elif condition[0] == "clean":
                cells.append(f"{np.mean([clean[table][metric] for table in both]):.4f}")
            else:
                losses = [clean[table][metric] - rows[table][metric] for table in both]
                cells.append(f"-{np.mean(losses):.4f}".replace("--", "+"))
        lines.append([*_say_condition(condition), str(len(among)), *cells])
    head = ("turned around", "share", "tables", *by_method)
    name = next(key for key, value in METRICS.items() if value == metric)
    return f"**{name}**\n\n{markdown_table(Table('', head, lines))}"


def _refits(rows: Sequence[Row], what: str) -> str:
    fitted_again = [row for row in rows if row.get("auc_set_aside") is not None]
    lines, conditions = [], _by_condition(fitted_again, "AutoRAD")
    clean = conditions["clean", 0.0]
    for condition, own in conditions.items():
        both = [table for table in own if table in clean]
        for name, metric in METRICS.items():
            cells = []
            ways = (("", 1.0), ("_set_aside", STRICT), ("_set_aside", LEVEL))
            for refit, level in (*ways, *((r, 1.0) for r in _SUFFIXES)):
                changes = []
                for table in both:
                    row = own[table]
                    p_value = 1.0 if row["p_value"] is None else row["p_value"]
                    value = row[f"{metric}{refit}"] if p_value <= level else row[metric]
                    changes.append(value - clean[table][metric])
                cells.append(f"{np.mean(changes):+.4f}")
            lines.append([*_say_condition(condition), name, *cells])
    head = ("turned around", "share", "metric", "as it is", f"set aside if p is at most {STRICT:g}")
    head = (*head, f"if at most {LEVEL:g}", "set aside", "turned around again")
    table = Table("", head, lines)
    return f"**{what}**\n\n{markdown_table(table)}"


def _say_condition(condition: tuple[str, float]) -> tuple[str, str]:
    return condition[0], f"{condition[1]:.0%}"


_SUFFIXES = tuple(f"_{refit.replace(' ', '_')}" for refit in REFITS)
RANKINGS = {
    "hits": "ours",
    "hits_self_ours": "self-confidence, our probabilities",
    "hits_confident_ours": "confident learning, our probabilities",
    "hits_self_forest": "self-confidence, extra trees",
    "hits_confident_forest": "confident learning, extra trees",
}
_INTRODUCTION = f"""
# Wrong labels

    RISKAD_DATA=... python -m experiments run wrong-labels

{N_KEPT} kept tables of [pretrained](../pretrained), a fifth of the training rows labelled, of which
some labels are turned around at random: of all labelled rows, of anomalies or of normal rows alone,
or of rows near the boundary. Where a line has fewer tables, it has not been run to the end. How it
is done is said in `experiments/studies/wrong_labels.py`.
"""
_FOUND = """
## Which are found

The share of wrong labels among the most doubtful ones, as many as are wrong: precision, which is
recall there. cleanlab 2.9 ranks by self-confidence, or names labels by confident learning, with our
held-out probabilities or those of 200 extra trees.
"""
_COST = """
## What they cost

Mean of test rows with clean labels, and what wrong ones cost. The labels are the same for all
methods, and test rows have the right ones.
"""
_REFITS = """
## Fits that try to survive them

Changes against clean labels of `AutoRAD` as it is, and fitted again after labels that are more
probably wrong than not were set aside (if the p-value is small, or always) or turned around. Only
with the strictest p-value nothing is lost on the clean tables to choose by, and there the gain on
kept tables with a tenth of wrong labels is within its standard error. None is adopted: a second fit
doubles the time, and would set aside anomalies of a kind that the others do not teach, silently.
"""

EXPERIMENTS = (
    Experiment(
        name="wrong-labels",
        title="What wrong labels cost, and which are found",
        cells=cells,
        run_cell=run_cell,
        report=report,
        folder="alarms",
        needs="tables/tables.npz (RISKAD_DATA), CatBoost, cleanlab",
        minutes="3 h",
    ),
)
