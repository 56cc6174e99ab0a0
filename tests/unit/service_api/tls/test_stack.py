"""Who is let in on which endpoint, who is believed to be whom, and what happens to files that change."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import uvloop

from tests.facts import has_facts
from tests.tls import CLUSTER, OTHER_CLUSTER, Issuer
from tests.waiting import until, within
from trimaran.service_api.access.identity import CallerRole
from trimaran.service_api.cluster_id import ClusterId
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.net import handshake_errors, transport
from trimaran.service_api.net.connection_gate import AcceptedConnection, ConnectionGate, GateLimits
from trimaran.service_api.net.transport import SOCKETS, Listener, NetworkStack, PeerRefusedError, Purpose
from trimaran.service_api.tls import TlsSettings, TlsStack, client_network
from trimaran.service_api.types import MemberId

ANY_PORT: Final = Endpoint("127.0.0.1", 0)
ONE: Final = MemberId(1)


def on_both_loops(test: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    """Run a test on each of the two event loops, whose TLS is not the same code."""

    def run(make_loop: Callable[[], asyncio.AbstractEventLoop], **arguments: object) -> None:
        with asyncio.Runner(loop_factory=make_loop) as runner:
            runner.run(test(**arguments))

    own = inspect.signature(test)
    loop = inspect.Parameter("make_loop", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__dict__["__signature__"] = own.replace(parameters=[*own.parameters.values(), loop])
    run.__name__, run.__doc__ = test.__name__, test.__doc__
    both = pytest.mark.parametrize(
        "make_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
    )
    decorated: Callable[..., None] = both(run)
    return decorated


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer.create(tmp_path / "certs")


@pytest.fixture
def other(tmp_path: Path, issuer: Issuer) -> Issuer:
    """The same authority, and another cluster."""
    return Issuer(issuer.authority, OTHER_CLUSTER)


class Server:
    """Echoes on one endpoint, and notes who came and who was refused."""

    def __init__(self, stack: NetworkStack, purpose: Purpose) -> None:
        self.stack, self.purpose = stack, purpose
        self.accepted: asyncio.Queue[AcceptedConnection] = asyncio.Queue()
        self.refusals: asyncio.Queue[str] = asyncio.Queue()
        self.gate = ConnectionGate({purpose: GateLimits.of_count(8)}, warn=self._warn)
        self.listener: Listener | None = None

    def _warn(self, event: str, **fields: object) -> None:
        self.refusals.put_nowait(str(fields.get("reason")))

    async def echo(
        self, accepted: AcceptedConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.accepted.put_nowait(accepted)
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
        writer.close()

    @property
    def endpoint(self) -> Endpoint:
        assert self.listener is not None
        return self.listener.endpoint


@asynccontextmanager
async def serving(settings: TlsSettings, purpose: Purpose, member_id: int | None = 1) -> AsyncIterator[Server]:
    stack = TlsStack(settings, member_id=None if member_id is None else MemberId(member_id))
    server = Server(stack, purpose)
    server.listener = await stack.listen_for_streams(purpose, ANY_PORT, server.echo, gate=server.gate)
    try:
        async with within(30):
            yield server
    finally:
        server.listener.close()
        await server.listener.wait_closed()
        server.gate.close()


async def say_hello(stack: NetworkStack, server: Server, member_id: MemberId | None = None) -> bytes:
    """Dial and return the echo; empty if there is none."""
    reader, writer = await stack.dial_streams(server.purpose, server.endpoint, member_id=member_id)
    try:
        writer.write(b"hello")
        return await reader.read(5)
    except OSError:
        return b""
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("role", [CallerRole.CLIENT, CallerRole.OBSERVER, CallerRole.OPERATOR, CallerRole.MEMBER])
@on_both_loops
async def test_a_certificate_says_who_a_caller_is(issuer: Issuer, role: CallerRole) -> None:
    caller = TlsStack(issuer.of(role, "2"))

    async with serving(issuer.member(1), Purpose.CONSENSUS) as server:
        assert await say_hello(caller, server) == b"hello"
        accepted = await server.accepted.get()

    assert (accepted.caller.role, accepted.caller.name, accepted.caller_detail) == (role, "2", "")


@pytest.mark.parametrize(
    ("shown", "detail"),
    [
        (lambda issuer, other: replace(issuer.member(2), certificate="", key=""), "no certificate"),
        (
            lambda issuer, other: other.member(2),
            "the certificate of trimaran://0000000000000001/member/2: another cluster: "
            "cluster_id=0000000000000001 expected=3f9a0c12d45e77b1",
        ),
        (lambda issuer, other: issuer.host("localhost"), "a certificate without an identity"),
    ],
    ids=["no certificate", "another cluster", "no identity"],
)
@pytest.mark.parametrize("purpose", [Purpose.CONSENSUS, Purpose.LOG])
@on_both_loops
async def test_who_shows_nothing_of_this_cluster_is_a_stranger_and_cannot_speak_as_a_member(
    issuer: Issuer, other: Issuer, purpose: Purpose, shown: Callable[[Issuer, Issuer], TlsSettings], detail: str
) -> None:
    caller = TlsStack(replace(shown(issuer, other), verify="name"))

    async with serving(issuer.member(1), purpose) as server:
        if purpose is Purpose.CONSENSUS:
            assert await say_hello(caller, server) == b"hello"
            accepted = await server.accepted.get()
            assert accepted.caller.role is CallerRole.STRANGER
            assert accepted.caller_detail.startswith(detail)
            return
        assert await say_hello(caller, server) == b""
        reason = await server.refusals.get()
        expected = "shows no certificate, and needs one here" if detail == "no certificate" else detail
        assert expected in reason
        assert server.accepted.empty()
        assert server.gate.refused_counts["log", "handshake"] == 1
        assert server.gate.count(Purpose.LOG) == 0


@pytest.mark.parametrize("pinned", ["", "spiffe://prod.example/ns/trimaran", "spiffe://prod.example/ns/guest"])
async def test_a_spiffe_uri_is_an_identity_with_the_trust_domain_and_path_of_the_setting_alone(
    issuer: Issuer, pinned: str
) -> None:
    shown = issuer.of_spiffe(CallerRole.OPERATOR, "eve", prefix="spiffe://prod.example/ns/guest")
    caller = TlsStack(replace(shown, verify="name"))

    async with serving(replace(issuer.member(1), spiffe_prefix=pinned), Purpose.CONSENSUS) as server:
        assert await say_hello(caller, server) == b"hello"
        accepted = await server.accepted.get()

    is_pinned = pinned == "spiffe://prod.example/ns/guest"
    assert accepted.caller.role is (CallerRole.OPERATOR if is_pinned else CallerRole.STRANGER)
    assert is_pinned or f"spiffe_prefix={pinned!r}" in accepted.caller_detail


@pytest.mark.parametrize("role", [CallerRole.CLIENT, CallerRole.OPERATOR])
@on_both_loops
async def test_a_client_cannot_reach_a_link_of_members(issuer: Issuer, role: CallerRole) -> None:
    caller = TlsStack(issuer.of(role, "app"))

    async with serving(issuer.member(1), Purpose.CATCHUP) as server:
        assert await say_hello(caller, server) == b""

        reason = await server.refusals.get()
        assert has_facts(reason, "only members", f"{role} app (by certificate)")


@on_both_loops
async def test_what_is_no_tls_is_refused_at_once_and_named(issuer: Issuer) -> None:
    async with serving(issuer.member(1), Purpose.INGRESS) as server:
        assert await say_hello(SOCKETS, server) == b""

        assert "speak TLS" in await server.refusals.get()
        assert server.gate.count(Purpose.INGRESS) == 0


@on_both_loops
async def test_an_older_version_of_tls_is_refused(issuer: Issuer) -> None:
    context = ssl.create_default_context(cafile=issuer.member(1).authorities)
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    async with serving(issuer.member(1), Purpose.INGRESS) as server:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.get_running_loop().create_connection(
                asyncio.Protocol, "127.0.0.1", server.endpoint.port, ssl=context
            )
        assert "TLS 1.3" in await server.refusals.get()


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"begins_in": timedelta(days=-9), "lifetime": timedelta(days=1)}, "expired"),
        ({"begins_in": timedelta(days=3)}, "not yet valid"),
    ],
)
@on_both_loops
async def test_a_certificate_that_is_not_valid_now_is_refused(
    issuer: Issuer, how: dict[str, timedelta], reason: str
) -> None:
    settings = issuer.member(2, **how)
    then = datetime.now(UTC) + how["begins_in"] + timedelta(hours=1)
    caller = TlsStack(settings, now=lambda: then)

    async with serving(issuer.member(1), Purpose.INGRESS) as server:
        assert await say_hello(caller, server) == b""

        assert has_facts(await server.refusals.get(), "certificate", "refused", reason)


@on_both_loops
async def test_a_certificate_of_another_authority_is_refused(issuer: Issuer, tmp_path: Path) -> None:
    stranger = Issuer.create(tmp_path / "others").of(CallerRole.OPERATOR, "ops")
    caller = TlsStack(replace(stranger, authorities=issuer.member(1).authorities))

    async with serving(issuer.member(1), Purpose.INGRESS) as server:
        assert await say_hello(caller, server) == b""

        assert has_facts(await server.refusals.get(), "certificate", "refused")


# --- dialling


@on_both_loops
async def test_a_member_demands_the_member_that_it_means(issuer: Issuer) -> None:
    caller = TlsStack(issuer.member(0), member_id=MemberId(0))

    async with serving(issuer.member(1), Purpose.LOG) as server:
        assert await say_hello(caller, server, ONE) == b"hello"
        with pytest.raises(PeerRefusedError, match=r"not member 2 of cluster 3f9a0c12d45e77b1: .* shows .* member 1"):
            await say_hello(caller, server, MemberId(2))


@on_both_loops
async def test_a_member_demands_its_own_cluster(issuer: Issuer, other: Issuer) -> None:
    caller = TlsStack(issuer.member(0), member_id=MemberId(0))

    async with serving(other.member(1), Purpose.CONSENSUS) as server:
        with pytest.raises(PeerRefusedError, match=r"not member 1 of cluster 3f9a.*0000000000000001/member/1: another"):
            await say_hello(caller, server, ONE)


@on_both_loops
async def test_a_client_verifies_by_cluster_whatever_the_address_is(issuer: Issuer, other: Issuer) -> None:
    anonymous = TlsSettings(authorities=issuer.member(1).authorities)
    by_cluster = TlsStack(anonymous, cluster_id=CLUSTER)

    async with serving(issuer.of(CallerRole.MEMBER, "1", names=["nowhere.example"]), Purpose.INGRESS) as server:
        assert await say_hello(by_cluster, server) == b"hello"
        with pytest.raises(PeerRefusedError, match=r"a member.*0000000000000001"):
            await say_hello(TlsStack(anonymous, cluster_id=OTHER_CLUSTER), server)
        with pytest.raises(PeerRefusedError, match="mismatch"):
            await say_hello(TlsStack(anonymous), server)  # by name: nothing says which cluster
        with pytest.raises(PeerRefusedError, match="mismatch"):
            await say_hello(TlsStack(replace(anonymous, verify="name"), cluster_id=CLUSTER), server)


@on_both_loops
async def test_a_client_verifies_by_name_where_no_cluster_is_known(issuer: Issuer) -> None:
    caller = TlsStack(TlsSettings(authorities=issuer.host("127.0.0.1").authorities))

    async with serving(issuer.host("127.0.0.1"), Purpose.ARCHIVE, member_id=None) as server:
        assert await say_hello(caller, server) == b"hello"


@on_both_loops
async def test_a_client_cannot_be_the_server_of_another(issuer: Issuer) -> None:
    """Who has a client's certificate cannot pretend to be a member, not even where names are not compared."""
    caller = TlsStack(TlsSettings(authorities=issuer.member(1).authorities), cluster_id=CLUSTER)

    async with serving(issuer.of(CallerRole.CLIENT, "app"), Purpose.INGRESS, member_id=None) as server:
        with pytest.raises(PeerRefusedError, match=r"certificate.*refused"):
            await say_hello(caller, server)


@on_both_loops
async def test_threads_dial_with_tls(issuer: Issuer) -> None:
    caller = TlsStack(issuer.of(CallerRole.OBSERVER, "spark"))

    def ask() -> bytes:
        with caller.dial_blocking(Purpose.DOCUMENTS, server.endpoint, 10) as connection:
            connection.sendall(b"hello")
            return connection.recv(5)

    async with serving(issuer.member(1), Purpose.DOCUMENTS) as server:
        assert await asyncio.to_thread(ask) == b"hello"
        wrong = TlsStack(TlsSettings(authorities=issuer.member(1).authorities), cluster_id=OTHER_CLUSTER)
        with pytest.raises(PeerRefusedError, match="a member"):
            await asyncio.to_thread(wrong.dial_blocking, Purpose.DOCUMENTS, server.endpoint, 10)


def test_verification_by_cluster_needs_to_know_which(issuer: Issuer) -> None:
    with pytest.raises(ConfigurationError, match=r"verify='cluster' .*id"):
        TlsStack(TlsSettings(authorities=issuer.member(1).authorities, verify="cluster"))


def test_settings_and_a_stack_are_not_both_given(issuer: Issuer) -> None:
    settings = issuer.of(CallerRole.CLIENT, "app")
    stack = client_network(settings)

    assert client_network(None) is SOCKETS
    assert client_network(settings, network=stack) is stack
    with pytest.raises(ConfigurationError, match=r"tls.*network"):
        client_network(settings, network=TlsStack(issuer.member(1)))


@on_both_loops
async def test_a_stack_without_a_certificate_does_not_listen(issuer: Issuer) -> None:
    stack = TlsStack(TlsSettings(authorities=issuer.member(1).authorities))

    with pytest.raises(ConfigurationError, match="listener"):
        await stack.listen_for_streams(
            Purpose.ARCHIVE, ANY_PORT, Server(stack, Purpose.ARCHIVE).echo, gate=ConnectionGate()
        )


# --- files that change


@on_both_loops
async def test_a_new_certificate_counts_for_new_connections_and_those_that_are_open_stay(issuer: Issuer) -> None:
    settings = issuer.member(1)
    caller = TlsStack(issuer.of(CallerRole.CLIENT, "app"))

    async with serving(settings, Purpose.INGRESS) as server:
        stack = server.stack
        assert isinstance(stack, TlsStack)
        reader, writer = await caller.dial_streams(server.purpose, server.endpoint)
        before = writer.get_extra_info("peercert")["serialNumber"]
        assert not stack.renew()
        issuer.member(1)
        assert stack.renew()
        writer.write(b"still here")
        assert await reader.readexactly(10) == b"still here"
        writer.transport.abort()

        _, writer = await caller.dial_streams(server.purpose, server.endpoint)
        assert writer.get_extra_info("peercert")["serialNumber"] != before
        writer.transport.abort()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda issuer, settings: Path(settings.key).write_text("garbage"), "key file cannot"),
        (lambda issuer, settings: Path(settings.certificate).unlink(), "certificate file"),
        (
            lambda issuer, settings: issuer.of(CallerRole.MEMBER, "1", lifetime=timedelta(seconds=-1)),
            "expired",
        ),
        (
            lambda issuer, settings: Issuer(issuer.authority, ClusterId(7)).member(1),
            "another cluster",
        ),
    ],
)
@on_both_loops
async def test_new_files_that_cannot_be_used_change_nothing(
    issuer: Issuer, spoil: Callable[[Issuer, TlsSettings], object], message: str
) -> None:
    settings = issuer.member(1)
    caller = TlsStack(issuer.of(CallerRole.CLIENT, "app"))

    async with serving(settings, Purpose.INGRESS) as server:
        stack = server.stack
        assert isinstance(stack, TlsStack)
        spoil(issuer, settings)
        with pytest.raises(ConfigurationError, match=message):
            stack.renew()
        assert not stack.renew()
        assert await say_hello(caller, server) == b"hello"

        issuer.member(1)
        assert stack.renew()
        assert await say_hello(caller, server) == b"hello"


@on_both_loops
async def test_who_dials_without_a_watch_reads_changed_files_by_itself(issuer: Issuer) -> None:
    caller = TlsStack(issuer.of(CallerRole.CLIENT, "app"))

    async with serving(issuer.member(1), Purpose.INGRESS) as server:
        issuer.of(CallerRole.CLIENT, "app", names=["renewed"])
        assert await say_hello(caller, server) == b"hello"
        assert caller.credentials.chain[0].names == ("renewed",)


# --- what strangers do to a handshake


@on_both_loops
async def test_a_connection_that_makes_room_for_another_is_ended_in_the_middle_of_its_handshake(issuer: Issuer) -> None:
    async with serving(issuer.member(1), Purpose.INGRESS) as server:
        silent = [await asyncio.open_connection("127.0.0.1", server.endpoint.port) for _ in range(9)]

        assert await silent[0][0].read() == b""  # evicted: eight are let in
        assert server.gate.count(Purpose.INGRESS) == 8
        for _, writer in silent:
            writer.transport.abort()
        await until(lambda: not server.gate.count(Purpose.INGRESS))


@on_both_loops
async def test_handshakes_that_get_no_further_make_room_for_newer_ones(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "_HANDSHAKE_LIMIT", 2)
    caller = TlsStack(issuer.of(CallerRole.CLIENT, "app"))

    async with serving(issuer.member(1), Purpose.INGRESS) as server:
        assert isinstance(server.listener, transport.SocketListener)
        handshakes = server.listener._handshakes
        begun = [await asyncio.open_connection("127.0.0.1", server.endpoint.port) for _ in range(3)]
        for _, writer in begun:
            seen = [*handshakes]
            writer.write(b"\x16\x03\x01\x02\x00\x01")
            await until(partial(handshakes.__ne__, dict.fromkeys(seen)))
        assert await begun[0][0].read() == b""
        assert server.gate.refused_counts["ingress", "evicted"] == 1

        assert await say_hello(caller, server) == b"hello"
        assert server.gate.refused_counts["ingress", "evicted"] == 2
        for _, writer in begun:
            writer.transport.abort()


@on_both_loops
async def test_handshakes_begin_a_few_in_a_pass_of_the_loop(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of half handshakes made passes of 7 ms, in which nobody else was served."""
    passes, begun_in = [0], Counter[int]()
    begin = transport.SocketListener._begin_handshake

    def count(listener: transport.SocketListener, accepted: AcceptedConnection) -> None:
        begun_in[passes[0]] += 1
        begin(listener, accepted)

    def pass_on() -> None:
        passes[0] += 1
        if begun_in.total() < 8:
            loop.call_soon(pass_on)

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(transport.SocketListener, "_begin_handshake", count)
    monkeypatch.setattr(transport, "_HANDSHAKE_STARTS", 2)
    async with serving(issuer.member(1), Purpose.CONSENSUS) as server:
        sockets = [socket.create_connection(("127.0.0.1", server.endpoint.port)) for _ in range(8)]
        for sock in sockets:
            sock.sendall(b"\x16\x03\x01\x02\x00\x01")
        loop.call_soon(pass_on)
        await until(lambda: begun_in.total() >= 8)
        for sock in sockets:
            sock.close()

        assert max(begun_in.values()) <= 2


@on_both_loops
async def test_who_closes_before_its_first_byte_costs_no_handshake(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 silent connections took 556 MB: a handshake began with each of them when it ended."""
    async with serving(issuer.member(1), Purpose.CONSENSUS) as server:
        began: list[object] = []
        monkeypatch.setattr(transport.SocketListener, "_begin_handshake", lambda self, accepted: began.append(accepted))
        _, writer = await asyncio.open_connection("127.0.0.1", server.endpoint.port)
        writer.close()

        assert "first byte" in await server.refusals.get()
        assert began == []


@on_both_loops
async def test_who_sends_nothing_is_ended_in_time(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (transport, handshake_errors):
        monkeypatch.setattr(module, "HANDSHAKE_TIMEOUT_S", 0.2)

    async with serving(issuer.member(1), Purpose.CONSENSUS) as server:
        silent, writer = await asyncio.open_connection("127.0.0.1", server.endpoint.port)

        assert await silent.read() == b""
        assert has_facts(await server.refusals.get(), "handshake", "0.2 s")
        writer.transport.abort()
