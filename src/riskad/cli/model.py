"""Commands that take a model alone: inspect, threshold, bounds, export."""

from __future__ import annotations

from pathlib import Path

import click

from riskad.cli.options import PATH, as_json, force
from riskad.cli.shell import say, show_progress

__all__ = ["bounds", "export_", "inspect", "threshold"]


class _RuleCommand(click.Command):
    """A command whose help lists the rules for thresholds that there are."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write an example of each rule, and what it means."""
        from riskad.decisions.thresholds import THRESHOLDS

        with formatter.section("Rules"):
            formatter.write_dl([(rule.example, rule.meaning) for rule in THRESHOLDS.values()])
        super().format_epilog(ctx, formatter)


@click.command(cls=_RuleCommand, short_help="Change the threshold rule of a model.")
@click.argument("model", type=PATH)
@click.argument("rule")
@click.option("-o", "--output", type=PATH, required=True, help="Where to write the model.")
@as_json
@force
def threshold(model: Path, rule: str, output: Path, as_json: bool, force: bool) -> None:
    """Change the threshold rule of MODEL to RULE, without another fit.

    \b
    Example:
      riskad threshold cards.riskad false-alarms:0.01 -o strict.riskad
    """  # noqa: D301
    from riskad.app.model_files import load, read_header, save
    from riskad.app.report.terminal import print_threshold
    from riskad.app.threshold import change_threshold
    from riskad.storage.files import check_output_file, together

    check_output_file(output, force)
    with together(), show_progress() as progress:
        progress(f"Reading {model.name}")
        loaded = load(model)
        notes, report = change_threshold(loaded, read_header(model), rule)
        save(loaded, output, notes=notes, force=force)
        said = say(
            "threshold",
            as_json,
            report,
            print_threshold,
            str(output),
            written={"model": str(output)},
        )
    click.echo(said)


@click.command("export", short_help="Write a model as ONNX, to be run without Python.")
@click.argument("model", type=PATH)
@click.argument("output", type=PATH)
@as_json
@force
def export_(model: Path, output: Path, as_json: bool, force: bool) -> None:
    """Write MODEL to OUTPUT as an ONNX graph, which onnxruntime runs in many languages.

    The graph takes the columns of the table as they are, one input each, prepares them and returns
    anomaly_score and is_anomaly. It is compared with the model before it is written.

    \b
    Example:
      riskad export cards.riskad cards.onnx
    """  # noqa: D301
    from riskad.app.model_files import load
    from riskad.app.onnx import export
    from riskad.app.report.terminal import print_export
    from riskad.storage.files import check_output_file, together

    check_output_file(output, force)
    with together(), show_progress() as progress:
        progress(f"Reading {model.name}")
        fitted = load(model)
        progress(f"Writing {output.name} and comparing it with the model")
        report = export(fitted, output, force=force)
        said = say(
            "export", as_json, report, print_export, str(output), written={"graph": str(output)}
        )
    click.echo(said)


@click.command(short_help="Show what a model is and what it was trained on.")
@click.argument("model", type=PATH)
@click.option("--card", type=PATH, help="Where to write a model card, a page of Markdown.")
@as_json
@force
def inspect(model: Path, card: Path | None, as_json: bool, force: bool) -> None:
    """Show what MODEL is, when and on what data it was trained, and its weights.

    \b
    Example:
      riskad inspect cards.riskad --card cards.md
    """  # noqa: D301
    from riskad.app.card import write_card
    from riskad.app.inspect import describe_model
    from riskad.app.model_files import load, read_header
    from riskad.app.report.terminal import print_model
    from riskad.storage.files import check_output_file

    if card is not None:
        check_output_file(card, force)
    with show_progress() as progress:
        progress(f"Reading {model.name}")
        report = describe_model(load(model), read_header(model))
        if card is not None:
            write_card(report, model.name, card, force)
    click.echo(say("inspect", as_json, report, print_model, model.name))


@click.command(short_help="Show how far a model can be from the best of its class.")
@click.argument("model", type=PATH)
@click.option(
    "--delta",
    type=float,
    default=0.05,
    show_default=True,
    help="Probability with which the bounds may fail.",
)
@as_json
def bounds(model: Path, delta: float, as_json: bool) -> None:
    """Show how far the risk of MODEL, made by `riskad fit`, can be from the best of its class.

    The numbers come from the paper's theorems, term by term: they show which kind of row is too
    scarce. They hold for every distribution and are large for small tables; if they say nothing at
    all, the output says so.

    \b
    Example:
      riskad bounds cards.riskad --delta 0.1
    """  # noqa: D301
    from riskad.app.bounds import bound_model
    from riskad.app.model_files import read_header
    from riskad.app.report.terminal_bounds import print_bounds

    with show_progress() as progress:
        progress(f"Reading {model.name}")
        found = bound_model(read_header(model), delta)
    click.echo(say("bounds", as_json, found, print_bounds, model.name))
