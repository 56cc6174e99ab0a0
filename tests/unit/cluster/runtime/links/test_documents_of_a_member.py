"""Questions at a member: answered a document at a time, to those who may have the answer."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from tests.facts import has_facts
from tests.unit.cluster.runtime.links.linked import (
    ASK,
    ONE,
    OTHER_STREAM_ID,
    QUESTION_STREAM_ID,
    Links,
    canvass,
    framed,
    setup,
)
from tests.waiting import until
from trimaran.cluster.runtime.ground.activities import ActivityScope
from trimaran.cluster.runtime.links.document_server import CONCURRENT_LIMIT, REQUEST_LIMIT_BYTES
from trimaran.service_api import ClusterError
from trimaran.service_api.access.identity import LOCAL_OPERATOR, Caller, CallerRole, Proof
from trimaran.service_api.access.permissions import ADVICE
from trimaran.service_api.cluster_id import ClusterId
from trimaran.service_api.documents.document import Refusal, read_document
from trimaran.service_api.types import (
    OPERATION_STREAM_ID,
    REFUSAL_STREAM_ID,
    STATUS_STREAM_ID,
)
from trimaran.service_api.wire.frame import encode_frame
from trimaran.service_api.wire.link_frames import SetupFrame
from trimaran.service_api.wire.stream import FrameParser


def question(request: bytes = b"{}", *, stream_id: int = QUESTION_STREAM_ID) -> bytes:
    return setup(-1, stream_id=stream_id) + encode_frame(request, stream_id=stream_id)


async def test_question_is_answered_a_document_at_a_time_then_the_connection_is_closed() -> None:
    mine = Links()
    async with ActivityScope() as tasks:
        mine.asked.tasks = tasks
        inbound, transport = mine.accepted(question(b"what"))
        await until(lambda: mine.requests == [b"what"])
        inbound.data_received(b"more")
        assert transport.take_written() == b""

        for answer in (b"first", b"last", None):
            mine.answers.put_nowait(answer)
        await until(lambda: transport.is_closing())

    frames = FrameParser().feed(transport.take_written())
    assert [(frame.payload, frame.stream_id) for frame in frames] == [
        (b"first", QUESTION_STREAM_ID),
        (b"last", QUESTION_STREAM_ID),
    ]
    assert not transport.is_aborted
    inbound.connection_lost(None)
    assert mine.asked.request_count == 0


async def test_question_may_come_in_pieces_and_each_stream_has_who_answers_it() -> None:
    mine = Links()
    async with ActivityScope() as tasks:
        mine.asked.tasks = tasks
        asked = question(b"abc", stream_id=OTHER_STREAM_ID)
        inbound, transport = mine.accepted(asked[:50])
        inbound.data_received(asked[50:])
        await until(lambda: transport.is_closing())

    (frame,) = FrameParser().feed(transport.take_written())
    assert (frame.payload, frame.stream_id) == (b"cba", OTHER_STREAM_ID)
    inbound.connection_lost(None)


async def test_questions_are_limited_on_each_stream() -> None:
    mine = Links()
    async with ActivityScope() as tasks:
        mine.asked.tasks = tasks
        accepted = [mine.accepted(question()) for _ in range(CONCURRENT_LIMIT + 1)]
        _, other = mine.accepted(question(stream_id=OTHER_STREAM_ID))
        await until(lambda: other.is_closing())

        assert [transport.is_aborted for _, transport in accepted] == [False] * CONCURRENT_LIMIT + [True]
        assert not other.is_aborted
        for inbound, _ in accepted:
            inbound.connection_lost(None)


async def test_an_asker_that_was_refused_for_the_limit_counts_for_nothing_and_one_that_asks_is_admitted() -> None:
    mine = Links()
    async with ActivityScope() as tasks:
        mine.asked.tasks = tasks
        accepted = [mine.accepted(question()) for _ in range(CONCURRENT_LIMIT + 1)]
        accepted[-1][0].connection_lost(None)
        counted = mine.asked.request_count
        admitted = [dialler.accepted.is_admitted for dialler, _ in accepted]
        for dialler, _ in accepted[:-1]:
            dialler.connection_lost(None)

    assert (counted, mine.asked.request_count) == (CONCURRENT_LIMIT, 0)
    assert admitted == [True] * CONCURRENT_LIMIT + [False]


async def test_an_answer_that_is_not_read_in_time_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimaran.cluster.runtime.links.inbound_connection._STRANGER_TIMEOUT_S", 0.01)
    mine = Links()
    async with ActivityScope() as tasks:
        mine.asked.tasks = tasks
        with capture_logs() as logs:
            _, transport = mine.accepted(question(stream_id=OTHER_STREAM_ID))
            await until(lambda: transport.is_aborted)

    assert [line["reason"] for line in logs] == [
        "answer was not read within 0.01 s: <DocumentRequest stream_id=1001 is_asked=True is_answered=True>"
    ]


async def test_a_question_that_takes_its_time_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimaran.cluster.runtime.links.inbound_connection._STRANGER_TIMEOUT_S", 0.01)
    mine = Links()
    async with ActivityScope() as tasks:
        mine.asked.tasks = tasks
        inbound, transport = mine.accepted(question())
        _, stranger = mine.accepted()
        await until(lambda: stranger.is_aborted)

        assert not transport.is_closed
        inbound.connection_lost(None)


async def test_a_stranger_who_would_operate_is_told_who_may_and_nothing_is_done() -> None:
    mine = Links()
    async with ActivityScope() as tasks:
        mine.asked.tasks = tasks
        with capture_logs() as logged:
            inbound, transport = mine.accepted(question(b'{"operation": "abort"}', stream_id=OPERATION_STREAM_ID))

    (frame,) = FrameParser().feed(transport.take_written())
    refusal = read_document(Refusal, frame.payload)
    assert frame.stream_id == REFUSAL_STREAM_ID
    assert has_facts(refusal.refused, "abort", "operator or member", "stranger")
    assert refusal.advice == ADVICE
    assert (mine.requests, transport.is_closing(), transport.is_aborted) == ([], True, False)
    assert [
        (line["event"], line["action"], line["outcome"], line["request"])
        for line in logged
        if line["event"].startswith("audit")
    ] == [("audit.action_refused", "abort", "refused", '{"operation": "abort"}')]
    inbound.connection_lost(None)
    assert mine.asked.request_count == 0


async def test_an_operator_who_is_known_is_answered() -> None:
    mine = Links()
    async with ActivityScope() as tasks:
        mine.asked.tasks = tasks
        inbound, transport = mine.accepted(caller=LOCAL_OPERATOR)
        inbound.data_received(question(b"{}", stream_id=OPERATION_STREAM_ID))
        mine.answers.put_nowait(b"done")
        mine.answers.put_nowait(None)
        await until(lambda: transport.is_closing())

    (frame,) = FrameParser().feed(transport.take_written())
    assert (frame.payload, frame.stream_id) == (b"done", OPERATION_STREAM_ID)
    inbound.connection_lost(None)


@pytest.mark.parametrize("role", [CallerRole.CLIENT, CallerRole.STRANGER])
async def test_status_is_for_readers_where_callers_are_known(role: CallerRole) -> None:
    mine = Links()
    inbound, transport = mine.accepted(caller=Caller(role, "app", Proof.CERTIFICATE))
    inbound.data_received(ASK)

    (frame,) = FrameParser().feed(transport.take_written())
    assert frame.stream_id == REFUSAL_STREAM_ID
    assert has_facts(read_document(Refusal, frame.payload).refused, "status", "observer or operator")
    assert transport.is_closing()
    inbound.connection_lost(None)


@pytest.mark.parametrize("stream_id", [STATUS_STREAM_ID, QUESTION_STREAM_ID])
async def test_a_question_for_another_cluster_is_refused_by_name_and_counted(stream_id: int) -> None:
    """The connection was closed, and the caller was told of no reason."""
    mine = Links()
    mine.links.announce(ClusterId(5))

    asked = SetupFrame(session_id=-1, stream_id=stream_id, cluster_id=6)
    inbound, transport = mine.accepted(asked.encode())

    (frame,) = FrameParser().feed(transport.take_written())
    refusal = read_document(Refusal, frame.payload)
    assert (frame.stream_id, refusal.is_other_cluster) == (REFUSAL_STREAM_ID, True)
    assert "cluster_id=0000000000000005 expected=0000000000000006" in refusal.refused
    assert mine.gate.refused_counts == {("consensus", "other_cluster"): 1}
    assert transport.is_closing()
    inbound.connection_lost(None)


@pytest.mark.parametrize(("own", "named"), [(5, 0), (0, 6), (5, 5)])
async def test_a_question_is_answered_where_one_of_both_does_not_know_the_cluster(own: int, named: int) -> None:
    mine = Links()
    if own:
        mine.links.announce(ClusterId(own))

    asked = SetupFrame(session_id=-1, stream_id=STATUS_STREAM_ID, cluster_id=named)
    inbound, transport = mine.accepted(asked.encode())

    (frame,) = FrameParser().feed(transport.take_written())
    assert frame.stream_id == STATUS_STREAM_ID
    inbound.connection_lost(None)


async def test_whoever_asks_may_go_before_the_answer_comes() -> None:
    mine = Links()
    async with ActivityScope() as tasks:
        mine.asked.tasks = tasks
        inbound, transport = mine.accepted(question())
        await until(lambda: mine.requests)

        inbound.connection_lost(None)
        await asyncio.sleep(0)
        mine.answers.put_nowait(b"late")
        await asyncio.sleep(0)

        assert mine.asked.request_count == 0
        assert not tasks._tasks
    assert transport.take_written() == b""


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (setup(-1, stream_id=QUESTION_STREAM_ID) + setup(-1), "request begins with frame type="),
        (setup(-1, stream_id=QUESTION_STREAM_ID) + framed(canvass(ONE)), "request begins with frame type="),
        (question(bytes(REQUEST_LIMIT_BYTES)), f"request of length={REQUEST_LIMIT_BYTES + 32} limit="),
    ],
    ids=["another setup frame", "another stream", "too long"],
)
async def test_what_is_no_question_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    mine = Links()

    with capture_logs() as logs:
        inbound, transport = mine.accepted(data)

    refusal = refusal_in(transport.take_written())
    assert refusal.refused.startswith(reason)
    assert (transport.is_closing(), transport.is_aborted) == (True, False)
    assert [line["reason"].startswith(reason) for line in logs] == [True]
    inbound.connection_lost(None)


def refusal_in(data: bytes) -> Refusal:
    (frame,) = FrameParser().feed(data)
    assert frame.stream_id == REFUSAL_STREAM_ID
    refusal = read_document(Refusal, frame.payload)
    assert refusal.is_failure
    return refusal


@pytest.mark.parametrize(
    ("error", "expected"),
    [(ClusterError("no such member"), "no such member"), (ValueError("secret"), "answer.failed")],
)
async def test_a_question_that_fails_in_the_member_is_answered_with_an_error(error: Exception, expected: str) -> None:
    """The connection was ended without a word, and the caller guessed."""
    mine = Links()
    mine.failure = error
    async with ActivityScope() as tasks:
        mine.asked.tasks = tasks
        with capture_logs() as logs:
            inbound, transport = mine.accepted(question(stream_id=OTHER_STREAM_ID))
            await until(lambda: transport.is_closing())

    refusal = refusal_in(transport.take_written())
    assert expected in refusal.refused
    assert "secret" not in refusal.refused
    assert not transport.is_aborted
    assert logs
    inbound.connection_lost(None)
    assert mine.asked.request_count == 0


async def test_a_status_that_cannot_be_made_is_answered_with_an_error() -> None:
    mine = Links()
    mine.failure = ValueError("of a field")
    with capture_logs() as logs:
        inbound, transport = mine.accepted(ASK)

    assert "answer.failed" in refusal_in(transport.take_written()).refused
    assert [line["event"] for line in logs] == ["answer.failed"]
    inbound.connection_lost(None)
