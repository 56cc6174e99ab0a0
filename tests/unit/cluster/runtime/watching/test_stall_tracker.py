"""Stalls of the loop: who is blamed for them, and that each counts once."""

from __future__ import annotations

import asyncio
import gc
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import pytest
import structlog

from tests.unit.cluster.testing.simulation.small_cluster import QUICK, Counter, small_cluster
from tests.waiting import wait_until
from trimaran.client import ClusterClient
from trimaran.cluster.core.log.log_buffer import LogBuffer
from trimaran.cluster.runtime.watching.stall_tracker import (
    StallTracker,
    make_stall_tracker,
    watch_delivery,
    with_stop_watches,
)
from trimaran.cluster.service.agent import ClusteredServiceAgent
from trimaran.cluster.service.bounded_log_adapter import BoundedLogAdapter
from trimaran.cluster.settings.config import NodeConfig, parse_members
from trimaran.cluster.testing.simulation.world.loop import SimulatedLoop
from trimaran.service_api import ClientSession, Cluster, ClusteredService

MS = 1_000_000
THRESHOLD = 100 * MS


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_ns = 1_000 * MS

    def monotonic_ns(self) -> int:
        return self.now_ns

    def pass_ms(self, duration_ms: int) -> None:
        self.now_ns += duration_ms * MS


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def stalls(clock: ManualClock) -> StallTracker:
    return StallTracker(clock.monotonic_ns, threshold_ns=THRESHOLD)


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as lines:
        yield lines


def counts(stalls: StallTracker) -> dict[str, tuple[int, int]]:
    """Count and milliseconds by culprit."""
    return {name: (found.count, found.total_ns // MS) for name, found in stalls.culprits.items()}


def test_a_span_below_the_threshold_is_no_stall_but_may_be_the_longest(stalls: StallTracker) -> None:
    stalls.on_span("loop", 0, 99 * MS)

    assert (stalls.count, stalls.max_ns) == (0, 99 * MS)


def test_the_settings_say_what_is_slow_and_what_is_a_stall() -> None:
    config = NodeConfig(
        member_id=0,
        members=parse_members("0=127.0.0.1:9000"),
        directory=Path("/data"),
        service="a:B",
        loop_slow_ms=7,
        stall_threshold_ms=40,
    )
    stalls = make_stall_tracker(config, lambda: 0)

    for number, duration_ms in enumerate([6, 7, 39, 40]):
        stalls.on_span("gc2", number * 100 * MS, (number * 100 + duration_ms) * MS)

    assert (stalls.slow_spans["gc2"].count, stalls.count) == (3, 1)


def test_what_is_slow_and_no_stall_is_counted_by_its_culprit_and_not_logged(logged: list[Any]) -> None:
    stalls = StallTracker(lambda: 0, threshold_ns=100 * MS, slow_ns=2 * MS)

    stalls.on_span("gc2", 5 * MS, 8 * MS)
    stalls.on_span("append", 4 * MS, 9 * MS)  # of which a collection took three
    stalls.on_span("egress", 20 * MS, 21 * MS)

    assert {name: (spans.count, spans.total_ns) for name, spans in stalls.slow_spans.items() if spans.count} == {
        "gc2": (1, 3 * MS),
        "append": (1, 2 * MS),
    }
    assert (stalls.count, logged) == (0, [])


def test_a_stall_is_logged_with_its_culprit(stalls: StallTracker, clock: ManualClock, logged: list[Any]) -> None:
    stalls.timed("on_timer_event", lambda: clock.pass_ms(250))()

    assert counts(stalls) == {"on_timer_event": (1, 250)}
    assert logged == [
        {
            "event": "loop.stalled",
            "log_level": "warning",
            "culprit": "on_timer_event",
            "duration_ms": 250,
            "threshold_ms": 100,
            "count": 1,
        }
    ]


def test_a_culprit_that_stalls_again_and_again_is_logged_every_ten_seconds(
    stalls: StallTracker, clock: ManualClock, logged: list[Any]
) -> None:
    slow = stalls.timed("on_timer_event", lambda: clock.pass_ms(200))

    for _ in range(60):
        slow()

    assert stalls.culprits["on_timer_event"].count == 60
    assert [line["count"] for line in logged] == [1, 50]


def test_a_stall_inside_another_span_counts_once_and_for_the_inner_one(
    stalls: StallTracker, clock: ManualClock
) -> None:
    def collect() -> None:
        stalls.on_collection("start", {"generation": 2})
        clock.pass_ms(300)
        stalls.on_collection("stop", {"generation": 2})

    stalls.timed("on_session_open", collect)()

    assert counts(stalls) == {"gc2": (1, 300)}


def test_what_is_left_of_the_outer_span_is_a_stall_of_its_own_when_it_is_long(
    stalls: StallTracker, clock: ManualClock
) -> None:
    inner = stalls.timed("on_session_open", lambda: clock.pass_ms(150))

    def outer() -> None:
        inner()
        clock.pass_ms(120)

    stalls.timed("loop", outer)()

    assert counts(stalls) == {"on_session_open": (1, 150), "loop": (1, 120)}


def test_a_callback_that_raises_is_timed_and_raises(stalls: StallTracker, clock: ManualClock) -> None:
    def fail() -> None:
        clock.pass_ms(150)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        stalls.timed("on_timer_event", fail)()

    assert counts(stalls) == {"on_timer_event": (1, 150)}


class SlowService(ClusteredService):
    """Takes its time."""

    def __init__(self, pass_ms: Callable[[int], None]) -> None:
        self.pass_ms = pass_ms
        self.timers: list[int] = []

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        self.pass_ms(400)

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self.timers.append(correlation_id)
        self.pass_ms(200)

    def state_hash(self) -> str:
        return "mine"


def test_every_callback_of_a_service_is_timed_but_that_of_messages(stalls: StallTracker, clock: ManualClock) -> None:
    service = SlowService(clock.pass_ms)
    timed = with_stop_watches(service, stalls)

    timed.on_timer_event(7, 0)
    timed.on_session_message(None, 0, memoryview(b""))  # type: ignore[arg-type]  # it is not looked at

    assert service.timers == [7]
    assert counts(stalls) == {"on_timer_event": (1, 200)}
    assert timed.on_session_message == service.on_session_message
    assert timed.state_hash() == "mine"  # what else a service has stays reachable


class NoEgress:
    """Egress of nobody."""

    def flush(self) -> None:
        """Nothing is kept."""


class NoAgent:
    """As much of a service agent as an adapter needs to deliver padding."""

    egress = NoEgress()
    sessions: Mapping[int, object] = MappingProxyType({})
    service = SlowService(lambda duration_ms: None)

    def enter_messages(self) -> None:
        """Nothing follows."""

    def leave_messages(self) -> None:
        """Nothing came."""


class SlowReader:
    """An archive that takes its time and has padding."""

    def __init__(self, pass_ms: Callable[[int], None]) -> None:
        self.pass_ms = pass_ms

    def read(self, position: int, limit_bytes: int, *, stop_position: int) -> bytes:
        self.pass_ms(130)
        return struct.pack("<iBBHiiiiq", 64, 0, 0xC0, 0, 0, 0, 0, 0, 0).ljust(64, b"\0")


def test_a_slow_read_of_the_log_is_blamed_on_delivery(stalls: StallTracker, clock: ManualClock) -> None:
    adapter = BoundedLogAdapter(
        LogBuffer(position=64, retained_bytes=1 << 20),
        SlowReader(clock.pass_ms),
        cast(ClusteredServiceAgent, NoAgent()),
        cast(Any, None),  # no entry of the module's kind comes
        monotonic_ns=clock.monotonic_ns,
    )
    watch_delivery(adapter, stalls)
    adapter.advance_limit(64)

    adapter.poll(1 << 20)

    assert adapter.position == 64
    assert counts(stalls) == {"delivery": (1, 130)}


async def test_the_loop_itself_is_blamed_for_what_nobody_else_did(clock: ManualClock) -> None:
    """The tick comes as fast as the real loop is; the tracker's clock says that it took 250 ms longer."""
    stalls = StallTracker(clock.monotonic_ns, threshold_ns=4 * MS)
    callbacks = [*gc.callbacks]

    with stalls.watch_process():
        clock.pass_ms(251)
        await wait_until(lambda: stalls.count > 0, timeout_s=60, what="a tick")

    assert counts(stalls) == {"loop": (1, 250)}
    assert gc.callbacks == callbacks


async def test_a_collection_in_a_watched_process_is_timed() -> None:
    times = iter(range(0, 10**15, 150 * MS))
    stalls = StallTracker(lambda: next(times), threshold_ns=THRESHOLD)

    with stalls.watch_process():
        gc.collect()

    assert "gc2" in stalls.culprits


class Blocking(Counter):
    """Holds up its whole process: 120 ms for a session, 150 ms for the message that asks for it."""

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        self.block(120)

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        super().on_session_message(session, timestamp, payload)
        if bytes(payload).split()[1] == b"1":
            self.block(150)

    def block(self, duration_ms: int) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        loop.block(duration_ms * MS)


class BlockingRequests(Blocking):
    """Holds up its process for what is named in a message: as `on_request`, or as a message of the service itself."""

    def on_start(self, cluster: Cluster, image: object) -> None:
        self.cluster = cluster

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        self.opened = session.id

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        if bytes(payload[:4]) == b"slow":
            self.block(150)
        elif bytes(payload[:5]) == b"offer":
            self.cluster.offer(bytes(payload))
        return b"done"

    def on_service_message(self, service_id: int, timestamp: int, payload: memoryview) -> None:
        self.block(130)


@pytest.mark.parametrize(
    ("request_payload", "expected"),
    [
        (b"slow", {"on_request": (1, 150)}),
        (b"slow".ljust(5_000), {"on_request": (1, 150)}),  # in fragments
        (b"offer", {"on_service_message": (1, 130)}),
        (b"offer".ljust(5_000), {"on_service_message": (1, 130)}),
    ],
    ids=["request", "long request", "service message", "long service message"],
)
def test_a_stall_names_the_method_that_was_called(request_payload: bytes, expected: dict[str, tuple[int, int]]) -> None:
    """Not the kind of log entry: a slow `on_request` used to be blamed on `on_session_message`."""
    settings = replace(
        QUICK, leader_heartbeat_timeout_ms=2_000, startup_canvass_timeout_ms=4_000, session_timeout_ms=9_000
    )
    with small_cluster(settings=settings, make_service=BlockingRequests) as small:
        small.start()
        replies: list[bytes] = []

        async def ask() -> None:
            async with ClusterClient.connect(config=small.client_config()) as client:
                replies.append(await client.request(b"first"))
                replies.append(await client.request(request_payload))

        small.cluster.add_client("asks", ask)
        small.wait(lambda: len(replies) == 2)
        small.wait(small.is_at_rest)
        found = [member.node.stalls for member in small.cluster.running() if member.node is not None]

    assert [counts(stalls) for stalls in found] == [expected] * 3


def test_every_member_of_a_cluster_finds_the_callback_that_held_it_up() -> None:
    """A simulated cluster: the blocked time is virtual, and each member measures its own."""
    settings = replace(
        QUICK, leader_heartbeat_timeout_ms=2_000, startup_canvass_timeout_ms=4_000, session_timeout_ms=9_000
    )
    with small_cluster(settings=settings, make_service=Blocking) as small:
        small.start()
        small.send(3)

        found = [member.node.stalls for member in small.cluster.running() if member.node is not None]

    assert [counts(stalls) for stalls in found] == [{"on_session_open": (1, 120), "on_session_message": (1, 150)}] * 3
