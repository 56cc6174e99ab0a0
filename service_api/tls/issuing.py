"""An authority for development: signs the certificates of one cluster, from files of one directory.

    authorities.pem     its certificate: what everybody verifies with
    authority.key       its key: who has it can make certificates of anybody, so members and clients never need it
    member-0.pem/.key   and so on: one certificate and its key for each identity, named by role and name

Keys are those of the curve P-256. The directory has mode 0700 and each key 0600. Files are put in place at once, a key
before its certificate, so that who watches them never sees half of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from ..access.identity import CallerRole, Identity
from ..access.private_files import expect_private, write_private
from ..errors import ConfigurationError
from .certificates import read_tls_file
from .settings import TlsSettings

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

AUTHORITIES_FILE: Final = "authorities.pem"
AUTHORITY_KEY_FILE: Final = "authority.key"
LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")

_CLOCK_SKEW: Final = timedelta(minutes=5)
"""How long before it is made a certificate is valid: clocks differ."""


@dataclass(slots=True)
class Authority:
    """An authority, with its key."""

    directory: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, directory: Path, *, name: str, now: datetime, lifetime: timedelta) -> Self:
        """Make an authority in a directory that has none. Blocks.

        Raises:
            ConfigurationError: the user's: there is one, or the directory cannot be used.
        """
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.hashes import SHA256

        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"directory cannot be made: dir={directory} reason={error.strerror}") from None
        for file in (directory / AUTHORITIES_FILE, directory / AUTHORITY_KEY_FILE):
            if file.exists():
                raise ConfigurationError(
                    f"directory has an authority already: file={file}; `trimaran certs issue` signs with it, and what "
                    "it has signed would not be trusted any more after a new one"
                )
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        builder = _builder(subject, subject, key, now=now, lifetime=lifetime)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_key_usage(signs=True), critical=True)
        authority = cls(directory, builder.sign(key, SHA256()), key)
        write_private(directory / AUTHORITY_KEY_FILE, _key_pem(key))
        write_private(directory / AUTHORITIES_FILE, _certificate_pem(authority.certificate))
        return authority

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read the authority of a directory. Blocks.

        Raises:
            ConfigurationError: the user's: there is none that can be used.
        """
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        expect_private(directory / AUTHORITY_KEY_FILE, "key file")
        try:
            certificate = x509.load_pem_x509_certificate(read_tls_file(directory / AUTHORITIES_FILE, "authorities"))
            key = load_pem_private_key(read_tls_file(directory / AUTHORITY_KEY_FILE, "authority key"), password=None)
        except (ValueError, TypeError) as error:
            raise ConfigurationError(f"no authority of `trimaran certs init`: dir={directory} reason={error}") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ConfigurationError(f"no authority of `trimaran certs init`: dir={directory} expected a key of P-256")
        return cls(directory, certificate, key)

    def issue(
        self,
        identity: Identity | None,
        *,
        names: Sequence[str],
        now: datetime,
        lifetime: timedelta,
        file_name: str = "",
    ) -> TlsSettings:
        """Sign a certificate, with a new key, and put both in place; return the settings that name them. Blocks.

        `names` are host names and addresses that it is valid for. Without an identity it shows those alone.

        Raises:
            ConfigurationError: the user's: a file cannot be written.
        """
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.x509.oid import ExtendedKeyUsageOID

        stem = file_name or (f"{identity.role}-{identity.name}" if identity else names[0])
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(stem), self.certificate.subject, key, now=now, lifetime=lifetime)
        shown: list[x509.GeneralName] = [x509.UniformResourceIdentifier(str(identity))] if identity else []
        shown += [_general_name(name) for name in names]
        builder = builder.add_extension(x509.SubjectAlternativeName(shown), critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(signs=False), critical=True)
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if identity is None or identity.role is CallerRole.MEMBER:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False
        )
        certificate = builder.sign(self.key, SHA256())
        settings = files_of(self.directory, stem)
        write_private(Path(settings.key), _key_pem(key))
        write_private(Path(settings.certificate), _certificate_pem(certificate))
        return settings


def files_of(directory: Path, stem: str) -> TlsSettings:
    """Name the files of one who has a certificate in the directory of an authority, such as `member-0`."""
    return TlsSettings(
        authorities=str(directory / AUTHORITIES_FILE),
        certificate=str(directory / f"{stem}.pem"),
        key=str(directory / f"{stem}.key"),
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    from cryptography import x509

    builder = x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - _CLOCK_SKEW).not_valid_after(now + lifetime)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)


def _name(text: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _general_name(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _certificate_pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)
