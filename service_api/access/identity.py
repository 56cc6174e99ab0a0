"""Who is at the other end of a connection, and how that was shown.

A certificate names one identity per cluster, as a URI among its subject alternative names:

    trimaran://CLUSTER/member/1         one member, by its id
    trimaran://CLUSTER/client/NAME      opens sessions; NAME becomes the principal
    trimaran://CLUSTER/observer/NAME    reads: status, inspections, queries and replays of the archive, metrics
    trimaran://CLUSTER/operator/NAME    does everything that an observer may, and operates the cluster

CLUSTER is the cluster id in 16 hexadecimal digits. Where an issuer gives out URIs of SPIFFE only, the same stands at
the end of such a URI: `spiffe://example.org/any/path/trimaran/CLUSTER/member/1`. An issuer that lets workloads choose a
part of their path would let them choose what they are, so only URIs count that begin with the trust domain and the path
which the one who verifies has in its settings, and go on with `/trimaran/` at once.

A caller that shows nothing is a stranger. `service_api.access.permissions` says what each may do, and
`service_api.access.rights` whether what a caller shows counts now.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from ..cluster_id import CLUSTER_ID_PATTERN, ClusterId, format_cluster_id, parse_cluster_id
from ..errors import ConfigurationError
from ..member_id import MEMBER_ID_MAX
from ..types import MemberId

NAME_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}"
"""Names of clients, observers and operators."""

_ROLE_AND_NAME: Final = rf"(?P<cluster>{CLUSTER_ID_PATTERN})/(?P<role>member|client|observer|operator)/(?P<name>.+)"
_OWN_URI: Final = re.compile(rf"trimaran://{_ROLE_AND_NAME}")
_SPIFFE_PREFIX: Final = r"spiffe://[a-z0-9._-]+(?:/[A-Za-z0-9._-]+)*"
"""A trust domain, and perhaps a path. Source: SPIFFE-ID §2.1, §2.2."""
_SPIFFE_URI: Final = re.compile(rf"(?P<prefix>{_SPIFFE_PREFIX})/trimaran/{_ROLE_AND_NAME}")
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
    CONTACT = "contact"
    """Shows a member's identity, and the configuration here has no such member. Its links are heard all the same: the
    member has just been removed, or other members say that there is one."""
    OUTSIDER = "outsider"
    """Shows an identity of the cluster that does not count: a removed member's, or one of a member never added."""


CERTIFICATE_ENDS: Final = frozenset({CallerRole.CLIENT, CallerRole.OBSERVER, CallerRole.OPERATOR})
"""Whose rights end with the certificate that was shown. Those of members the configuration decides about."""


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


def is_spiffe_prefix(text: str) -> bool:
    """Return whether a text is a trust domain of SPIFFE, perhaps with a path: `spiffe://example.org/ns/prod`."""
    return re.fullmatch(_SPIFFE_PREFIX, text) is not None


def spiffe_prefix_of(uri: str) -> str:
    """Return the prefix with which a URI of SPIFFE is an identity; empty for any other URI."""
    found = _SPIFFE_URI.fullmatch(uri)
    return "" if found is None else found["prefix"]


def identities_of(uris: Iterable[str], spiffe_prefix: str = "") -> list[Identity]:
    """Read every identity among the URIs of a certificate: others are nobody's business here.

    URIs of SPIFFE count that have exactly this prefix before `/trimaran/`; none do without a prefix.

    Raises:
        ConfigurationError: one is badly written, or two are of the same cluster.
    """
    begins = ("trimaran://", f"{spiffe_prefix}/trimaran/") if spiffe_prefix else ("trimaran://",)
    identities = [Identity.parse(uri) for uri in uris if uri.startswith(begins)]
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
    reason: str = ""
    """Why what it shows does not count, or counts for less."""
    advice: str = ""
    """The advice on that."""
    is_gone: bool = False
    """True where what it shows will never count again."""

    @classmethod
    def of_identity(cls, identity: Identity) -> Self:
        """Return the holder of a certificate that was verified, and is of this cluster."""
        return cls(identity.role, identity.name, Proof.CERTIFICATE)

    @property
    def member_id(self) -> MemberId | None:
        """The id of a member that has shown it, and is heard; None for anybody else."""
        return MemberId(int(self.name)) if self.role in (CallerRole.MEMBER, CallerRole.CONTACT) else None

    def __str__(self) -> str:
        if not self.name:
            return str(self.role)
        return f"{self.role} {self.name} (by {self.proof}){f': {self.reason}' if self.reason else ''}"


STRANGER: Final = Caller(CallerRole.STRANGER, "", Proof.NONE)
LOCAL_OPERATOR: Final = Caller(CallerRole.OPERATOR, "local", Proof.LOCAL_SOCKET)
