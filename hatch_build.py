"""Writes into each wheel and source distribution from which commit it is built, as `trimaran --version` shows it.

The commit is that of the checkout; of a source distribution it is the one that its own file says. A `+` behind it
stands for files that were changed after the commit. Without git the file says that, and is there all the same.

The version comes from the newest tag such as v1.2.3 that the commit has behind it: 1.2.3 at the tag itself, and
1.2.4.dev5 five commits after it, so that no two commits of a branch have the same. A source distribution keeps its own.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMMIT_FILE = "commit.txt"
UNKNOWN = "unknown: built outside of git"
FIRST_RELEASE = "0.1.0"
"""The version that the first tag will name."""
LINKS = ("archive", "benchmarks", "client", "cluster", "service_api")
"""The folders that `src/trimaran` links to."""


class CommitHook(BuildHookInterface):  # type: ignore[type-arg]  # the configuration of whichever builder
    """Adds the file of the commit to what is built."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add it; an editable installation has none, for its commit changes."""
        if version == "editable":
            expect_links(Path(self.root))
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


def find_version() -> str:
    """Return the version of what is in the directory of this file. It needs git, and no network."""
    root = Path(__file__).resolve().parent
    if not (root / ".git").exists():
        return f"{FIRST_RELEASE}.dev0"
    try:
        said = _git(root, "describe", "--tags", "--match", "v[0-9]*", "--long", "--dirty=-changed")
    except (OSError, subprocess.SubprocessError):
        said = ""
    found = re.fullmatch(r"v(\d+\.\d+\.)(\d+)-(\d+)-g[0-9a-f]+(-changed)?", said)
    if found is not None:
        start, patch, distance, changed = found.groups()
        is_tagged = distance == "0" and not changed
        return f"{start}{patch}" if is_tagged else f"{start}{int(patch) + 1}.dev{distance}"
    try:
        return f"{FIRST_RELEASE}.dev{_git(root, 'rev-list', '--count', 'HEAD')}"
    except (OSError, subprocess.SubprocessError):
        return f"{FIRST_RELEASE}.dev0"


def expect_links(root: Path) -> None:
    """Refuse an editable installation of a directory whose symbolic links are files, or are not there.

    Raises:
        SystemExit: the user's.
    """
    lacking = [f"src/trimaran/{name}" for name in LINKS if not (root / "src" / "trimaran" / name).is_dir()]
    if lacking:
        raise SystemExit(
            f"not symbolic links to folders: {', '.join(lacking)}. An editable installation needs them: install with "
            "`pip install .`, or let git make them: git config core.symlinks true && git checkout -- src"
        )


def _git(root: Path, *arguments: str) -> str:
    result = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    return result.stdout.strip()
