"""Bytes that no peer of ours would send: noise, other protocols, and real frames with something changed in them."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tests.waiting import within
from trimaran.archive.format.messages import AuthConnectRequest, ListRecordingRequest, ReplayRequest
from trimaran.archive.net.control import PROTOCOL_VERSION
from trimaran.cluster.messages.consensus import CanvassPosition, Vote
from trimaran.cluster.messages.settings import MemberSettings
from trimaran.service_api.types import ClusterSessionId, CorrelationId, MemberId, RecordingId, TermId
from trimaran.service_api.wire.frame import encode_frame
from trimaran.service_api.wire.link_frames import SetupFrame
from trimaran.service_api.wire.message import Message
from trimaran.service_api.wire.session import SessionConnectRequest, SessionKeepAlive, SessionMessageHeader

STREAM_IDS = {"ingress": 101, "consensus": 108, "log": 100, "catchup": 100, "archive": 10}
"""The stream that each endpoint expects, in the order of the ports."""

REFUSALS = {
    "ingress": "ingress.refused",
    "consensus": "consensus_link.refused",
    "log": "log_image.refused",
    "catchup": "log_image.refused",
    "archive": "archive_session.protocol_violated",
}
"""The one line that each endpoint logs about a connection that it refuses."""

HEADERS_LENGTH = 32 + 8
"""A frame header and the message header inside."""


@dataclass(slots=True, frozen=True)
class Attack:
    """Bytes to throw at an endpoint."""

    name: str
    data: bytes


def surely_refused() -> list[Attack]:
    """Beginnings that every endpoint must refuse as soon as it has read them."""
    setup_of_nobody = SetupFrame(session_id=77, stream_id=999).encode()
    return [
        Attack("http", b"GET / HTTP/1.1\r\nHost: example.org\r\nAccept: */*\r\n\r\n".ljust(128, b"\n")),
        Attack("all ones", b"\xff" * 256),
        Attack("negative length", struct.pack("<i", -64).ljust(128, b"\1")),
        Attack("huge length", struct.pack("<i", 2**31 - 1).ljust(128, b"\1")),
        Attack("another stream", setup_of_nobody.ljust(128, b"\0")),
        Attack("no setup frame", encode_frame(b"hello".ljust(64, b"."), stream_id=7)),
    ]


def noise(seed: int, *, count: int) -> Iterator[Attack]:
    """Random bytes, alone or after a setup frame that the endpoint welcomes; what comes of it is the endpoint's."""
    source = random.Random(seed)
    for index in range(count):
        yield Attack(f"noise {seed}/{index}", source.randbytes(source.choice((1, 31, 64, 500, 70_000))))


def mutated(endpoint: str, member_id: int, seed: int, *, count: int) -> Iterator[Attack]:
    """Real conversations of an endpoint with a few bytes changed, some cut short.

    On the consensus link only headers are changed: members trust what each other's messages say, and a term or position
    that is merely wrong is not garbage.
    """
    source = random.Random(f"{endpoint} {seed}")
    setup = SetupFrame(session_id=member_id, stream_id=STREAM_IDS[endpoint], member_id=member_id).encode()
    frames = [encode_frame(message.encode(), stream_id=STREAM_IDS[endpoint]) for message in _MESSAGES[endpoint]]
    greeting = [_greeting(member_id)] if endpoint == "consensus" else []
    for index in range(count):
        parts = [setup, *greeting, *(source.choices(frames, k=3) if frames else [source.randbytes(256)])]
        for _ in range(source.randrange(1, 6)):
            which = source.randrange(len(parts))
            part = bytearray(parts[which])
            part[source.randrange(HEADERS_LENGTH if endpoint == "consensus" else len(part))] = source.randrange(256)
            parts[which] = bytes(part)
        data = b"".join(parts)
        if source.random() < 0.2:
            data = data[: source.randrange(len(data))]
        yield Attack(f"mutated {endpoint} {seed}/{index}", data)


def _greeting(member_id: int) -> bytes:
    """The settings of a member of the cluster that the tests start, so that it is heard."""
    settings = MemberSettings(
        member_id=MemberId(member_id),
        member_count=3,
        service_count=1,
        service_queue_limit_bytes=64 << 20,
        term_length_bytes=64 << 10,
        mtu_length_bytes=8192,
        checksums=True,
        shared_timer_ids=False,
        aeron_messages_only=False,
        app_version=1 << 8,
    )
    return encode_frame(settings.encode(), stream_id=STREAM_IDS["consensus"])


async def throw(endpoint: str, attack: Attack, *, close_timeout_s: float) -> bool:
    """Connect, send, say that nothing follows; whether the other side closes the connection in time."""
    host, _, port = endpoint.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        async with within(close_timeout_s):
            writer.write(attack.data)
            await writer.drain()
            writer.write_eof()
            while await reader.read(65536):
                pass
    except TimeoutError:
        return False
    except OSError:
        pass
    finally:
        writer.transport.abort()
    return True


_MESSAGES: dict[str, list[Message]] = {
    "ingress": [
        SessionConnectRequest(
            correlation_id=CorrelationId(1),
            response_stream_id=102,
            version=1 << 8,
            response_channel="",
            encoded_credentials=b"",
            client_info="hostile",
        ),
        SessionKeepAlive(leadership_term_id=TermId(0), cluster_session_id=ClusterSessionId(999)),
        SessionMessageHeader(leadership_term_id=TermId(0), cluster_session_id=ClusterSessionId(999), timestamp=0),
    ],
    "consensus": [
        CanvassPosition(
            log_leadership_term_id=TermId(0),
            log_position=0,
            leadership_term_id=TermId(0),
            follower_member_id=MemberId(1),
        ),
        Vote(
            candidate_term_id=TermId(0),
            log_leadership_term_id=TermId(0),
            log_position=0,
            candidate_member_id=MemberId(1),
            follower_member_id=MemberId(1),
            vote=False,
        ),
    ],
    "log": [],
    "catchup": [],
    "archive": [
        AuthConnectRequest(correlation_id=CorrelationId(1), response_stream_id=20, version=PROTOCOL_VERSION),
        ListRecordingRequest(control_session_id=1, correlation_id=CorrelationId(2), recording_id=RecordingId(0)),
        ReplayRequest(
            control_session_id=1,
            correlation_id=CorrelationId(3),
            recording_id=RecordingId(0),
            position=0,
            length=1 << 20,
            replay_stream_id=100,
        ),
    ],
}
