"""Every option of every command, as the command line declares them, with values that do not fit."""

import click

from riskad.cli.main import cli
from riskad.detectors.registry import DETECTORS


def _values(text, *others):
    return ["", " ", "x" * 300, *text.split(), *others]


INTEGERS = _values("0 1 -1 3 1.5 x 2147483648 9223372036854775808 1e3 ٣", "9" * 30)
FLOATS = _values("0 0.1 0.5 1 -0.5 1.5 1e308 1e-320 nan inf -inf 1e400 x 0,5 50%")
TEXTS = _values(
    "status amount age country txid ok fraud Status é amont * [ - -- --help {} 0 1",
    "\udcff",
    "a\nb",
)
RULES = _values(
    "risk rate rate:0.1 rate:nan rate:inf f1 f2 f0 f-1 fnan f1e400 F1 f1:2 : :: cost:1:10 cost:0:0 "
    "cost:1 cost:1e308:1e-308 top:3 top:-1 top:1.5 top:1e30 false-alarms:0 false-alarms:2"
)
# A folder of the system, but not its root: all of it would be searched for tables.
INPUTS = _values(
    "plain.csv plain.csv missing.csv plain . /dev folder empty.csv *.csv [ ~ plain.csv/x plain.cvs "
    "shallow.riskad \udcff.csv"
)
OUTPUTS = _values(
    "out.csv out.parquet out.html out.json out.riskad out.onnx out . folder missing/out.csv "
    "plain.csv shallow.riskad empty.csv/out.csv out.CSV out.csv.gz /dev/null \udcff.csv"
)
MODELS = _values(
    "shallow.riskad boosted.riskad forest.riskad fixture_waves.riskad deep.riskad "
    "fixture_deep.riskad plain.csv folder missing.riskad shallow.riskd empty.csv"
)
GOOD = {"model_file": "shallow.riskad", "data": "plain.csv", "rule": "f1", "label": "status"}
ENDINGS = {"fit": "out.riskad", "threshold": "out.riskad"}
ENDINGS |= {"report": "out.html", "export": "out.onnx"}


COMMANDS = sorted(cli.commands.items())
# They run for minutes, or until they are stopped: each gets an option that no command has.
LONG = [found for found in COMMANDS if found[0] in ("demo", "label", "serve")]
SHORT = [found for found in COMMANDS if found not in LONG]


def options(rng, folder, store):
    """A command line: what it must have, right or wrong, and some of what it may have."""
    (folder / "folder").mkdir()
    (folder / "empty.csv").touch()
    (folder / "plain.csv").write_bytes((store / "plain.csv").read_bytes())
    name, command = rng.choice(LONG if rng.random() < 0.05 else SHORT)
    step = ["riskad", name]
    wrong = rng.choice((0, 0.1, 0.5))
    for parameter in command.get_params(click.Context(command)):
        needed = parameter.required or isinstance(parameter, click.Argument)
        left_out = rng.random() > (1 - wrong / 3 if needed else 0.15)
        if parameter.name == "help" or left_out:
            continue
        repeats = 2 if (parameter.multiple or parameter.nargs == -1) and rng.random() < 0.2 else 1
        for _ in range(repeats):
            step += _words(rng, parameter, name, needed and rng.random() >= wrong)
    if name == "fit":
        step += _quick_fit(rng, step)
    if rng.random() < 0.3 and "--force" not in step:
        step.append("--force")
    if (name, command) in LONG:
        step.append("--no-such-option")
    if rng.random() < wrong / 4:
        step.insert(rng.randrange(1, len(step) + 1), rng.choice(TEXTS))
    return [step]


def _words(rng, parameter, command, good):
    """How a parameter is written: its name, if it has one, and a value."""
    names = [] if isinstance(parameter, click.Argument) else [rng.choice(parameter.opts)]
    if getattr(parameter, "is_flag", False):
        return names
    value = GOOD.get(parameter.name) if good else None
    if good and parameter.name == "output":
        value = ENDINGS.get(command, "out.csv")
    return [*names, _value(rng, parameter) if value is None else value]


def _value(rng, parameter):
    kind = parameter.type
    if isinstance(kind, click.Choice):
        choices = [choice for choice in kind.choices if choice != "dask"]  # starts a cluster
        return rng.choice((*choices, *choices, "", "x", choices[0].upper()))
    if isinstance(kind, click.types.IntParamType):
        return rng.choice(INTEGERS)
    if isinstance(kind, click.types.FloatParamType):
        return rng.choice(FLOATS)
    if parameter.name in ("threshold", "rule"):
        return rng.choice(RULES)
    if parameter.name == "lam":
        return rng.choice((*FLOATS, "cv", "tight", "theorem"))
    if parameter.name == "model_file" or (parameter.name, type(kind)) == ("model", click.Path):
        return rng.choice(MODELS)
    if parameter.name == "model":
        return rng.choice((*DETECTORS, "", "x", "Shallow"))
    if parameter.name in ("data", "description", "folder"):
        return rng.choice(INPUTS)
    return rng.choice(OUTPUTS if isinstance(kind, click.Path) else TEXTS)


def _quick_fit(rng, step):
    """Most fits are of the quick model; labels have their meaning."""
    words = [] if "--normal" in step else ["--normal", "ok", "--anomaly", "fraud"]
    slow = [] if "--budget" in step else ["--budget", "0.5"]
    quick = ["--model", "shallow", *([] if "--lam" in step else ["--lam", "0.1"])]
    return words + (quick if rng.random() < 0.97 else slow)
