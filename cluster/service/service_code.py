"""Which code the services of a node run: a digest of their source, which the log and each snapshot name.

A member that starts replays the log behind its snapshot. Other code may give other replies and another state for the
same entries than clients were told. So the code has a name that changes when its behaviour may have changed, and stays
when it cannot have: comments, docstrings, blank lines and the layout of lines do not count, names and constants do.

What counts is each module that the service's module imports, also within functions, and the modules that these import:
those of the same top-level package, and all that lie neither in the standard library nor among installed packages. The
version of Python and of installed packages does not count; an `app_version` of its own says that one of them matters.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Self

from ...service_api import ConfigurationError
from ...service_api.quantities import format_app_version
from ...service_api.wire.log.code_digest import UNKNOWN_CODE
from ...service_api.wire.log.messages import NewLeadershipTermEvent
from ...service_api.wire.log.snapshot_marker import SnapshotMarker
from .source_files import imported_names, is_foreign, is_installed, source_files_of

ANY_CODE: Final = "any"
"""The value of `accept_code` for whatever this member runs: for development."""

_DIGEST_MASK: Final = (1 << 63) - 1
_SHOWN_DIGITS: Final = 8


def digest_of_code(*service_classes: type) -> int:
    """Return 63 bits of a hash of the classes' source, as above; `UNKNOWN_CODE` where a class has no source file.

    The first call reads and parses the files, about 15 ms for 1,000 lines. What a process has loaded stays as it is.
    """
    return _digest_of_code(service_classes)


def format_code(digest: int) -> str:
    """Return the digest as people see it and as `accept_code` takes it."""
    return "unknown" if digest == UNKNOWN_CODE else f"{digest:016x}"


def short_code(digest: int) -> str:
    """Return the digits with which `accept_code` names the code; `ANY_CODE` where a class has no source file."""
    return ANY_CODE if digest == UNKNOWN_CODE else format_code(digest)[:_SHOWN_DIGITS]


@dataclass(slots=True, frozen=True)
class CodeGuard:
    """Refuses to replay entries that other code ran, unless the operator says that this code may."""

    digest: int
    """Of the services of this member."""
    app_version: int
    accepted: str
    """The setting `accept_code`: empty, `any`, or the first digits of this member's own digest."""
    directory: Path

    @classmethod
    def of_services(cls, services: Sequence[object], *, app_version: int, accepted: str, directory: Path) -> Self:
        """Make the guard of a member that runs these services.

        Raises:
            ConfigurationError: `accepted` names other code than theirs.
        """
        if not services:
            return cls(UNKNOWN_CODE, app_version, "", directory)  # a witness replays nothing
        return cls(digest_of_code(*map(type, services)), app_version, accepted, directory)

    def __post_init__(self) -> None:
        if self.accepted in ("", ANY_CODE) or format_code(self.digest).startswith(self.accepted):
            return
        raise ConfigurationError(
            f"accept_code names other code than this member runs: accept_code={self.accepted} "
            f"code={format_code(self.digest)}; name this code once you know that it may replay the log, or leave the "
            "setting out"
        )

    def check(self, event: NewLeadershipTermEvent | SnapshotMarker, code_digest: int) -> None:
        """Refuse a term whose leader ran other code. Terms and members whose code is unknown are let pass.

        Raises:
            ConfigurationError: the entries of this term would be replayed by other code.
        """
        if UNKNOWN_CODE in (code_digest, self.digest) or self.accepted:
            return
        if (code_digest, event.app_version) == (self.digest, self.app_version):
            return
        mine = format_code(self.digest)
        raise ConfigurationError(
            f"this member would replay entries that other code ran: leadership_term_id={event.leadership_term_id} "
            f"log_position={event.log_position} code={format_code(code_digest)} "
            f"app_version={format_app_version(event.app_version)}, here code={mine} "
            f"app_version={format_app_version(self.app_version)} directory={self.directory}; the state may become "
            "another one than clients were told. Start the old code again, end it with `trimaran shutdown`, which takes"
            " a snapshot at the end of the log, and start the new code then; or, where the new code does the same with "
            f"every old entry, start with --accept-code {short_code(self.digest)}. See docs/upgrading.md"
        )


@cache
def _digest_of_code(service_classes: tuple[type, ...]) -> int:
    sources: dict[str, str] = {}
    names = []
    for service in service_classes:
        file = getattr(sys.modules.get(service.__module__), "__file__", None)
        if file is None or not file.endswith(".py"):
            return UNKNOWN_CODE
        names.append(f"{service.__module__}:{service.__qualname__}")
        _collect(service.__module__, Path(file), sources)
    # In order of service ids: the services of a node are not exchangeable.
    parts = [*names, *(f"{name}\n{source}" for name, source in sorted(sources.items()))]
    digest = hashlib.sha256("\n".join(parts).encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") & _DIGEST_MASK or 1


def _collect(name: str, path: Path, sources: dict[str, str]) -> None:
    """Add the canonical source of a module, and of those that it imports, to `sources` by name."""
    own_top = name.partition(".")[0]
    waiting = [(name, path)]
    while waiting:
        name, path = waiting.pop()
        if name in sources:
            continue
        data = path.read_bytes()
        try:
            tree = ast.parse(data)
        except (SyntaxError, ValueError):  # it is imported somewhere, but not by this Python
            sources[name] = repr(data)
            continue
        sources[name] = "".join(_canonical(tree))
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for imported in imported_names(tree, package):
            if is_foreign(imported):
                continue
            top = imported.partition(".")[0]
            waiting += [
                (module, file)
                for module, file in source_files_of(imported)
                if module not in sources and (top == own_top or not is_installed(file))
            ]


def _canonical(tree: ast.Module) -> Iterator[str]:
    """Yield the parts of a module that decide what it does, in words that are the same in every version of Python."""
    waiting: list[object] = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, ast.AST):
            yield f"({type(part).__name__} "
            fields = [(name, value) for name, value in ast.iter_fields(part) if value is not None and value != []]
            if isinstance(part, ast.JoinedStr):
                texts = [each for each in part.values if not _is_empty_text(each)]
                fields = [("values", texts)] if texts else []
            waiting.append(")")
            for name, value in reversed(fields):
                waiting += [[*_without_texts(value)] if isinstance(value, list) else _Leaf(value), f"{name}="]
        elif isinstance(part, list):
            yield "["
            waiting.append("]")
            waiting += reversed([_Leaf(each) for each in part])
        elif isinstance(part, _Leaf):
            if isinstance(part.value, ast.AST):
                waiting.append(part.value)
            else:
                yield f"{part.value!r},"


def _is_empty_text(part: ast.expr) -> bool:
    """Return whether this is an empty text: Python 3.12 ends a nested format of an f-string with one, others do not."""
    return isinstance(part, ast.Constant) and part.value == ""


class _Leaf:
    """A field's value: a string in it is data, and no mark of ours."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


def _without_texts(body: list[object]) -> Iterator[object]:
    """Leave out docstrings and other statements that are nothing but a text."""
    for part in body:
        if not (
            isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant) and isinstance(part.value.value, str)
        ):
            yield part
