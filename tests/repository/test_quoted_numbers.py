"""The figures that the documents quote are those of results/, rounded as quoted.

Below a paragraph or a table, a comment says where its figures come from, in their order:

    <!-- figures
    0.933 = field / budget = '5 %' AND method = 'AutoRAD' / mean of auc
    ~540 = decisions/streaming.json / records / rows = 10000000 / min of peak_mb
    table = field/tables/field.md, 10 % labelled: 16 methods
    2.5 ms: arithmetic with the figures above
    -->

`=` is followed by a file in results/, or the name of a suite (its records that succeeded), and the
way to the value: keys, places in lists, conditions of SQL that choose among records, a regular
expression with a group in a text, and at last perhaps `* 100` or `- 1`. The zeros of `~540` do not
count. Each row of a table is part of a row below that heading. A figure before a colon is not
compared; the words say why. Figures that neither a comment nor `SETTINGS` explains fail a test.
"""

import json
import re
from functools import cache
from pathlib import Path
from statistics import fmean, median

import polars as pl
import pytest
from support.loops import each

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
WORDS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMENT = re.compile(r"^<!-- figures\n(.*?)^-->$", flags=re.M | re.S)
CODE = re.compile(
    r"(^<!-- figures.*?^-->$)|^```.*?^```$|^<!-- run.*?^-->$|^    [^\n]*$|`[^`\n]+`", re.M | re.S
)
# A figure that may be a result: with a decimal point, or with a unit behind it.
FIGURE = re.compile(
    r"(?<![\w./=:-])-?\d[\d,]*\.\d+(?![\w.]*[\w/])"
    r"|(?<![\w.,:])\d[\d,]*(?=\s(?:%|times|ms|s|seconds|minutes|MB|MiB|GiB|GB/s|ns)(?!\w))"
)
# What is a budget of labels, a level or a version wherever it stands.
SETTINGS = re.compile(
    r"\d+ %(?=\slabel|\sof\sthe\s(?:rows|paper)|\sconfidence|\sinterval|\squantile)|Python 3\.\d+"
)
REDUCE = {
    "mean": fmean,
    "median": median,
    "min": min,
    "max": max,
    "sum": sum,
    "spread": lambda values: max(values) - min(values),
    "count": lambda values: len(set(values)),
}

pytestmark = pytest.mark.skipif(
    not RESULTS.is_dir(), reason="results/ is part of the repository, not of the package"
)


@cache
def read(name):
    if name.endswith(".json"):
        return json.loads((RESULTS / name).read_text(encoding="utf-8"))
    if name.endswith(".md"):
        return (RESULTS / name).read_text(encoding="utf-8")
    return pl.read_parquet(RESULTS / name / f"{name}.parquet").filter(pl.col("status") == "ok")


def follow(value, step):
    """One step of the way to a value."""
    if isinstance(value, dict):
        return value[step]
    if isinstance(value, str):
        return float(re.search(step, value, flags=re.M)[1])
    if isinstance(value, list) and step in REDUCE:
        return REDUCE[step](value)
    if isinstance(value, list) and step.isdigit():
        return value[int(step)]
    records = value
    if isinstance(value, list):
        plain = [
            {k: v for k, v in each.items() if not isinstance(v, dict | list)} for each in value
        ]
        records = pl.DataFrame(plain, infer_schema_length=None)
    reduced = re.fullmatch(rf"({'|'.join(REDUCE)}) of (\w+)", step)
    if not reduced:
        chosen = records.with_row_index("place of a record").filter(pl.sql_expr(step))
        places = chosen["place of a record"].to_list()
        return [value[place] for place in places] if isinstance(value, list) else value[places]
    name, column = reduced.groups()
    if name == "mean" and "dataset" in records.columns:  # each dataset counts as much
        records = records.group_by("dataset").agg(pl.col(column).mean())
    return REDUCE[name](records[column].to_list())


def value_of(source):
    """The value at the end of a way."""
    way, sign, number = re.fullmatch(r"(.*?)(?: ([*-]) ([\d.e-]+))?", source).groups()
    name, *steps = way.split(" / ")
    value = read(name)
    for step in steps:
        value = follow(value, step)
    return value * float(number) if sign == "*" else value - float(number or 0)


def half_a_unit(quoted, rough=False):
    """Half of the last digit of a figure: by so much rounding may move it."""
    digits, _, power = quoted.replace(",", "").partition("e")
    if "." in digits:
        last = -len(digits.partition(".")[2])
    else:
        last = len(digits) - len(digits.rstrip("0")) if rough else 0
    return 0.5 * 10.0 ** (last + int(power or 0))


def is_quoted_of(quoted, value):
    """Whether a figure is this value, rounded; results are rounded themselves, to 4 digits."""
    text = quoted.removeprefix("~")
    number = WORDS.index(text) if text in WORDS else float(text.replace(",", ""))
    return abs(number - value) <= 1.001 * half_a_unit(text, quoted != text) + 1e-12


def is_row_of(row, below):
    """Whether the cells of a row are, in their order, among those of a row below a heading."""
    for line in below.splitlines():
        cells = iter(cell.strip() for cell in line.split("|"))
        if all(cell in cells for cell in row):
            return True
    return False


def check_table(block, source):
    name, heading = source.split(", ", 1)
    below = read(name).partition(f"\n## {heading}")[2].partition("\n## ")[0]
    lines = [line for line in block.splitlines() if line.startswith("|")]
    body = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    assert body
    assert below
    return [row for row in body if not is_row_of(row, below)]


def problems(text):
    """Figures of a document that are not those of the results, or have no source."""
    # Code is no prose; spaces keep the places of all else.
    text = CODE.sub(lambda m: m[0] if m[1] else re.sub(r"[^\n]", " ", m[0]), text)
    covered = [match.span() for pattern in (SETTINGS, COMMENT) for match in pattern.finditer(text)]
    for comment in COMMENT.finditer(text):
        block = place = max(text.rfind("\n\n", 0, comment.start()), 0)
        for line in comment[1].splitlines():
            figure, mark, source = re.fullmatch(r"(.+?)( =|:) (.*)", line).groups()
            if figure == "table":
                yield from check_table(text[place : comment.start()], source)
                covered.append((place, comment.start()))
                continue
            words = r"\s+".join(map(re.escape, figure.removeprefix("~").split()))
            words = re.compile(rf"(?<![\w.]){words}(?!\w|\.\d)")
            found = words.search(text, place if mark == " =" else block, comment.start())
            if not found:
                yield f"{figure} is not in the text above"
                continue
            place = max(place, found.end() if mark == " =" else 0)
            covered.append(found.span())
            if mark == " =" and not is_quoted_of(figure, value_of(source)):
                yield f"{figure} is quoted of {value_of(source)}: {source}"
    for figure in FIGURE.finditer(text):
        start, end = figure.span()
        if not any(first <= start and end <= last for first, last in covered):
            yield f"no source: {text[max(0, start - 60) : end + 30]}"


@each("document", DOCUMENTS)
def test_figures_are_those_of_the_results(document):
    assert list(problems(document.read_text("utf-8"))) == []


def test_what_is_wrong_is_found():
    def text(figure, way="onnx.json / AutoRAD, 20 columns / megabytes"):
        return f"The file has {figure} MB.\n<!-- figures\n{figure} = {way}\n-->\n"

    assert list(problems(text("38"))) == []
    assert len(list(problems(text("39")))) == 1
    assert len(list(problems(text("38").replace("has 38", "has 39")))) == 2  # nor has 39 a source
    assert len(list(problems("The mean AUC is 0.951, 7 times as good."))) == 2
    row = "| method | AUC |\n|---|---|\n| LogReg | {} |\n<!-- figures\ntable = {}\n-->\n"
    table = "field/tables/field.md, 10 % labelled: 16 methods"
    assert [len(list(problems(row.format(auc, table)))) for auc in ("0.897", "0.898")] == [0, 1]
