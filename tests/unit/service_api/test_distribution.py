"""The commit of the code that runs: as a wheel says it, as a checkout has it, or why it is not known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trimaran.service_api import distribution
from trimaran.service_api.distribution import COMMIT_FILE, describe_commit, installed_commit, read_checked_out_commit

COMMIT = "89325aac" * 5


@pytest.fixture(autouse=True)
def _looked_up_again() -> Iterator[None]:
    installed_commit.cache_clear()
    yield
    installed_commit.cache_clear()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the module, in a checkout at `tmp_path`."""
    folder = tmp_path / "service_api"
    folder.mkdir()
    monkeypatch.setattr(distribution, "__file__", str(folder / "distribution.py"))
    return folder


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n")


def test_a_wheel_has_the_commit_that_it_was_built_from(package: Path) -> None:
    write(package / COMMIT_FILE, f"{COMMIT}+")

    assert (installed_commit(), describe_commit()) == (f"{COMMIT}+", f"{COMMIT}+")


@pytest.mark.parametrize("text", ["unknown: built outside of git", "", "89325aac"])
def test_a_wheel_without_a_commit_says_so(package: Path, text: str) -> None:
    write(package / COMMIT_FILE, text)

    assert (installed_commit(), describe_commit()) == (None, "unknown: built outside of git")


def test_a_checkout_without_git_says_so(package: Path) -> None:
    assert (installed_commit(), describe_commit()) == (None, "unknown: a checkout without git")


@pytest.mark.parametrize("where", ["detached", "branch", "packed", "worktree"])
def test_a_checkout_has_the_commit_of_its_head(package: Path, where: str) -> None:
    checkout = package.parent
    git = checkout / ".git"
    if where == "worktree":
        write(git, f"gitdir: {checkout}/main/.git/worktrees/names")
        git = checkout / "main" / ".git" / "worktrees" / "names"
        write(git / "commondir", "../..")
        write(git / "HEAD", "ref: refs/heads/names")
        write(checkout / "main" / ".git" / "refs" / "heads" / "names", COMMIT)
    elif where == "detached":
        write(git / "HEAD", COMMIT)
    else:
        write(git / "HEAD", "ref: refs/heads/main")
        if where == "branch":
            write(git / "refs" / "heads" / "main", COMMIT)
        else:
            write(git / "packed-refs", f"# pack-refs\n{'0' * 40} refs/heads/other\n{COMMIT} refs/heads/main")

    assert (read_checked_out_commit(checkout), installed_commit()) == (COMMIT, COMMIT)


def test_a_repository_without_a_commit_has_none(package: Path) -> None:
    write(package.parent / ".git" / "HEAD", "ref: refs/heads/main")

    assert installed_commit() is None
