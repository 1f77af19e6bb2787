"""Print the lowest versions that pyproject.toml promises, as constraints-lowest.txt holds them.

python .ci/lowest.py > constraints-lowest.txt
"""

import re
import tomllib
from pathlib import Path

HEADER = """\
# The lowest versions that pyproject.toml promises, made by `python .ci/lowest.py`. The tests are
# run with these in place of constraints.txt's. torch is not among them: any but the pinned one
# would bring gigabytes of CUDA libraries.
"""
EXTRAS = ("app", "boost", "duckdb", "excel", "onnx", "parquet", "scale", "zstd")
REQUIREMENT = re.compile(r"([\w.-]+)(?:\[([\w,]+)\])?>=([\w.]+)")


def lowest(pyproject):
    """The lines `name==version`; what must be of one version with another follows it."""
    project = pyproject["project"]
    wanted = list(project["dependencies"])
    for extra in EXTRAS:
        wanted += project["optional-dependencies"][extra]
    for requirement in wanted:
        if requirement.startswith("riskad["):
            continue
        match = REQUIREMENT.fullmatch(requirement.split(";")[0])
        if match is None:
            raise SystemExit(f"{requirement!r} of pyproject.toml names no lowest version: add one.")
        name, extras, version = match.groups()
        yield f"{name}=={version}"
        if "distributed" in (extras or ""):
            yield f"distributed=={version}"


def text(root):
    """What constraints-lowest.txt has to hold."""
    pyproject = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return HEADER + "".join(f"{line}\n" for line in sorted(set(lowest(pyproject))))


if __name__ == "__main__":
    print(text(Path(__file__).parents[1]), end="")
