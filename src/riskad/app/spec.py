"""The specification of a fit: everything that `riskad.fit_table` and `riskad fit` can be told.

One dataclass is the source of all of it: the options of the command line are made from its fields,
the model file stores it, `refit` is `replace(spec, ...)`, and the report shows it. To add an
option, add a field here and use it in `riskad.app.fit` (docs/extending/option.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Any

from riskad.core.checks import InputError, check_choice, lookup, quoted

if TYPE_CHECKING:
    from riskad.tables.labelled import LabelColumn

__all__ = ["FitSpec"]

LABEL_SAMPLING = ("random", "chosen", "unknown")
_LARGEST_SEED = 2**32 - 1  # that scikit-learn takes
_MOST_ROWS = 10**9  # beyond this a number of rows is a slip of the keyboard


def _option(default: Any, help: str, *, heading: str, **more: Any) -> Any:
    """A field that is also an option of `riskad fit`, under a heading of its help.

    `flags`, `metavar` and `shown_default`, if it is not the value, are for the command line. `most`
    is the largest number allowed, and `check` raises an `InputError` for a value that cannot be.
    """
    if isinstance(default, str | float) or type(default) is int:
        more.setdefault("shown_default", str(default))
    metadata = {"help": help, "heading": heading, **more}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


_label = partial(_option, heading="Labels", metavar="VALUE")
_column = partial(_option, heading="Columns", metavar="COLUMN")
_decision = partial(_option, heading="Decision")
_model = partial(_option, heading="Model")


@dataclass(frozen=True)
class FitSpec:
    """Everything that a fit can be told; the defaults need nothing but a table.

    Each field has the name of an option of `riskad fit`, whose `--help` explains it.

    Parameters
    ----------
    label
        Column with the labels. Without one, rows are ranked by how unlike the others they are.
    normal, anomaly, unlabelled
        Values of that column with this meaning; blank is always unlabelled. If neither normal nor
        anomaly is given, the words "normal" and "anomaly" are understood.
    others_unlabelled
        Whether all other values mean unlabelled; otherwise they are refused.
    id, drop
        Columns to ignore: the one that names the rows, and others.
    kinds
        Kinds of columns by name, which override what is found: `{"when": "date:%d.%m.%Y"}`; see
        `riskad.TablePreparer`.
    backbone
        An ONNX file of a network that you trust, to look at the pictures of a folder, or of columns
        that hold paths of pictures (`riskad.tables.backbones`).
    broken_pictures
        "skip": pictures that cannot be read count as blank, and are named; or "refuse".
    group
        A column that names the group of each row, a customer for instance. The model then also
        learns how unusual a value is within its group. Rows of one group are held out together:
        quality, thresholds and probabilities are those for new groups. A blank cell is a group of
        its own.
    threshold_by
        A column of segments, such as shops: each then has its own rate, probabilities and
        threshold, as far as its labels tell (`riskad.decisions.segments`).
    time
        A column of dates, to train on the past and judge on later rows. Of five periods with
        equally many labelled rows, each but the first is scored by a fit to all earlier ones.
        Quality, probabilities and all thresholds use these scores, except "risk", which is the
        model's own; `FitReport.over_time` shows how they change. The model itself is fitted to all
        rows. Blank cells count as the earliest. These fits take as long as the model, or longer.
    window, step
        Lengths of time, "1h" and "10m": the rows are points of a time series, or of one for each
        `group`, and become windows of this length, one every step (by default a sixth). The model
        learns from features of windows (`riskad.windows`). Needs `time`. Windows of one marked
        incident are held out together, and `group` only names series.
    enough
        A window is an anomaly if it holds this share of an incident, or if this share of it is
        anomalies, and normal if it holds no anomaly and this share of it is labelled normal.
    model
        A name of `riskad.detectors.registry.DETECTORS`, such as "auto" or "shallow". "auto" ranks
        by "outliers" if no row is labelled.
    settings
        Parameters of that detector. For "shallow" the default of `lam` is "cv" here.
    threshold
        Rule of `riskad.decisions.thresholds`, or its spelling; by default the detector's own.
    capacity
        How many rows people can review, instead of a threshold: 50, "50/day", "50/week" or
        "200/month". The column `time` shows how many rows arrive; without it the unlabelled rows
        count as one batch. Later rows are flagged in the same proportion.
    anomaly_rate
        Share of anomalies among the unlabelled rows, if you know it; by default estimated. A
        detector with a `prior` uses 1 minus this rate, unless `settings` contain it.
    label_sampling
        How rows were chosen for labelling, on which the estimated anomaly rate depends: "random",
        "chosen" or "unknown"; or a column with a word for each row, where any other means chosen.
    quick
        Whether trees also learn the scores of "auto" (`AutoRAD.compress`); other models are quick.
    forget_rows
        Whether the model must hold no training row; "auto" and others that need some are refused.
    seed
        Same seed, same answer.
    top
        Number of the most suspicious unlabelled rows to report.

    Examples
    --------
    >>> spec = FitSpec(label="status", normal="ok", anomaly=["fraud", "theft"], model="shallow")
    >>> spec.normal, spec.updated(threshold="top:50").threshold
    (('ok',), 'top:50')
    """

    label: str | None = _label(None, "Column with the labels.", metavar="COLUMN", flags=("-l",))
    normal: tuple[str, ...] = _label((), "Label of normal rows (may repeat).")
    anomaly: tuple[str, ...] = _label((), "Label of anomalies (may repeat).")
    unlabelled: tuple[str, ...] = _label(
        (), "Label that means unlabelled, besides blank (may repeat)."
    )
    others_unlabelled: bool = _label(False, "All other labels mean unlabelled.", metavar=None)
    label_sampling: str = _label(
        "unknown",
        "How rows were selected for labelling: drawn at random, or chosen because they looked odd, "
        "by a rule or by `riskad suggest`; or a column that says so for each row. The estimated "
        "anomaly rate depends on it.",
        metavar="random|chosen|unknown|COLUMN",
    )
    id: str | None = _column(None, "Column that names the rows.")
    drop: tuple[str, ...] = _column((), "Column to ignore (may repeat).")
    kinds: dict[str, str] = _column(
        {},
        "What a column is, whatever it looks like: amount=number, code=category, "
        "when=date:%d.%m.%Y, paid=number:1.234,50, body=text:encoder (may repeat).",
        metavar="COLUMN=KIND",
        flags=("--kind",),
    )
    backbone: str | None = _column(
        None,
        "A network that you trust (.onnx), to look at the pictures of a folder or of columns of "
        "paths.",
        metavar="FILE",
    )
    broken_pictures: str = _column(
        "skip",
        "Pictures that cannot be read count as blank (skip) or stop the fit (refuse).",
        metavar="skip|refuse",
        check=partial(check_choice, "broken_pictures", choices=("skip", "refuse")),
    )
    group: str | None = _column(
        None,
        "Column that says which rows belong together, a customer for instance: values are also "
        "compared within a group, and its rows are held out together.",
    )
    time: str | None = _column(
        None,
        "Column of dates: quality and probabilities then come from fits to earlier rows, evaluated "
        "on later rows. Blank counts as earliest.",
    )
    window: str | None = _column(
        None,
        "Rows are points of a time series, by --time: learn from windows of this length (1h, 7d).",
        metavar="LENGTH",
    )
    step: str | None = _column(
        None,
        "Time from one window to the next.",
        metavar="LENGTH",
        shown_default="a sixth of the window",
    )
    enough: float = _column(
        0.5,
        "Share of an incident, or of a window, from which a window is an anomaly.",
        metavar="SHARE",
    )
    threshold: str | None = _decision(
        None,
        "What is_anomaly means, top:50 for instance; see `riskad threshold --help`.",
        metavar="RULE",
        shown_default="likely with auto, risk with other models",
    )
    threshold_by: str | None = _decision(
        None,
        "Column of segments, shops for instance: each then has a threshold, a rate and "
        "probabilities of its own, as far as its labels tell.",
        metavar="COLUMN",
    )
    capacity: str | None = _decision(
        None,
        "How many rows you can check: 50/day, 50/week, 200/month, or 50 for the whole table. That "
        "many rows are flagged, and the same proportion of later rows; --time tells how many rows "
        "arrive per period.",
        metavar="ROWS/PERIOD",
    )
    anomaly_rate: float | None = _decision(
        None,
        "Share of anomalies among the unlabelled rows, 0.03 for instance, if you know it.",
        metavar="SHARE",
        shown_default="estimated",
    )
    model: str = _model(
        "auto",
        "auto needs no settings; the others have the settings below, with their own defaults.",
        metavar="NAME",
    )
    settings: dict[str, Any] = _option({}, "Settings of single models.", heading="")
    quick: bool = _model(
        False, "Also let trees learn the scores of auto, for `riskad score --quick`."
    )
    forget_rows: bool = _model(
        False, "Write a model that contains no row of DATA; not possible with auto and pretrained."
    )
    seed: int = _model(0, "Same seed, same answer.", most=_LARGEST_SEED)
    top: int = _option(10, "How many suspicious rows to print.", heading="Output", most=_MOST_ROWS)

    def __post_init__(self) -> None:
        # Imported here, so that the options of a command are known without NumPy.
        from riskad.decisions.anomaly_rate import as_rate_estimate
        from riskad.decisions.capacity import parse_capacity
        from riskad.decisions.thresholds import parse_threshold
        from riskad.detectors.registry import DETECTORS

        for each in fields(self):
            name, value, most = each.name, getattr(self, each.name), each.metadata.get("most")
            if isinstance(each.default, tuple):
                is_one = isinstance(value, str) or not isinstance(value, Sequence)
                value = tuple(map(str, [value] if is_one else value))
            elif name in ("backbone", "threshold", "capacity") and value is not None:
                value = str(value)  # a path, a rule object or a number stands for its spelling
            object.__setattr__(self, name, value)
            if most is not None and not (isinstance(value, Integral) and 0 <= int(value) <= most):
                raise InputError(f"{name}={value!r} must be a whole number from 0 to {most:,}.")
            if value is not None and "check" in each.metadata:
                each.metadata["check"](value)
        if self.window is None and self.step is not None:
            raise InputError(f"step={quoted(self.step)} is that of windows: say window=..., too.")
        if not 0 < self.enough <= 1:
            raise InputError(f"enough={self.enough} must be a share above 0, and at most 1.")
        if self.window is not None and self.time is None:
            raise InputError(
                f"window={quoted(self.window)} needs time=..., the column that says when each row "
                "was."
            )
        if self.window is not None and self.threshold_by is not None:
            raise InputError(
                f"threshold_by={quoted(self.threshold_by)} is about rows, and "
                f"window={quoted(self.window)} makes others of them; leave one out."
            )
        lookup("model", self.model, DETECTORS)
        if self.threshold is not None:
            parse_threshold(self.threshold)
        if self.capacity is not None:
            parse_capacity(self.capacity)
        if self.anomaly_rate is not None:
            as_rate_estimate(self.anomaly_rate)
        if self.threshold is not None and self.capacity is not None:
            raise InputError(
                f"threshold={quoted(self.threshold)} and capacity={quoted(self.capacity)} are two "
                "ways to decide; give one of them."
            )

    def updated(self, **options: Any) -> FitSpec:
        """Return a copy with some fields replaced; an error suggests names for unknown ones."""
        for option in options:
            check_choice("option", option, [each.name for each in fields(self)])
        return replace(self, **options)

    @property
    def labels(self) -> LabelColumn | None:
        """The column of labels and what its values mean; None if no column is named."""
        from riskad.tables.labelled import LabelColumn

        if self.label is None:
            return None
        others = "unlabelled" if self.others_unlabelled else "raise"
        return LabelColumn(self.label, self.normal, self.anomaly, self.unlabelled, others)

    @property
    def unit(self) -> str:
        """What the model scores: "row", or "window"."""
        return "row" if self.window is None else "window"

    @property
    def row_names(self) -> str | None:
        """The column that names the rows: the one that says so, that of windows, or of pictures."""
        if self.window is not None:
            return self.time
        images = (name for name, kind in self.kinds.items() if kind.startswith("image"))
        return self.id or next(images, None)
