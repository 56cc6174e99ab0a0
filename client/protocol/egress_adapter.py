"""Decodes what one connection receives.

Nearly every frame is an unfragmented application message of our session. The loop recognises one with a
single unpack and hands its payload to the listener as a view of the receive buffer: no object per message but
the view. Replies to requests and answers to queries have loops of their own. Everything else takes the general path,
which checks each field and joins fragments.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import takewhile
from operator import sub
from typing import Final

from ...service_api.errors import RemoteProtocolError
from ...service_api.groups.group import ONLY_GROUP
from ...service_api.types import EGRESS_STREAM_ID
from ...service_api.wire.frame import (
    HEADER_LENGTH,
    TYPE_DATA,
    TYPE_PADDING,
    UNFRAGMENTED_DATA,
    FrameField,
    FrameLayout,
    HeaderField,
    align,
    unpack_header,
)
from ...service_api.wire.message import peek_header
from ...service_api.wire.queries import ANSWER_FIELDS, ANSWER_HEADER, ANSWER_PAYLOAD_OFFSET, QueryCode
from ...service_api.wire.request import (
    REPLY_HEADER,
    REQUEST_BLOCK_LENGTH,
    REQUEST_HEADER_LENGTH,
    REQUEST_MESSAGE,
    RequestCode,
)
from ...service_api.wire.sbe import MESSAGE_HEADER
from ...service_api.wire.session import SESSION_MESSAGE, SESSION_MESSAGE_HEADER
from ...service_api.wire.session_frame import PAYLOAD_OFFSET, REQUEST_PAYLOAD_OFFSET, SessionField
from ...service_api.wire.stream import MessageAssembler
from ..egress import EgressListener

_MESSAGE_FIELDS: Final = (
    HeaderField.FRAME_LENGTH,
    HeaderField.KIND,
    HeaderField.STREAM_ID,
    SessionField.MESSAGE_HEADER,
    SessionField.LEADERSHIP_TERM_ID,
    SessionField.CLUSTER_SESSION_ID,
    SessionField.TIMESTAMP,
)
_EGRESS_HEADERS: Final = FrameLayout(*_MESSAGE_FIELDS).head
_REPLY_HEADERS: Final = FrameLayout(
    *_MESSAGE_FIELDS, SessionField.REQUEST_SEQUENCE, SessionField.ACKNOWLEDGED_SEQUENCE
).head
_ANSWER_HEADERS: Final = FrameLayout(*_MESSAGE_FIELDS[:4], ANSWER_FIELDS).head
_UNIFORM: Final = FrameLayout(
    HeaderField.LENGTH_AND_KIND, HeaderField.STREAM_ID, SessionField.PREFIX, SessionField.TIMESTAMP
)
"""What may differ between application messages of a session in one term: only their times, where they are uniform."""

_FIRST_RUN: Final = 4
_RUN_GROWTH: Final = 4
"""Replies that are read together at first, and how many times more after a run of uniform ones."""
_REPLIED: Final = int(RequestCode.REPLY)
_ANSWERED: Final = int(QueryCode.OK)

_PREFIX_OFFSET: Final = SessionField.PREFIX.offset
_TIMESTAMP_OFFSET: Final = SessionField.TIMESTAMP.offset
_SESSION_MESSAGE: Final = int.from_bytes(MESSAGE_HEADER.pack(*SESSION_MESSAGE), "little", signed=True)
_REPLY: Final = int.from_bytes(MESSAGE_HEADER.pack(*REQUEST_MESSAGE), "little", signed=True)


@lru_cache(maxsize=256)
def _reply_rows(frame_length: int) -> struct.Struct:
    """Return the struct of a reply's whole frame: what `_UNIFORM` has but the time, its numbers, and the reply."""
    layout = FrameLayout(
        HeaderField.LENGTH_AND_KIND,
        HeaderField.STREAM_ID,
        SessionField.PREFIX,
        SessionField.REQUEST_SEQUENCE,
        SessionField.ACKNOWLEDGED_SEQUENCE,
        FrameField(REQUEST_PAYLOAD_OFFSET, f"{frame_length - REQUEST_PAYLOAD_OFFSET}s"),
    )
    return layout.rows(align(frame_length))


class ClientSessionState:
    """What the protocol and its connections know together about the session."""

    __slots__ = ("cluster_session_id", "foreign_egress_count", "group", "leadership_term_id", "stale_egress_count")

    def __init__(self) -> None:
        self.cluster_session_id = -1
        self.leadership_term_id = -1
        self.group = ONLY_GROUP
        """Which of the cluster's groups it is with, as the leader said when it opened."""
        self.stale_egress_count = 0
        """Messages dropped because they came from the leader of an earlier term."""
        self.foreign_egress_count = 0
        """Messages dropped because they belong to another session, or are of an unknown kind."""


class EgressAdapter:
    """Cuts received bytes into frames; application messages go to the listener, the rest to `on_control`.

    Holds at most one incomplete message of `max_message_length_bytes`; a frame longer than `mtu_length_bytes`
    is the peer's error.
    """

    __slots__ = (
        "_assembler",
        "_listener",
        "_mtu_length_bytes",
        "_on_answer",
        "_on_control",
        "_on_query_answer",
        "_on_replies",
        "_session",
        "consumed_bytes",
    )

    def __init__(
        self,
        session: ClientSessionState,
        listener: EgressListener,
        *,
        on_control: Callable[[bytes], None],
        on_answer: Callable[[int, int, bytes], None],
        on_replies: Callable[[int, Sequence[bytes]], None],
        on_query_answer: Callable[[int, int, bytes, int, int, int], None],
        mtu_length_bytes: int,
        max_message_length_bytes: int,
    ) -> None:
        self._session = session
        self._listener = listener
        self._on_control = on_control
        self._on_answer = on_answer
        """Takes the sequence of a request, a code and a reply."""
        self._on_replies = on_replies
        """Takes the sequence of a request and the reply to it and to those that follow it."""
        self._on_query_answer = on_query_answer
        """Takes correlation id, session id, payload, log position, staleness in ns and member id."""
        self._mtu_length_bytes = mtu_length_bytes
        self._assembler = MessageAssembler(max_message_length_bytes)
        self.consumed_bytes = 0
        """How far the last call to `receive` came, also when it raised."""

    def receive(self, data: memoryview) -> None:
        """Handle the whole frames at the beginning of `data`; see `consumed_bytes` for where the rest begins.

        Raises:
            RemoteProtocolError: a frame that the protocol does not have.
            Exception: whatever the listener raised; its message counts as consumed.
        """
        session, on_message = self._session, self._listener.on_message
        cluster_session_id, leadership_term_id = session.cluster_session_id, session.leadership_term_id
        unpack, max_frame_length = _EGRESS_HEADERS.unpack_from, self._mtu_length_bytes
        # Fragments never come between, so only the general path needs to know whether a message is being
        # joined.
        is_assembling = self._assembler.is_assembling
        offset, end = 0, len(data)
        try:
            while end - offset >= PAYLOAD_OFFSET:
                length, kind, stream, sbe_header, term, session_id, timestamp = unpack(data, offset)
                if (
                    kind != UNFRAGMENTED_DATA
                    or sbe_header != _SESSION_MESSAGE
                    or session_id != cluster_session_id
                    or term < leadership_term_id
                    or stream != EGRESS_STREAM_ID
                    or not PAYLOAD_OFFSET <= length <= max_frame_length
                    or is_assembling
                ):
                    if sbe_header == _REPLY and not is_assembling:
                        start, offset = offset, self._receive_replies(data, offset)
                        if offset > start:
                            continue
                    elif sbe_header == ANSWER_HEADER and not is_assembling:
                        start, offset = offset, self._receive_answers(data, offset)
                        if offset > start:
                            continue
                    length = self._check_frame(data, offset)
                    start, offset = offset, offset + ((length + 31) & -32)
                    if offset > end:
                        offset = start
                        break
                    self._receive_frame(data[start : start + length])
                    cluster_session_id = session.cluster_session_id
                    leadership_term_id = session.leadership_term_id
                    is_assembling = self._assembler.is_assembling
                    continue
                start = offset
                aligned = (length + 31) & -32
                if start + aligned > end:
                    break
                offset += aligned
                on_message(timestamp, term, data[start + PAYLOAD_OFFSET : start + length])
                whole = (end - offset) // aligned * aligned
                if not whole:
                    continue
                # What follows is uniform as a rule: frames that say the same of everything but time and payload.
                head, prefix = length | kind << 32, data[start + _PREFIX_OFFSET : start + _TIMESTAMP_OFFSET].tobytes()
                for run_head, run_stream, run_prefix, timestamp in _UNIFORM.rows(aligned).iter_unpack(
                    data[offset : offset + whole]
                ):
                    if run_head != head or run_prefix != prefix or run_stream != EGRESS_STREAM_ID:
                        break
                    start, offset = offset, offset + aligned
                    on_message(timestamp, term, data[start + PAYLOAD_OFFSET : start + length])
        finally:
            self.consumed_bytes = offset

    def _receive_replies(self, data: memoryview, offset: int) -> int:
        """Handle the whole, unfragmented replies at `offset` of `data`; return the offset after them."""
        session, on_replies = self._session, self._on_replies
        cluster_session_id, leadership_term_id = session.cluster_session_id, session.leadership_term_id
        unpack, max_frame_length, end = _REPLY_HEADERS.unpack_from, self._mtu_length_bytes, len(data)
        run_limit = _FIRST_RUN
        while end - offset >= REQUEST_PAYLOAD_OFFSET:
            length, kind, stream, sbe_header, term, session_id, _, sequence, code = unpack(data, offset)
            aligned = (length + 31) & -32
            if (
                kind != UNFRAGMENTED_DATA
                or sbe_header != _REPLY
                or session_id != cluster_session_id
                or term < leadership_term_id
                or stream != EGRESS_STREAM_ID
                or not REQUEST_PAYLOAD_OFFSET <= length <= max_frame_length
                or offset + aligned > end
            ):
                break
            if code != _REPLIED:
                self._on_answer(sequence, code, bytes(data[offset + REQUEST_PAYLOAD_OFFSET : offset + length]))
                offset += aligned
                continue
            # What follows is uniform as a rule: frames that say the same of everything but time, number and reply. So
            # columns are compared, not rows. Few at first: where lengths change, rows are read in vain.
            whole = min(run_limit, (end - offset) // aligned) * aligned
            rows = _reply_rows(length).iter_unpack(data[offset : offset + whole])
            heads, streams, prefixes, sequences, codes, replies = zip(*rows, strict=True)
            count = len(replies)
            run_limit *= _RUN_GROWTH
            if (
                heads.count(heads[0]) != count
                or streams.count(stream) != count
                or prefixes.count(prefixes[0]) != count
                or codes.count(code) != count
                or sequences != (*range(sequence, sequence + count),)
            ):
                said = zip(heads, streams, prefixes, codes, map(sub, sequences, range(count)), strict=True)
                like_first = (heads[0], stream, prefixes[0], code, sequence)
                count, run_limit = sum(1 for _ in takewhile(like_first.__eq__, said)), _FIRST_RUN
                replies = replies[:count]
            offset += count * aligned
            on_replies(sequence, replies)
        return offset

    def _receive_answers(self, data: memoryview, offset: int) -> int:
        """Handle the whole, unfragmented answers to queries at `offset` of `data`; return the offset after them."""
        unpack, max_frame_length, end = _ANSWER_HEADERS.unpack_from, self._mtu_length_bytes, len(data)
        on_query_answer = self._on_query_answer
        while end - offset >= ANSWER_PAYLOAD_OFFSET:
            length, kind, stream, sbe_header, *ids, code, position, staleness_ns, detail, said = unpack(data, offset)
            if (
                kind != UNFRAGMENTED_DATA
                or sbe_header != ANSWER_HEADER
                or stream != EGRESS_STREAM_ID
                or code != _ANSWERED
                or detail
                or length != ANSWER_PAYLOAD_OFFSET + said
                or length > max_frame_length
                or offset + align(length) > end
            ):
                break
            payload = data[offset + ANSWER_PAYLOAD_OFFSET : offset + length].tobytes()
            offset += align(length)
            correlation_id, session_id, member_id = ids
            on_query_answer(correlation_id, session_id, payload, position, staleness_ns, member_id)
        return offset

    def _check_frame(self, data: memoryview, offset: int) -> int:
        """Check the header of any frame; return its frame length."""
        frame_length, version, _, frame_type, _, _, stream_id, _, _ = unpack_header(data, offset)
        if not HEADER_LENGTH <= frame_length <= self._mtu_length_bytes:
            raise RemoteProtocolError(
                f"egress frame_length={frame_length} expected={HEADER_LENGTH}..{self._mtu_length_bytes}"
            )
        if version != 0 or frame_type not in (TYPE_DATA, TYPE_PADDING):
            raise RemoteProtocolError(
                f"egress frame version={version} type={frame_type} expected version=0 type={TYPE_DATA}"
            )
        if stream_id != EGRESS_STREAM_ID:
            raise RemoteProtocolError(f"egress frame stream_id={stream_id} expected={EGRESS_STREAM_ID}")
        return frame_length

    def _receive_frame(self, frame: memoryview) -> None:
        """Handle a frame that was checked; a fragment completes a message, or waits for the next."""
        header = unpack_header(frame)
        message = self._assembler.append_fragment(header.type, header.flags, bytes(frame[HEADER_LENGTH:]))
        if message is not None:
            self._receive_message(message)

    def _receive_message(self, message: bytes) -> None:
        """Tell application messages, also those in the words of another schema version, from the others."""
        is_session_message = len(message) >= MESSAGE_HEADER.size and message[2:6] == _TEMPLATE_AND_SCHEMA
        if not is_session_message:
            self._on_control(message)
            return
        block_length = peek_header(message)[0]
        if block_length < SESSION_MESSAGE[0] or len(message) < MESSAGE_HEADER.size + block_length:
            raise RemoteProtocolError(f"incomplete egress message: block_length={block_length} length={len(message)}")
        *_, term, session_id, timestamp = SESSION_MESSAGE_HEADER.unpack_from(message)
        session = self._session
        if session_id != session.cluster_session_id:
            session.foreign_egress_count += 1
        elif term < session.leadership_term_id:
            session.stale_egress_count += 1
        elif block_length == REQUEST_BLOCK_LENGTH:
            sequence, code = REPLY_HEADER.unpack_from(message)[-2:]
            self._on_answer(sequence, code, message[REQUEST_HEADER_LENGTH:])
        else:
            self._listener.on_message(timestamp, term, memoryview(message)[MESSAGE_HEADER.size + block_length :])


_TEMPLATE_AND_SCHEMA: Final = struct.pack("<HH", *SESSION_MESSAGE[1:3])
