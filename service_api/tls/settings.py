"""The settings of TLS: the same names for nodes, clients, commands, archives and Spark.

node's file      [tls] certificate = "member-0.pem"
environment      TRIMARAN_TLS_CERTIFICATE=member-0.pem
command line     --tls-certificate member-0.pem
code             TlsSettings(certificate="member-0.pem", ...)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final, Self

from ..access.identity import is_spiffe_prefix
from ..errors import ConfigurationError

SYSTEM_AUTHORITIES: Final = "system"
"""The value of `authorities` that stands for the authorities that the operating system trusts."""

FILE_SETTINGS: Final = ("authorities", "certificate", "key")
"""The settings that name files."""

VERIFY_VALUES: Final = ("auto", "name", "cluster")
_ENV_PREFIX: Final = "TRIMARAN_TLS_"


@dataclass(slots=True, frozen=True, kw_only=True)
class TlsSettings:
    """Which files TLS works with. All are PEM, and read again when they change.

    Raises:
        ConfigurationError: they do not fit together.
    """

    authorities: str
    """File of the certificates of the authorities that may sign the other side's certificate; or `system`, for those
    that the operating system trusts, which are never right for a member."""

    certificate: str = ""
    """File of the certificate that is shown, with those between it and the authority after it. Empty: none is shown,
    which a client may do, and a listener may not."""

    key: str = ""
    """File of the certificate's private key, which nobody but its owner may read."""

    verify: str = "auto"
    """How the one who is dialled has to show who it is: by `name`, the host name or address that is dialled; by
    `cluster`, as a member of the cluster that is demanded, whatever its address is; `auto`: by cluster where the
    cluster's id is known, by a setting or by the own certificate, and else by name."""

    spiffe_prefix: str = ""
    """With which trust domain and path a URI of SPIFFE is an identity, such as `spiffe://example.org/ns/prod`: what
    follows must be `/trimaran/CLUSTER/ROLE/NAME`. Empty: no URI of SPIFFE is one."""

    def __post_init__(self) -> None:
        if not self.authorities:
            raise ConfigurationError(
                f"tls authorities={self.authorities!r}: expected a file of certificates, or {SYSTEM_AUTHORITIES!r}"
            )
        if bool(self.certificate) != bool(self.key):
            raise ConfigurationError(
                f"tls certificate={self.certificate!r} and key={self.key!r}: expected both files, or neither"
            )
        if self.verify not in VERIFY_VALUES:
            raise ConfigurationError(f"tls verify={self.verify!r}: expected one of {', '.join(VERIFY_VALUES)}")
        if self.spiffe_prefix and not is_spiffe_prefix(self.spiffe_prefix):
            raise ConfigurationError(
                f"tls spiffe_prefix={self.spiffe_prefix!r}: expected a trust domain and perhaps a path, without a "
                "slash at the end: spiffe://example.org/ns/prod"
            )

    @classmethod
    def of_values(cls, values: Mapping[str, str]) -> Self | None:
        """Make settings of texts by name, in which the empty text is as good as none; None where all are.

        Raises:
            ConfigurationError: they do not fit together.
        """
        given = {field.name: values[field.name] for field in fields(cls) if values.get(field.name)}
        if not given.keys() - {"verify", "spiffe_prefix"}:
            return None
        return cls(**{"authorities": "", **given})

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> Self | None:
        """Read `TRIMARAN_TLS_AUTHORITIES` and the others; None where there are none.

        Raises:
            ConfigurationError: they do not fit together.
        """
        return cls.of_values(
            {field.name: environment.get(_ENV_PREFIX + field.name.upper(), "") for field in fields(cls)}
        )
