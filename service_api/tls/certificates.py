"""Reads certificates: for the checks before a start, for expiry, and for `trimaran certs show`.

`cryptography` does the reading. It is imported when a certificate is read, so what runs without TLS never pays for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..access.identity import Identity, identities_of
from ..errors import ConfigurationError

if TYPE_CHECKING:
    from cryptography import x509

Now = Callable[[], datetime]
"""Gives the time of day, in UTC."""

SERVER_USAGE: Final = "server"
CLIENT_USAGE: Final = "client"


def utc_now() -> datetime:
    """Return the time of day."""
    return datetime.now(UTC)


@dataclass(slots=True, frozen=True, kw_only=True)
class Certificate:
    """What a certificate says."""

    file: Path
    subject: str
    issuer: str
    uris: tuple[str, ...]
    names: tuple[str, ...]
    """Host names and addresses that it is valid for."""
    not_before: datetime
    not_after: datetime
    is_authority: bool
    """Whether it may sign others."""
    usages: tuple[str, ...]
    """`server`, `client`, and others by their numbers; empty: anything."""
    serial_number: int
    fingerprint: str
    """SHA-256 of it, in hexadecimal digits."""
    encoded: bytes = field(repr=False)
    """The whole of it, in DER."""

    @property
    def expires_at_ms(self) -> int:
        """When it expires, in milliseconds since the Unix epoch."""
        return int(self.not_after.timestamp() * 1_000)

    def identities(self, spiffe_prefix: str = "") -> list[Identity]:
        """Return the identities that it names, as `identities_of`.

        Raises:
            ConfigurationError: one is badly written, or two are of the same cluster.
        """
        try:
            return identities_of(self.uris, spiffe_prefix)
        except ConfigurationError as error:
            raise ConfigurationError(f"{error}; certificate file={self.file}") from None

    def expect_valid(self, now: datetime) -> None:
        """Refuse a certificate that is not valid at this time.

        Raises:
            ConfigurationError: the user's: it has expired, or is not valid yet.
        """
        if now > self.not_after:
            raise ConfigurationError(
                f"certificate has expired: file={self.file} not_after={self.not_after:%Y-%m-%d %H:%M:%S} UTC "
                f"subject={self.subject}: have a new one issued, and put it in the place of this file"
            )
        if now < self.not_before:
            raise ConfigurationError(
                f"certificate is not valid yet: file={self.file} not_before={self.not_before:%Y-%m-%d %H:%M:%S} UTC "
                f"subject={self.subject}: the time here is {now:%Y-%m-%d %H:%M:%S} UTC; correct the clock, or wait"
            )


def read_certificates(file: Path, setting: str) -> list[Certificate]:
    """Read every certificate of a PEM file, in its order; at least one. Blocks.

    Raises:
        ConfigurationError: the user's: it cannot be read, or holds none; `setting` is what named it.
    """
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    data = read_tls_file(file, setting)
    try:
        found = x509.load_pem_x509_certificates(data)
        return [_explain(certificate, file) for certificate in found]
    except (
        ValueError,
        TypeError,
        # What is no certificate in one of these ways is no ValueError.
        UnsupportedAlgorithm,
        x509.DuplicateExtension,
        x509.InvalidVersion,
        x509.UnsupportedGeneralNameType,
    ):
        raise ConfigurationError(
            f"{setting} file holds no certificate in PEM format: file={file} expected "
            "-----BEGIN CERTIFICATE----- and what follows"
        ) from None


def read_tls_file(file: Path, setting: str) -> bytes:
    """Read a file that a setting of TLS names. Blocks.

    Raises:
        ConfigurationError: the user's: it cannot be read.
    """
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"{setting} file cannot be read: file={file} reason={error.strerror}; correct the setting tls {setting}, "
            "or make the file: `trimaran certs init DIR` makes all that a cluster needs for development"
        ) from None


def _explain(certificate: x509.Certificate, file: Path) -> Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding

    extensions = certificate.extensions
    uris: list[str] = []
    names: list[str] = []
    usages: list[str] = []
    is_authority = False
    for extension in extensions:
        value = extension.value
        if isinstance(value, x509.SubjectAlternativeName):
            uris = value.get_values_for_type(x509.UniformResourceIdentifier)
            names = value.get_values_for_type(x509.DNSName)
            names += [str(address) for address in value.get_values_for_type(x509.IPAddress)]
        elif isinstance(value, x509.ExtendedKeyUsage):
            usages = [_name_usage(usage) for usage in value]
        elif isinstance(value, x509.BasicConstraints):
            is_authority = value.ca
    return Certificate(
        file=file,
        subject=certificate.subject.rfc4514_string(),
        issuer=certificate.issuer.rfc4514_string(),
        uris=tuple(uris),
        names=tuple(names),
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        is_authority=is_authority,
        usages=tuple(usages),
        serial_number=certificate.serial_number,
        fingerprint=certificate.fingerprint(SHA256()).hex(),
        encoded=certificate.public_bytes(Encoding.DER),
    )


def _name_usage(usage: x509.ObjectIdentifier) -> str:
    from cryptography.x509.oid import ExtendedKeyUsageOID

    known = {ExtendedKeyUsageOID.SERVER_AUTH: SERVER_USAGE, ExtendedKeyUsageOID.CLIENT_AUTH: CLIENT_USAGE}
    return known.get(usage, usage.dotted_string)
