"""What a campaign writes down: an input and a trace for each place in the product that raises."""

from __future__ import annotations

import hashlib
import traceback
from pathlib import Path
from typing import Final

SLOW_S: Final = 1.0
"""Processor time that no input of a few KiB may take."""


class SlowInputError(Exception):
    """An input took far longer than others of its length."""


def place_of(error: BaseException) -> str:
    """Name what an error is and where the product raised it: the innermost of our lines, or of any."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [
        frame for frame in frames if "/tests/fuzz/" not in frame.filename and "/site-packages/" not in frame.filename
    ]
    last = (ours or frames)[-1] if frames else None
    where = "nowhere" if last is None else f"{'/'.join(Path(last.filename).parts[-3:])}:{last.lineno} {last.name}"
    text = str(error).split(":")[0][:60] if isinstance(error, AssertionError) else ""
    return f"{type(error).__name__} {text} at {where}".replace("  ", " ")


class Findings:
    """What was found in one campaign: an input and a trace for each place."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._name = name
        self._known = {path.stem for path in directory.glob(f"{name}-*.txt")}

    def note(self, error: BaseException, data: bytes) -> None:
        """Write down an input that raised, if it is the first from there."""
        place = place_of(error)
        key = f"{self._name}-{hashlib.blake2b(place.encode(), digest_size=5).hexdigest()}"
        if key in self._known:
            return
        self._known.add(key)
        (self._directory / f"{key}.bin").write_bytes(data)
        trace = "".join(traceback.format_exception(error))
        (self._directory / f"{key}.txt").write_text(f"{place}\n\n{trace}", encoding="utf-8")
