"""Tells those who copy from this member what it has: other members, and backups (Aeron's queries 77 and 79).

One question is one connection to the consensus endpoint. On `SNAPSHOT_SHIPPING_STREAM_ID` a member that lacks the
oldest part of the log sends a `SnapshotQuery`: the answer is a `SnapshotOffer`, then the terms up to it in
`LeadershipTerms`. On `BACKUP_STREAM_ID` a `HeartbeatRequest` is answered with a `HeartbeatResponse`, and a
`BackupQuery` with a `BackupResponse`, then with the terms of the log: Aeron's response names two terms only, and a
directory that is to become a cluster needs them all.

Only what is committed is told: snapshots are, and a term is once its first entry is. The caller then reads from the
archive, the log by a replay that the commit position bounds. The snapshot stays for as long as it is being read
(`retention`), for each member that was offered one; all backups together hold one back, so they are not counted.

Who may ask is decided by the table of permissions, as for every document; credentials in a query are not looked at.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import Final

import structlog

from ....archive import Archive
from ....service_api import RemoteProtocolError
from ....service_api.access.permissions import Permission
from ....service_api.net.connection_gate import AcceptedConnection
from ....service_api.types import (
    COMMIT_POSITION_COUNTER_ID,
    NULL_POSITION,
    NULL_VALUE,
    MemberId,
    RecordingId,
    TermId,
)
from ....service_api.wire.log.recording_log import RecordingLogEntry
from ....service_api.wire.message import decode_message, registry_of
from ...core.context import ConsensusContext
from ...messages.backup import BackupQuery, BackupResponse, HeartbeatRequest, HeartbeatResponse, SnapshotRecording
from ...messages.shipping import LeadershipTermEntry, LeadershipTerms, SnapshotOffer, SnapshotQuery
from ..links.document_server import DocumentRow
from .retention import Retention

_MEMBER_QUERIES: Final = registry_of(SnapshotQuery)
_BACKUP_QUERIES: Final = registry_of(BackupQuery, HeartbeatRequest)
_BACKUPS: Final = MemberId(NULL_VALUE)
"""Under this id the lease of all backups is kept."""
_TERMS_PER_DOCUMENT: Final = 256

logger = structlog.get_logger()


class Offers:
    """Answers what other members and backups ask before they copy, and keeps for them what it names."""

    def __init__(self, ctx: ConsensusContext, archive: Archive, retention: Retention) -> None:
        self._ctx = ctx
        self._archive = archive
        self._retention = retention

    @property
    def member_row(self) -> DocumentRow:
        """How requests of other members are answered."""
        return DocumentRow(self.answer_member, lambda request: Permission.SNAPSHOT_SHIPPING)

    @property
    def backup_row(self) -> DocumentRow:
        """How requests of backups are answered."""
        return DocumentRow(self.answer_backup, lambda request: Permission.BACKUP)

    async def answer_member(self, request: bytes, asker: AcceptedConnection) -> AsyncGenerator[bytes, None]:
        """Answer a `SnapshotQuery` of the member that it names; anything else with nothing."""
        ctx = self._ctx
        try:
            query = decode_message(request, registry=_MEMBER_QUERIES)
            assert isinstance(query, SnapshotQuery)
            self._check_member(query, asker)
        except RemoteProtocolError as error:
            logger.warning("snapshot_query.refused", reason=str(error))
            return
        log_start_position = self._archive.descriptor(ctx.log_recording_id).start_position
        wants_seed = query.log_position == NULL_POSITION and ctx.recording_log.is_seeded and log_start_position == 0
        find = ctx.recording_log.seed if wants_seed else ctx.recording_log.latest_snapshots
        entries = find(ctx.config.service_count)
        is_of_use = ctx.config.service_count > 0 and bool(entries) and entries[0].log_position > query.log_position
        terms: list[LeadershipTermEntry] = []
        if is_of_use and not wants_seed:
            self._retention.lease(
                query.follower_member_id, tuple(entry.recording_id for entry in entries), entries[0].log_position
            )
            newest_term_id = entries[0].leadership_term_id
            terms = _describe_terms(
                entry for entry in ctx.recording_log.entries if entry.leadership_term_id <= newest_term_id
            )
        yield SnapshotOffer(
            member_id=ctx.config.member_id,
            log_recording_id=ctx.log_recording_id,
            log_start_position=log_start_position,
            term_count=len(terms),
            snapshots=_describe_snapshot(entries if is_of_use else ()),
            detail="" if is_of_use else _why_not(query.log_position, wants_seed=wants_seed),
        ).encode()
        for document in _in_documents(terms):
            yield document

    def _check_member(self, query: SnapshotQuery, asker: AcceptedConnection) -> None:
        """Check that a query comes from the member that it names.

        Raises:
            RemoteProtocolError: it does not, or there is no such member. Each id holds a lease: ids without end would
                keep old snapshots, and memory, without end.
        """
        if asker.caller.member_id not in (None, query.follower_member_id):
            raise RemoteProtocolError(f"follower_member_id={query.follower_member_id}: the caller is {asker.caller}")
        if query.follower_member_id not in {member.member_id for member in self._ctx.others}:
            raise RemoteProtocolError(
                f"follower_member_id={query.follower_member_id} expected another member of {[*self._ctx.members]}"
            )

    async def answer_backup(self, request: bytes, asker: AcceptedConnection) -> AsyncGenerator[bytes, None]:
        """Answer a query of a backup; anything else with nothing."""
        try:
            query = decode_message(request, registry=_BACKUP_QUERIES)
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
        snapshot = self._find_backup_snapshot(query.log_position)
        if snapshot:
            ids = tuple(entry.recording_id for entry in snapshot)
            self._retention.lease(_BACKUPS, ids, snapshot[0].log_position)
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
            snapshots=_describe_snapshot(snapshot),
            cluster_members="|".join(
                ",".join((str(member.member_id), *member.endpoints)) for member in ctx.roster.current.members
            ),
        ).encode()
        for document in _in_documents(_describe_terms(terms)):
            yield document

    def _find_backup_snapshot(self, log_position: int | None) -> tuple[RecordingLogEntry, ...]:
        """Find the newest complete snapshot, or the newest up to a position; where that is below all, the oldest."""
        recording_log, service_count = self._ctx.recording_log, self._ctx.config.service_count
        if log_position is None or log_position < 0:
            return recording_log.latest_snapshots(service_count)
        found = sorted(recording_log.complete_snapshots(service_count), key=lambda entries: entries[0].log_position)
        return next((each for each in reversed(found) if each[0].log_position <= log_position), next(iter(found), ()))


def _why_not(log_position: int, *, wants_seed: bool) -> str:
    if wants_seed:
        return "the log begins with the state of a snapshot that is not valid any more"
    return f"no complete snapshot beyond log_position={log_position}"


def _describe_snapshot(entries: Iterable[RecordingLogEntry]) -> tuple[SnapshotRecording, ...]:
    """Return the recordings of a snapshot."""
    return tuple(
        SnapshotRecording(
            recording_id=RecordingId(entry.recording_id),
            leadership_term_id=TermId(entry.leadership_term_id),
            term_base_log_position=entry.term_base_log_position,
            log_position=entry.log_position,
            timestamp=entry.timestamp,
            service_id=entry.service_id,
        )
        for entry in entries
    )


def _describe_terms(entries: Iterable[RecordingLogEntry]) -> list[LeadershipTermEntry]:
    """Return the terms among these entries, in order."""
    return [
        LeadershipTermEntry(
            leadership_term_id=TermId(entry.leadership_term_id),
            term_base_log_position=entry.term_base_log_position,
            timestamp=entry.timestamp,
        )
        for entry in entries
        if entry.is_valid_term
    ]


def _in_documents(terms: list[LeadershipTermEntry]) -> Iterator[bytes]:
    """Yield terms as documents that are short enough."""
    for begin in range(0, len(terms), _TERMS_PER_DOCUMENT):
        yield LeadershipTerms(terms=tuple(terms[begin : begin + _TERMS_PER_DOCUMENT])).encode()
