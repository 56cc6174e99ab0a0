"""The layers of a node's settings, merged into one checked config.

Four layers give a setting its value; the first that has one wins:

    command line flag   --election-timeout-ms 500
    environment         TRIMARAN_ELECTION_TIMEOUT_MS=500
    TOML file           election_timeout_ms = 500, and of TLS a table: [tls] key = "member-0.key"
    default             where there is one

A key that no setting has is an error in every layer, with the nearest name as a suggestion: a misspelt
timeout that is silently ignored is found in production. Beside each value is kept the layer it came from, and
every error names both; of a file also the line.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError

from ...service_api.cluster_id import NULL_CLUSTER_ID, ClusterId
from ...service_api.errors import ConfigurationError
from ...service_api.groups.group import check_group_count
from ...service_api.tls.settings import TlsSettings
from .config import MEMBER_ID_PLACE, TLS_PREFIX, MemberEndpoints, NodeConfig
from .health_limits import HealthLimits
from .member_endpoints import MembersByName, format_members
from .setting_kinds import SettingKind
from .settings_file import read_settings_file
from .variables import ENV_PREFIX, setting_variables


@dataclass(slots=True, frozen=True)
class LoadedConfig:
    """A config and, per setting, where its value came from: a flag, a variable, `FILE:LINE`, or `default`."""

    config: NodeConfig
    origins: Mapping[str, str]


@dataclass(slots=True)
class _Layer:
    """One source of settings: raw values by name, and how to say where each came from."""

    values: dict[str, Any]
    origin_of: Callable[[str], str]
    is_text: bool
    """Whether every value is text to be parsed (flags, environment) or typed already (TOML)."""


def setting_kind(name: str) -> SettingKind:
    """The kind of a setting of NodeConfig, by name."""
    field = NodeConfig.model_fields[name]
    return next(item for item in field.metadata if isinstance(item, SettingKind))


def flag_name(name: str) -> str:
    """The command line flag of a setting: `member_id` is `--member-id`."""
    return "--" + name.replace("_", "-")


def flag_arguments(name: str, value: str) -> list[str]:
    """Write a setting as arguments of the command line; a switch is a flag without a value."""
    flag = flag_name(name)
    if NodeConfig.model_fields[name].annotation is not bool:
        return [flag, value]
    return [flag if setting_kind(name).parse(value) else f"--no-{flag[2:]}"]


def load_node_config(file: Path | None = None, flags: Mapping[str, Any] | None = None) -> LoadedConfig:
    """Put flags, environment and file together into one checked config.

    `flags` maps setting names to text; None means not given. Relative paths are relative to the working
    directory. All problems found in one pass are reported together, a line each.

    Raises:
        ConfigurationError: the user's: an unknown key, a value that cannot be read, settings that do not fit.
    """
    values, origins = _read_layers(file, flags or {})
    members, member_id = values.get("members"), values.get("member_id", 0)
    if isinstance(members, MembersByName) and member_id >= len(members) and "join" not in values:
        # The pattern names who the cluster begins with: another one joins them, with the same settings.
        values |= {"members": (members.name(member_id),), "join": format_members(members)}
        origins["join"] = origins["members"]
    try:
        return LoadedConfig(NodeConfig(**values), origins)
    except ValidationError as error:
        lines = [line for item in error.errors() for line in _validation_lines(dict(item), origins)]
        raise ConfigurationError("\n".join(lines)) from None


def find_missing(file: Path | None = None, flags: Mapping[str, Any] | None = None) -> list[str]:
    """Name the required settings that no layer has.

    Raises:
        ConfigurationError: the user's: an unknown key, a value that cannot be read.
    """
    values, _ = _read_layers(file, flags or {})
    return [name for name, field in NodeConfig.model_fields.items() if field.is_required() and name not in values]


def load_given(
    file: Path | None = None, flags: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the value of each setting that has one, and where it came from, without a look at how they fit.

    Raises:
        ConfigurationError: the user's: an unknown key, a value that cannot be read.
    """
    values, origins = _read_layers(file, flags or {})
    defaults = {name: field.default for name, field in NodeConfig.model_fields.items() if not field.is_required()}
    return {**defaults, **values}, origins


def load_shared_settings(file: Path | None, flags: Mapping[str, Any], *, own: Collection[str]) -> dict[str, str]:
    """Find what flags, environment and file say about every member, for a command that starts members itself.

    Gives the settings that some layer has, as text by name, without those in `own`: the command decides them. What
    they must satisfy together each member checks.

    Raises:
        ConfigurationError: the user's: an unknown key, a value that cannot be read.
    """
    values, _ = _read_layers(file, flags)
    return {name: setting_kind(name).show(value) for name, value in values.items() if name not in own}


def check_settings(typed: Mapping[str, Any], text: Mapping[str, str]) -> None:
    """Check settings together, some as values and some as text, as a member does when it starts.

    Raises:
        ConfigurationError: they do not fit; a line for each problem.
    """
    values = {**typed, **{name: setting_kind(name).parse(value) for name, value in text.items()}}
    origins = dict.fromkeys(NodeConfig.model_fields, "these settings")
    try:
        NodeConfig(**values)
    except ValidationError as error:
        lines = [line for item in error.errors() for line in _validation_lines(dict(item), origins)]
        raise ConfigurationError("\n".join(lines)) from None


def load_members(file: Path | None = None, flags: Mapping[str, Any] | None = None) -> tuple[MemberEndpoints, ...]:
    """Find the members of a cluster where `load_node_config` would, for a command that is no member itself.

    What else the layers hold is read as strictly, but need not be there.

    Raises:
        ConfigurationError: the user's: no members given, an unknown key, a value that cannot be read.
    """
    values, _ = _read_layers(file, flags or {})
    if not values.get("members"):
        raise ConfigurationError(_missing("members"))
    members: tuple[MemberEndpoints, ...] = values["members"]
    return members


def load_groups(file: Path | None = None, flags: Mapping[str, Any] | None = None) -> tuple[int, int | None]:
    """Find how many groups the cluster has, and which one a command is to ask, where `load_node_config` would.

    None: all of them.

    Raises:
        ConfigurationError: the user's: an unknown key, a value that cannot be read, a group that there is not.
    """
    values, origins = _read_layers(file, flags or {})
    count, text = values.get("groups", 1), values.get("group", "")
    check_group_count(count)
    if not text:
        return count, None
    if not text.isdecimal() or int(text) >= count:
        raise ConfigurationError(
            f"invalid setting: group={text!r} from {origins['group']}: expected 0 to {count - 1}, for groups={count}"
        )
    return count, int(text)


def load_cluster_id(file: Path | None = None, flags: Mapping[str, Any] | None = None) -> ClusterId:
    """Find the cluster that a command is to ask, where `load_node_config` would; `NULL_CLUSTER_ID`: any.

    Raises:
        ConfigurationError: the user's: an unknown key, a value that cannot be read.
    """
    values, _ = _read_layers(file, flags or {})
    return ClusterId(values.get("cluster_id", NULL_CLUSTER_ID))


def load_tls(file: Path | None = None, flags: Mapping[str, Any] | None = None) -> TlsSettings | None:
    """Find what a command that is no member itself encrypts with, where `load_node_config` would; None: nothing.

    Certificates of members, by the place that their id has in the name, are not its own: it shows none then.

    Raises:
        ConfigurationError: the user's: an unknown key, a value that cannot be read, settings that do not fit.
    """
    values, _ = _read_layers(file, flags or {})
    tls = {name.removeprefix(TLS_PREFIX): text for name, text in values.items() if name.startswith(TLS_PREFIX)}
    if MEMBER_ID_PLACE in tls.get("certificate", "") + tls.get("key", ""):
        del tls["certificate"], tls["key"]
    return TlsSettings.of_values(tls)


def load_health_limits(file: Path | None = None, flags: Mapping[str, Any] | None = None) -> HealthLimits:
    """Find the limits of health where `load_node_config` would; each that no layer has is its default.

    Raises:
        ConfigurationError: the user's: an unknown key, a value that cannot be read or is out of bounds.
    """
    values, origins = _read_layers(file, flags or {})
    limits = {}
    for name in (field.name for field in fields(HealthLimits)):
        field = NodeConfig.model_fields[name]
        limits[name] = values.get(name, field.default)
        kind: Any = Annotated[field.annotation, *field.metadata]  # a type that is put together at run time
        try:
            TypeAdapter(kind).validate_python(limits[name], strict=True)
        except ValidationError as error:
            found = dict(error.errors()[0]) | {"loc": (name,)}
            raise ConfigurationError("\n".join(_validation_lines(found, origins))) from None
    return HealthLimits(**limits)


def _read_layers(file: Path | None, flags: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Read every layer; gives the values by setting, and where each came from."""
    layers = [_flag_layer(flags), _env_layer()]
    if file is not None:
        layers.append(_file_layer(file))
    values: dict[str, Any] = {}
    origins = dict.fromkeys(NodeConfig.model_fields, "default")
    problems: list[str] = []
    for layer in layers:
        for name, raw in layer.values.items():
            if name not in NodeConfig.model_fields:
                problems.append(_unknown_key(name, layer.origin_of(name)))
            elif name not in values:
                origins[name] = layer.origin_of(name)
                try:
                    values[name] = _read_value(name, raw, is_text=layer.is_text)
                except ValueError:
                    problems.append(_bad_value(name, raw, origins[name]))
                except ConfigurationError as error:
                    problems.append(f"{error} ({origins[name]})")
    if problems:
        raise ConfigurationError("\n".join(problems))
    if str(values.get("member_id")) in str(values.get("witnesses", "")).split(","):
        values.setdefault("service", "")
    return values, origins


def _flag_layer(flags: Mapping[str, Any]) -> _Layer:
    given = {name: value for name, value in flags.items() if value is not None}
    return _Layer(given, flag_name, is_text=True)


def _env_layer() -> _Layer:
    # As text, each: pydantic-settings' own source makes some a value already, such as a path.
    values = {
        variable.removeprefix(ENV_PREFIX).lower(): text for variable, text in setting_variables(os.environ).items()
    }
    return _Layer(values, lambda name: f"{ENV_PREFIX}{name.upper()}", is_text=True)


def _file_layer(file: Path) -> _Layer:
    found = read_settings_file(file)
    return _Layer({name: placed.value for name, placed in found.items()}, lambda name: found[name].place, is_text=False)


def _read_value(name: str, raw: Any, *, is_text: bool) -> Any:
    """The typed value of a raw one. Raises ValueError or ConfigurationError if it cannot be read."""
    kind = setting_kind(name)
    if isinstance(raw, str) and (is_text or kind.text_in_file):
        return kind.parse(raw)
    if type(raw) is not kind.file_type:
        raise ValueError(raw)
    return raw


def _bad_value(name: str, raw: Any, origin: str) -> str:
    return f"invalid setting: {name}={raw!r} from {origin}: expected {setting_kind(name).expected}"


def _unknown_key(name: str, origin: str) -> str:
    matches = difflib.get_close_matches(name, NodeConfig.model_fields, n=1, cutoff=0.6)
    where = origin if origin.startswith((ENV_PREFIX, "--")) else f"{name} in {origin}"
    if not matches:
        return f"unknown setting: {where}: `trimaran config show` lists the settings"
    suggestion = matches[0]
    if origin.startswith(ENV_PREFIX):
        suggestion = f"{ENV_PREFIX}{suggestion.upper()}"
    return f"unknown setting: {where}: did you mean {suggestion}?"


def _missing(name: str) -> str:
    ways = f"{flag_name(name)}, {ENV_PREFIX}{name.upper()} or {name} in the config file"
    return f"missing setting: {name}: give {ways}: {setting_kind(name).expected}"


def _validation_lines(error: Mapping[str, Any], origins: Mapping[str, str]) -> list[str]:
    location = error["loc"]
    if not location:
        return [f"invalid settings: {_with_origins(line, origins)}" for line in str(error["ctx"]["error"]).splitlines()]
    name = str(location[0])
    if error["type"] == "missing":
        return [_missing(name)]
    reason = str(error["msg"]).replace("Input should be", "expected to be").removeprefix("Value error, ")
    if error["type"] == "string_pattern_mismatch":
        reason = 'expected "module:Class"'
    return [f"invalid setting: {name}={error['input']!r} from {origins[name]}: {reason}"]


def _with_origins(problem: str, origins: Mapping[str, str]) -> str:
    """Say where the settings come from that do not fit together, of those that are no defaults."""
    named = dict.fromkeys(re.findall(r"\b(\w+)=", problem))
    given = [f"{name} from {origins[name]}" for name in named if origins.get(name, "default") != "default"]
    return f"{problem} ({', '.join(given)})" if given else problem
