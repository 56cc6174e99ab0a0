"""The repository's modules, each read and parsed once for all tests that look at the code."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.places import ROOT


def python_files(*directories: str) -> Iterator[Path]:
    """Find the modules below folders of the repository, folder after folder, sorted by path."""
    for directory in directories:
        yield from sorted((ROOT / directory).rglob("*.py"))


def parsed(*directories: str) -> Iterator[tuple[str, ast.Module]]:
    """Give the path of each module below folders, relative to the repository, and its tree. Trees are shared.

    Nothing of a tree is garbage, and a collector that looks for some takes three quarters of the time.
    """
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        trees = [(file.relative_to(ROOT).as_posix(), tree_of(file)) for file in python_files(*directories)]
    finally:
        if is_collecting:
            gc.enable()
    return iter(trees)


@cache
def tree_of(file: Path) -> ast.Module:
    """Parse a module, the first time that it is asked for."""
    return ast.parse(file.read_text(encoding="utf-8"))
