"""What the files of TLS held when they were read, checked, and as the contexts that connections are made with.

Everything that can be wrong with the files is found here, before a process listens or dials, and told with the name of
the file. A member is to be accepted by others who have the same authorities, so its own certificate is tried against
its own authorities in a handshake with itself, in memory and in both roles: what OpenSSL would tell the others later,
it tells this member now.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, NoReturn, Self

from ..access.identity import CallerRole, Identity
from ..access.private_files import expect_private
from ..cluster_id import NULL_CLUSTER_ID, ClusterId, format_cluster_id
from ..errors import ConfigurationError
from ..types import MemberId
from .certificates import Certificate, read_certificates
from .settings import SYSTEM_AUTHORITIES, TlsSettings

_HANDSHAKE_STEP_LIMIT: Final = 10
"""Turns that a handshake in memory may take; it takes three."""


@dataclass(slots=True, frozen=True)
class TlsCredentials:
    """The contents of the files."""

    settings: TlsSettings
    chain: tuple[Certificate, ...]
    """The own certificate and those between it and the authority; empty where none is shown."""
    authorities: tuple[Certificate, ...]
    """Empty where the operating system's count."""

    @classmethod
    def load(cls, settings: TlsSettings, *, now: datetime) -> Self:
        """Read the files, and check each by itself. Blocks.

        Raises:
            ConfigurationError: the user's: names the file, and what to do.
        """
        authorities: list[Certificate] = []
        if settings.authorities != SYSTEM_AUTHORITIES:
            authorities = read_certificates(Path(settings.authorities), "authorities")
            if not any(each.not_before <= now <= each.not_after for each in authorities):
                authorities[0].expect_valid(now)
        chain: list[Certificate] = []
        if settings.certificate:
            chain = read_certificates(Path(settings.certificate), "certificate")
            expect_private(Path(settings.key), "key file")
            for certificate in chain:
                certificate.expect_valid(now)
            chain[0].identities(settings.spiffe_prefix)
        loaded = cls(settings, tuple(chain), tuple(authorities))
        loaded.dialling_context(checks_name=False)  # whether OpenSSL takes the files
        return loaded

    @property
    def expires(self) -> Certificate | None:
        """The certificate that expires first: of the own chain, or the authority that expires last; None: nothing."""
        last = max(self.authorities, key=lambda each: each.not_after, default=None)
        return min([*self.chain, *([last] if last else [])], key=lambda each: each.not_after, default=None)

    def identity(self, cluster_id: ClusterId = NULL_CLUSTER_ID) -> Identity | None:
        """Return the own identity in a cluster; None if the certificate has none.

        With `NULL_CLUSTER_ID` in the only one that the certificate names.

        Raises:
            ConfigurationError: the user's: it is of another cluster, or of several.
        """
        found = self.chain[0].identities(self.settings.spiffe_prefix) if self.chain else []
        if not found:
            return None
        if cluster_id == NULL_CLUSTER_ID and len(found) == 1:
            return found[0]
        named = ", ".join(map(str, found))
        if cluster_id == NULL_CLUSTER_ID:
            raise ConfigurationError(
                f"certificate names several clusters: file={self.settings.certificate} identities={named}; say which "
                "with the setting cluster_id"
            )
        for identity in found:
            if identity.cluster_id == cluster_id:
                return identity
        raise ConfigurationError(
            f"certificate is of another cluster: file={self.settings.certificate} identities={named}, and the "
            f"setting says cluster_id={format_cluster_id(cluster_id)}: correct the setting, or use another certificate"
        )

    def expect_member(self, member_id: MemberId, cluster_id: ClusterId) -> Identity:
        """Return the own identity, which has to be this member's, and one that other members accept. Blocks a little.

        Raises:
            ConfigurationError: the user's.
        """
        wanted = f"trimaran://{format_cluster_id(cluster_id) or 'CLUSTER'}/member/{member_id}"
        if not self.chain or self.settings.authorities == SYSTEM_AUTHORITIES:
            raise ConfigurationError(
                f"tls of a member: certificate={self.settings.certificate!r} key={self.settings.key!r} "
                f"authorities={self.settings.authorities!r}: expected three files, the certificate with the URI "
                f"{wanted}"
            )
        identity = self.identity(cluster_id)
        if identity is None or identity.role is not CallerRole.MEMBER or identity.member_id != member_id:
            raise ConfigurationError(
                f"certificate is not member {member_id}'s: file={self.settings.certificate} "
                f"identity={'none' if identity is None else identity} uris={', '.join(self.chain[0].uris) or 'none'} "
                f"expected the URI {wanted} among its subject alternative names, or one of SPIFFE that begins with the "
                f"setting tls_spiffe_prefix={self.settings.spiffe_prefix!r}: use this member's file, or have a "
                "certificate issued with it"
            )
        self._shake_hands_with_itself()
        return identity

    def accepting_context(self, *, demands_certificate: bool) -> ssl.SSLContext:
        """Make a context for connections that are accepted; their side shows a certificate, or may."""
        context = self._load(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED if demands_certificate else ssl.CERT_OPTIONAL
        context.num_tickets = 0  # each connection shows the certificate that counts now, and no session is kept
        return context

    def dialling_context(self, *, checks_name: bool) -> ssl.SSLContext:
        """Make a context for connections that are dialled; the caller compares identities where names are not."""
        context = self._load(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = checks_name
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _load(self, protocol: int) -> ssl.SSLContext:
        """Make a context of the files. OpenSSL reads them itself, once more."""
        settings = self.settings
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        try:
            if settings.authorities == SYSTEM_AUTHORITIES:
                context.load_default_certs()
            else:
                context.load_verify_locations(cafile=settings.authorities)
        except (ssl.SSLError, OSError) as error:
            raise ConfigurationError(
                f"authorities file cannot be used: file={settings.authorities} reason={_reason_of(error)}"
            ) from None
        if settings.certificate:
            try:
                context.load_cert_chain(settings.certificate, settings.key, password=self._refuse_password)
            except (ssl.SSLError, OSError) as error:
                raise self._explain_chain_error(error) from None
        return context

    def _explain_chain_error(self, error: OSError) -> ConfigurationError:
        certificate, key = self.settings.certificate, self.settings.key
        reason = _reason_of(error)
        if reason == "KEY_VALUES_MISMATCH":
            return ConfigurationError(
                f"key does not fit the certificate: key={key} certificate={certificate}: use the key that the "
                "certificate was made with"
            )
        return ConfigurationError(
            f"key file cannot be used: file={key} certificate={certificate} reason={reason}: expected a private key in "
            "PEM format, without a password, that its owner may read"
        )

    def _refuse_password(self) -> NoReturn:
        """Be asked for the password of a key: OpenSSL would ask on the terminal otherwise, in the middle of a start."""
        raise ConfigurationError(
            f"key file is encrypted with a password: file={self.settings.key} expected a key without one, which only "
            f"its owner may read: openssl pkey -in {self.settings.key} -out NEW"
        )

    def _shake_hands_with_itself(self) -> None:
        accepting = self.accepting_context(demands_certificate=True)
        dialling = self.dialling_context(checks_name=False)
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = dialling.wrap_bio(to_client, to_server, server_hostname="localhost")
        server = accepting.wrap_bio(to_server, to_client, server_side=True)
        sides = {"server": server, "client": client}
        is_done = dict.fromkeys(sides, False)
        for _ in range(_HANDSHAKE_STEP_LIMIT):
            for name, side in sides.items():
                try:
                    side.do_handshake()
                    is_done[name] = True
                except ssl.SSLWantReadError:
                    continue
                except ssl.SSLError as error:
                    shown_as = "client" if name == "server" else "server"
                    raise ConfigurationError(
                        f"certificate would be refused by members with the same authorities, shown as a {shown_as}: "
                        f"certificate={self.settings.certificate} authorities={self.settings.authorities} "
                        f"reason={getattr(error, 'verify_message', None) or _reason_of(error)}"
                    ) from None
            if all(is_done.values()):
                return


def _reason_of(error: BaseException) -> str:
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)
