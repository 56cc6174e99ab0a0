"""A log with requests, rewritten for Aeron: session messages with the payload alone, at the same positions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.cluster.operating.export_aeron.hand_made_log import MTU, SESSION, HandMadeLog, messages, write
from trimaran.archive.log.log_file import LogFile
from trimaran.cluster.operating.export_aeron.foreign_entries import find_foreign_entry, find_skips
from trimaran.cluster.operating.export_aeron.request_decisions import RequestDecisions
from trimaran.cluster.operating.export_aeron.rewriting import LogRewriter
from trimaran.service_api.types import TermId
from trimaran.service_api.wire.checksum import ChecksumKind
from trimaran.service_api.wire.log.messages import TimerEvent
from trimaran.service_api.wire.request import REQUEST_BLOCK_LENGTH, REQUEST_HEADER_LENGTH
from trimaran.service_api.wire.session import SESSION_HEADER_LENGTH

MAX_REPLY = 8192


def rewrite(log: LogFile, *, service_count: int = 1) -> tuple[LogFile, LogRewriter]:
    """Rewrite a log; every frame of what comes of it is valid."""
    end = log.descriptor.stop_position
    assert end is not None
    skips = find_skips(log, 0, end)
    rewriter = LogRewriter(log, skips, RequestDecisions(max_reply_length=MAX_REPLY), service_count=service_count)
    data = b"".join(rewriter.blocks(0, end))
    assert len(data) == end
    return write(log.location.directory / "rewritten", log.descriptor, data), rewriter


def delivered(log: LogFile) -> list[tuple[int, bytes]]:
    """Where each client's message ends and what a service of Aeron takes for its payload: all after 32 bytes."""
    return [(each.end_position, each.payload[SESSION_HEADER_LENGTH:]) for each in messages(log)]


@pytest.mark.parametrize("checksum", ["none", "crc32", "crc32c"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.booleans(), st.one_of(st.integers(0, 200), st.integers(MTU - 120, MTU + 20), st.integers(2600, 2800))
        ),
        min_size=1,
        max_size=30,
    )
)
def test_each_message_ends_where_it_ended_with_the_payload_alone(
    tmp_path: Path, checksum: str, sent: list[tuple[bool, int]]
) -> None:
    """`Cluster.log_position` may be in a service's state. 16 bytes less end a fragment, a frame, or neither."""
    kind = ChecksumKind.CRC32C if checksum == "crc32c" else ChecksumKind.CRC32
    made, sequence, expected = HandMadeLog(tmp_path, checksums=checksum != "none", checksum_kind=kind), 0, []
    for is_request, length in sent:
        payload = bytes(index * 7 % 251 for index in range(length))
        sequence += is_request
        end = made.request(sequence, payload, acknowledged=sequence - 1) if is_request else made.message(payload)
        expected.append((end, payload))
    log = made.close()

    rewritten, rewriter = rewrite(log)

    assert delivered(rewritten) == expected
    assert not rewriter.counts.foreign
    assert find_foreign_entry(rewritten, 0, expected[-1][0], service_count=1) is None
    assert (find_foreign_entry(log, 0, expected[-1][0], service_count=1) is None) == (sequence == 0)


def test_aeron_takes_the_header_of_a_request_for_payload(tmp_path: Path) -> None:
    """What happens without this: 16 bytes more, and another state."""
    made = HandMadeLog(tmp_path)
    end = made.request(1, b"payload")

    ((position, payload),) = delivered(made.close())

    assert (position, payload) == (end, (1).to_bytes(8, "little") + bytes(8) + b"payload")
    assert REQUEST_HEADER_LENGTH - SESSION_HEADER_LENGTH == REQUEST_BLOCK_LENGTH - 24 == 16


def test_a_request_that_came_again_is_left_out(tmp_path: Path) -> None:
    """After a fail-over a client sends again what is unanswered; the service ran it once."""
    made = HandMadeLog(tmp_path)
    ends = [made.request(1, b"one"), made.request(1, b"one"), made.request(3, b"too early"), made.request(2, b"two")]

    rewritten, rewriter = rewrite(made.close())

    assert delivered(rewritten) == [(ends[0], b"one"), (ends[3], b"two")]
    assert (rewriter.counts.request_count, rewriter.counts.omitted_request_count) == (2, 2)


def test_what_an_operator_had_skipped_is_left_out_and_so_is_the_entry_that_says_so(tmp_path: Path) -> None:
    """Aeron passes over the entry that says so, and would give its service the one that is skipped."""
    made = HandMadeLog(tmp_path)
    kept, skipped = made.message(b"kept"), [made.message(b"x" * 5000), made.request(1, b"fatal")]
    for position in skipped:
        made.skip(position)
    last = made.request(2, b"next")
    log = made.close()

    found = find_foreign_entry(log, kept, last, service_count=1)
    rewritten, rewriter = rewrite(log)

    assert found is not None
    assert found.what == "a request"
    assert delivered(rewritten) == [(kept, b"kept"), (last, b"next")]
    assert rewriter.counts.omitted_entry_count == 3
    assert not rewriter.counts.foreign


def test_a_skipped_message_of_a_service_cannot_be_left_out(tmp_path: Path) -> None:
    """Its consensus module waits for it, and would append it again."""
    made = HandMadeLog(tmp_path)
    position = made.message(b"of a service", session_id=-(1 << 63) + 1)
    made.skip(position)

    _, rewriter = rewrite(made.close())

    (found,) = rewriter.counts.foreign
    assert found.log_position == 0
    assert "no message" in found.what


def test_whether_a_request_ran_is_unknown_where_it_depends_on_the_replies(tmp_path: Path) -> None:
    """More than 4 MiB of replies that are not acknowledged end the running of requests; their lengths are in no log."""
    made = HandMadeLog(tmp_path)
    count = (4 << 20) // MAX_REPLY
    for sequence in range(1, count + 2):
        made.request(sequence, b"x")

    _, rewriter = rewrite(made.close())

    (found,) = rewriter.counts.foreign
    assert f"request_sequence={count + 1} of cluster_session_id={SESSION}" in found.what


@pytest.mark.parametrize(("service_count", "is_found"), [(1, False), (2, True)])
def test_a_timer_of_one_of_several_services_is_found(tmp_path: Path, service_count: int, is_found: bool) -> None:
    made = HandMadeLog(tmp_path)
    timer = TimerEvent(leadership_term_id=TermId(1), correlation_id=(1 << 56) + 5, timestamp=3)  # type: ignore[arg-type]
    end = made.publisher.append_message(timer.encode())
    log = made.close()

    _, rewriter = rewrite(log, service_count=service_count)

    assert bool(rewriter.counts.foreign) is is_found
    assert (find_foreign_entry(log, 0, end, service_count=service_count) is not None) is is_found


def test_a_message_without_an_end_stays_as_it_is(tmp_path: Path) -> None:
    """A leader died in the middle: no service receives it."""
    made = HandMadeLog(tmp_path, checksums=False)
    made.request(1, b"x" * 3000)
    begun = b"".join(made.buffer.take_pending())[: 2 * MTU]
    log = HandMadeLog(tmp_path, checksums=False).close()
    whole = write(tmp_path / "cut", replace(log.descriptor, stop_position=2 * MTU), begun)

    rewritten, rewriter = rewrite(whole)

    assert rewritten.read(0, 2 * MTU) == begun
    assert rewriter.counts.request_count == 0
