"""Kinds of settings: how each is written as text, read back, and described in an error.

A kind is the metadata of an `Annotated` type, so a model's field says all at once:
`election_timeout_ms: Millis`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field
from pydantic_settings import NoDecode

from ...service_api.addresses.name_pattern import MEMBER_ID_PLACE
from ...service_api.cluster_id import ClusterId, format_cluster_id, parse_cluster_id
from ...service_api.endpoint import Endpoint
from ...service_api.errors import ConfigurationError
from ...service_api.quantities import (
    format_app_version,
    format_size_bytes,
    parse_app_version,
    parse_duration_ms,
    parse_size_bytes,
)
from .member_endpoints import MemberEndpoints, format_members, parse_members


@dataclass(slots=True, frozen=True)
class SettingKind:
    """How a kind of setting is written as text, read back, and described in an error."""

    expected: str
    parse: Callable[[str], Any]
    """Text to value; raises ValueError or ConfigurationError."""
    show: Callable[[Any], str] = str
    text_in_file: bool = False
    """Whether the TOML file, too, gives it as text: paths, members, sizes and durations with units."""
    file_type: type = int
    """The other TOML type it may have."""


def _parse_switch(text: str) -> bool:
    switches = {
        "true": True,
        "yes": True,
        "on": True,
        "1": True,
        "false": False,
        "no": False,
        "off": False,
        "0": False,
    }
    if text.strip().lower() not in switches:
        raise ValueError(text)
    return switches[text.strip().lower()]


def _parse_path(text: str) -> Path:
    if "\0" in text:
        raise ValueError(text)  # no system has such a path
    return Path(text)


def _show_switch(value: bool) -> str:
    return "true" if value else "false"


def _parse_optional_endpoint(text: str) -> str:
    """Check `host:port`, or nothing; port 0 stands for any that is free, `{member_id}` for the member's id."""
    if not text:
        return ""
    try:
        endpoint = Endpoint.parse(text.replace(MEMBER_ID_PLACE, "0"), may_be_ephemeral=True)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None
    return text if MEMBER_ID_PLACE in text else str(endpoint)


_SIZE: Final = SettingKind(
    'a size, such as 67108864 or "64MiB"', parse_size_bytes, format_size_bytes, text_in_file=True
)
_DURATION: Final = SettingKind('milliseconds, such as 500, "500ms" or "2s"', parse_duration_ms, text_in_file=True)
_VERSION: Final = SettingKind(
    'a version, such as "1.0.0"', parse_app_version, format_app_version, text_in_file=True, file_type=str
)
_MEMBERS: Final = SettingKind(
    'members, such as "0=127.0.0.1:9000,1=127.0.0.1:9010,2=127.0.0.1:9020"',
    parse_members,
    format_members,
    text_in_file=True,
    file_type=str,
)

_CLUSTER_ID: Final = SettingKind(
    'a cluster id, such as "3f9a0c12d45e77b1"',
    parse_cluster_id,
    lambda value: format_cluster_id(value) or "",
    text_in_file=True,
    file_type=str,
)

Count = Annotated[int, SettingKind("a whole number", int)]
Millis = Annotated[int, Field(gt=0), _DURATION]
AmountMillis = Annotated[int, Field(ge=0), _DURATION]
SizeBytes = Annotated[int, Field(gt=0), _SIZE]
AmountBytes = Annotated[int, Field(ge=0), _SIZE]
Switch = Annotated[bool, SettingKind("true or false", _parse_switch, _show_switch, file_type=bool)]
Text = Annotated[str, SettingKind("text", str, text_in_file=True, file_type=str)]
Location = Annotated[Path, SettingKind("a path", _parse_path, text_in_file=True, file_type=str)]
OptionalEndpoint = Annotated[
    str,
    AfterValidator(_parse_optional_endpoint),
    SettingKind(
        f'host:port such as "127.0.0.1:9464", with {MEMBER_ID_PLACE} for the member\'s id if you like, or empty',
        _parse_optional_endpoint,
        text_in_file=True,
        file_type=str,
    ),
]
ClusterIdText = Annotated[ClusterId, Field(ge=0, lt=1 << 63), _CLUSTER_ID]
AppVersion = Annotated[int, Field(ge=0, le=0xFFFFFF), _VERSION]
Members = Annotated[tuple[MemberEndpoints, ...], Field(min_length=1), NoDecode, _MEMBERS]
SharedMachine = Annotated[
    Literal["auto", "on", "off"],
    SettingKind("one of auto, on, off", str, text_in_file=True, file_type=str),
]
KindOfChecksum = Annotated[
    Literal["crc32", "crc32c"],
    SettingKind("one of crc32, crc32c", str, text_in_file=True, file_type=str),
]
VerifyServer = Annotated[
    Literal["auto", "name", "cluster"],
    SettingKind("one of auto, name, cluster", str, text_in_file=True, file_type=str),
]
WhenDiverged = Annotated[
    Literal["stop", "report"],
    SettingKind("one of stop, report", str, text_in_file=True, file_type=str),
]
LogLevel = Annotated[
    Literal["debug", "info", "warning"],
    SettingKind("one of debug, info, warning", str, text_in_file=True, file_type=str),
]
LogFormat = Annotated[
    Literal["auto", "console", "json"],
    SettingKind("one of auto, console, json", str, text_in_file=True, file_type=str),
]
