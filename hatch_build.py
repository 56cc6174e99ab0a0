"""Writes into each wheel and source distribution from which commit it is built, as `trimaran --version` shows it.

The commit is that of the checkout; of a source distribution it is the one that its own file says. A `+` behind it
stands for files that were changed after the commit. Without git the file says that, and is there all the same.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMMIT_FILE = "commit.txt"
UNKNOWN = "unknown: built outside of git"


class CommitHook(BuildHookInterface):  # type: ignore[type-arg]  # the configuration of whichever builder
    """Adds the file of the commit to what is built."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add it; an editable installation has none, for its commit changes."""
        if version == "editable":
            return
        self._directory = tempfile.TemporaryDirectory()
        file = Path(self._directory.name, COMMIT_FILE)
        file.write_text(find_commit(Path(self.root)) + "\n")
        place = COMMIT_FILE if self.target_name == "sdist" else f"trimaran/service_api/{COMMIT_FILE}"
        build_data["force_include"][str(file)] = place

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was made for the build."""
        if version != "editable":
            self._directory.cleanup()


def find_commit(root: Path) -> str:
    """Return the commit of what is in a directory, or say that there is none."""
    packed = root / COMMIT_FILE
    if packed.is_file():
        return packed.read_text().strip()
    if not (root / ".git").exists():  # git would look in the directories above
        return UNKNOWN
    try:
        commit = _git(root, "rev-parse", "HEAD")
        return commit + ("+" if _git(root, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN


def _git(root: Path, *arguments: str) -> str:
    result = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    return result.stdout.strip()
