"""Certificates for tests: authorities of clusters, made anew for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Self

from trimaran.service_api.access.identity import CallerRole, Identity
from trimaran.service_api.cluster_id import ClusterId, format_cluster_id
from trimaran.service_api.tls import TlsSettings
from trimaran.service_api.tls.issuing import LOCAL_NAMES, Authority

CLUSTER: Final = ClusterId(0x3F9A0C12D45E77B1)
OTHER_CLUSTER: Final = ClusterId(0x0000000000000001)


@dataclass(slots=True, frozen=True)
class SpiffeIdentity(Identity):
    """An identity at the end of a URI of SPIFFE."""

    prefix: str = "spiffe://prod.example"

    def __str__(self) -> str:
        return f"{self.prefix}/trimaran/{format_cluster_id(self.cluster_id)}/{self.role}/{self.name}"


@dataclass(slots=True)
class Issuer:
    """An authority, and the identities that it gives out."""

    authority: Authority
    cluster_id: ClusterId = CLUSTER

    @classmethod
    def create(cls, directory: Path, *, cluster_id: ClusterId = CLUSTER, name: str = "test authority") -> Self:
        authority = Authority.create(
            directory, name=name, now=datetime.now(UTC) - timedelta(days=30), lifetime=timedelta(days=120)
        )
        return cls(authority, cluster_id)

    def member(
        self, member_id: int, *, begins_in: timedelta = timedelta(), lifetime: timedelta = timedelta(days=20)
    ) -> TlsSettings:
        return self.of(CallerRole.MEMBER, str(member_id), begins_in=begins_in, lifetime=lifetime)

    def of(
        self,
        role: CallerRole,
        name: str,
        *,
        names: Sequence[str] = LOCAL_NAMES,
        begins_in: timedelta = timedelta(),
        lifetime: timedelta = timedelta(days=20),
    ) -> TlsSettings:
        """Give out one identity of the cluster."""
        identity = Identity(self.cluster_id, role, name)
        return self.authority.issue(identity, names=names, now=datetime.now(UTC) + begins_in, lifetime=lifetime)

    def of_spiffe(self, role: CallerRole, name: str, *, prefix: str) -> TlsSettings:
        """Give out one identity of the cluster as an issuer of SPIFFE does."""
        identity = SpiffeIdentity(self.cluster_id, role, name, prefix)
        now, lifetime, names = datetime.now(UTC), timedelta(days=20), LOCAL_NAMES
        return self.authority.issue(identity, names=names, now=now, lifetime=lifetime, file_name=f"spiffe-{role}")

    def host(self, *names: str) -> TlsSettings:
        """Give out a certificate that names hosts alone."""
        return self.authority.issue(
            None, names=names, now=datetime.now(UTC), lifetime=timedelta(days=20), file_name="host"
        )
