"""The example with timers: it decides as the quota alone does, and watches hosts until they are quiet."""

from __future__ import annotations

from typing import Any

import pytest

from examples.access_quota import ALLOWED_LIMIT, AccessQuota, Request
from examples.quota_watch import QUIET_MS, ByName, QuotaWatch, timer_of
from trimaran.cluster.testing import ServiceHarness


def ask(harness: ServiceHarness[Any], host: str, count: int) -> list[bytes]:
    payload = Request(host, 1_000, "/").encode()
    return [harness.request(payload) for _ in range(count)]


@pytest.fixture
def watch() -> ServiceHarness[QuotaWatch]:
    return ServiceHarness(QuotaWatch)


def test_it_decides_as_the_quota_alone(watch: ServiceHarness[QuotaWatch]) -> None:
    assert ask(watch, "h", ALLOWED_LIMIT + 5) == ask(ServiceHarness(AccessQuota), "h", ALLOWED_LIMIT + 5)


def test_each_refusal_moves_the_timer_of_its_host_on(watch: ServiceHarness[QuotaWatch]) -> None:
    begun = watch.time
    ask(watch, "a", ALLOWED_LIMIT + 1)
    watch.advance(0.1)
    ask(watch, "b", ALLOWED_LIMIT + 1)
    watch.advance(0.1)
    ask(watch, "a", 1)

    assert watch.timers == {timer_of(b"a"): begun + 200 + QUIET_MS, timer_of(b"b"): begun + 100 + QUIET_MS}


def test_a_plain_message_is_told_how_many_were_refused(watch: ServiceHarness[QuotaWatch]) -> None:
    ask(watch, "h", ALLOWED_LIMIT + 3)

    watch.offer(b"?")

    assert watch.egress == [b"3"]


def test_a_snapshot_brings_everything_back(watch: ServiceHarness[QuotaWatch]) -> None:
    ask(watch, "g", ALLOWED_LIMIT + 1)
    watch.advance(QUIET_MS / 1_000)
    ask(watch, "h", ALLOWED_LIMIT + 1)

    watch.restart()

    assert (watch.service.refused_count, watch.service.calmed_count) == (2, 1)
    watch.advance(0.6)
    assert ask(watch, "h", 1) == [b"denied\t0"]
    assert watch.timers == {timer_of(b"h"): watch.time + QUIET_MS}


class Proxy:
    """A session that somebody wants."""

    def __init__(self, session_id: int) -> None:
        self.session_id, self.address = session_id, "-"
        self.principals: list[bytes] = []

    def challenge(self, encoded_challenge: bytes) -> bool:
        raise AssertionError("nobody is challenged")

    def authenticate(self, encoded_principal: bytes, proof_id: str = "") -> bool:
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
