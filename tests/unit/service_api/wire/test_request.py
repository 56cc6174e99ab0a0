"""Requests and replies as models: the bytes that the hot paths write, and session messages to who knows no requests."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimaran.service_api.errors import RemoteProtocolError
from trimaran.service_api.types import ClusterSessionId, TermId
from trimaran.service_api.wire.message import MESSAGES, decode_message, registry_key
from trimaran.service_api.wire.request import (
    REPLY_HEADER,
    REQUEST_BLOCK_LENGTH,
    REQUEST_HEADER,
    REQUEST_HEADER_LENGTH,
    REQUEST_MESSAGE,
    ReplyHeader,
    RequestCode,
    RequestHeader,
)
from trimaran.service_api.wire.session import SESSION_HEADER_LENGTH, SESSION_MESSAGE_HEADER, SessionMessageHeader

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
LAYOUT = struct.Struct("<HHHHqqqqq")
"""As docs and `request` say it: the test's own copy."""


def request(sequence: int = 5, acknowledged: int = 4) -> RequestHeader:
    return RequestHeader(
        leadership_term_id=TermId(3),
        cluster_session_id=ClusterSessionId(7),
        timestamp=900,
        request_sequence=sequence,
        acknowledged_sequence=acknowledged,
    )


def reply(code: RequestCode | None) -> ReplyHeader:
    return ReplyHeader(
        leadership_term_id=TermId(3),
        cluster_session_id=ClusterSessionId(7),
        timestamp=900,
        request_sequence=5,
        code=code,
    )


def test_a_request_is_a_session_message_with_a_longer_block() -> None:
    encoded = request().encode()

    assert encoded.hex() == LAYOUT.pack(40, 1, 111, 16, 3, 7, 900, 5, 4).hex()
    assert (REQUEST_BLOCK_LENGTH, REQUEST_HEADER_LENGTH, REQUEST_MESSAGE) == (40, 48, (40, 1, 111, 16))
    assert (SESSION_MESSAGE_HEADER.format, SESSION_HEADER_LENGTH) == ("<HHHHqqq", 32)


@given(INT64, INT64)
def test_the_struct_of_the_hot_path_writes_and_reads_what_the_model_does(sequence: int, acknowledged: int) -> None:
    header = request(sequence, acknowledged)

    assert REQUEST_HEADER.pack(*REQUEST_MESSAGE, 3, 7, 900, sequence, acknowledged) == header.encode()
    assert RequestHeader.decode(header.encode() + b"payload") == header
    assert RequestHeader.unpack(header.encode()) == (3, 7, 900, sequence, acknowledged)


@pytest.mark.parametrize("code", RequestCode)
def test_a_reply_has_its_code_in_eight_bytes(code: RequestCode) -> None:
    encoded = reply(code).encode()

    assert encoded.hex() == LAYOUT.pack(40, 1, 111, 16, 3, 7, 900, 5, code).hex()
    assert ReplyHeader.decode(encoded) == reply(code)
    assert REPLY_HEADER.unpack(encoded) == (*REQUEST_MESSAGE, 3, 7, 900, 5, code)


@pytest.mark.parametrize("code", [6, -1, 1 << 32])
def test_a_code_that_there_is_not_is_refused(code: int) -> None:
    encoded = LAYOUT.pack(40, 1, 111, 16, 3, 7, 900, 5, code)

    with pytest.raises(RemoteProtocolError, match=rf"ReplyHeader.code: value={code} expected.* \[0, 1, 2"):
        ReplyHeader.decode(encoded)


def test_who_knows_no_requests_reads_a_session_message() -> None:
    plain = SessionMessageHeader(leadership_term_id=TermId(3), cluster_session_id=ClusterSessionId(7), timestamp=900)

    assert MESSAGES[registry_key(111, 1)] is SessionMessageHeader
    assert decode_message(request().encode()) == plain


def test_a_session_message_is_no_request() -> None:
    plain = SessionMessageHeader(leadership_term_id=TermId(3), cluster_session_id=ClusterSessionId(7), timestamp=900)

    with pytest.raises(RemoteProtocolError, match="block_length=24 version=16 field=request_sequence needs=32"):
        RequestHeader.decode(plain.encode() + bytes(16))
