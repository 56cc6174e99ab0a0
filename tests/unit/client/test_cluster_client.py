"""The client on real sockets, against fake members on 127.0.0.1."""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import pytest
import uvloop

from tests.facts import has_facts
from tests.unit.client.fake_member import (
    DEADLINE_S,
    FakeCluster,
    egress_frames,
    fake_cluster,
    session_event,
    session_message,
)
from tests.waiting import passes, until, within
from trimaran.client import (
    ClientConfig,
    ClusterClient,
    ConnectRejectedError,
    ConnectTimeoutError,
    EgressMessage,
)
from trimaran.client.connection import MemberConnection
from trimaran.service_api.errors import ConfigurationError, LocalProtocolError, SessionClosedError
from trimaran.service_api.wire.session import EventCode, SessionCloseRequest, SessionConnectRequest


@dataclass
class Listener:
    """Remembers egress and lets a test wait for it."""

    payloads: list[bytes] = field(default_factory=list)
    leaders: list[tuple[int, int]] = field(default_factory=list)
    events: list[tuple[EventCode, str]] = field(default_factory=list)
    called: asyncio.Event = field(default_factory=asyncio.Event)
    fail_on: bytes | None = None

    def on_message(self, timestamp: int, leadership_term_id: int, payload: memoryview) -> None:
        self.payloads.append(bytes(payload))
        self.called.set()
        if self.payloads[-1] == self.fail_on:
            raise ZeroDivisionError

    def on_new_leader(self, leadership_term_id: int, leader_member_id: int) -> None:
        self.leaders.append((leadership_term_id, leader_member_id))
        self.called.set()

    def on_session_event(self, code: EventCode, detail: str) -> None:
        self.events.append((code, detail))
        self.called.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with within(DEADLINE_S):
            while not condition():
                self.called.clear()
                await self.called.wait()


async def offer_until_refused(client: ClusterClient) -> None:
    async with within(DEADLINE_S):
        while True:
            await client.offer(b"x")
            await asyncio.sleep(0)


async def until_leaderless(client: ClusterClient) -> None:
    """Wait until the client has noticed that its leader is gone."""
    await until(lambda: not client.has_leader)


async def next_message(client: ClusterClient) -> EgressMessage:
    async with within(DEADLINE_S):
        return await anext(client.egress())


async def test_messages_come_back_in_order() -> None:
    async with fake_cluster() as cluster, ClusterClient.connect(cluster.endpoints) as client:
        for index in range(1000):
            await client.offer(b"%d" % index)
        messages = [await next_message(client) for _ in range(1000)]

    assert [message.payload for message in messages] == [b"%d" % index for index in range(1000)]
    assert messages[0] == EgressMessage(payload=b"0", timestamp=1, leadership_term_id=0)


@pytest.mark.parametrize("given", [[0], [1], [2], [0, 1], [2, 1, 0]])
async def test_any_subset_of_endpoints_leads_to_the_leader(given: list[int]) -> None:
    async with fake_cluster(leader=1) as cluster:
        endpoints = [cluster.members[index].endpoint for index in given]
        async with ClusterClient.connect(endpoints) as client:
            assert client.leader_member_id == 1


async def test_a_connect_can_be_awaited() -> None:
    async with fake_cluster() as cluster:
        client = await ClusterClient.connect(cluster.endpoints[0])

        assert repr(client) == "<ClusterClient OPEN session=7 term=0 leader=0>"
        assert client.has_leader
        await client.aclose()
        assert client.is_closed


async def test_a_connect_waits_for_a_leader_to_be_elected() -> None:
    async with fake_cluster(leader=-1) as cluster:
        async with asyncio.TaskGroup() as tasks:
            connecting = tasks.create_task(connect(cluster))
            await cluster.until(lambda: any(member.messages for member in cluster.members))
            await cluster.elect(2)
        client = connecting.result()

        assert (client.leader_member_id, client.leadership_term_id) == (2, 1)
        await client.aclose()


async def connect(cluster: FakeCluster) -> ClusterClient:
    return await ClusterClient.connect(cluster.endpoints)


async def test_a_connect_error_lists_what_was_tried() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        closed_endpoint = f"127.0.0.1:{silent.getsockname()[1]}"

        with pytest.raises(ConnectTimeoutError) as raised:
            await ClusterClient.connect([closed_endpoint], connect_timeout_s=0.1)

    assert raised.value.tried == {closed_endpoint: "connection refused"}


async def test_a_connect_error_tells_silence_from_a_closed_port() -> None:
    async with fake_cluster(1) as cluster:
        cluster.members[0].is_answering = False

        with pytest.raises(ConnectTimeoutError, match=r"connected.*answer"):
            await ClusterClient.connect(cluster.endpoints, connect_timeout_s=0.1)


async def test_a_member_that_talks_nonsense_is_named_in_the_connect_error() -> None:
    async def talk_nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".ljust(64))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(talk_nonsense, "127.0.0.1", 0)
    endpoint = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        with pytest.raises(ConnectTimeoutError, match="egress frame_length=1347703880"):
            await ClusterClient.connect([endpoint], connect_timeout_s=0.2)


async def test_a_refused_connect_raises_the_clusters_reason() -> None:
    async with fake_cluster(1) as cluster:
        answer = session_event(EventCode.AUTHENTICATION_REJECTED, detail="who are you")
        cluster.members[0].connect_answer = answer

        with pytest.raises(ConnectRejectedError, match="code=AUTHENTICATION_REJECTED detail='who are you'") as caught:
            await ClusterClient.connect(cluster.endpoints)
        with pytest.raises(ConnectRejectedError) as with_credentials:
            await ClusterClient.connect(cluster.endpoints, credentials=b"me")

    assert has_facts(caught.value.advice, "no credentials=", "PasswordCredentials", "CredentialsSupplier")
    assert with_credentials.value.advice == ""


@pytest.mark.parametrize("endpoints", [[], ["nonsense"], ["host:0"], ["host:70000"], [":9000"]])
async def test_endpoints_that_cannot_be_are_refused(endpoints: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="endpoint"):
        await ClusterClient.connect(endpoints)


async def test_a_cancelled_connect_leaves_nothing_behind() -> None:
    async with fake_cluster() as cluster:
        for member in cluster.members:
            member.is_answering = False
        connecting = asyncio.create_task(connect(cluster))
        await cluster.until(lambda: any(member.messages for member in cluster.members))

        connecting.cancel()

        with pytest.raises(asyncio.CancelledError):
            await connecting
        await cluster.until(lambda: not any(member.connections for member in cluster.members))


@pytest.mark.parametrize("length", [0, 1, 65440, 65441, 500_000])
async def test_payloads_are_fragmented_both_ways(length: int) -> None:
    payload = bytes(index * 7 & 0xFF for index in range(length))
    async with fake_cluster(1) as cluster, ClusterClient.connect(cluster.endpoints) as client:
        await client.offer(payload)
        message = await next_message(client)

        assert cluster.members[0].payloads == [payload]
        assert message.payload == payload


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
async def test_any_buffer_of_bytes_can_be_offered(kind: Callable[[bytes], bytes]) -> None:
    async with fake_cluster(1) as cluster, ClusterClient.connect(cluster.endpoints) as client:
        await client.offer(kind(b"payload"))

        assert (await next_message(client)).payload == b"payload"


@pytest.mark.parametrize(
    ("wrong", "fact"),
    [
        ({"read_from": 1}, "read_from=1"),
        ({"max_staleness_s": -1.0}, "max_staleness_s=-1.0"),
        ({"min_log_position": 1 << 63}, f"min_log_position={1 << 63}"),
        ({"min_log_position": 1.5}, "min_log_position=1.5"),
        ({"service_id": 1 << 31}, f"service_id={1 << 31}"),
    ],
)
async def test_a_query_with_wrong_arguments_is_refused_before_it_is_sent(wrong: dict[str, Any], fact: str) -> None:
    async with fake_cluster(1) as cluster, ClusterClient.connect(cluster.endpoints) as client:
        with pytest.raises(LocalProtocolError, match=fact):
            await client.query(b"", **wrong)


async def test_too_long_a_payload_is_refused_with_both_numbers() -> None:
    async with fake_cluster(1) as cluster, ClusterClient.connect(cluster.endpoints) as client:
        with pytest.raises(LocalProtocolError, match="length=9000000 limit=8388576"):
            await client.offer(bytes(9_000_000))


async def test_a_listener_gets_messages_and_egress_is_refused() -> None:
    listener = Listener()
    async with (
        fake_cluster() as cluster,
        ClusterClient.connect(cluster.endpoints, egress_listener=listener) as client,
    ):
        client.try_offer(b"hello")
        await listener.until(lambda: listener.payloads == [b"hello"])

        with pytest.raises(LocalProtocolError, match="egress_listener"):
            client.egress()
        assert listener.events == [(EventCode.OK, cluster.endpoints_text)]


async def test_a_listener_that_raises_loses_nothing() -> None:
    contexts: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: contexts.append(context))
    listener = Listener(fail_on=b"b")
    async with (
        fake_cluster(1) as cluster,
        ClusterClient.connect(cluster.endpoints, egress_listener=listener) as client,
    ):
        for payload in (b"a", b"b", b"c"):
            client.try_offer(payload)
        await listener.until(lambda: len(listener.payloads) == 3)

    assert listener.payloads == [b"a", b"b", b"c"]
    assert [type(context["exception"]) for context in contexts] == [ZeroDivisionError]


async def test_the_session_goes_on_when_the_leader_dies() -> None:
    listener = Listener()
    async with (
        fake_cluster() as cluster,
        ClusterClient.connect(cluster.endpoints, egress_listener=listener) as client,
    ):
        await cluster.until(lambda: all(member.keep_alives for member in cluster.members))
        session_id = client.cluster_session_id
        await cluster.members[0].stop()
        await until_leaderless(client)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(client.offer(b"waits"))
            await cluster.elect(2)
        await listener.until(lambda: listener.payloads == [b"waits"])

        assert listener.leaders == [(1, 2)]
        assert client.cluster_session_id == session_id
        assert cluster.members[2].payloads == [b"waits"]


async def test_offers_wait_until_the_same_leader_is_back() -> None:
    listener = Listener()
    async with (
        fake_cluster(1) as cluster,
        ClusterClient.connect(cluster.endpoints, egress_listener=listener) as client,
    ):
        await cluster.members[0].stop()
        await until_leaderless(client)
        offer = asyncio.create_task(client.offer(b"x"))
        await cluster.members[0].start()
        await offer
        await listener.until(lambda: listener.payloads == [b"x"])

    assert listener.leaders == [(0, 0)]


async def test_a_member_that_missed_the_election_tells_at_the_next_keep_alive() -> None:
    """The new leader had no connection of this session when it was elected."""
    listener = Listener()
    async with (
        fake_cluster() as cluster,
        ClusterClient.connect(cluster.endpoints, egress_listener=listener) as client,
    ):
        await cluster.until(lambda: all(member.keep_alives for member in cluster.members))
        await cluster.members[1].stop()
        await cluster.members[0].stop()
        await cluster.elect(1)
        await cluster.members[1].start()
        await listener.until(lambda: bool(listener.leaders))

        assert client.leader_member_id == 1
        assert listener.leaders[-1] == (1, 1)


async def test_the_session_ends_when_no_leader_comes() -> None:
    async with fake_cluster(1) as cluster:
        client = await ClusterClient.connect(cluster.endpoints, new_leader_timeout_s=0.1)
        await cluster.members[0].stop()

        with pytest.raises(SessionClosedError, match="no leader"):
            await offer_until_refused(client)
        with pytest.raises(SessionClosedError, match="no leader"):
            await next_message(client)
        await client.aclose()


async def test_keep_alives_go_to_every_member_while_the_client_is_open() -> None:
    async with fake_cluster() as cluster:
        config = ClientConfig(endpoints=tuple(cluster.endpoints), keep_alive_interval_s=0.01)
        async with ClusterClient.connect(config=config):
            await cluster.until(lambda: all(len(member.keep_alives) >= 5 for member in cluster.members))
        await cluster.until(lambda: not any(member.connections for member in cluster.members))
        counts = [len(member.keep_alives) for member in cluster.members]

        assert [member.accepted_count for member in cluster.members] == [1, 1, 1]
        assert counts == [len(member.keep_alives) for member in cluster.members]


async def test_a_full_window_makes_try_offer_false_and_offer_wait() -> None:
    async with (
        within(DEADLINE_S),
        fake_cluster(1) as cluster,
        ClusterClient.connect(cluster.endpoints) as client,
    ):
        member = cluster.members[0]
        member.is_reading = member.is_echoing = False
        payload = bytes(100_000)
        offered, is_waiting = 0, False
        while not is_waiting:  # the kernel may take more a moment after the socket was full, but not for ever
            # Each turn of the loop gives what is accepted to the socket, until that is full.
            while client.try_offer(payload):
                offered += 1
                await asyncio.sleep(0)
            offer = asyncio.create_task(client.offer(payload))
            offered += 1
            await passes(1)
            is_waiting = not offer.done()

        member.is_reading = True
        await cluster.notify()
        await offer
        await cluster.until(lambda: len(member.payloads) == offered)


async def test_sockets_are_not_read_while_the_egress_queue_is_full() -> None:
    async with fake_cluster(1) as cluster:
        config = ClientConfig(endpoints=tuple(cluster.endpoints), egress_queue_limit=10)
        async with ClusterClient.connect(config=config) as client:
            (connection,) = cluster.members[0].connections
            frame = egress_frames(session_message(bytes(50_000), term=0, session_id=7))
            for _ in range(500):
                connection.send_raw(frame)
            # A member cannot get rid of 25 MB to a client that does not read.
            first = await next_message(client)
            was_stuck = connection.unsent_bytes > 0
            others = [await next_message(client) for _ in range(499)]

            assert was_stuck
            assert {len(message.payload) for message in (first, *others)} == {50_000}


async def test_nonsense_from_a_member_drops_its_connection_and_the_client_comes_back() -> None:
    contexts: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: contexts.append(context))
    async with fake_cluster() as cluster, ClusterClient.connect(cluster.endpoints) as client:
        member = cluster.members[0]
        await cluster.until(lambda: bool(member.keep_alives))
        member.connections[0].send_raw(b"\xff" * 64)
        await cluster.until(lambda: member.accepted_count == 2 and len(member.keep_alives) == 2)
        await client.offer(b"still here")

        assert (await next_message(client)).payload == b"still here"
    assert "frame_length=-1" in str(contexts[0]["exception"])


async def test_a_session_that_the_cluster_closes_ends_after_its_last_messages() -> None:
    async with fake_cluster(1) as cluster, ClusterClient.connect(cluster.endpoints) as client:
        (connection,) = cluster.members[0].connections
        connection.send(session_message(b"last", term=0, session_id=7))
        connection.send(session_event(EventCode.CLOSED, correlation_id=-1, detail="TIMEOUT"))
        last = await next_message(client)

        assert last.payload == b"last"
        with pytest.raises(SessionClosedError, match="reason=TIMEOUT"):
            await next_message(client)
        with pytest.raises(SessionClosedError, match="reason=TIMEOUT"):
            await client.offer(b"x")


async def test_a_waiting_offer_ends_when_the_session_does() -> None:
    async with fake_cluster(1) as cluster:
        client = await ClusterClient.connect(cluster.endpoints)
        await cluster.members[0].stop()
        offer = asyncio.create_task(offer_until_refused(client))
        await asyncio.sleep(0)
        await client.aclose()

        with pytest.raises(SessionClosedError, match="this client"):
            await offer


async def test_aclose_tells_the_leader_and_ends_the_iteration() -> None:
    async with fake_cluster() as cluster:
        client = await ClusterClient.connect(cluster.endpoints)
        received: list[EgressMessage] = []

        async def iterate() -> None:
            received.extend([message async for message in client.egress()])

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(iterate())
            await client.offer(b"x")
            await cluster.until(lambda: bool(cluster.members[0].payloads))
            await client.aclose()
            await client.aclose()

        assert [message.payload for message in received] in ([], [b"x"])
        assert [type(message) for message in cluster.members[0].messages[-1:]] == [SessionCloseRequest]
        with pytest.raises(SessionClosedError, match="this client"):
            client.try_offer(b"x")


async def test_aclose_waits_a_moment_only_for_a_silent_leader() -> None:
    async with fake_cluster(1) as cluster:
        config = ClientConfig(endpoints=tuple(cluster.endpoints), close_timeout_s=0.05)
        client = await ClusterClient.connect(config=config)
        cluster.members[0].is_answering = False

        async with within(DEADLINE_S):
            await client.aclose()

        assert client.is_closed


async def test_only_one_task_may_wait_for_egress() -> None:
    async with fake_cluster(1) as cluster, ClusterClient.connect(cluster.endpoints) as client:
        first = asyncio.create_task(next_message(client))
        await asyncio.sleep(0)

        with pytest.raises(LocalProtocolError, match="another task"):
            await next_message(client)
        await client.offer(b"x")
        assert (await first).payload == b"x"


async def test_waiting_for_egress_can_be_cancelled_and_begun_again() -> None:
    async with fake_cluster(1) as cluster, ClusterClient.connect(cluster.endpoints) as client:
        messages = client.egress()
        with pytest.raises(TimeoutError):
            async with within(0.01):
                await anext(messages)
        await client.offer(b"x")

        assert (await anext(messages)).payload == b"x"


async def test_two_clients_with_one_seed_send_the_same_bytes() -> None:
    requests = []
    for _ in range(2):
        async with fake_cluster() as cluster:
            chance = Random(7)
            config = ClientConfig(
                endpoints=tuple(cluster.endpoints), random=chance.random, make_secret=partial(chance.randbytes, 32)
            )
            async with ClusterClient.connect(config=config):
                pass
            requests += [each for member in cluster.members for each in member.messages if is_connect(each)]

    assert requests[0] == requests[1]


def is_connect(message: object) -> bool:
    return isinstance(message, SessionConnectRequest)


async def test_a_dial_that_nobody_answers_is_begun_again() -> None:
    with socket.socket() as deaf, socket.socket() as first:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        first.connect(deaf.getsockname())  # the queue is full now: the system drops every further SYN
        endpoint = f"127.0.0.1:{deaf.getsockname()[1]}"
        config = ClientConfig(endpoints=(endpoint,), connect_timeout_s=0.3, dial_timeout_s=0.05)

        with pytest.raises(ConnectTimeoutError) as raised:
            await ClusterClient.connect(config=config)

    assert raised.value.tried == {endpoint: "timed out"}


async def test_a_connection_without_acknowledgements_is_given_up_soon_unless_the_member_holds_it_back() -> None:
    async with fake_cluster(1) as cluster, ClusterClient.connect(cluster.endpoints) as client:
        (connection,) = client._conductor._connections.values()
        assert isinstance(connection, MemberConnection)
        before_ms = user_timeout_ms(connection)
        cluster.members[0].is_reading = False

        async with within(DEADLINE_S):
            while connection.is_writable:
                await client.offer(bytes(60_000))
                await asyncio.sleep(0)
        full_ms = user_timeout_ms(connection)
        cluster.members[0].is_reading = True
        await cluster.notify()
        await cluster.until(lambda: connection.is_writable)

        assert (before_ms, full_ms, user_timeout_ms(connection)) == (4_000, 30_000, 4_000)


def user_timeout_ms(connection: MemberConnection) -> int:
    assert connection._transport is not None
    sock = connection._transport.get_extra_info("socket")
    value = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert isinstance(value, int)
    return value


async def test_a_connect_can_be_used_once() -> None:
    async with fake_cluster(1) as cluster:
        connecting = ClusterClient.connect(cluster.endpoints)
        async with connecting:
            with pytest.raises(LocalProtocolError, match="used before"):
                await connecting


def test_a_configuration_and_other_arguments_are_refused_together() -> None:
    config = ClientConfig(endpoints=("host:1",))

    with pytest.raises(ConfigurationError, match="arguments=endpoints,client_info"):
        ClusterClient.connect(["host:1"], client_info="x", config=config)


async def test_credentials_and_client_info_go_with_the_connect_request() -> None:
    async with (
        fake_cluster(1) as cluster,
        ClusterClient.connect(cluster.endpoints, credentials=b"secret", client_info="test"),
    ):
        (request, *_) = cluster.members[0].messages

        assert isinstance(request, SessionConnectRequest)
        assert (request.encoded_credentials, request.client_info) == (b"secret", "test")


SCENARIOS = [
    test
    for name, test in list(globals().items())
    if name.startswith("test_") and inspect.iscoroutinefunction(test) and not inspect.signature(test).parameters
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__.removeprefix("test_"))
def test_everything_holds_on_uvloop_too(scenario: Callable[[], Coroutine[None, None, None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
