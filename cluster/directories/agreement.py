"""Checks that several directories are of one cluster: their logs are equal up to where their histories part.

Two logs may differ after that place: what a leader wrote and never committed lies where the next leader wrote
something else. The first election of the members settles that, as it would have settled it before. Anything else that
differs means that one of the directories is not what it should be.
"""

from __future__ import annotations

from ...archive.reading.difference import find_mismatch
from ...service_api.types import TimeUnit
from .survey import Survey

_LAYOUT = ("term_buffer_length", "mtu_length", "initial_term_id")


def find_disagreement(first: Survey, second: Survey) -> str | None:
    """Return in what two members cannot be of one cluster, or None.

    Raises:
        OSError: the disk refused.
    """
    difference = find_difference(first, second)
    if difference is None:
        return None
    return f"{first.source.name} and {second.source.name} are not of one cluster: {difference}"


def find_difference(first: Survey, second: Survey) -> str | None:
    """Return what is not the same in two logs, and is the same in all logs of one cluster; None if nothing is.

    Raises:
        OSError: the disk refused.
    """
    for name in _LAYOUT:
        mine, theirs = getattr(first.log, name), getattr(second.log, name)
        if mine != theirs:
            return f"{name}={mine} and {theirs}"
    if first.time_unit is not second.time_unit:
        return f"{_unit(first.time_unit)} and {_unit(second.time_unit)}"
    begin = max(first.log.start_position, second.log.start_position)
    end = common_end_position(first, second)
    # A replay gives frames another session id, and a checksum may stand in its place.
    mismatch = find_mismatch(first.log_file, second.log_file, begin, end, ignores_session_ids=True)
    if mismatch is None:
        return None
    return f"their logs differ at position={mismatch.position}, and are to be equal up to position={end}"


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
