"""Every command of `riskad`, from the objects that the command line is made of.

```{commands}
```
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from riskad.cli.main import cli


def commands_of(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield each command with the words that call it, those of groups after their group."""
    for name, command in group.commands.items():
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands_of(command, f"{path} {name}")


def described(command: click.Command) -> Iterator[nodes.Node]:
    """Yield the paragraphs of a command's help, examples as they are written."""
    for part in re.split(r"\n\s*\n", command.help or ""):
        text = part.strip("\n")
        if text.lstrip().startswith("\b"):
            lines = text.split("\b\n", 1)[1]
            title, _, rest = lines.partition("\n")
            yield nodes.paragraph("", title.strip())
            code = textwrap.dedent(rest).strip("\n ")
            yield nodes.literal_block(code, code, language="bash")
        else:
            yield nodes.paragraph("", "", *_with_code(" ".join(text.split())))


def _with_code(text: str) -> list[nodes.Node]:
    """What stands between backticks is code."""
    parts = text.split("`")
    return [
        nodes.literal(part, part) if place % 2 else nodes.Text(part)
        for place, part in enumerate(parts)
        if part
    ]


def options_of(command: click.Command) -> Iterator[tuple[str, str]]:
    """Yield how each parameter is written, and its help with the default."""
    context = click.Context(command, info_name="riskad")
    for parameter in command.get_params(context):
        if isinstance(parameter, click.Argument):
            yield parameter.make_metavar(context), "Argument."
            continue
        written, said = parameter.get_help_record(context)
        if "--help" not in written:
            yield written, " ".join(said.split())


def option_lists(command: click.Command) -> Iterator[nodes.Node]:
    """Yield the options as lists of definitions, under headings if the command has them."""
    if hasattr(command, "sections"):
        context = click.Context(command, info_name="riskad")
        for heading, lines in command.sections(context).items():
            yield nodes.rubric("", heading)
            yield option_list([(written, " ".join(said.split())) for written, said in lines])
    else:
        yield option_list([line for line in options_of(command) if line[1] != "Argument."])


def option_list(lines: list[tuple[str, str]]) -> nodes.definition_list:
    """Return options as a list of definitions."""
    items = []
    for written, said in lines:
        term = nodes.term("", "", nodes.literal(written, written))
        definition = nodes.definition("", nodes.paragraph("", "", *_with_code(said)))
        items.append(nodes.definition_list_item("", term, definition))
    return nodes.definition_list("", *items)


class Commands(SphinxDirective):
    """A section for each command."""

    def run(self) -> list[nodes.Node]:
        """Make the sections; a page made before is made anew where the command line has changed."""
        for source in Path(inspect.getfile(cli.callback)).parent.glob("*.py"):
            self.env.note_dependency(str(source))
        return [self.section(path, command) for path, command in commands_of(cli, "riskad")]

    def section(self, path: str, command: click.Command) -> nodes.section:
        """Make one: usage, help, options."""
        section = nodes.section("", nodes.title("", path), ids=[path.replace(" ", "-")])
        self.state.document.note_explicit_target(section)
        context = click.Context(command, info_name=path)
        usage = " ".join([path, *command.collect_usage_pieces(context)])
        section += nodes.literal_block(usage, usage, language="text")
        section += list(described(command))
        section += list(option_lists(command))
        return section


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True}
