"""Sentences that the page and the terminal share."""

from __future__ import annotations

from riskad.core.labels import LabelCounts
from riskad.decisions.ranking_metrics import Auc

__all__ = ["quality_lines", "say_prior"]


def quality_lines(
    auc: Auc | None, why_not: str, evidence: str, labels: LabelCounts | None
) -> list[str]:
    """Say how well labelled rows are ranked, or why that is not known.

    Parameters
    ----------
    auc, why_not
        The AUC on held-out labelled rows, or why there is none.
    evidence
        What held-out rows were scored by (`SelfDescribing.evidence_in_words`).
    labels
        Those of the fit; the AUC may rest on fewer where not all were held out.

    Returns
    -------
    list of str
        Lines without a full stop.
    """
    if auc is None:
        return [f"no AUC on labelled rows: {why_not}"]
    held_out = auc.n_normal + auc.n_anomaly
    labelled = held_out if labels is None else labels.normal + labels.anomaly
    rows = f"the {held_out:,}" if held_out == labelled else f"{held_out:,} of the {labelled:,}"
    said = f"AUC {auc.value:.3f} (95% interval {auc.low:.3f} to {auc.high:.3f})"
    return [f"{said} on {rows} labelled rows, each {evidence}"]


def say_prior(pi_p: float) -> str:
    """Spell a share of normal rows as the setting `prior` takes it.

    A prior lies strictly between 0 and 1; three digits are more than its interval knows.

    Returns
    -------
    str
        The number.

    Examples
    --------
    >>> say_prior(1.0), say_prior(0.93712)
    ('0.999', '0.937')
    """
    return f"{min(max(pi_p, 0.001), 0.999):.3f}"
