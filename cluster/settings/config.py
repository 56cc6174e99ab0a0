"""The settings of one node, and what they must satisfy together.

A node never runs with timeouts that cannot work: relations between settings are checked when the config is
made. `NodeConfig(...)` reads nothing but its arguments; `config_layers` adds flags, environment and file.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from ...service_api.addresses.name_pattern import MEMBER_ID_PLACE as MEMBER_ID_PLACE
from ...service_api.cluster_id import NULL_CLUSTER_ID
from ...service_api.endpoint import Endpoint
from ...service_api.errors import ConfigurationError
from ...service_api.groups.group import GROUP_COUNT_MAX, Group
from ...service_api.tls.settings import TlsSettings
from ...service_api.types import MemberId
from ...service_api.wire.session import DEFAULT_LEADER_HEARTBEAT_TIMEOUT_NS
from ..core.vocabulary.configuration import find_witness_fault
from .health_limits import HealthLimits
from .member_endpoints import MemberEndpoints as MemberEndpoints
from .member_endpoints import format_members as format_members
from .member_endpoints import parse_listen as parse_listen
from .member_endpoints import parse_members as parse_members
from .member_endpoints import parse_witnesses as parse_witnesses
from .setting_kinds import (
    AmountBytes,
    AmountMillis,
    AppVersion,
    ClusterIdText,
    Count,
    KindOfChecksum,
    Location,
    LogFormat,
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

ENV_PREFIX: Final = "TRIMARAN_"
TLS_PREFIX: Final = "tls_"
"""The settings of TLS begin with it; in a file they are the table `[tls]`, without it."""
MTU_LENGTH_MAX_BYTES: Final = 65504
TERM_LENGTH_MIN_BYTES: Final = 64 * 1024
TERM_LENGTH_MAX_BYTES: Final = 1024 * 1024 * 1024


class NodeConfig(BaseSettings):
    """Everything one member needs to know before it starts. Times are milliseconds, sizes bytes.

    Made from its arguments alone; `load_node_config` adds the other layers.

    Raises:
        pydantic.ValidationError: a value has the wrong type, or the settings do not fit together.
    """

    model_config = SettingsConfigDict(frozen=True, strict=True, extra="forbid", env_prefix=ENV_PREFIX)

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
            description="ids of those of the members that are witnesses, with commas: they vote, and run no service",
        ),
    ] = ""
    join: Annotated[
        Text,
        Field(
            description="members of a running cluster to join, as in members, which then names this member alone; used "
            "until this member's log says who the members are"
        ),
    ] = ""
    standby: Annotated[
        Switch,
        Field(
            description="whether this member is to join as a standby, which takes the snapshots for the others; its "
            "log says what it is from then on"
        ),
    ] = False
    log_source: Annotated[
        Text,
        Field(
            pattern=r"^(|\d+)$",
            description="id of the member that this standby takes the log from, lower than its own, while that one can "
            "be used; empty: the leader",
        ),
    ] = ""
    listen: Annotated[
        Text,
        Field(
            description="what this member binds: an address for the ports in members, an address and its first port, "
            "or five endpoints with commas; empty: what others dial"
        ),
    ] = ""
    cluster_id: Annotated[
        ClusterIdText,
        Field(
            description="the cluster to belong to, or to ask: 16 hexadecimal digits, as `trimaran status` shows them; "
            "empty: drawn when the cluster forms, and any may answer"
        ),
    ] = NULL_CLUSTER_ID
    groups: Annotated[
        Count,
        Field(
            ge=1,
            le=GROUP_COUNT_MAX,
            description="how many groups the cluster has, each with a log of its own, a process on each machine, and "
            "ports 100 above those of the group before; fixed when the cluster forms, the same on every member",
        ),
    ] = 1
    group: Annotated[
        Text,
        Field(
            pattern=r"^(|\d{1,4})$",
            description="which of the groups this process runs, or a command is to ask, from 0 on; empty: all of them",
        ),
    ] = ""
    directory: Annotated[Location, Field(description="directory of this member's files; one for each member")]
    service: Annotated[
        Text,
        Field(
            pattern=r"^(|[\w.]+:\w+(,[\w.]+:\w+){0,9})$",
            description="the service to run, as module:Class; up to ten with commas, with ids from 0 on; a witness "
            "needs none",
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
            description="the first digits of the code digest of this member's services, which may then replay entries "
            "that other code ran; or any",
        ),
    ] = ""
    authenticator: Annotated[
        Text, Field(description="who may open sessions: accept-all, password (see secrets_file), or module:Class")
    ] = "accept-all"
    secrets_file: Annotated[
        Text, Field(description="file of the password authenticator; `trimaran secrets add` creates it")
    ] = ""
    authorisation: Annotated[
        Text, Field(description="who may make requests: default (no admin requests), allow-all, deny-all, module:Class")
    ] = "default"

    tls_authorities: Annotated[
        Text,
        Field(
            description="file of the certificates of the authorities that sign this cluster's certificates, which "
            "turns TLS on; a client may say: system"
        ),
    ] = ""
    tls_certificate: Annotated[
        Text,
        Field(
            description="file of the certificate to show, in PEM; {member_id} in its name stands for the member's id"
        ),
    ] = ""
    tls_key: Annotated[Text, Field(description="file of its private key; {member_id} as above")] = ""
    tls_verify: Annotated[
        VerifyServer,
        Field(
            description="name, cluster or auto: how a client has a member show who it is; auto: as a member of the "
            "cluster if its id is known, else by its host name"
        ),
    ] = "auto"
    tls_spiffe_prefix: Annotated[
        Text,
        Field(
            description="trust domain and path with which a URI of SPIFFE in a certificate is an identity, such as "
            "spiffe://example.org/ns/prod; empty: no such URI is"
        ),
    ] = ""
    insecure_plaintext: Annotated[
        Switch,
        Field(
            description="run without TLS on addresses that other machines reach: any process that can connect is "
            "believed"
        ),
    ] = False

    file_sync_level: Annotated[
        Count,
        Field(ge=0, le=2, description="0 page cache, 1 fdatasync, 2 fsync, before anything is acknowledged"),
    ] = 1
    checksums: Annotated[Switch, Field(description="write a checksum into every recorded frame")] = True
    checksum_kind: Annotated[
        KindOfChecksum, Field(description="which checksum: crc32 or crc32c; as it is in a log that was imported")
    ] = "crc32"
    term_length_bytes: Annotated[SizeBytes, Field(description="the log's term length: a power of two")] = 64 << 20
    segment_length_bytes: Annotated[SizeBytes, Field(description="a segment file's length: a multiple of a term")] = (
        128 << 20
    )
    mtu_length_bytes: Annotated[SizeBytes, Field(description="the largest frame, header included")] = (
        MTU_LENGTH_MAX_BYTES
    )

    startup_canvass_timeout_ms: Annotated[
        Millis, Field(description="how long a starting member waits for all the others")
    ] = 6_000
    election_timeout_ms: Annotated[Millis, Field(description="how long a step of an election may take")] = 500
    election_status_interval_ms: Annotated[Millis, Field(description="time between messages of an election")] = 100
    leader_heartbeat_timeout_ms: Annotated[Millis, Field(description="silence after which a leader counts as lost")] = (
        DEFAULT_LEADER_HEARTBEAT_TIMEOUT_NS // 1_000_000
    )
    leader_heartbeat_interval_ms: Annotated[Millis, Field(description="time between heartbeats of an idle leader")] = (
        200
    )
    session_timeout_ms: Annotated[Millis, Field(description="silence after which a client session is closed")] = 10_000
    termination_timeout_ms: Annotated[Millis, Field(description="how long a shutdown waits for followers")] = 10_000
    session_limit: Annotated[Count, Field(ge=1, description="the most client sessions open at once")] = 10_000
    client_session_limit: Annotated[
        Count,
        Field(
            description="the most client sessions of one principal, or of one address where clients have no principal; "
            "0: a quarter of session_limit"
        ),
    ] = 0
    connection_session_limit: Annotated[
        Count, Field(ge=1, description="the most client sessions that share one connection; 1: none is shared")
    ] = 10_000
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
    service_queue_limit_bytes: Annotated[
        SizeBytes,
        Field(
            gt=0,
            description="most bytes that a service may have offered and that are not delivered; "
            "the same on every member",
        ),
    ] = 64 << 20
    ingress_window_bytes: Annotated[
        SizeBytes, Field(description="most bytes received from clients and not delivered")
    ] = 16 << 20
    egress_limit_bytes: Annotated[
        SizeBytes,
        Field(
            ge=1 << 20, description="most egress bytes that clients have not taken, all together; then some are cut off"
        ),
    ] = 192 << 20
    unfinished_limit_bytes: Annotated[
        SizeBytes,
        Field(ge=1 << 20, description="most bytes of clients' messages that have begun and not ended, all together"),
    ] = 128 << 20
    connection_limit: Annotated[
        Count,
        Field(ge=1, description="most client connections at once; fewer where the process may not open so many files"),
    ] = 65_536
    address_connection_limit: Annotated[
        Count, Field(ge=1, description="most client connections from one address, or one IPv6 network of 64 bits")
    ] = 16_384
    setup_timeout_ms: Annotated[Millis, Field(description="how long a new connection may take to say what it is")] = (
        5_000
    )
    session_open_timeout_ms: Annotated[
        Millis, Field(description="how long a client connection may be without a session")
    ] = 30_000
    catchup_near_bytes: Annotated[
        SizeBytes,
        Field(description="in catch-up, join the live log this near its end; at most half of ingress_window_bytes"),
    ] = 8 << 20

    clock_skew_limit_ms: Annotated[
        Millis,
        Field(
            description="from here on a clock that differs from the majority's is off: health says so, and its member "
            "leads only where no other can"
        ),
    ] = 1_000
    when_diverged: Annotated[
        WhenDiverged,
        Field(
            description="stop or report: what this member does when its service differs from that of a majority of "
            "members"
        ),
    ] = "stop"
    check_queries: Annotated[
        Switch,
        Field(
            description="compare the service's state before and after each query; for development: `trimaran up` and "
            "`trimaran sim` do"
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
            description="the leader has a snapshot taken when the newest is this old, or somewhat earlier when little "
            "is going on; 0: age is no reason"
        ),
    ] = 3_600_000
    snapshot_copies_process: Annotated[
        Switch,
        Field(
            description="where a service yields a large state, write it in a copy of the process, so that the log goes "
            "on meanwhile; takes as much memory again as changes in that time. Linux only"
        ),
    ] = True
    snapshot_log_bytes: Annotated[
        AmountBytes,
        Field(description="the same, when there is so much log after the newest snapshot; 0: length is no reason"),
    ] = 1 << 30
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
            description="without keep_all: the object store that log goes to before it is removed, a URL such as "
            "s3://BUCKET/PATH or file:///PATH, the same for every member; empty: it is lost"
        ),
    ] = ""
    cold_cache_bytes: Annotated[
        AmountBytes,
        Field(description="bytes of log from cold_storage_url to keep on this disk after they were read"),
    ] = 1 << 30

    scrub_bytes_per_s: Annotated[
        AmountBytes,
        Field(
            description="how fast the background scrub reads everything recorded, to find damage while another member "
            "has what is lost; 0: it runs only when `trimaran scrub` asks"
        ),
    ] = 8 << 20
    scrub_interval_ms: Annotated[
        AmountMillis, Field(description="how long after the end of one pass of the scrub the next one begins")
    ] = 86_400_000

    handover_timeout_ms: Annotated[
        AmountMillis,
        Field(
            description="how long a leader that is told to stop may take to hand over to another member; 0: not at all"
        ),
    ] = 5_000
    leader_priority: Annotated[
        Count,
        Field(
            ge=-1_000,
            le=1_000,
            description="a member with a higher one gets leadership from a leader with a lower one, once it has been "
            "fit to lead for a while",
        ),
    ] = 0

    metrics_endpoint: Annotated[
        OptionalEndpoint, Field(description="host:port for /metrics, /livez and /readyz over HTTP; empty: none")
    ] = ""
    metrics_token_file: Annotated[
        Text,
        Field(
            description="file of the token that lets scrapers read /metrics from other machines; without one a "
            "certificate does"
        ),
    ] = ""
    stall_threshold_ms: Annotated[
        Millis, Field(description="an event loop that is busy for this long is logged as a stall")
    ] = 100
    loop_slow_ms: Annotated[
        Millis, Field(description="what keeps the event loop busy for this long is counted by what it was")
    ] = 2
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
    log_format: Annotated[LogFormat, Field(description="auto: console in a terminal, JSON otherwise")] = "auto"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read arguments only, so that making a config has no hidden inputs."""
        return (init_settings,)

    @property
    def own_group(self) -> Group:
        """Which of the cluster's groups this member is in.

        Raises:
            ConfigurationError: there are several, and it says none.
        """
        if self.groups > 1 and not self.group:
            raise ConfigurationError(f"groups={self.groups} group='': expected group, for one process runs one group")
        return Group(int(self.group or 0), self.groups)

    @property
    def services(self) -> tuple[str, ...]:
        """Each service as module:Class, by service id; none of a witness."""
        return () if self.is_witness else tuple(self.service.split(","))

    @property
    def is_witness(self) -> bool:
        """Whether this member is a witness."""
        return self.member_id in self.witness_ids

    @property
    def log_source_id(self) -> MemberId | None:
        """Which member this one takes the log from, while it is a standby; None: the leader."""
        return MemberId(int(self.log_source)) if self.log_source else None

    @property
    def witness_ids(self) -> frozenset[int]:
        """Which of the members are witnesses."""
        return parse_witnesses(self.witnesses)

    @property
    def tls(self) -> TlsSettings | None:
        """This member's settings of TLS; None: everything is in plain text."""
        return TlsSettings.of_values(
            {
                name.removeprefix(TLS_PREFIX): getattr(self, name).replace(MEMBER_ID_PLACE, str(self.member_id))
                for name in NodeConfig.model_fields
                if name.startswith(TLS_PREFIX)
            }
        )

    @property
    def health_limits(self) -> HealthLimits:
        """From where on this member says that it is not well."""
        return HealthLimits(**{field.name: getattr(self, field.name) for field in fields(HealthLimits)})

    @property
    def me(self) -> MemberEndpoints:
        """This member's own endpoints."""
        return self.member(self.member_id)

    @property
    def listening(self) -> MemberEndpoints:
        """What this member binds, which need not be what others dial."""
        return parse_listen(self.listen, self.me)

    @property
    def is_disk_shared(self) -> bool:
        """Whether syncs of this member compete with those of other members. Not at level 0, where nothing is synced."""
        if self.file_sync_level == 0 or self.shared_machine == "off":
            return False
        hosts = {Endpoint.parse(endpoint).host for member in self.members for endpoint in member.endpoints}
        return self.shared_machine == "on" or len(hosts) == 1

    @property
    def join_near_bytes(self) -> int:
        """How near the end of the live log a catch-up joins it: the leader's memory must still hold what follows."""
        return min(self.catchup_near_bytes, self.ingress_window_bytes // 2)

    def member(self, member_id: int) -> MemberEndpoints:
        """One member's endpoints.

        Raises:
            ConfigurationError: no such member.
        """
        for member in self.members:
            if member.member_id == member_id:
                return member
        raise ConfigurationError(f"unknown member: member_id={member_id} members={format_members(self.members)}")

    @model_validator(mode="after")
    def _check_relations(self) -> Self:
        problems = [*_member_problems(self), *_length_problems(self), *_timeout_problems(self)]
        if self.group and int(self.group) >= self.groups:
            problems.append(f"group={self.group}: expected 0 to {self.groups - 1}, for groups={self.groups}")
        if (self.authenticator == "password") != bool(self.secrets_file):
            problems.append(
                f"authenticator={self.authenticator} and secrets_file={self.secrets_file!r}: "
                "expected both authenticator=password and a file, or neither"
            )
        problems.extend(_cold_storage_problems(self))
        try:
            tls = self.tls
        except ConfigurationError as error:
            problems.append(str(error))
        else:
            if tls is not None and not tls.certificate:
                problems.append("tls_certificate='' and tls_key='': expected both files, for a member shows who it is")
        if problems:
            raise ValueError("\n".join(problems))
        return self


def _cold_storage_problems(config: NodeConfig) -> list[str]:
    if not config.cold_storage_url:
        return []
    problems = []
    if config.keep_all:
        problems.append(
            f"cold_storage_url={config.cold_storage_url!r} with keep_all=true: expected keep_all=false, for nothing "
            "leaves this disk otherwise"
        )
    segment_length = max(config.segment_length_bytes, config.term_length_bytes)
    if config.cold_cache_bytes < segment_length:
        problems.append(f"cold_cache_bytes={config.cold_cache_bytes} expected at least one segment, {segment_length}")
    return problems


def _member_problems(config: NodeConfig) -> list[str]:
    ids = [member.member_id for member in config.members]
    problems = [f"member id given twice: member_id={i}" for i in sorted({i for i in ids if ids.count(i) > 1})]
    if config.member_id not in ids:
        problems.append(f"own id is not in members: member_id={config.member_id} expected one of {sorted(ids)}")
    if not config.service and not config.is_witness:
        problems.append("service='': expected \"module:Class\", or this member among witnesses")
    strangers = sorted(config.witness_ids - set(ids))
    if strangers and not config.join:
        problems.append(f"witnesses={config.witnesses!r}: expected ids of members, which {strangers} are not")
    fault = find_witness_fault(len(config.witness_ids.intersection(ids)), len(ids))
    if fault is not None and not config.join:
        problems.append(f"witnesses={config.witnesses!r}: {fault}")
    if config.standby and not config.join:
        problems.append("standby=true: expected members to join in join: a standby joins a cluster that runs")
    if config.standby and config.is_witness:
        problems.append(
            f"standby=true and witnesses={config.witnesses!r}: expected one of them: a standby runs services"
        )
    if config.log_source_id is not None and config.log_source_id >= config.member_id:
        problems.append(
            f"log_source={config.log_source!r}: expected a lower id than this member's, {config.member_id}, so that "
            "standbys never follow each other in a ring"
        )
    if config.join:
        try:
            seeds = parse_members(config.join)
        except ConfigurationError as error:
            problems.append(f"join={config.join!r}: {error}")
        else:
            if all(seed.member_id == config.member_id for seed in seeds):
                problems.append(f"join={config.join!r}: expected other members than this one, {config.member_id}")
        if len(config.members) > 1:
            problems.append(f"members={format_members(config.members)} with join: expected this member alone")
    if config.member_id in ids:
        try:
            parse_listen(config.listen, config.me)
        except ConfigurationError as error:
            problems.append(str(error))
    owners: dict[str, int] = {}
    for member in config.members:
        for endpoint in member.endpoints:
            other = owners.setdefault(endpoint, member.member_id)
            if other != member.member_id:
                problems.append(f"endpoint given twice: endpoint={endpoint} members={other},{member.member_id}")
    return problems


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def _length_problems(config: NodeConfig) -> list[str]:
    term, segment, mtu = config.term_length_bytes, config.segment_length_bytes, config.mtu_length_bytes
    problems = []
    if not (_is_power_of_two(term) and TERM_LENGTH_MIN_BYTES <= term <= TERM_LENGTH_MAX_BYTES):
        problems.append(f"term_length_bytes={term}: expected a power of two from 64KiB to 1GiB")
    if not _is_power_of_two(segment) or segment < term:
        problems.append(f"segment_length_bytes={segment}: expected a power of two of at least term_length_bytes={term}")
    if mtu % 32 or not 64 <= mtu <= MTU_LENGTH_MAX_BYTES:
        problems.append(f"mtu_length_bytes={mtu}: expected a multiple of 32 from 64 to {MTU_LENGTH_MAX_BYTES}")
    if mtu > term // 8:
        problems.append(f"mtu_length_bytes={mtu}: expected at most an eighth of term_length_bytes={term}")
    if config.ingress_window_bytes < 2 * mtu:
        window = config.ingress_window_bytes
        problems.append(f"ingress_window_bytes={window}: expected at least two of mtu_length_bytes={mtu}")
    return problems


def _timeout_problems(config: NodeConfig) -> list[str]:
    """Relations without which elections cannot succeed, each as `left >= factor * right`."""
    relations = (
        ("startup_canvass_timeout_ms", 2, "leader_heartbeat_timeout_ms"),
        ("leader_heartbeat_timeout_ms", 2, "leader_heartbeat_interval_ms"),
        ("election_timeout_ms", 2, "election_status_interval_ms"),
        ("session_timeout_ms", 1, "leader_heartbeat_timeout_ms"),
    )
    problems = []
    for left, factor, right in relations:
        have, need = getattr(config, left), factor * getattr(config, right)
        if have < need:
            times = f"{factor} x " if factor > 1 else ""
            problems.append(
                f"{left}={have}: expected at least {need}, which is {times}{right}={getattr(config, right)}"
            )
    return problems
