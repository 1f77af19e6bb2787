"""Run the code of the pages, and refresh what they show.

python docs/pages.py                    run all pages, say where they differ from what is printed
python docs/pages.py --write            the same, and write output and pictures into the pages
python docs/pages.py --write howto/threshold.md

A page runs from its top to its end in an empty folder: `python` blocks in one namespace, lines of
`bash` blocks that begin with `riskad`. What stands in `<!-- run ... -->` runs without being shown.
A `text` block shows what the block before it printed; with lines `...` in it, parts of that.
Figures may differ in a `text` block, words may not. An SVG or PNG that a page writes is one of
`docs/images`. `shell` blocks are not run: installing, servers, clusters.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

DOCS = Path(__file__).parent
BLOCK = re.compile(
    r"^```(?P<language>python|bash|text)\n(?P<code>.*?)^```$|^<!-- run\n(?P<hidden>.*?)^-->$",
    flags=re.M | re.S,
)


@dataclass(frozen=True)
class Block:
    """Code or output of a page, and where its text lies."""

    language: str
    code: str
    span: tuple[int, int]


def pages() -> list[Path]:
    """Return all pages, the README first."""
    found = (path for path in DOCS.rglob("*.md") if "extensions" not in path.parts)
    return [DOCS.parent / "README.md", *sorted(found)]


def name_of(page: Path) -> str:
    """Return the path of a page within the repository."""
    return page.relative_to(DOCS.parent).as_posix()


def blocks(text: str) -> list[Block]:
    """Return the blocks of a page in their order."""
    found = []
    for match in BLOCK.finditer(text):
        hidden = match["hidden"] is not None
        group = "hidden" if hidden else "code"
        found.append(Block(match["language"] or "python", match[group], match.span(group)))
    return found


def run_commands(code: str, hurried: bool = False) -> bool:
    """Run the lines that begin with `riskad` and print what they say; return whether there are."""
    from click.testing import CliRunner

    from riskad.cli.main import cli

    lines = code.replace("\\\n", " ").splitlines()
    commands = [line for line in lines if line.startswith("riskad ")]
    for line in commands:
        words = shlex.split(line, comments=True)
        quick = _quick(words) if hurried else []
        result = CliRunner().invoke(cli, [*words[1:], *quick])
        if result.exit_code:
            raise RuntimeError(f"{line}\n{result.output}") from result.exception
        print(result.stdout, end="")
    return bool(commands)


def _quick(words: list[str]) -> list[str]:
    """Fits of `auto` whose output is not shown are made by a model that takes milliseconds."""
    slow = words[1] == "fit" and not {"--model", "--budget"} & set(words)
    return ["--model", "shallow"] if slow else []


def shown_part(printed: str, shown: str) -> bool:
    """Whether what is shown was printed: the same words, or between `...` parts in their order."""
    place, words = 0, _words(printed)
    parts = re.split(r"^ *\.\.\.$", shown, flags=re.M)
    if len(parts) == 1:
        return _words(shown) == words
    for part in map(_words, parts):
        ends = (
            start + len(part)
            for start in range(place, len(words) - len(part) + 1)
            if words[start : start + len(part)] == part
        )
        place = next(ends, -1)
        if place < 0:
            return False
    return True


def _words(text: str) -> list[str]:
    """Figures may differ in their last digits from machine to machine."""
    return re.sub(r"[-+]?\d[\d.,e-]*", "#", text).split()


def run_page(page: Path, write: bool = False, names: dict[str, object] | None = None) -> list[str]:
    """Run a page; return what of its text is not what was printed. With `write`, mend it.

    `names` is the namespace of its code, for those who want to look at it afterwards.
    """
    text = page.read_text(encoding="utf-8")
    names = {} if names is None else names
    names["__name__"] = "__main__"
    printed, ran, wrong, changed = "", False, [], []
    with TemporaryDirectory() as folder, chdir(folder):
        found = blocks(text)
        for block, after in zip_longest(found, found[1:]):
            if block.language == "text":
                if not ran:
                    continue
                if not shown_part(printed, block.code):
                    wrong.append(f"shown:\n{block.code}\nprinted:\n{printed}")
                if "\n...\n" not in f"\n{block.code}":
                    changed.append((block.span, printed))
                continue
            with redirect_stdout(io.StringIO()) as out:
                if block.language == "bash":
                    ran = run_commands(block.code, after is None or after.language != "text")
                else:
                    # A page states its own imports from __future__.
                    exec(compile(block.code, name_of(page), "exec", dont_inherit=True), names)
                    ran = True
            printed = out.getvalue()
        if write:
            _write(page, text, changed, Path(folder))
    return wrong


def _write(page: Path, text: str, changed: list[tuple[tuple[int, int], str]], folder: Path) -> None:
    """Put what was printed and drawn where it is shown."""
    for (start, end), printed in reversed(changed):
        lines = [f"{line.rstrip()}\n" for line in printed.splitlines()]
        text = text[:start] + "".join(lines) + text[end:]
    page.write_text(text, encoding="utf-8")
    for picture in (*folder.glob("*.svg"), *folder.glob("*.png")):
        (DOCS / "images" / picture.name).write_bytes(picture.read_bytes())


def main(arguments: list[str]) -> int:
    """Run the named pages, or all."""
    import matplotlib

    os.environ |= {"COLUMNS": "80", "MPLBACKEND": "agg", "SOURCE_DATE_EPOCH": "0"}
    matplotlib.rcParams["svg.hashsalt"] = "riskad"  # the same picture, the same file
    sys.path[:0] = [str(DOCS), str(DOCS.parent / "src")]
    write = "--write" in arguments
    chosen = [DOCS / name for name in arguments if name != "--write"] or pages()
    failed = 0
    for page in chosen:
        wrong = run_page(page, write)
        failed += bool(wrong) and not write
        print(name_of(page), "differs" if wrong else "", *([] if write else wrong))
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
