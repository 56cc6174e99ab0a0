"""Frames taken a run at a time become the same log, the same deliveries and the same errors as frames one by one."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.client.dialogue import RecordingListener
from tests.unit.client.fake_member import egress_frames
from tests.unit.cluster.core.log.test_log_streams import PREFIX, PREFIXES, buffer_at, content, ingress
from tests.unit.cluster.core.rosters import roster
from tests.unit.cluster.log_rules import log_rules
from trimaran.client.protocol.egress_adapter import ClientSessionState, EgressAdapter
from trimaran.cluster.core.log.log_publisher import LogPublisher
from trimaran.cluster.core.log.log_receiver import LogReceiver
from trimaran.service_api import RemoteProtocolError
from trimaran.service_api.wire.frame import HEADER_LENGTH, encode_message
from trimaran.service_api.wire.frame_run import MIN_RUN_FRAMES, FrameRun
from trimaran.service_api.wire.request import REQUEST_HEADER, REQUEST_MESSAGE
from trimaran.service_api.wire.session import SESSION_MESSAGE, SESSION_MESSAGE_HEADER

TERM_LENGTH = 64 << 10


@contextmanager
def one_by_one() -> Iterator[None]:
    """Look at every frame: no run is long enough."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FrameRun, "probe", lambda *args, **kwargs: None)
        yield


@st.composite
def bursts(draw: st.DrawFn) -> list[bytes]:
    """Payloads as clients send them: many of one length, then of another; what they say does not matter."""
    payloads: list[bytes] = []
    for _ in range(draw(st.integers(1, 5))):
        length = draw(st.sampled_from([0, 1, 8, 31, 32, 33, 64, 100]))
        count = draw(st.sampled_from([1, 2, MIN_RUN_FRAMES - 1, MIN_RUN_FRAMES, MIN_RUN_FRAMES + 1, 100, 700]))
        seed = draw(st.integers(0, 255))
        payloads += [bytes((seed + index + at) & 255 for at in range(length)) for index in range(count)]
    return payloads


def written(chunk: bytearray, *, start: int, checksums: bool) -> tuple[int, bytes]:
    """What a publisher takes of a received chunk, and the log that it makes."""
    buffer = buffer_at(start)
    publisher = LogPublisher(
        buffer,
        log_session_id=77,
        initial_term_id=5,
        term_length_bytes=TERM_LENGTH,
        mtu_length_bytes=1408,
        checksums=checksums,
    )
    data = bytearray(chunk)
    taken = publisher.append_ingress(data, 0, len(data), prefixes=PREFIXES, timestamp=1_700_000_000_123)
    return taken, content(buffer)


def accepted(log: bytes, *, start: int) -> tuple[int, bytes, str]:
    """What a follower takes of a log that arrives in one piece, and what it says if it refuses it."""
    buffer = buffer_at(start)
    receiver = LogReceiver(buffer, log_rules(initial_term_id=5, term_length_bytes=TERM_LENGTH), roster(0, 1).history)
    data = bytearray(log)
    try:
        return receiver.accept(data, 0, len(data)), content(buffer), ""
    except RemoteProtocolError as error:
        return -1, content(buffer), str(error)


@given(payloads=bursts(), start=st.sampled_from([0, 96, TERM_LENGTH - 96, TERM_LENGTH - 4096]), checksums=st.booleans())
@settings(max_examples=60)
def test_the_log_is_the_same_byte_for_byte(payloads: list[bytes], start: int, checksums: bool) -> None:
    chunk = ingress(*payloads)
    with one_by_one():
        expected = written(chunk, start=start, checksums=checksums)

    assert written(chunk, start=start, checksums=checksums) == expected
    assert expected[0] == len(chunk)
    if checksums:
        assert accepted(expected[1], start=start) == (len(expected[1]), expected[1], "")


@given(data=st.data())
@settings(max_examples=150)
def test_a_changed_byte_of_a_chunk_is_judged_the_same(data: st.DataObject) -> None:
    """Whatever a client does to one of its frames: the publisher stops at the same frame."""
    chunk = ingress(*[bytes([value & 255]) * 20 for value in range(40)])
    chunk[data.draw(st.integers(0, len(chunk) - 1))] ^= data.draw(st.integers(1, 255))
    with one_by_one():
        expected = written(chunk, start=0, checksums=True)

    assert written(chunk, start=0, checksums=True) == expected


@given(data=st.data())
@settings(max_examples=150)
def test_a_changed_byte_of_the_log_is_found_the_same(data: st.DataObject) -> None:
    """A follower takes what comes before the frame that is broken, and says the same of it."""
    _, log = written(ingress(*[bytes([value & 255]) * 20 for value in range(40)]), start=0, checksums=True)
    broken = bytearray(log)
    broken[data.draw(st.integers(0, len(log) - 1))] ^= data.draw(st.integers(1, 255))
    with one_by_one():
        expected = accepted(bytes(broken), start=0)

    assert accepted(bytes(broken), start=0) == expected


def test_every_checksum_of_a_run_is_looked_at() -> None:
    """The oracle above would be as blind as what it judges: here the bytes are broken by hand, frame by frame."""
    _, log = written(ingress(*[bytes(32)] * 40), start=0, checksums=True)
    for index in range(40):
        broken = bytearray(log)
        broken[index * 96 + HEADER_LENGTH + 40] ^= 1

        taken, _, said = accepted(bytes(broken), start=0)

        assert taken == -1
        assert f"log frame at position={index * 96}: wrong checksum" in said


def test_requests_are_stamped_as_messages_are() -> None:
    chunk = bytearray()
    for number in range(30):
        frame = bytearray(encode_message(_request(number), stream_id=101, mtu_length=1408))
        chunk += frame
    with one_by_one():
        expected = written(chunk, start=0, checksums=True)

    assert written(chunk, start=0, checksums=True) == expected
    assert expected[0] == len(chunk)


def _request(number: int) -> bytes:
    term_id, session_id = struct.unpack_from("<qq", PREFIX, 8)
    return REQUEST_HEADER.pack(*REQUEST_MESSAGE, term_id, session_id, 0, number, 0) + b"ask"


def egress(payload: bytes, *, term_id: int = 3, session_id: int = 9) -> bytes:
    return egress_frames(SESSION_MESSAGE_HEADER.pack(*SESSION_MESSAGE, term_id, session_id, 0) + payload)


@pytest.mark.parametrize("count", [1, 2, 50])
def test_egress_that_is_alike_but_for_one_message_reaches_the_listener(count: int) -> None:
    """Runs on the client's side: of another session, of an earlier term, of another length, cut off in the middle."""
    listener, session = RecordingListener(), ClientSessionState()
    session.cluster_session_id, session.leadership_term_id = 9, 3
    adapter = EgressAdapter(
        session,
        listener,
        on_control=lambda message: None,
        on_answer=lambda sequence, code, reply: None,
        on_query_answer=lambda *answer: None,
        on_replies=lambda sequence, replies: None,
        mtu_length_bytes=65504,
        max_message_length_bytes=1 << 20,
    )
    alike = [egress(bytes([number]) * 5) for number in range(count)]
    odd = [
        egress(b"other", session_id=8),
        egress(b"stale", term_id=2),
        egress(b"short"),
        egress(b"shorter", term_id=4),
    ]
    data = b"".join(frame for strange in odd for frame in [*alike, strange])

    adapter.receive(memoryview(data + alike[0][:-1]))

    plain = [bytes([number]) * 5 for number in range(count)]
    assert listener.payloads == plain * 2 + plain + [b"short"] + plain + [b"shorter"]
    assert [call[2] for call in listener.calls][-1] == 4
    assert adapter.consumed_bytes == len(data)
    assert (session.foreign_egress_count, session.stale_egress_count) == (1, 1)
