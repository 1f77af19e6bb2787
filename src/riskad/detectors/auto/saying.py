"""The description of a fitted `AutoRAD`: its members, its evidence, the rows it stores."""

from __future__ import annotations

from typing import Any

from riskad.detectors.auto.budget import Clock
from riskad.detectors.auto.novelty import NOVELTY
from riskad.detectors.description import SelfDescribing
from riskad.metrics.ranking import Auc

__all__ = ["SaysWhatItIs", "say_late"]

_CLEARLY_LOWER = 0.05  # difference of AUCs that counts as clear


class SaysWhatItIs(SelfDescribing):
    """The methods of `riskad.detectors.description`."""

    budget: float
    members_: dict[str, Any]
    views_: dict[str, Any]
    leaderboard_: list[dict[str, Any]]
    prior_: float
    n_rows_: int
    auc_: Auc | None

    def needs_rows(self) -> bool:
        """Return True: outlier scores, kernels and distances compare rows with training rows."""
        return True

    def kept_rows(self) -> int:
        """Return the number of standardised training rows in the views and members."""
        views = sum(view.kept_rows() for view in self.views_.values())
        return views + sum(member.kept_rows() for member in self.members_.values())

    def describe(self) -> dict[str, Any]:
        """Return the members with their weights, the anomaly rate and how many rows took part."""
        return super().describe() | {
            "leaderboard": self.leaderboard_,
            "prior": self.prior_,
            "rows": self.n_rows_,
        }

    def describe_in_words(self) -> list[str]:
        """Return the number of members, the basis of their weights, and which were left out."""
        left_out = [row["member"] for row in self.leaderboard_ if row.get("left_out")]
        no_time = [f"left out for lack of time (budget={self.budget:g}): {', '.join(left_out)}"]
        others = [name for name in self.members_ if name != NOVELTY]
        if len(others) == 1:
            name = others[0]
            only = f"one kind of detector ({name}); there was no time for others"
            return [only, *(no_time if left_out else [])]
        weighted = "weighted by held-out labels"
        if self.auc_ is None:
            weighted = "without held-out labels to weight them by"
        return [
            f"average of {len(self.members_)} kinds of detector, {weighted}",
            *(no_time if left_out else []),
            *self._say_kinds(),
            f"learned from {self.n_rows_:,} rows",
        ]

    def _say_kinds(self) -> list[str]:
        """How anomalies of an unseen kind rank, if that is known."""
        auc = getattr(self, "kinds_auc_", None)
        if auc is None or self.auc_ is None or auc.value > self.auc_.value - _CLEARLY_LOWER:
            return []
        return [
            "new kinds of anomaly may rank low: labelled ones whose like no fit had seen have an "
            f"AUC of {auc.value:.2f} (all others {self.auc_.value:.2f}); look at novelty, too"
        ]


def say_late(clock: Clock, leaderboard: list[dict[str, Any]]) -> str:
    """Report that a fit took too long to do everything that was planned."""
    left_out = ", ".join(row["member"] for row in leaderboard if row.get("left_out"))
    return (
        f"The fit was still running after {clock.seconds:,.0f} s and was cut short: it has no "
        f"more folds of held-out labels{f', and lacks {left_out}' if left_out else ''}. The same "
        "data gives another model where there is more time. Give it a quieter machine, fewer rows "
        "or columns, or a smaller budget, which plans less work."
    )
