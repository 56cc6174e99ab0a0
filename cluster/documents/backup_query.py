"""Asks a member, as Aeron's backup does, where its log and snapshots are."""

from __future__ import annotations

import itertools
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from ...service_api import ConfigurationError, RemoteProtocolError
from ...service_api.cluster_id import ClusterId
from ...service_api.net.transport import NetworkStack
from ...service_api.types import BACKUP_STREAM_ID, NULL_VALUE, CorrelationId
from ...service_api.wire.message import decode_message, registry_of
from ..core.log.recording_log import RecordedSnapshot
from ..core.log.shipped_snapshot import ShippedTerm
from ..messages.backup import BackupQuery, BackupResponse
from ..messages.shipping import LeadershipTerms
from ..settings.member_endpoints import MemberEndpoints, parse_members
from .query import query_documents

_ANSWERS: Final = registry_of(BackupResponse, LeadershipTerms)
_TERM_LIMIT: Final = 1 << 20
"""More terms than any cluster goes through: what names more is no member."""
_correlation_ids = itertools.count(1)


@dataclass(slots=True, frozen=True, kw_only=True)
class BackupAnswer:
    """What a member has for a backup."""

    log_recording_id: int
    commit_counter_id: int
    """What bounds a replay of the log."""
    terms: tuple[ShippedTerm, ...]
    """Of the whole log, as far as they are committed."""
    snapshot: tuple[RecordedSnapshot, ...]
    """Its newest one, the module's recording and those of services; none if it has none."""
    members: tuple[MemberEndpoints, ...]
    """Who the members are, as far as it knows."""

    @property
    def snapshot_position(self) -> int | None:
        """Where its snapshot was taken; None if it has none."""
        return self.snapshot[0].log_position if self.snapshot else None


async def ask_for_backup(
    endpoint: str,
    *,
    cluster_id: ClusterId,
    network: NetworkStack,
    timeout_s: float,
    log_position: int | None = None,
) -> BackupAnswer:
    """Ask the member at a consensus endpoint what it has; with a log position for a snapshot of not after that.

    Raises:
        ClusterError: it does not answer, or what it says is no answer.
    """
    query = BackupQuery(
        correlation_id=CorrelationId(next(_correlation_ids)), response_stream_id=NULL_VALUE, log_position=log_position
    )
    response: BackupResponse | None = None
    terms: list[ShippedTerm] = []
    asking = query_documents(
        endpoint, BACKUP_STREAM_ID, timeout_s, request=query.encode(), cluster_id=cluster_id, network=network
    )
    async with aclosing(asking) as documents:
        async for document in documents:
            message = decode_message(document, registry=_ANSWERS)
            if response is None and isinstance(message, BackupResponse):
                response = message
            elif response is not None and isinstance(message, LeadershipTerms) and len(terms) < _TERM_LIMIT:
                terms += map(ShippedTerm.of, message.terms)
            else:
                raise RemoteProtocolError(f"unexpected answer: {type(message).__name__}")
    if response is None or response.correlation_id != query.correlation_id:
        raise RemoteProtocolError(f"no answer to the query: expected={query.correlation_id} actual={response!r}")
    newest_id = terms[-1].leadership_term_id if terms else NULL_VALUE
    if newest_id != response.last_leadership_term_id:
        raise RemoteProtocolError(f"terms end at {newest_id}, expected={response.last_leadership_term_id}")
    return _read(response, tuple(terms))


def _read(response: BackupResponse, terms: tuple[ShippedTerm, ...]) -> BackupAnswer:
    try:
        members = parse_members(response.cluster_members)
    except ConfigurationError as error:
        raise RemoteProtocolError(f"members that cannot be read: {error}") from error
    return BackupAnswer(
        log_recording_id=response.log_recording_id,
        commit_counter_id=response.commit_position_counter_id,
        terms=terms,
        snapshot=tuple(map(RecordedSnapshot.of, response.snapshots)),
        members=members,
    )
