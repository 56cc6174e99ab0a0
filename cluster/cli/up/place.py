"""The directory of a development cluster. It stores the list of members, so that a restart is the same cluster.

`cluster.toml` names the members, and is what other commands take: `trimaran status --config DIR/cluster.toml`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trimaran.service_api.errors import ConfigurationError

from ...settings.config_layers import load_members
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

    @property
    def config_file(self) -> Path:
        """What other commands take as --config."""
        return self.directory / CONFIG_FILE_NAME

    @property
    def members(self) -> str:
        """As in --members, and what clients are given."""
        return ",".join(f"{i}={endpoint}" for i, endpoint in enumerate(self.endpoints))


def open_place(directory: Path, *, member_count: int | None, base_port: int | None) -> Place:
    """Find the cluster that lies in a directory, or lay one out: three members on free ports unless told otherwise.

    Raises:
        ConfigurationError: the user's: the directory holds something else, or a cluster of another size or place.
    """
    directory = directory.absolute()
    config_file = directory / CONFIG_FILE_NAME
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if config_file.is_file():
            return _known_place(directory, member_count, base_port)
        if any(directory.iterdir()):
            raise ConfigurationError(f"directory holds no cluster of `trimaran up`: dir={directory} is not empty")
        place = Place(directory, _lay_out(3 if member_count is None else member_count, base_port), is_new=True)
        config_file.write_text(f'members = "{place.members}"\n', encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"directory cannot be used: dir={directory} reason={error.strerror}") from error
    return place


def _known_place(directory: Path, member_count: int | None, base_port: int | None) -> Place:
    endpoints = tuple(member.ingress for member in load_members(directory / CONFIG_FILE_NAME, {}))
    if member_count not in (None, len(endpoints)):
        raise ConfigurationError(
            f"the cluster in this directory has {len(endpoints)} members: dir={directory} --members {member_count}"
        )
    if base_port is not None and endpoints != _lay_out(len(endpoints), base_port):
        raise ConfigurationError(
            f"the cluster in this directory has other endpoints: dir={directory} members={','.join(endpoints)} "
            f"--port {base_port}"
        )
    return Place(directory, endpoints, is_new=False)


def _lay_out(member_count: int, base_port: int | None) -> tuple[str, ...]:
    if base_port is None:
        ports = [*free_base_ports(member_count)]
    else:
        ports = [base_port + PORTS_APART * i for i in range(member_count)]
    return tuple(f"127.0.0.1:{port}" for port in ports)
