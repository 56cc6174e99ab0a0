"""The directory of a development cluster. It stores the list of members, so that a restart is the same cluster.

`cluster.toml` names the members, and is what other commands take: `trimaran status --config DIR/cluster.toml`. With TLS
the certificates are in `certs`, and the file names those of the operator, who the commands are.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ....archive.log.group_directories import check_found_count
from ....service_api.cluster_id import NULL_CLUSTER_ID, ClusterId
from ....service_api.errors import ConfigurationError
from ....service_api.tls.settings import FILE_SETTINGS
from ...runtime.files.cluster_id_file import kept_cluster_id
from ...settings.config_layers import load_groups, load_members
from ..certs.development import CERTIFICATES_NAME, Certificates
from ..shared.local_nodes import free_base_ports

CONFIG_FILE_NAME: Final = "cluster.toml"
PORTS_APART: Final = 10
"""Between the base ports of two members, where a first one is given."""


@dataclass(slots=True, frozen=True)
class Place:
    """Where a cluster lies, and where its members listen."""

    directory: Path
    endpoints: tuple[str, ...]
    """The base endpoint of each member, by member id."""
    is_new: bool
    group_count: int = 1
    certificates: Certificates | None = None
    """None: in plain text."""

    @property
    def config_file(self) -> Path:
        """What other commands take as --config."""
        return self.directory / CONFIG_FILE_NAME

    @property
    def members(self) -> str:
        """As in --members, and what clients are given."""
        return ",".join(f"{i}={endpoint}" for i, endpoint in enumerate(self.endpoints))


def open_place(
    directory: Path,
    *,
    member_count: int | None,
    base_port: int | None,
    group_count: int | None = None,
    with_tls: bool = False,
) -> Place:
    """Find the cluster that lies in a directory, or lay one out: three members on free ports unless told otherwise.

    A new one has one group, unless told otherwise; the directory remembers how many.

    A cluster that has certificates, or with `with_tls` is given some, uses TLS from then on.

    Raises:
        ConfigurationError: the user's: the directory holds something else, or a cluster of another size or place.
        ClusterError: a member's file of its cluster id is damaged.
    """
    directory = directory.absolute()
    config_file = directory / CONFIG_FILE_NAME
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if config_file.is_file():
            place = _known_place(directory, member_count, base_port, group_count)
            return _with_certificates(place, with_tls=with_tls)
        if any(directory.iterdir()):
            raise ConfigurationError(f"directory holds no cluster of `trimaran up`: dir={directory} is not empty")
        group_count = group_count or 1
        endpoints = _lay_out(3 if member_count is None else member_count, base_port, group_count)
        place = Place(directory, endpoints, is_new=True, group_count=group_count)
        groups_line = f"groups = {group_count}\n" if group_count > 1 else ""
        config_file.write_text(f'members = "{place.members}"\n{groups_line}', encoding="utf-8")
        place = _with_certificates(place, with_tls=with_tls)
    except OSError as error:
        raise ConfigurationError(f"directory cannot be used: dir={directory} reason={error.strerror}") from error
    return place


def _known_place(directory: Path, member_count: int | None, base_port: int | None, group_count: int | None) -> Place:
    known_count, _ = load_groups(directory / CONFIG_FILE_NAME, {"groups": None})
    check_found_count(directory, known_count, known_count if group_count is None else group_count)
    endpoints = tuple(member.ingress for member in load_members(directory / CONFIG_FILE_NAME, {}))
    if member_count not in (None, len(endpoints)):
        raise ConfigurationError(
            f"the cluster in this directory has {len(endpoints)} members: dir={directory} --members {member_count}"
        )
    if base_port is not None and endpoints != _lay_out(len(endpoints), base_port, known_count):
        raise ConfigurationError(
            f"the cluster in this directory has other endpoints: dir={directory} members={','.join(endpoints)} "
            f"--port {base_port}"
        )
    return Place(directory, endpoints, is_new=False, group_count=known_count)


def _with_certificates(place: Place, *, with_tls: bool) -> Place:
    certificates = Certificates(place.directory / CERTIFICATES_NAME)
    if certificates.exist:
        return replace(place, certificates=certificates)
    if not with_tls:
        return place
    certificates.make(len(place.endpoints), cluster_id=_known_cluster_id(place))
    operator = certificates.operator
    lines = [f"{name} = {json.dumps(getattr(operator, name))}" for name in FILE_SETTINGS]
    with place.config_file.open("a", encoding="utf-8") as file:
        file.write("\n".join(["", "[tls]", *lines, ""]))
    return replace(place, certificates=certificates)


def _known_cluster_id(place: Place) -> ClusterId:
    """Return what the members have kept already, if they have run before."""
    if place.group_count > 1:
        return NULL_CLUSTER_ID  # groups have ids of their own, which do not say that of the whole cluster
    kept = (kept_cluster_id(place.directory / f"node-{i}" / "cluster") for i in range(len(place.endpoints)))
    return next(filter(None, kept), NULL_CLUSTER_ID)


def _lay_out(member_count: int, base_port: int | None, group_count: int) -> tuple[str, ...]:
    if base_port is None:
        ports = [*free_base_ports(member_count, group_count=group_count)]
    else:
        ports = [base_port + PORTS_APART * i for i in range(member_count)]
    return tuple(f"127.0.0.1:{port}" for port in ports)
