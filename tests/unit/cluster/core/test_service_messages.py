"""Messages of services: queued on every member, appended by the leader, delivered once whatever happens.

Source: aeron.md §3.8, §3.12; cases of Aeron's `PendingServiceMessageTrackerTest` and `ServiceMessageTest`.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.cluster.core.harness import Cluster
from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.sessions.test_sessions import lose_leadership
from tests.unit.cluster.core.snapshots.test_snapshot import take_snapshot
from tests.unit.cluster.core.solo import Solo, of
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core.service_messages import (
    PendingServiceMessageTracker,
    TrackerState,
    service_id_of,
    service_session_id_base,
)
from trimaran.cluster.core.snapshots.snapshot import decode_module_snapshot
from trimaran.cluster.messages import snapshot as wire
from trimaran.service_api import BackPressureError, RemoteProtocolError
from trimaran.service_api.types import ClusterSessionId
from trimaran.service_api.wire.frame import HEADER_LENGTH, TYPE_PADDING
from trimaran.service_api.wire.log.messages import LOG_MESSAGES
from trimaran.service_api.wire.message import decode_message
from trimaran.service_api.wire.session import SESSION_HEADER_LENGTH, SessionMessageHeader

BASE = -(1 << 63)


def tracker(*payloads: bytes, service_id: int = 0, limit_bytes: int = 1 << 20) -> PendingServiceMessageTracker:
    made = PendingServiceMessageTracker(service_id, limit_bytes=limit_bytes)
    for payload in payloads:
        made.offer(payload)
    return made


def taken(messages: PendingServiceMessageTracker) -> list[tuple[int, bytes]]:
    """What a leader appends now, by number."""
    base = service_session_id_base(messages.service_id)
    return [(session_id - base, payload) for session_id, payload in messages.take_unsent()]


def appended(solo: Solo) -> list[tuple[int, bytes]]:
    """The service messages that were appended since the last look, by session id."""
    found: list[tuple[int, bytes]] = []
    for chunk in solo.ctx.log_buffer.take_pending():
        if int.from_bytes(chunk[6:8], "little") == TYPE_PADDING:
            continue
        encoded = chunk[HEADER_LENGTH : int.from_bytes(chunk[:4], "little")]
        message = decode_message(encoded, registry=LOG_MESSAGES)
        if isinstance(message, SessionMessageHeader):
            found.append((message.cluster_session_id, encoded[SESSION_HEADER_LENGTH:]))
    return found


def deliver(solo: Solo, number: int, payload: bytes, *, service_id: int = 0) -> int | None:
    session_id = ClusterSessionId(service_session_id_base(service_id) + number)
    return solo.module.on_replay_service_message(session_id, payload)


# --- ids


@pytest.mark.parametrize("service_id", [0, 1, 9])
def test_session_ids_of_services_are_negative_and_tell_the_service(service_id: int) -> None:
    """Base = (serviceId << 56) | MIN_LONG. Source: aeron.md §3.8."""
    base = service_session_id_base(service_id)

    assert base == -(1 << 63) | service_id << 56
    assert [service_id_of(base + number) for number in (1, 2, (1 << 56) - 1)] == [service_id] * 3
    assert tracker(service_id=service_id).next_service_session_id == base + 1


# --- one queue


def test_leader_takes_what_was_offered_once_and_in_order() -> None:
    messages = tracker(b"a", b"b")

    assert taken(messages) == [(1, b"a"), (2, b"b")]
    assert taken(messages) == []
    messages.offer(b"c")
    assert taken(messages) == [(3, b"c")]


def test_messages_that_the_log_holds_already_are_not_queued_again() -> None:
    """A service behind the log offers what was delivered. Source: aeron.md §3.8, "is replaying history"."""
    messages = tracker()
    assert messages.on_delivered(BASE + 1, b"a") == f"next_id={BASE + 1}: it was not offered here"

    messages.offer(b"a")
    messages.offer(b"b")

    assert taken(messages) == [(2, b"b")]


@pytest.mark.parametrize(
    ("number", "payload", "problem"),
    [
        (1, b"other", "another message was offered on this member"),
        (3, b"c", "messages are missing in the log"),
        (4, b"d", "messages are missing in the log"),
    ],
)
def test_log_that_differs_from_the_queue_is_told_and_goes_first(number: int, payload: bytes, problem: str) -> None:
    """A service that is not deterministic. Source: aeron.md §3.8, last but one point."""
    messages = tracker(b"a", b"b", b"c")

    assert problem in (messages.on_delivered(BASE + number, payload) or "")

    assert messages.payloads == (b"a", b"b", b"c")[number:]
    assert messages.log_service_session_id == BASE + number


def test_queue_is_bounded_by_what_is_offered_and_not_delivered() -> None:
    """Nothing but the log decides it: whether messages are appended makes no difference."""
    messages = tracker(b"a" * 36, b"b" * 36, limit_bytes=250)
    taken(messages)

    with pytest.raises(BackPressureError, match=r"messages=2 bytes=200 limit=250 offered=100"):
        messages.offer(b"c" * 36)
    assert messages.next_service_session_id == BASE + 3
    messages.on_delivered(BASE + 1, b"a" * 36)
    messages.offer(b"c" * 36)

    assert messages.payloads == (b"b" * 36, b"c" * 36)


steps = st.lists(st.sampled_from(["offer", "take", "deliver", "roll back", "restart"]), max_size=60)


@given(steps)
def test_queue_agrees_with_a_plain_list(steps: list[str]) -> None:
    """Whatever happens in whatever order: what is in the log and what is taken is each message once, in order."""
    messages = tracker()
    offered: list[bytes] = []
    delivered_count, appended_count = 0, 0
    for step in steps:
        match step:
            case "offer":
                offered.append(b"%d" % len(offered))
                messages.offer(offered[-1])
            case "take":
                expected = [(number + 1, offered[number]) for number in range(appended_count, len(offered))]
                assert taken(messages) == expected
                appended_count = len(offered)
            case "deliver" if delivered_count < len(offered):
                payload = offered[delivered_count]
                delivered_count += 1
                appended_count = max(appended_count, delivered_count)
                assert messages.on_delivered(BASE + delivered_count, payload) is None
            case "roll back":
                messages.roll_back()
                appended_count = delivered_count
            case "restart":
                state = messages.state()
                messages = tracker()
                messages.restore(state)
                appended_count = delivered_count
        assert messages.payloads == tuple(offered[delivered_count:])
        assert messages.queued_bytes == sum(len(payload) + 64 for payload in messages.payloads)


# --- in the module


def test_leader_appends_what_its_service_offers_at_once() -> None:
    solo = Solo().lead()
    appended(solo)
    solo.module.service_messages.offer(0, b"a")
    solo.module.service_messages.offer(0, b"b")

    assert solo.module.next_deadline_ns() == solo.ctx.now_ns
    solo.wait(1)

    assert appended(solo) == [(BASE + 1, b"a"), (BASE + 2, b"b")]
    assert solo.module.next_deadline_ns() > solo.ctx.now_ns


def test_follower_appends_nothing() -> None:
    solo = Solo(terms=[(0, 0, 64)]).follow(leader_id=2)
    solo.module.service_messages.offer(0, b"a")

    solo.wait(100 * MS)

    assert appended(solo) == []


def test_service_messages_of_a_deposed_leader_are_unsent_again() -> None:
    """Rollback table, first row. Source: aeron.md §3.12."""
    solo = Solo().lead()
    solo.module.service_messages.offer(0, b"a")
    solo.wait(1)
    assert appended(solo) == [(BASE + 1, b"a")]

    lose_leadership(solo)

    (state,) = [messages.state() for messages in solo.module.service_messages.trackers]
    assert (state.next_service_session_id, state.log_service_session_id) == (BASE + 2, BASE)
    assert [*solo.module.service_messages.trackers[0].take_unsent()] == [(BASE + 1, b"a")]


def test_leader_does_not_fill_the_window_with_messages_of_services() -> None:
    solo = Solo(ingress_window_bytes=1024).lead()
    appended(solo)
    for number in range(30):
        solo.module.service_messages.offer(0, bytes([number]) * 100)
    numbers: list[int] = []

    for _ in range(8):
        solo.wait(3 * MS)
        assert not solo.module.service_messages.is_due
        assert solo.ctx.log_buffer.append_position - solo.ctx.commit_position < 1024 + 192
        numbers += [payload[0] for _, payload in appended(solo)]
        solo.record()
        solo.feed(solo.append_position(1, solo.ctx.append_position))

    assert numbers == [*range(30)]


def test_message_that_was_delivered_is_delivered_to_nobody_again() -> None:
    """Two leaders with services that differ may both append an id: the log goes on, services see it once."""
    solo = Solo(service_count=2)
    solo.module.service_messages.offer(1, b"a")

    assert deliver(solo, 1, b"a", service_id=1) == 1
    assert deliver(solo, 1, b"a", service_id=1) is None
    assert deliver(solo, 1, b"a", service_id=2) is None

    told = of(solo.take(), fx.ServiceDiverged)
    assert [(effect.service_id, effect.detail.split(": ")[-1]) for effect in told] == [
        (1, "delivered before"),
        (2, "no such service"),
    ]


def test_service_that_always_differs_does_not_fill_the_log() -> None:
    solo = Solo()

    for number in range(1, 1001):
        assert deliver(solo, number, b"not offered here") == 0

    assert solo.module.service_messages.divergence_count == 1000
    assert len(of(solo.take(), fx.ServiceDiverged)) == 10


# --- one queue of all services, as Aeron has it before 1.47


def test_message_that_aeron_counted_for_service_0_is_that_of_the_service_that_offered_it() -> None:
    """Until 1.47 Aeron gave the messages of every service the ids of service 0."""
    solo = Solo(service_count=2).lead()
    appended(solo)
    solo.module.service_messages.offer(0, b"a")
    solo.module.service_messages.offer(1, b"b")
    solo.module.service_messages.offer(0, b"c")

    assert [deliver(solo, number, payload) for number, payload in ((1, b"b"), (2, b"a"), (3, b"c"))] == [0, 0, 0]

    assert solo.module.service_messages.divergence_count == 0
    solo.module.service_messages.offer(0, b"d")
    solo.module.service_messages.offer(1, b"e")
    solo.wait(1)
    assert appended(solo) == [(BASE + 4, b"d"), (service_session_id_base(1) + 1, b"e")]


def test_queue_out_of_a_snapshot_of_aeron_may_have_another_order_on_this_member() -> None:
    solo = Solo(service_count=2)
    solo.module.service_messages.restore([TrackerState(0, BASE + 4, BASE, (b"a", b"b", b"c"))])
    solo.ctx.term_code_digest = 1  # a leader of ours appends what is left

    assert [deliver(solo, number, payload) for number, payload in ((1, b"c"), (2, b"a"), (3, b"b"))] == [0, 0, 0]

    assert solo.module.service_messages.divergence_count == 0
    assert solo.module.service_messages.trackers[0].state() == TrackerState(0, BASE + 4, BASE + 3)


@pytest.mark.parametrize("code_digest", [0, 1], ids=["Aeron", "ours"])
def test_a_message_that_nobody_offered_is_told_in_every_log(code_digest: int) -> None:
    solo = Solo(service_count=2)
    solo.ctx.term_code_digest = code_digest
    solo.module.service_messages.offer(0, b"a")
    solo.module.service_messages.offer(1, b"a")

    assert deliver(solo, 1, b"b") == 0

    assert solo.module.service_messages.divergence_count == 1
    assert [len(each) for each in solo.module.service_messages.trackers] == [0, 1]


def test_in_a_log_of_ours_a_message_of_another_service_is_told() -> None:
    solo = Solo(service_count=2)
    solo.ctx.term_code_digest = 1
    solo.module.service_messages.offer(1, b"b")

    assert deliver(solo, 1, b"b") == 0

    assert solo.module.service_messages.divergence_count == 1
    assert [len(each) for each in solo.module.service_messages.trackers] == [0, 1]


# --- snapshots


def messages_of(solo: Solo, position: int = 512) -> tuple[wire.ModuleMessage, ...]:
    return take_snapshot(solo, position).module_messages


def test_snapshot_holds_trackers_and_what_is_queued_in_the_order_of_aeron() -> None:
    """Source: aeron.md §1.8, §3.10 step 4."""
    solo = Solo(service_count=2).lead()
    service_messages = solo.module.service_messages
    service_messages.offer(0, b"a")
    service_messages.offer(1, b"b")
    service_messages.offer(0, b"c")
    deliver(solo, 1, b"a")
    base = service_session_id_base(1)

    _, module, _, *rest, _ = messages_of(solo)

    assert module == wire.ConsensusModuleSnapshot(
        next_session_id=1,
        next_service_session_id=BASE + 3,
        log_service_session_id=BASE + 1,
        pending_message_capacity=65,
    )
    assert rest == [
        wire.PendingMessageTracker(
            next_service_session_id=BASE + 3,
            log_service_session_id=BASE + 1,
            pending_message_capacity=65,
            service_id=0,
        ),
        wire.PendingMessage(BASE + 2, b"c"),
        wire.PendingMessageTracker(
            next_service_session_id=base + 2, log_service_session_id=base, pending_message_capacity=65, service_id=1
        ),
        wire.PendingMessage(base + 1, b"b"),
    ]


def test_snapshot_is_the_same_on_the_leader_and_on_a_follower() -> None:
    """What the leader has appended and not delivered is queued like the rest. Source: aeron.md §10 hazard 11."""
    leader = Solo(terms=[(0, 0, 64)]).lead()
    follower = Solo(terms=[(0, 0, 64)]).follow(leader_id=2)
    for solo in (leader, follower):
        solo.module.service_messages.offer(0, b"a")
    leader.wait(1)

    assert messages_of(leader) == messages_of(follower)


def test_pending_message_is_laid_out_as_a_session_message_that_was_not_appended() -> None:
    encoded = wire.PendingMessage(BASE + 7, b"payload").encode()

    header = SessionMessageHeader.decode(encoded)
    assert (header.leadership_term_id, header.cluster_session_id, header.timestamp) == (-1, BASE + 7, (1 << 63) - 1)
    assert wire.PendingMessage.decode(encoded) == wire.PendingMessage(BASE + 7, b"payload")


def test_restored_member_appends_what_was_queued_when_it_leads() -> None:
    first = Solo(service_count=2).lead()
    for payload in (b"a", b"b"):
        first.module.service_messages.offer(1, payload)
    deliver(first, 1, b"a", service_id=1)
    messages = messages_of(first)

    other = Solo(terms=[(0, 0, 1024)], is_started=False, service_count=2)
    other.module.snapshots.restore(decode_module_snapshot(messages), [], timestamp=9)
    other.start()
    assert messages_of(other) == messages
    other.lead()

    assert appended(other) == [(service_session_id_base(1) + 2, b"b")]


@pytest.mark.parametrize(
    ("numbers", "error"),
    [
        ([2, 4], r"not contiguous: service_id=0 .*expected=-9223372036854775805"),
        ([3], "not contiguous"),
        ([2, 2], "not contiguous"),
        ([2], r"end too early: service_id=0 next_service_session_id=-9223372036854775804"),
        ([2, 3, 4], "end too early"),
    ],
)
def test_queue_with_a_hole_is_refused_when_it_is_loaded(numbers: list[int], error: str) -> None:
    """Source: aeron.md §3.8, "ids are contiguous (FATAL otherwise)"."""
    solo = Solo().lead()
    for payload in (b"a", b"b", b"c"):
        solo.module.service_messages.offer(0, payload)
    deliver(solo, 1, b"a")
    whole = messages_of(solo)
    messages: list[wire.ModuleMessage] = [each for each in whole if not isinstance(each, wire.PendingMessage)]
    messages[-1:-1] = [wire.PendingMessage(BASE + number, b"x") for number in numbers]

    with pytest.raises(RemoteProtocolError, match=error):
        decode_module_snapshot(messages)


def test_message_of_a_service_without_a_tracker_is_refused_when_it_is_loaded() -> None:
    messages = [*messages_of(Solo().lead())]
    messages[-1:-1] = [wire.PendingMessage(service_session_id_base(3) + 1, b"x")]

    with pytest.raises(RemoteProtocolError, match=r"tracker: service_ids=\[3\]"):
        decode_module_snapshot(messages)


# --- whole clusters


def offering_cluster(seed: int) -> Cluster:
    cluster = Cluster(seed)
    cluster.offer_rate = 0.3
    cluster.start()
    cluster.add_clients(2)
    return cluster


def test_every_message_of_a_service_is_delivered_once_through_any_misfortune() -> None:
    """Each member, whenever it starts, sees them numbered without a gap: the service itself checks."""
    received_count = 0
    for seed in range(10):
        cluster = offering_cluster(seed)
        cluster.run_chaos(2_000 * MS)
        cluster.settle()
        assert cluster.failures == []

        cluster.clients.clear()
        services = [node.service for node in cluster.nodes.values()]
        is_done = cluster.run_until(
            lambda services=services: all(s.received_count == s.offered_count for s in services),  # type: ignore[misc]
            limit_ns=5_000 * MS,
        )
        assert is_done, [(service.offered_count, service.received_count) for service in services]
        assert [node.module.service_messages.divergence_count for node in cluster.nodes.values()] == [0, 0, 0]
        received_count += services[0].received_count

    assert received_count > 300
