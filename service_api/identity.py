"""Who is at the other end of a connection, and how that was shown.

A certificate names one identity per cluster, as a URI among its subject alternative names:

    trimaran://CLUSTER/member/1         one member, by its id
    trimaran://CLUSTER/client/NAME      opens sessions; NAME becomes the principal
    trimaran://CLUSTER/observer/NAME    reads: status, inspections, queries and replays of the archive, metrics
    trimaran://CLUSTER/operator/NAME    does everything that an observer may, and operates the cluster

CLUSTER is the cluster id in 16 hexadecimal digits. Where an issuer gives out URIs of SPIFFE only, the same stands at
the end of such a URI: `spiffe://any.domain/any/path/trimaran/CLUSTER/member/1`. Which authority may sign is the
setting of the one who verifies; its name in the URI counts for nothing.

A caller that shows nothing is a stranger. `service_api.access.permissions` says what each may do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from .cluster_id import CLUSTER_ID_PATTERN, ClusterId, format_cluster_id, parse_cluster_id
from .errors import ConfigurationError
from .member_id import MEMBER_ID_MAX
from .types import MemberId

NAME_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}"
"""Names of clients, observers and operators."""

_ROLE_AND_NAME: Final = rf"(?P<cluster>{CLUSTER_ID_PATTERN})/(?P<role>member|client|observer|operator)/(?P<name>.+)"
_OWN_URI: Final = re.compile(rf"trimaran://{_ROLE_AND_NAME}")
_SPIFFE_URI: Final = re.compile(rf"spiffe://[a-z0-9._-]+(?:/[\w.-]+)*/trimaran/{_ROLE_AND_NAME}")
_EXPECTED: Final = (
    "expected trimaran://CLUSTER/ROLE/NAME with 16 hexadecimal digits, one of member, client, observer and operator, "
    "and a member id or a name of letters, digits and . _ @ + -"
)


class CallerRole(StrEnum):
    """What a caller is to a cluster."""

    STRANGER = "stranger"
    CLIENT = "client"
    OBSERVER = "observer"
    OPERATOR = "operator"
    MEMBER = "member"


class Proof(StrEnum):
    """How a caller has shown who it is."""

    NONE = "none"
    CERTIFICATE = "certificate"
    LOCAL_SOCKET = "local socket"
    """It can open a socket that only the owner of the member's directory may."""
    TOKEN = "token"
    PASSWORD = "password"


@dataclass(slots=True, frozen=True)
class Identity:
    """What a certificate says about its holder."""

    cluster_id: ClusterId
    role: CallerRole
    name: str
    """Of a member the decimal digits of its id."""

    @classmethod
    def parse(cls, uri: str) -> Self:
        """Read an identity's URI.

        Raises:
            ConfigurationError: the text is none.
        """
        found = _OWN_URI.fullmatch(uri) or _SPIFFE_URI.fullmatch(uri)
        if found is None:
            raise ConfigurationError(f"bad identity: {uri!r} {_EXPECTED}")
        role, name = CallerRole(found["role"]), found["name"]
        if role is CallerRole.MEMBER:
            if not re.fullmatch(r"0|[1-9][0-9]{0,9}", name) or int(name) > MEMBER_ID_MAX:
                raise ConfigurationError(f"bad identity: {uri!r} member id={name!r} expected 0 to {MEMBER_ID_MAX}")
        elif not re.fullmatch(NAME_PATTERN, name):
            raise ConfigurationError(f"bad identity: {uri!r} {_EXPECTED}")
        return cls(parse_cluster_id(found["cluster"]), role, name)

    @property
    def member_id(self) -> MemberId | None:
        """The id of a member; None for anybody else."""
        return MemberId(int(self.name)) if self.role is CallerRole.MEMBER else None

    def __str__(self) -> str:
        return f"trimaran://{format_cluster_id(self.cluster_id)}/{self.role}/{self.name}"


def is_identity_uri(uri: str) -> bool:
    """Whether a URI means to be an identity: other URIs of a certificate are nobody's business here."""
    return uri.startswith("trimaran://") or (uri.startswith("spiffe://") and "/trimaran/" in uri)


def identities_of(uris: Iterable[str]) -> list[Identity]:
    """Read every identity among the URIs of a certificate.

    Raises:
        ConfigurationError: one is badly written, or two are of the same cluster.
    """
    identities = [Identity.parse(uri) for uri in uris if is_identity_uri(uri)]
    clusters = [identity.cluster_id for identity in identities]
    if len(clusters) != len(set(clusters)):
        named = ", ".join(str(identity) for identity in identities)
        raise ConfigurationError(f"several identities for one cluster in one certificate: {named}; expected one")
    return identities


@dataclass(slots=True, frozen=True)
class Caller:
    """Who is at the other end of a connection."""

    role: CallerRole
    name: str
    """Empty for a stranger."""
    proof: Proof

    @classmethod
    def of_identity(cls, identity: Identity) -> Self:
        """Return the holder of a certificate that was verified, and is of this cluster."""
        return cls(identity.role, identity.name, Proof.CERTIFICATE)

    @property
    def member_id(self) -> MemberId | None:
        """The id of a member that has shown it; None for anybody else."""
        return MemberId(int(self.name)) if self.role is CallerRole.MEMBER else None

    def __str__(self) -> str:
        return f"{self.role} {self.name} (by {self.proof})" if self.name else str(self.role)


STRANGER: Final = Caller(CallerRole.STRANGER, "", Proof.NONE)
LOCAL_OPERATOR: Final = Caller(CallerRole.OPERATOR, "local", Proof.LOCAL_SOCKET)
