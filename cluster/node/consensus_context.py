"""What a member's consensus module begins with: its settings in the units of the core, and what its files hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ...archive import Recording
from ...service_api import ClusteredService, ConfigurationError
from ...service_api.shares import share_of
from ...service_api.types import NULL_VALUE, MemberId, RecordingId, TermId
from ...service_api.wire.checksum import ChecksumKind
from ...service_api.wire.session import REFUSED_BY_SETTING, REFUSES_MESSAGES, REFUSES_REQUESTS
from ..auth.secrets_file import SecretsFile
from ..core.context import ConsensusConfig, ConsensusContext
from ..core.log.log_buffer import LogBuffer
from ..core.log.retention import RetentionPolicy
from ..core.vocabulary.configuration import Configuration, MemberKind
from ..core.vocabulary.feature_levels import find_known_level
from ..core.vocabulary.roster import Roster
from ..core.vocabulary.snapshot_policy import ON_REQUEST_ONLY, SnapshotPolicy
from ..runtime.files.cluster_identity import find_whole_cluster_id
from ..runtime.files.member_files import MemberFiles
from ..runtime.ground.authenticator import GuardedAuthenticator
from ..runtime.ground.authorisation import GuardedAuthorisation
from ..runtime.ground.host import Host
from ..service.service_code import CodeGuard
from ..settings.config import NodeConfig
from ..settings.plugin_loading import load_authenticator, load_authorisation

_NS_PER_MS: Final = 1_000_000


def make_context(
    config: NodeConfig,
    files: MemberFiles,
    recording: Recording,
    host: Host,
    *,
    code: CodeGuard,
    services: Sequence[ClusteredService],
    secrets: Callable[[], SecretsFile] | None,
) -> ConsensusContext:
    """Make the state that a member's consensus module begins with, from its settings and its files."""
    recording_log = files.recording_log.recording_log
    last = recording_log.last_term()
    return ConsensusContext(
        config=_make_config(config, recording, services, code=code),
        random=host.random,
        recording_log=recording_log,
        log_recording_id=RecordingId(recording.recording_id),
        log_buffer=LogBuffer(position=recording.append_position, retained_bytes=config.ingress_window_bytes),
        roster=Roster(
            MemberId(config.member_id),
            Configuration.of_settings(
                (
                    member.configured(
                        MemberKind.WITNESS if member.member_id in config.witness_ids else MemberKind.VOTER
                    )
                    for member in config.members
                ),
                config.own_group,
            ),
        ),
        log_copies=files.log_copies.copies,
        authenticator=GuardedAuthenticator(
            load_authenticator(
                config.authenticator,
                config.service_dir,
                secrets=secrets,
                random=host.random,
            )
        ),
        authorisation=GuardedAuthorisation(load_authorisation(config.authorisation, config.service_dir)),
        append_position=recording.append_position,
        log_leadership_term_id=TermId(NULL_VALUE if last is None else last.leadership_term_id),
        leadership_term_id=TermId(NULL_VALUE if last is None else last.leadership_term_id),
        candidate_term_id=files.node_state.candidate_term_id,
        is_voter=files.node_state.has_vote,
        cluster_id=files.cluster_id.cluster_id,
        whole_cluster_id=find_whole_cluster_id(config, host),
    )


def _make_config(
    config: NodeConfig, recording: Recording, services: Sequence[ClusteredService], *, code: CodeGuard
) -> ConsensusConfig:
    if config.aeron_messages_only and len(services) > 1 and not config.shared_timer_ids:
        raise ConfigurationError(
            f"aeron_messages_only=true with services={len(services)} needs shared_timer_ids=true: the services of "
            "Aeron share the ids of timers"
        )
    return ConsensusConfig(
        member_id=MemberId(config.member_id),
        catchup_endpoint=config.me.catchup,
        startup_canvass_timeout_ns=config.startup_canvass_timeout_ms * _NS_PER_MS,
        election_timeout_ns=config.election_timeout_ms * _NS_PER_MS,
        election_status_interval_ns=config.election_status_interval_ms * _NS_PER_MS,
        leader_heartbeat_timeout_ns=config.leader_heartbeat_timeout_ms * _NS_PER_MS,
        leader_heartbeat_interval_ns=config.leader_heartbeat_interval_ms * _NS_PER_MS,
        termination_timeout_ns=config.termination_timeout_ms * _NS_PER_MS,
        session_timeout_ns=config.session_timeout_ms * _NS_PER_MS,
        session_limit=config.session_limit,
        client_session_limit=config.client_session_limit or share_of(config.session_limit),
        connection_session_limit=config.connection_session_limit,
        service_count=len(services),
        refused_ingress=_find_refused(services, aeron_messages_only=config.aeron_messages_only),
        service_queue_limit_bytes=config.service_queue_limit_bytes,
        shared_timer_ids=config.shared_timer_ids,
        aeron_messages_only=config.aeron_messages_only,
        initial_term_id=recording.descriptor.initial_term_id,
        term_length_bytes=recording.descriptor.term_buffer_length,
        mtu_length_bytes=recording.descriptor.mtu_length,
        checksums=config.checksums,
        checksum_kind=ChecksumKind.labelled(config.checksum_kind),
        ingress_window_bytes=config.ingress_window_bytes,
        catchup_near_bytes=config.join_near_bytes,
        retention=RetentionPolicy(
            keep_all=config.keep_all,
            keep_snapshots=config.keep_snapshots,
            keep_log_bytes=config.keep_log_bytes,
        ),
        snapshot_policy=_make_snapshot_policy(config, services),
        app_version=config.app_version,
        stops_when_diverged=config.when_diverged == "stop",
        leader_priority=config.leader_priority,
        group=config.own_group,
        log_source_id=config.log_source_id,
        clock_skew_limit_ns=config.clock_skew_limit_ms * _NS_PER_MS,
        sync_slow_ns=config.sync_slow_ms * _NS_PER_MS,
        slow_disk_hand_over=config.slow_disk_hand_over,
        code_digest=code.digest,
        known_level=find_known_level(services),
    )


def _make_snapshot_policy(config: NodeConfig, services: Sequence[ClusteredService]) -> SnapshotPolicy:
    """Return when this member, while it leads, has snapshots taken; never where a service cannot write its state."""
    if not all(service.takes_snapshots for service in services):
        return ON_REQUEST_ONLY
    return SnapshotPolicy(
        interval_ns=config.snapshot_interval_ms * _NS_PER_MS,
        log_bytes=config.snapshot_log_bytes,
    )


def _find_refused(services: Sequence[ClusteredService], *, aeron_messages_only: bool) -> int:
    """Return what no service has a callback for, or the setting refuses, as `SessionLimits` says it."""
    takes_messages = any(service.takes_messages for service in services)
    takes_requests = any(service.takes_requests for service in services)
    refused = (0 if takes_messages else REFUSES_MESSAGES) | (0 if takes_requests else REFUSES_REQUESTS)
    return refused | (REFUSES_REQUESTS | REFUSED_BY_SETTING if aeron_messages_only else 0)
