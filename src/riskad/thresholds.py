"""From scores to decisions: a threshold is found after scoring, from scores and labels alone."""

from __future__ import annotations

import numpy as np

from riskad.risks import Risk

__all__ = ["zero_one_threshold"]


def zero_one_threshold(
    risk: Risk, scores: np.ndarray, y: np.ndarray, sample_weight: np.ndarray | None = None
) -> float:
    """The threshold t whose decisions "normal if score >= t" have the lowest estimated error.

    It minimises the given risk with the zero-one loss in place of its own: for rad

        a U(t) + (1 - a) pi_p P(t) + pi_n (1 - N(t)) - a pi_n N(t)

    where K(t) is the share of rows of kind K that score below t. A fit under heavy regularisation
    ranks rows well long before its scores straddle zero; this sets zero right. Where a whole
    interval is best its middle is taken, and of several the one nearest to zero.

    Examples
    --------
    >>> from riskad.risks import get_risk
    >>> scores, y = np.array([3.0, 4.0, 5.0, 1.0, 3.5, 4.5]), np.array([1, 1, 1, -1, 0, 0])
    >>> zero_one_threshold(get_risk("rad"), scores, y)
    2.0
    """
    if sample_weight is not None:
        weighty = sample_weight > 0
        scores, y, sample_weight = scores[weighty], y[weighty], sample_weight[weighty]
    weight = np.ones(len(y)) if sample_weight is None else sample_weight
    below = {kind: _Shares(scores[y == kind], weight[y == kind]) for kind in risk.kinds()}
    levels = np.unique(scores[np.isin(y, list(risk.kinds()))])
    # Every threshold in (levels[i-1], levels[i]] decides alike; so do all beyond either end.
    error = _zero_one_risk(risk, below, np.append(levels, np.inf))
    edges = np.concatenate([levels[:1] - 1, levels, levels[-1:] + 1])
    middles = (edges[:-1] + edges[1:]) / 2
    best = middles[error <= error.min() + 1e-12]
    return float(best[np.argmin(np.abs(best))])


class _Shares:
    """Share of (weighted) scores below a threshold."""

    def __init__(self, scores: np.ndarray, weight: np.ndarray):
        order = np.argsort(scores)
        self.scores = scores[order]
        self.cumulative = np.concatenate([[0.0], np.cumsum(weight[order])])

    def __call__(self, thresholds: np.ndarray) -> np.ndarray:
        counts = self.cumulative[np.searchsorted(self.scores, thresholds, side="left")]
        return counts / self.cumulative[-1]


def _zero_one_risk(risk: Risk, below: dict[int, _Shares], thresholds: np.ndarray) -> np.ndarray:
    plain, guarded = np.zeros(len(thresholds)), np.zeros(len(thresholds))
    for term in risk.terms():
        if term.weight != 0:
            called_anomaly = below[term.kind](thresholds)
            wrong = called_anomaly if term.sign > 0 else 1 - called_anomaly
            (guarded if risk.guarded and term.guarded else plain)[:] += term.weight * wrong
    return plain + (np.maximum(guarded, 0) if risk.guarded else guarded)
