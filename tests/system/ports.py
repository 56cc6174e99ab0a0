"""Who is let in at which port of a real member, as from another machine: measured, and written into docs/security.md.

    python -m tests.system.ports

Each caller tries to do at each port what the port is for. `yes`: it got what it asked for. `no`: the connection was
ended, or it was told no.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from tests.places import ROOT
from tests.system.cluster_process import STEADY, SystemCluster
from tests.tls import OTHER_CLUSTER, Issuer
from tests.waiting import patient, within
from trimaran.archive.net.client import ArchiveClient
from trimaran.cluster.documents.inspection import InspectionRequest, Topic
from trimaran.cluster.documents.operations import Operation, run_operation
from trimaran.cluster.documents.query import StatusQueryError, query_document, query_status
from trimaran.cluster.messages.settings import MemberSettings
from trimaran.cluster.settings.config import parse_members
from trimaran.service_api import ClusterError
from trimaran.service_api.access.identity import CallerRole
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.net.transport import NetworkStack, Purpose, SocketStack
from trimaran.service_api.tls import TlsSettings, TlsStack
from trimaran.service_api.types import (
    CONSENSUS_STREAM_ID,
    EGRESS_STREAM_ID,
    INGRESS_STREAM_ID,
    INSPECTION_STREAM_ID,
    LOG_STREAM_ID,
    CorrelationId,
    MemberId,
)
from trimaran.service_api.wire.frame import encode_frame
from trimaran.service_api.wire.link_frames import SetupFrame
from trimaran.service_api.wire.message import decode_message
from trimaran.service_api.wire.session import EventCode, SessionConnectRequest, SessionEvent
from trimaran.service_api.wire.stream import FrameParser

DOCUMENT: Final = ROOT / "docs" / "security.md"
BEGIN: Final = "<!-- The table is written by `python -m tests.system.ports`. -->"
END: Final = "<!-- End of the table. -->"

_TARGET: Final = 0
_CLAIMED: Final = 1
_REMOVED: Final = 3
_NEVER_ADDED: Final = 7
_ANSWER_S: Final = 10.0
_STAYS_S: Final = 2.0
"""A connection that is not ended within this time is let in, at a port where the member has nothing to say."""


@dataclass(slots=True)
class Port:
    """One port of a member, and what is asked for there."""

    name: str
    field: str
    """Of the member's endpoints."""
    ask: Callable[[NetworkStack, Endpoint], Awaitable[bool]]
    """Whether it was given."""


def make_callers(issuer: Issuer, scratch: Path) -> dict[str, NetworkStack]:
    """Make everybody who tries; those who claim to be a member claim to be member 1."""
    authorities = issuer.member(2).authorities
    elsewhere = Issuer.create(scratch / "elsewhere")
    other_directory, expired_directory = scratch / "other", scratch / "expired"
    for directory in (other_directory, expired_directory):
        directory.mkdir()
    other = Issuer(replace(issuer.authority, directory=other_directory), OTHER_CLUSTER).member(_CLAIMED)
    begin = timedelta(days=-9)
    expired = Issuer(replace(issuer.authority, directory=expired_directory)).member(
        _CLAIMED, begins_in=begin, lifetime=timedelta(days=1)
    )
    return {
        "plain text": SocketStack(uses_control_sockets=False),
        "no certificate": TlsStack(
            TlsSettings(authorities=authorities), cluster_id=issuer.cluster_id, uses_control_sockets=False
        ),
        "another authority's": TlsStack(replace(elsewhere.member(_CLAIMED), authorities=authorities)),
        "another cluster's member 1": TlsStack(replace(other, authorities=authorities, verify="name")),
        "member 1, expired": TlsStack(
            replace(expired, authorities=authorities), now=lambda: datetime.now(UTC) + begin + timedelta(hours=1)
        ),
        "client": TlsStack(issuer.of(CallerRole.CLIENT, "app")),
        "observer": TlsStack(issuer.of(CallerRole.OBSERVER, "app")),
        "operator": TlsStack(issuer.of(CallerRole.OPERATOR, "ops")),
        f"member {_NEVER_ADDED}, never added": TlsStack(issuer.member(_NEVER_ADDED)),
        f"member {_REMOVED}, removed": TlsStack(issuer.member(_REMOVED)),
        "member 2": TlsStack(issuer.member(2)),
        "member 1": TlsStack(issuer.member(_CLAIMED)),
    }


async def _read(
    network: NetworkStack, purpose: Purpose, endpoint: Endpoint, data: bytes, within_s: float
) -> bytes | None:
    """Say something and return what is answered; empty if the connection ended, None if nothing came in time."""
    try:
        reader, writer = await network.dial_streams(purpose, endpoint)
    except OSError:
        return b""
    try:
        writer.write(data)
        async with within(within_s):
            return await reader.read(1 << 16)
    except TimeoutError:
        return None
    except OSError:
        return b""
    finally:
        writer.transport.abort()


async def _open_session(network: NetworkStack, endpoint: Endpoint) -> bool:
    request = SessionConnectRequest(
        correlation_id=CorrelationId(1), response_stream_id=EGRESS_STREAM_ID, version=256, response_channel=""
    )
    data = SetupFrame(session_id=0, stream_id=INGRESS_STREAM_ID).encode()
    data += encode_frame(request.encode(), stream_id=INGRESS_STREAM_ID)
    answer = await _read(network, Purpose.INGRESS, endpoint, data, _ANSWER_S)
    events = [] if not answer else [decode_message(each.payload) for each in FrameParser().feed(answer)]
    return any(not isinstance(each, SessionEvent) or each.code is not EventCode.ERROR for each in events)


async def _speak_as_member(network: NetworkStack, endpoint: Endpoint) -> bool:
    settings = MemberSettings(
        member_id=MemberId(_CLAIMED),
        member_count=3,
        service_count=1,
        service_queue_limit_bytes=1,
        term_length_bytes=1 << 16,
        mtu_length_bytes=1408,
        checksums=True,
        shared_timer_ids=False,
        aeron_messages_only=False,
        app_version=256,
    )
    data = SetupFrame(session_id=_CLAIMED, stream_id=CONSENSUS_STREAM_ID, member_id=_CLAIMED).encode()
    data += encode_frame(settings.encode(), stream_id=CONSENSUS_STREAM_ID)
    return bool(await _read(network, Purpose.CONSENSUS, endpoint, data, _ANSWER_S))


def _send_log(purpose: Purpose) -> Callable[[NetworkStack, Endpoint], Awaitable[bool]]:
    async def send(network: NetworkStack, endpoint: Endpoint) -> bool:
        data = SetupFrame(session_id=77, stream_id=LOG_STREAM_ID, member_id=_CLAIMED).encode()
        return await _read(network, purpose, endpoint, data, _STAYS_S) is None

    return send


async def _ask_status(network: NetworkStack, endpoint: Endpoint) -> bool:
    with contextlib.suppress(StatusQueryError):
        await query_status(str(endpoint), patient(_ANSWER_S), network=network)
        return True
    return False


async def _inspect(network: NetworkStack, endpoint: Endpoint) -> bool:
    with contextlib.suppress(StatusQueryError):
        request = InspectionRequest(topic=Topic.SESSIONS).model_dump_json().encode()
        await query_document(str(endpoint), INSPECTION_STREAM_ID, patient(_ANSWER_S), request=request, network=network)
        return True
    return False


async def _operate(network: NetworkStack, endpoint: Endpoint) -> bool:
    """Ask for what the cluster refuses to operators, too: it is not suspended, so each caller finds it as it was."""
    try:
        steps = [
            step async for step in run_operation(str(endpoint), Operation.RESUME, patient(_ANSWER_S), network=network)
        ]
    except ClusterError:
        return False
    return bool(steps)


async def _list_recordings(network: NetworkStack, endpoint: Endpoint) -> bool:
    with contextlib.suppress(ClusterError):
        async with ArchiveClient.connect(str(endpoint), timeout_s=patient(_ANSWER_S), network=network) as client:
            return bool(await client.list_recordings())
    return False


async def _scrape(network: NetworkStack, endpoint: Endpoint) -> bool:
    data = b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n"
    return (await _read(network, Purpose.METRICS, endpoint, data, _ANSWER_S) or b"").startswith(b"HTTP/1.1 200")


PORTS: Final = (
    Port("ingress: a session", "ingress", _open_session),
    Port("consensus: speak as member 1", "consensus", _speak_as_member),
    Port("consensus: status", "consensus", _ask_status),
    Port("consensus: open sessions", "consensus", _inspect),
    Port("consensus: operate", "consensus", _operate),
    Port("log: send as member 1", "log", _send_log(Purpose.LOG)),
    Port("catch-up: send as member 1", "catchup", _send_log(Purpose.CATCHUP)),
    Port("archive: list recordings", "archive", _list_recordings),
    Port("metrics: the page", "metrics", _scrape),
)


async def measure(data_dir: Path) -> dict[str, dict[str, bool]]:
    """Try everything at a member of a real cluster; by caller, then by port."""
    certificates = data_dir / "certs"
    issuer = Issuer.create(certificates)
    for member_id in range(4):
        issuer.member(member_id)
    callers = make_callers(issuer, data_dir)
    settings = {
        **STEADY,
        "metrics_endpoint": "127.0.0.1:0",
        "tls_authorities": str(certificates / "authorities.pem"),
        "tls_certificate": str(certificates / "member-{member_id}.pem"),
        "tls_key": str(certificates / "member-{member_id}.key"),
    }
    cluster = SystemCluster(data_dir / "members", member_count=4, settings=settings, network=callers["operator"])
    async with cluster:
        await cluster.wait_for_leader()
        await cluster.change_members("remove", "--id", str(_REMOVED), asked=range(4))
        await cluster.members.pop(_REMOVED).wait_exit()
        listening = await cluster.members[_TARGET].wait_for_event("metrics.listening")
        member = parse_members(f"0=127.0.0.1:{cluster.processes.base_ports[_TARGET]}")[0]
        endpoints: Mapping[str, str] = {**member.model_dump(), "metrics": listening["endpoint"]}
        return {
            name: {port.name: await port.ask(network, Endpoint.parse(endpoints[port.field])) for port in PORTS}
            for name, network in callers.items()
        }


def table(found: Mapping[str, Mapping[str, bool]]) -> str:
    """Draw what was measured, a row for each caller."""
    head = ["| caller |" + "".join(f" {port.name} |" for port in PORTS), "|---|" + "---|" * len(PORTS)]
    rows = [
        f"| {name} |" + "".join(f" {'yes' if row[port.name] else 'no'} |" for port in PORTS)
        for name, row in found.items()
    ]
    return "\n".join([*head, *rows, ""])


def replace_table(text: str, drawn: str) -> str:
    """Put the table between its marks."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{drawn}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        DOCUMENT.write_text(replace_table(DOCUMENT.read_text(), table(asyncio.run(measure(Path(scratch))))))
