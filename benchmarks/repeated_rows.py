"""What repeated rows do to the promises of `AutoRAD`: AUC, p-values, rate, rows flagged.

    OMP_NUM_THREADS=1 python benchmarks/repeated_rows.py results/decisions/repeated_rows.json

Each draw has 1,000 rows of one of the four laws of `benchmarks/decisions.py`, 10 % of them
anomalies, and 200 labelled at random. A share of the rows is then appended once more with their
labels, exactly or ("nearly") with noise of a millionth. With "labelled last", 200 of all rows are
labelled after that, so that few copies of a labelled row are labelled, too. New rows of the same
law say what is true.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from decisions import LAWS, codes_of
from sklearn.metrics import roc_auc_score

from riskad import AutoRAD
from riskad.core.labels import UNLABELLED, read_codes

ROWS, LABELLED, NEW, RATE = 1_000, 200, 4_000, 0.1
SHARES = (0.0, 0.2, 0.5, 1.0)
LEVEL = 0.05


def draw(
    law: str, share: float, number: int, nearly: bool, labelled_last: bool
) -> tuple[np.ndarray, ...]:
    """Rows with copies, their codes and kinds, and new rows with theirs."""
    rng = np.random.default_rng([number, *law.encode()])
    t, t_new = rng.random(ROWS) < RATE, rng.random(NEW) < RATE
    X, new = LAWS[law](rng, t), LAWS[law](rng, t_new)
    again = rng.choice(ROWS, round(share * ROWS), replace=False)
    rows = np.append(np.arange(ROWS), again)
    n_drawn = len(rows) if labelled_last else ROWS
    codes = codes_of(rng.choice(n_drawn, LABELLED, replace=False), t[rows[:n_drawn]])
    codes = codes if labelled_last else codes[rows]
    X = X[rows]
    if nearly:
        X[ROWS:] += 1e-6 * rng.normal(size=(len(again), X.shape[1]))
    return X, codes, t[rows], new, t_new


def judge(law: str, share: float, number: int, nearly: bool, labelled_last: bool) -> dict[str, Any]:
    """What a fit promises, and what new rows and its own rows show."""
    X, codes, t, new, t_new = draw(law, share, number, nearly, labelled_last)
    model = AutoRAD(random_state=number).fit(X, read_codes(codes), label_source="random")
    scores, free = model.anomaly_score(new), codes == UNLABELLED
    auc, rate = float(roc_auc_score(t_new, scores)), model.calibration_.rate
    return {
        "reported AUC": model.auc_.value,
        "AUC of new rows": auc,
        "AUC covered": float(model.auc_.low <= auc <= model.auc_.high),
        "normal rows with p <= 0.05": float((model.p_values(new[~t_new]) <= LEVEL).mean()),
        "new rows flagged": float((model.predict(new) == -1).mean()),
        "rate": rate.value,
        "rate covered": float(rate.low <= t[free].mean() <= rate.high),
    }


def settings() -> Iterator[tuple[str, float, bool, bool]]:
    """All settings: law, share, nearly, labelled last."""
    for law in LAWS:
        for share in SHARES:
            yield law, share, False, False
        yield law, 0.5, True, False
        yield law, 0.5, False, True


def page(rows: list[dict[str, Any]]) -> str:
    """All settings in a table; what was before copies were held out together stands in brackets."""
    lines = [
        "# Rows that occur twice",
        "",
        "1,000 rows, 200 of them labelled, 8 draws of each law; then some rows occur again.",
        "In brackets: before copies were held out together (commit 7f0887f). Rows of the discrete",
        "law agree by nature; their copies are found by labels alone, not in every draw. Made by",
        "`python benchmarks/repeated_rows.py results/decisions/repeated_rows.json`.",
        "",
        "| law | repeated | reported AUC | AUC of new rows | covered | normal rows with p <= 0.05 |"
        " new rows flagged | rate covered |",
        "|---|---|---|---|---|---|---|---|",
    ]
    columns = ("reported AUC", "AUC of new rows", "AUC covered", "normal rows with p <= 0.05")
    columns += ("new rows flagged", "rate covered")
    digits = ("{:.3f}", "{:.3f}", "{:.0%}", "{:.1%}", "{:.0%}", "{:.0%}")
    for row in rows:
        what = f"{row['repeated']:.0%}" + ", nearly" * row["nearly"]
        what += ", labelled last" * row["labelled last"]
        cells = (
            f"{form.format(row[name])} ({form.format(row['before'][name])})"
            for name, form in zip(columns, digits, strict=True)
        )
        lines.append(f"| {' | '.join([row['law'].replace('_', ' '), what, *cells])} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run all draws and write their means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--laws", nargs="*", default=list(LAWS))
    arguments = parser.parse_args()
    known = json.loads(arguments.out.read_text()) if arguments.out.exists() else []
    rows: list[dict[str, Any]] = []
    for law, share, nearly, last in settings():
        if law not in arguments.laws:
            continue
        draws = [judge(law, share, number, nearly, last) for number in range(arguments.draws)]
        mean = {key: round(float(np.mean([d[key] for d in draws])), 4) for key in draws[0]}
        about = {"law": law, "repeated": share, "nearly": nearly, "labelled last": last}
        before = next((old["before"] for old in known if about.items() <= old.items()), mean)
        rows.append({**about, "draws": len(draws), **mean, "before": before})
        print(rows[-1], flush=True)
    arguments.out.write_text(json.dumps(rows, indent=1) + "\n")
    arguments.out.with_suffix(".md").write_text(page(rows))


if __name__ == "__main__":
    main()
