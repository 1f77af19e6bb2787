"""Messages of the library, which speak Python, in the words of the command line."""

from __future__ import annotations

import re

import click

_SETTING = re.compile(
    r"""\b(?P<name>[a-z_]+)=(?:(?P<quote>['"])(?P<text>.*?)(?P=quote)|(?P<number>-?\d(?:[\d.]*\d)?)|(?P<any>\.\.\.)|(?P<flag>True))"""
)
_FLAGS = {("others", "unlabelled"): "--others-unlabelled"}


def in_words_of(command: click.Command | None, ctx: click.Context, message: str) -> str:
    """Spell `name='value'` as the option that a command has for it; other settings stay."""
    if command is None:
        return message
    options = {
        parameter.name: max(parameter.opts, key=len)
        for parameter in command.get_params(ctx)
        if isinstance(parameter, click.Option)
    }

    def spell(found: re.Match[str]) -> str:
        name, value = found["name"], found["text"] or found["number"] or ""
        if (name, value) in _FLAGS:
            return _FLAGS[name, value]
        if name not in options:  # which model it is, is decided by another command
            return f"`riskad fit --model {value}`" if name == "model" else found[0]
        if found["flag"]:
            return options[name]
        if found["any"] or value == "...":
            return f"{options[name]} VALUE"
        plain = re.fullmatch(r"[\w.:+-]+", value)
        return f"{options[name]} {value if plain else repr(value)}"

    return _SETTING.sub(spell, message)
