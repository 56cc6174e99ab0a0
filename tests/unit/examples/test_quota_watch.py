"""The example with timers: it decides as the quota alone does, and watches hosts until they are quiet."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from examples.access_quota import ALLOWED_LIMIT, AccessQuota, Request
from examples.quota_watch import QUIET_MS, ByName, QuotaWatch, timer_of
from trimaran.cluster.cli.shared.single_process import InMemoryCluster, InMemorySession, InMemorySnapshot
from trimaran.service_api import ClusterSessionId


@dataclass(slots=True)
class ClusterWithTimers(InMemoryCluster):
    """Notes the timers that are set."""

    deadlines: dict[int, int] = field(default_factory=dict)

    def schedule_timer(self, correlation_id: int, deadline: int) -> None:
        self.deadlines[correlation_id] = deadline


def started(snapshot: InMemorySnapshot | None = None) -> tuple[QuotaWatch, ClusterWithTimers]:
    service, cluster = QuotaWatch(), ClusterWithTimers()
    asyncio.run(service.on_start(cluster, snapshot))
    return service, cluster


def ask(service: AccessQuota, host: str, count: int, *, timestamp: int = 0) -> list[bytes]:
    session = InMemorySession(ClusterSessionId(1))
    payload = memoryview(Request(host, 1_000, "/").encode())
    return [service.on_request(session, timestamp, payload) for _ in range(count)]


def test_it_decides_as_the_quota_alone() -> None:
    service, _ = started()

    assert ask(service, "h", ALLOWED_LIMIT + 5) == ask(AccessQuota(), "h", ALLOWED_LIMIT + 5)


def test_each_refusal_moves_the_timer_of_its_host_on() -> None:
    service, cluster = started()

    ask(service, "a", ALLOWED_LIMIT + 1, timestamp=100)
    ask(service, "b", ALLOWED_LIMIT + 1, timestamp=200)
    ask(service, "a", 1, timestamp=300)

    assert cluster.deadlines == {timer_of(b"a"): 300 + QUIET_MS, timer_of(b"b"): 200 + QUIET_MS}


def test_a_plain_message_is_told_how_many_were_refused() -> None:
    service, _ = started()
    ask(service, "h", ALLOWED_LIMIT + 3)
    session = InMemorySession(ClusterSessionId(2))

    service.on_session_message(session, 0, memoryview(b"?"))

    assert session.replies == [b"3"]


def test_a_snapshot_brings_everything_back() -> None:
    service, _ = started()
    ask(service, "h", ALLOWED_LIMIT + 2)
    service.on_timer_event(1, 500)
    snapshot = InMemorySnapshot()

    asyncio.run(service.on_take_snapshot(snapshot))
    loaded, cluster = started(snapshot)

    assert (loaded.refused_count, loaded.calmed_count) == (2, 1)
    assert ask(loaded, "h", 1, timestamp=600) == [b"denied\t0"]
    assert cluster.deadlines == {timer_of(b"h"): 600 + QUIET_MS}


class Proxy:
    """A session that somebody wants."""

    def __init__(self, session_id: int) -> None:
        self.session_id, self.address = session_id, "-"
        self.principals: list[bytes] = []

    def challenge(self, encoded_challenge: bytes) -> bool:
        raise AssertionError("nobody is challenged")

    def authenticate(self, encoded_principal: bytes) -> bool:
        self.principals.append(encoded_principal)
        return True

    def reject(self) -> None:
        raise AssertionError("nobody is rejected")


def test_a_client_is_let_in_under_the_name_it_gives() -> None:
    authenticator, first, second = ByName(), Proxy(-1), Proxy(-2)
    authenticator.on_connect_request(-1, b"com", 0)
    authenticator.on_connect_request(-2, b"edu", 0)

    authenticator.on_connected_session(second, 0)
    authenticator.on_connected_session(first, 0)

    assert (first.principals, second.principals) == ([b"com"], [b"edu"])
