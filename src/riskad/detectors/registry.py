"""The detectors by their names.

An entry holds what is known about a detector before its class is imported: some need libraries that
take seconds to load or are not installed. The class reports the rest (`description`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from riskad.core.checks import InputError, MissingLibrary, check_choice, lookup
from riskad.core.losses import LOSSES
from riskad.core.regularization import PENALTIES
from riskad.core.risks import RISKS
from riskad.files.codec import register

if TYPE_CHECKING:
    from riskad.detectors.auto.members import Recipe


@dataclass(frozen=True)
class Setting:
    """A parameter of a detector that can be given as text.

    >>> lam = Setting("lam", "regularisation", choices=("cv", "tight"), number=float)
    >>> lam.read("cv"), lam.read("0.5")
    ('cv', 0.5)
    """

    name: str
    help: str  # what it does, in one line
    choices: Collection[str] = ()  # texts that are allowed
    number: type[int] | type[float] | None = None  # that is allowed, too, or alone
    default: str = ""  # in words

    @property
    def metavar(self) -> str:
        kinds = {None: (), float: ("NUMBER",), int: ("INTEGER",)}[self.number]
        return "|".join((*kinds, *self.choices))

    def read(self, text: str) -> Any:
        """Return the value of a text, or refuse it."""
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


@dataclass(frozen=True)
class Entry:
    """A detector that can be selected by name."""

    name: str  # on the command line: `riskad fit --model NAME`
    detector: type | str  # its class, or "module:Class": some classes take seconds to import
    summary: str  # what it is, in one line
    settings: tuple[Setting, ...] = ()  # that users may set, beside `random_state`
    table_defaults: Mapping[str, Any] = field(default_factory=dict)  # where the class has others
    library: str = ""  # that it requires, and the extra of riskad that installs it
    extra: str = ""
    member: Recipe | None = None  # how `AutoRAD` makes it a member of its average, if it is one

    def load(self) -> Any:
        """Return the class, or say how to install the library that it requires."""
        # Asked before the import, which takes seconds and whose error names a module.
        if self.library and find_spec(self.library) is None:
            raise MissingLibrary(
                f"The model {self.name} needs {self.library}, which is not installed: "
                f"pip install 'riskad[{self.extra}]'. Or choose another: model='auto'."
            )
        if isinstance(self.detector, type):
            return self.detector
        module, _, name = self.detector.partition(":")
        return getattr(import_module(module), name)


DETECTORS: dict[str, Entry] = {}
"""Every detector that can be selected, by name; the first is the default."""


def register_detector(entry: Entry) -> None:
    """Make a detector available by name, in model files, and as a member of `AutoRAD`.

    Its class states what is stored as annotations (`riskad.files.fields`).
    """
    if entry.name in DETECTORS:
        raise InputError(f"There is a detector {entry.name!r} already; choose another name.")
    DETECTORS[entry.name] = entry
    if isinstance(entry.detector, type):
        register(entry.detector)
    if entry.member is not None:
        # Its other members need not be imported to know which detectors there are.
        from riskad.detectors.auto.members import add_member

        add_member(entry.name, entry.member, entry.load().__name__)


def make_detector(name: str, settings: Mapping[str, Any]) -> Any:
    """Return an unfitted detector for a table; settings of other detectors are refused."""
    entry = lookup("model", name, DETECTORS)
    allowed = {setting.name for setting in entry.settings}
    for setting_name in settings:
        others = [
            other.name
            for other in DETECTORS.values()
            if any(setting.name == setting_name for setting in other.settings)
        ]
        if others and setting_name not in allowed:
            rate = " If you know the anomaly rate, give it: anomaly_rate=0.05."
            names = " and ".join(filter(None, [", ".join(others[:-1]), others[-1]]))
            raise InputError(
                f"The model {name} has no setting {setting_name!r}; {names} "
                f"{'have' if len(others) > 1 else 'has'} one: model={others[0]!r}."
                f"{rate if setting_name == 'prior' else ''}"
            )
    kind = entry.load()
    # Not all parameters are settings: Python may pass any, such as `random_state`.
    unknown = set(settings) - set(kind._get_param_names())
    if unknown:
        raise InputError(
            f"{kind.__name__} has no parameter {sorted(unknown)[0]!r}; it has "
            f"{', '.join(kind._get_param_names())}."
        )
    return kind(**{**entry.table_defaults, **settings})


_LABELS = "Which labels are used and how: without anomalies pu, without normal rows nu."
RISK = Setting("risk", _LABELS, choices=RISKS, default="rad")
LOSS = Setting("loss", "What a score on the wrong side costs.", choices=LOSSES)
PRIOR = Setting("prior", "Share of rows that are normal.", number=float, default="0.8")
A = Setting("a", "Weight of unlabelled rows.", number=float, default="0.1")
PENALTY = Setting("penalty", "What is regularised; l1 leaves columns out.", PENALTIES, default="l2")
LAMBDA = Setting(
    "lam",
    "Regularisation: a number, cross-validated, the smallest proved safe, or Theorem 1's.",
    choices=("cv", "tight", "theorem"),
    number=float,
    default="cv",
)
_MAPS = ("rbf", "nystroem", "poly")
FEATURE_MAP = Setting(
    "feature_map", "Features in which the score is linear.", _MAPS, default="none"
)
_STEPS = "Most steps of the solver or of training, or rounds of boosting."
MAX_ITER = Setting("max_iter", _STEPS, number=int)
_SECONDS = "Seconds of work that a fit is planned to take; reasons may take 1/4 more."
BUDGET = Setting("budget", _SECONDS, number=float, default="60")

_OF_RISKS = (RISK, LOSS, PRIOR, A)
for _entry in (
    Entry(
        "auto",
        "riskad.detectors.auto:AutoRAD",
        "average of several kinds of detector, weighted by held-out labels",
        (BUDGET,),
    ),
    Entry(
        "shallow",
        "riskad.detectors.shallow:ShallowRAD",
        "linear, or with a feature map; has bounds, is fast and easy to read",
        (*_OF_RISKS, LAMBDA, PENALTY, FEATURE_MAP, MAX_ITER),
        table_defaults={"lam": "cv"},
    ),
    Entry(
        "boosted",
        "riskad.detectors.boosted:BoostedRAD",
        "boosted trees",
        (*_OF_RISKS, MAX_ITER),
        library="lightgbm",
        extra="boost",
    ),
    Entry(
        "forest",
        "riskad.detectors.forest:ForestRAD",
        "a forest of randomised trees",
        (RISK, PRIOR, A),
    ),
    Entry(
        "pretrained",
        "riskad.detectors.pretrained:PretrainedRAD",
        "a network that was trained on other tables; fit trains nothing",
        (PRIOR,),
    ),
    Entry(
        "outliers",
        "riskad.detectors.outlier_mean:OutlierMean",
        "mean of two outlier scores; needs no label and learns from none",
    ),
    Entry(
        "deep",
        "riskad.deep.risk_detectors:DeepRAD",
        "a neural network",
        (*_OF_RISKS, MAX_ITER),
        library="torch",
        extra="deep",
    ),
):
    register_detector(_entry)
