"""Finds the first entry of a leadership term in frames of a log, at the price of one search where there is none."""

from __future__ import annotations

import struct
from typing import Final

from ....service_api.wire.frame import HEADER_LENGTH, iter_whole_messages
from ....service_api.wire.log.messages import NewLeadershipTermEvent

_MARK: Final = struct.pack("<HH", NewLeadershipTermEvent.TEMPLATE_ID, NewLeadershipTermEvent.SCHEMA_ID)
_MARK_OFFSET: Final = 2
"""Template and schema come after the length of the block. Source: SBE's message header."""


def find_first_unknown_term(frames: bytes, known_term_id: int) -> int | None:
    """Return where in whole frames the first entry of a term after `known_term_id` begins; None if there is none."""
    if _MARK not in frames:
        return None
    for end, encoded in iter_whole_messages(frames):
        if encoded[_MARK_OFFSET : _MARK_OFFSET + len(_MARK)] != _MARK:
            continue
        if NewLeadershipTermEvent.decode(encoded).leadership_term_id > known_term_id:
            return end - (HEADER_LENGTH + len(encoded) + 31 & -32)
    return None
