"""What a fit was told, did and found: the one record that page, terminal, card and JSON show.

The model file stores it, except for rows of the table and for what the model's calibration tells
again at any time. To add a fact, add a field here and show it in a section of
`riskad.app.report.sections`; stored form, check and JSON schema follow from the annotation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from riskad.app.explain import ColumnEffect
from riskad.app.hold_out import Period
from riskad.app.results import Suspect
from riskad.app.spec import FitSpec
from riskad.core.labels import LabelCounts
from riskad.decisions.anomaly_rate import RateEstimate
from riskad.decisions.capacity import CapacityPlan, ReviewReport
from riskad.files.records import Count, about
from riskad.metrics.ranking import Auc, AucDifference, Curve, Reliability


@dataclass(frozen=True)
class HeldOutQuality:
    """Curves over held-out labelled rows, with 95% intervals.

    `precision_rate` is the anomaly rate for which precision is stated: the estimated one, or the
    share of anomalies among labelled rows.
    """

    roc: Curve
    precision_recall: Curve
    precision_rate: float
    reliability: Reliability | None
    why_no_reliability: str


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
class Judged:
    """How one model does on the rows on which both are judged."""

    auc: Auc
    anomalies_flagged: int
    normals_flagged: int


@dataclass(frozen=True)
class Comparison:
    """Two models on the same labelled rows; `difference` is the AUC after minus that before."""

    rests_on: str
    difference: AucDifference
    before: Judged
    after: Judged
    drawn_at_random: int
    cautions: list[str] = field(default_factory=list)


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
    why_not_compared: str = ""


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

    # --- its decision
    rule: str = about("Rule of the threshold.", "")
    threshold: float = about("Anomaly score above which rows are flagged.", 0.0)
    flagged: Count = about("Rows that are flagged.", 0)
    flagged_of: Count = about("Rows that could be: the unlabelled ones of a fit.", 0)
    rate: RateEstimate | None = about("Share of anomalies among the unlabelled rows.", None)
    labels_random_p: float | None = about("P-value of labels being a random sample.", None)
    capacity: CapacityPlan | None = about("Rows that can be reviewed, if that was said.", None)
    warnings: list[str] = about("What the user should know.", [])

    # --- found again from the model, or rows of the table, which no model file holds
    trained_on: str = about("Name of the training table, if another was scored.", "", stored=False)
    top: list[Suspect] = about("The most suspicious rows.", [], stored=False)
    usual_score: float | None = about("Score of a usual row.", None, stored=False)
    review: ReviewReport | None = about("Rows looked at and found.", None, stored=False)
    quality: HeldOutQuality | None = about("Curves on held-out rows.", None, stored=False)
    calibrated_on: LabelCounts | None = about("Held-out rows by label.", None, stored=False)
    distribution: ScoreDistribution | None = about("How scores spread.", None, stored=False)
    column_uses: dict[str, str] = about("What becomes of each column.", {}, stored=False)
    command: str = about("The command line.", "", stored=False)
    reported: str = about("When the report was made.", "", stored=False)
    created: str = about("When the model was saved.", "", stored=False)
    versions: dict[str, str] = about("Versions of libraries.", {}, stored=False)
