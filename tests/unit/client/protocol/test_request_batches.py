"""Batches of requests on the client's side: their order, their outcomes by position, and what is sent when."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from tests.unit.client.dialogue import MS, SECOND
from tests.unit.client.fake_member import egress_frames, session_event
from tests.unit.client.protocol.test_requests import NEVER, Asked, Requester, answering
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
from trimaran.service_api.errors import ClusterTimeoutError, LocalProtocolError, SessionClosedError
from trimaran.service_api.wire.request import REQUEST_HEADER, REQUEST_MESSAGE, RequestCode
from trimaran.service_api.wire.session import EventCode


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def answer_run(requester: Requester, first: int, replies: list[bytes], *, member_id: int = 0) -> None:
    """Answer requests in one piece of received bytes."""
    frames = (
        egress_frames(REQUEST_HEADER.pack(*REQUEST_MESSAGE, requester.term, 7, 0, sequence, RequestCode.REPLY) + reply)
        for sequence, reply in enumerate(replies, first)
    )
    requester.dialogue.feed(member_id, b"".join(frames))
    requester.window.pump()


async def test_a_batch_goes_between_the_requests_that_are_begun_before_and_after_it() -> None:
    requester = Requester()
    one, batch, last = requester.ask(b"one"), requester.ask_many(b"a", b"bb", b"c"), requester.ask(b"last")

    answer_run(requester, 1, [b"one", b"ra", b"rbb", b"rc", b"last"])

    assert [(asked.sequence, asked.payload) for asked in requester.asked()] == [
        (1, b"one"),
        (2, b"a"),
        (3, b"bb"),
        (4, b"c"),
        (5, b"last"),
    ]
    assert batch.future.done()
    assert batch.outcomes == [b"ra", b"rbb", b"rc"]
    assert (one.result(), last.result()) == (b"one", b"last")


@pytest.mark.parametrize("settings", [{"request_window_count": 4}, {"request_window_bytes": 80}])
async def test_what_the_window_has_no_room_for_waits_for_replies(settings: dict[str, int]) -> None:
    requester = Requester(**settings)
    batch, after = requester.ask_many(*[bytes(20)] * 10), requester.ask(b"after")
    sent = [len(requester.asked())]

    for begin in (1, 5):
        answer_run(requester, begin, [b"r"] * 4)
        sent.append(len(requester.asked()))
    answer_run(requester, 9, [b"r", b"r", b"after"])

    assert sent == [4, 4, 3]
    assert batch.outcomes == [b"r"] * 10
    assert after.result() == b"after"


async def test_no_more_is_written_at_once_than_may_wait_for_the_socket() -> None:
    requester = Requester(outgoing_window_bytes=1000)
    batch = requester.ask_many(*[bytes(100)] * 30)

    pieces = []
    while asked := requester.asked():
        pieces.append(len(asked))
        requester.window.pump()

    assert sum(pieces) == 30
    assert max(pieces) <= 6
    assert batch.sent_count == 30


async def test_errors_have_the_positions_of_their_requests() -> None:
    requester = Requester()
    batch = requester.ask_many(*numbers(0, 4))

    requester.answer(1, b"r0")
    requester.answer(2, b"oops", code=RequestCode.FAILED)
    requester.answer(3, code=RequestCode.NOT_KEPT)
    assert not batch.future.done()
    requester.answer(4, b"r3")

    assert batch.future.done()
    assert [type(outcome) for outcome in batch.outcomes] == [
        bytes,
        RequestFailedError,
        RequestIndeterminateError,
        bytes,
    ]


async def test_replies_come_in_any_order_of_any_length_and_twice() -> None:
    requester = Requester()
    before, batch, after = requester.ask(b"q"), requester.ask_many(*numbers(0, 20)), requester.ask(b"q")
    replies = [b"r" * (number * 13 % 50) for number in range(22)]

    for sequence in (4, 9, 10, 22):
        requester.answer(sequence, replies[sequence - 1])
    answer_run(requester, 3, replies[2:8])
    answer_run(requester, 1, replies)
    answer_run(requester, 1, replies)

    assert batch.outcomes == replies[1:21]
    assert (before.result(), after.result()) == (replies[0], replies[21])
    assert requester.window.outstanding() == []


async def test_a_new_leader_is_sent_what_is_unanswered_and_then_the_rest() -> None:
    requester = Requester(request_window_count=4)
    batch = requester.ask_many(*numbers(1, 7))
    requester.answer(1, b"r1")
    requester.answer(3, b"r3")
    requester.asked()

    requester.dialogue.down(0)
    requester.elect(1)
    again = requester.asked(1)
    answer_run(requester, 2, [b"r2", b"r3 again", b"r4", b"r5"], member_id=1)
    last = requester.asked(1)
    requester.answer(6, b"r6", member_id=1)

    assert again == [Asked(2, 1, b"2"), Asked(4, 1, b"4"), Asked(5, 1, b"5")]
    assert last == [Asked(6, 5, b"6")]
    assert batch.outcomes == [b"r1", b"r2", b"r3", b"r4", b"r5", b"r6"]


async def test_what_is_refused_for_now_is_sent_again() -> None:
    requester = Requester()
    batch = requester.ask_many(*numbers(1, 4))
    requester.asked()

    requester.answer(1, b"r1")
    requester.answer(2, code=RequestCode.WINDOW_EXCEEDED)
    requester.answer(3, code=RequestCode.OUT_OF_ORDER)
    again = requester.asked()
    answer_run(requester, 2, [b"r2", b"r3"])

    assert again == [Asked(2, 1, b"2"), Asked(3, 1, b"3")]
    assert batch.outcomes == [b"r1", b"r2", b"r3"]


async def test_a_batch_that_has_no_more_time_tells_what_was_sent_from_what_never_will_be() -> None:
    requester = Requester(request_window_count=2)
    batch, late = requester.ask_many(*numbers(1, 5), timeout_ns=50 * MS), requester.ask(b"x", timeout_ns=SECOND)
    requester.answer(1, b"r1")
    requester.asked()

    requester.dialogue.wait(60 * MS)
    requester.answer(2, b"r2")

    assert batch.future.done()
    done, *unknown, never = batch.outcomes
    assert done == b"r1"
    assert isinstance(never, RejectedError)
    assert all(isinstance(error, RequestIndeterminateError) and not error.is_final for error in unknown)
    assert isinstance(unknown[0], RequestIndeterminateError)
    assert await unknown[0].resolve() == b"r2"
    assert [asked.payload for asked in requester.asked()] == [b"x"]
    assert not late.done()


async def test_the_end_of_the_session_rejects_what_was_not_sent_and_leaves_the_rest_unknown() -> None:
    requester = Requester(request_window_count=2)
    batch = requester.ask_many(*numbers(1, 5))
    requester.answer(1, b"r1")

    requester.dialogue.say(0, session_event(EventCode.CLOSED, term=4, detail="TIMEOUT"))

    assert batch.future.done()
    assert [type(outcome) for outcome in batch.outcomes] == [
        bytes,
        RequestIndeterminateError,
        RequestIndeterminateError,
        RejectedError,
    ]


async def test_a_withdrawn_batch_sends_no_more_and_leaves_no_gap() -> None:
    requester = Requester(request_window_count=2)
    batch, after = requester.ask_many(*numbers(1, 6)), requester.ask(b"after")
    batch.future.cancel()
    requester.window.withdraw(batch)

    answer_run(requester, 1, [b"r1", b"r2"])
    requester.answer(3, b"after")

    assert [(asked.sequence, asked.payload) for asked in requester.asked()] == [(1, b"1"), (2, b"2"), (3, b"after")]
    assert after.result() == b"after"


async def test_a_hundred_thousand_requests_go_through_the_window() -> None:
    requester = Requester()
    payloads = [b"%06d" % number for number in range(100_000)]
    batch = requester.ask_many(*payloads)
    header = REQUEST_HEADER.pack(*REQUEST_MESSAGE, 4, 7, 0, 0, RequestCode.REPLY)
    reply = bytearray(egress_frames(header + b"......"))
    highest_count = 0

    begin = 0
    while not batch.future.done():
        sent = requester.dialogue.sent_bytes(0)
        highest_count = max(highest_count, len(sent) // 96)
        replies = bytearray()
        for offset in range(0, len(sent), 96):
            reply[64:72], reply[80:86] = sent[offset + 64 : offset + 72], sent[offset + 80 : offset + 86]
            replies += reply
        requester.dialogue.feed(0, bytes(replies))
        requester.window.pump()
        begin += len(sent) // 96

    assert begin == 100_000
    assert highest_count <= 4096
    assert batch.outcomes == payloads


class TestShell:
    """`ClusterClient.request_many`, against fake members that answer requests with what they were sent."""

    async def test_replies_are_at_the_positions_of_their_requests(self) -> None:
        async with answering() as cluster, ClusterClient.connect(cluster.endpoints) as client:
            several = (client.request_many(numbers(0, 5000)), client.request(b"one"), client.request_many([b"x"]))
            many, one, last = await asyncio.gather(*several)

            assert await client.request_many([]) == []
            others: list[bytearray | memoryview] = [bytearray(b"a"), memoryview(b"b")]
            assert await client.request_many(iter(others)) == [b"a", b"b"]
        assert many == numbers(0, 5000)
        assert (one, last) == (b"one", [b"x"])
        assert cluster.leader_member.payloads == [*numbers(0, 5000), b"one", b"x", b"a", b"b"]

    async def test_nothing_is_sent_if_one_of_them_can_never_be(self) -> None:
        async with answering() as cluster:
            config = ClientConfig(endpoints=tuple(cluster.endpoints), max_message_length_bytes=148)
            async with ClusterClient.connect(config=config) as client:
                with pytest.raises(LocalProtocolError, match="length=101 limit=100"):
                    await client.request_many([b"1", bytes(101), b"3"], return_exceptions=True)
                with pytest.raises(LocalProtocolError):
                    await client.request_many([b"1", "2"])  # type: ignore[list-item]
                assert await client.request_many([b"4"]) == [b"4"]

        assert cluster.leader_member.payloads == [b"4"]

    async def test_the_first_error_is_raised_or_all_are_returned(self) -> None:
        async with answering() as cluster, ClusterClient.connect(cluster.endpoints) as client:
            cluster.leader_member.is_answering = False
            with pytest.raises(RequestIndeterminateError) as caught:
                await client.request_many([b"1", b"2"], timeout_s=0.02)
            errors = await client.request_many([b"3", b"4"], timeout_s=0.02, return_exceptions=True)

        assert ["position=0 of 2" in note for note in caught.value.__notes__] == [True]
        assert [type(error) for error in errors] == [RequestIndeterminateError] * 2

    async def test_a_cancelled_batch_sends_no_more_and_the_next_request_goes_on(self) -> None:
        async with answering() as cluster:
            config = ClientConfig(endpoints=tuple(cluster.endpoints), request_window_count=8)
            async with ClusterClient.connect(config=config) as client:
                batch = asyncio.ensure_future(client.request_many(numbers(0, 1000)))
                await asyncio.sleep(0)
                batch.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await batch
                assert await client.request(b"after") == b"after"

        assert cluster.leader_member.payloads == [*numbers(0, 8), b"after"]

    async def test_drain_waits_for_it_and_a_close_ends_it(self) -> None:
        async with answering() as cluster, ClusterClient.connect(cluster.endpoints) as client:
            cluster.leader_member.is_answering = False
            batch = asyncio.ensure_future(client.request_many(numbers(0, 3), return_exceptions=True))
            await asyncio.sleep(0)
            with pytest.raises(ClusterTimeoutError):
                await client.drain(timeout_s=0.02)
            await cluster.members[0].stop()
            await client.aclose()

            assert [type(outcome) for outcome in await batch] == [RequestIndeterminateError] * 3
            with pytest.raises(SessionClosedError):
                await client.request_many([b"1"], return_exceptions=True)

    async def test_the_client_for_scripts_does_the_same(self) -> None:
        def use(endpoints: list[str]) -> list[bytes]:
            with SyncClusterClient.connect(endpoints) as client:
                return client.request_many([b"1", b"2"], timeout_s=patient(10))

        async with answering() as cluster:
            assert await asyncio.to_thread(use, cluster.endpoints) == [b"1", b"2"]


class Server:
    """What a cluster does with the requests of a session: it runs each once, in order, and keeps the replies."""

    WINDOW = 6
    """Replies that it keeps: fewer than the client sends, so that it refuses some for now."""

    def __init__(self) -> None:
        self.ran: list[bytes] = []

    def answer(self, asked: Asked) -> tuple[int, int, bytes]:
        """Return the number, the code and the reply."""
        if asked.sequence > len(self.ran) + 1:
            return asked.sequence, RequestCode.OUT_OF_ORDER, b""
        if asked.sequence == len(self.ran) + 1:
            if asked.sequence - asked.acknowledged > self.WINDOW:
                return asked.sequence, RequestCode.WINDOW_EXCEEDED, b""
            self.ran.append(asked.payload)
        assert self.ran[asked.sequence - 1] == asked.payload
        return asked.sequence, RequestCode.REPLY, b"reply to " + asked.payload


class Story:
    """A session with such a server, in which anything happens that may, by a seeded generator."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.requester = Requester(request_window_count=8, request_window_bytes=200, outgoing_window_bytes=900)
        self.server, self.leader = Server(), 0
        self.answers: list[tuple[int, int, bytes]] = []
        self.made: list[tuple[asyncio.Future[bytes] | RequestBatch, list[bytes]]] = []
        self.withdrawn: list[bytes] = []
        self.payloads = (b"%d " % number * self.random.choice((1, 1, 1, 9)) for number in range(1 << 20))

    def step(self) -> None:
        random, requester = self.random, self.requester
        match random.choice("aaabbbxxxxxddddddddclw"):
            case "a":
                payload, timeout_ns = next(self.payloads), random.choice((NEVER, 30 * MS))
                self.made.append((requester.ask(payload, timeout_ns=timeout_ns), [payload]))
            case "b":
                payloads = [next(self.payloads) for _ in range(random.randint(1, 20))]
                batch = requester.ask_many(*payloads, timeout_ns=random.choice((NEVER, 30 * MS)))
                self.made.append((batch, payloads))
            case "x":
                self.exchange()
            case "d":
                self.deliver(random.randint(1, 8))
            case "c" if self.made:
                waiter, payloads = random.choice(self.made)
                if isinstance(waiter, RequestBatch) and not waiter.future.done():
                    self.withdrawn += payloads[waiter.sent_count :]
                (waiter.future if isinstance(waiter, RequestBatch) else waiter).cancel()
                requester.window.withdraw(waiter)
            case "l":
                self.answers.clear()
                self.leader = (self.leader + random.randint(1, 2)) % 3
                requester.asked(self.leader)
                requester.elect(self.leader)
            case "w":
                requester.dialogue.wait(10 * MS)

    def exchange(self) -> None:
        """Let the server have what was sent; it may lose the end."""
        asked = self.requester.asked(self.leader)
        self.requester.window.pump()
        self.answers += map(self.server.answer, asked)

    def deliver(self, count: int) -> None:
        """Let some answers arrive, in one piece; now and then replies come in another order, or again.

        A refusal comes after the replies before it: one connection brings both.
        """
        taken, self.answers = self.answers[:count], self.answers[count:]
        if all(code == RequestCode.REPLY for _, code, _ in taken):
            if self.random.random() < 0.1:
                self.random.shuffle(taken)
            if self.random.random() < 0.1:
                self.answers = taken[:2] + self.answers
        ids = self.requester.term, 7, 0
        frames = (
            egress_frames(REQUEST_HEADER.pack(*REQUEST_MESSAGE, *ids, sequence, code) + reply)
            for sequence, code, reply in taken
        )
        self.requester.dialogue.feed(self.leader, b"".join(frames))
        self.requester.window.pump()

    def outcomes(self) -> Iterator[tuple[bytes, bytes | BaseException]]:
        """Iterate over the payloads whose callers were told, with what they were told."""
        for waiter, payloads in self.made:
            if isinstance(waiter, RequestBatch):
                if not waiter.future.cancelled():
                    yield from zip(payloads, waiter.outcomes, strict=True)
            elif not waiter.cancelled():
                yield payloads[0], waiter.exception() or waiter.result()


@pytest.mark.parametrize("seed", range(40))
async def test_whatever_happens_each_runs_once_and_its_caller_is_told_the_truth(seed: int) -> None:
    story = Story(seed)
    for _ in range(300):
        story.step()
    for _ in range(1000):
        story.exchange()
        story.deliver(100)
        if not story.requester.window.outstanding() and not story.requester.window.has_unsent:
            break

    ran = story.server.ran
    begun = [payload for _, payloads in story.made for payload in payloads]
    assert len({*ran}) == len(ran)
    assert not {*ran} & {*story.withdrawn}
    assert ran == [payload for payload in begun if payload in {*ran}]
    for payload, told in story.outcomes():
        if isinstance(told, RequestIndeterminateError):
            assert await told.resolve() == b"reply to " + payload
        elif isinstance(told, RejectedError):
            assert payload not in ran
        else:
            assert told == b"reply to " + payload
