"""Certificates that are replaced while a cluster uses them, as docs/security.md says: one member's, or everybody's with
the authority that has signed them.

A replaced certificate is valid for another time than the one before. So a member's status shows which one it uses.

All processes share one file of authorities. While the authority changes, that file has the new authority and the old
one, until every member that runs shows a certificate of the new one.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Final

from ...cluster.cli.certs.development import CLIENT_NAME, OPERATOR_NAME, read_cluster_id
from ...service_api.access.identity import CallerRole, Identity
from ...service_api.access.private_files import write_private
from ...service_api.documents.member_status import MemberStatus
from ...service_api.tls.certificates import utc_now
from ...service_api.tls.issuing import AUTHORITIES_FILE, AUTHORITY_KEY_FILE, LOCAL_NAMES, Authority

_DAYS: Final = range(30, 365)
_AUTHORITY_LIFETIME: Final = timedelta(days=3650)
READ_S: Final = 2.5
"""Every process looks at its files once a second."""


class CertificateKeeper:
    """Who signs and replaces the certificates of one cluster."""

    def __init__(self, directory: Path, random: Random) -> None:
        self.lock = asyncio.Lock()
        """Held by a replacement: one is done at a time."""
        self._directory = directory
        self._random = random
        self._authority = Authority.load(directory)
        self._cluster_id = read_cluster_id(directory)
        self._expires_s: dict[int, int] = {}
        self._authority_count = 1

    def __repr__(self) -> str:
        return f"<CertificateKeeper authorities={self._authority_count} replaced={sorted(self._expires_s)}>"

    def renew(self, *member_ids: int) -> None:
        """Replace the certificates and keys of members. Blocks."""
        for member_id in member_ids:
            self._expires_s[member_id] = self._issue(CallerRole.MEMBER, str(member_id))

    def trust_new_authority(self) -> None:
        """Make an authority, have everybody trust it beside the old one, and sign with it from now on. Blocks."""
        self._authority_count += 1
        made = self._directory / f"authority-{self._authority_count}"
        authority = Authority.create(made, name=made.name, now=utc_now(), lifetime=_AUTHORITY_LIFETIME)
        trusted = self._directory / AUTHORITIES_FILE
        write_private(trusted, (made / AUTHORITIES_FILE).read_bytes() + trusted.read_bytes())
        write_private(self._directory / AUTHORITY_KEY_FILE, (made / AUTHORITY_KEY_FILE).read_bytes())
        self._authority = replace(authority, directory=self._directory)

    def renew_users(self) -> None:
        """Replace the certificates and keys of the clients and of the operator. Blocks."""
        self._issue(CallerRole.CLIENT, CLIENT_NAME)
        self._issue(CallerRole.OPERATOR, OPERATOR_NAME)

    def distrust_old_authority(self) -> None:
        """Have everybody trust the newest authority alone. Blocks."""
        made = self._directory / f"authority-{self._authority_count}"
        write_private(self._directory / AUTHORITIES_FILE, (made / AUTHORITIES_FILE).read_bytes())

    def is_used(self, status: MemberStatus) -> bool:
        """Return whether a member uses the newest certificate that it was given."""
        expected_s = self._expires_s.get(status.member_id)
        if expected_s is None:
            return True
        return status.certificate is not None and status.certificate.expires_at_ms // 1000 == expected_s

    def _issue(self, role: CallerRole, name: str) -> int:
        """Sign a certificate and put it in place; return when it expires, in seconds since the Unix epoch."""
        now, lifetime = utc_now(), timedelta(days=self._random.choice(_DAYS), seconds=self._random.randrange(86_400))
        names = LOCAL_NAMES if role is CallerRole.MEMBER else ()
        identity = Identity(self._cluster_id, role, name)
        self._authority.issue(identity, names=names, now=now, lifetime=lifetime)
        return int((now + lifetime).timestamp())
