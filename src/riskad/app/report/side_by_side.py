"""A model and the one before it, side by side, on the page and on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from riskad.app.refit import RefitReport
from riskad.app.report.layout import print_facts, print_table, print_title
from riskad.app.report.wording import NOT_KNOWN, auc_cell, share_is_vague
from riskad.metrics.ranking import Auc

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["difference_line", "print_refit", "side_by_side"]


def side_by_side(refit: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return what can be compared between two models: its name, before, and after.

    Parameters
    ----------
    refit
        The notes of a model file under "refit".
    """
    models = refit["before"], refit["after"]
    lines = [
        ("made", *(each["created"][:10] or "now" for each in models)),
        ("from", *(each["source"] for each in models)),
        ("rows", *(f"{each['rows']:,}" for each in models)),
        ("labelled normal", *(f"{each['labels']['normal']:,}" for each in models)),
        ("labelled anomalies", *(f"{each['labels']['anomaly']:,}" for each in models)),
        ("AUC, own held-out labels", *(_auc(each["auc"]) for each in models)),
        ("anomaly rate", *(_rate(each["rate"]) for each in models)),
        ("threshold", *(each["rule"] for each in models)),
        ("unlabelled rows flagged", *(f"{each['unlabelled_flagged']:,}" for each in models)),
    ]
    if (found := refit["comparison"]) is None:
        return lines
    n, m = (found["difference"][name] for name in ("n_normal", "n_anomaly"))
    judged = found["before"], found["after"]
    return [
        *lines,
        ("AUC, the same labels", *(_auc(each["auc"]) for each in judged)),
        ("anomalies flagged", *(f"{each['anomalies_flagged']:,} of {m:,}" for each in judged)),
        ("normal rows flagged", *(f"{each['normals_flagged']:,} of {n:,}" for each in judged)),
    ]


def difference_line(refit: Mapping[str, Any]) -> str:
    """Describe the difference of the AUCs and its basis; blank if they were not compared."""
    if (found := refit["comparison"]) is None:
        return ""
    d = found["difference"]
    return (
        f"AUC {d['value']:+.3f} (95% interval {d['low']:+.3f} to {d['high']:+.3f}) on "
        f"{d['n_normal']:,} normal rows and {d['n_anomaly']:,} anomalies: {found['rests_on']}"
    )


def _auc(auc: Mapping[str, Any] | None) -> str:
    return auc_cell(None if auc is None else Auc(**auc))


def _rate(rate: list[float] | None) -> str:
    if rate is None:
        return ""
    value, low, high = rate
    return NOT_KNOWN if share_is_vague(low, high) else f"{value:.1%} ({low:.1%}-{high:.1%})"


def print_refit(console: Console, report: RefitReport, written: Mapping[str, str]) -> None:
    """Print both models side by side, and which one to use."""
    refit = report.notes()["refit"]
    print_title(console, f"{report.source}: {report.rows:,} rows")
    print_facts(console, {"Verdict": [report.verdict], "Differ": [difference_line(refit)]})
    rows = [list(line) for line in side_by_side(refit)]
    print_table(console, "Models", ["", "before", "after"], rows, left={0})
    files = [f"{path} ({what})" for what, path in written.items()]
    print_facts(console, {"Notes": report.warnings, "Written": files})
