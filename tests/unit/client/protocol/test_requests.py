"""Requests on the client's side: their order, their outcomes, and what is sent again."""

from __future__ import annotations

import asyncio
import struct
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import pytest

from tests.unit.client.dialogue import ENDPOINTS, ENDPOINTS_TEXT, MS, SECOND, Dialogue
from tests.unit.client.fake_member import (
    FakeCluster,
    egress_frames,
    fake_cluster,
    new_leader_event,
    session_event,
)
from tests.unit.client.test_other_loops import in_another_loop
from tests.waiting import patient
from trimaran.client import (
    ClientConfig,
    ClusterClient,
    RejectedError,
    RequestFailedError,
    RequestIndeterminateError,
    SyncClusterClient,
)
from trimaran.client.protocol.requests import RequestBatch
from trimaran.service_api.errors import (
    ClusterTimeoutError,
    ConfigurationError,
    LocalProtocolError,
    SessionClosedError,
)
from trimaran.service_api.wire.request import REQUEST_HEADER, REQUEST_MESSAGE, RequestCode
from trimaran.service_api.wire.session import EventCode, SessionLimits

NEVER = 1 << 62


@dataclass
class Asked:
    """A request as it went out."""

    sequence: int
    acknowledged: int
    payload: bytes


class Requester:
    """A session with a leader, whose part the test plays."""

    def __init__(self, **settings: int) -> None:
        config = ClientConfig(endpoints=tuple(ENDPOINTS.values()), **settings)  # type: ignore[arg-type]
        self.dialogue = Dialogue(config=config)
        self.dialogue.open(leader=0, term=4)
        self.term = 4
        self.window = self.dialogue.protocol.requests

    def ask(self, payload: bytes, *, timeout_ns: int = NEVER) -> asyncio.Future[bytes]:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.window.submit(future, payload, self.dialogue.now_ns + timeout_ns)
        return future

    def ask_many(self, *payloads: bytes, timeout_ns: int = NEVER) -> RequestBatch:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        batch = RequestBatch(future, payloads, self.dialogue.now_ns + timeout_ns)
        self.window.submit_batch(batch)
        return batch

    def asked(self, member_id: int = 0) -> list[Asked]:
        """Take what was sent to a member; other messages are passed over."""
        found = []
        for message in self.dialogue.sent(member_id):
            if isinstance(message, bytes):
                sequence, acknowledged = struct.unpack_from("<qq", message)
                found.append(Asked(sequence, acknowledged, message[16:]))
        return found

    def answer(self, sequence: int, reply: bytes = b"", *, code: int = 0, member_id: int = 0) -> None:
        header = REQUEST_HEADER.pack(*REQUEST_MESSAGE, self.term, 7, 0, sequence, code)
        self.dialogue.feed(member_id, egress_frames(header + reply))
        self.window.pump()

    def elect(self, member_id: int) -> None:
        self.term += 1
        event = new_leader_event(term=self.term, leader=member_id, endpoints=ENDPOINTS_TEXT)
        self.dialogue.say(member_id, event)


@pytest.mark.parametrize(("told", "limit"), [(8192, 8192), (16 << 20, 8 << 20)])
async def test_what_is_longer_than_the_clusters_log_takes_is_refused_at_once(told: int, limit: int) -> None:
    """It could never be appended: it would be sent again for ever."""
    requester = Requester()
    protocol = requester.dialogue.protocol

    requester.dialogue.say(0, SessionLimits(max_message_length=told))

    protocol.check_request(bytes(limit - 48))
    assert protocol.offer(bytes(limit - 32))
    with pytest.raises(LocalProtocolError, match=f"length={limit - 47} limit={limit - 48}"):
        protocol.check_request(bytes(limit - 47))
    with pytest.raises(LocalProtocolError, match=f"length={limit - 31} limit={limit - 32}"):
        protocol.offer(bytes(limit - 31))


async def test_requests_are_numbered_in_order_and_answered() -> None:
    requester = Requester()
    one, two = requester.ask(b"one"), requester.ask(b"two")

    requester.answer(1, b"reply one")
    requester.answer(2, b"reply two")

    assert requester.asked() == [Asked(1, 0, b"one"), Asked(2, 0, b"two")]
    assert (one.result(), two.result()) == (b"reply one", b"reply two")


async def test_a_long_request_and_a_long_reply_go_in_fragments() -> None:
    requester = Requester()
    request = requester.ask(b"q" * 100_000)

    requester.answer(1, b"r" * 150_000)

    assert requester.asked() == [Asked(1, 0, b"q" * 100_000)]
    assert request.result() == b"r" * 150_000


async def test_each_request_says_up_to_where_every_reply_has_come() -> None:
    requester = Requester()
    for number in range(4):
        requester.ask(b"%d" % number)
    requester.asked()

    requester.answer(2)
    requester.ask(b"a")
    requester.answer(1)
    requester.ask(b"b")

    assert [asked.acknowledged for asked in requester.asked()] == [0, 2]


async def test_the_unanswered_are_sent_again_to_a_new_leader_in_order_before_anything_new() -> None:
    requester = Requester()
    for number in range(1, 5):
        requester.ask(b"%d" % number)
    requester.answer(1)
    requester.answer(3)
    requester.dialogue.down(0)
    waiting = requester.ask(b"new")

    requester.elect(1)

    assert requester.asked(1) == [Asked(2, 1, b"2"), Asked(4, 1, b"4"), Asked(5, 1, b"new")]
    assert not waiting.done()


async def test_a_reply_that_comes_twice_counts_once() -> None:
    requester = Requester()
    one, two = requester.ask(b"1"), requester.ask(b"2")
    requester.answer(1, b"first")
    requester.answer(1, b"second")
    requester.answer(9, b"never asked")
    requester.answer(-1, b"never asked")

    assert one.result() == b"first"
    assert not two.done()


async def test_a_leader_that_takes_the_connection_for_the_session_s_anew_gets_them_again() -> None:
    """It had not known the connection, and dropped what came on it."""
    requester = Requester()
    requester.ask(b"1")
    requester.asked()

    requester.dialogue.say(0, new_leader_event(term=4, leader=0, endpoints=ENDPOINTS_TEXT))

    assert requester.asked() == [Asked(1, 0, b"1")]


async def test_a_window_that_is_full_lets_requests_wait() -> None:
    requester = Requester(request_window_count=2)
    for number in range(1, 5):
        requester.ask(b"%d" % number)
    first = requester.asked()

    requester.answer(1)

    assert [asked.sequence for asked in first] == [1, 2]
    assert requester.asked() == [Asked(3, 1, b"3")]


async def test_the_window_counts_bytes_too() -> None:
    requester = Requester(request_window_bytes=100)
    for _ in range(3):
        requester.ask(bytes(60))

    assert [asked.sequence for asked in requester.asked()] == [1, 2]


async def test_an_answer_ahead_of_an_older_one_makes_no_room() -> None:
    """The cluster keeps replies from the first that is not acknowledged on."""
    requester = Requester(request_window_count=2)
    for number in range(1, 4):
        requester.ask(b"%d" % number)
    requester.asked()

    requester.answer(2)

    assert requester.asked() == []


@pytest.mark.parametrize("code", [RequestCode.WINDOW_EXCEEDED, RequestCode.OUT_OF_ORDER])
async def test_what_was_refused_for_now_is_sent_again_once_with_what_is_acknowledged(code: RequestCode) -> None:
    requester = Requester()
    futures = [requester.ask(b"%d" % number) for number in range(1, 5)]
    requester.asked()

    requester.answer(1, b"r1")
    requester.answer(2, code=code)
    again = requester.asked()
    requester.answer(3, code=RequestCode.OUT_OF_ORDER)
    requester.answer(4, code=RequestCode.OUT_OF_ORDER)
    once = requester.asked()
    requester.answer(2, b"r2")
    requester.answer(3, code=code)

    assert [(asked.sequence, asked.acknowledged) for asked in again] == [(2, 1), (3, 1), (4, 1)]
    assert once == []
    assert [(asked.sequence, asked.acknowledged) for asked in requester.asked()] == [(3, 2), (4, 2)]
    assert [future.done() for future in futures] == [True, True, False, False]


async def test_a_failure_of_the_service_is_told_with_its_text() -> None:
    requester = Requester()
    request = requester.ask(b"1")

    requester.answer(1, b"ValueError: no", code=RequestCode.FAILED)

    with pytest.raises(RequestFailedError, match="ValueError: no"):
        request.result()


async def test_a_service_that_takes_no_requests_rejects_them() -> None:
    requester = Requester()
    request = requester.ask(b"1")

    requester.answer(1, code=RequestCode.NO_REQUESTS)

    with pytest.raises(RejectedError, match="no requests"):
        request.result()


async def test_a_reply_that_the_cluster_dropped_leaves_the_outcome_open_for_ever() -> None:
    requester = Requester()
    request = requester.ask(b"1")

    requester.answer(1, code=RequestCode.NOT_KEPT)

    with pytest.raises(RequestIndeterminateError) as caught:
        request.result()
    assert caught.value.is_final


async def test_a_request_that_was_not_sent_in_time_is_rejected_and_never_sent() -> None:
    requester = Requester()
    requester.dialogue.down(0)
    late = requester.ask(b"late", timeout_ns=50 * MS)
    patient = requester.ask(b"patient", timeout_ns=900 * MS)

    requester.dialogue.wait(60 * MS)
    requester.elect(1)

    with pytest.raises(RejectedError, match=r"timed out.*sent"):
        late.result()
    assert requester.asked(1) == [Asked(1, 0, b"patient")]
    assert not patient.done()


async def test_a_request_that_was_sent_and_not_answered_in_time_is_unknown_and_resolved_later() -> None:
    requester = Requester()
    future = requester.ask(b"1", timeout_ns=50 * MS)
    requester.dialogue.wait(60 * MS)
    with pytest.raises(RequestIndeterminateError) as caught:
        future.result()
    assert not caught.value.is_final
    resolving = [asyncio.ensure_future(caught.value.resolve()) for _ in range(2)]
    await asyncio.sleep(0)

    requester.dialogue.down(0)
    requester.elect(2)
    again = requester.asked(2)
    requester.answer(1, b"after all", member_id=2)

    assert again == [Asked(1, 0, b"1")]
    assert await asyncio.gather(*resolving) == [b"after all"] * 2
    assert await caught.value.resolve() == b"after all"


async def test_an_unknown_outcome_stays_unknown_when_the_session_ends() -> None:
    requester = Requester()
    future = requester.ask(b"1", timeout_ns=50 * MS)
    requester.dialogue.wait(60 * MS)
    with pytest.raises(RequestIndeterminateError) as caught:
        future.result()

    requester.dialogue.say(0, session_event(EventCode.CLOSED, term=4, detail="TIMEOUT"))

    with pytest.raises(RequestIndeterminateError, match="TIMEOUT") as final:
        await caught.value.resolve()
    assert final.value.is_final
    with pytest.raises(RequestIndeterminateError):
        await final.value.resolve()


async def test_the_end_of_the_session_rejects_what_was_not_sent_and_leaves_the_rest_unknown() -> None:
    requester = Requester(request_window_count=1)
    sent, unsent = requester.ask(b"1"), requester.ask(b"2")

    requester.dialogue.say(0, session_event(EventCode.CLOSED, term=4, detail="TIMEOUT"))

    with pytest.raises(RequestIndeterminateError, match="TIMEOUT"):
        sent.result()
    with pytest.raises(RejectedError, match="TIMEOUT"):
        unsent.result()


async def test_an_orderly_close_still_takes_the_replies_that_come() -> None:
    requester = Requester(request_window_count=1)
    sent, unsent = requester.ask(b"1"), requester.ask(b"2")

    requester.dialogue.protocol.close(requester.dialogue.now_ns)
    requester.answer(1, b"in time")

    assert sent.result() == b"in time"
    with pytest.raises(RejectedError):
        unsent.result()


async def test_deadlines_are_looked_at_when_they_are_due_however_many_have_passed() -> None:
    requester = Requester()
    for number in range(1, 101):
        requester.ask(b"%d" % number, timeout_ns=SECOND)
        requester.answer(number)
        requester.dialogue.wait(10 * MS)
    last = requester.ask(b"last", timeout_ns=SECOND)

    requester.dialogue.wait(SECOND - MS)
    assert not last.done()
    requester.dialogue.wait(2 * MS)
    assert isinstance(last.exception(), RequestIndeterminateError)
    assert requester.window.deadline_ns > requester.dialogue.now_ns + 10**15


async def test_a_withdrawn_request_is_not_sent_and_leaves_no_gap() -> None:
    requester = Requester()
    requester.dialogue.down(0)
    one, two = requester.ask(b"1"), requester.ask(b"2")
    one.cancel()
    requester.window.withdraw(one)
    two.cancel()

    requester.ask(b"3")
    requester.elect(1)

    assert requester.asked(1) == [Asked(1, 0, b"3")]


@pytest.mark.parametrize("count", [0, 4097])
def test_the_window_is_no_larger_than_what_the_cluster_keeps(count: int) -> None:
    with pytest.raises(ConfigurationError, match="request_window_count"):
        ClientConfig(endpoints=("a:1",), request_window_count=count)


class TestShell:
    """`ClusterClient.request`, against fake members that answer requests with what they were sent."""

    async def test_many_requests_at_once_are_answered_each_with_its_own_reply(self) -> None:
        async with answering() as cluster, ClusterClient.connect(cluster.endpoints) as client:
            replies = await asyncio.gather(*(client.request(b"%d" % number) for number in range(10_000)))

        assert replies == [b"%d" % number for number in range(10_000)]

    async def test_any_kind_of_bytes_is_taken_as_it_was(self) -> None:
        async with answering() as cluster, ClusterClient.connect(cluster.endpoints) as client:
            data = bytearray(b"abc")
            request = asyncio.ensure_future(client.request(data))
            await asyncio.sleep(0)
            data[:] = b"xyz"

            assert await request == b"abc"
            assert await client.request(memoryview(b"view")) == b"view"

    async def test_a_request_that_is_too_long_is_refused(self) -> None:
        async with answering() as cluster:
            config = ClientConfig(endpoints=tuple(cluster.endpoints), max_message_length_bytes=148)
            async with ClusterClient.connect(config=config) as client:
                with pytest.raises(LocalProtocolError, match="length=101 limit=100"):
                    await client.request(bytes(101))
                assert await client.request(bytes(100)) == bytes(100)

    async def test_cancelling_disturbs_neither_order_nor_numbers(self) -> None:
        async with answering() as cluster, ClusterClient.connect(cluster.endpoints) as client:
            requests = [asyncio.ensure_future(client.request(b"%d" % number)) for number in range(100)]
            await asyncio.sleep(0)
            for request in requests[::3]:
                request.cancel()
            done = await asyncio.gather(*requests, return_exceptions=True)
            after = await client.request(b"after")

        assert done[1::3] == [b"%d" % number for number in range(1, 100, 3)]
        assert all(isinstance(outcome, asyncio.CancelledError) for outcome in done[::3])
        assert after == b"after"

    async def test_requests_follow_the_leader(self) -> None:
        async with answering() as cluster, ClusterClient.connect(cluster.endpoints) as client:
            assert await client.request(b"1") == b"1"
            cluster.leader_member.is_answering = False
            second = asyncio.ensure_future(client.request(b"2"))
            await cluster.until(lambda: b"2" in [payload[-1:] for payload in cluster.members[0].payloads])
            await cluster.members[0].stop()
            third = asyncio.ensure_future(client.request(b"3"))
            await cluster.elect(1)

            assert await second == b"2"
            assert await third == b"3"

    async def test_a_timeout_says_what_is_known_and_resolve_tells_the_rest(self) -> None:
        async with answering() as cluster, ClusterClient.connect(cluster.endpoints) as client:
            cluster.leader_member.is_answering = False
            with pytest.raises(RequestIndeterminateError) as caught:
                await client.request(b"1", timeout_s=0.02)
            await cluster.members[0].stop()
            await cluster.until(lambda: not client.has_leader)
            with pytest.raises(RejectedError):
                await client.request(b"2", timeout_s=0.02)
            await cluster.elect(1)

            assert await caught.value.resolve() == b"1"
            assert "foreign" in await asyncio.to_thread(in_another_loop, lambda: foreign(caught.value))

    async def test_drain_waits_for_the_outcome_of_every_request(self) -> None:
        async with answering() as cluster, ClusterClient.connect(cluster.endpoints) as client:
            cluster.leader_member.is_answering = False
            request = asyncio.ensure_future(client.request(b"1"))
            await asyncio.sleep(0)
            with pytest.raises(ClusterTimeoutError):
                await client.drain(timeout_s=0.02)
            await cluster.members[0].stop()
            await cluster.elect(1)
            await client.drain(timeout_s=patient(10))

            assert request.done()
            assert await request == b"1"

    async def test_a_closed_client_takes_none(self) -> None:
        async with answering() as cluster, ClusterClient.connect(cluster.endpoints) as client:
            await client.aclose()
            with pytest.raises(SessionClosedError):
                await client.request(b"1")

    async def test_a_close_ends_what_waits(self) -> None:
        async with answering() as cluster, ClusterClient.connect(cluster.endpoints) as client:
            cluster.leader_member.is_answering = False
            request = asyncio.ensure_future(client.request(b"1"))
            await asyncio.sleep(0)
            await cluster.members[0].stop()
            await client.aclose()

            with pytest.raises(RequestIndeterminateError) as caught:
                await request
            assert caught.value.is_final

    async def test_the_client_for_scripts_does_the_same(self) -> None:
        async with answering() as cluster:
            assert await asyncio.to_thread(use_from_a_script, cluster.endpoints) == b"1"

    async def test_the_client_for_scripts_resolves_too(self) -> None:
        async with answering() as cluster:
            cluster.leader_member.is_answering = True
            client = await asyncio.to_thread(SyncClusterClient.connect, cluster.endpoints)
            cluster.leader_member.is_answering = False
            with pytest.raises(RequestIndeterminateError) as caught:
                await asyncio.to_thread(lambda: client.request(b"1", timeout_s=0.02))
            with pytest.raises(ClusterTimeoutError):
                await asyncio.to_thread(lambda: client.resolve(caught.value, timeout_s=0.02))
            await cluster.members[0].stop()
            await cluster.elect(1)

            assert await asyncio.to_thread(lambda: client.resolve(caught.value, timeout_s=patient(10))) == b"1"
            await asyncio.to_thread(client.close)


def answering() -> AbstractAsyncContextManager[FakeCluster]:
    """A cluster of fake members, whose service answers with what it was asked."""
    return fake_cluster()


def use_from_a_script(endpoints: list[str]) -> bytes:
    with SyncClusterClient.connect(endpoints) as client:
        return client.request(b"1", timeout_s=patient(10))


async def foreign(error: RequestIndeterminateError) -> str:
    try:
        await error.resolve()
    except LocalProtocolError as caught:
        return f"foreign: {caught}"
    return "resolved"


async def test_requests_of_callers_that_gave_up_are_outstanding_until_they_are_answered() -> None:
    """A drain returned before they had run, and a pool would have lent their session again."""
    requester = Requester()
    window = requester.window
    batch, single = requester.ask_many(b"a", b"b"), requester.ask(b"c")
    batch.future.cancel()
    window.withdraw(batch)
    end_sequence = window.end_sequence
    requester.ask(b"after the drain began")

    first = window.outstanding(end_sequence)
    single.cancel()
    window.withdraw(single)
    second = window.outstanding(end_sequence)

    assert (len(first), first[-1] is single, window.outstanding_count) == (3, True, 4)
    assert (len(second), any(future.done() for future in second)) == (3, False)
    for sequence in (1, 2, 3):
        requester.answer(sequence, b"r")
    assert all(future.done() for future in second)
    assert (window.outstanding(end_sequence), window.outstanding_count) == ([], 1)


async def test_what_is_not_sent_is_outstanding_as_long_as_its_caller_waits() -> None:
    requester = Requester(request_window_count=1)
    window = requester.window
    requester.ask(b"sent")
    waiting, batch = requester.ask(b"waits"), requester.ask_many(b"a", b"b")
    end_sequence = window.end_sequence

    assert (window.outstanding_count, len(window.outstanding(end_sequence))) == (4, 3)
    for future, waiter in ((waiting, waiting), (batch.future, batch)):
        future.cancel()
        window.withdraw(waiter)

    assert (window.outstanding_count, len(window.outstanding(end_sequence))) == (1, 1)
