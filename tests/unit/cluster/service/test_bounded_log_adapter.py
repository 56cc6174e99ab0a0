"""What of the log reaches the service: everything committed, in order, once, from wherever it is, and nothing else."""

from __future__ import annotations

from random import Random

import pytest

from tests.unit.cluster.service.log_writer import SESSION, TERM, Rig
from trimaran.cluster.messages.snapshot import ClientSessionSnapshot as ClientSessionMessage
from trimaran.cluster.service.kept_snapshot import KeptImage
from trimaran.service_api import CloseReason, ClusterError, InvariantViolation
from trimaran.service_api.session import ClientSession
from trimaran.service_api.types import ClusterSessionId, MemberId
from trimaran.service_api.wire.log.messages import ClusterAction, MembershipChangeEvent

NO_IMAGE = KeptImage([])
CLOSING = ClusterSessionId(SESSION + 1)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_entries_of_every_kind_are_delivered_in_order(rig: Rig) -> None:
    term_end = rig.term()
    open_end = rig.open(timestamp=101)
    rig.message(b"hello", timestamp=102)
    rig.timer(9, timestamp=103)
    rig.close(CloseReason.TIMEOUT, timestamp=104)

    rig.deliver()

    assert rig.service.calls == [
        ("term", TERM, term_end),
        ("open", SESSION, 101),
        ("message", SESSION, 102, b"hello"),
        ("timer", 9, 103),
        ("close", SESSION, 104, CloseReason.TIMEOUT),
    ]
    assert rig.requests.told == [("opened", SESSION, open_end), ("fired", 9), ("closed", SESSION)]
    assert rig.adapter.position == rig.log_buffer.append_position


@pytest.mark.parametrize("in_one_chunk", [False, True])
def test_nothing_beyond_the_commit_position_is_delivered(rig: Rig, in_one_chunk: bool) -> None:
    """Not even when it lies in the same chunk. Source: aeron.md §10 hazard 2."""
    rig.open()
    ends = [rig.message(b"%d" % number) for number in range(5)]
    if in_one_chunk:
        rig.one_chunk()

    rig.deliver(ends[1])
    assert rig.service.payloads == [b"0", b"1"]
    assert rig.adapter.position == ends[1]
    rig.deliver(ends[3])

    assert rig.service.payloads == [b"0", b"1", b"2", b"3"]


def test_limit_does_not_go_back(rig: Rig) -> None:
    rig.open()
    end = rig.message(b"committed")

    rig.adapter.advance_limit(end)
    rig.deliver(32)

    assert rig.service.payloads == [b"committed"]


@pytest.mark.parametrize("seed", range(10))
def test_log_reads_the_same_from_the_window_and_from_the_archive(seed: int) -> None:
    """A slow service, a replay at start and live delivery are one thing. Source: peers.md C4 class 35."""
    random = Random(seed)
    lengths = [*(random.choice([0, 1, 24, 31, 32, 33, 200, 1400, 2000, 8000, -1]) for _ in range(200))]
    rigs = []
    for way in ("window", "one chunk", "archive", "both", "piecemeal"):
        rig = Rig()
        rig.open()
        ends = [rig.timer(9) if length < 0 else rig.message(bytes(length)) for length in lengths]
        if way == "one chunk":
            rig.one_chunk()
        elif way in ("archive", "both"):
            rig.to_archive(ends[-1] if way == "archive" else ends[100])
        elif way == "piecemeal":
            for end in ends[::7]:
                rig.deliver(end)
        rig.deliver()
        rigs.append(rig)

    first, *others = [rig.service.calls for rig in rigs]
    assert len(first) == 201
    assert others == [first] * 4


@pytest.mark.parametrize("seed", range(10))
def test_runs_of_like_messages_are_delivered_as_one_by_one(seed: int) -> None:
    """Of several sessions and times, some of unknown sessions and of services, with an entry between now and then."""
    random = Random(seed)
    rigs = [Rig(), Rig()]
    for rig in rigs:
        rig.open()
        rig.open(SESSION + 1)
    time = 100
    for _ in range(20):
        session_ids: list[int] = random.choice([[SESSION], [SESSION, SESSION + 1], [SESSION, 99], [-5], [11, -5, 99]])
        length, time_step = random.choice([0, 7, 32, 200]), random.choice([0, 1])
        for _ in range(random.choice([1, 15, 16, 40, 700])):
            payload, session_id, time = random.randbytes(length), random.choice(session_ids), time + time_step
            for rig in rigs:
                rig.message(payload, session_id=session_id, timestamp=time)
        if random.random() < 0.3:
            for rig in rigs:
                rig.timer(9, timestamp=time)
    whole, single = rigs
    seen = [remember_places(rig) for rig in rigs]
    whole.one_chunk()

    for rig in rigs:
        rig.deliver()

    assert whole.service.calls == single.service.calls
    assert whole.requests.told == single.requests.told
    assert seen[0] == seen[1]
    assert whole.adapter.position == single.adapter.position


def remember_places(rig: Rig) -> list[tuple[int, int]]:
    """The log position and the time that the service sees at each message."""
    places: list[tuple[int, int]] = []
    rig.service.on_message = lambda session, payload: places.append((rig.agent.log_position, rig.agent.time))
    return places


def test_message_of_a_run_that_a_service_fails_at_does_not_keep_the_others_from_it(rig: Rig) -> None:
    rig.open()
    ends = [rig.message(b"%3d" % number) for number in range(100)]
    rig.one_chunk()
    failed_at: list[int] = []

    def on_message(session: ClientSession, payload: bytes) -> None:
        if payload == b" 42":
            failed_at.append(rig.agent.log_position)
            raise ValueError("42")

    rig.service.on_message = on_message

    rig.deliver()

    assert rig.service.payloads == [b"%3d" % number for number in range(100)]
    assert failed_at == [ends[42]]
    assert rig.agent.error_count == 1


def test_terms_end_with_padding_that_nobody_sees(rig: Rig) -> None:
    rig.open()
    payloads = [number.to_bytes(4, "little") * 300 for number in range(200)]
    for payload in payloads:
        rig.message(payload)

    rig.deliver()

    assert rig.log_buffer.append_position > 3 * (64 << 10)
    assert rig.service.payloads == payloads


def test_message_is_delivered_once_its_last_fragment_is_committed(rig: Rig) -> None:
    """The commit position may lie between two fragments: followers record what they receive."""
    rig.open()
    begin = rig.log_buffer.append_position
    end = rig.message(b"x" * 4000)
    rig.one_chunk()

    rig.deliver(begin + 1408)
    assert rig.service.payloads == []
    assert rig.adapter.position == begin + 1408
    rig.deliver(end)

    assert rig.service.payloads == [b"x" * 4000]


def test_shortest_frames_at_the_end_of_a_chunk_are_delivered(rig: Rig) -> None:
    """A session message without payload is 64 bytes long, a frame may be 32."""
    rig.open()
    rig.message(b"x" * 100)
    rig.message(b"")
    rig.one_chunk()

    rig.deliver()

    assert rig.service.payloads == [b"x" * 100, b""]


def test_copy_beyond_the_window_is_delivered_from_the_archive(rig: Rig) -> None:
    """A follower copies a missed term straight into its recording, while the window still ends where it did."""
    rig.open()
    for number in range(100):
        rig.message(b"%d" % number)
    end = rig.log_buffer.append_position
    rig.to_archive(end)
    rig.log_buffer.reset(96)

    rig.deliver(end)

    assert len(rig.service.payloads) == 100
    assert rig.adapter.position == end


def test_messages_of_a_session_that_is_not_open_are_dropped(rig: Rig) -> None:
    """They were appended between the close and the client hearing of it: on every member alike."""
    rig.message(b"too early")
    rig.open()
    rig.message(b"in time")
    rig.close()
    rig.message(b"too late")
    rig.message(b"y" * 3000)

    rig.deliver()

    assert rig.service.payloads == [b"in time"]


def test_callback_that_raises_does_not_stop_the_log(rig: Rig) -> None:
    """Every member met the same error at the same position."""

    def fail(session: ClientSession, payload: bytes) -> None:
        if payload.startswith(b"bad"):
            raise ValueError("service bug")

    rig.service.on_message = fail
    rig.open()
    rig.message(b"bad 1")
    rig.message(b"good")
    rig.message(b"bad " * 1000)
    rig.message(b"also good")

    rig.deliver()

    assert len(rig.service.payloads) == 4
    assert rig.agent.error_count == 2


def test_payload_is_a_read_only_view_that_stays_what_it_was(rig: Rig) -> None:
    views: list[memoryview] = []
    rig.service.on_session_message = (  # type: ignore[method-assign]  # to see the view itself
        lambda session, timestamp, payload: views.append(payload)
    )
    rig.open()
    rig.message(b"first")
    rig.message(b"z" * 3000)

    rig.deliver()
    rig.log_buffer.discard_before(1 << 20)

    assert [bytes(view) for view in views] == [b"first", b"z" * 3000]
    assert all(view.readonly for view in views)


def test_service_knows_position_and_time_of_the_entry(rig: Rig) -> None:
    seen: list[tuple[int, int]] = []
    rig.service.on_message = lambda session, payload: seen.append((rig.agent.log_position, rig.agent.time))
    rig.open()
    ends = [rig.message(b"a", timestamp=200), rig.message(b"b" * 3000, timestamp=300), rig.message(b"c", timestamp=400)]
    rig.one_chunk()

    rig.deliver()

    assert seen == [*zip(ends, (200, 300, 400), strict=True)]


# --- slow services


def slow(rig: Rig, milliseconds: float) -> None:
    """Let every message take so long."""

    def work(session: ClientSession, payload: bytes) -> None:
        rig.now_ns += int(milliseconds * 1e6)

    rig.service.on_message = work


@pytest.mark.parametrize("place", ["window", "one chunk", "archive"])
@pytest.mark.parametrize("length", [8, 1000, 3000])
def test_slow_service_gives_the_loop_back_in_time(rig: Rig, place: str, length: int) -> None:
    """Sockets and heartbeats have to be served between messages, however many are committed.

    With 1 ms a message, 512 KiB of small ones stopped the loop for 5 s: longer than the heartbeat timeout, so that
    every burst ended in an election, and the next leader had the same burst to deliver.
    Source: aeron.md §10 hazard 27; peers.md C4 class 28.
    """
    rig.open()
    for number in range(2000):
        rig.message(number.to_bytes(8, "little").ljust(length, b"."))
    if place == "one chunk":
        rig.one_chunk()
    elif place == "archive":
        rig.to_archive(rig.log_buffer.append_position)
    slow(rig, 1)
    rig.adapter.advance_limit(rig.log_buffer.append_position)

    longest_ns, has_more = 0, True
    while has_more:
        begin_ns = rig.now_ns
        has_more = rig.adapter.poll(512 << 10)
        longest_ns = max(longest_ns, rig.now_ns - begin_ns)

    assert longest_ns < 200_000_000
    assert [int.from_bytes(payload[:8], "little") for payload in rig.service.payloads] == [*range(2000)]


def test_slow_service_is_fed_without_reading_the_archive_again(rig: Rig) -> None:
    """A read is a MiB, and every frame in it is checked: that took more time than the service."""
    rig.open()
    for _ in range(2000):
        rig.message(b"12345678")
    rig.to_archive(rig.log_buffer.append_position)
    slow(rig, 1)

    rig.deliver()

    assert len(rig.service.payloads) == 2000
    assert len(rig.reader.reads) == 1


def test_service_that_becomes_slow_is_noticed(rig: Rig) -> None:
    rig.open()
    for _ in range(20_000):
        rig.message(b"12345678")
    rig.one_chunk()
    rig.adapter.advance_limit(rig.log_buffer.append_position)
    rig.adapter.poll(512 << 10)
    slow(rig, 1)

    rig.adapter.poll(512 << 10)
    begin_ns = rig.now_ns
    rig.adapter.poll(512 << 10)

    assert rig.now_ns - begin_ns < 300_000_000
    slow(rig, 0)
    rig.deliver()
    assert len(rig.service.payloads) == 20_000


# --- logs that no leader writes


def test_committed_entries_that_cannot_be_read_stop_the_node(rig: Rig) -> None:
    rig.open()
    rig.to_archive(rig.log_buffer.append_position)
    rig.reader.log = b""

    with pytest.raises(InvariantViolation, match="committed entries"):
        rig.deliver()


def test_first_entry_of_a_term_that_lies_about_its_place_stops_the_node(rig: Rig) -> None:
    """What this member holds is not what the leader wrote."""
    rig.term(wrong_by=32)

    with pytest.raises(InvariantViolation, match="it ends"):
        rig.deliver()


@pytest.mark.parametrize("garbage", [bytes(96), b"\xff" * 96, b"\x60\0\0\0\0\xc0\1\0" + bytes(88)])
def test_garbage_in_the_log_stops_the_node(rig: Rig, garbage: bytes) -> None:
    rig.open()
    rig.log_buffer.append(garbage)

    with pytest.raises(ClusterError):
        rig.deliver()


def test_calls_of_log_ordered_callbacks_are_illegal_after_the_poll_that_failed(rig: Rig) -> None:
    rig.log_buffer.append(bytes(96))
    with pytest.raises(ClusterError):
        rig.deliver()

    with pytest.raises(ClusterError, match="log-ordered"):
        rig.agent.views[0].schedule_timer(1, 2)


def test_entry_that_only_old_logs_hold_is_delivered_to_nobody(rig: Rig) -> None:
    """Aeron before 1.41 logged changes of membership; who the members are is a setting here. Source: aeron.md §1.3."""
    rig.open()
    rig.publisher.append_message(
        MembershipChangeEvent(
            leadership_term_id=TERM,
            log_position=0,
            timestamp=100,
            leader_member_id=MemberId(0),
            cluster_size=3,
            change_type=None,
            member_id=MemberId(1),
        ).encode()
    )

    rig.message(b"after it")

    rig.deliver()

    assert rig.service.payloads == [b"after it"]
    assert rig.adapter.position == rig.log_buffer.append_position


@pytest.mark.parametrize("in_one_chunk", [False, True])
def test_delivery_stands_still_behind_a_snapshot_action_until_it_is_resumed(rig: Rig, *, in_one_chunk: bool) -> None:
    """Source: aeron.md §3.10 step 3: log polling breaks right after an action entry."""
    rig.requests.stands_still = True
    rig.open()
    rig.message(b"before")
    action_end = rig.action()
    rig.message(b"after")
    if in_one_chunk:
        rig.one_chunk()

    rig.deliver()

    assert rig.service.payloads == [b"before"]
    assert rig.adapter.position == rig.agent.log_position == action_end
    assert not rig.adapter.poll(1 << 20)
    rig.adapter.resume()
    rig.deliver()
    assert rig.service.payloads == [b"before", b"after"]
    assert rig.adapter.position == rig.log_buffer.append_position


def test_delivery_goes_on_where_the_module_takes_no_snapshot(rig: Rig) -> None:
    rig.open()
    end = rig.action()
    rig.message(b"after")

    rig.deliver()

    assert ("action", ClusterAction.SNAPSHOT, end) in rig.requests.told
    assert rig.service.payloads == [b"after"]


def test_action_that_does_not_say_where_it_ends_stops_the_node(rig: Rig) -> None:
    rig.action(wrong_by=32)

    with pytest.raises(InvariantViolation, match=r"cluster action.*ends"):
        rig.deliver()


def test_delivery_begins_where_a_snapshot_ends(rig: Rig) -> None:
    rig.open()
    rig.message(b"in the snapshot")
    position = rig.action()
    rig.message(b"after")
    clients = [ClientSessionMessage(cluster_session_id=id_, response_stream_id=102) for id_ in (SESSION, CLOSING)]
    rig.agent.restore(clients, [NO_IMAGE], closing=[CLOSING], log_position=position, timestamp=7)
    rig.adapter.start_from(position)

    assert (rig.agent.log_position, rig.agent.time, [*rig.agent.client_sessions]) == (
        position,
        7,
        [SESSION, CLOSING],
    )
    assert [session.is_closing for session in rig.agent.client_sessions.values()] == [False, True]
    rig.deliver()
    assert rig.service.payloads == [b"after"]
