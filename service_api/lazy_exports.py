"""Public names of a package that are loaded when they are first asked for.

The problem: importing any module of a package runs its `__init__.py` first. With `archive` came the server, the client,
pydantic and structlog: two thirds of what an executor of Spark waited for, to read files, and all of it had to be
installed there. The idea: the package has Python's module-level `__getattr__` (PEP 562), which imports the home of a
name. The list of names is the one that type checkers read, the imports under `if TYPE_CHECKING:`; the first use of a
name reads them from the source of the package. Rejected: fewer public names, and a table beside the imports.

A home whose packages are not installed raises an ImportError, which says what to install. An import statement lets that
through. To anybody else who asks, such as `hasattr` and tools that list a package, the name is not there: that is an
AttributeError. No error can be both: after an AttributeError, also one that is an ImportError, the statement raises
"cannot import name" itself. So who asks is told apart: an import statement asks by `_handle_fromlist`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, Final

_IMPORT_STATEMENT: Final = "_handle_fromlist"
"""The function of importlib that looks for the names of `from package import name`."""


def lazy_exports(package: str, *, first: str = "") -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Make the `__getattr__` and `__dir__` of a package from its imports for type checkers.

    Each of these is a line of its own, `from .home import Name as Name`. The module `first` of the package is imported
    before any home is.
    """

    @cache
    def homes() -> dict[str, str]:
        spec: Any = sys.modules[package].__spec__  # Any: not every loader has sources, those of files and zips have
        source: str = spec.loader.get_source(package)
        return {
            words[3]: words[1]
            for words in map(str.split, source.splitlines())
            if len(words) == 6 and (words[0], words[2], words[4]) == ("from", "import", "as")
        }

    def get(name: str) -> object:
        if name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            if first:
                import_module(f"{package}.{first}")
            value: object = getattr(import_module(homes()[name], package), name)
        except ImportError as error:
            if sys._getframe(1).f_code.co_name == _IMPORT_STATEMENT:
                raise
            raise AttributeError(f"{package}.{name} is not there: {error}") from error
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes()})

    return get, list_names
