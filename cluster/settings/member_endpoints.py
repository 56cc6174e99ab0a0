"""The endpoints of a member, and the two forms of text for them.

A member has five endpoints. Written out, as Aeron does, a member is six fields and members are joined by `|`:

    0,host:9000,host:9001,host:9002,host:9003,host:9004|1,...

Mostly they are consecutive ports, so the short form names the first and the others follow from it:

    0=host:9000,1=host:9010,2=host:9020

Where names say which member is which, a pattern stands for all of them (`service_api.addresses.name_pattern`):

    dns://trimaran-{member_id}.trimaran:9000?size=3
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from ...service_api.addresses.name_pattern import SCHEME, NamePattern
from ...service_api.endpoint import Endpoint
from ...service_api.errors import ConfigurationError
from ...service_api.member_id import parse_member_id
from ...service_api.types import MemberId
from ..core.vocabulary.configuration import PORTS_PER_MEMBER as PORTS_PER_MEMBER
from ..core.vocabulary.configuration import ConfiguredMember, MemberKind, are_derived, derive_endpoints


class MemberEndpoints(BaseModel):
    """One member's id and its five endpoints, `host:port` each. Source: Aeron `ClusterMember.parse`."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    member_id: int
    ingress: str
    consensus: str
    log: str
    catchup: str
    archive: str

    @classmethod
    def from_base(cls, member_id: int, endpoint: str) -> Self:
        """Derive the five endpoints from the first: consensus is one port up, then log, catchup, archive.

        Raises:
            ConfigurationError: the endpoint is bad, or its port too high for four more.
        """
        ingress, consensus, log, catchup, archive = derive_endpoints(endpoint)
        return cls(
            member_id=member_id,
            ingress=ingress,
            consensus=consensus,
            log=log,
            catchup=catchup,
            archive=archive,
        )

    @property
    def endpoints(self) -> tuple[str, str, str, str, str]:
        """All five, in wire order."""
        return self.ingress, self.consensus, self.log, self.catchup, self.archive

    def configured(self, kind: MemberKind = MemberKind.VOTER) -> ConfiguredMember:
        """Return it as a member of a configuration."""
        return ConfiguredMember(MemberId(self.member_id), kind, self.endpoints)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.member_id < 0:
            raise ConfigurationError(f"bad member id: member_id={self.member_id} expected 0 or more")
        for endpoint in self.endpoints:
            Endpoint.parse(endpoint)
        if len(set(self.endpoints)) != PORTS_PER_MEMBER:
            raise ConfigurationError(f"endpoint given twice: member_id={self.member_id} endpoints={self.endpoints}")
        return self


class MembersByName(tuple[MemberEndpoints, ...]):
    """The members that a pattern of names stands for. It knows how any other member would be named."""

    pattern: NamePattern

    @classmethod
    def of(cls, pattern: NamePattern) -> Self:
        """Name the members 0 to `pattern.size` - 1."""
        made = cls(MemberEndpoints.from_base(i, endpoint) for i, endpoint in enumerate(pattern.endpoints))
        made.pattern = pattern
        return made

    def name(self, member_id: int) -> MemberEndpoints:
        """Name one more member."""
        return MemberEndpoints.from_base(member_id, self.pattern.endpoint_of(member_id))


def parse_members(text: str) -> tuple[MemberEndpoints, ...]:
    """Read a member list in any form, in the order given.

    Raises:
        ConfigurationError: the user's: names the part that cannot be read and what was expected.
    """
    if text.strip().startswith(SCHEME):
        return MembersByName.of(NamePattern.parse(text.strip()))
    if "=" in text:
        members = tuple(_parse_short(part.strip()) for part in text.split(",") if part.strip())
    else:
        members = tuple(_parse_long(part.strip()) for part in text.split("|") if part.strip(" ,\t\r\n"))
    if not members:
        raise ConfigurationError('empty member list: expected members such as "0=127.0.0.1:9000,1=127.0.0.1:9010"')
    ids = [member.member_id for member in members]
    for member_id in ids:
        if ids.count(member_id) > 1:
            raise ConfigurationError(f"bad member list: member_id={member_id} is given twice in {text!r}")
    return members


def parse_witnesses(text: str) -> frozenset[int]:
    """Read the ids of the members that are witnesses, which a pattern has checked."""
    return frozenset(int(part) for part in text.split(",") if part)


def parse_listen(text: str, advertised: MemberEndpoints) -> MemberEndpoints:
    """Read what a member binds: an address, an address and a base port, or five endpoints; empty: what it advertises.

    Raises:
        ConfigurationError: the user's: names what cannot be read.
    """
    parts = [part.strip() for part in text.split(",")]
    try:
        if not text:
            return advertised
        if len(parts) == PORTS_PER_MEMBER:
            endpoints: Sequence[str] = parts
        elif len(parts) != 1:
            raise ConfigurationError("expected HOST, HOST:BASE_PORT, or ingress,consensus,log,catchup,archive")
        elif text.rpartition(":")[2].isdigit() and ":" in text:
            endpoints = derive_endpoints(text)
        else:
            ports = [Endpoint.parse(endpoint).port for endpoint in advertised.endpoints]
            endpoints = [str(Endpoint.parse(f"{text}:{port}")) for port in ports]
        ingress, consensus, log, catchup, archive = endpoints
        return MemberEndpoints(
            member_id=advertised.member_id,
            ingress=ingress,
            consensus=consensus,
            log=log,
            catchup=catchup,
            archive=archive,
        )
    except ConfigurationError as error:
        raise ConfigurationError(f"listen={text!r}: {error}") from None


def format_members(members: Sequence[MemberEndpoints]) -> str:
    """Write a member list: short if every member's ports are consecutive, in Aeron's form otherwise."""
    derived = [are_derived(member.endpoints) for member in members]
    if all(derived):
        return ",".join(f"{member.member_id}={member.ingress}" for member in members)
    return "|".join(",".join((str(member.member_id), *member.endpoints)) for member in members)


def _parse_short(part: str) -> MemberEndpoints:
    member_id, separator, endpoint = part.partition("=")
    if not separator:
        raise ConfigurationError(f"bad member: {part!r}: expected ID=HOST:BASE_PORT, such as 0=127.0.0.1:9000")
    return MemberEndpoints.from_base(parse_member_id(member_id.strip()), endpoint.strip())


def _parse_long(part: str) -> MemberEndpoints:
    fields = [field.strip() for field in part.split(",")]
    if len(fields) != 1 + PORTS_PER_MEMBER:
        raise ConfigurationError(
            f"bad member: {part!r}: expected ID=HOST:BASE_PORT, or id,ingress,consensus,log,catchup,archive"
        )
    ingress, consensus, log, catchup, archive = fields[1:]
    return MemberEndpoints(
        member_id=parse_member_id(fields[0]),
        ingress=ingress,
        consensus=consensus,
        log=log,
        catchup=catchup,
        archive=archive,
    )
