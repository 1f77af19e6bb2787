"""What a detector found, in words: the only place of page and terminal that asks which facts.

No detector is asked for by name: a sentence is said where the facts that it needs are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["list_members", "list_risk_parts", "say_facts", "say_held_out"]

_LAMBDA_SOURCES = {
    "theorem": "from Theorem 1, so the objective cannot be negative",
    "tight": "the smallest proved to keep the objective non-negative",
    "cv": "cross-validated on the labelled rows",
}
_RISK_WORDS = {
    "risk": "{} risk",
    "loss": "{} loss",
    "a": "a = {:g}",
    "prior": "prior = {:g} (share of normal rows)",
}
_UNITS = {"rounds": "boosted trees", "steps": "neural network"}


def say_facts(facts: Mapping[str, Any]) -> list[str]:
    """Say what was fitted and how it came about.

    Parameters
    ----------
    facts
        What the fit found, together with the settings of the detector.

    Returns
    -------
    list of str
        Empty where no sentence has the facts that it needs.

    Examples
    --------
    >>> say_facts({"steps": 1200, "loss": "sigmoid", "prior": 0.8})
    ['neural network, sigmoid loss, prior = 0.8 (share of normal rows)', '1,200 steps']
    """
    if "leaderboard" in facts:
        return _average_lines(facts)
    if "lambda" in facts:
        return _linear_lines(facts)
    for unit, shape in _UNITS.items():
        if unit in facts:
            return [_say_risk(shape, facts), f"{facts[unit]:,} {unit}"]
    return []


def say_held_out(fitted: Mapping[str, Any]) -> str:
    """Say what held-out labelled rows were scored by.

    Returns
    -------
    str
        The end of a sentence.
    """
    if "leaderboard" in fitted:
        return (
            "scored by members fitted without its label; their weights and settings were "
            "chosen with these labels, so new rows may rank somewhat worse"
        )
    return "scored by a model fitted without its label"


def list_members(leaderboard: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """List the members of an average, without those left out: `say_facts` names them.

    Returns
    -------
    list of dict
        With `member`, `weight`, `auc` (None if not known) and `seconds`.
    """
    return [member for member in leaderboard if not member.get("left_out")]


def list_risk_parts(fitted: Mapping[str, Any]) -> dict[str, float]:
    """List the parts of the estimated risk.

    Returns
    -------
    dict
        Empty where the detector minimises none.
    """
    parts: dict[str, float] = fitted.get("risk_parts", {})
    return parts


def _average_lines(facts: Mapping[str, Any]) -> list[str]:
    members = list_members(facts["leaderboard"])
    left_out = [member["member"] for member in facts["leaderboard"] if member.get("left_out")]
    no_time = [f"left out for lack of time (budget): {', '.join(left_out)}"]
    if len(members) == 1:
        only = f"one kind of detector ({members[0]['member']}); there was no time for others"
        return [only, *(no_time if left_out else [])]
    known = any(member["auc"] is not None for member in members)
    weighted = "weighted by held-out labels" if known else "without held-out labels to weight them"
    return [
        f"average of {len(members)} kinds of detector, {weighted}",
        *(no_time if left_out else []),
        f"learned from {facts['rows']:,} rows",
    ]


def _linear_lines(facts: Mapping[str, Any]) -> list[str]:
    shape = "linear" if facts["feature_map"] is None else f"{facts['feature_map']} features"
    source = _LAMBDA_SOURCES.get(str(facts["lam"]), "as given")
    steps = "1 step" if facts["iterations"] == 1 else f"{facts['iterations']} steps"
    endings = {True: "converged in", False: "did not converge in"}
    ending = endings.get(facts["converged"], "stopped after")
    return [
        _say_risk(shape, facts),
        f"lambda = {facts['lambda']:.4g} ({facts['penalty']}), {source}",
        f"{facts['solver']} {ending} {steps} (optimality {facts['optimality']:.1e})",
    ]


def _say_risk(shape: str, facts: Mapping[str, Any]) -> str:
    """Say what was minimised, as far as the detector has such settings."""
    said = (words.format(facts[name]) for name, words in _RISK_WORDS.items() if name in facts)
    return ", ".join([shape, *said])
