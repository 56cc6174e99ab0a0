"""Encodes what one connection sends: setup frame, session messages and application messages.

An application message is laid out as it will stand in the log, so that the leader only checks and stamps it:

    offset size
    0      32   frame header: stream 101, session, term and offset 0 for the leader to fill
    32     8    SBE message header: SessionMessageHeader
    40     24   leadership_term_id, cluster_session_id, timestamp (0 for the leader to fill)
    64     ..   payload, then zeros up to a multiple of 32

With its session header it is cut into fragments when it is longer than one frame. A request has two numbers more in
front of its payload, see `trimaran.service_api.wire.request`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import Final

from ...service_api.cluster_id import NULL_CLUSTER_ID
from ...service_api.types import INGRESS_STREAM_ID
from ...service_api.wire.frame import (
    FRAME_HEADER,
    TYPE_DATA,
    UNFRAGMENTED,
    ReadableBuffer,
    align,
    encode_message,
)
from ...service_api.wire.link_frames import SetupFrame
from ...service_api.wire.request import REQUEST_HEADER, REQUEST_MESSAGE
from ...service_api.wire.session import SESSION_MESSAGE, SESSION_MESSAGE_HEADER
from ...service_api.wire.session_frame import PAYLOAD_OFFSET, REQUEST_PAYLOAD_OFFSET

_ZEROS: Final = tuple(bytes(-length & 31) for length in range(32))


class IngressPublisher:
    """The outgoing bytes of one connection, and the headers that messages of the session get.

    `outgoing` grows until the shell takes it; the protocol bounds it, by refusing offers above the window.
    """

    __slots__ = (
        "_cluster_session_id",
        "_control_bytes",
        "_headers",
        "_leadership_term_id",
        "_mtu_length_bytes",
        "_pack_request",
        "_payload_length",
        "_request_frame_length",
        "_request_headers",
        "_request_length",
        "_zeros",
        "outgoing",
        "settled_bytes",
        "taken_bytes",
    )

    def __init__(self, mtu_length_bytes: int) -> None:
        self.outgoing = bytearray()
        self.taken_bytes = 0
        """All that was taken so far."""
        self.settled_bytes = 0
        """Of `offered_bytes`: those that are known to be sent, or whose owner was told that they may not be."""
        self._control_bytes = 0
        """All that is not application messages: counting it is free, counting those would take time for each."""
        self._mtu_length_bytes = mtu_length_bytes
        self._leadership_term_id = -1
        self._cluster_session_id = -1
        # The headers depend on the payload's length only, and lengths repeat: 0.1 us for those of the last
        # length, 0.4 us for packing them again.
        self._payload_length = -1
        self._headers = b""
        self._zeros = b""
        # The same for requests.
        self._request_length = -1
        self._request_frame_length = 0
        self._request_headers = b""
        self._pack_request = _request_frame(0).pack

    @property
    def appended_bytes(self) -> int:
        """All that was ever to be sent on this connection."""
        return self.taken_bytes + len(self.outgoing)

    @property
    def offered_bytes(self) -> int:
        """Of these: the frames of application messages."""
        return self.appended_bytes - self._control_bytes

    def bind(self, *, leadership_term_id: int, cluster_session_id: int) -> None:
        """Set what the next messages say about their session."""
        self._leadership_term_id = leadership_term_id
        self._cluster_session_id = cluster_session_id
        self._payload_length = self._request_length = -1

    def setup(self, cluster_id: int = NULL_CLUSTER_ID) -> None:
        """Begin the stream: the first frame of every connection names the cluster that is meant, if that is known."""
        self._append_control(_encode_setup(self._mtu_length_bytes, cluster_id))

    def publish(self, message: ReadableBuffer) -> None:
        """Append one encoded session message."""
        self._append_control(self._frames(message))

    def offer(self, payload: ReadableBuffer) -> None:
        """Append one application message; `payload` is contiguous, of single bytes and not too long."""
        length = len(payload)
        if length != self._payload_length:
            if length > self._mtu_length_bytes - PAYLOAD_OFFSET:
                self._offer_fragmented(payload)
                return
            self._prepare(length)
        outgoing = self.outgoing
        outgoing += self._headers
        outgoing += payload
        outgoing += self._zeros

    def offer_request(self, sequence: int, acknowledged: int, payload: bytes) -> None:
        """Append one request. What becomes of it is known otherwise than what becomes of application messages."""
        length = len(payload)
        if length != self._request_length:
            if length > self._mtu_length_bytes - REQUEST_PAYLOAD_OFFSET:
                ids = self._leadership_term_id, self._cluster_session_id
                self.publish(REQUEST_HEADER.pack(*REQUEST_MESSAGE, *ids, 0, sequence, acknowledged) + payload)
                return
            self._prepare_request(length)
        self.outgoing += self._pack_request(self._request_headers, sequence, acknowledged, payload)
        self._control_bytes += self._request_frame_length

    def offer_requests(self, sequence: int, acknowledged: int, payloads: Sequence[bytes]) -> None:
        """Append requests that follow each other, numbered from `sequence`: as `offer_request` does for each."""
        for length, run in groupby(payloads, len):
            if length > self._mtu_length_bytes - REQUEST_PAYLOAD_OFFSET:
                for payload in run:
                    self.offer_request(sequence, acknowledged, payload)
                    sequence += 1
                continue
            if length != self._request_length:
                self._prepare_request(length)
            pack, headers = self._pack_request, self._request_headers
            frames = [pack(headers, number, acknowledged, payload) for number, payload in enumerate(run, sequence)]
            sequence += len(frames)
            self._append_control(b"".join(frames))

    def take(self) -> bytearray:
        """Hand over the outgoing bytes; they are the caller's now."""
        taken = self.outgoing
        self.taken_bytes += len(taken)
        self.outgoing = bytearray()
        return taken

    def _prepare(self, length: int) -> None:
        self._payload_length = length
        self._zeros = _ZEROS[length & 31]
        self._headers = self._pack_headers(PAYLOAD_OFFSET + length, SESSION_MESSAGE)

    def _prepare_request(self, length: int) -> None:
        frame_length = REQUEST_PAYLOAD_OFFSET + length
        self._request_length = length
        self._request_frame_length = align(frame_length)
        self._pack_request = _request_frame(length).pack
        self._request_headers = self._pack_headers(frame_length, REQUEST_MESSAGE)

    def _pack_headers(self, frame_length: int, message_header: tuple[int, int, int, int]) -> bytes:
        frame = FRAME_HEADER.pack(frame_length, 0, UNFRAGMENTED, TYPE_DATA, 0, 0, INGRESS_STREAM_ID, 0, 0)
        ids = self._leadership_term_id, self._cluster_session_id
        return frame + SESSION_MESSAGE_HEADER.pack(*message_header, *ids, 0)

    def _offer_fragmented(self, payload: ReadableBuffer) -> None:
        header = SESSION_MESSAGE_HEADER.pack(*SESSION_MESSAGE, self._leadership_term_id, self._cluster_session_id, 0)
        self.outgoing += self._frames(b"".join((header, payload)))

    def _frames(self, message: ReadableBuffer) -> bytes:
        return encode_message(message, stream_id=INGRESS_STREAM_ID, mtu_length=self._mtu_length_bytes)

    def _append_control(self, frames: bytes) -> None:
        self._control_bytes += len(frames)
        self.outgoing += frames


@lru_cache(maxsize=256)
def _request_frame(length: int) -> struct.Struct:
    """Return the struct of a request's frame: what is the same in all of this length, two numbers, and the payload."""
    return struct.Struct(f"<{PAYLOAD_OFFSET}sqq{length}s{-(REQUEST_PAYLOAD_OFFSET + length) & 31}x")


@lru_cache(maxsize=16)
def _encode_setup(mtu_length_bytes: int, cluster_id: int) -> bytes:
    """Encode the first frame of a connection, the same for all sessions of a process."""
    return SetupFrame(
        session_id=0, stream_id=INGRESS_STREAM_ID, mtu_length_bytes=mtu_length_bytes, cluster_id=cluster_id
    ).encode()
