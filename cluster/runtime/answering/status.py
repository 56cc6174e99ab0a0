"""Answers status requests: makes a document of what the consensus module holds at that moment.

Nothing is counted or kept for it but since when a position stands still, so a member that nobody asks does next to no
work for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Final

from ....archive.store.cold_segments import ColdStanding
from ....archive.store.damage import DamagedPlace
from ....service_api import Role
from ....service_api.cluster_id import format_cluster_id
from ....service_api.distribution import installed_commit, installed_version
from ....service_api.documents.document import RoleName, printable_line
from ....service_api.documents.member_status import (
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
    ServiceErrorsStatus,
    SnapshotFetchStatus,
    StandbyStatus,
    StateDifferenceStatus,
    SyncStatus,
)
from ....service_api.net.transport import Purpose
from ....service_api.tls.certificates import Certificate
from ....service_api.types import TICKS_PER_MS, MemberId
from ....service_api.wire.log.code_digest import UNKNOWN_CODE
from ...core.consensus_module import ConsensusModule
from ...core.log.log_comparison import LogDifference
from ...core.vocabulary.divergence import Divergence, FieldDifference
from ...core.vocabulary.held_entry import HeldEntry
from ...core.vocabulary.reason import Reason, ReasonKind
from ...documents.health import why_not_ready
from ...service.query_check import QueryCheck
from ...service.service_code import format_code
from ..repair.upkeep import Upkeep
from ..snapshots.snapshot_shipping import FetchProgress
from ..snapshots.snapshot_taker import find_length_bytes
from ..turns.divergence_reporter import kind_name
from ..watching.recent_syncs import RecentSyncs
from .vitals import Vitals

_DAMAGED_PLACE_LIMIT: Final = 4
"""How many places of damage are told: the status stays short, and `trimaran archive verify` finds them all."""

_NS_PER_S: Final = 1_000_000_000
_MS_PER_S: Final = 1_000

ROLE_NAMES: Final[dict[Role, RoleName]] = {
    Role.FOLLOWER: "FOLLOWER",
    Role.CANDIDATE: "CANDIDATE",
    Role.LEADER: "LEADER",
}


def encode_status(vitals: Vitals) -> bytes:
    """Make the document that answers a status query."""
    return describe_status(vitals).model_dump_json().encode()


def describe_status(vitals: Vitals) -> MemberStatus:
    """Return how this member is now."""
    module, ctx, ground, upkeep = vitals.module, vitals.module.ctx, vitals.ground, vitals.repair.upkeep
    archive, gate, clock = vitals.files.archive, ground.gate, ground.host.clock
    now_ns, now_ms = clock.monotonic_ns(), clock.epoch_time()
    space, stalled_ns = vitals.disk_space.newest, vitals.progress.look()
    descriptors = gate.descriptors
    damaged = upkeep.damage.places
    return MemberStatus(
        member_id=ctx.config.member_id,
        cluster_id=format_cluster_id(ctx.cluster_id),
        group=ctx.config.group.label,
        version=installed_version(),
        commit=installed_commit(),
        code=format_code(ctx.config.code_digest) if ctx.config.code_digest != UNKNOWN_CODE else None,
        pid=ground.host.pid,
        uptime_s=_seconds(now_ns - ground.started_ns),
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
        delivered_position=vitals.container.adapter.position,
        has_vote=ctx.is_voter,
        barred=str(Reason(ReasonKind.NOT_A_VOTER)) if ctx.is_barred and not ctx.lacks_seed else None,
        snapshot_position=module.snapshots.newest_position,
        snapshot_length_bytes=find_length_bytes(archive, module.snapshots.newest),
        snapshotless_services=[*vitals.container.snapshotless_services],
        log_after_snapshot_bytes=module.snapshots.log_after_newest_bytes,
        log_after_snapshot_s=_seconds_after_snapshot(module, now_ms),
        stalled_s=None if stalled_ns is None else _seconds(stalled_ns),
        log_recording_id=ctx.log_recording_id,
        damaged_places=_describe_damage(damaged, upkeep),
        damaged_place_count=len(damaged),
        scrub=_describe_scrub(upkeep, now_ms),
        differing_members=_describe_differing(vitals.links.members.differences),
        divergences=[describe_divergence(divergence) for divergence in module.digests.divergences.values()],
        state_differences=[
            describe_field_difference(ctx.config.member_id, difference) for difference in module.fields.differences
        ],
        message_divergence_count=module.service_messages.divergence_count,
        query_change=_describe_query_change(vitals.container.agent.query_check),
        snapshot_fetch=_describe_fetch(vitals.snapshots.fetcher.progress),
        standbys=_describe_standbys(module, now_ms),
        log_source_id=ctx.log_source_id,
        held=_describe_held(module),
        log_difference=_describe_difference(module),
        log_copies=module.ctx.log_copies.encode_text(),
        clock=_describe_clock(module, now_ns, now_ms),
        reluctance=_describe_reluctance(module),
        service_errors=_describe_service_errors(vitals, now_ns),
        session_count=len(module.sessions.sessions),
        messages_per_s=vitals.links.ingress.traffic.find_total(),
        connection_count=len(vitals.links.ingress.connections),
        certificate=_describe_certificate(ground.host.network.expires, now_ms),
        connection_limit=gate.limits(Purpose.INGRESS).connection_limit,
        descriptor_count=None if descriptors is None else descriptors.used_count,
        descriptor_limit=None if descriptors is None else descriptors.limit,
        last_election=_describe_election(module, now_ns),
        stall_count=ground.stalls.count,
        stall_max_s=_seconds(ground.stalls.max_ns),
        cold_storage=_describe_cold_storage(archive.cold_standing, now_ns),
        syncs=_describe_syncs(vitals.files.member.timed_disk.recent, now_ns),
        disk_free_bytes=None if space is None else space.free_bytes,
        disk_size_bytes=None if space is None else space.size_bytes,
        disk_full_in_s=vitals.disk_space.full_in_s,
        error_count=vitals.files.member.errors.observation_count,
    )


def describe_unreadiness(vitals: Vitals) -> str | None:
    """Return in one line why clients had better go elsewhere; None when it is in a term and well."""
    module, ctx = vitals.module, vitals.module.ctx
    if not vitals.is_service_started:
        return "the service has not started"
    if module.election is not None:
        last = module.last_election
        reason = "" if last is None else f": {last.reason}"
        return f"in an election: state={module.election.state.name}{reason}"
    if module.leader is None and module.follower is None:
        return "no election has begun"
    if ctx.leader_member_id is None:
        return "no leader is known"
    return why_not_ready(describe_status(vitals), vitals.ground.config.health_limits)


def _describe_standbys(module: ConsensusModule, now_ms: int) -> list[StandbyStatus]:
    standbys, ticks = module.standbys, TICKS_PER_MS[module.ctx.time_unit]
    offered, present = standbys.find_offered(), standbys.find_present()
    ages_s = {one: max(0, now_ms - place.timestamp // ticks) / _MS_PER_S for one, place in offered.items()}
    return [
        StandbyStatus(
            member_id=member_id,
            snapshot_position=offered[member_id].log_position if member_id in offered else None,
            snapshot_age_s=ages_s.get(member_id),
            is_copying=standbys.copied_from == member_id,
            takes_part=module.leader is None or member_id in present,
        )
        for member_id in standbys.find_all()
    ]


def _seconds_after_snapshot(module: ConsensusModule, now_ms: int) -> float | None:
    """Return the age of the newest snapshot, by the wall clock; without one, that of the first term."""
    newest_ms = module.snapshots.find_newest_time_ms()
    return None if newest_ms is None else max(0, now_ms - newest_ms) / _MS_PER_S


def _describe_query_change(check: QueryCheck | None) -> str | None:
    return None if check is None or check.last_change is None else printable_line(check.last_change)


def _describe_service_errors(vitals: Vitals, now_ns: int) -> ServiceErrorsStatus | None:
    agent = vitals.container.agent
    newest = agent.failures.newest
    if newest is None or newest.log_position <= vitals.start_position:
        return None
    return ServiceErrorsStatus(
        count=agent.error_count,
        newest=printable_line(f"{newest.service}: {newest.error}"),
        log_position=newest.log_position,
        age_s=_seconds(now_ns - newest.noted_ns),
    )


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


def describe_field_difference(own_id: MemberId, difference: FieldDifference) -> StateDifferenceStatus:
    """Return in what members with other code differ from this one, as a status has it."""
    return StateDifferenceStatus(
        service_id=difference.service_id,
        field=printable_line(difference.field),
        log_position=difference.log_position,
        member_ids=sorted(difference.values.keys() - {own_id}),
        detail=printable_line(str(difference)),
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
    closed_ns, election = last.closed_ns, module.election
    refusal = None if election is None or election.nomination_refused == last.reason else election.nomination_refused
    return ElectionStatus(
        reason=printable_line(str(last.reason)),
        reason_kind=last.reason.name,
        age_s=_seconds(now_ns - (last.started_ns if closed_ns is None else closed_ns)),
        duration_s=None if closed_ns is None else _seconds(closed_ns - last.started_ns),
        leadership_term_id=None if closed_ns is None else _id_or_none(last.leadership_term_id),
        refusal=None if refusal is None else printable_line(str(refusal)),
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


def _describe_syncs(recent: RecentSyncs, now_ns: int) -> SyncStatus | None:
    found = recent.describe(now_ns)
    if found is None:
        return None
    return SyncStatus(
        count=found.count,
        slow_count=found.slow_count,
        slow_s=_seconds(recent.slow_ns),
        p99_s=found.p99_ns / _NS_PER_S,
        max_s=found.max_ns / _NS_PER_S,
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
