"""Public names of a package that are loaded when they are first asked for.

The problem: importing any module of a package runs its `__init__.py` first. With `archive` came the server, the client,
pydantic and structlog: two thirds of what an executor of Spark waited for, to read files, and all of it had to be
installed there. The idea: the package has Python's module-level `__getattr__` (PEP 562), which imports the home of a
name; type checkers see plain imports. Rejected: fewer public names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_exports(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Make the `__getattr__` and `__dir__` of a package from its public names and the modules in it that have them."""

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(import_module(package), name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(import_module(package)), *homes})

    return get, list_names
