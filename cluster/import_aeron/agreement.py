"""Whether several members' directories are of one cluster: up to where their histories part, their logs are equal.

Two logs may differ behind that place: what a leader wrote and never committed lies where the next leader wrote
something else. The first election of the members settles that, as it would have settled it before. Anything else that
differs means that one of the directories is not what it should be.
"""

from __future__ import annotations

from trimaran.archive.disk.file_system import OsFileSystem, read_fully
from trimaran.archive.format.frame_rules import frame_rules_of
from trimaran.service_api.types import TimeUnit
from trimaran.service_api.wire.frame import HEADER_LENGTH, TYPE_PADDING, unpack_header

from .survey import Survey

_LAYOUT = ("term_buffer_length", "mtu_length", "initial_term_id")
_BLOCK_BYTES = 1 << 20


def find_disagreement(first: Survey, second: Survey) -> str | None:
    """Say in what two members cannot be of one cluster, or None.

    Raises:
        OSError: the disk refused.
    """
    names = f"{first.source.name} and {second.source.name}"
    for name in _LAYOUT:
        mine, theirs = getattr(first.log, name), getattr(second.log, name)
        if mine != theirs:
            return f"{names} are not of one cluster: {name}={mine} and {theirs}"
    if first.time_unit is not second.time_unit:
        return f"{names} are not of one cluster: {_unit(first.time_unit)} and {_unit(second.time_unit)}"
    begin = max(first.log.start_position, second.log.start_position)
    end = common_end_position(first, second)
    at = _first_difference(first, second, begin, end)
    if at is None:
        return None
    return (
        f"{names} are not of one cluster: their logs differ at position={at}, and are to be equal up to position={end}"
    )


def common_end_position(first: Survey, second: Survey) -> int:
    """Find up to where two members' logs must be equal: where a term begins that one of them has not, or has elsewhere.

    Before that place, both logs are what the leaders of the terms wrote that both have.
    """
    mine = {term.leadership_term_id: term.term_base_log_position for term in first.terms}
    theirs = {term.leadership_term_id: term.term_base_log_position for term in second.terms}
    end = min(first.stop_position, second.stop_position)
    for term_id in sorted(mine.keys() | theirs.keys()):
        bases = {mine.get(term_id), theirs.get(term_id)}
        if len(bases) > 1:
            return min(end, *(base for base in bases if base is not None))
    return end


def _unit(time_unit: TimeUnit) -> str:
    return f"time_unit={time_unit.name}"


def _first_difference(first: Survey, second: Survey, begin: int, end: int) -> int | None:
    """Compare what the logs hold, without the session ids of frames: a checksum may stand in their place."""
    position = begin
    while position < end:
        blocks = [_read(survey, position, end) for survey in (first, second)]
        if blocks[0] != blocks[1]:
            for at, (mine, theirs) in enumerate(zip(*blocks, strict=False)):
                if mine != theirs:
                    return position + at // HEADER_LENGTH * HEADER_LENGTH
            return position + min(map(len, blocks))
        if not blocks[0]:
            return position
        position += len(blocks[0])
    return None


def _read(survey: Survey, position: int, end: int) -> bytes:
    """Read whole frames of a log that was surveyed, at least one, their session ids set to 0."""
    log = survey.log
    base = log.segment_base_position(position)
    handle = OsFileSystem().open_file(survey.source.archive / log.segment_file_name(base), writable=False)
    try:
        room = min(end, base + log.segment_file_length) - position
        data = bytearray(read_fully(OsFileSystem(), handle, min(_BLOCK_BYTES, room), position - base))
    finally:
        OsFileSystem().close_file(handle)
    offset, rules = 0, frame_rules_of(log)
    while offset + HEADER_LENGTH <= len(data):
        header = unpack_header(data, offset)
        length = header.aligned_length
        is_padding = header.type == TYPE_PADDING
        if rules.find_header_fault(header, position + offset) is not None:
            break
        if offset + length > len(data) and not is_padding:
            break
        data[offset + 12 : offset + 16] = bytes(4)
        if is_padding and offset + length > len(data):
            return bytes(data[: offset + HEADER_LENGTH]).ljust(offset + length, b"\0")
        offset += length
    return bytes(data[:offset])
