"""Which source files stand for a module's name, and which of them are the user's: nothing is imported."""

from __future__ import annotations

import ast
import site
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

_OWN_PACKAGE: Final = __name__.partition(".")[0]


def imported_names(tree: ast.AST, package: str) -> Iterator[str]:
    """Yield the full names of what a module imports: modules, and what may be a module or a name in one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = import_base(node, package)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def import_base(node: ast.ImportFrom, package: str) -> str:
    """Return the full name of the module that a `from ... import` names, in a module of `package`."""
    base = node.module or ""
    if not node.level:
        return base
    parents = package.split(".")
    return ".".join([*parents[: len(parents) - node.level + 1], *([base] if base else [])])


def source_files_of(name: str, search_path: Sequence[str] | None = None) -> Iterator[tuple[str, Path]]:
    """Yield each module on the way to `name` that is a source file, looking in `search_path`, or in `sys.path`."""
    locations = search_path
    parts = name.split(".")
    for count, part in enumerate(parts, 1):
        full_name = ".".join(parts[:count])
        spec = PathFinder.find_spec(
            full_name if locations is None else part, None if locations is None else [*locations]
        )
        if spec is None:
            return
        if spec.origin is not None and spec.origin.endswith(".py"):
            yield full_name, Path(spec.origin)
        if spec.submodule_search_locations is None:
            return
        locations = [*spec.submodule_search_locations]


def is_foreign(name: str) -> bool:
    """Whether a module is of Trimaran or of the standard library, by its name."""
    top = name.partition(".")[0]
    return top == _OWN_PACKAGE or top in sys.stdlib_module_names


def is_installed(file: Path) -> bool:
    """Whether a file belongs to the standard library or to an installed package."""
    return any(file.is_relative_to(directory) for directory in _INSTALLED)


_INSTALLED: Final = tuple(
    {
        Path(directory)
        for directory in (
            *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
            *(site.getsitepackages() if hasattr(site, "getsitepackages") else ()),
            *([site.getusersitepackages()] if site.getusersitepackages() else ()),  # there may be none for this user
        )
    }
)
