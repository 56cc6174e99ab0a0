"""What a report says of where it was measured."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from trimaran.benchmarks.machine.environment import commit_of


def git(directory: Path, *arguments: str) -> str:
    command = ("git", "-C", str(directory), "-c", "user.name=a", "-c", "user.email=a@b", *arguments)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A tree with a measured file and two that figures are written to."""
    git(tmp_path, "init", "-q")
    for name in ("archive/store/recording.py", "benchmarks/results/table.json", "docs/performance.md"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "all")
    return tmp_path


def test_commit_is_that_of_what_was_measured_whatever_was_written_since(clone: Path) -> None:
    """The second benchmark of `make bench` finds the figures of the first one changed."""
    commit = git(clone, "rev-parse", "--short=12", "HEAD")
    assert commit_of(clone) == commit
    (clone / "benchmarks/results/table.json").write_text("2")
    (clone / "docs/performance.md").write_text("2")
    assert commit_of(clone) == commit

    (clone / "archive/store/recording.py").write_text("2")

    assert commit_of(clone) == f"{commit}+changes"


def test_tree_without_a_clone_has_no_commit(tmp_path: Path) -> None:
    assert commit_of(tmp_path) is None
