"""What the user should know about the data and a fit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.pipeline import Pipeline

from riskad.app.anomaly_rate import check_labels
from riskad.app.hold_out import Evidence
from riskad.app.noticed import no_warnings
from riskad.core.checks import enumerate_names
from riskad.core.labels import ANOMALY, NORMAL, LabelCounts, count_labels
from riskad.decisions.anomaly_rate import FEWEST, GIVEN, SURPRISE
from riskad.decisions.label_check import FEWEST_COMPARED
from riskad.detectors.description import detector_tags
from riskad.tables.data_checks import check_data
from riskad.tables.labelled import KeptRows
from riskad.tables.preparation import TablePreparer

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

    `counts` are the labels of the whole table, `noted` the warnings of the fit.
    """
    preparer, detector = model[0], model[1]
    sentences = []
    # Labels that a detector does not use are too expensive to waste unnoticed.
    for kind, count, name in (
        (NORMAL, counts.normal, "normal rows"),
        (ANOMALY, counts.anomaly, "anomalies"),
    ):
        if count and kind not in detector._used_kinds():
            sentences.append(
                f"the {detector.risk} risk does not use the {count:,} labelled {name}; rad uses "
                "both kinds of label."
            )
    sentences += map(str, noted)
    constant = [name for name, kind in preparer.kinds_.items() if kind == "constant"]
    if constant:
        sentences.append(
            "columns that hold the same value in every row were left out: "
            f"{enumerate_names(constant)}."
        )
    kinds = {column.name: column.kind for column in preparer.used()}
    sentences += map(str, check_data(kept.parsed, kept.codes, kinds))
    if 0 < counts.anomaly < _FEW_ANOMALIES:
        known = "labelled anomaly is" if counts.anomaly == 1 else "labelled anomalies are"
        sentences.append(
            f"{counts.anomaly} {known} few: another one could change the ranking, and what is said "
            "of its quality and of the anomaly rate is vague. Label more."
        )
    risk = detector._describe().get("risk_parts", {}).get("total", 0.0)
    if risk < 0 and detector_tags(detector).supports_guarded_risks:
        more = "Regularise more (lam='tight' or lam='theorem'), or choose"
        remedy = more if "lam" in detector.get_params() else "Choose"
        sentences.append(
            f"the estimated risk is negative ({risk:.3g}), which no true risk is: the fit follows "
            f"noise in the labelled rows. {remedy} the risk with a guard (risk='nnrad')."
        )
    sentences += _not_drawn_at_random(evidence)
    if evidence.beyond >= _MANY:
        sentences.append(
            f"{evidence.beyond:.0%} of the unlabelled rows are like hardly any labelled one: how "
            "well these are ranked, nothing here can tell. Label some of them, drawn at random."
        )
    return sentences + _unlike_the_unlabelled(preparer, kept, evidence, detector._seed)


def _not_drawn_at_random(evidence: Evidence) -> list[str]:
    """Describe the limits of labelled rows that score unlike a random sample."""
    calibration = evidence.calibration
    p, source, rate = calibration.random_p_value, calibration.label_source, calibration.rate
    if p is None or p >= SURPRISE or source == "chosen":
        return []
    seen = f"labelled rows score unlike a random sample of the table (p = {p:.1g})"
    alike = "the AUC and p-values are those of rows like the labelled ones"
    if evidence.weighted_auc is not None:
        alike += (
            f" (weighted towards the unlabelled ones the AUC would be "
            f"{evidence.weighted_auc.value:.3f}, which its interval allows for)"
        )
    if source == "random" or rate is None or rate.assumption == GIVEN:
        return [f"{seen}: {alike}."]
    return [
        f"{seen}: the anomaly rate counts them as chosen, and {alike}. Label some rows drawn at "
        "random and say so (label_sampling='random'), or give the rate (anomaly_rate=...)."
    ]


def _unlike_the_unlabelled(
    preparer: TablePreparer, kept: KeptRows, evidence: Evidence, seed: int | None
) -> list[str]:
    """Report if labelled rows are clearly not like unlabelled ones of their kind."""
    if count_labels(kept.codes).normal < FEWEST_COMPARED:
        return []
    scores = evidence.held_out
    if scores is not None:
        held = count_labels(kept.codes[~np.isnan(scores)])
        if min(held.normal, held.unlabelled) < FEWEST_COMPARED or held.anomaly < FEWEST:
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
