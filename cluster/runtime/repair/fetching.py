"""Asks other members what they have of a log or a snapshot, and brings the bytes of a range."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass

import structlog

from ....archive.format.descriptor import RecordingDescriptor
from ....archive.format.frame_rules import frame_rules_of
from ....archive.net.connection import ArchiveConnection, Credentials
from ....archive.net.frame_stream import open_replay
from ....archive.net.replication import check_fit, fetch_descriptor
from ....service_api import ClusterError
from ....service_api.cluster_id import ClusterId
from ....service_api.endpoint import Endpoint
from ....service_api.net.transport import NetworkStack
from ....service_api.types import COMMIT_POSITION_COUNTER_ID, MemberId
from ...core.log.log_copies import LogCopies
from ...core.log.log_repair import OtherCopy, Term
from ...core.log.recording_log import RecordedSnapshot
from ...core.vocabulary.configuration import Configuration
from ...documents.backup_query import ask_for_backup
from ...documents.query import query_status
from ...settings.config import NodeConfig

ANSWER_TIMEOUT_S = 5.0
"""How long a member may take for an answer, and for each next byte."""

logger = structlog.get_logger()


@dataclass(slots=True, frozen=True)
class RepairPeer:
    """Another member, and where it answers."""

    member_id: MemberId
    consensus: str
    archive: str


@dataclass(slots=True, frozen=True)
class PeerAnswer:
    """What a member has: its log, and a snapshot."""

    log: OtherCopy
    snapshot: tuple[RecordedSnapshot, ...]


def find_peers(config: NodeConfig, newest: Configuration | None) -> dict[MemberId, RepairPeer]:
    """Find the other members: those of the newest configuration that is known, or else those of the settings."""
    configured = {MemberId(member.member_id): member for member in config.members}
    if newest is None:
        known = {member_id: (member.consensus, member.archive) for member_id, member in configured.items()}
    else:
        known = {member.member_id: (member.endpoints[1], member.endpoints[4]) for member in newest.members}
        known |= {each: (configured[each].consensus, configured[each].archive) for each in known if each in configured}
    known.pop(MemberId(config.member_id), None)
    return {member_id: RepairPeer(member_id, *endpoints) for member_id, endpoints in known.items()}


async def ask_peers(
    peers: Iterable[RepairPeer], *, cluster_id: ClusterId, network: NetworkStack, snapshot_position: int | None = None
) -> tuple[list[tuple[RepairPeer, PeerAnswer]], list[MemberId]]:
    """Ask every member at the same time: the answers, and who gave none.

    The snapshot told of is the newest one up to `snapshot_position`, or the newest of all.
    """
    peers = list(peers)
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(_ask(peer, cluster_id, network, snapshot_position)) for peer in peers]
    answers = [(peer, task.result()) for peer, task in zip(peers, asked, strict=True)]
    silent = [peer.member_id for peer, answer in answers if answer is None]
    return [(peer, answer) for peer, answer in answers if answer is not None], silent


async def _ask(
    peer: RepairPeer, cluster_id: ClusterId, network: NetworkStack, snapshot_position: int | None
) -> PeerAnswer | None:
    try:
        # The commit position first: the terms that are told afterwards reach at least as far.
        status = await query_status(peer.consensus, ANSWER_TIMEOUT_S, network=network)
        answer = await ask_for_backup(
            peer.consensus,
            cluster_id=cluster_id,
            network=network,
            timeout_s=ANSWER_TIMEOUT_S,
            log_position=snapshot_position,
        )
        copies = LogCopies.decode_text(status.log_copies)
    except (ClusterError, OSError) as error:
        logger.info("repair.no_answer", peer_member_id=peer.member_id, reason=str(error))
        return None
    terms = tuple(sorted(Term(term.term_base_log_position, term.leadership_term_id) for term in answer.terms))
    return PeerAnswer(
        OtherCopy(peer.member_id, answer.log_recording_id, status.commit_position, terms, copies), answer.snapshot
    )


async def fetch_start_position(
    peer: RepairPeer, recording_id: int, *, cluster_id: ClusterId, network: NetworkStack
) -> int:
    """Ask another member where a recording of its begins.

    Raises:
        ArchiveError: the other archive cannot be reached, or has no such recording.
    """
    endpoint, credentials = Endpoint.parse(peer.archive), Credentials()
    connection = await ArchiveConnection.dial(
        network, endpoint, credentials=credentials, timeout_s=ANSWER_TIMEOUT_S, cluster_id=cluster_id
    )
    try:
        return (await fetch_descriptor(connection, recording_id)).start_position
    finally:
        connection.abort()


async def fetch_range(
    peer: RepairPeer,
    recording_id: int,
    descriptor: RecordingDescriptor,
    position: int,
    stop_position: int,
    *,
    is_log: bool,
    cluster_id: ClusterId,
    network: NetworkStack,
) -> AsyncGenerator[bytes, None]:
    """Yield [position, stop_position) of another member's recording, whole frames that were checked, in order.

    `descriptor` is of the own recording that the bytes are for. Chunks do not cross a segment of either recording. Of a
    log the other archive gives nothing beyond what it has committed.

    Raises:
        ArchiveError: the other archive cannot be reached or read, or the recordings do not fit together.
        RemoteProtocolError: a frame is not valid; everything before it was given.
        ClusterTimeoutError: nothing comes.
    """
    connection = await ArchiveConnection.dial(
        network,
        Endpoint.parse(peer.archive),
        credentials=Credentials(),
        timeout_s=ANSWER_TIMEOUT_S,
        cluster_id=cluster_id,
    )
    try:
        check_fit(await fetch_descriptor(connection, recording_id), descriptor)
        stream = await open_replay(
            connection,
            recording_id,
            position=position,
            stop_position=stop_position,
            follow=False,
            limit_counter_id=COMMIT_POSITION_COUNTER_ID if is_log else None,
            rules=frame_rules_of(descriptor),
            timeout_s=ANSWER_TIMEOUT_S,
        )
        while position < stop_position and (chunk := await stream.read(ANSWER_TIMEOUT_S)):
            segment_end = descriptor.segment_base_position(position) + descriptor.segment_file_length
            room = segment_end - position  # segments end where terms do, and no frame crosses that
            for piece in (chunk[:room], chunk[room:]):
                if piece:
                    yield piece
            position += len(chunk)
    finally:
        connection.abort()
