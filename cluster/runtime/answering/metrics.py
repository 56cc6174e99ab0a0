"""The metrics of one member in Prometheus format: one table, read at each scrape.

Each member has a registry of its own and no metric is a global, so several members in one process do not meet. A metric
is a row of `METRICS`: its name, what it means, and how to read it off the `Vitals`. The table in docs/metrics.md is
made from the same rows, and a test compares them.

Positions are gauges. They jump when a member starts or its log is cut: take a rate of `trimaran_committed_bytes_total`,
which counts what was committed since the process began.

Source: aeron.md §5.9, the counters of Aeron.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.exposition import CONTENT_TYPE_LATEST

from ....service_api import Role
from ....service_api.cluster_id import format_cluster_id
from ....service_api.distribution import installed_version
from ....service_api.net.connection_gate import REFUSAL_KINDS
from ...core.vocabulary.election_state import ElectionState
from ...core.vocabulary.members import ClusterMember, is_active, quorum_threshold
from ..watching.stall_tracker import LOOP
from ..watching.sync_timer import DurationHistogram
from .metrics_page import Labelled, RowsPage, SourceRow, rows_as_markdown
from .status import describe_status, describe_unreadiness
from .vitals import Vitals

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

_NS_PER_S: Final = 1_000_000_000
_ROLES: Final = {Role.FOLLOWER: 0, Role.CANDIDATE: 1, Role.LEADER: 2}


class MetricRow(SourceRow[Vitals]):
    """One metric of a member."""

    __slots__ = ()


def _followers(vitals: Vitals, read: Callable[[ClusterMember], float | None]) -> Labelled:
    """Read something of every follower; of none where this member does not lead."""
    if vitals.module.leader is None:
        return
    for member in vitals.module.ctx.others:
        value = read(member)
        if value is not None:
            yield (str(member.member_id),), value


def _follower_lag(vitals: Vitals, member: ClusterMember) -> float | None:
    ctx = vitals.module.ctx
    if member.append_leadership_term_id != ctx.leadership_term_id:
        return None
    return max(0, ctx.log_buffer.append_position - member.append_position)


def _follower_silence(vitals: Vitals, member: ClusterMember) -> float | None:
    last_ns = member.time_of_last_append_ns
    return None if last_ns is None else max(0, vitals.now_ns - last_ns) / _NS_PER_S


def _is_follower_active(vitals: Vitals, member: ClusterMember) -> float:
    return is_active(member, vitals.now_ns, vitals.module.ctx.config.leader_heartbeat_timeout_ns)


def _election_age(vitals: Vitals) -> float:
    election, last = vitals.module.election, vitals.module.last_election
    return 0 if election is None or last is None else max(0, vitals.now_ns - last.started_ns) / _NS_PER_S


def _last_election_duration(vitals: Vitals) -> float | None:
    last = vitals.module.last_election
    return None if last is None or last.closed_ns is None else (last.closed_ns - last.started_ns) / _NS_PER_S


def _state(vitals: Vitals) -> float:
    module = vitals.module
    if module.election is not None:
        return module.election.state
    return ElectionState.CLOSED if vitals.counts.elections else 0


def _window_bytes(vitals: Vitals) -> float:
    return max(0, vitals.module.ctx.log_buffer.append_position - vitals.status.delivered_position)


def _sync_max(vitals: Vitals) -> float:
    disk = vitals.files.member.timed_disk
    return max(disk.data_syncs.max_ns, disk.file_syncs.max_ns) / _NS_PER_S


def _sync_durations(vitals: Vitals) -> Iterator[tuple[str, DurationHistogram]]:
    yield "fdatasync", vitals.files.member.timed_disk.data_syncs
    yield "fsync", vitals.files.member.timed_disk.file_syncs


def _snapshot_fetch(vitals: Vitals) -> Labelled:
    progress = vitals.status.snapshot_fetch
    yield ("copied",), 0 if progress is None else progress.copied_bytes
    yield ("all",), 0 if progress is None else progress.length_bytes


def _standby_age(vitals: Vitals) -> float:
    return min((one.snapshot_age_s or 0 for one in vitals.status.standbys), default=0)


def _disk_space(vitals: Vitals) -> Labelled:
    status = vitals.status
    if status.disk_free_bytes is not None and status.disk_size_bytes is not None:
        yield ("free",), status.disk_free_bytes
        yield ("all",), status.disk_size_bytes


def _identity(vitals: Vitals) -> tuple[str, str, str, str]:
    ctx = vitals.module.ctx
    group = ctx.config.group.label
    return format_cluster_id(ctx.cluster_id) or "", group, str(ctx.config.member_id), installed_version()


def _stalls(read: Callable[[Vitals, str], float]) -> Callable[[Vitals], Labelled]:
    """Read something of every culprit; the loop itself is always among them."""
    return lambda vitals: [
        ((name,), read(vitals, name)) for name in dict.fromkeys((*vitals.ground.stalls.culprits, LOOP))
    ]


def _stall_count(vitals: Vitals, name: str) -> float:
    found = vitals.ground.stalls.culprits.get(name)
    return 0 if found is None else found.count


def _stall_seconds(vitals: Vitals, name: str) -> float:
    found = vitals.ground.stalls.culprits.get(name)
    return 0 if found is None else found.total_ns / _NS_PER_S


def _stall_max(vitals: Vitals, name: str) -> float:
    found = vitals.ground.stalls.culprits.get(name)
    return 0 if found is None else found.max_ns / _NS_PER_S


def _outboxes(vitals: Vitals) -> Labelled:
    for service_id, service in enumerate(vitals.container.agent.services if vitals.is_service_started else ()):
        for outbox, pending_count, given_up_count in service.outbox_counts():
            yield (str(service_id), outbox, "pending"), pending_count
            yield (str(service_id), outbox, "given_up"), given_up_count


def _slow_spans(vitals: Vitals) -> Iterator[tuple[str, DurationHistogram]]:
    yield from vitals.ground.stalls.slow_spans.items()


def _request_stages(vitals: Vitals) -> Iterator[tuple[str, DurationHistogram]]:
    for stage, durations in vitals.links.ingress.stages.durations.items():
        yield stage.name.lower(), durations


METRICS: Final = (
    MetricRow(
        "trimaran_member_info",
        "gauge",
        "always 1; the labels have the cluster id (empty until it is known), the group, such as `0/4` (empty without "
        "groups), the member id and the version",
        lambda v: [(_identity(v), 1)],
        ("cluster_id", "group", "member_id", "version"),
    ),
    MetricRow("trimaran_uptime_seconds", "gauge", "how long this process has been a member", lambda v: v.uptime_s),
    MetricRow(
        "trimaran_ready",
        "gauge",
        "1 when `/readyz` answers 200: the member knows a leader, its service has started, and it has no problem",
        lambda v: describe_unreadiness(v) is None,
    ),
    # --- consensus
    MetricRow(
        "trimaran_node_role",
        "gauge",
        "0 follower, 1 candidate, 2 leader",
        lambda v: _ROLES[v.module.ctx.role],
        (),
        "201",
    ),
    MetricRow(
        "trimaran_election_state",
        "gauge",
        "the state of the election by Aeron's numbers: 0 INIT, 1 CANVASS, ... 17 CLOSED, which is a leadership term",
        _state,
        (),
        "207",
    ),
    MetricRow(
        "trimaran_leadership_term_id",
        "gauge",
        "the newest leadership term that this member takes part in; -1 before the first",
        lambda v: v.module.ctx.leadership_term_id,
        (),
        "239",
    ),
    MetricRow(
        "trimaran_candidate_term_id",
        "gauge",
        "the highest term that this member voted or stood in",
        lambda v: v.module.ctx.candidate_term_id,
    ),
    MetricRow(
        "trimaran_leader_member_id",
        "gauge",
        "the id of the current leader, which may be this member; -1 while it knows no leader",
        lambda v: -1 if v.status.leader_member_id is None else v.status.leader_member_id,
    ),
    MetricRow(
        "trimaran_elections_total",
        "counter",
        "elections that this member has begun since its process started",
        lambda v: v.counts.elections,
        (),
        "238",
    ),
    MetricRow(
        "trimaran_elections_by_fault_total",
        "counter",
        "those of these elections that began because a leader, a majority or a log was lost: no start of this member, "
        "no hand-over, no term in which another member stands",
        lambda v: v.counts.elections_by_fault,
    ),
    MetricRow(
        "trimaran_elections_won_total", "counter", "terms that this member has led", lambda v: v.counts.elections_won
    ),
    MetricRow("trimaran_election_seconds", "gauge", "duration of the current election; 0 in a term", _election_age),
    MetricRow(
        "trimaran_last_election_seconds", "gauge", "duration of the last completed election", _last_election_duration
    ),
    MetricRow(
        "trimaran_refusals_total",
        "counter",
        "refusals by this member: votes for others, its own nominations, leaders that it did not follow",
        lambda v: [
            (("vote",), v.counts.votes_refused),
            (("nomination",), v.counts.nominations_refused),
            (("leader",), v.counts.leaders_refused),
        ],
        ("what",),
    ),
    MetricRow(
        "trimaran_members", "gauge", "members of the cluster, this one included", lambda v: len(v.module.ctx.members)
    ),
    MetricRow(
        "trimaran_quorum_members",
        "gauge",
        "members that make a majority",
        lambda v: quorum_threshold(len(v.module.ctx.members)),
    ),
    MetricRow(
        "trimaran_member_link_up",
        "gauge",
        "1 while the consensus link to another member is up",
        lambda v: [((str(member.member_id),), member.is_reachable) for member in v.module.ctx.others],
        ("peer_member_id",),
    ),
    MetricRow(
        "trimaran_follower_lag_bytes",
        "gauge",
        "leader: how far a follower's durable log is behind the leader's; missing until it reports in this term",
        lambda v: _followers(v, lambda member: _follower_lag(v, member)),
        ("follower_member_id",),
    ),
    MetricRow(
        "trimaran_follower_active",
        "gauge",
        "leader: 1 when a follower has reported within the heartbeat timeout",
        lambda v: _followers(v, lambda member: _is_follower_active(v, member)),
        ("follower_member_id",),
    ),
    MetricRow(
        "trimaran_follower_silence_seconds",
        "gauge",
        "leader: time since a follower's last report",
        lambda v: _followers(v, lambda member: _follower_silence(v, member)),
        ("follower_member_id",),
    ),
    MetricRow(
        "trimaran_follower_catching_up",
        "gauge",
        "leader: 1 while a follower catches up from the archive",
        lambda v: _followers(v, lambda member: member.is_catching_up),
        ("follower_member_id",),
    ),
    # --- the log
    MetricRow(
        "trimaran_append_position_bytes",
        "gauge",
        "the end of the log in memory",
        lambda v: v.module.ctx.log_buffer.append_position,
    ),
    MetricRow(
        "trimaran_recorded_position_bytes",
        "gauge",
        "the position up to which this member's recording of the log is durable",
        lambda v: v.status.append_position,
        (),
        "100",
    ),
    MetricRow(
        "trimaran_commit_position_bytes",
        "gauge",
        "the position up to which the log is committed and recorded on this member",
        lambda v: v.status.commit_position,
        (),
        "203",
    ),
    MetricRow(
        "trimaran_delivered_position_bytes",
        "gauge",
        "the position up to which the log was delivered to the service",
        lambda v: v.status.delivered_position,
    ),
    MetricRow(
        "trimaran_held_position_bytes",
        "gauge",
        "where the entry ends before which this member stands still: its service fails there, or logs differ; else -1",
        lambda v: -1 if v.module.ctx.held is None else v.module.ctx.held.log_position,
    ),
    MetricRow(
        "trimaran_committed_bytes_total",
        "counter",
        "bytes committed after the end that the log had when this process started; its rate is the commit rate",
        lambda v: max(0, v.status.commit_position - v.start_position),
    ),
    MetricRow(
        "trimaran_log_truncations_total",
        "counter",
        "how often this member cut off an end of its log that never committed",
        lambda v: v.counts.log_truncations,
    ),
    MetricRow(
        "trimaran_sync_duration_seconds",
        "histogram",
        "duration of syncs of archive files: `fdatasync` of the log at file_sync_level 1; `fsync` of the log at level "
        "2 and, at both levels, of the next segment after it was filled with zeros",
        lambda v: None,
        ("call",),
        "106, 107",
        _sync_durations,
    ),
    MetricRow("trimaran_sync_max_seconds", "gauge", "the longest sync of an archive file", _sync_max, (), "105"),
    MetricRow(
        "trimaran_disk_space_bytes",
        "gauge",
        "the file system of this member's directory, read every 10 s: bytes that are `free`, and `all` bytes",
        _disk_space,
        ("what",),
    ),
    MetricRow(
        "trimaran_damaged_places",
        "gauge",
        "places in this member's archive that are known to be damaged: not valid, or the disk cannot read them",
        lambda v: v.status.damaged_place_count,
    ),
    MetricRow(
        "trimaran_damaged_reads_total",
        "counter",
        "reads of this member's archive that met damage and failed",
        lambda v: v.repair.upkeep.damage.failed_read_count,
    ),
    MetricRow(
        "trimaran_mended_places_total", "counter", "places mended", lambda v: v.repair.upkeep.counts.mended_count
    ),
    MetricRow(
        "trimaran_lost_places", "gauge", "damaged places no member can mend", lambda v: len(v.repair.upkeep.counts.lost)
    ),
    MetricRow(
        "trimaran_scrub_read_bytes",
        "gauge",
        "what this or the last pass read",
        lambda v: v.repair.upkeep.progress.read_bytes,
    ),
    MetricRow(
        "trimaran_scrub_passes_total", "counter", "passes of the scrub", lambda v: v.repair.upkeep.progress.pass_count
    ),
    MetricRow(
        "trimaran_log_start_position_bytes",
        "gauge",
        "the position where the log on this member's disk begins",
        lambda v: v.files.log_start_position,
    ),
    MetricRow(
        "trimaran_cold_pending_bytes",
        "gauge",
        "log that is to leave this member's disk, and is not in cold storage yet",
        lambda v: 0 if v.status.cold_storage is None else v.status.cold_storage.pending_bytes,
    ),
    MetricRow(
        "trimaran_cold_segments_total",
        "counter",
        "segments `shipped` to cold storage, `fetched` from it, and attempts at either that `failed`",
        lambda v: v.cold_segments(),
        ("what",),
    ),
    # --- agreement of members
    MetricRow(
        "trimaran_divergences",
        "gauge",
        "kinds of digests (state, outputs, snapshot of a service) in which members differ now; anything but 0 is wrong",
        lambda v: len(v.status.divergences),
    ),
    MetricRow(
        "trimaran_state_differences",
        "gauge",
        "fields of services' states in which members with other code differ from this one now; anything but 0 is wrong",
        lambda v: len(v.status.state_differences),
    ),
    MetricRow(
        "trimaran_divergences_total",
        "counter",
        "how often members began to differ, as this member has seen it",
        lambda v: v.module.digests.divergence_count,
    ),
    MetricRow(
        "trimaran_digests_compared_total",
        "counter",
        "digests of other members' services that were equal to this member's",
        lambda v: v.module.digests.compared_count,
    ),
    # --- snapshots
    MetricRow(
        "trimaran_snapshot_position_bytes",
        "gauge",
        "the log position of this member's newest complete snapshot; -1 while it has none",
        lambda v: -1 if v.status.snapshot_position is None else v.status.snapshot_position,
    ),
    MetricRow(
        "trimaran_snapshot_age_seconds",
        "gauge",
        "age of this member's newest complete snapshot, or of its log while it has none; 0 before the first term",
        lambda v: v.status.log_after_snapshot_s or 0,
    ),
    MetricRow(
        "trimaran_snapshot_bytes",
        "gauge",
        "length of the services' recordings of this member's newest complete snapshot; 0 while it has none",
        lambda v: v.status.snapshot_length_bytes or 0,
    ),
    MetricRow(
        "trimaran_log_after_snapshot_bytes",
        "gauge",
        "committed log after this member's newest complete snapshot: what a start replays",
        lambda v: v.status.log_after_snapshot_bytes,
    ),
    MetricRow(
        "trimaran_snapshots_taken_total",
        "counter",
        "snapshots that this member has taken",
        lambda v: v.counts.snapshots.taken,
        (),
        "205",
    ),
    MetricRow(
        "trimaran_snapshots_failed_total",
        "counter",
        "snapshots that failed on this member because a service could not write its state",
        lambda v: v.counts.snapshots.failed,
    ),
    MetricRow(
        "trimaran_snapshot_last_seconds",
        "gauge",
        "duration of the last snapshot; 0 before the first",
        lambda v: v.counts.snapshots.last_duration_ns / _NS_PER_S,
    ),
    MetricRow(
        "trimaran_snapshot_last_stop_seconds",
        "gauge",
        "how long delivery paused for the last snapshot; 0 before the first",
        lambda v: v.counts.snapshots.last_stop_ns / _NS_PER_S,
    ),
    MetricRow(
        "trimaran_snapshot_max_seconds",
        "gauge",
        "duration of the longest snapshot",
        lambda v: v.counts.snapshots.max_duration_ns / _NS_PER_S,
        (),
        "234, 236",
    ),
    MetricRow(
        "trimaran_snapshot_last_bytes",
        "gauge",
        "length of the services' recordings of the last snapshot",
        lambda v: v.counts.snapshots.last_length_bytes,
    ),
    MetricRow(
        "trimaran_snapshot_fetch_bytes",
        "gauge",
        "bytes of a snapshot that this member copies from another: `copied` so far, and in `all`; otherwise 0",
        _snapshot_fetch,
        ("what",),
    ),
    MetricRow(
        "trimaran_standby_snapshot_age_seconds",
        "gauge",
        "age of the newest snapshot that a standby has offered this member; 0 while there is none",
        _standby_age,
    ),
    MetricRow(
        "trimaran_log_source_id",
        "gauge",
        "the member that this one's log comes from, the leader or another one; -1: none",
        lambda v: -1 if v.status.log_source_id is None else v.status.log_source_id,
    ),
    # --- clients
    MetricRow(
        "trimaran_sessions",
        "gauge",
        "client sessions of the cluster that are open",
        lambda v: v.status.session_count,
    ),
    MetricRow(
        "trimaran_session_limit",
        "gauge",
        "the largest permitted number of sessions",
        lambda v: v.module.ctx.config.session_limit,
    ),
    MetricRow(
        "trimaran_sessions_opened_total",
        "counter",
        "sessions that this member opened as the leader",
        lambda v: v.counts.sessions_opened,
    ),
    MetricRow(
        "trimaran_sessions_closed_total",
        "counter",
        "sessions that this member closed as the leader, by reason",
        lambda v: [((reason,), count) for reason, count in v.counts.sessions_closed.items()],
        ("reason",),
        "213",
    ),
    MetricRow(
        "trimaran_sessions_refused_total",
        "counter",
        "clients that this member refused: another `version`, beyond the session `limit`, failed `authentication`, "
        "`malformed` request, silent until the `timeout` before the session was open, without its `token`",
        lambda v: [((reason,), count) for reason, count in v.counts.sessions_refused.items()],
        ("reason",),
    ),
    MetricRow(
        "trimaran_outbox_effects",
        "gauge",
        "effects in the outboxes of the services, as this member has them: `pending`, or `given_up` by a worker until "
        "an operator retries or drops them",
        _outboxes,
        ("service_id", "outbox", "state"),
    ),
    MetricRow(
        "trimaran_sessions_pending",
        "gauge",
        "leader: sessions that are not open yet, because their clients are being authenticated",
        lambda v: len(v.module.sessions.pending),
    ),
    MetricRow(
        "trimaran_ingress_connections",
        "gauge",
        "client connections to this member; a client keeps one to every member",
        lambda v: v.status.connection_count,
    ),
    MetricRow(
        "trimaran_connections",
        "gauge",
        "accepted connections by endpoint",
        lambda v: [((purpose.value,), v.ground.gate.count(purpose)) for purpose in v.ground.gate.purposes],
        ("endpoint",),
    ),
    MetricRow(
        "trimaran_connections_pending",
        "gauge",
        "of these, connections that no session or member has been found for yet",
        lambda v: [((purpose.value,), v.ground.gate.pending_count(purpose)) for purpose in v.ground.gate.purposes],
        ("endpoint",),
    ),
    MetricRow(
        "trimaran_connection_limit",
        "gauge",
        "the limit of connections by endpoint",
        lambda v: [
            ((purpose.value,), v.ground.gate.limits(purpose).connection_limit) for purpose in v.ground.gate.purposes
        ],
        ("endpoint",),
    ),
    MetricRow(
        "trimaran_connections_refused_total",
        "counter",
        "connections that were refused or ended before they were anybody's: at the `limit` or `address_limit`, "
        "`evicted` for newer ones, past a `deadline`, for want of `descriptors`, `superseded` by newer links of a "
        "member, without agreement on encryption (`handshake`), of a `foreign_user` at a control socket, meant for an "
        "`other_cluster`, or with an identity that has `no_right` any more",
        lambda v: [
            ((purpose.value, kind), v.ground.gate.refused_counts[purpose.value, kind])
            for purpose in v.ground.gate.purposes
            for kind in REFUSAL_KINDS
        ],
        ("endpoint", "kind"),
    ),
    MetricRow(
        "trimaran_certificate_expires_seconds",
        "gauge",
        "seconds until the first certificate of those that it works with expires; none without TLS",
        lambda v: None if v.status.certificate is None else v.status.certificate.expires_in_s,
    ),
    MetricRow(
        "trimaran_unfinished_bytes",
        "gauge",
        "bytes of clients' messages that have begun and not ended",
        lambda v: v.links.ingress.unfinished_bytes,
    ),
    MetricRow(
        "trimaran_open_descriptors",
        "gauge",
        "files and connections that the process has open; 0 if that is not known",
        lambda v: v.status.descriptor_count or 0,
    ),
    MetricRow(
        "trimaran_descriptor_limit",
        "gauge",
        "how many it may have open; 0 if that is not limited",
        lambda v: v.status.descriptor_limit or 0,
    ),
    MetricRow(
        "trimaran_window_bytes",
        "gauge",
        "bytes appended and not delivered; while they exceed the limit, the member reads nothing from clients",
        _window_bytes,
    ),
    MetricRow(
        "trimaran_window_limit_bytes",
        "gauge",
        "the limit of the window",
        lambda v: v.ground.config.ingress_window_bytes,
    ),
    MetricRow(
        "trimaran_egress_waiting_bytes",
        "gauge",
        "replies that wait because clients have not read them",
        lambda v: v.links.ingress.egress_waiting_bytes,
    ),
    MetricRow(
        "trimaran_egress_limit_bytes",
        "gauge",
        "the limit of these, for all clients together: the setting `egress_limit_bytes`",
        lambda v: v.links.ingress.egress.limit_bytes,
    ),
    MetricRow(
        "trimaran_egress_dropped_total",
        "counter",
        "client connections that were ended because too many replies waited for them",
        lambda v: v.links.ingress.egress.cut_off_count,
    ),
    MetricRow(
        "trimaran_kept_replies_bytes",
        "gauge",
        "replies to requests, kept until clients acknowledge them, plus 64 bytes for each; at 256 MiB a session runs "
        "one request at a time",
        lambda v: v.container.agent.requests.kept_bytes,
    ),
    # --- queries
    MetricRow(
        "trimaran_queries_answered_total",
        "counter",
        "queries that the service on this member has answered",
        lambda v: v.turns.queries.answered_count,
    ),
    MetricRow(
        "trimaran_queries_refused_total",
        "counter",
        "queries that this member refused: no leader, no session, too stale, too many, or an error of the service",
        lambda v: v.turns.queries.refused_count,
    ),
    MetricRow(
        "trimaran_queries_waiting",
        "gauge",
        "queries that wait for a majority to confirm the leader, or for delivery",
        lambda v: v.turns.queries.waiting_count,
    ),
    # --- the service and the loop
    MetricRow("trimaran_timers", "gauge", "timers of the service that are set", lambda v: len(v.module.timers)),
    MetricRow(
        "trimaran_service_messages_waiting",
        "gauge",
        "messages that services have offered and that are not yet delivered",
        lambda v: sum(map(len, v.module.service_messages.trackers)),
    ),
    MetricRow(
        "trimaran_service_errors_total",
        "counter",
        "service callbacks that raised an exception",
        lambda v: v.container.agent.error_count,
        (),
        "215",
    ),
    MetricRow(
        "trimaran_errors_total",
        "counter",
        "logged warnings and errors, and the error that ended this member",
        lambda v: v.status.error_count,
        (),
        "212",
    ),
    MetricRow(
        "trimaran_distinct_errors",
        "gauge",
        "distinct errors in the file that `trimaran errors` shows, earlier runs included",
        lambda v: v.files.member.errors.distinct_count,
    ),
    MetricRow(
        "trimaran_errors_dropped_total",
        "counter",
        "errors that could not be written to that file, because it is full or the disk failed",
        lambda v: v.files.member.errors.dropped_count,
    ),
    MetricRow(
        "trimaran_loop_stalls_total",
        "counter",
        "how often the event loop was blocked for longer than the threshold, by culprit: a callback of the service, "
        "`delivery`, `gc0` to `gc2`, or `loop`",
        _stalls(_stall_count),
        ("culprit",),
        "217, 219",
    ),
    MetricRow(
        "trimaran_loop_stall_seconds_total",
        "counter",
        "total duration of these stalls",
        _stalls(_stall_seconds),
        ("culprit",),
    ),
    MetricRow(
        "trimaran_loop_stall_max_seconds",
        "gauge",
        "duration of the longest stall",
        _stalls(_stall_max),
        ("culprit",),
    ),
    MetricRow(
        "trimaran_loop_busy_max_seconds",
        "gauge",
        "the longest time that one callback kept the loop busy; at least 5 ms, and it need not be a stall",
        lambda v: v.ground.stalls.max_ns / _NS_PER_S,
        (),
        "216, 218",
    ),
    MetricRow(
        "trimaran_loop_stall_threshold_seconds",
        "gauge",
        "the threshold of a stall: the setting `stall_threshold_ms`",
        lambda v: v.ground.stalls.threshold_ns / _NS_PER_S,
    ),
    MetricRow(
        "trimaran_loop_slow_seconds",
        "histogram",
        "what held the event loop for longer than the setting `loop_slow_ms`, by culprit: as of stalls, or a stage of "
        "the log: `ingress`, `append`, `sync`, `egress`",
        lambda v: None,
        ("culprit",),
        "",
        _slow_spans,
    ),
    MetricRow(
        "trimaran_request_stage_seconds",
        "histogram",
        "on the leader: where the time of a request goes, of a chunk of requests now and then; from one stage to "
        "the next: `ingress`, `append`, `sync`, `quorum`, `deliver`, `egress`",
        lambda v: None,
        ("stage",),
        "",
        _request_stages,
    ),
    MetricRow(
        "trimaran_clock_difference_seconds",
        "gauge",
        "what the majority's clock says more than this member's; 0 where no majority is known to agree",
        lambda v: (v.module.conditions.clocks.majority_ns or 0) / _NS_PER_S,
    ),
    MetricRow(
        "trimaran_clock_off",
        "gauge",
        "1 while the clock is off: `clock_skew_limit_ms` or more from the majority's, or from another's where no "
        "majority says which is off",
        lambda v: int(v.module.conditions.clocks.describe_problem() is not None),
    ),
    MetricRow(
        "trimaran_cluster_time_ahead_seconds",
        "gauge",
        "on the leader, how far cluster time is ahead of the time of day, towards which it drifts slowly",
        lambda v: (
            0
            if v.module.leader is None
            else v.module.ctx.cluster_clock.ahead_ns(v.now_ns, v.ground.host.clock.epoch_time()) / _NS_PER_S
        ),
    ),
)
"""Every metric, in the order in which it is shown."""


class MetricsPage(RowsPage[Vitals]):
    """The page that Prometheus fetches from one member."""

    def __init__(self, vitals: Vitals) -> None:
        self._vitals = vitals
        super().__init__(METRICS, self._read_status)

    def why_not_ready(self) -> str | None:
        """Return in one line why clients had better go elsewhere; None when the member is in a term and well."""
        return describe_unreadiness(self._vitals)

    def _read_status(self) -> Vitals:
        self._vitals.status = describe_status(self._vitals)
        return self._vitals


def metrics_as_markdown() -> str:
    """Draw the table of docs/metrics.md."""
    return rows_as_markdown(METRICS)
