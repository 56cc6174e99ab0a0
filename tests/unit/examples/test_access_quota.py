"""The example service: the quota rule, and its snapshot."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.access_quota import AccessQuota, Request
from trimaran.cluster.testing import ServiceHarness


def send(harness: ServiceHarness[AccessQuota], *requests: Request) -> list[str]:
    """Send requests and return the replies they got."""
    return [str(harness.request(request.encode()), "utf-8") for request in requests]


def replies_to(*requests: Request) -> list[str]:
    """The replies of a fresh service."""
    return send(ServiceHarness(AccessQuota), *requests)


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
    replies = replies_to(*requests([("h", 1_000)] * 11))

    assert replies[0] == "allowed\t9"
    assert replies[9] == "allowed\t0"
    assert replies[10] == "denied\t0"


@pytest.mark.parametrize(("later_s", "expected"), [(59, "denied\t0"), (60, "allowed\t9"), (61, "allowed\t9")])
def test_the_interval_is_open_at_its_start(later_s: int, expected: str) -> None:
    """(t - 60, t]: what was allowed exactly 60 s ago does not count any more."""
    replies = replies_to(*requests([("h", 1_000)] * 10 + [("h", 1_000 + later_s)]))

    assert replies[10] == expected


def test_a_denied_request_does_not_count() -> None:
    host_times = [("h", 0)] * 10 + [("h", 30)] * 10 + [("h", 60)]

    replies = replies_to(*requests(host_times))

    assert replies[10:20] == ["denied\t0"] * 10
    assert replies[20] == "allowed\t9"


def test_hosts_do_not_share_a_quota() -> None:
    replies = replies_to(*requests([("a", 0)] * 10 + [("b", 0)]))

    assert replies[10] == "allowed\t9"


def test_a_later_time_does_not_count_for_an_earlier_one() -> None:
    replies = replies_to(*requests([("h", 100)] * 10 + [("h", 99)]))

    assert replies[10] == "allowed\t9"


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 200)), max_size=120))
def test_the_rule_agrees_with_a_naive_reference_in_any_order_of_times(
    host_times: list[tuple[str, int]],
) -> None:
    replies = replies_to(*requests(host_times))

    assert replies == decide_naively(host_times)


def test_a_day_of_made_up_traffic_agrees_with_a_naive_reference() -> None:
    generator = random.Random(19950801)
    times = sorted(generator.randrange(0, 3_000) for _ in range(2_000))
    host_times = [(f"host-{generator.randrange(8)}", time_s) for time_s in times]

    replies = replies_to(*requests(host_times))

    assert replies == decide_naively(host_times)
    assert any(reply.endswith("denied\t0") for reply in replies)


def test_sessions_share_the_quota() -> None:
    harness = ServiceHarness(AccessQuota)
    one, two = harness.open_session(), harness.open_session()
    one.request(Request("h", 0, "/").encode())

    assert two.request(Request("h", 0, "/").encode()) == b"allowed\t8"


@pytest.mark.parametrize("payload", [b"", b"h\t2", b"one\th\t2\t/", b"h\tnoon\t/", b"\xff\t2\t/", b"\t" * 9])
def test_a_malformed_request_raises_and_changes_nothing(payload: bytes) -> None:
    harness = ServiceHarness(AccessQuota)

    with pytest.raises(ValueError, match=r"unpack|invalid|decode"):
        harness.request(payload)

    assert harness.service.allowed_times == {}


def test_a_snapshot_carries_on_where_the_service_was() -> None:
    harness = ServiceHarness(AccessQuota)
    send(harness, *requests([("h", 0)] * 9 + [("other", 5)]))
    before = harness.service.allowed_times

    harness.restart()

    assert harness.service.allowed_times == before
    assert harness.service.allowed_times is not before
    assert send(harness, *requests([("h", 1)] * 2)) == ["allowed\t0", "denied\t0"]


def test_a_host_remembers_no_more_than_a_day() -> None:
    harness = ServiceHarness(AccessQuota)

    send(harness, *requests([("h", 0), ("h", 86_400), ("h", 86_401)]))

    assert harness.service.allowed_times["h"] == [86_400, 86_401]
