"""Every setting of a node, under one of five headings.

A class holds the settings of one heading, in the order in which a file, the help of a command and the page of the
settings show them. `NodeConfig` is made of these classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, Field

from ...service_api.cluster_id import NULL_CLUSTER_ID
from ...service_api.groups.group import GROUP_COUNT_MAX
from ...service_api.wire.session import DEFAULT_LEADER_HEARTBEAT_TIMEOUT_NS
from .setting_kinds import (
    AmountBytes,
    AmountMillis,
    AppVersion,
    ClusterIdText,
    Count,
    KindOfChecksum,
    Location,
    LogFormat,
    LogLevel,
    Members,
    Millis,
    OptionalEndpoint,
    SharedMachine,
    SizeBytes,
    Switch,
    Text,
    VerifyServer,
    WhenDiverged,
)

MTU_LENGTH_MAX_BYTES: Final = 65504


class ClusterSettings(BaseModel):
    """Cluster: the members, their service and TLS, and how they elect a leader."""

    member_id: Annotated[Count, Field(ge=0, description="this member's id: a number in members")]
    members: Annotated[
        Members,
        Field(
            description="every member: ID=HOST:BASE_PORT,..., Aeron's six fields each, or "
            "dns://HOST:BASE_PORT?size=N with {member_id} in HOST"
        ),
    ]
    witnesses: Annotated[
        Text,
        Field(
            pattern=r"^(|\d+(,\d+)*)$",
            description="ids of the members that are witnesses, separated by commas: a witness votes and runs no "
            "service",
        ),
    ] = ""
    join: Annotated[
        Text,
        Field(
            description="members of a running cluster to join, written as in members, which then names this member "
            "alone; used until this member's log says who the members are"
        ),
    ] = ""
    standby: Annotated[
        Switch,
        Field(
            description="join as a standby, which takes the snapshots for the others; once it has joined, its log "
            "says what it is"
        ),
    ] = False
    log_source: Annotated[
        Text,
        Field(
            pattern=r"^(|\d+)$",
            description="id of the member from which this standby takes the log while that one can be used, lower "
            "than its own; empty: the leader",
        ),
    ] = ""
    listen: Annotated[
        Text,
        Field(
            description="addresses to bind: one address for the ports in members, an address and its first port, or "
            "five endpoints separated by commas; empty: the endpoints in members"
        ),
    ] = ""
    cluster_id: Annotated[
        ClusterIdText,
        Field(
            description="id of the cluster to belong to, or to ask: 16 hexadecimal digits, as `trimaran status` shows "
            "them; empty: a new cluster draws one, and a command asks any cluster"
        ),
    ] = NULL_CLUSTER_ID
    groups: Annotated[
        Count,
        Field(
            ge=1,
            le=GROUP_COUNT_MAX,
            description="number of groups in the cluster, each with its own log, a process on each machine, and ports "
            "100 above those of the group before; fixed when the cluster forms, the same on every member",
        ),
    ] = 1
    group: Annotated[
        Text,
        Field(
            pattern=r"^(|\d{1,4})$",
            description="the group that this process runs or that a command asks, from 0; empty: all groups",
        ),
    ] = ""
    service: Annotated[
        Text,
        Field(
            pattern=r"^(|[\w.]+:\w+(,[\w.]+:\w+){0,9})$",
            description="the service to run, as module:Class; up to ten separated by commas, with ids from 0; not "
            "needed on a witness",
        ),
    ]
    service_dir: Annotated[
        Location, Field(description="directory to put on the import path before the service is loaded")
    ] = Path(".")
    app_version: Annotated[
        AppVersion, Field(description="the service's version; the major number must be the same on every member")
    ] = 1 << 8
    accept_code: Annotated[
        Text,
        Field(
            pattern=r"^(|any|[0-9a-f]{4,16})$",
            description="permission to replay entries that other code ran: the first digits of the code digest of this "
            "member's services, or any",
        ),
    ] = ""
    shared_timer_ids: Annotated[
        Switch,
        Field(
            description="services share timer ids, and each receives every timer event, as in Aeron; "
            "the same on every member"
        ),
    ] = False
    aeron_messages_only: Annotated[
        Switch,
        Field(
            description="keep out of the log what an Aeron member would misread: requests are refused; "
            "the same on every member"
        ),
    ] = False
    tls_authorities: Annotated[
        Text,
        Field(
            description="file with the certificates of the authorities that sign this cluster's certificates, which "
            "turns TLS on; a client may write system"
        ),
    ] = ""
    tls_certificate: Annotated[
        Text,
        Field(
            description="file with the certificate to show, in PEM; {member_id} in its name stands for the member's id"
        ),
    ] = ""
    tls_key: Annotated[
        Text,
        Field(
            description="file with the private key of tls_certificate; {member_id} in its name stands for the "
            "member's id"
        ),
    ] = ""
    tls_verify: Annotated[
        VerifyServer,
        Field(
            description="how a client verifies a member: name (its host name), cluster (as a member of the cluster) "
            "or auto (cluster if the cluster's id is known, else name)"
        ),
    ] = "auto"
    tls_spiffe_prefix: Annotated[
        Text,
        Field(
            description="trust domain and path of the SPIFFE URIs that are identities in certificates, such as "
            "spiffe://example.org/ns/prod; empty: SPIFFE URIs are ignored"
        ),
    ] = ""
    insecure_plaintext: Annotated[
        Switch,
        Field(
            description="allow plain text on addresses that other machines can reach: any process that can connect is "
            "trusted"
        ),
    ] = False
    startup_canvass_timeout_ms: Annotated[
        Millis, Field(description="longest time that a starting member waits for all the others")
    ] = 6_000
    election_timeout_ms: Annotated[Millis, Field(description="longest time that a step of an election may take")] = 500
    election_status_interval_ms: Annotated[Millis, Field(description="time between messages of an election")] = 100
    leader_heartbeat_timeout_ms: Annotated[
        Millis, Field(description="time without a heartbeat after which a leader counts as lost")
    ] = DEFAULT_LEADER_HEARTBEAT_TIMEOUT_NS // 1_000_000
    leader_heartbeat_interval_ms: Annotated[Millis, Field(description="time between heartbeats of an idle leader")] = (
        200
    )
    leader_priority: Annotated[
        Count,
        Field(
            ge=-1_000,
            le=1_000,
            description="preference as leader: a leader hands over to a member with a higher one, once that member "
            "has been fit to lead for a while",
        ),
    ] = 0
    slow_disk_hand_over: Annotated[
        Switch,
        Field(
            description="a leader whose syncs take sync_slow_ms or longer hands over, once a majority of the voters "
            "has been at least four times as fast for a while"
        ),
    ] = True
    handover_timeout_ms: Annotated[
        AmountMillis,
        Field(
            description="longest time that a leader that is told to stop takes to hand over to another member; 0: it "
            "does not hand over"
        ),
    ] = 5_000
    termination_timeout_ms: Annotated[Millis, Field(description="longest time that a shutdown waits for followers")] = (
        10_000
    )


class SessionSettings(BaseModel):
    """Sessions: who may open a client session, how many there may be, and how long one lasts."""

    authenticator: Annotated[
        Text, Field(description="who may open sessions: accept-all, password (see secrets_file), or module:Class")
    ] = "accept-all"
    secrets_file: Annotated[
        Text, Field(description="file of the password authenticator; `trimaran secrets add` creates it")
    ] = ""
    authorisation: Annotated[
        Text, Field(description="who may make requests: default (no admin requests), allow-all, deny-all, module:Class")
    ] = "default"
    session_limit: Annotated[Count, Field(ge=1, description="most client sessions open at once")] = 10_000
    client_session_limit: Annotated[
        Count,
        Field(
            description="most client sessions of one principal, or of one address where clients have no principal; 0: "
            "a quarter of session_limit"
        ),
    ] = 0
    connection_session_limit: Annotated[
        Count, Field(ge=1, description="most client sessions that share one connection; 1: no connection is shared")
    ] = 10_000
    session_timeout_ms: Annotated[
        Millis, Field(description="time without a message after which a client session is closed")
    ] = 10_000
    session_open_timeout_ms: Annotated[
        Millis, Field(description="longest time that a client connection may be without a session")
    ] = 30_000
    setup_timeout_ms: Annotated[
        Millis, Field(description="longest time that a new connection may take to say what it is")
    ] = 5_000


class DiskSettings(BaseModel):
    """Disk: the log and the snapshots: how they are written, how long they are kept, and how damage is found."""

    directory: Annotated[Location, Field(description="directory of this member's files; one for each member")]
    file_sync_level: Annotated[
        Count,
        Field(ge=0, le=2, description="0 page cache, 1 fdatasync, 2 fsync, before anything is acknowledged"),
    ] = 1
    checksums: Annotated[
        Switch, Field(description="write a checksum into every recorded frame; the same on every member")
    ] = True
    checksum_kind: Annotated[
        KindOfChecksum,
        Field(
            description="kind of checksum: crc32 or crc32c; for an imported log, the kind that it has; the same on "
            "every member"
        ),
    ] = "crc32"
    term_length_bytes: Annotated[
        SizeBytes, Field(description="the log's term length: a power of two; the same on every member")
    ] = 64 << 20
    segment_length_bytes: Annotated[
        SizeBytes, Field(description="a segment file's length: a power of two, at least term_length_bytes")
    ] = 128 << 20
    mtu_length_bytes: Annotated[
        SizeBytes, Field(description="the largest frame, header included; the same on every member")
    ] = MTU_LENGTH_MAX_BYTES
    shared_machine: Annotated[
        SharedMachine,
        Field(
            description="leave the disk and processors to other members on this machine; auto: the disk only where all "
            "members' endpoints name one host"
        ),
    ] = "auto"
    snapshot_interval_ms: Annotated[
        AmountMillis,
        Field(
            description="age of the newest snapshot at which the leader has another one taken, or somewhat earlier "
            "when little is going on; 0: age is no reason"
        ),
    ] = 3_600_000
    snapshot_log_bytes: Annotated[
        AmountBytes,
        Field(
            description="bytes of log after the newest snapshot at which the leader has another one taken; 0: length "
            "is no reason"
        ),
    ] = 1 << 30
    snapshot_copies_process: Annotated[
        Switch,
        Field(
            description="write a large state that a service yields in a copy of the process, so that the log goes on "
            "meanwhile; takes as much memory again as changes in that time; Linux only"
        ),
    ] = True
    keep_all: Annotated[Switch, Field(description="never remove a part of the log or a snapshot")] = False
    keep_snapshots: Annotated[
        Count,
        Field(
            ge=1,
            description="without keep_all: number of newest snapshots to keep, with the log after the oldest of them",
        ),
    ] = 2
    keep_log_bytes: Annotated[
        AmountBytes, Field(description="without keep_all: bytes of log to keep in addition, for members that were down")
    ] = 1 << 30
    cold_storage_url: Annotated[
        Text,
        Field(
            description="without keep_all: the object store that log goes to before it is removed here, a URL such as "
            "s3://BUCKET/PATH or file:///PATH, the same for every member; empty: removed log is lost"
        ),
    ] = ""
    cold_cache_bytes: Annotated[
        AmountBytes,
        Field(description="bytes of log from cold_storage_url to keep on this disk after they were read"),
    ] = 1 << 30
    scrub_bytes_per_s: Annotated[
        AmountBytes,
        Field(
            description="speed at which the background scrub reads everything recorded, to find damage while another "
            "member has a valid copy; 0: it runs only when `trimaran scrub` asks"
        ),
    ] = 8 << 20
    scrub_interval_ms: Annotated[
        AmountMillis, Field(description="time from the end of one pass of the scrub to the begin of the next")
    ] = 86_400_000


class LimitSettings(BaseModel):
    """Limits: the connections, and the bytes that a member holds for its clients and its service."""

    connection_limit: Annotated[
        Count,
        Field(ge=1, description="most client connections at once; fewer where the process may not open so many files"),
    ] = 65_536
    address_connection_limit: Annotated[
        Count, Field(ge=1, description="most client connections from one address, or one IPv6 network of 64 bits")
    ] = 16_384
    ingress_window_bytes: Annotated[
        SizeBytes, Field(description="most bytes received from clients that are not delivered yet")
    ] = 16 << 20
    egress_limit_bytes: Annotated[
        SizeBytes,
        Field(
            ge=1 << 20,
            description="most egress bytes that clients have not taken, all clients together; beyond it some are "
            "disconnected",
        ),
    ] = 192 << 20
    unfinished_limit_bytes: Annotated[
        SizeBytes,
        Field(
            ge=1 << 20, description="most bytes of messages that clients have begun and not ended, all clients together"
        ),
    ] = 128 << 20
    service_queue_limit_bytes: Annotated[
        SizeBytes,
        Field(
            gt=0,
            description="most bytes that services have offered and that are not delivered yet; the same on every "
            "member",
        ),
    ] = 64 << 20
    catchup_near_bytes: Annotated[
        SizeBytes,
        Field(description="in catch-up, join the live log this near its end; at most half of ingress_window_bytes"),
    ] = 8 << 20


class WatchingSettings(BaseModel):
    """Watching: metrics, logging and health, and what a member checks while it runs."""

    metrics_endpoint: Annotated[
        OptionalEndpoint,
        Field(
            description="host:port for /metrics, /livez and /readyz over HTTP; {member_id} in it stands for the "
            "member's id; empty: nothing listens"
        ),
    ] = ""
    metrics_token_file: Annotated[
        Text,
        Field(
            description="file of the token that lets scrapers read /metrics from other machines; without one a "
            "certificate does"
        ),
    ] = ""
    log_format: Annotated[LogFormat, Field(description="auto: console in a terminal, JSON otherwise")] = "auto"
    log_level: Annotated[
        LogLevel,
        Field(description="log lines of this level and above; trimaran member-log level changes it while it runs"),
    ] = "info"
    stall_threshold_ms: Annotated[
        Millis, Field(description="an event loop that is busy for this long at a time is logged as a stall")
    ] = 100
    loop_slow_ms: Annotated[
        Millis,
        Field(
            description="a callback or task that keeps the event loop busy for this long is counted in the metrics, "
            "by what it is"
        ),
    ] = 2
    sync_slow_ms: Annotated[
        Millis, Field(description="a sync of the log that takes this long is logged as sync.slow; see also health")
    ] = 100
    hang_timeout_ms: Annotated[
        AmountMillis,
        Field(
            description="a process whose event loop stands still, or whose member does not close, for this long is "
            "ended; callbacks of services and waits for a disk do not count; 0: never"
        ),
    ] = 10_000
    max_lag_bytes: Annotated[
        AmountBytes, Field(description="unhealthy: a member whose log or service is further behind than this")
    ] = 16 << 20
    max_stall_ms: Annotated[
        Millis, Field(description="unhealthy: a delivery, replay or copy that gets no further for longer than this")
    ] = 10_000
    max_log_after_snapshot_bytes: Annotated[
        AmountBytes,
        Field(description="unhealthy: more log than this after a snapshot that is older than max_snapshot_age_ms"),
    ] = 2 << 30
    max_snapshot_age_ms: Annotated[
        Millis, Field(description="unhealthy: see max_log_after_snapshot_bytes; without a snapshot, the age of the log")
    ] = 7_200_000
    min_disk_free_percent: Annotated[
        Count, Field(ge=0, le=100, description="unhealthy: less than this is free on the disk of the directory")
    ] = 5
    min_disk_time_ms: Annotated[
        Millis,
        Field(description="unhealthy: the disk of the directory is full sooner, if it fills on as in the last minutes"),
    ] = 1_800_000
    max_upgrade_ms: Annotated[
        Millis,
        Field(description="unhealthy: members run different code, and no member has started for longer than this"),
    ] = 3_600_000
    clock_skew_limit_ms: Annotated[
        Millis,
        Field(
            description="difference from the clocks of the majority at which a clock counts as wrong: health reports "
            "it, and its member leads only if no other can"
        ),
    ] = 1_000
    when_diverged: Annotated[
        WhenDiverged,
        Field(
            description="stop or report: reaction of this member when its service differs from that of a majority of "
            "members"
        ),
    ] = "stop"
    check_queries: Annotated[
        Switch,
        Field(
            description="compare the service's state before and after queries, for at most a tenth of the time; for "
            "development: `trimaran sim` does, and `trimaran up` for a service of yours"
        ),
    ] = False
    strict: Annotated[
        Switch,
        Field(
            description="log each place of the service that reads a clock, random numbers, the environment or a file, "
            "or that uses the network, processes or threads, while a callback runs; slow, for development"
        ),
    ] = False
    double_execution: Annotated[
        Switch,
        Field(
            description="run two instances of each service on the same entries, and stop where they differ in what "
            "they send, answer or keep; more than twice as slow, for development"
        ),
    ] = False


HEADINGS: Final[Mapping[str, type[BaseModel]]] = {
    "cluster": ClusterSettings,
    "sessions": SessionSettings,
    "disk": DiskSettings,
    "limits": LimitSettings,
    "watching": WatchingSettings,
}
"""The settings under each heading, in the order in which the headings are shown."""


def setting_heading(name: str) -> str:
    """Return the heading that a setting stands under."""
    return next(heading for heading, settings in HEADINGS.items() if name in settings.model_fields)
