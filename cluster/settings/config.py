"""The settings of one node, and what they must satisfy together.

A node never runs with timeouts that cannot work: relations between settings are checked when the config is
made. `NodeConfig(...)` reads nothing but its arguments; `config_layers` adds flags, environment and file.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Final, Self

from pydantic import model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from ...service_api.addresses.name_pattern import MEMBER_ID_PLACE as MEMBER_ID_PLACE
from ...service_api.endpoint import Endpoint
from ...service_api.errors import ConfigurationError
from ...service_api.groups.group import Group
from ...service_api.tls.settings import TlsSettings
from ...service_api.types import MemberId
from ..core.vocabulary.configuration import find_witness_fault
from .fields import (
    MTU_LENGTH_MAX_BYTES,
    ClusterSettings,
    DiskSettings,
    LimitSettings,
    SessionSettings,
    WatchingSettings,
)
from .health_limits import HealthLimits
from .member_endpoints import MemberEndpoints as MemberEndpoints
from .member_endpoints import format_members as format_members
from .member_endpoints import parse_listen as parse_listen
from .member_endpoints import parse_members as parse_members
from .member_endpoints import parse_witnesses as parse_witnesses
from .variables import ENV_PREFIX

TLS_PREFIX: Final = "tls_"
"""The settings of TLS begin with it; in a file they are the table `[tls]`, without it."""
TERM_LENGTH_MIN_BYTES: Final = 64 * 1024
TERM_LENGTH_MAX_BYTES: Final = 1024 * 1024 * 1024


class NodeConfig(WatchingSettings, LimitSettings, DiskSettings, SessionSettings, ClusterSettings, BaseSettings):
    """Everything one member needs to know before it starts. Times are milliseconds, sizes bytes.

    Made from its arguments alone; `load_node_config` adds the other layers. Pydantic puts the fields of the last class
    first, so the fields stand in the order of `HEADINGS`.

    Raises:
        pydantic.ValidationError: a value has the wrong type, or the settings do not fit together.
    """

    model_config = SettingsConfigDict(frozen=True, strict=True, extra="forbid", env_prefix=ENV_PREFIX)

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
                name.removeprefix(TLS_PREFIX): self._with_own_id(getattr(self, name))
                for name in NodeConfig.model_fields
                if name.startswith(TLS_PREFIX)
            }
        )

    @property
    def metrics(self) -> Endpoint | None:
        """Where this member serves its metrics; None: nowhere.

        Raises:
            ConfigurationError: with this member's id it is no endpoint.
        """
        text = self._with_own_id(self.metrics_endpoint)
        return Endpoint.parse(text, may_be_ephemeral=True) if text else None

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

    def _with_own_id(self, text: str) -> str:
        return text.replace(MEMBER_ID_PLACE, str(self.member_id))

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
            _ = self.metrics
        except ConfigurationError as error:
            problems.append(f"metrics_endpoint={self.metrics_endpoint!r}: {error}")
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
