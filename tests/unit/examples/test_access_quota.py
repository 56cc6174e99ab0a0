"""The example service: the quota rule, and its snapshot."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.access_quota import AccessQuota, Request
from trimaran.cluster.cli.shared.single_process import InMemorySession, InMemorySnapshot, replies_of, start
from trimaran.service_api import ClusterSessionId


def session(number: int = 1) -> InMemorySession:
    return InMemorySession(ClusterSessionId(number))


def send(service: AccessQuota, to: InMemorySession, *requests: Request) -> list[str]:
    """Send requests and return the replies they got."""
    return [str(service.on_request(to, 0, memoryview(request.encode())), "utf-8") for request in requests]


def requests(host_times: Iterable[tuple[str, int]]) -> list[Request]:
    return [Request(host, time_s, "/index.html") for host, time_s in host_times]


def decide_naively(host_times: list[tuple[str, int]]) -> list[str]:
    """The rule word for word, in quadratic time."""
    allowed: list[tuple[str, int]] = []
    decisions = []
    for host, time_s in host_times:
        count = sum(1 for other, t in allowed if other == host and time_s - 60 < t <= time_s)
        if count < 10:
            allowed.append((host, time_s))
        decisions.append(f"allowed\t{9 - count}" if count < 10 else "denied\t0")
    return decisions


def test_ten_are_allowed_the_eleventh_is_denied_and_the_rest_is_told() -> None:
    client = session()

    replies = send(AccessQuota(), client, *requests([("h", 1_000)] * 11))

    assert replies[0] == "allowed\t9"
    assert replies[9] == "allowed\t0"
    assert replies[10] == "denied\t0"


@pytest.mark.parametrize(("later_s", "expected"), [(59, "denied\t0"), (60, "allowed\t9"), (61, "allowed\t9")])
def test_the_interval_is_open_at_its_start(later_s: int, expected: str) -> None:
    """(t - 60, t]: what was allowed exactly 60 s ago does not count any more."""
    client = session()

    replies = send(AccessQuota(), client, *requests([("h", 1_000)] * 10 + [("h", 1_000 + later_s)]))

    assert replies[10] == expected


def test_a_denied_request_does_not_count() -> None:
    host_times = [("h", 0)] * 10 + [("h", 30)] * 10 + [("h", 60)]

    replies = send(AccessQuota(), session(), *requests(host_times))

    assert replies[10:20] == ["denied\t0"] * 10
    assert replies[20] == "allowed\t9"


def test_hosts_do_not_share_a_quota() -> None:
    replies = send(AccessQuota(), session(), *requests([("a", 0)] * 10 + [("b", 0)]))

    assert replies[10] == "allowed\t9"


def test_a_later_time_does_not_count_for_an_earlier_one() -> None:
    replies = send(AccessQuota(), session(), *requests([("h", 100)] * 10 + [("h", 99)]))

    assert replies[10] == "allowed\t9"


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 200)), max_size=120))
def test_the_rule_agrees_with_a_naive_reference_in_any_order_of_times(
    host_times: list[tuple[str, int]],
) -> None:
    replies = send(AccessQuota(), session(), *requests(host_times))

    assert replies == decide_naively(host_times)


async def test_a_day_of_made_up_traffic_agrees_with_a_naive_reference() -> None:
    generator = random.Random(19950801)
    times = sorted(generator.randrange(0, 3_000) for _ in range(2_000))
    host_times = [(f"host-{generator.randrange(8)}", time_s) for time_s in times]

    replies = await replies_of(AccessQuota(), [request.encode() for request in requests(host_times)])

    assert [reply.decode() for reply in replies] == decide_naively(host_times)
    assert any(reply.endswith(b"denied\t0") for reply in replies)


def test_sessions_count_separately_but_share_the_quota() -> None:
    service, one, two = AccessQuota(), session(1), session(2)
    send(service, one, Request("h", 0, "/"))

    assert send(service, two, Request("h", 0, "/")) == ["allowed\t8"]


@pytest.mark.parametrize("payload", [b"", b"h\t2", b"one\th\t2\t/", b"h\tnoon\t/", b"\xff\t2\t/", b"\t" * 9])
def test_a_malformed_request_raises_and_changes_nothing(payload: bytes) -> None:
    service = AccessQuota()

    with pytest.raises(ValueError, match=r"unpack|invalid|decode"):
        service.on_request(session(), 0, memoryview(payload))

    assert service.allowed_times == {}


async def test_a_snapshot_carries_on_where_the_service_was() -> None:
    service, client, snapshot = AccessQuota(), session(), InMemorySnapshot()
    send(service, client, *requests([("h", 0)] * 9 + [("other", 5)]))
    await service.on_take_snapshot(snapshot)

    loaded = AccessQuota()
    await start(loaded, snapshot)

    assert loaded.allowed_times == service.allowed_times
    assert send(loaded, client, *requests([("h", 1)] * 2)) == ["allowed\t0", "denied\t0"]


def test_a_host_remembers_no_more_than_a_day() -> None:
    service, client = AccessQuota(), session()

    send(service, client, *requests([("h", 0), ("h", 86_400), ("h", 86_401)]))

    assert service.allowed_times["h"] == [86_400, 86_401]
