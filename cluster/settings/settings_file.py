"""A file of settings in TOML: its values by setting, and the line where each stands.

The parser of the standard library keeps no lines, so the file is read a second time, statement by statement, with the
same parser: lines are added to a statement until they are valid TOML, and nothing else is. Another parser would be a
dependency, or a second opinion about what TOML is.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...service_api.errors import ConfigurationError
from .config import TLS_PREFIX

_TLS_TABLE: Final = TLS_PREFIX.rstrip("_")


class PlacedValue(NamedTuple):
    """A value of a file, and where it stands."""

    value: Any  # of any type of TOML: it has yet to be checked
    place: str
    """`FILE:LINE`."""


def read_settings_file(file: Path) -> dict[str, PlacedValue]:
    """Read what a file says, by setting. The table `[tls]` has its settings without their prefix.

    Raises:
        ConfigurationError: the user's: it cannot be read, is no TOML, or gives a setting twice; it names the line.
    """
    try:
        data = file.read_bytes()
        text = data.decode().replace("\r\n", "\n") + "\n"
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(f"config file is not UTF-8 text: {file}:{line}") from error
    except OSError as error:
        raise ConfigurationError(f"config file cannot be read: file={file} reason={error.strerror}") from error
    statements, open_line = _split(text)
    try:
        tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # Not only a TOMLDecodeError: of a number with too many digits, or tables in tables without end, Python itself.
        found = re.search(r"\(at line (\d+)", str(error))
        line = open_line if found is None else int(found[1])
        raise ConfigurationError(f"config file is not valid TOML: {file}:{line}: {error}") from error
    values: dict[str, PlacedValue] = {}
    for line, statement in statements:
        for name, value in _flatten(statement).items():
            if name in values and name.startswith(TLS_PREFIX):
                raise ConfigurationError(
                    f"setting given twice: {name} in {values[name].place} and in {file}:{line}: "
                    f"expected it in the table [{_TLS_TABLE}] or outside it"
                )
            values.setdefault(name, PlacedValue(value, f"{file}:{line}"))
    return values


def _split(text: str) -> tuple[list[tuple[int, dict[str, Any]]], int]:
    """Read each statement, inside its table, with its first line; and give the line of what is no statement."""
    statements: list[tuple[int, dict[str, Any]]] = []
    lines: list[str] = []
    table = ""
    for number, line in enumerate(text.split("\n"), start=1):
        lines.append(line)
        try:
            values = tomllib.loads("\n".join([table, *lines]))
        except (ValueError, RecursionError):
            continue  # not yet whole
        statements.append((number - len(lines) + 1, values))
        if lines[0].lstrip().startswith("["):
            table = line
        lines = []
    return statements, text.count("\n") + 2 - len(lines)


def _flatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """Name what is in the table `[tls]` as the settings are named elsewhere."""
    table = values.get(_TLS_TABLE)
    if not isinstance(table, dict):
        return dict(values)
    return {TLS_PREFIX + name: value for name, value in table.items()}
