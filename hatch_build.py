"""Write the commit into what is built, so that `riskad --version` can say it without git.

In a checkout `src/riskad/commit.txt` holds a mark. `git archive` replaces it, and this hook does so
for an sdist or a wheel; a wheel that is built from either finds the commit there already.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MARK = "$Format"


def commit_of(root: Path) -> str:
    """Return the commit of a source tree; the mark where nothing tells it.

    Files that are not committed add "-dirty".
    """
    written = (root / "src/riskad/commit.txt").read_text("utf-8").strip()
    if not written.startswith(MARK) or not (root / ".git").exists():
        return written
    git = ["git", "-C", str(root)]
    try:
        found = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
        changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True)
    except OSError:  # there is no git
        return written
    if found.returncode or changed.returncode:  # a repository that git refuses
        return written
    return found.stdout.strip() + ("-dirty" if changed.stdout.strip() else "")


class CommitHook(BuildHookInterface[Any]):
    """Put `commit.txt` into an sdist or a wheel; an editable install reads the checkout's."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the file that is to be included."""
        if version == "editable":
            return
        self._folder = TemporaryDirectory()
        file = Path(self._folder.name, "commit.txt")
        file.write_text(commit_of(Path(self.root)) + "\n", encoding="utf-8")
        place = "riskad" if self.target_name == "wheel" else "src/riskad"
        build_data["force_include"][str(file)] = f"{place}/commit.txt"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Leave nothing behind."""
        if version != "editable":
            self._folder.cleanup()
