"""`riskad refit`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from riskad.cli import params
from riskad.cli.params import FORCE, JSON, MODEL, TABLE
from riskad.cli.run import Run, answered, command
from riskad.cli.shell import ALARM


@command("Fit the next model, and compare it with the last one.", MODEL, TABLE, JSON, FORCE)
@params.spec_options("label", shown_default="the model's")
@params.spec_options(*params.LABELS[1:])
@params.spec_options("label_sampling", default=None, shown_default="the model's")
@params.path(
    "--journal", help="Answers of `riskad label` or of feedback; they override the labels in DATA."
)
@params.path(
    "--held-out",
    metavar="TABLE",
    help="Labelled rows that neither model learns from, to compare the two.  [default: answers in "
    "the journal that are newer than MODEL]",
)
@params.output(required=True, help="Where to write the new model.")
@params.path(
    *("--report", "page"),
    help="Where to write a report with both models: a page (.html) that opens offline, or .json.",
)
@params.option(
    "--even-if-worse", is_flag=True, help="Write the new model even if it is clearly worse."
)
def refit(
    run: Run,
    journal: Path | None,
    held_out: Path | None,
    output: Path,
    page: Path | None,
    even_if_worse: bool,
    **labels: Any,
) -> None:
    """Fit the next model on DATA with the settings and columns of MODEL, and compare the two.

    Both are compared on labels that they have not learned from: answers in the journal that are
    newer than MODEL. MODEL scores these rows as it is; for the new model, each row is scored by a
    fit that has not seen it. If the new model is clearly worse, that is, if the whole 95 % interval
    of the difference of AUCs is below 0, it is not written, and the exit code is 3.

    OUTPUT may be MODEL itself, with --force; it is replaced in one step.

    \b
    Examples:
      riskad refit cards.riskad cards.csv --journal cards.csv.labels.jsonl -o next.riskad
      riskad refit cards.riskad cards.csv --journal cards.csv.labels.jsonl -o cards.riskad \\
        --force --json > refit.json
    """  # noqa: D301
    from riskad.app.describe import describe_fit
    from riskad.app.model_files import save
    from riskad.app.refit import Judging, judged_since, refit_spec, refit_table
    from riskad.app.report.terminal import print_refit
    from riskad.tables.reading import read_table

    with run.start(model=output, report=page):
        spec = refit_spec(run.header, **labels)
        table, sampling, judging = run.table, None, None
        if journal is not None:
            applied, spec = answered(table, journal, spec)
            table, sampling = applied.frame, applied.sources
            unseen = judged_since(applied.first_judged, run.header.created)
            judging = Judging(unseen, applied.sources)
        if held_out is not None and spec.labels is not None:
            judging = Judging.by_table(read_table(held_out), spec.labels)
        fit = refit_table(
            run.model,
            run.header,
            table,
            judging,
            spec=spec,
            sampling=sampling,
            even_if_worse=even_if_worse,
            source=run.source,
            progress=run.progress,
        )
        before = fit.report.before
        assert before is not None
        if before.takes_over:
            save(fit.model, output, report=fit.report, force=run.force)
        else:
            del run.written["model"]
        if page is not None:
            run.write_report(describe_fit(fit, command=run.ctx.obj), page)
        run.say(describe_fit(fit) if run.as_json else fit.report, print_refit, run.written)
    run.ctx.exit(ALARM if before.alarm else 0)
