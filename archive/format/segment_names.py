"""The names of segment files. Only the archive's own rooms import this (a contract in pyproject.toml)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_SEGMENT_NAME: Final = re.compile(r"(0|[1-9]\d{0,18})-(0|[1-9]\d{0,18})\.rec", re.ASCII)
_INT64_MAX: Final = (1 << 63) - 1


def parse_segment_file_name(name: str) -> tuple[int, int] | None:
    """Read (recording_id, base_position) from a file name; None when it is not the name of a segment."""
    match = _SEGMENT_NAME.fullmatch(name)
    numbers = (int(match[1]), int(match[2])) if match else None
    return numbers if numbers is not None and max(numbers) <= _INT64_MAX else None


def segment_base_positions(names: Iterable[str], recording_id: int) -> list[int]:
    """Return where the segments of a recording begin, ascending, given the names in its directory."""
    parsed = map(parse_segment_file_name, names)
    return sorted(found[1] for found in parsed if found is not None and found[0] == recording_id)
