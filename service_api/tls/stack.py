"""The network stack that encrypts: TLS 1.3 on every connection, and who the other side is.

    listened on                 the caller's certificate       it becomes
    log, catch-up               demanded, a member's           `AcceptedConnection.caller`
    everything else             may be shown                   `AcceptedConnection.caller`, or a stranger

    dialled                                                    what the other side has to show
    by a member, to member N                                   `member/N` of the own cluster
    to a cluster that is known by its id                       a member of that cluster
    otherwise                                                  a certificate of the host name that was dialled

Consensus and documents have one endpoint, and a command without a certificate is to be told that it needs one, which a
failed handshake cannot say. So a certificate may be left out there; who says that it is a member has to have shown
that member's (`speaker`).

A certificate that is shown has to be signed by one of the authorities and valid now, or the handshake fails: there are
no half-believed ones. One that is good and says nothing of this cluster is a stranger's, with the reason beside it.

The files are read again by `renew`, which the owner of a process calls every second, and each dial where nobody does.
What is connected stays; handshakes from then on use the new ones. Files that cannot be used change nothing.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

from ..access.identity import STRANGER, Caller, CallerRole, Identity, identities_of, spiffe_prefix_of
from ..access.private_files import FileVersion, version_of
from ..cluster_id import NULL_CLUSTER_ID, ClusterId, describe_other_cluster, format_cluster_id
from ..endpoint import Endpoint
from ..errors import ConfigurationError
from ..net.local_socket import AF_UNIX
from ..net.transport import (
    SOCKETS,
    Encryption,
    NetworkStack,
    PeerCertificate,
    PeerRefusedError,
    Purpose,
    SocketStack,
)
from ..types import MemberId
from .certificates import Certificate, Now, utc_now
from .credentials import TlsCredentials
from .settings import FILE_SETTINGS, TlsSettings

_MEMBERS_ONLY: Final = frozenset({Purpose.LOG, Purpose.CATCHUP})


@dataclass(slots=True)
class _Contexts:
    """The contexts of one reading of the files; those for accepting only where a certificate is shown."""

    dialling: ssl.SSLContext
    dialling_by_name: ssl.SSLContext
    accepting: ssl.SSLContext | None
    accepting_members: ssl.SSLContext | None

    @classmethod
    def of(cls, credentials: TlsCredentials) -> Self:
        listens = bool(credentials.chain)
        return cls(
            credentials.dialling_context(checks_name=False),
            credentials.dialling_context(checks_name=True),
            credentials.accepting_context(demands_certificate=False) if listens else None,
            credentials.accepting_context(demands_certificate=True) if listens else None,
        )


class TlsStack(SocketStack):
    """TCP with TLS, by the running event loop."""

    encrypts = True

    def __init__(
        self,
        settings: TlsSettings,
        *,
        cluster_id: ClusterId = NULL_CLUSTER_ID,
        member_id: MemberId | None = None,
        is_watched: bool = False,
        now: Now = utc_now,
        uses_control_sockets: bool = True,
        member_directories: Mapping[Endpoint, Path] = MappingProxyType({}),
    ) -> None:
        """Read the files. Blocks.

        With a `member_id` this is that member's stack. One that `is_watched` reads its files again only by `renew`.

        Raises:
            ConfigurationError: the user's: a file cannot be used; it names the file, and what to do.
        """
        super().__init__(uses_control_sockets=uses_control_sockets, member_directories=member_directories)
        self.settings: Final = settings
        self._member_id = member_id
        self._is_watched = is_watched
        self._now = now
        self._demanded = cluster_id
        self._seen = self._look()
        self.credentials = self._load()
        self._contexts = _Contexts.of(self.credentials)
        identity = self._own_identity(self.credentials)
        self.cluster_id = cluster_id if identity is None else identity.cluster_id
        """The cluster whose identities count; `NULL_CLUSTER_ID`: of none."""
        if settings.verify == "cluster" and not self.cluster_id:
            raise ConfigurationError(
                "tls verify='cluster' needs the cluster's id: give cluster_id, or a certificate that names it"
            )

    def __repr__(self) -> str:
        return f"<TlsStack cluster_id={format_cluster_id(self.cluster_id)} member_id={self._member_id}>"

    def identify(self, certificate: PeerCertificate | None) -> tuple[Caller, str]:
        """Return who shows a certificate that was verified, and what it shows where that makes it a stranger."""
        return identify(certificate, self.cluster_id, self.settings.spiffe_prefix)

    # --- the files

    @property
    def expires(self) -> Certificate | None:
        """The certificate of the files in use that expires first."""
        return self.credentials.expires

    @property
    def shown(self) -> Certificate | None:
        """The first certificate of the own chain."""
        return self.credentials.chain[0] if self.credentials.chain else None

    def renew(self) -> bool:
        """Read the files again if they have changed since they were looked at last. Whether they are used now. Blocks.

        Raises:
            ConfigurationError: the user's: they cannot be used; those that were read before stay in use.
        """
        seen = self._look()
        if seen == self._seen:
            return False
        self._seen = seen
        credentials = self._load()
        identity = self._own_identity(credentials)
        if identity is not None and identity.cluster_id != self.cluster_id:
            raise ConfigurationError(
                f"certificate is of another cluster than before: file={self.settings.certificate} identity={identity} "
                f"expected cluster_id={format_cluster_id(self.cluster_id)}"
            )
        contexts = _Contexts.of(credentials)
        self.credentials, self._contexts = credentials, contexts
        return True

    def _load(self) -> TlsCredentials:
        return TlsCredentials.load(self.settings, now=self._now())

    def _own_identity(self, credentials: TlsCredentials) -> Identity | None:
        if self._member_id is not None:
            return credentials.expect_member(self._member_id, self._demanded)
        if not credentials.chain or not credentials.chain[0].identities(self.settings.spiffe_prefix):
            return None
        return credentials.identity(self._demanded)

    def _look(self) -> list[FileVersion | None]:
        """What tells one version of the files from another."""
        return [version_of(getattr(self.settings, name)) for name in FILE_SETTINGS]

    # --- connections

    def listening(self, purpose: Purpose) -> Encryption:
        """Return what encrypts the connections that are accepted.

        Raises:
            ConfigurationError: there is no certificate to show.
        """
        if self._contexts.accepting is None:
            raise ConfigurationError("tls of a listener: expected the settings certificate and key")
        return _Accepting(self, purpose)

    def dialling(self, purpose: Purpose, endpoint: Endpoint, member_id: MemberId | None) -> Encryption:
        """Return what encrypts a connection that is dialled, and knows who has to answer."""
        if not self._is_watched:
            self._renew_for_dial()
        return _Dialling(self, endpoint, member_id)

    def dial_blocking(self, purpose: Purpose, endpoint: Endpoint, timeout_s: float) -> socket.socket:
        """Connect without a loop; otherwise as `SocketStack.dial_blocking`."""
        encryption = self.dialling(purpose, endpoint, None)
        plain = super().dial_blocking(purpose, endpoint, timeout_s)
        if plain.family == AF_UNIX:
            return plain  # of this machine and this user: there is nothing to encrypt
        try:
            connection = encryption.context.wrap_socket(plain, server_hostname=endpoint.host)
        except BaseException:
            plain.close()
            raise
        try:
            encryption.identify(connection.getpeercert())
        except BaseException:
            connection.close()
            raise
        return connection

    def _dial_locally(self, purpose: Purpose, endpoint: Endpoint) -> socket.socket | None:
        """Who has a certificate is who it says, on its own machine, too."""
        return None if self.credentials.chain else super()._dial_locally(purpose, endpoint)

    def _renew_for_dial(self) -> None:
        try:
            self.renew()
        except ConfigurationError as error:
            raise PeerRefusedError(f"tls: {error}") from error


@dataclass(slots=True)
class _Accepting(Encryption):
    """What is accepted for one purpose."""

    stack: TlsStack
    purpose: Purpose

    @property
    def context(self) -> ssl.SSLContext:
        contexts = self.stack._contexts
        context = contexts.accepting_members if self.purpose in _MEMBERS_ONLY else contexts.accepting
        assert context is not None
        return context

    def identify(self, certificate: PeerCertificate | None) -> tuple[Caller, str]:
        caller, detail = self.stack.identify(certificate)
        if self.purpose in _MEMBERS_ONLY and caller.role is not CallerRole.MEMBER:
            raise PeerRefusedError(f"only members may connect here: it shows {detail or caller}")
        return caller, detail


@dataclass(slots=True)
class _Dialling(Encryption):
    """One connection that is dialled."""

    stack: TlsStack
    endpoint: Endpoint
    member_id: MemberId | None

    @property
    def _is_by_name(self) -> bool:
        verify = self.stack.settings.verify
        return self.member_id is None and (verify == "name" or (verify == "auto" and not self.stack.cluster_id))

    @property
    def context(self) -> ssl.SSLContext:
        contexts = self.stack._contexts
        return contexts.dialling_by_name if self._is_by_name else contexts.dialling

    def identify(self, certificate: PeerCertificate | None) -> tuple[Caller, str]:
        stack = self.stack
        caller, detail = stack.identify(certificate)
        if self._is_by_name:
            return caller, detail
        if caller.role is not CallerRole.MEMBER or self.member_id not in (None, caller.member_id):
            who = "a member" if self.member_id is None else f"member {self.member_id}"
            raise PeerRefusedError(
                f"not {who} of cluster {format_cluster_id(stack.cluster_id)}: {self.endpoint} shows "
                f"{detail or f'the certificate of {caller.role} {caller.name}'}"
            )
        return caller, detail


def identify(certificate: PeerCertificate | None, cluster_id: ClusterId, spiffe_prefix: str = "") -> tuple[Caller, str]:
    """Return who shows a certificate that was verified, and what it shows where that makes it a stranger."""
    if not certificate:
        return STRANGER, "no certificate"
    uris = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]
    try:
        identities = identities_of(uris, spiffe_prefix)
    except ConfigurationError as error:
        return STRANGER, f"a certificate with a {error}"
    for identity in identities:
        if identity.cluster_id == cluster_id != NULL_CLUSTER_ID:
            return Caller.of_identity(identity), ""
    if identities:
        other = describe_other_cluster(identities[0].cluster_id, expected=cluster_id)
        return STRANGER, f"the certificate of {identities[0]}: {other}"
    if unpinned := [uri for uri in uris if spiffe_prefix_of(uri)]:
        return STRANGER, f"a certificate of {unpinned[0]}, and the setting says {spiffe_prefix=}"
    return STRANGER, f"a certificate without an identity: subject={certificate.get('subject')}"


def client_network(
    tls: TlsSettings | None,
    *,
    cluster_id: ClusterId = NULL_CLUSTER_ID,
    network: NetworkStack = SOCKETS,
    member_directories: Mapping[Endpoint, Path] = MappingProxyType({}),
) -> NetworkStack:
    """Return the stack of somebody who only dials: one of these settings, or `network` where there are none.

    `member_directories` are as those of `SocketStack`.

    Raises:
        ConfigurationError: the user's: a file cannot be used, or a stack was given as well as settings.
    """
    if tls is None:
        return SocketStack(member_directories=member_directories) if member_directories else network
    if isinstance(network, TlsStack) and network.settings == tls:
        return network
    if network is not SOCKETS:
        raise ConfigurationError("tls and network are given: expected one of them")
    return TlsStack(tls, cluster_id=cluster_id, member_directories=member_directories)


def serving_network(
    tls: TlsSettings | None,
    *,
    cluster_id: ClusterId = NULL_CLUSTER_ID,
    member_id: MemberId | None = None,
    danger: str,
    remedy: str,
    on_plaintext: Callable[[str], None] | None,
) -> NetworkStack:
    """Return the stack of a process that listens: TLS, or plain text where nobody else can connect.

    In plain text any process that can connect is believed, whatever it says that it is. So without TLS all that is
    bound must be loopback addresses, unless `on_plaintext` is given: it is told of each that is none. What counts is
    the address that is bound, not the name that others dial: that may lead to a proxy, or resolve to loopback. Probes
    and metrics have a rule of their own. `danger` says what any process could do, `remedy` which settings turn TLS on.
    Blocks while it reads files.

    Raises:
        ConfigurationError: the user's: a file of TLS cannot be used. `listen` of the stack raises it where there is no
            TLS and there has to be.
    """
    if tls is not None:
        return TlsStack(tls, cluster_id=cluster_id, member_id=member_id, is_watched=True)

    def judge(purpose: Purpose, bound: Endpoint) -> None:
        if bound.is_loopback or purpose is Purpose.METRICS:
            return
        if on_plaintext is None:
            raise ConfigurationError(
                f"not on loopback: {purpose.value} endpoint={bound}, and there is no TLS: any process that can connect "
                f"could {danger}; give {remedy}, or say --insecure-plaintext"
            )
        on_plaintext(str(bound))

    return SocketStack(on_bound=judge)
