"""Asking a member: whatever is at the other end, there is a status or one clear reason, in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.facts import has_facts
from tests.tls import CLUSTER, Issuer
from tests.unit.cluster.cli.answers import member_status
from tests.waiting import slowness
from trimaran.benchmarks.rig.processes import find_base_ports
from trimaran.cluster.cli.shared.cluster_report import ask_members
from trimaran.cluster.documents.query import Outcome, StatusQueryError, query_status
from trimaran.service_api import ConfigurationError
from trimaran.service_api.access.identity import CallerRole
from trimaran.service_api.documents.document import LINE_LENGTH_LIMIT, Refusal
from trimaran.service_api.documents.member_status import STATUS_LENGTH_LIMIT_BYTES
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.net.connection_gate import ConnectionGate, GateLimits
from trimaran.service_api.net.transport import Purpose
from trimaran.service_api.tls import TlsStack
from trimaran.service_api.types import CONSENSUS_STREAM_ID, REFUSAL_STREAM_ID, STATUS_STREAM_ID, MemberId
from trimaran.service_api.wire.frame import FRAME_HEADER, TYPE_DATA, UNFRAGMENTED, encode_frame
from trimaran.service_api.wire.link_frames import SetupFrame

ENOUGH_S = 20.0
"""For what is there: never used up."""
SHORT_S = 0.05
"""For what never comes: the time limit under test."""

STATUS = member_status(1, state="LEADER")
DOCUMENT = STATUS.model_dump_json().encode()
ANSWER = encode_frame(DOCUMENT, stream_id=STATUS_STREAM_ID)


REFUSAL = encode_frame(
    Refusal(refused="status needs the role observer", advice="use TLS").model_dump_json().encode(),
    stream_id=REFUSAL_STREAM_ID,
)


class Peer(asyncio.Protocol):
    """Whatever listens: reads a question, then does what the test says."""

    def __init__(self, behave: Callable[[asyncio.Transport], None], received: bytearray) -> None:
        self._behave = behave
        self._received = received
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._received += data
        self._behave(self._transport)


class Listening:
    """An endpoint, and what came in there."""

    def __init__(self, endpoint: str, received: bytearray) -> None:
        self.endpoint = endpoint
        self.received = received


@asynccontextmanager
async def peer(behave: Callable[[asyncio.Transport], None]) -> AsyncIterator[Listening]:
    received = bytearray()
    transports: list[asyncio.Transport] = []

    def behave_and_keep(transport: asyncio.Transport) -> None:
        transports.append(transport)
        behave(transport)

    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Peer(behave_and_keep, received), "127.0.0.1", 0)
    try:
        yield Listening(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", received)
    finally:
        server.close()
        for transport in transports:
            transport.abort()
        await server.wait_closed()


def says(data: bytes, *, then_closes: bool = False) -> Callable[[asyncio.Transport], None]:
    def behave(transport: asyncio.Transport) -> None:
        transport.write(data)
        if then_closes:
            transport.close()

    return behave


async def failure_of(listening: Listening, timeout_s: float = ENOUGH_S) -> StatusQueryError:
    with pytest.raises(StatusQueryError) as raised:
        await query_status(listening.endpoint, timeout_s)
    return raised.value


async def test_a_member_that_answers_is_asked_with_one_setup_frame() -> None:
    async with peer(says(ANSWER, then_closes=True)) as listening:
        status = await query_status(listening.endpoint, ENOUGH_S)

    assert status == STATUS
    assert SetupFrame.decode(bytes(listening.received)).stream_id == STATUS_STREAM_ID
    assert len(listening.received) == 64


@pytest.mark.parametrize("cut", [1, 31, 32, 200])
async def test_an_answer_may_come_in_pieces(cut: int) -> None:
    def behave(transport: asyncio.Transport) -> None:
        transport.write(ANSWER[:cut])
        asyncio.get_running_loop().call_soon(transport.write, ANSWER[cut:])

    async with peer(behave) as listening:
        assert await query_status(listening.endpoint, ENOUGH_S) == STATUS


async def test_an_answer_counts_although_the_member_keeps_the_connection() -> None:
    async with peer(says(ANSWER + ANSWER)) as listening:
        assert await query_status(listening.endpoint, ENOUGH_S) == STATUS


async def test_nobody_listening_is_refused() -> None:
    failure = await failure_of(Listening(f"127.0.0.1:{find_base_ports(1)[0]}", bytearray()))

    assert failure.outcome is Outcome.REFUSED


@pytest.mark.parametrize("host", ["[fe80::1%nowhere]", "x" * 70])
async def test_a_host_that_nobody_knows_is_unreachable(host: str) -> None:
    """An interface that is not there, a name that is too long for one: both are told without asking the network."""
    failure = await failure_of(Listening(f"{host}:9001", bytearray()))

    assert failure.outcome is Outcome.UNREACHABLE


async def test_an_endpoint_that_is_none_is_the_users_mistake() -> None:
    with pytest.raises(ConfigurationError, match=r"port='x' .*1 to 65535"):
        await query_status("127.0.0.1:x", ENOUGH_S)


async def test_silence_times_out() -> None:
    """A process that stands still: the kernel takes the connection, nobody answers."""
    async with peer(lambda transport: None) as listening:
        failure = await failure_of(listening, SHORT_S)

    assert (failure.outcome, failure.detail) == (Outcome.TIMED_OUT, "connected, but no answer within 0.05 s")


async def test_half_an_answer_and_then_silence_is_partial() -> None:
    async with peer(says(ANSWER[:100])) as listening:
        failure = await failure_of(listening, 10 * SHORT_S)

    assert (failure.outcome, failure.detail) == (
        Outcome.PARTIAL,
        "100 bytes of an answer, and no more within 0.5 s",
    )


async def test_half_an_answer_and_then_the_end_is_partial() -> None:
    async with peer(says(ANSWER[:100], then_closes=True)) as listening:
        failure = await failure_of(listening)

    assert (failure.outcome, failure.detail) == (Outcome.PARTIAL, "closed after 100 bytes of an answer")


@pytest.mark.parametrize("end", [asyncio.Transport.close, asyncio.Transport.abort])
async def test_a_connection_that_is_closed_without_a_word_says_so(end: Callable[[asyncio.Transport], None]) -> None:
    """What a member does that is stopping, or that knows no such stream."""
    async with peer(lambda transport: end(transport)) as listening:
        failure = await failure_of(listening)

    assert (failure.outcome, failure.detail) == (
        Outcome.CLOSED,
        "the connection was closed without an answer",
    )


async def test_a_member_with_tls_that_is_asked_in_plain_text_is_told_apart() -> None:
    """It closes; asked again as a TLS client would, it begins a handshake."""

    class WithTls(Peer):
        def data_received(self, data: bytes) -> None:
            assert self._transport is not None
            if data[0] == 0x16:
                self._transport.write(b"\x16\x03\x03\x00\x02")
            else:
                self._transport.close()

    server = await asyncio.get_running_loop().create_server(
        lambda: WithTls(lambda transport: None, bytearray()), "127.0.0.1", 0
    )
    async with server:
        failure = await failure_of(Listening(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", bytearray()))

    assert failure.outcome is Outcome.CLOSED
    assert "the member uses TLS" in failure.detail


async def test_a_request_that_failed_in_the_member_says_why() -> None:
    refusal = Refusal(refused="no answer could be made", advice="the log of the member says more", is_failure=True)
    async with peer(says(encode_frame(refusal.model_dump_json().encode(), stream_id=REFUSAL_STREAM_ID))) as listening:
        failure = await failure_of(listening)

    assert failure.outcome is Outcome.FAILED
    assert has_facts(failure.detail, refusal.refused, "log")


@pytest.mark.parametrize(
    ("is_shown", "expected"),
    [(True, ("authority", "subject=", "issuer=CN=another authority", "not_after=")), (False, ("none was shown",))],
)
async def test_a_certificate_that_is_refused_is_named(
    tmp_path: Path, is_shown: bool, expected: tuple[str, ...]
) -> None:
    """Issue 44 §2: it was told as a question in plain text."""
    issuer, other = Issuer.create(tmp_path / "certs"), Issuer.create(tmp_path / "other", name="another authority")
    mine = replace(other.of(CallerRole.OPERATOR, "eve"), authorities=issuer.member(1).authorities)
    stack = TlsStack(mine if is_shown else replace(mine, certificate="", key=""), cluster_id=CLUSTER)
    server = TlsStack(issuer.member(1), member_id=MemberId(1))
    # Of the links of members, which demand a certificate; the others let a stranger in, who is told what is missing.
    gate = ConnectionGate({Purpose.LOG: GateLimits.of_count(8)}, warn=lambda *_, **__: None)
    listener = await server.listen_for_streams(Purpose.LOG, Endpoint("127.0.0.1", 0), nobody, gate=gate)
    try:
        with pytest.raises(StatusQueryError) as raised:
            await query_status(str(listener.endpoint), ENOUGH_S, network=stack)
    finally:
        listener.close()
        await listener.wait_closed()
        gate.close()

    assert raised.value.outcome is Outcome.CLOSED
    assert has_facts(raised.value.detail, *expected)
    assert "plain text" not in raised.value.detail


async def nobody(*_: object) -> None:
    """What a connection is given to that does not come about."""


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "frame_length="),
        (b"\xff" * 64, "frame_length=-1"),
        (bytes(64), "frame_length=0"),
        (
            FRAME_HEADER.pack(STATUS_LENGTH_LIMIT_BYTES + 1, 0, UNFRAGMENTED, TYPE_DATA, 0, 0, STATUS_STREAM_ID, 0, 0),
            f"frame_length={STATUS_LENGTH_LIMIT_BYTES + 1} expected=32..{STATUS_LENGTH_LIMIT_BYTES}",
        ),
        (
            FRAME_HEADER.pack((1 << 31) - 1, 0, UNFRAGMENTED, TYPE_DATA, 0, 0, STATUS_STREAM_ID, 0, 0),
            f"frame_length={(1 << 31) - 1}",
        ),
        (encode_frame(DOCUMENT, stream_id=CONSENSUS_STREAM_ID), "stream_id=108 expected"),
        (SetupFrame(session_id=1, stream_id=STATUS_STREAM_ID).encode(), "frame type=5"),
        (encode_frame(b"", stream_id=STATUS_STREAM_ID), "Invalid JSON"),
        (encode_frame(b"\xff\xfe", stream_id=STATUS_STREAM_ID), "Invalid JSON"),
        (encode_frame(b"[" * 10_000, stream_id=STATUS_STREAM_ID), "Invalid JSON"),
        (encode_frame(b"[]", stream_id=STATUS_STREAM_ID), "status: "),
    ],
    ids=["http", "ones", "zeros", "too long", "huge", "stream", "setup", "empty", "no text", "deep", "list"],
)
async def test_anything_else_is_one_line_that_says_what_was_wrong(data: bytes, expected: str) -> None:
    async with peer(says(data)) as listening:
        failure = await failure_of(listening)

    assert failure.outcome is Outcome.INVALID
    assert expected in failure.detail
    assert len(failure.detail.splitlines()) == 1
    assert len(failure.detail) <= LINE_LENGTH_LIMIT


async def test_members_are_asked_at_once_and_each_gets_its_own_row() -> None:
    """The time limit holds for all together; a wrong member in a right place is seen."""
    async with peer(says(ANSWER)) as right, peer(lambda transport: None) as silent, peer(says(b"?" * 64)) as garbage:
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        silent_ids, timeout_s = range(10, 40), 0.5 * slowness()
        endpoints = {1: right.endpoint, 2: right.endpoint, 3: f"127.0.0.1:{find_base_ports(1)[0]}", 4: garbage.endpoint}

        reports = await ask_members(endpoints | dict.fromkeys(silent_ids, silent.endpoint), timeout_s)
        elapsed_s = loop.time() - start_s

    found = {report.member_id: (report.outcome, report.status) for report in reports}
    assert found[1] == (Outcome.ANSWERED, STATUS)
    assert found[2] == (Outcome.INVALID, None)
    assert has_facts(reports[1].detail, f"{right.endpoint}", "member 1")
    assert found[3] == (Outcome.REFUSED, None)
    assert found[4] == (Outcome.INVALID, None)
    assert {found[i] for i in silent_ids} == {(Outcome.TIMED_OUT, None)}
    assert list(found) == [1, 2, 3, 4, *silent_ids]
    assert elapsed_s < 30 * timeout_s


async def test_who_may_not_have_the_answer_is_told_who_may_and_how_it_was_asked() -> None:
    async with peer(says(REFUSAL, then_closes=True)) as listening:
        with pytest.raises(StatusQueryError) as caught:
            await query_status(listening.endpoint, ENOUGH_S)

    assert caught.value.outcome is Outcome.NOT_ALLOWED
    assert has_facts(str(caught.value), "status", "observer", "TLS", "TCP", "control socket")


async def test_a_refusal_that_is_none_is_no_answer() -> None:
    async with peer(says(encode_frame(b"{", stream_id=REFUSAL_STREAM_ID))) as listening:
        with pytest.raises(StatusQueryError) as caught:
            await query_status(listening.endpoint, ENOUGH_S)

    assert caught.value.outcome is Outcome.INVALID
