"""The frames that are messages themselves: their bytes, what they say, and what is refused of them."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimaran.service_api.errors import RemoteProtocolError
from trimaran.service_api.wire.frame import encode_frame
from trimaran.service_api.wire.link_frames import (
    CommitFrame,
    SetupFrame,
    StatusFrame,
    decode_commit_frame,
    encode_commit_frame,
)

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


def test_setup_frame_is_the_one_of_aerons_transport() -> None:
    """The layout is typed in here a second time, from Aeron's transport protocol; the two last fields are ours."""
    frame = SetupFrame.at_position(
        65536 * 3 + 64,
        session_id=-5,
        stream_id=100,
        initial_term_id=7,
        term_length_bytes=65536,
        mtu_length_bytes=1408,
        checksummed=True,
        cluster_id=0x3F9A0C12D45E77B1,
        member_id=2,
    )

    expected = struct.pack(
        "<iBBHiiiiiiiiqi", 52, 0, 1, 5, 64, -5, 100, 7, 10, 65536, 1408, 0, 0x3F9A0C12D45E77B1, 2
    ) + bytes(12)
    assert frame.encode().hex() == expected.hex()
    assert SetupFrame.decode(bytes(8) + expected, 8) == frame
    assert frame.checksummed


def test_status_frame_is_the_one_of_aerons_transport() -> None:
    frame = StatusFrame(
        session_id=-5,
        stream_id=100,
        consumption_term_id=10,
        consumption_term_offset=64,
        receiver_window_bytes=1 << 20,
        receiver_id=-(1 << 63),
    )

    expected = struct.pack("<iBBHiiiiiq", 36, 0, 0, 3, -5, 100, 10, 64, 1 << 20, -(1 << 63)) + bytes(28)
    assert frame.encode().hex() == expected.hex()
    assert StatusFrame.decode(expected) == frame


@given(INT32, INT64)
def test_commit_frame_is_a_header_and_the_model_and_the_function_write_the_same(term_id: int, position: int) -> None:
    encoded = encode_commit_frame(term_id, position)

    assert encoded == struct.pack("<iBBHiiiiq", 32, 0, 0, 81, 0, 0, 100, term_id, position)
    assert CommitFrame(leadership_term_id=term_id, position=position).encode() == encoded
    assert CommitFrame.decode(encoded).position == position
    assert decode_commit_frame(bytearray(32) + encoded, 32) == (term_id, position)


@pytest.mark.parametrize(("offset", "name"), [(0, "frame_length"), (4, "version"), (5, "flags"), (16, "stream_id")])
def test_commit_frame_with_another_beginning_is_refused(offset: int, name: str) -> None:
    frame = bytearray(encode_commit_frame(3, 96))
    frame[offset] += 1

    with pytest.raises(RemoteProtocolError, match=rf"commit frame: CommitFrame\(.*\b{name}=.* expected=CommitFrame"):
        decode_commit_frame(frame, 0)


@given(INT32, INT32, INT32, st.integers(0, 1 << 30), INT64)
def test_setup_and_status_frames_carry_a_position(
    session_id: int, stream_id: int, initial_term_id: int, position: int, receiver_id: int
) -> None:
    position &= -32
    setup = SetupFrame.at_position(
        position,
        session_id=session_id,
        stream_id=stream_id,
        initial_term_id=initial_term_id,
        term_length_bytes=65536,
        mtu_length_bytes=1408,
    )
    status = StatusFrame.at_position(position, setup=setup, receiver_id=receiver_id)

    assert SetupFrame.decode(setup.encode()) == setup
    assert StatusFrame.decode(status.encode()) == status
    assert setup.position == position
    assert status.position(initial_term_id=initial_term_id, term_length_bytes=65536) == position
    assert (len(setup.encode()), len(status.encode())) == (64, 64)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"term_length_bytes": 65537}, "term_length=65537"),
        ({"term_length_bytes": 0}, "term_length=0"),
        ({"term_offset": 33}, "term_offset=33"),
        ({"term_offset": 1 << 26}, "term_offset=67108864"),
        ({"mtu_length_bytes": 32}, "mtu=32"),
    ],
)
def test_setup_frame_with_impossible_lengths_is_refused(changes: dict[str, Any], message: str) -> None:
    data = SetupFrame(session_id=1, stream_id=2, **changes).encode()

    with pytest.raises(RemoteProtocolError, match=message):
        SetupFrame.decode(data)


def test_link_frames_of_another_kind_are_refused() -> None:
    setup = SetupFrame(session_id=1, stream_id=2).encode()

    with pytest.raises(RemoteProtocolError, match="status frame: frame_length=52"):
        StatusFrame.decode(setup)
    with pytest.raises(RemoteProtocolError, match="setup frame: available=51"):
        SetupFrame.decode(setup[:51])
    with pytest.raises(RemoteProtocolError, match="type=1"):
        SetupFrame.decode(encode_frame(bytes(20), stream_id=1))
