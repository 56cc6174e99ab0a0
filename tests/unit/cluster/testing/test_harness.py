"""One service in a harness behaves as in a member's container."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from trimaran import (
    ClientSession,
    CloseReason,
    Cluster,
    ClusteredService,
    ConfigurationError,
    LocalProtocolError,
    SnapshotImage,
)
from trimaran.cluster.testing import ServiceHarness

from .counting import TIMER_ID, Counter, Doubling, Endless


@pytest.fixture
def harness() -> ServiceHarness[Counter]:
    return ServiceHarness(Counter)


def test_a_request_is_answered_and_a_message_is_followed_by_egress(harness: ServiceHarness[Counter]) -> None:
    reply = harness.request(b"5")
    harness.offer(b"2")

    assert (reply, harness.egress, harness.service.total) == (b"5", [b"7"], 7)


def test_a_timer_fires_when_time_has_come_and_not_before(harness: ServiceHarness[Counter]) -> None:
    begun = harness.time
    harness.request(b"later 10")
    assert harness.timers == {TIMER_ID: begun + 5_000}

    harness.advance(4.999)
    assert harness.service.total == 0
    harness.advance(0.001)

    assert (10, {}, begun + 5_000) == (harness.service.total, harness.timers, harness.time)


def test_what_a_service_offers_to_the_cluster_is_delivered_before_the_call_returns(
    harness: ServiceHarness[Counter],
) -> None:
    harness.request(b"tell 3")

    assert (harness.offered, harness.query(b"")) == ([b"3"], b"3")


def test_what_a_callback_raises_reaches_the_test_and_the_next_entry_runs(harness: ServiceHarness[Counter]) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        harness.request(b"five")

    assert harness.request(b"5") == b"5"


def test_a_restart_keeps_what_the_snapshot_holds_and_what_the_cluster_keeps(harness: ServiceHarness[Counter]) -> None:
    before = harness.service
    harness.request(b"5")
    harness.request(b"later 10")

    harness.restart(Doubling)
    harness.advance(5)

    assert before is not harness.service
    assert harness.request(b"1") == b"17"


class Forgetful(Counter):
    """Its snapshot forgets the newest payload."""

    def __init__(self) -> None:
        super().__init__()
        self.newest = b""
        self.parsed: object = object()

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        self.newest = bytes(payload)
        return super().on_request(session, timestamp, payload)


class Hashed(Forgetful):
    """Says what counts, the newest payload too."""

    def state_hash(self) -> object:
        return self.total, self.newest


class Cached(Forgetful):
    """Says what counts, and the newest payload does not."""

    def state_hash(self) -> object:
        return self.total


@pytest.mark.parametrize("service", [Forgetful, Hashed])
def test_a_field_that_the_snapshot_forgets_is_found_at_a_restart(service: Callable[[], Forgetful]) -> None:
    """Before anything depends on it."""
    harness = ServiceHarness(service)
    harness.request(b"5")

    with pytest.raises(AssertionError, match=r"expected=b'5' actual=b''"):
        harness.restart()


def test_a_field_that_need_not_be_kept_is_left_out_of_the_state_hash() -> None:
    """Then nothing is said, nor where the test is not strict."""
    for harness in (ServiceHarness(Cached), ServiceHarness(Forgetful, strict=False)):
        harness.request(b"5")
        harness.restart()


def test_a_service_closes_a_session_after_the_entry(harness: ServiceHarness[Counter]) -> None:
    client = harness.open_session()
    client.offer(b"bye")

    assert client.close_reason is CloseReason.SERVICE_ACTION
    assert harness.service.closed == [CloseReason.SERVICE_ACTION]
    with pytest.raises(LocalProtocolError, match="closed"):
        client.offer(b"1")


def test_a_session_has_its_principal_and_its_egress_of_its_own(harness: ServiceHarness[Counter]) -> None:
    first, second = harness.open_session(b"ann"), harness.open_session(b"bob")
    second.offer(b"4")

    assert (first.egress, second.egress) == ([], [b"4"])
    principals = [session.encoded_principal for session in harness.service.cluster.client_sessions.values()]
    assert principals == [b"ann", b"bob"]


def test_calls_outside_of_an_entry_are_refused_as_on_a_member(harness: ServiceHarness[Counter]) -> None:
    with pytest.raises(LocalProtocolError, match="schedule_timer"):
        harness.service.cluster.schedule_timer(1, 0)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: ServiceHarness(Counter()), "an instance.*class"),  # type: ignore[arg-type]
        (lambda: ServiceHarness(int), "type=int .*ClusteredService"),  # type: ignore[type-var]
        (lambda: ServiceHarness(None), "of services"),  # type: ignore[arg-type]
        (lambda: ServiceHarness(Counter).advance(-1), "seconds=-1 .* 0"),
        (lambda: ServiceHarness(Counter).fire_timer(3), r"correlation_id=3 scheduled=\[\]"),
        (lambda: ServiceHarness(Endless).request(b"tell 1"), "entries without end"),
        (lambda: ServiceHarness(Sleeping), "on_start waits"),
    ],
    ids=["instance", "no service", "no class", "back in time", "no timer", "endless", "sleeping"],
)
def test_wrong_use_says_what_to_do(use: Callable[[], Any], message: str) -> None:
    with pytest.raises((ConfigurationError, LocalProtocolError), match=message):
        use()


class Sleeping(ClusteredService):
    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        await asyncio.sleep(1)


def test_a_service_without_requests_says_so() -> None:
    with pytest.raises(LocalProtocolError, match=r"no requests.*service=ClusteredService"):
        ServiceHarness(ClusteredService).request(b"")


def test_a_request_that_closes_its_session_is_answered() -> None:
    class Closing(Counter):
        def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
            session.close()
            return b"good bye"

    harness = ServiceHarness(Closing)
    client = harness.open_session()

    assert client.request(b"") == b"good bye"
    assert client.close_reason is CloseReason.SERVICE_ACTION
