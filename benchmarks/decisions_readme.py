"""Write the tables of `results/decisions/README.md` from the figures beside it.

    python benchmarks/decisions_readme.py results/decisions

Each part of the page between `<!-- NAME -->` and `<!-- /NAME -->` is made anew by `PARTS[NAME]`,
from `tables.json` (`benchmarks/decisions.py judge`), `simulations.json` (`... simulate`) and
`selected.json` (`benchmarks/selected_labels.py`); the rest is left as it is.
`tests/test_results.py` has the page compared with what this writes.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

Figures = dict[str, Any]
Line = tuple[str, str, bool]

BANDS = {
    "0 to 0.7": "below 0.70",
    "0.7 to 0.85": "0.70 to 0.85",
    "0.85 to 0.95": "0.85 to 0.95",
    "0.95 to 1": "above 0.95",
    "all": "all",
}
SELECTED = ("more", "rule", "easy", "suggested")
RULES = {
    "likely": "likely (default)",
    "rate": "as many as the rate",
    "f1": "f1 by labelled anomalies",
    "p > 1/2": "probability > 1/2",
    "risk": "zero of the risk",
}
WORDS = {"chosen": "chosen", "unknown": "nothing", "each": "which rows were suggested"}


# --- words and lines ------------------------------------------------------------------------


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    rows = ["| " + " | ".join(row) + " |" for row in (head, *lines)]
    return "\n".join([rows[0], "|---" * len(head) + "|", *rows[1:]])


def share(value: float) -> str:
    return f"{value:.0%}"


def number(value: float) -> str:
    return f"{value:.3f}"


def signed(value: float) -> str:
    return f"{value:+.3f}"


def whole(value: float) -> str:
    return f"{value:.0f}"


def by_band(bands: Figures, columns: dict[str, tuple[str, Callable[[float], str]]]) -> str:
    """A line for each band of test AUC; columns are figures and how they are written."""
    lines = [
        [name, *(how(bands[band][key]) for key, how in columns.values())]
        for band, name in BANDS.items()
        if bands.get(band)
    ]
    return table(["test AUC", *columns], lines)


def ends(values: Sequence[float], how: Callable[[float], str]) -> str:
    """The least and the largest."""
    low, high = how(min(values)), how(max(values))
    return low if low == high else f"{low} to {high}"


# --- tables of the page ---------------------------------------------------------------------


def rates(figures: Figures, which: str) -> str:
    """The anomaly rate."""
    columns = {
        "tables": ("tables", whole),
        "true rate": ("true rate", number),
        "estimated": ("estimated", number),
        "mean error": ("mean error", number),
        "interval covers": ("coverage", share),
        "width": ("width", number),
    }
    return by_band(figures[which], columns)


def lists(figures: Figures, which: str) -> str:
    """The default list on test rows."""
    columns = {
        "best F1": ("test: best F1", number),
        "F1 / best": ("test: F1 of likely / best", number),
        "precision": ("test: precision", number),
        "recall": ("test: recall", number),
        "share flagged": ("test: share flagged", number),
        "nothing flagged": ("test: nothing flagged", share),
    }
    return by_band(figures[which], columns)


def probabilities(figures: Figures, which: str) -> str:
    """Expected precision and probabilities."""
    columns = {
        "expected precision": ("expected precision", number),
        "found": ("precision found", number),
        "interval covers": ("expected precision covers", share),
        "Brier <= constant": ("test: Brier not above the constant's", share),
        "log <= constant": ("test: log not above the constant's", share),
        "mean probability - rate": ("test: mean probability - rate", number),
    }
    return by_band(figures[which], columns)


def aucs(figures: Figures, which: str) -> str:
    """The printed AUC less the test AUC."""
    lines = [
        [
            name,
            whole(found["tables"]),
            f"{signed(found['optimism'])} ({number(found['standard error'])})",
            signed(found["optimism with one set of weights"]),
            share(found["coverage"]),
        ]
        for band, name in BANDS.items()
        if (found := figures[which].get(band))
    ]
    head = ["test AUC", "tables", "nested (standard error)", "with one set of weights"]
    return table([*head, "interval covers"], lines)


def rules(figures: Figures) -> str:
    """F1 of five rules over the best."""
    bands = figures["random, 60 labels, taken for random"]
    columns = {
        said: (f"test: F1 of {rule} / best", lambda value: f"{value:.2f}")
        for rule, said in RULES.items()
    }
    return by_band(bands, columns)


def selections(figures: Figures) -> str:
    """What becomes of rate, list and expected precision, by the kind of selection."""
    lines = [
        [
            kind,
            said,
            whole(found["tables"]),
            number(found["mean error"]),
            share(found["coverage"]),
            f"{found['width']:.2f}",
            f"{found['test: F1 of likely / best']:.2f}",
            share(found["test: Brier not above the constant's"]),
            share(found["expected precision covers"]),
        ]
        for kind in SELECTED
        for word, said in WORDS.items()
        if (found := figures.get(f"{kind}, taken for {word}", {}).get("all"))
    ]
    head = ["selection", "said", "tables", "mean error", "interval covers", "width", "F1 / best"]
    return table([*head, "Brier <= constant", "expected precision covers"], lines)


def simulations(found: Figures) -> str:
    """What new rows make of promises, law by law."""
    laws = found["laws"]
    names = [key for key in next(iter(laws.values())) if key not in ("draws", "standard errors")]
    lines = [["draws", *(whole(law["draws"]) for law in laws.values())]]
    lines += [[name, *(number(law[name]) for law in laws.values())] for name in names]
    return table(["", *(name.replace("_", "-") for name in laws)], lines)


def chosen(found: Figures) -> str:
    """The AUC and p-values under labels that were chosen."""
    lines = [
        [
            name.split(",")[0],
            name.split()[-2],
            whole(own["tables"]),
            *(
                f"{signed(own[f'mean {error}'])}, {number(own[f'root mean square {error}'])}"
                for error in ("error", "weighted error")
            ),
            f"{share(own['covered'])} ({own['width']:.2f})",
            f"{share(own['wider covered'])} ({own['wider width']:.2f})",
            share(own["clear"]),
            share(own["beyond"]),
            f"{own['p <= 0.1']:.1%}, {own['weighted p <= 0.1']:.1%}",
        ]
        for name, own in found["figures"].items()
    ]
    head = ["labelled", "rows", "tables", "error: mean, root mean square", "weighted"]
    head += ["interval covers (width)", "extended", "differ clearly", "beyond"]
    return table([*head, "p <= 0.1: as they are, weighted"], lines)


# --- what was wanted ------------------------------------------------------------------------

F1, BRIER = "test: F1 of likely / best", "test: Brier not above the constant's"


def wanted(figures: Figures, records: Sequence[Figures]) -> str:
    """What the page has to show, beside what was found."""
    lines = [*_of_rates(figures), *_of_lists(figures), *_of_auc(records)]
    shown = [[what, found, "yes" if met else "**no**"] for what, found, met in lines]
    return table(["wanted", "found", "met"], shown)


def _of_rates(figures: Figures) -> Iterator[Line]:
    told, untold = _random(figures, "random"), _random(figures, "unknown")
    errors = {size: _in_bands(own, "mean error") for size, own in told.items()}
    yield (
        "random labels: mean error of the rate at most 0.03 in every band of AUC",
        "; ".join(f"{ends(found, number)} ({size})" for size, found in errors.items()),
        max(max(found) for found in errors.values()) <= 0.03,
    )
    covers = [
        [value for own in word.values() for value in _in_bands(own, "coverage")]
        for word in (told, untold)
    ]
    said, unsaid = (ends(found, share) for found in covers)
    yield (
        "its 95 % interval covers at least 93 % in each band",
        f"{said} where labels are said to be random, {unsaid} where nothing is said",
        min(covers[0] + covers[1]) >= 0.93,
    )
    chosen = [_selected(figures, word)["coverage"] for word in ("chosen", "unknown")]
    yield (
        "selected labels: at least 90 %",
        "{} said to be chosen, {} where nothing is said".format(*map(share, chosen)),
        min(chosen) >= 0.9,
    )


def _of_lists(figures: Figures) -> Iterator[Line]:
    asked = [
        ("nothing flagged on at most 3 % (3 labelled anomalies)", "test: nothing flagged", -0.03),
        ("F1 of the default list at least 90 % of the best", F1, 0.9),
        ("expected precision within its interval on 90 %", "expected precision covers", 0.9),
        ("Brier score not above that of the constant, the estimated rate, on 95 %", BRIER, 0.95),
        ("mean probability within 0.02 of the rate", "test: mean probability - rate", -0.02),
    ]
    for what, key, least in asked:
        found = {size: own["all"][key] for size, own in _random(figures, "random").items()}
        found["selected"] = _selected(figures, "unknown")[key]
        how = number if "mean" in key else share
        said = ", ".join(f"{how(value)} ({name})" for name, value in found.items())
        sign = 1 if least > 0 else -1
        yield what, said, min(sign * value for value in found.values()) >= least


def _of_auc(records: Sequence[Figures]) -> Iterator[Line]:
    fits = [row for row in records if row.get("nested_auc") and row["labels"] == "random"]
    gaps = [row["nested_auc"][0] - row["test_auc"] for row in fits]
    plain = fmean(row["plain_auc"] - row["test_auc"] for row in fits)
    inside = fmean(r["nested_auc"][1] <= r["test_auc"] <= r["nested_auc"][2] for r in fits)
    error = pstdev(gaps) / len(gaps) ** 0.5
    yield (
        "printed AUC: optimism at most 0.002",
        f"{signed(fmean(gaps))} (standard error {number(error)}) over the {len(fits)} fits with "
        f"random labels; {signed(plain)} with one set of weights for all folds",
        fmean(gaps) <= 0.002,
    )
    yield "its interval covers at least 94 %", share(inside), inside >= 0.94


def _random(figures: Figures, word: str) -> dict[str, Figures]:
    sizes = {"60 labels": "60", "5 %": "5"}
    return {said: figures[f"random, {n} labels, taken for {word}"] for said, n in sizes.items()}


def _selected(figures: Figures, word: str) -> Figures:
    found: Figures = figures[f"selected, 60 labels, taken for {word}"]["all"]
    return found


def _in_bands(found: Figures, key: str) -> list[float]:
    return [own[key] for band, own in found.items() if band != "all" and own]


def later(figures: Figures) -> str:
    """The tables that nothing was chosen on."""
    found = figures["the tables that nothing was chosen on, taken for unknown"]["all"]
    return (
        f"The last {found['tables']:.0f}, 60 random labels, nothing said: mean error of the rate "
        f"{found['mean error']:.3f}, interval covers {found['coverage']:.0%}; F1 of the list "
        f"{found[F1]:.2f} of the best, nothing flagged on {found['test: nothing flagged']:.0%}; "
        f"expected precision covers {found['expected precision covers']:.0%}; Brier score not "
        f"above the constant's on {found[BRIER]:.0%}."
    )


def p_values(figures: Figures) -> str:
    """What p-values and thresholds of the default model promise on real tables."""
    found = figures["random, 60 labels, taken for random"]["all"]
    return (
        f"Of normal test rows {found['p <= 0.05']:.1%} have a p-value of at most 0.05 and "
        f"{found['p <= 0.1']:.1%} one of at most 0.1; the threshold `false-alarms:0.1` flags "
        f"{found['false-alarms:0.1']:.1%} of them, and at a false discovery rate of 0.2 the share "
        f"of false ones is {found['false discoveries at 0.2']:.1%} on average (tables where "
        "nothing is selected count as 0)."
    )


# --- the page -------------------------------------------------------------------------------


def parts(folder: Path) -> dict[str, str]:
    """All parts of the page, by name."""
    told = json.loads((folder / "tables.json").read_text(encoding="utf-8"))
    drawn = json.loads((folder / "simulations.json").read_text(encoding="utf-8"))
    selected = json.loads((folder / "selected.json").read_text(encoding="utf-8"))
    figures = told["figures"]
    made = {"wanted": wanted(figures, told["records"]), "later": later(figures)}
    for size in ("60", "5"):
        for word in ("random", "unknown"):
            made[f"rate {size} {word}"] = rates(figures, f"random, {size} labels, taken for {word}")
        made[f"list {size}"] = lists(figures, f"random, {size} labels, taken for random")
        which = f"random, {size} labels, taken for random"
        made[f"probabilities {size}"] = probabilities(figures, which)
        made[f"auc {size}"] = aucs(figures, f"random, {size} labels, nested AUC")
    for word in ("chosen", "unknown"):
        made[f"rate selected {word}"] = rates(figures, f"selected, 60 labels, taken for {word}")
    return made | {
        "rules": rules(figures),
        "selections": selections(figures),
        "p-values": p_values(figures),
        "simulations": simulations(drawn),
        "chosen": chosen(selected),
    }


def page(text: str, made: dict[str, str]) -> str:
    """The page with all parts in place; a part that nobody makes is an error."""

    def put(found: re.Match[str]) -> str:
        name = found[1]
        return f"<!-- {name} -->\n{made[name]}\n<!-- /{name} -->"

    return re.sub(r"<!-- ([^/].*?) -->\n.*?<!-- /\1 -->", put, text, flags=re.DOTALL)


def main() -> None:
    """Write the page anew."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    path = folder / "README.md"
    path.write_text(page(path.read_text(encoding="utf-8"), parts(folder)), encoding="utf-8")


if __name__ == "__main__":
    main()
