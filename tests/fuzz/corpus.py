"""The stored corpus: for each target the few inputs that reach all that its campaigns have reached.

A zip file for each target in `tests/data/fuzz`, with the same bytes for the same inputs. An input is kept if it takes a
step from one line of the product to another that no shorter input before it has taken.
"""

from __future__ import annotations

import hashlib
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from tests.fuzz.target import Target
from tests.places import ROOT

STORED: Final = ROOT / "tests" / "data" / "fuzz"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_OURS: Final = tuple(str(ROOT / name) for name in ("archive", "client", "cluster", "service_api", "src"))

Step = tuple[CodeType, int, int]


def stored_inputs(name: str) -> Iterator[bytes]:
    """Give the inputs that are stored for a target."""
    path = STORED / f"{name}.zip"
    if path.exists():
        with zipfile.ZipFile(path) as file:
            yield from (file.read(entry) for entry in sorted(file.namelist()))


def write_inputs(directory: Path, inputs: Iterable[bytes], length_limit: int) -> None:
    """Write inputs into a directory, each under a name that follows from it."""
    directory.mkdir(parents=True, exist_ok=True)
    for data in inputs:
        (directory / hashlib.sha1(data[:length_limit]).hexdigest()).write_bytes(data[:length_limit])  # a name


def store(name: str, inputs: Iterable[bytes]) -> int:
    """Store the inputs of a target; give how many bytes that takes."""
    STORED.mkdir(parents=True, exist_ok=True)
    path = STORED / f"{name}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for number, data in enumerate(sorted(inputs, key=lambda data: (len(data), data))):
            entry = zipfile.ZipInfo(f"{number:04}", _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(entry, data)
    return path.stat().st_size


def minimise(target: Target, inputs: Iterable[bytes]) -> list[bytes]:
    """Choose of some inputs those that together take every step, short ones first."""
    seen: set[Step] = set()
    kept = []
    for data in sorted(set(inputs), key=lambda data: (len(data), data)):
        steps = _steps_of(target, data)
        if not steps <= seen:
            seen |= steps
            kept.append(data)
    return kept


def _steps_of(target: Target, data: bytes) -> set[Step]:
    """Run a target; give the steps that it takes from line to line in the product."""
    steps: set[Step] = set()

    def on_call(frame: FrameType, event: str, argument: Any) -> Any:  # a trace function
        code = frame.f_code
        if not code.co_filename.startswith(_OURS) and not code.co_filename.startswith("<codec"):
            return None
        before = 0

        def on_line(frame: FrameType, event: str, argument: Any) -> Any:  # a trace function
            nonlocal before
            if event == "line":
                steps.add((code, before, frame.f_lineno))
                before = frame.f_lineno
            return on_line

        return on_line

    sys.settrace(on_call)
    try:
        target.run(data)
    except BaseException:
        steps.clear()  # a finding has a place of its own
    finally:
        sys.settrace(None)
    return steps
