"""The public names of the package, each loaded when it is first asked for.

The problem: `import archive.frame_batches` runs `archive/__init__.py` first, and with it came the server, the client,
pydantic and structlog: two thirds of what an executor of Spark waited for, to read files. The idea: the package has
Python's module-level `__getattr__` (PEP 562), which imports the home of a name. Rejected: fewer public names.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

HOMES: Final = {
    "Archive": "conductor",
    "ArchiveClient": "client",
    "ArchiveConfig": "config",
    "ArchiveError": "errors",
    "ArchiveErrorCode": "errors",
    "ArchiveServer": "server",
    "CorruptionError": "errors",
    "Publication": "publication",
    "ReadProblem": "frame_batches",
    "Recording": "recording",
    "RecordingDescriptor": "descriptor",
    "RecordingState": "descriptor",
    "frames": "frame_batches",
}
"""Which module has each public name; a test holds it against the imports that type checkers see."""

_PACKAGE: Final = "archive"


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module {_PACKAGE!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{_PACKAGE}.{HOMES[name]}"), name)
    setattr(import_module(_PACKAGE), name, value)
    return value


def __dir__() -> list[str]:
    return sorted({*vars(import_module(_PACKAGE)), *HOMES})
