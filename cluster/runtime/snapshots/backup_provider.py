"""Tells backups where this member's log and snapshots are, and that it is there: Aeron's queries 77 and 79.

One question is one connection to the consensus endpoint, on `BACKUP_STREAM_ID`. A `HeartbeatRequest` is answered with a
`HeartbeatResponse`. A `BackupQuery` is answered with a `BackupResponse`, then with the terms of the log in
`LeadershipTerms`: Aeron's response names two terms only, and a directory that is to become a cluster needs them all.

Only what is committed is told: snapshots are, and a term is once its first entry is. What a backup is told of it then
reads from the archive, the log by a replay that the commit position bounds. The snapshot stays for it as it does for a
member that was offered one (`retention`); all backups together hold one snapshot back, so they are not counted.

Who may ask is decided by the table of permissions, as for every document; credentials in a query are not looked at.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

import structlog

from ....archive import Archive
from ....service_api import RemoteProtocolError
from ....service_api.access.permissions import Permission
from ....service_api.net.connection_gate import AcceptedConnection
from ....service_api.types import COMMIT_POSITION_COUNTER_ID, NULL_VALUE, MemberId, TermId
from ....service_api.wire.log.recording_log import RecordingLogEntry
from ....service_api.wire.message import decode_message, registry_of
from ...core.context import ConsensusContext
from ...messages.backup import BackupQuery, BackupResponse, HeartbeatRequest, HeartbeatResponse
from ..links.document_server import DocumentRow
from .offers import describe_snapshot, describe_terms, in_documents
from .retention import Retention

_QUERIES: Final = registry_of(BackupQuery, HeartbeatRequest)
_READER: Final = MemberId(NULL_VALUE)
"""Under this id the lease of all backups is kept."""

logger = structlog.get_logger()


class BackupProvider:
    """Answers the questions of backups."""

    def __init__(self, ctx: ConsensusContext, archive: Archive, retention: Retention) -> None:
        self._ctx = ctx
        self._archive = archive
        self._retention = retention

    @property
    def row(self) -> DocumentRow:
        """How requests of callers are answered."""
        return DocumentRow(self.answer, lambda request: Permission.BACKUP)

    async def answer(self, request: bytes, asker: AcceptedConnection) -> AsyncGenerator[bytes, None]:
        """Answer a query; anything else with nothing."""
        try:
            query = decode_message(request, registry=_QUERIES)
        except RemoteProtocolError as error:
            logger.warning("backup_query.refused", reason=str(error))
            return
        if isinstance(query, HeartbeatRequest):
            yield HeartbeatResponse(correlation_id=query.correlation_id).encode()
            return
        assert isinstance(query, BackupQuery)
        ctx = self._ctx
        terms = [
            entry
            for entry in ctx.recording_log.entries
            if entry.is_valid_term and entry.term_base_log_position < ctx.commit_position
        ]
        snapshot = self._find_snapshot(query.log_position)
        if snapshot:
            ids = tuple(entry.recording_id for entry in snapshot)
            self._retention.lease(_READER, ids, snapshot[0].log_position)
        newest = terms[-1] if terms else None
        yield BackupResponse(
            correlation_id=query.correlation_id,
            log_recording_id=ctx.log_recording_id,
            log_leadership_term_id=TermId(newest.leadership_term_id if newest else NULL_VALUE),
            log_term_base_log_position=newest.term_base_log_position if newest else 0,
            last_leadership_term_id=TermId(newest.leadership_term_id if newest else NULL_VALUE),
            last_term_base_log_position=newest.term_base_log_position if newest else 0,
            commit_position_counter_id=COMMIT_POSITION_COUNTER_ID,
            leader_member_id=MemberId(NULL_VALUE if ctx.leader_member_id is None else ctx.leader_member_id),
            member_id=ctx.config.member_id,
            snapshots=describe_snapshot(snapshot),
            cluster_members="|".join(
                ",".join((str(member.member_id), *member.endpoints)) for member in ctx.roster.current.members
            ),
        ).encode()
        for document in in_documents(describe_terms(terms)):
            yield document

    def _find_snapshot(self, log_position: int | None) -> tuple[RecordingLogEntry, ...]:
        """Find the newest complete snapshot, or the newest up to a position; where that is below all, the oldest."""
        recording_log, service_count = self._ctx.recording_log, self._ctx.config.service_count
        if log_position is None or log_position < 0:
            return recording_log.latest_snapshots(service_count)
        found = sorted(recording_log.complete_snapshots(service_count), key=lambda entries: entries[0].log_position)
        return next((each for each in reversed(found) if each[0].log_position <= log_position), next(iter(found), ()))
