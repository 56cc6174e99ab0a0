"""The code digest in the first entry of a term and in a snapshot's markers: Aeron's messages, one field longer."""

from __future__ import annotations

import pytest

from trimaran.service_api.types import MemberId, TermId
from trimaran.service_api.wire.frame import HEADER_LENGTH
from trimaran.service_api.wire.log.code_digest import UNKNOWN_CODE, read_code_digest, with_code_digest
from trimaran.service_api.wire.log.messages import LOG_MESSAGES, NewLeadershipTermEvent
from trimaran.service_api.wire.log.snapshot_marker import SnapshotMark, SnapshotMarker
from trimaran.service_api.wire.message import decode_message

TERM_EVENT = NewLeadershipTermEvent(
    leadership_term_id=TermId(3),
    log_position=960,
    timestamp=5,
    term_base_log_position=864,
    leader_member_id=MemberId(2),
    log_session_id=1,
    app_version=256,
)
MARKER = SnapshotMarker(type_id=2, log_position=960, leadership_term_id=TermId(3), index=0, mark=SnapshotMark.END)


@pytest.mark.parametrize("message", [TERM_EVENT, MARKER], ids=["term", "marker"])
def test_aeron_reads_the_message_and_passes_the_digest_over(message: NewLeadershipTermEvent | SnapshotMarker) -> None:
    encoded = with_code_digest(message, 0x1234_5678_9ABC_DEF0).encode()

    assert type(message).decode(encoded) == message
    assert read_code_digest(encoded) == 0x1234_5678_9ABC_DEF0
    assert read_code_digest(message.encode()) == UNKNOWN_CODE


@pytest.mark.parametrize("message", [TERM_EVENT, MARKER], ids=["term", "marker"])
def test_unknown_code_leaves_the_message_as_it_is(message: NewLeadershipTermEvent | SnapshotMarker) -> None:
    assert with_code_digest(message, UNKNOWN_CODE) is message


def test_the_field_takes_no_room_in_the_log() -> None:
    """Positions are those of a log without it."""
    lengths = [len(event.encode()) for event in (TERM_EVENT, with_code_digest(TERM_EVENT, 1))]

    assert [(HEADER_LENGTH + length + 31) & -32 for length in lengths] == [96, 96]


def test_a_longer_block_of_a_newer_schema_is_not_taken_for_a_digest() -> None:
    encoded = bytearray(with_code_digest(TERM_EVENT, 77).encode())
    encoded[6:8] = (17).to_bytes(2, "little")

    assert read_code_digest(bytes(encoded)) == UNKNOWN_CODE
    assert decode_message(bytes(encoded), registry=LOG_MESSAGES) == TERM_EVENT
