"""Commands as a person calls them, in this process."""

import json

from click.testing import CliRunner

from riskad.cli.main import cli


def invoke(*arguments):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def run(*arguments, code=0):
    """What came of a command that must end with this code, and without a traceback."""
    result = invoke(*arguments)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def succeed(*arguments):
    """What a command prints that must succeed."""
    result = run(*arguments)
    assert result.stderr == ""
    return result.stdout


def result_of(*arguments, code=0):
    """The JSON object that a command prints with --json."""
    return json.loads(run(*arguments, "--json", code=code).stdout)


def fail(*arguments, code=1):
    """The words of a command that must fail with a sentence, and without output."""
    result = run(*arguments, code=code)
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    assert "Error: " in result.stderr
    return result.stderr
