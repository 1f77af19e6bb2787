"""What a fit was told, did and found: the one record that page, terminal, card and JSON show.

The model file stores it, except for rows of the table and for what the model's calibration tells
again at any time. To add a fact, add a field here and show it in a section of
`riskad.app.report.sections`; stored form, check and JSON schema follow from the annotation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sklearn.pipeline import Pipeline

from riskad.app.explain import ColumnEffect
from riskad.app.label_issues import DoubtfulLabels
from riskad.app.score import Suspect
from riskad.app.series import SeriesPicture
from riskad.app.spec import FitSpec
from riskad.core.labels import LabelCounts
from riskad.decisions.anomaly_rate import RateEstimate
from riskad.decisions.calibration import Calibration
from riskad.decisions.capacity import CapacityPlan, ReviewReport, review_rows, review_table
from riskad.decisions.segments import SegmentResult
from riskad.detectors.description import SelfDescribing
from riskad.files.records import Count, about
from riskad.metrics.ranking import Auc, AucDifference, Curve, auc_with_interval
from riskad.tables.preparation import TablePreparer

_PLAIN = (str, int, float, bool, type(None))  # what JSON can hold
FEWEST_FOR_AUC = 3  # labelled rows of each kind; with fewer, an AUC is mostly chance


@dataclass(frozen=True)
class Period:
    """Rows of a period, and how well a fit to all earlier ones ranks its labelled rows."""

    start: str
    end: str
    rows: int
    normal: int
    anomaly: int
    auc: Auc | None
    """None for the earliest rows, which are never judged, and if a kind of label is missing."""


@dataclass(frozen=True)
class HeldOutQuality:
    """Curves over held-out labelled rows, with 95% intervals.

    `precision_rate` is the anomaly rate for which precision is stated: the estimated one, or the
    share of anomalies among labelled rows.
    """

    roc: Curve
    precision_recall: Curve
    precision_rate: float


@dataclass(frozen=True)
class KindScores:
    """Anomaly scores of the rows of one kind: counts in bins, and each score if they are few."""

    kind: str
    rows: int
    counts: list[int]
    scores: list[float]


@dataclass(frozen=True)
class ScoreDistribution:
    """Scores by kind of row; the first and the last bin also hold what lies beyond them."""

    edges: list[float]
    kinds: list[KindScores]


@dataclass(frozen=True)
class Performance:
    """How one model does on the rows on which both are judged."""

    auc: Auc
    anomalies_flagged: int
    normals_flagged: int


@dataclass(frozen=True)
class Comparison:
    """Two models on the same labelled rows; `difference` is the AUC after minus that before."""

    rests_on: str
    difference: AucDifference
    before: Performance
    after: Performance
    drawn_at_random: int


@dataclass(frozen=True, kw_only=True)
class ModelBefore:
    """The model before a refit, what became of it, and how the two compare."""

    verdict: str = about("Which model to use, and why.")
    takes_over: bool = about("Whether the new model takes over.")
    alarm: bool = about("Whether the new model is clearly worse.")
    created: str
    source: str
    rows: Count
    labels: LabelCounts | None
    auc: Auc | None
    rate: RateEstimate | None
    rule: str
    flagged: Count
    comparison: Comparison | None


@dataclass(frozen=True, kw_only=True)
class FitReport:
    """What `riskad.fit_table` did and found, or what a model says about a table it scored.

    Fields that only the fit knows are blank for a model that was saved without a report.
    """

    # --- the table
    spec: FitSpec = about("What the fit was told.", FitSpec())
    source: str = about("Name of the table.", "")
    rows: Count = about("Rows of the table.", 0)
    labels: LabelCounts | None = about("Rows by kind of label.", None)
    reading: list[str] = about("How files larger than memory were read.", [])
    columns: dict[str, str] = about("Kind of each column.", {})
    preparation: list[str] = about("What becomes of the columns.", [])

    # --- the model
    model: str = about("Class of the detector.", "")
    settings: dict[str, Any] = about("Parameters of the detector.", {})
    fitted: dict[str, Any] = about("What the detector learned, in numbers.", {})
    summary: list[str] = about("What the detector is, in words.", [])
    kept_rows: Count = about("Training rows that the model holds.", 0)
    effects: list[ColumnEffect] = about("Columns that move the score most.", [])
    effects_of: str = about("The rows on which effects were measured.", "")

    # --- its quality
    evidence: str = about("Which fits scored the held-out rows.", "")
    auc: Auc | None = about("AUC on held-out labelled rows.", None)
    why_no_auc: str = about("Why there is no AUC.", "")
    over_time: list[Period] = about("Quality by period, if a column of dates was named.", [])
    before: ModelBefore | None = about("The model before, after a refit.", None)
    doubtful: DoubtfulLabels | None = about("Labels that look wrong.", None)

    # --- its decision
    rule: str = about("Rule of the threshold.", "")
    threshold: float = about("Anomaly score above which rows are flagged.", 0.0)
    flagged: Count = about("Rows that are flagged.", 0)
    flagged_of: Count = about("Rows that could be: the unlabelled ones of a fit.", 0)
    rate: RateEstimate | None = about("Share of anomalies among the unlabelled rows.", None)
    labels_random_p: float | None = about("P-value of labels being a random sample.", None)
    segments: list[SegmentResult] = about("Decisions by segment, if they were asked for.", [])
    alarms: list[str] = about("Alarms of time series, and how many there are in a day.", [])
    capacity: CapacityPlan | None = about("Rows that can be reviewed, if that was said.", None)
    warnings: list[str] = about("What the user should know.", [])

    # --- found again from the model, or rows of the table, which no model file holds
    trained_on: str = about("Name of the training table, if another was scored.", "", stored=False)
    top: list[Suspect] = about("The most suspicious rows.", [], stored=False)
    maps: dict[str, dict[str, str]] = about(
        "By row, its picture and a map of what is unusual in it.", {}, stored=False
    )
    usual_score: float | None = about("Score of a usual row.", None, stored=False)
    series: list[SeriesPicture] = about("Time series with their alarms.", [], stored=False)
    review: ReviewReport | None = about("Rows looked at and found.", None, stored=False)
    quality: HeldOutQuality | None = about("Curves on held-out rows.", None, stored=False)
    calibrated_on: LabelCounts | None = about("Held-out rows by label.", None, stored=False)
    distribution: ScoreDistribution | None = about("How scores spread.", None, stored=False)
    column_uses: dict[str, str] = about("What becomes of each column.", {}, stored=False)
    command: str = about("The command line.", "", stored=False)
    reported: str = about("When the report was made.", "", stored=False)
    created: str = about("When the model was saved.", "", stored=False)
    versions: dict[str, str] = about("Versions of libraries.", {}, stored=False)

    def of_model(self, model: Any) -> FitReport:
        """Fill in what a model itself tells: its columns, settings, decision and calibration."""
        detector, preparer = (model[-1], model[0]) if isinstance(model, Pipeline) else (model, None)
        parameters = detector.get_params(deep=False).items()
        plain = {
            name: each if isinstance(each, _PLAIN) else repr(each) for name, each in parameters
        }
        facts: dict[str, Any] = {"settings": self.settings or plain}
        facts["model"] = self.model or type(detector).__name__
        if isinstance(preparer, TablePreparer):
            facts["columns"] = preparer.kinds_
            facts["preparation"] = self.preparation or preparer.describe()
            facts["column_uses"] = {c.name: c.describe() for c in preparer.columns_.values()}
        if isinstance(detector, SelfDescribing):
            facts["fitted"] = self.fitted | detector._describe()
            facts["summary"] = detector._describe_in_words()
            facts["evidence"] = self.evidence or detector._evidence_in_words
            facts["kept_rows"] = detector._kept_rows()
        if hasattr(detector, "offset_"):
            facts["rule"] = str(getattr(detector, "threshold_", "risk"))
            facts["threshold"] = -float(detector.offset_) + 0.0
        calibration: Calibration | None = getattr(detector, "calibration_", None)
        if calibration is None:
            why = "the model has no scores of held-out labelled rows (riskad.calibrate)"
            return replace(self, **facts, why_no_auc=self.why_no_auc or why)
        n, m = len(calibration.normals), len(calibration.anomalies)
        facts["rate"], facts["labels_random_p"] = calibration.rate, calibration.random_p_value
        facts["calibrated_on"] = LabelCounts(n, m, calibration.n_unlabelled)
        if self.auc is None and not self.why_no_auc:  # calibrated in Python
            if min(n, m) >= FEWEST_FOR_AUC:
                facts["auc"] = auc_with_interval(calibration.codes, calibration.scores)
            else:
                facts["why_no_auc"] = (
                    f"it takes {FEWEST_FOR_AUC} held-out labelled rows of each kind, and there "
                    f"are {n} normal and {m} anomalies"
                )
        if self.review is None and self.flagged_of and calibration.segments is None:
            rule = facts.get("rule", self.rule)
            facts["review"] = review_table(review_rows(calibration), self.flagged, rule)
        return replace(self, **facts)


def few_anomalies(n: int, few: str = "few") -> str:
    """Say that labelled anomalies are few.

    >>> few_anomalies(1), few_anomalies(4, "too few")
    ('1 labelled anomaly is few', '4 labelled anomalies are too few')
    """
    return f"1 labelled anomaly is {few}" if n == 1 else f"{n:,} labelled anomalies are {few}"
