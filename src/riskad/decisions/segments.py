"""Rates, probabilities and thresholds by segment: shops, machines, countries.

One threshold for all segments is wrong for each if scores of normal rows, or rates, differ between
them. With s the score of a row, b the slope of `riskad.decisions.score_line` and g its segment,

    log P(anomaly) / P(normal)  =  c + delta_g + b s,        delta_g ~ N(0, tau^2).

The labelled rows of a segment, scored by fits that have not seen them, tell its delta. How much
segments differ, tau, maximises the likelihood of all labels (Laplace's approximation), and a delta
with little evidence stays near 0: its estimate has the precision sum p (1 - p) + 1 / tau^2.
Segments without labels, and those that the fit has not seen, have delta = 0. c is where the mean
probability over the unlabelled rows is the anomaly rate.

Rows of equal probability have equal s + delta_g / b. So a threshold rule is applied to these
shifted scores, and its threshold, shifted back, is that of each segment: what is flagged are the
most likely anomalies of all segments together, for any capacity or cost. Only false alarm rates are
kept segment by segment, by the labelled normal rows of each (`riskad.decisions.conformal`), if
there are `ENOUGH_NORMALS` of them; others have the threshold of the whole.

It is assumed that anomalies were labelled more readily than normal rows by the same factor in all
segments. A segment of which anomalies alone were labelled seems to be full of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from riskad.core.labels import ANOMALY, NORMAL
from riskad.decisions.calibration import Calibration
from riskad.decisions.score_line import intercepts
from riskad.decisions.thresholds import FalseAlarms, Threshold
from riskad.files import fields
from riskad.metrics.ranking import Estimate

ENOUGH_NORMALS = 100  # labelled, for a false alarm rate of the segment's own
MOST_SHOWN = 20  # segments in a report, the largest
_SPREADS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)  # tau, in log odds
_STEPS, _DRAWS, _MOST_SCORES = 40, 200, 2_000

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Segments:
    """How far the scores of each segment are shifted; segments without labels are as the whole."""

    column: Annotated[str, fields.Text()]
    names: Annotated[Any, fields.ListOf(fields.Text(), "names")]
    shifts: Annotated[np.ndarray, fields.Array("f", ("segments",))]
    errors: Annotated[np.ndarray, fields.Array("f", ("segments",), 0.0)]  # of delta, in log odds
    shift: float  # of all other segments
    spread: Annotated[float, fields.Number(0)]  # tau, in log odds
    # Places of the labelled rows of the calibration.
    labelled: Annotated[np.ndarray, fields.Array("i", ("labelled",), -1, below="names")]
    # Shifted scores of unlabelled rows, in ascending order.
    unlabelled: Annotated[np.ndarray, fields.Array("f", ("kept",), rising=True)]

    def places(self, values: Any) -> NDArray[np.intp]:
        """The number of each row's segment; -1 if it is blank or was not seen."""
        places = {name: i for i, name in enumerate(self.names)}
        return np.array([places.get(value, -1) for value in values], dtype=np.intp)

    def shift_of(self, places: NDArray[np.intp]) -> Floats:
        """What is added to the score of each row."""
        return np.append(self.shifts, self.shift)[places]

    def shifted(self, calibration: Calibration) -> Calibration:
        """The calibration with shifted scores."""
        scores = calibration.scores + self.shift_of(self.labelled)
        return replace(calibration.over(self.unlabelled), scores=scores, segments=None)

    def thresholds(
        self, rule: Threshold, calibration: Calibration, shifted: Floats | None = None
    ) -> Floats:
        """The threshold of each segment, and last that of others; `shifted` are of a table."""
        if not isinstance(rule, FalseAlarms):
            moved = self.shifted(calibration)
            # Rules like top:50 count rows of the table that is scored, shifted like those.
            moved = moved if shifted is None else moved.over(shifted)
            return np.asarray(rule.of(moved) - np.append(self.shifts, self.shift))
        normal = calibration.codes == NORMAL
        thresholds = np.full(len(self.names) + 1, rule.of(calibration))
        for place in range(len(self.names)):
            own = (self.labelled == place) & normal
            if own.sum() >= max(ENOUGH_NORMALS, 1 / rule.rate - 1):
                scores, codes = calibration.scores[own], calibration.codes[own]
                thresholds[place] = rule.of(replace(calibration, scores=scores, codes=codes))
        return thresholds


@dataclass(frozen=True)
class SegmentResult:
    """A segment in a report; estimates are None where labels do not allow them."""

    name: str
    rows: int  # unlabelled ones
    normal: int
    anomaly: int
    flagged: int
    threshold: float
    as_the_whole: bool  # whether it has no threshold of its own
    rate: Estimate | None = None
    precision: Estimate | None = None
    recall: Estimate | None = None


def segment_offsets(
    places: NDArray[np.intp], anomalous: NDArray[np.bool_], lines: Floats, n_segments: int
) -> tuple[Floats, Floats, float]:
    """Return delta of each segment, its standard error, and tau; `lines` are b s of rows."""
    own = np.where(places < 0, n_segments, places)  # rows of no segment have delta 0
    y = anomalous.astype(float)
    best = -np.inf, np.empty(0), np.empty(0), 0.0
    for spread in _SPREADS:
        variance = spread**2
        delta, c = np.zeros(n_segments + 1), 0.0
        for _ in range(_STEPS):
            p = expit(c + delta[own] + lines)
            step = float(np.clip((y - p).sum() / max((p * (1 - p)).sum(), 1e-12), -2, 2))
            c += step
            p = expit(c + delta[own] + lines)
            residual = np.bincount(own, y - p, n_segments + 1)
            information = np.bincount(own, p * (1 - p), n_segments + 1)
            moved = np.clip((variance * residual - delta) / (variance * information + 1), -2, 2)
            # The last place is that of rows without a segment.
            moved[-1] = 0.0
            delta += moved
            if abs(step) + np.abs(moved).max() < 1e-6:
                break
        p = np.clip(expit(c + delta[own] + lines), 1e-12, 1 - 1e-12)
        information = np.bincount(own, p * (1 - p), n_segments + 1)[:-1]
        value = float(np.log(np.where(anomalous, p, 1 - p)).sum())
        # The prior of delta, and the volume of its posterior, without which a large tau would win.
        value -= float(delta @ delta) / (2 * max(variance, 1e-12))
        value -= float(np.log1p(variance * information).sum()) / 2
        if value > best[0]:
            errors = np.sqrt(variance / (variance * information + 1))
            best = value, delta[:-1], errors, spread
    return best[1:]


def learn_segments(
    column: str, labelled: Any, unlabelled: Any, scores: Floats, calibration: Calibration
) -> Segments:
    """Find how far the labels of segments say that these differ from the whole.

    `labelled` are the segments of the rows of `calibration.scores`, and `unlabelled` those of rows
    with these `scores`; None is of no segment.
    """
    names = sorted({name for name in labelled if name is not None})
    zeros, rows = np.zeros(len(names)), np.empty(0, dtype=np.intp)
    segments = Segments(column, names, zeros, zeros, 0.0, 0.0, rows, np.sort(scores))
    segments = replace(segments, labelled=segments.places(labelled))
    slope = calibration.line.slope if calibration.knows_probabilities else 0.0
    if slope <= 0 or not len(calibration.normals) or not len(calibration.anomalies):
        return segments
    # Scores times slope are log odds, in which delta is.
    delta, errors, spread = segment_offsets(
        segments.labelled, calibration.codes == ANOMALY, slope * calibration.scores, len(names)
    )
    raw = scores + np.append(delta / slope, 0.0)[segments.places(unlabelled)]
    # All are moved alike, so that the mean probability stays the anomaly rate.
    line, moved = (calibration.line.at_rate(calibration.pi_n, each) for each in (scores, raw))
    shift = (moved.intercept - line.intercept) / slope
    return replace(
        segments,
        shifts=delta / slope + shift,
        errors=errors,
        shift=shift,
        spread=spread,
        unlabelled=np.sort(raw + shift),
    )


def describe_segments(
    segments: Segments,
    thresholds: Floats,
    unlabelled: Any,
    scores: Floats,
    calibration: Calibration,
    seed: int = 0,
) -> list[SegmentResult]:
    """What is flagged in the largest segments, and what to expect of it, with 95 % intervals.

    Draws vary the slope, the anomaly rate, delta and which rows are anomalies.
    """
    known = [name for name in unlabelled if name is not None]
    names, counts = np.unique(known, return_counts=True)
    values, places = np.asarray(unlabelled, dtype=object), segments.places(unlabelled)
    shifted = scores + segments.shift_of(places)
    rng = np.random.default_rng(seed)
    draws = None
    if calibration.knows_probabilities and len(scores):
        slopes = calibration.line.draws(_DRAWS, rng)
        rates = rng.permutation(calibration.likely_rates(_DRAWS))
        some = rng.permutation(len(scores))[:_MOST_SCORES]
        draws = intercepts(slopes[:, None] * shifted[some], rates), slopes
    results = []
    for name in names[np.argsort(-counts, kind="stable")][:MOST_SHOWN].tolist():
        own = values == name
        [place] = segments.places([name]).tolist()
        codes = calibration.codes[segments.labelled == place] if place >= 0 else np.empty(0)
        n, m = int((codes == NORMAL).sum()), int((codes == ANOMALY).sum())
        threshold, moved = float(thresholds[place]), shifted[own]
        flagged = scores[own] > threshold
        estimates: dict[str, Any] = {}
        if draws is not None:
            c, slopes = draws
            error = segments.errors[place] if place >= 0 else segments.spread
            c = c + error * rng.normal(size=_DRAWS)
            found, everything = np.empty(_DRAWS), np.empty(_DRAWS)
            for i in range(_DRAWS):
                true = rng.random(len(moved)) < expit(c[i] + slopes[i] * moved)
                found[i], everything[i] = (true & flagged).sum(), true.sum()
            p, k = calibration.anomaly_probability(moved), flagged.sum()
            with_any = everything > 0  # a segment without any anomaly has no recall
            total, hits = float(p.sum()), float(p[flagged].sum())
            shares = {"rate": (total / len(p), everything / len(p))}
            if k:
                shares["precision"] = hits / k, found / k
            if total > 0 and with_any.any():
                shares["recall"] = hits / total, found[with_any] / everything[with_any]
            estimates = {key: Estimate.of_draws(*share, n, m) for key, share in shares.items()}
        counted = int(own.sum()), n, m, int(flagged.sum())
        as_the_whole = threshold == thresholds[-1]
        results.append(SegmentResult(name, *counted, threshold, as_the_whole, **estimates))
    return results
