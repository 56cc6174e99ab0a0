"""Kinds of settings: how each is written as text, read back, and described in an error.

A kind is the metadata of an `Annotated` type, so a model's field says all at once:
`election_timeout_ms: Millis`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field
from pydantic_settings import NoDecode

from .member_endpoints import PORT_MAX, MemberEndpoints, format_members, parse_members


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


def _parse_with_units(text: str, units: Mapping[str, int]) -> int:
    number = text.strip()
    for suffix, factor in units.items():
        if number.lower().endswith(suffix.lower()):
            return int(number[: -len(suffix)].strip()) * factor
    return int(number)


def parse_size_bytes(text: str) -> int:
    """Read a size such as `67108864`, `64KiB`, `64MiB` or `1GiB`, in bytes.

    Raises:
        ValueError: the text is none of these.
    """
    return _parse_with_units(text, {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1})


def parse_duration_ms(text: str) -> int:
    """Read a duration such as `500`, `500ms`, `2s` or `1m`, in milliseconds.

    Raises:
        ValueError: the text is none of these.
    """
    return _parse_with_units(text, {"ms": 1, "s": 1_000, "m": 60_000})


def parse_app_version(text: str) -> int:
    """Pack `major.minor.patch` into an int, eight bits each. Source: Aeron `SemanticVersion`.

    Raises:
        ValueError: not three numbers of 0 to 255.
    """
    numbers = [int(part) for part in text.split(".")]
    if len(numbers) != 3 or not all(0 <= number <= 255 for number in numbers):
        raise ValueError(text)
    return numbers[0] << 16 | numbers[1] << 8 | numbers[2]


def format_app_version(packed: int) -> str:
    """Write a packed version as `major.minor.patch`."""
    return f"{packed >> 16 & 0xFF}.{packed >> 8 & 0xFF}.{packed & 0xFF}"


def format_size_bytes(length: int) -> str:
    """Write a size in the largest unit that divides it."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if length >= factor and length % factor == 0:
            return f"{length // factor}{unit}"
    return str(length)


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


def _show_switch(value: bool) -> str:
    return "true" if value else "false"


def parse_optional_endpoint(text: str) -> str:
    """Check `host:port`, or nothing; port 0 stands for any that is free.

    Raises:
        ValueError: the text is neither.
    """
    endpoint = text.strip()
    if not endpoint:
        return ""
    host, separator, port = endpoint.rpartition(":")
    if not (host and separator and port.isascii() and port.isdecimal() and int(port) <= PORT_MAX):
        raise ValueError(f"endpoint={text!r} expected host:port")
    return endpoint


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

Count = Annotated[int, SettingKind("a whole number", int)]
Millis = Annotated[int, Field(gt=0), _DURATION]
SizeBytes = Annotated[int, Field(gt=0), _SIZE]
AmountBytes = Annotated[int, Field(ge=0), _SIZE]
Switch = Annotated[bool, SettingKind("true or false", _parse_switch, _show_switch, file_type=bool)]
Text = Annotated[str, SettingKind("text", str, text_in_file=True, file_type=str)]
Location = Annotated[Path, SettingKind("a path", Path, text_in_file=True, file_type=str)]
OptionalEndpoint = Annotated[
    str,
    AfterValidator(parse_optional_endpoint),
    SettingKind(
        'host:port such as "127.0.0.1:9464", or empty', parse_optional_endpoint, text_in_file=True, file_type=str
    ),
]
AppVersion = Annotated[int, Field(ge=0, le=0xFFFFFF), _VERSION]
Members = Annotated[tuple[MemberEndpoints, ...], Field(min_length=1), NoDecode, _MEMBERS]
LogFormat = Annotated[
    Literal["auto", "console", "json"],
    SettingKind("one of auto, console, json", str, text_in_file=True, file_type=str),
]
