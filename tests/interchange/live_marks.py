"""Mark files of a live Aeron member in every layout that there is, made of those that a real one left."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Final

HEADER_LENGTH: Final = 8
"""Of the SBE header, which mark files have since Aeron 1.47."""
ACTIVITY_OFFSET: Final = 16
AHEAD_MS: Final = 8_000
"""The activity is this far ahead of the clock, within the limit: the test may be that slow, and longer."""

ALIVE: Final = ("with header", "without header", "elsewhere", "elsewhere without header")
UNKNOWN: Final = ("not understood", "behind a link to nowhere", "behind a damaged link")
LAYOUTS: Final = (*ALIVE, *UNKNOWN)


def lay_out(directory: Path, layout: str, elsewhere: Path) -> None:
    """Bring the mark files of a member, with a header and in their places, into a layout; nothing is alive yet."""
    for path in _mark_files(directory):
        data = path.read_bytes()
        if "without header" in layout:
            data = data[HEADER_LENGTH:].ljust(len(data), b"\0")
        if layout == "not understood":
            data = b"\xff\xff" + data[2:]
        if "elsewhere" in layout or "link" in layout:
            target = elsewhere / path.stem
            target.mkdir(parents=True)
            if "elsewhere" in layout:
                (target / path.name).write_bytes(data)
            text = "marks\0" if "damaged" in layout else str(target)
            path.with_suffix(".lnk").write_bytes(text.encode())
            path.unlink()
        else:
            path.write_bytes(data)


def renew(directory: Path, layout: str, elsewhere: Path, *, age_ms: int = -AHEAD_MS) -> None:
    """Let a member give a sign of life in its mark files, so many milliseconds ago."""
    offset = ACTIVITY_OFFSET - (HEADER_LENGTH if "without header" in layout else 0)
    for path in (*_mark_files(directory), *_mark_files(elsewhere)):
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(struct.pack("<q", time.time_ns() // 1_000_000 - age_ms))


def _mark_files(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*-mark*.dat"))
