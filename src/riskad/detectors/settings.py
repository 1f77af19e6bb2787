"""Settings that users may give a detector by name: allowed values, and one line of help."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from riskad.core.checks import InputError, check_choice
from riskad.core.losses import LOSSES
from riskad.core.regularization import PENALTIES
from riskad.core.risks import RISKS

__all__ = ["LOSS", "PRIOR", "RISK", "A", "Setting"]


@dataclass(frozen=True)
class Setting:
    """A parameter of a detector that can be given as text.

    Parameters
    ----------
    name
        The parameter's name.
    help
        What it does, in one line.
    choices
        Allowed texts.
    number
        The type of number that is also allowed, or the only one: float or int.
    default
        The default, in words.

    Examples
    --------
    >>> lam = Setting("lam", "regularisation", choices=("cv", "tight"), number=float)
    >>> lam.read("cv"), lam.read("0.5")
    ('cv', 0.5)
    """

    name: str
    help: str
    choices: Collection[str] = ()
    number: type[int] | type[float] | None = None
    default: str = ""

    @property
    def metavar(self) -> str:
        """The placeholder for a value in help."""
        kinds = {None: (), float: ("NUMBER",), int: ("INTEGER",)}[self.number]
        return "|".join((*kinds, *self.choices))

    def read(self, text: str) -> Any:
        """Return the value of a text.

        Raises
        ------
        InputError
            If the text is not a valid value.
        """
        if text in self.choices:
            return text
        if self.number is None:
            return check_choice(self.name, text, self.choices)
        try:
            return self.number(text)
        except ValueError:
            kind = "a whole number" if self.number is int else "a number"
            others = f" nor one of {', '.join(self.choices)}" if self.choices else ""
            start = f"{text!r} is neither {kind}" if self.choices else f"{text!r} is not {kind}"
            raise InputError(f"{self.name}: {start}{others}.") from None


RISK = Setting(
    "risk",
    "Which labels are used and how: without anomalies pu, without normal rows nu.",
    choices=RISKS,
    default="rad",
)
LOSS = Setting("loss", "What a score on the wrong side costs.", choices=LOSSES)
PRIOR = Setting("prior", "Share of rows that are normal.", number=float, default="0.8")
A = Setting("a", "Weight of unlabelled rows.", number=float, default="0.1")
PENALTY = Setting(
    "penalty", "What is regularised; l1 leaves columns out.", choices=PENALTIES, default="l2"
)
LAMBDA = Setting(
    "lam",
    "Regularisation: a number, cross-validated, the smallest proved safe, or Theorem 1's.",
    choices=("cv", "tight", "theorem"),
    number=float,
    default="cv",
)
FEATURE_MAP = Setting(
    "feature_map",
    "Features in which the score is linear.",
    choices=("rbf", "nystroem", "poly"),
    default="none",
)
MAX_ITER = Setting("max_iter", "Most steps of the solver, or rounds of boosting.", number=int)
BUDGET = Setting(
    "budget",
    "Seconds of work that a fit is planned to take; reasons may take 1/4 more.",
    number=float,
    default="60",
)
