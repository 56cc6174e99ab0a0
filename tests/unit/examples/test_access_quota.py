"""The example service: the quota rule, replies said once and again, and its snapshot."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.cli.single_process import InMemorySession, InMemorySnapshot, replies_of, start
from examples.access_quota import ANSWER_LIMIT, AccessQuota, Request
from service_api import CloseReason, ClusterSessionId


def session(number: int = 1) -> InMemorySession:
    return InMemorySession(ClusterSessionId(number))


def send(service: AccessQuota, to: InMemorySession, *requests: Request) -> list[str]:
    """Send requests and return the replies they got."""
    before = len(to.replies)
    for request in requests:
        service.on_session_message(to, 0, memoryview(request.encode()))
    return [reply.decode() for reply in to.replies[before:]]


def requests(host_times: Iterable[tuple[str, int]], first: int = 1) -> list[Request]:
    return [Request(first + i, host, time_s, "/index.html") for i, (host, time_s) in enumerate(host_times)]


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


def decisions_of(replies: Iterable[str | bytes]) -> list[str]:
    texts = [reply if isinstance(reply, str) else reply.decode() for reply in replies]
    return [text.split("\t", 1)[1] for text in texts]


def test_ten_are_allowed_the_eleventh_is_denied_and_the_rest_is_told() -> None:
    client = session()

    replies = send(AccessQuota(), client, *requests([("h", 1_000)] * 11))

    assert replies[0] == "1\tallowed\t9"
    assert replies[9] == "10\tallowed\t0"
    assert replies[10] == "11\tdenied\t0"


@pytest.mark.parametrize(("later_s", "expected"), [(59, "denied\t0"), (60, "allowed\t9"), (61, "allowed\t9")])
def test_the_interval_is_open_at_its_start(later_s: int, expected: str) -> None:
    """(t - 60, t]: what was allowed exactly 60 s ago does not count any more."""
    client = session()

    replies = send(AccessQuota(), client, *requests([("h", 1_000)] * 10 + [("h", 1_000 + later_s)]))

    assert replies[10] == f"11\t{expected}"


def test_a_denied_request_does_not_count() -> None:
    host_times = [("h", 0)] * 10 + [("h", 30)] * 10 + [("h", 60)]

    replies = send(AccessQuota(), session(), *requests(host_times))

    assert decisions_of(replies)[10:20] == ["denied\t0"] * 10
    assert decisions_of(replies)[20] == "allowed\t9"


def test_hosts_do_not_share_a_quota() -> None:
    replies = send(AccessQuota(), session(), *requests([("a", 0)] * 10 + [("b", 0)]))

    assert replies[10] == "11\tallowed\t9"


def test_a_later_time_does_not_count_for_an_earlier_one() -> None:
    replies = send(AccessQuota(), session(), *requests([("h", 100)] * 10 + [("h", 99)]))

    assert replies[10] == "11\tallowed\t9"


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 200)), max_size=120))
def test_the_rule_agrees_with_a_naive_reference_in_any_order_of_times(
    host_times: list[tuple[str, int]],
) -> None:
    replies = send(AccessQuota(), session(), *requests(host_times))

    assert decisions_of(replies) == decide_naively(host_times)


async def test_a_day_of_made_up_traffic_agrees_with_a_naive_reference() -> None:
    generator = random.Random(19950801)
    times = sorted(generator.randrange(0, 3_000) for _ in range(2_000))
    host_times = [(f"host-{generator.randrange(8)}", time_s) for time_s in times]

    replies = await replies_of(AccessQuota(), [request.encode() for request in requests(host_times)])

    assert decisions_of(replies) == decide_naively(host_times)
    assert any(reply.endswith(b"denied\t0") for reply in replies)


def test_a_request_sent_again_gets_the_reply_it_got_and_counts_once() -> None:
    service, client = AccessQuota(), session()
    sent = requests([("h", 0)] * 3)
    first = send(service, client, *sent)

    again = send(service, client, *sent, Request(4, "h", 0, "/"))

    assert again[:3] == first
    assert again[3] == "4\tallowed\t6"


def test_a_request_ahead_of_the_next_one_is_not_answered_and_does_not_count() -> None:
    """Those before it were lost with a leader: the client sends all of them again, in order."""
    service, client = AccessQuota(), session()
    sent = requests([("h", 0)] * 4)
    send(service, client, sent[0])

    assert send(service, client, sent[3]) == []
    assert send(service, client, *sent[1:]) == ["2\tallowed\t8", "3\tallowed\t7", "4\tallowed\t6"]


def test_replies_kept_for_a_session_are_bounded() -> None:
    service, client = AccessQuota(), session()
    sent = requests((f"host-{i}", 0) for i in range(ANSWER_LIMIT + 1))
    send(service, client, *sent)

    assert send(service, client, sent[0]) == []
    assert send(service, client, sent[1]) == ["2\tallowed\t9"]
    assert len(service.answers[client.id].decisions) == ANSWER_LIMIT


def test_sessions_count_separately_but_share_the_quota() -> None:
    service, one, two = AccessQuota(), session(1), session(2)
    send(service, one, Request(1, "h", 0, "/"))

    assert send(service, two, Request(1, "h", 0, "/")) == ["1\tallowed\t8"]


def test_a_closed_session_is_forgotten_and_its_requests_still_count() -> None:
    service, one, two = AccessQuota(), session(1), session(2)
    send(service, one, Request(1, "h", 0, "/"))

    service.on_session_close(one, 0, CloseReason.CLIENT_ACTION)

    assert service.answers == {}
    assert send(service, two, Request(1, "h", 0, "/")) == ["1\tallowed\t8"]


@pytest.mark.parametrize("payload", [b"", b"1\th\t2", b"one\th\t2\t/", b"1\th\tnoon\t/", b"1\t\xff\t2\t/", b"\t" * 9])
def test_a_malformed_message_is_answered_as_such_and_changes_nothing(payload: bytes) -> None:
    service, client = AccessQuota(), session()

    service.on_session_message(client, 0, memoryview(payload))

    assert client.replies == [b"0\tmalformed\t0"]
    assert service.allowed_times == {}


async def test_a_snapshot_carries_on_where_the_service_was() -> None:
    service, client, snapshot = AccessQuota(), session(), InMemorySnapshot()
    sent = requests([("h", 0)] * 9 + [("other", 5)])
    replies = send(service, client, *sent)
    await service.on_take_snapshot(snapshot)

    loaded = AccessQuota()
    await start(loaded, snapshot)

    assert loaded.allowed_times == service.allowed_times
    assert send(loaded, client, *sent) == replies
    assert send(loaded, client, *requests([("h", 1)] * 2, first=11)) == ["11\tallowed\t0", "12\tdenied\t0"]


def test_a_host_remembers_no_more_than_a_day() -> None:
    service, client = AccessQuota(), session()

    send(service, client, *requests([("h", 0), ("h", 86_400), ("h", 86_401)]))

    assert service.allowed_times["h"] == [86_400, 86_401]
