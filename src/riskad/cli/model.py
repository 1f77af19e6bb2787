"""Commands that take a model alone: inspect, threshold, export."""

from __future__ import annotations

from pathlib import Path

import click

from riskad.cli import params
from riskad.cli.params import FORCE, JSON, MODEL
from riskad.cli.run import Run, command


class _RuleCommand(click.Command):
    """A command whose help lists the rules for thresholds that there are."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write an example of each rule, and what it means."""
        from riskad.decisions.thresholds import THRESHOLDS

        with formatter.section("Rules"):
            formatter.write_dl([(rule.example, rule.meaning) for rule in THRESHOLDS.values()])
        super().format_epilog(ctx, formatter)


@command("Change the threshold rule of a model.", MODEL, JSON, FORCE, cls=_RuleCommand)
@click.argument("rule")
@params.output(required=True, help="Where to write the model.")
def threshold(run: Run, rule: str, output: Path) -> None:
    """Change the threshold rule of MODEL to RULE, without another fit.

    \b
    Example:
      riskad threshold cards.riskad false-alarms:0.01 -o strict.riskad
    """  # noqa: D301
    from riskad.app.model_files import save
    from riskad.app.report.terminal import print_threshold
    from riskad.app.threshold import change_threshold

    with run.start(model=output):
        fit_report, report = change_threshold(run.model, run.header, rule)
        save(run.model, output, report=fit_report, force=run.force)
        run.say(report, print_threshold, str(output))


@command("Write a model as ONNX, to be run without Python.", MODEL, JSON, FORCE, name="export")
@click.argument("output", type=params.PATH)
def export_(run: Run, output: Path) -> None:
    """Write MODEL to OUTPUT as an ONNX graph, which onnxruntime runs in many languages.

    The graph takes the columns of the table as they are, one input each, prepares them and returns
    anomaly_score and is_anomaly. It is compared with the model before it is written.

    \b
    Example:
      riskad export cards.riskad cards.onnx
    """  # noqa: D301
    from riskad.app.onnx import export
    from riskad.app.report.terminal import print_export

    with run.start(graph=output):
        model = run.model
        run.progress(f"Writing {output.name} and comparing it with the model")
        run.say(export(model, output, force=run.force), print_export, str(output))


@command("Show what a model is and what it was trained on.", MODEL, JSON, FORCE)
@params.path("--card", help="Where to write a model card, a page of Markdown.")
def inspect(run: Run, card: Path | None) -> None:
    """Show what MODEL is, when and on what data it was trained, and its weights.

    \b
    Example:
      riskad inspect cards.riskad --card cards.md
    """  # noqa: D301
    from riskad.app.describe import describe_model
    from riskad.app.report.documents import make_card, write_text
    from riskad.app.report.terminal import print_model

    with run.start(card=card):
        report, name = describe_model(run.model, run.header), run.model_file.name
        if card is not None:
            write_text(make_card(report, name), card, run.force)
        run.say(report, print_model, name)
