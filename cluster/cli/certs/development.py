"""The certificates of a development cluster, in one directory: who gets one, and for how long."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final

import typer

from ....service_api.access.identity import CallerRole, Identity
from ....service_api.access.private_files import write_private
from ....service_api.cluster_id import NULL_CLUSTER_ID, ClusterId, format_cluster_id, parse_cluster_id
from ....service_api.errors import ConfigurationError
from ....service_api.tls import TlsSettings
from ....service_api.tls.certificates import utc_now
from ....service_api.tls.issuing import AUTHORITIES_FILE, LOCAL_NAMES, Authority, files_of
from ....service_api.tls.settings import FILE_SETTINGS
from ...settings.config import MEMBER_ID_PLACE, TLS_PREFIX

CERTIFICATES_NAME: Final = "certs"
"""The directory of `Certificates` in that of a cluster."""

CLUSTER_ID_FILE: Final = "cluster-id"
OPERATOR_NAME: Final = "operator"
CLIENT_NAME: Final = "client"
USERS: Final = (
    (CallerRole.CLIENT, CLIENT_NAME),
    (CallerRole.OPERATOR, OPERATOR_NAME),
    (CallerRole.OBSERVER, "observer"),
)
"""Who gets a certificate besides the members."""

DEFAULT_DAYS: Final = 365
AUTHORITY_DAYS: Final = 3650

DirectoryArgument = Annotated[Path, typer.Argument(metavar="DIR", help="The directory of the authority.")]
HostOption = Annotated[
    list[str] | None,
    typer.Option(
        "--host",
        metavar="NAME",
        help="A host name or address that members' certificates are valid for, with those of this machine. Repeat it.",
        show_default=False,
    ),
]
DaysOption = Annotated[int, typer.Option("--days", min=1, max=36_500, help="How long certificates are valid.")]


def draw_cluster_id() -> ClusterId:
    """Draw the id of a new cluster."""
    return ClusterId(secrets.randbits(62) + 1)


def make_certificates(
    directory: Path,
    *,
    cluster_id: ClusterId,
    member_count: int,
    hosts: Sequence[str] = (),
    days: int = DEFAULT_DAYS,
    authority_days: int = AUTHORITY_DAYS,
) -> dict[str, TlsSettings]:
    """Make an authority and the certificates of a cluster; return their files by identity. Blocks.

    Raises:
        ConfigurationError: the user's: the directory has an authority, or cannot be used.
    """
    name = f"trimaran development {format_cluster_id(cluster_id)}"
    authority = Authority.create(directory, name=name, now=utc_now(), lifetime=timedelta(days=authority_days))
    write_private(directory / CLUSTER_ID_FILE, f"{format_cluster_id(cluster_id)}\n".encode())
    wanted = [(CallerRole.MEMBER, str(member_id)) for member_id in range(member_count)]
    return {
        f"{role}/{name}": issue_one(authority, Identity(cluster_id, role, name), hosts=hosts, days=days)
        for role, name in (*wanted, *USERS)
    }


@dataclass(slots=True, frozen=True)
class Certificates:
    """The certificates of a cluster that a command runs on this machine, in a directory of their own."""

    directory: Path

    @property
    def exist(self) -> bool:
        """Whether they have been made."""
        return (self.directory / AUTHORITIES_FILE).is_file()

    @property
    def node_settings(self) -> dict[str, str]:
        """The settings of every member, as text."""
        files = files_of(self.directory, f"{CallerRole.MEMBER}-{MEMBER_ID_PLACE}")
        return {f"{TLS_PREFIX}{name}": getattr(files, name) for name in FILE_SETTINGS}

    @property
    def operator(self) -> TlsSettings:
        """The files of who looks and operates."""
        return files_of(self.directory, f"{CallerRole.OPERATOR}-{OPERATOR_NAME}")

    @property
    def client(self) -> TlsSettings:
        """The files of who opens sessions."""
        return files_of(self.directory, f"{CallerRole.CLIENT}-{CLIENT_NAME}")

    def make(self, member_count: int, *, cluster_id: ClusterId = NULL_CLUSTER_ID) -> None:
        """Make them, for a cluster with this id, or one that is drawn. Blocks.

        Raises:
            ConfigurationError: the directory cannot be used.
        """
        make_certificates(self.directory, cluster_id=cluster_id or draw_cluster_id(), member_count=member_count)


def issue_one(authority: Authority, identity: Identity, *, hosts: Sequence[str], days: int) -> TlsSettings:
    """Sign the certificate of one identity; only a member's names hosts. Blocks."""
    names = list(dict.fromkeys((*LOCAL_NAMES, *hosts))) if identity.role is CallerRole.MEMBER else []
    return authority.issue(identity, names=names, now=utc_now(), lifetime=timedelta(days=days))


def read_cluster_id(directory: Path) -> ClusterId:
    """Return which cluster the certificates of a directory are for. Blocks.

    Raises:
        ConfigurationError: the user's: it is not a directory of `trimaran certs init`.
    """
    file = directory / CLUSTER_ID_FILE
    try:
        return parse_cluster_id(file.read_text(encoding="ascii").strip())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"not a directory of `trimaran certs init`: file={file} reason={error}") from None
