"""The settings of a node as command line flags, made from the model so that the two cannot differ.

Every flag takes text, which `config_layers` reads as it reads an environment variable, so a value means the
same wherever it is written, and a bad one gets the same one-line error.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, Self

import typer

from ....archive.log.group_directories import find_group_count, group_directory
from ....archive.tool.output import SHARED_PANEL, HelpAllOption, fail
from ....service_api.cluster_id import ClusterId
from ....service_api.endpoint import Endpoint
from ....service_api.errors import ClusterError, ConfigurationError
from ....service_api.net.transport import NetworkStack
from ....service_api.tls import TlsSettings, client_network
from ...settings.config import MemberEndpoints, NodeConfig
from ...settings.config_layers import (
    LoadedConfig,
    find_missing,
    flag_name,
    load_cluster_id,
    load_given,
    load_groups,
    load_health_limits,
    load_members,
    load_node_config,
    load_shared_settings,
    load_tls,
    setting_kind,
)
from ...settings.fields import setting_heading
from ...settings.groups import group_members
from ...settings.health_limits import HealthLimits
from ...settings.variables import CONFIG_FILE_VARIABLE

_CONFIG: Final = inspect.Parameter(
    "config_file",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        str | None,
        typer.Option(
            *("--config", "-c"),
            metavar="FILE",
            help="Settings in TOML; or use TRIMARAN_* variables.",
            show_default=False,
            rich_help_panel=SHARED_PANEL,
        ),
    ],
)
_HELP_ALL: Final = inspect.Parameter(
    "help_all", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=HelpAllOption
)
_CLIENT_HELP: Final = {
    "members": "Every member: ID=HOST:BASE_PORT,...",
    "cluster_id": "Its id, as `trimaran status` shows it.",
    "groups": "The number of groups that it has.",
    "group": "The group to ask, from 0 on.",
    "tls_authorities": "Certificates of authorities; this turns TLS on.",
    "tls_certificate": "The certificate to show, in PEM.",
    "tls_key": "The private key of the certificate.",
    "tls_verify": "Check a member by: name, cluster or auto.",
    "tls_spiffe_prefix": "Trust domain and path of SPIFFE identities.",
}
"""The settings of a command that is a client, and what each means to it."""
_MEMBER_HELP: Final = _CLIENT_HELP | {"directory": "Ask a member of this machine by its directory."}
"""Those of a command that may be shown to a member by its directory, too."""


_SERVICE_HELP: Final = {
    "service": "The services: module:Class, several with commas.",
    "service_dir": "The directory of the services' module.",
}


def with_setting_flags(excluded: Collection[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the flag of every setting but those in `excluded` to a command, whose `**settings` receive them.

    The parameters of the command come first. `--help` shows those settings that have no default, `--help-all` all.
    """
    parameters = [
        _setting_parameter(name, _help_of(name), None if field.is_required() else f"Settings: {setting_heading(name)}")
        for name, field in NodeConfig.model_fields.items()
        if name not in excluded
    ]
    return lambda function: _with_parameters(function, [*parameters, _HELP_ALL])


def with_member_flags(function: Callable[..., None]) -> Callable[..., None]:
    """Add the flags of members, their cluster, TLS, and the directory of one of them; else as `with_setting_flags`."""
    return _with_shared(function, _MEMBER_HELP)


def with_client_flags(function: Callable[..., None]) -> Callable[..., None]:
    """Add the flags of members, their cluster, and TLS to a command; otherwise as `with_setting_flags`."""
    return _with_shared(function, _CLIENT_HELP)


def with_service_flags(function: Callable[..., None]) -> Callable[..., None]:
    """Add the flags that name the services to a command; otherwise as `with_setting_flags`."""
    return _with_shared(function, _SERVICE_HELP)


def with_health_flags(function: Callable[..., None]) -> Callable[..., None]:
    """Add the flags of `with_member_flags` and the limits of health to a command; otherwise as `with_setting_flags`."""
    limits = [
        _setting_parameter(each.name, _help_of(each.name), "Settings: limits of health")
        for each in fields(HealthLimits)
    ]
    return _with_shared(function, _MEMBER_HELP, [*limits, _HELP_ALL])


def _with_shared(
    function: Callable[..., None], texts: Mapping[str, str], own: Collection[inspect.Parameter] = ()
) -> Callable[..., None]:
    return _with_parameters(
        function, [*own, *(_setting_parameter(name, text, SHARED_PANEL) for name, text in texts.items())]
    )


def _with_parameters(function: Callable[..., None], added: Collection[inspect.Parameter]) -> Callable[..., None]:
    """Give a command more parameters, after its own; one of a name that the command has is left out."""
    own = [p for p in inspect.signature(function, eval_str=True).parameters.values() if p.kind is not p.VAR_KEYWORD]
    parameters = {p.name: p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*added, _CONFIG, *own)}
    ordered = [parameters[name] for name in dict.fromkeys(p.name for p in (*own, _CONFIG, *added))]

    def command(**values: Any) -> None:
        values.pop("help_all", None)  # done before the command
        function(**values)

    command.__doc__ = function.__doc__
    command.__name__ = function.__name__
    command.__annotations__ = {p.name: p.annotation for p in ordered} | {"return": None}
    command.__dict__["__signature__"] = inspect.Signature(ordered)
    return command


def _setting_parameter(name: str, text: str, panel: str | None) -> inspect.Parameter:
    is_switch = NodeConfig.model_fields[name].annotation is bool
    flag = flag_name(name)
    option = typer.Option(
        f"{flag}/--no-{flag[2:]}" if is_switch else flag,
        metavar=None if is_switch else _metavar(name),
        help=text,
        show_default=False,
        rich_help_panel=panel,
    )
    annotation: Any = Annotated[bool | None if is_switch else str | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _metavar(name: str) -> str:
    """Return the placeholder of a setting's value: the last word of its name, where nothing says more."""
    text = NodeConfig.model_fields[name].description or ""
    first = text.partition(" ")[0]
    return {"file": "FILE", "directory": "DIR"}.get(first, name.rpartition("_")[2].upper())


def _help_of(name: str) -> str:
    """Return what a setting means, and its default as it would be written; a flag itself has none, as layers follow."""
    field = NodeConfig.model_fields[name]
    default = "" if field.is_required() else setting_kind(name).show(field.default)
    return f"{field.description}  [default: {default}]" if default else str(field.description)


def load_shared_from_flags(settings: dict[str, Any], *, file: Path, own: Collection[str]) -> dict[str, str]:
    """The settings of every member that flags, environment and file give, without those in `own`.

    The file is `file`, if it exists, unless --config or the environment names another.

    Raises:
        ConfigurationError: the user's: see `load_shared_settings`.
    """
    named, flags = _file_and_flags(settings)
    return load_shared_settings(named or (file if file.is_file() else None), flags, own=own)


def load_from_flags(settings: dict[str, Any]) -> LoadedConfig:
    """The config that the flags of a command, the environment and the file give.

    Raises:
        ConfigurationError: the user's: see `load_node_config`.
    """
    return load_node_config(*_file_and_flags(settings))


def find_missing_from_flags(settings: dict[str, Any]) -> list[str]:
    """The required settings that flags, environment and file do not give.

    Raises:
        ConfigurationError: the user's: see `find_missing`.
    """
    return find_missing(*_file_and_flags(settings))


def load_given_from_flags(settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The value of each setting that has one, and where it came from.

    Raises:
        ConfigurationError: the user's: see `load_given`.
    """
    return load_given(*_file_and_flags(settings))


def load_members_from_flags(settings: dict[str, Any]) -> tuple[MemberEndpoints, ...]:
    """The members that the flags of a command, the environment and the file give: of the group that they name.

    Raises:
        ConfigurationError: the user's: see `load_members`; or there are several groups, and they name none.
    """
    group_count, group_index = load_groups_from_flags(settings)
    members = load_members(*_file_and_flags(settings))
    if group_count > 1 and group_index is None:
        raise ConfigurationError(
            f"groups={group_count}: this command asks one group: give --group, from 0 to {group_count - 1}"
        )
    return group_members(members, group_index or 0)


def load_groups_from_flags(settings: dict[str, Any]) -> tuple[int, int | None]:
    """How many groups the cluster has, and which one the command is to ask; None: all of them.

    Raises:
        ConfigurationError: the user's: see `load_groups`.
    """
    return load_groups(*_file_and_flags(settings))


class AskedCluster(NamedTuple):
    """The members that a command asks, and how it reaches them."""

    endpoints: dict[int, str]
    """The consensus endpoint of each, by member id: there a member answers questions."""
    cluster_id: ClusterId
    """`NULL_CLUSTER_ID`: whichever answers."""
    network: NetworkStack

    def only(self, member_id: int | None) -> Self:
        """Return one of the members alone; None: all of them.

        Raises:
            Exit: there is no such member.
        """
        if member_id is None:
            return self
        if member_id not in self.endpoints:
            fail(f"member_id={member_id} expected one of {sorted(self.endpoints)}: see --members")
        return self._replace(endpoints={member_id: self.endpoints[member_id]})


def load_asked_cluster(settings: dict[str, Any]) -> AskedCluster:
    """Find the members that the flags of a command, the environment and the file give, and how to ask them.

    Raises:
        ConfigurationError: the user's: see `load_members_from_flags` and `load_tls`; or a file cannot be used.
    """
    return AskedCluster(
        load_consensus_endpoints(settings), load_cluster_id_from_flags(settings), load_network_from_flags(settings)
    )


def load_consensus_endpoints(settings: dict[str, Any]) -> dict[int, str]:
    """The consensus endpoint of each of these members, by member id: there a member answers questions.

    Raises:
        ConfigurationError: the user's: see `load_members`.
    """
    return {member.member_id: member.consensus for member in load_members_from_flags(settings)}


def load_cluster_id_from_flags(settings: dict[str, Any]) -> ClusterId:
    """The cluster that a command is to ask; `NULL_CLUSTER_ID`: whichever answers.

    Raises:
        ConfigurationError: the user's: see `load_cluster_id`.
    """
    return load_cluster_id(*_file_and_flags(settings))


def load_tls_from_flags(settings: dict[str, Any]) -> TlsSettings | None:
    """What a command that is a client encrypts with; None: nothing.

    Raises:
        ConfigurationError: the user's: see `load_tls`.
    """
    return load_tls(*_file_and_flags(settings))


def load_network_from_flags(settings: dict[str, Any]) -> NetworkStack:
    """The network stack of a command that asks members: with TLS, where settings of it are given.

    Raises:
        ConfigurationError: the user's: see `load_tls`; or a file cannot be used.
    """
    return client_network(
        load_tls_from_flags(settings),
        cluster_id=load_cluster_id_from_flags(settings),
        member_directories=_find_member_directory(settings),
    )


def _find_member_directory(settings: dict[str, Any]) -> dict[Endpoint, Path]:
    """Find the directory of a member on this machine that flags, environment or file name, by its consensus endpoint.

    Settings may be those of another machine, so only a flag has to name a directory of a member.

    Raises:
        ConfigurationError: the user's: see `load_members`; or no member that the settings know has that directory.
    """
    text = load_given_from_flags(settings)[0].get("directory")
    if text is None:
        return {}
    from ...runtime.files.mark_file import MARK_FILE_NAME, read_cluster_mark_file  # few commands name a directory

    _, group_index = load_groups_from_flags(settings)
    directory = Path(text)
    if group_index is not None and find_group_count(directory) is not None:
        directory = group_directory(directory, group_index)
    endpoints = load_consensus_endpoints(settings)
    try:
        member_id = read_cluster_mark_file(directory / "cluster" / MARK_FILE_NAME).member_id
    except (OSError, ClusterError) as error:
        if settings.get("directory") is None:
            return {}
        raise ConfigurationError(f"--directory={text}: it does not say which member's it is: {error}") from error
    if member_id in endpoints:
        return {Endpoint.parse(endpoints[member_id]): directory}
    if settings.get("directory") is None:
        return {}
    raise ConfigurationError(f"--directory={text} is of member {member_id}: expected one of {sorted(endpoints)}")


def load_health_limits_from_flags(settings: dict[str, Any]) -> HealthLimits:
    """The limits of health that the flags of a command, the environment and the file give.

    Raises:
        ConfigurationError: the user's: see `load_health_limits`.
    """
    return load_health_limits(*_file_and_flags(settings))


def _file_and_flags(settings: dict[str, Any]) -> tuple[Path | None, dict[str, Any]]:
    flags = dict(settings)
    file = flags.pop("config_file", None) or os.environ.get(CONFIG_FILE_VARIABLE) or None
    for name, value in flags.items():
        if isinstance(value, bool):
            flags[name] = "true" if value else "false"
    return None if file is None else Path(file), flags
