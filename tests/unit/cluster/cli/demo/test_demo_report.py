"""The demo's checks fail when they should."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.waiting import patient
from trimaran.archive import Archive, ArchiveConfig
from trimaran.cluster.cli.demo.demo_errors import DemoFailedError
from trimaran.cluster.cli.demo.demo_report import (
    LeaderSeen,
    check_failover,
    check_recordings,
    check_replies,
    count_decisions,
    percentile_us,
)
from trimaran.cluster.cli.demo.recordings import (
    MemberRecording,
    are_identical,
    count_session_messages,
    find_log_recording,
)
from trimaran.cluster.cli.demo.request_stream import RequestStream
from trimaran.service_api.types import LOG_STREAM_ID
from trimaran.service_api.wire.frame import encode_frame, frame_crc
from trimaran.service_api.wire.session import (
    SESSION_HEADER_LENGTH,
    SESSION_MESSAGE_HEADER,
    SessionMessageHeader,
)

TERM_LENGTH = 65_536
SESSION_ID = 7


def log_frame(number: int, position: int) -> bytes:
    """A message of the session as the leader would record it."""
    head = SESSION_MESSAGE_HEADER.pack(
        24, SessionMessageHeader.TEMPLATE_ID, SessionMessageHeader.SCHEMA_ID, 16, 0, SESSION_ID, 0
    )
    payload = head + f"{number}\thost\t0\t/".encode()
    plain = encode_frame(payload, stream_id=LOG_STREAM_ID, term_id=0, term_offset=position)
    return encode_frame(
        payload,
        stream_id=LOG_STREAM_ID,
        session_id=frame_crc(plain, 0, 32 + len(payload)),
        term_id=position // TERM_LENGTH,
        term_offset=position % TERM_LENGTH,
    )


async def record(directory: Path, count: int) -> MemberRecording:
    """A stopped member's directory with a log of `count` messages."""
    config = ArchiveConfig(term_length_bytes=TERM_LENGTH, segment_length_bytes=TERM_LENGTH, file_sync_level=0)
    archive = await Archive.launch(directory / "archive", config, clock_ms=lambda: 0)
    recording = await archive.start_recording(
        stream_id=LOG_STREAM_ID, session_id=0, channel="test", source_identity="test"
    )
    for number in range(1, count + 1):
        recording.append(log_frame(number, recording.append_position))
    await recording.stop()
    await archive.aclose()
    return find_log_recording(directory)


class Replying:
    """Answers the requests with the replies of a list, in order."""

    leadership_term_id = 0

    def __init__(self, replies: list[bytes]) -> None:
        self._replies = iter(replies)

    async def request(self, payload: bytes) -> bytes:
        return next(self._replies)


async def make_stream(replies: list[bytes]) -> RequestStream:
    stream = RequestStream(
        [b""] * len(replies), inflight_limit=1, on_half_way=lambda: None, on_leader=lambda term, member: None
    )
    await stream.run(Replying(replies), stall_timeout_s=patient(10))
    return stream


async def test_recordings_that_differ_in_length_only_are_identical(tmp_path: Path) -> None:
    recordings = [await record(tmp_path / str(i), count) for i, count in enumerate((5, 8, 5))]

    assert are_identical(recordings)
    assert [count_session_messages(recording, SESSION_ID) for recording in recordings] == [5, 8, 5]
    assert count_session_messages(recordings[0], SESSION_ID + 1) == 0


async def test_one_byte_makes_a_difference(tmp_path: Path) -> None:
    recordings = [await record(tmp_path / str(i), 5) for i in range(2)]
    segment = recordings[1].log.location.directory / "0-0.rec"
    data = bytearray(segment.read_bytes())
    data[32 + SESSION_HEADER_LENGTH] ^= 1
    segment.write_bytes(data)

    assert not are_identical(recordings)


async def test_a_quorum_must_have_recorded_every_request(tmp_path: Path) -> None:
    recordings = [await record(tmp_path / str(i), count) for i, count in enumerate((5, 3))]

    same, complete = check_recordings(recordings, cluster_session_id=SESSION_ID, request_count=5, quorum=2)

    assert same.holds
    assert not complete.holds


def test_a_member_without_a_log_fails_the_demo(tmp_path: Path) -> None:
    with pytest.raises(DemoFailedError, match="log recording"):
        find_log_recording(tmp_path)


async def test_replies_must_be_those_of_a_single_process() -> None:
    stream = await make_stream([b"allowed\t9", b"denied\t0"])

    good = check_replies(stream, [b"allowed\t9", b"denied\t0"])
    swapped = check_replies(stream, [b"denied\t0", b"allowed\t9"])

    assert [check.holds for check in good] == [True, True]
    assert [check.holds for check in swapped] == [True, False]


async def test_a_request_without_a_reply_fails_the_check() -> None:
    stream = await make_stream([b"allowed\t9"])
    stream.replies.append(None)

    assert not check_replies(stream, [b"allowed\t9", b"allowed\t8"])[0].holds


async def test_a_fail_over_needs_a_reply_of_a_later_leader() -> None:
    stream = await make_stream([b"allowed\t9", b"allowed\t8"])
    leaders = [LeaderSeen(0, 1), LeaderSeen(1, 2)]

    assert not check_failover(stream, leaders).holds
    stream.failover_ns = 1
    assert check_failover(stream, leaders).holds
    assert not check_failover(stream, leaders[:1]).holds


def test_percentiles_are_of_sorted_values_in_microseconds() -> None:
    values = [i * 1_000 for i in range(1, 1_001)]

    assert percentile_us(values, 50) == 500.0
    assert percentile_us(values, 99.9) == 999.0
    assert percentile_us([], 50) == 0.0


def test_decisions_are_counted_by_their_words() -> None:
    assert count_decisions([b"allowed\t9", None, b"denied\t0", b"malformed\t0"]) == (1, 1)
