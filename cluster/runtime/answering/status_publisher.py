"""Answers status requests: makes a document of what the consensus module holds at that moment.

Nothing is counted or kept for it but since when a position stands still, so a member that nobody asks does next to no
work for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Final

from trimaran.archive.disk.file_system import DiskSpace
from trimaran.archive.store.cold_segments import ColdStanding
from trimaran.archive.store.damage import DamagedPlace
from trimaran.cluster.core.vocabulary.divergence import Divergence
from trimaran.cluster.core.vocabulary.held_entry import HeldEntry
from trimaran.cluster.runtime.answering.progress_tracker import ProgressTracker
from trimaran.cluster.runtime.files.error_log import ErrorLog
from trimaran.cluster.runtime.turns.divergence_reporter import kind_name
from trimaran.service_api import Clock, Role
from trimaran.service_api.cluster_id import format_cluster_id
from trimaran.service_api.distribution import installed_version
from trimaran.service_api.documents.document import RoleName, printable_line
from trimaran.service_api.documents.member_status import (
    CertificateStatus,
    ClockStatus,
    ColdStorageStatus,
    ConfiguredMemberStatus,
    DamagedPlaceStatus,
    DifferingMember,
    DivergenceStatus,
    ElectionStatus,
    HeldStatus,
    LogDifferenceStatus,
    MemberClock,
    MemberStatus,
    ReluctanceStatus,
    ScrubStatus,
    SnapshotFetchStatus,
    StandbyStatus,
)
from trimaran.service_api.net.connection_gate import ConnectionGate
from trimaran.service_api.net.transport import Purpose
from trimaran.service_api.tls.certificates import Certificate
from trimaran.service_api.types import TICKS_PER_MS, MemberId
from trimaran.service_api.wire.log.code_digest import UNKNOWN_CODE

from ...core.consensus_module import ConsensusModule
from ...core.log.log_comparison import LogDifference
from ...service.service_code import format_code
from ..repair.upkeep import Upkeep
from ..snapshots.snapshot_shipping import FetchProgress
from ..watching.stall_tracker import StallTracker

_DAMAGED_PLACE_LIMIT: Final = 4
"""How many places of damage are told: the status stays short, and `trimaran archive verify` finds them all."""

_NS_PER_S: Final = 1_000_000_000
_MS_PER_S: Final = 1_000

ROLE_NAMES: Final[dict[Role, RoleName]] = {
    Role.FOLLOWER: "FOLLOWER",
    Role.CANDIDATE: "CANDIDATE",
    Role.LEADER: "LEADER",
}


class StatusPublisher:
    """Encodes the status of one member."""

    def __init__(
        self,
        module: ConsensusModule,
        *,
        clock: Clock,
        pid: int,
        delivered_position: Callable[[], int],
        connection_count: Callable[[], int],
        gate: ConnectionGate,
        upkeep: Upkeep,
        differing_members: Callable[[], Mapping[MemberId, str]],
        snapshot_length: Callable[[], int | None],
        snapshotless_services: Sequence[str],
        snapshot_fetch: Callable[[], FetchProgress | None],
        cold_standing: Callable[[], ColdStanding | None],
        disk_space: Callable[[], DiskSpace | None],
        certificate: Callable[[], Certificate | None],
        stalls: StallTracker,
        errors: ErrorLog,
        progress: ProgressTracker,
        query_change: Callable[[], str | None],
    ) -> None:
        self._module = module
        self._clock = clock
        self._pid = pid
        self._delivered_position = delivered_position
        self._connection_count = connection_count
        self._gate = gate
        self._upkeep = upkeep
        self._differing_members = differing_members
        self._snapshot_length = snapshot_length
        self._snapshotless_services = snapshotless_services
        self._snapshot_fetch = snapshot_fetch
        self._cold_standing = cold_standing
        self._disk_space = disk_space
        self._certificate = certificate
        self._stalls = stalls
        self._errors = errors
        self._progress = progress
        self._query_change = query_change
        self._started_ns = clock.monotonic_ns()

    def __repr__(self) -> str:
        return f"<StatusPublisher {self._module!r}>"

    def encode(self) -> bytes:
        """Make the document that answers a status query."""
        return self.describe().model_dump_json().encode()

    def describe(self) -> MemberStatus:
        """Return how this member is now."""
        module, ctx = self._module, self._module.ctx
        now_ns, space, stalled_ns = self._clock.monotonic_ns(), self._disk_space(), self._progress.look()
        descriptors = self._gate.descriptors
        damaged = self._upkeep.damage.places
        return MemberStatus(
            member_id=ctx.config.member_id,
            cluster_id=format_cluster_id(ctx.cluster_id),
            group=ctx.config.group.label,
            version=installed_version(),
            code=format_code(ctx.config.code_digest) if ctx.config.code_digest != UNKNOWN_CODE else None,
            pid=self._pid,
            uptime_s=_seconds(now_ns - self._started_ns),
            role=ROLE_NAMES[ctx.role],
            state=member_state_name(module),
            module_state=module.actions.state.name,
            control_toggle=module.actions.toggle.name,
            leader_member_id=ctx.leader_member_id,
            leadership_term_id=_id_or_none(ctx.leadership_term_id),
            configuration_position=ctx.roster.current.log_position,
            members=_describe_members(module),
            append_position=ctx.append_position,
            commit_position=ctx.commit_position,
            delivered_position=self._delivered_position(),
            snapshot_position=module.snapshots.newest_position,
            snapshot_length_bytes=self._snapshot_length(),
            snapshotless_services=[*self._snapshotless_services],
            log_after_snapshot_bytes=module.snapshots.log_after_newest_bytes,
            log_after_snapshot_s=self._seconds_after_snapshot(),
            stalled_s=None if stalled_ns is None else _seconds(stalled_ns),
            log_recording_id=ctx.log_recording_id,
            damaged_places=_describe_damage(damaged, self._upkeep),
            damaged_place_count=len(damaged),
            scrub=_describe_scrub(self._upkeep, self._clock.epoch_time()),
            differing_members=_describe_differing(self._differing_members()),
            divergences=[describe_divergence(divergence) for divergence in module.digests.divergences.values()],
            message_divergence_count=module.service_messages.divergence_count,
            query_change=None if (change := self._query_change()) is None else printable_line(change),
            snapshot_fetch=_describe_fetch(self._snapshot_fetch()),
            standbys=self._describe_standbys(),
            log_source_id=ctx.log_source_id,
            held=_describe_held(module),
            log_difference=_describe_difference(module),
            log_copies=module.ctx.log_copies.encode_text(),
            clock=_describe_clock(module, now_ns, self._clock.epoch_time()),
            reluctance=_describe_reluctance(module),
            session_count=len(module.sessions.sessions),
            connection_count=self._connection_count(),
            certificate=_describe_certificate(self._certificate(), self._clock.epoch_time()),
            connection_limit=self._gate.limits(Purpose.INGRESS).connection_limit,
            descriptor_count=None if descriptors is None else descriptors.used_count,
            descriptor_limit=None if descriptors is None else descriptors.limit,
            last_election=_describe_election(module, now_ns),
            stall_count=self._stalls.count,
            stall_max_s=_seconds(self._stalls.max_ns),
            cold_storage=_describe_cold_storage(self._cold_standing(), now_ns),
            disk_free_bytes=None if space is None else space.free_bytes,
            disk_size_bytes=None if space is None else space.size_bytes,
            error_count=self._errors.observation_count,
        )

    def _describe_standbys(self) -> list[StandbyStatus]:
        standbys, ticks = self._module.standbys, TICKS_PER_MS[self._module.ctx.time_unit]
        offered, now_ms = standbys.find_offered(), self._clock.epoch_time()
        ages_s = {one: max(0, now_ms - place.timestamp // ticks) / _MS_PER_S for one, place in offered.items()}
        return [
            StandbyStatus(
                member_id=member_id,
                snapshot_position=offered[member_id].log_position if member_id in offered else None,
                snapshot_age_s=ages_s.get(member_id),
                is_copying=standbys.copied_from == member_id,
            )
            for member_id in standbys.find_all()
        ]

    def _seconds_after_snapshot(self) -> float | None:
        """Return the age of the newest snapshot, by the wall clock; without one, that of the first term."""
        newest_ms = self._module.snapshots.find_newest_time_ms()
        return None if newest_ms is None else max(0, self._clock.epoch_time() - newest_ms) / _MS_PER_S


def _describe_differing(details: Mapping[MemberId, str]) -> list[DifferingMember]:
    return [
        DifferingMember(member_id=member_id, detail=printable_line(detail))
        for member_id, detail in sorted(details.items())
    ]


def describe_divergence(divergence: Divergence) -> DivergenceStatus:
    """Return what is known of members that differ, as a status has it."""
    return DivergenceStatus(
        kind=kind_name(divergence.kind),
        service_id=divergence.service_id,
        log_position=divergence.log_position,
        member_ids=sorted(divergence.differing),
        has_majority=divergence.has_majority,
        detail=printable_line(str(divergence)),
    )


def _describe_certificate(certificate: Certificate | None, now_ms: int) -> CertificateStatus | None:
    if certificate is None:
        return None
    return CertificateStatus(
        file=printable_line(str(certificate.file)),
        subject=printable_line(certificate.subject),
        expires_at_ms=certificate.expires_at_ms,
        expires_in_s=(certificate.expires_at_ms - now_ms) / _MS_PER_S,
    )


def member_state_name(module: ConsensusModule) -> str:
    """Return the member's state in its term or election, as `MemberStatus.state` describes it."""
    if module.election is not None:
        return module.election.state.name
    if module.leader is not None:
        return "LEADER"
    return "STARTING" if module.follower is None else "FOLLOWER"


def _describe_election(module: ConsensusModule, now_ns: int) -> ElectionStatus | None:
    last = module.last_election
    if last is None:
        return None
    closed_ns = last.closed_ns
    return ElectionStatus(
        reason=printable_line(str(last.reason)),
        reason_kind=last.reason.name,
        age_s=_seconds(now_ns - (last.started_ns if closed_ns is None else closed_ns)),
        duration_s=None if closed_ns is None else _seconds(closed_ns - last.started_ns),
        leadership_term_id=None if closed_ns is None else _id_or_none(last.leadership_term_id),
    )


def _describe_members(module: ConsensusModule) -> list[ConfiguredMemberStatus]:
    roster = module.ctx.roster
    return [
        ConfiguredMemberStatus(
            member_id=member.member_id,
            kind=member.kind,
            consensus=printable_line(roster.address_of(member.member_id).consensus),
        )
        for member in roster.current.members
    ]


def _describe_held(module: ConsensusModule) -> HeldStatus | None:
    held = module.ctx.held
    if not isinstance(held, HeldEntry):
        return None
    return HeldStatus(
        log_position=held.log_position, callback=printable_line(held.callback), failure=printable_line(held.failure)
    )


def _describe_difference(module: ConsensusModule) -> LogDifferenceStatus | None:
    held = module.ctx.held
    if not isinstance(held, LogDifference):
        return None
    return LogDifferenceStatus(
        position=held.position,
        stop_position=held.stop_position,
        file=held.file_name,
        groups=[list(group) for group in held.groups],
    )


def _describe_cold_storage(standing: ColdStanding | None, now_ns: int) -> ColdStorageStatus | None:
    if standing is None:
        return None
    since_ns = standing.failing_since_ns
    return ColdStorageStatus(
        pending_bytes=standing.pending_bytes,
        shipped_count=standing.shipped_count,
        failing_s=None if since_ns is None else _seconds(now_ns - since_ns),
        failure=None if since_ns is None else printable_line(standing.failure),
        catchup_start_position=standing.catchup_start_position(),
    )


def _describe_scrub(upkeep: Upkeep, epoch_ms: int) -> ScrubStatus:
    progress, counts = upkeep.progress, upkeep.counts
    last_pass_ms = progress.last_pass_ms
    return ScrubStatus(
        is_running=progress.is_running,
        recording_id=progress.recording_id,
        position=progress.position,
        read_bytes=progress.read_bytes,
        pass_count=progress.pass_count,
        last_pass_s=None if last_pass_ms is None else max(0, epoch_ms - last_pass_ms) / 1_000,
        found_count=progress.found_count,
        mended_count=counts.mended_count,
        mended_bytes=counts.mended_bytes,
    )


def _describe_damage(damaged: Sequence[DamagedPlace], upkeep: Upkeep) -> list[DamagedPlaceStatus]:
    return [
        DamagedPlaceStatus(
            recording_id=place.recording_id,
            position=place.position,
            file=printable_line(place.file_name),
            reason=printable_line(place.reason),
            lost=None if (why := upkeep.lost(place)) is None else printable_line(why),
        )
        for place in damaged[:_DAMAGED_PLACE_LIMIT]
    ]


def _describe_reluctance(module: ConsensusModule) -> list[ReluctanceStatus]:
    return [
        ReluctanceStatus(kind=kind.label, detail=printable_line(detail))
        for kind, detail in module.ctx.reluctance.items()
    ]


def _describe_clock(module: ConsensusModule, now_ns: int, epoch_ms: int) -> ClockStatus:
    clocks = module.conditions.clocks
    ahead_ns = module.ctx.cluster_clock.ahead_ns(now_ns, epoch_ms) if module.leader is not None else 0
    return ClockStatus(
        majority_difference_s=None if clocks.majority_ns is None else round(clocks.majority_ns / _NS_PER_S, 3),
        cluster_time_ahead_s=round(ahead_ns / _NS_PER_S, 3),
        problem=clocks.describe_problem(),
        members=[
            MemberClock(
                member_id=member_id,
                difference_s=round(known.difference_ns / _NS_PER_S, 3),
                error_s=_seconds(known.error_ns),
            )
            for member_id, known in sorted(clocks.differences.items())
        ],
    )


def _describe_fetch(progress: FetchProgress | None) -> SnapshotFetchStatus | None:
    return None if progress is None else SnapshotFetchStatus(**asdict(progress))


def _seconds(duration_ns: int) -> float:
    """Convert to seconds, to the millisecond; a turn may have read the clock a little later than this one began."""
    return max(0, round(duration_ns / _NS_PER_S, 3))


def _id_or_none(value: int) -> int | None:
    return None if value < 0 else value
