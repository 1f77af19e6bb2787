"""What the user should know about the data and a fit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from riskad.app.anomaly_rate import check_labels
from riskad.app.hold_out import Evidence
from riskad.app.noticed import no_warnings
from riskad.core.checks import enumerate_names
from riskad.core.labels import ANOMALY, NORMAL, Codes, LabelCounts, count_labels
from riskad.decisions.anomaly_rate import FEWEST, GIVEN, SURPRISE
from riskad.decisions.label_check import FEWEST_COMPARED
from riskad.detectors.base import Detector
from riskad.detectors.description import detector_tags
from riskad.tables.data_checks import check_data
from riskad.tables.labelled import KeptRows
from riskad.tables.preparation import TablePreparer

__all__ = ["list_warnings"]

_FEW_ANOMALIES = 5  # labelled; below that a single one more or less changes the answer
_MANY = 0.3  # of the unlabelled rows; for a random sample about 0.02 are beyond


def list_warnings(
    model: Pipeline,
    kept: KeptRows,
    counts: LabelCounts,
    noted: Sequence[Warning],
    evidence: Evidence,
) -> list[str]:
    """Return everything that the user should know, in sentences.

    Parameters
    ----------
    model
        The fitted pipeline.
    kept
        Rows in memory.
    counts
        Labels of the whole table.
    noted
        Warnings of the fit.
    evidence
        What held-out labelled rows show.

    Returns
    -------
    list of str
        The sentences.
    """
    preparer, detector = model[0], model[1]
    kinds = {column.name: column.kind for column in preparer.used()}
    return [
        *_unused_labels(detector, counts),
        *(str(note) for note in noted),
        *_constant_columns(preparer),
        *(str(finding) for finding in check_data(kept.parsed, kept.codes, kinds)),
        *_few_anomalies(counts),
        *_negative_risk(detector),
        *_not_drawn_at_random(evidence),
        *_unlike_the_unlabelled(preparer, kept, evidence, detector.random_state),
    ]


def _unused_labels(detector: Detector, counts: LabelCounts) -> list[str]:
    """List labels that a detector does not use; they are too expensive to waste unnoticed."""
    found = {NORMAL: (counts.normal, "normal rows"), ANOMALY: (counts.anomaly, "anomalies")}
    unused = [found[kind] for kind in found if kind not in detector._used_kinds()]
    return [
        f"the {detector.risk} risk does not use the {count:,} labelled {name}; rad uses both kinds "
        "of label."
        for count, name in unused
        if count
    ]


def _constant_columns(preparer: TablePreparer) -> list[str]:
    constant = [name for name, kind in preparer.kinds_.items() if kind == "constant"]
    if not constant:
        return []
    return [
        f"columns that hold the same value in every row were left out: {enumerate_names(constant)}."
    ]


def _few_anomalies(counts: LabelCounts) -> list[str]:
    count = counts.anomaly
    if not 0 < count < _FEW_ANOMALIES:
        return []
    known = "labelled anomaly is" if count == 1 else "labelled anomalies are"
    return [
        f"{count} {known} few: another one could change the ranking, and what is said of its "
        "quality and of the anomaly rate is vague. Label more."
    ]


def _negative_risk(detector: Detector) -> list[str]:
    total = detector._describe().get("risk_parts", {}).get("total", 0.0)
    if total >= 0 or not detector_tags(detector).supports_guarded_risks:
        return []
    more = "Regularise more (lam='tight' or lam='theorem'), or choose"
    remedy = more if "lam" in detector.get_params() else "Choose"
    return [
        f"the estimated risk is negative ({total:.3g}), which no true risk is: the fit follows "
        f"noise in the labelled rows. {remedy} the risk with a guard (risk='nnrad')."
    ]


def _not_drawn_at_random(evidence: Evidence) -> list[str]:
    """Describe the limits of labelled rows that were chosen, or score unlike a random sample."""
    calibration = evidence.calibration
    p, source, rate = calibration.random_p_value, calibration.label_source, calibration.rate
    if p is None or p >= SURPRISE or source == "chosen":
        return _beyond(evidence)
    seen = f"labelled rows score unlike a random sample of the table (p = {p:.1g})"
    alike = "the AUC and p-values are those of rows like the labelled ones"
    if evidence.weighted_auc is not None:
        alike += (
            f" (weighted towards the unlabelled ones the AUC would be "
            f"{evidence.weighted_auc.value:.3f}, which its interval allows for)"
        )
    if source == "random" or rate is None or rate.assumption == GIVEN:
        return [f"{seen}: {alike}.", *_beyond(evidence)]
    return [
        f"{seen}: the anomaly rate counts them as chosen, and {alike}. Label some rows drawn at "
        "random and say so (label_sampling='random'), or give the rate (anomaly_rate=...).",
        *_beyond(evidence),
    ]


def _beyond(evidence: Evidence) -> list[str]:
    if evidence.beyond < _MANY:
        return []
    return [
        f"{evidence.beyond:.0%} of the unlabelled rows are like hardly any labelled one: how well "
        "these are ranked, nothing here can tell. Label some of them, drawn at random."
    ]


def _unlike_the_unlabelled(
    preparer: TablePreparer, kept: KeptRows, evidence: Evidence, seed: int | None
) -> list[str]:
    """Report if labelled rows are clearly not like unlabelled ones of their kind."""
    if count_labels(kept.codes).normal < FEWEST_COMPARED:
        return []
    scores = evidence.held_out
    if scores is not None and not _scores_all_kinds(scores, kept.codes):
        scores = None  # other fits are made, and score them
    with no_warnings():
        check = check_labels(
            preparer.matrix(kept.parsed),
            kept.codes,
            estimate=evidence.calibration.rate,
            scores=scores,
            names=list(preparer.encoder_.get_feature_names_out()),
            significance=SURPRISE,
            random_state=seed,
        )
    p_values = [p for p in (check.normal_p_value, check.anomaly_p_value) if p is not None]
    return [check.verdict] if p_values and min(p_values) <= SURPRISE / 2 else []


def _scores_all_kinds(scores: NDArray[np.float64], codes: Codes) -> bool:
    """Whether enough rows of each kind were held out from the fits that score them."""
    counts = count_labels(codes[~np.isnan(scores)])
    enough = min(counts.normal, counts.unlabelled) >= FEWEST_COMPARED
    return enough and counts.anomaly >= FEWEST
