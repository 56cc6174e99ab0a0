"""Who sends how much: what the publisher counts, rates by session, and the line that names the one that sends most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from structlog.testing import capture_logs

from tests.unit.cluster.runtime.fake_gate import quiet_gate
from tests.unit.cluster.runtime.fake_ingress_owner import FakeIngressOwner
from tests.unit.cluster.runtime.ingress_client import SESSION, TERM, Client, session_message
from trimaran.cluster.core.sessions.sessions import ClusterSession
from trimaran.cluster.runtime.links import session_traffic
from trimaran.cluster.runtime.links.ingress import Ingress
from trimaran.cluster.runtime.links.session_traffic import (
    CLIENT_INFO_LIMIT,
    LINE_INTERVAL_NS,
    SessionClient,
    SessionRate,
)
from trimaran.service_api.types import INGRESS_STREAM_ID, ClusterSessionId, CorrelationId
from trimaran.service_api.wire.frame import encode_message
from trimaran.service_api.wire.request import REQUEST_HEADER, REQUEST_MESSAGE
from trimaran.service_api.wire.session_frame import session_of_prefix

SECOND_NS = 1_000_000_000
OTHER = 12


@pytest.fixture
def owner() -> FakeIngressOwner:
    return FakeIngressOwner(term_length_bytes=64 << 20, mtu_length_bytes=8 << 10, window_bytes=256 << 20)


@pytest.fixture
def ingress(owner: FakeIngressOwner) -> Ingress:
    ingress = Ingress(owner, gate=quiet_gate())
    ingress.traffic.look()
    return ingress


def pass_a_second(owner: FakeIngressOwner, ingress: Ingress) -> None:
    owner.now_ns += SECOND_NS
    ingress.traffic.look()


def counts_of(owner: FakeIngressOwner) -> dict[int, dict[int, int]]:
    """How many messages of each length were counted for each session."""
    assert owner.publisher is not None
    found: dict[int, dict[int, int]] = {}
    for length, counts in owner.publisher.ingress_counts:
        for prefix, count in counts.items():
            of_length = found.setdefault(length, {})
            of_length[session_of_prefix(prefix)] = of_length.get(session_of_prefix(prefix), 0) + count
    return {length: counts for length, counts in found.items() if counts}


def request(payload: bytes, session: int = SESSION) -> bytes:
    header = REQUEST_HEADER.pack(*REQUEST_MESSAGE, TERM, session, 0, 1, 0)
    return encode_message(header + payload, stream_id=INGRESS_STREAM_ID, mtu_length=1408)


@pytest.mark.parametrize("pieces", [[1], [2, 5], [40]], ids=str)
def test_messages_count_for_their_session_however_they_come(
    owner: FakeIngressOwner, ingress: Ingress, pieces: list[int]
) -> None:
    """Runs of one session, runs of several on one connection, requests, other lengths, and fragments."""
    client = Client(ingress)
    client.connection.life.bind(ClusterSessionId(OTHER), TERM)
    short = [session_message(b"x"), session_message(b"y", session=OTHER), session_message(b"z", session=OTHER)]
    messages = [session_message(b"same")] * 20 + short * 4 + [request(b"r")] * 3 + [session_message(b"long" * 20)]
    messages += [session_message(bytes(100_000), session=OTHER)]

    index = 0
    while index < len(messages):
        length = pieces[index % len(pieces)]
        client.send(b"".join(messages[index : index + length]))
        index += length

    found = counts_of(owner)
    (long_length,) = (length for length in found if length > 100_000)
    assert found == {96: {SESSION: 24 + 3, OTHER: 8}, 160: {SESSION: 1}, long_length: {OTHER: 1}}


def test_what_is_not_appended_is_not_counted(owner: FakeIngressOwner, ingress: Ingress) -> None:
    client = Client(ingress)

    client.send(session_message(b"mine") + session_message(b"not mine", session=OTHER) + session_message(b"mine"))

    assert counts_of(owner) == {96: {SESSION: 2}}


def test_rates_are_those_of_the_last_seconds(owner: FakeIngressOwner, ingress: Ingress) -> None:
    client = Client(ingress)
    for _ in range(7):
        client.send(session_message(b"m") * 10)
        pass_a_second(owner, ingress)

    assert ingress.traffic.find_rates() == {SESSION: SessionRate(10.0, 960.0)}
    for _ in range(5):
        pass_a_second(owner, ingress)
    assert ingress.traffic.find_rates() == {}


def test_a_member_that_does_not_lead_knows_no_rates(owner: FakeIngressOwner, ingress: Ingress) -> None:
    Client(ingress).send(session_message(b"m"))
    owner.publisher = None
    pass_a_second(owner, ingress)

    assert ingress.traffic.find_rates() == {}


def test_a_new_term_begins_without_rates(owner: FakeIngressOwner, ingress: Ingress) -> None:
    Client(ingress).send(session_message(b"m"))
    pass_a_second(owner, ingress)
    owner.make_publisher()
    pass_a_second(owner, ingress)

    assert ingress.traffic.find_rates() == {}


def lines(logs: Sequence[Mapping[str, object]], event: str) -> list[Mapping[str, object]]:
    return [line for line in logs if line["event"] == event]


def test_a_full_window_names_the_session_that_sends_the_most(owner: FakeIngressOwner, ingress: Ingress) -> None:
    client = Client(ingress)
    client.connection.life.bind(ClusterSessionId(OTHER), TERM)
    ingress.traffic.find_client = lambda session_id: SessionClient("ann", "10.0.0.9", f"job {session_id}", "0.1.0")
    with capture_logs() as logs:
        client.send(session_message(b"small") * 9)
        assert not lines(logs, "ingress.window_filled")
        owner.window_bytes = 1_024
        client.send(session_message(bytes(4_000), session=OTHER))
        client.send(session_message(bytes(4_000), session=OTHER))
        ingress.resume()
        client.send(session_message(b"small"))

    (line,) = lines(logs, "ingress.window_filled")
    assert (line["session_id"], line["principal"], line["address"], line["client_info"]) == (
        OTHER,
        "ann",
        "10.0.0.9",
        f"job {OTHER}",
    )
    assert (line["messages_per_s"], line["bytes_per_s"], line["share_percent"]) == (1, 4_064, 82)
    assert (line["session_count"], line["count"], line["log_level"]) == (2, 1, "warning")
    owner.now_ns += LINE_INTERVAL_NS
    with capture_logs() as logs:
        ingress.resume()
        client.send(session_message(b"small"))
    assert [line["count"] for line in lines(logs, "ingress.window_filled")] == [2]


def test_a_leader_that_holds_blames_nobody(owner: FakeIngressOwner, ingress: Ingress) -> None:
    client = Client(ingress)
    owner.window_bytes = -1
    ingress.pause()

    with capture_logs() as logs:
        client.send(session_message(b"came before it was held"))

    assert not lines(logs, "ingress.window_filled")


def test_a_rate_that_jumps_names_the_session_that_sends_the_most(
    owner: FakeIngressOwner, ingress: Ingress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_traffic, "JUMP_BYTES_PER_S", 32 << 10)
    client = Client(ingress)
    message = session_message(bytes(4_000))
    with capture_logs() as logs:
        for _ in range(3):
            client.send(message)
            pass_a_second(owner, ingress)
        assert not lines(logs, "ingress.rate_jumped")
        for _ in range(2):
            client.send(message * 16)
            pass_a_second(owner, ingress)

    (line,) = lines(logs, "ingress.rate_jumped")
    assert (line["session_id"], line["share_percent"], line["log_level"]) == (SESSION, 100, "info")


def test_a_rate_that_stays_high_is_usual_after_a_while(
    owner: FakeIngressOwner, ingress: Ingress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_traffic, "JUMP_BYTES_PER_S", 32 << 10)
    client = Client(ingress)
    message = session_message(bytes(4_000))
    with capture_logs() as logs:
        for _ in range(100):
            client.send(message * 16)
            pass_a_second(owner, ingress)

    assert len(lines(logs, "ingress.rate_jumped")) == 1


def test_what_a_client_says_of_itself_is_cut_and_moves_no_cursor() -> None:
    session = ClusterSession(
        cluster_session_id=ClusterSessionId(1),
        correlation_id=CorrelationId(1),
        opened_log_position=96,
        response_stream_id=102,
        response_channel="",
        encoded_principal=b"ann\x1b[31m",
        time_of_last_activity_ns=0,
        client_info="\x1b[31m" + "x" * 300,
        client_version=(0 << 16) | (3 << 8) | 1,
    )

    client = SessionClient.of(session, "-")

    assert (client.principal, client.address, client.client_version) == ("ann?[31m", "-", "0.3.1")
    assert client.client_info == ("?[31m" + "x" * 300)[:CLIENT_INFO_LIMIT]
