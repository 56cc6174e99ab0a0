"""The installed distribution: its name, its version, and the commit that it was built from."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Final

DISTRIBUTION_NAME: Final = "trimaran"

COMMIT_FILE: Final = "commit.txt"
"""Beside this module in a wheel, which `hatch_build.py` puts there; absent in a checkout."""

_COMMIT: Final = re.compile(r"[0-9a-f]{40,64}\+?")
_TARGETS: Final = ("report", "spark")
"""Extras that the Makefile installs."""


def install_advice(extra: str) -> str:
    """Say how to install one of our extras, from a checkout: the registry's package of that name need not be ours."""
    target = f" or `make setup-{extra}`" if extra in _TARGETS else ""
    return f"in a checkout of Trimaran: pip install '.[{extra}]'{target}"


@functools.cache
def installed_version() -> str:
    """The version of the installed distribution, or `not installed` in a bare checkout; looked up once per process."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(DISTRIBUTION_NAME)
    except PackageNotFoundError:
        return "not installed"


@functools.cache
def installed_commit() -> str | None:
    """The commit of this code: the one that a wheel was built from, or that is checked out; None if it is not known.

    A `+` at the end stands for files that were changed before a wheel was built. Looked up once per process.
    """
    built = Path(__file__).with_name(COMMIT_FILE)
    try:
        commit = built.read_text() if built.is_file() else read_checked_out_commit(Path(__file__).resolve().parents[1])
    except (OSError, UnicodeDecodeError):
        return None
    return commit.strip() if commit is not None and _COMMIT.fullmatch(commit.strip()) else None


def describe_commit() -> str:
    """Name the commit of this code, or say why it is not known."""
    commit = installed_commit()
    if commit is not None:
        return commit
    is_built = Path(__file__).with_name(COMMIT_FILE).is_file()
    return "unknown: built outside of git" if is_built else "unknown: a checkout without git"


def read_checked_out_commit(checkout: Path) -> str | None:
    """Read the commit that is checked out, without git; None where the checkout has none.

    Raises:
        OSError: a file cannot be read.
    """
    git = checkout / ".git"
    if git.is_file():  # a worktree: the file says where its part of the repository is
        git = checkout / git.read_text().strip().removeprefix("gitdir: ")
    head = git / "HEAD"
    if not head.is_file():
        return None
    said = head.read_text().strip()
    if not said.startswith("ref: "):
        return said
    ref, common = said.removeprefix("ref: "), git / "commondir"
    places = [git, git / common.read_text().strip()] if common.is_file() else [git]
    for place in places:
        if (place / ref).is_file():
            return (place / ref).read_text().strip()
    packed = places[-1] / "packed-refs"
    lines = packed.read_text().splitlines() if packed.is_file() else []
    return next((line.split()[0] for line in lines if line.endswith(f" {ref}")), None)
