"""Strict mode: finds what `trimaran check` looks for while a service runs.

The check reads the source and cannot follow every call. Strict mode looks at the calls themselves, while callbacks of
a service run at a log entry, and reports each place in the service that leaves the log.

It listens as a profiler does, on the thread of the callbacks and only until they return, so what was imported by name
before, such as `from time import time`, is found, and nothing in the process is replaced. It reports and never raises:
Python drops a profiler that raises, so the entries that follow in the same turn would not be looked at; how many these
are differs from member to member, and so would their answers.

A call counts if the service made it, itself or through a library. It does not count if Trimaran, a logger, an import or
a test tool made it. Calls that C code makes, as in `map(time.time, ...)`, are not seen.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType
from typing import Any, Final

from ..source_files import is_foreign, is_installed
from .known_calls import full_names, rule_of_name
from .rules import RuledFinding

_RULES: Final = frozenset({"wall-clock", "random", "environment", "file", "network", "process", "thread", "event-loop"})
_FINDING_LIMIT: Final = 1_000
"""Places that are reported; the rest of a service with more is not."""
_OWN_PACKAGE: Final = __name__.partition(".")[0]
_NOT_TO_BLAME: Final = frozenset(
    {
        *("logging", "structlog", "warnings", "traceback", "linecache", "tokenize", "importlib", "_frozen_importlib"),
        *("_frozen_importlib_external", "zipimport", "rich", "pytest", "_pytest", "pluggy", "hypothesis", "coverage"),
        *("unittest", "bdb", "pdb", "pydevd", "cProfile", "dataclasses", "reprlib"),  # the last two ask for the thread
    }
)
"""Top-level modules that may look at the clock and at files: what they find does not come to the service."""


@dataclass(slots=True, frozen=True)
class StrictFinding(RuledFinding):
    """One place of a service that left the log while a callback ran."""

    path: str
    line: int
    """From 1."""
    rule: str
    what: str
    """What was called, such as `time.time()`."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.what}; why: {self.why}; instead: {self.instead}"


class StrictGuard:
    """Looks at what callbacks call, and reports each place once.

    Args:
        report: Gets each place when it is first met, within the callback: it must not raise.
    """

    def __init__(self, report: Callable[[StrictFinding], None]) -> None:
        self._report = report
        self._seen: set[tuple[str, int, str]] = set()
        self._calls: Mapping[object, tuple[str, str]] = {}
        self._before: Any = None  # Any: another tool's profiler
        self._is_in = False

    def __repr__(self) -> str:
        return f"<StrictGuard places={len(self._seen)}>"

    def enter(self) -> None:
        """Callbacks follow, on this thread."""
        self._calls = _watched_calls()
        self._before, self._is_in = sys.getprofile(), True
        sys.setprofile(self._on_event)

    def leave(self) -> None:
        """No callback runs any more."""
        if self._is_in:
            sys.setprofile(self._before)
            self._is_in = False

    def _on_event(self, frame: FrameType, event: str, called: object) -> None:
        if event == "c_call":
            found = self._calls.get(called)
            caller: FrameType | None = frame
        elif event == "call":
            found = self._calls.get(frame.f_code)
            caller = frame.f_back
        else:
            return
        if found is not None and caller is not None and not _is_seeded(frame, event):
            self._on_call(caller, *found)

    def _on_call(self, caller: FrameType, name: str, rule: str) -> None:
        frame = _blamed(caller)
        if frame is None:
            return
        path, line = frame.f_code.co_filename, frame.f_lineno
        place = path, line, rule
        if place not in self._seen and len(self._seen) < _FINDING_LIMIT:
            self._seen.add(place)
            self._report(StrictFinding(path, line, rule, f"{name}()"))


def _blamed(caller: FrameType) -> FrameType | None:
    """Return the frame of the service that led to a call; None if other code made the call.

    It is the innermost one of the user's, or the one that the container called if the service is an installed package.
    """
    frame: FrameType | None = caller
    outermost: FrameType | None = None
    while frame is not None:
        top = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if top == _OWN_PACKAGE:
            return outermost
        if top in _NOT_TO_BLAME or frame.f_code.co_name == "<module>":
            return None
        outermost = frame
        if _is_of_user(top, frame.f_code.co_filename):
            return frame
        frame = frame.f_back
    return None


_OF_USER: Final[dict[str, bool]] = {}


def _is_of_user(top: str, file: str) -> bool:
    known = _OF_USER.get(file)
    if known is None:
        known = _OF_USER[file] = not (is_foreign(top) or file.startswith("<") or is_installed(Path(file)))
    return known


# --- what is looked at

_SEED: Final = random.Random.seed.__code__
_DRAWING: Final = tuple(getattr(random, name) for name in ("random", "getrandbits"))
"""All other functions of the module `random` draw by one of these, or are C functions of the same generator."""
_MODULES: Final = (
    *("secrets", "socket", "subprocess", "multiprocessing", "tempfile", "shutil", "glob", "platform", "threading"),
    *("concurrent.futures.thread", "concurrent.futures.process", "getpass", "http.client", "urllib.request"),
)
"""Modules that are forbidden as a whole: their functions and classes are looked at one by one."""
_LOOP_CALLS: Final = tuple(
    f"asyncio.{name}" for name in ("create_task", "ensure_future", "get_running_loop", "get_event_loop", "run", "sleep")
)

_known: dict[object, tuple[str, str]] = {}
_known_modules: tuple[str, ...] | None = None
_module_count = 0


def _watched_calls() -> Mapping[object, tuple[str, str]]:
    """Return name and rule of what is looked at, by C function or by code; rebuilt when modules were imported."""
    global _known, _known_modules, _module_count
    if len(sys.modules) == _module_count:
        return _known
    _module_count = len(sys.modules)
    modules = tuple(name for name in (*_MODULES, "uuid", "asyncio", "sqlite3", "ssl") if name in sys.modules)
    if modules != _known_modules:
        _known, _known_modules = {}, modules
        for call, found in _find_calls():
            _known.setdefault(call, found)  # `open` is `io.open`, too
    return _known


def _find_calls() -> Iterator[tuple[object, tuple[str, str]]]:
    for name in (*full_names(), *_LOOP_CALLS, "threading.Thread.start", "_thread.start_new_thread"):
        rule = rule_of_name(name)
        if rule in _RULES:
            yield from _watch(_resolve(name), name, rule)
    for module in _MODULES:
        for name, value in vars(sys.modules.get(module, object)).items():
            full_name = f"{module}.{name}"
            rule = rule_of_name(full_name)
            if rule in _RULES and getattr(value, "__module__", None) == module:
                yield from _watch(value, full_name, rule)
    for function in _DRAWING:
        yield function, (f"random.{function.__name__}", "random")
    yield _SEED, ("random.Random", "random")
    # Every look into the environment encodes the name first.
    yield from _watch(vars(_resolve("os.environ"))["encodekey"], "os.environ", "environment")


def _watch(value: object, name: str, rule: str) -> Iterator[tuple[object, tuple[str, str]]]:
    """Yield what stands for a function or a class: its C function or its code."""
    if isinstance(value, type):
        value = vars(value).get("__init__")
    if isinstance(value, MethodType):
        value = value.__func__ if isinstance(value.__self__, type) else None
    if isinstance(value, FunctionType):
        yield value.__code__, (name, rule)
    elif isinstance(value, BuiltinFunctionType):
        yield value, (name, rule)


def _resolve(full_name: str) -> Any:  # Any: whatever has this name
    """Return what has a full name, if its module was imported; None otherwise."""
    module, _, rest = full_name.partition(".")
    if not rest:
        return getattr(sys.modules["builtins"], module, None)
    found: object = sys.modules.get(module)
    for part in rest.split("."):
        found = getattr(found, part, None)
    return found


def _is_seeded(frame: FrameType, event: str) -> bool:
    """Whether it is a generator that was given a seed."""
    return event == "call" and frame.f_code is _SEED and frame.f_locals.get("a") is not None
