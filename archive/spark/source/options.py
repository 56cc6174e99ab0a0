"""The options of the data source `aeron_archive`: read, checked, and refused by name.

Spark hands options over with their keys in lower case, so they are looked up without regard to case. docs/spark.md has
the table; a test compares it with `OPTIONS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from ....service_api.errors import ConfigurationError
from ....service_api.quantities import parse_size_bytes
from ....service_api.types import TimeUnit
from ...reading.frame_columns import GROUP_COLUMN, choose_columns
from .filters import EVERY_ROW, RowFilter
from .where import parse_where

MIN_SPLIT_BYTES: Final = 1 << 16

STREAM_OPTIONS: Final = frozenset(
    {
        "startingPosition",
        "maxBytesPerTrigger",
        "commitFrom",
        "clusterId",
        "tlsAuthorities",
        "tlsCertificate",
        "tlsKey",
        "tlsVerify",
        "tlsSpiffePrefix",
    }
)
"""Those of streams only: a stream's reader checks them, a batch read refuses them."""

_RANGE: Final = re.compile(r"(\d{1,19}):(\d{1,19})-(\d{1,19})", re.ASCII)


class ReadMode(StrEnum):
    """What is done where frames are not valid: Spark's three words for it."""

    PERMISSIVE = "PERMISSIVE"
    """Go on behind the damage, with a line in the executor's log."""
    DROPMALFORMED = "DROPMALFORMED"
    """The same without a word."""
    FAILFAST = "FAILFAST"
    """Raise."""


class Committed(StrEnum):
    """The rule for committed frames, where no position gives it."""

    ANY = "false"
    """All that is recorded."""
    BY_RECORDING_LOG = "true"
    """What the member's recording log shows to be committed."""


@dataclass(slots=True, frozen=True, kw_only=True)
class ReadOptions:
    """What a read asks for. Fields are the options of these names; None is what `auto` or nothing means."""

    path: str
    recording_id: int | None = None
    all_recordings: bool = False
    """`recordingId=all`."""
    start_position: int | None = None
    stop_position: int | None = None
    committed: Committed | int = Committed.ANY
    messages: bool = False
    padding: bool = True
    checksums: bool | None = None
    time_unit: TimeUnit | None = None
    columns: tuple[str, ...] | None = None
    mode: ReadMode = ReadMode.PERMISSIVE
    split_bytes: int | None = None
    where: RowFilter = EVERY_ROW
    excepted: tuple[PositionRange, ...] = ()
    groups: tuple[int, ...] | None = None
    """The option `group`: in a directory with groups, those that are read; None: all."""


class PositionRange(NamedTuple):
    """The frames of a recording from `start` on and before `stop`, which are beginnings of segments or its ends."""

    recording_id: int
    start: int
    stop: int


class OptionRule(NamedTuple):
    """How an option is read: into which field, from what text, and what it is without one."""

    field: str
    parse: Callable[[str, str], Any]  # what the field holds
    default: str


def parse_options(options: Mapping[str, str], *, also: Collection[str] = ()) -> ReadOptions:
    """Read the options of a read. Names in `also` are passed over: their reader checks them.

    Raises:
        ConfigurationError: an option is unknown or its value wrong, there is no path, or options contradict each other.
    """
    known = {name.lower(): name for name in (*OPTIONS, *also)}
    fields = {}
    for key, text in options.items():
        name = known.get(key.lower())
        if name is None:
            is_streams = key.lower() in {option.lower() for option in STREAM_OPTIONS}
            reason = "an option of streams only" if is_streams else "no such option"
            raise ConfigurationError(f"{reason}: option={key!r} expected some of {', '.join(OPTIONS)}")
        if name in OPTIONS:
            rule = OPTIONS[name]
            fields[rule.field] = rule.parse(name, text.strip())
    if not fields.get("path"):
        raise ConfigurationError("no path: expected the directory of an archive or of a member in load(path)")
    if fields.get("recording_id") == "all":
        fields["recording_id"], fields["all_recordings"] = None, True
    parsed = ReadOptions(**fields)
    _check_together(parsed)
    return parsed


def expect_one_log(options: ReadOptions) -> None:
    """Refuse what is about groups, where one log is read.

    Raises:
        ConfigurationError: an option is.
    """
    named = (*(options.columns or ()), *options.where.columns)
    if options.groups is not None or GROUP_COLUMN in named:
        raise ConfigurationError(
            f"{options.path} is read as one log: expected no option group and no column {GROUP_COLUMN}, which are for "
            "the directory of a member with groups"
        )


def _check_together(options: ReadOptions) -> None:
    positions = {
        "startPosition": options.start_position,
        "stopPosition": options.stop_position,
        "committed": None if options.committed is Committed.ANY else options.committed,
    }
    given = [name for name, value in positions.items() if value is not None]
    if options.all_recordings and given:
        raise ConfigurationError(
            f"positions are those of one recording: {given[0]}={positions[given[0]]} with recordingId=all "
            "expected one recordingId"
        )
    start, stop = options.start_position, options.stop_position
    if start is not None and stop is not None and stop < start:
        raise ConfigurationError(f"stopPosition={stop} is before startPosition={start}")


def parse_position(name: str, text: str) -> int:
    """Read a position, or an id: a number from 0 to 2^63 - 1.

    Raises:
        ConfigurationError: it is none.
    """
    if not re.fullmatch(r"\d{1,19}", text, re.ASCII) or int(text) >= 1 << 63:
        raise _wrong(name, text, "a number from 0 to 9223372036854775807")
    return int(text)


def parse_size(name: str, text: str) -> int:
    """Read a number of bytes, such as 33554432, 32m or 32MiB.

    Raises:
        ConfigurationError: it is none, or less than 64 KiB.
    """
    try:
        size = parse_size_bytes(text)
    except ValueError:
        size = 0
    if size < MIN_SPLIT_BYTES:
        raise _wrong(name, text, f"a number of bytes from {MIN_SPLIT_BYTES}, such as 33554432, 32m or 32MiB")
    return size


def one_of(**values: Any) -> Callable[[str, str], Any]:  # what the field of the option holds
    """Make the parser of an option that has a few values; case does not matter."""
    by_text = {text.lower(): value for text, value in values.items()}

    def parse(name: str, text: str) -> Any:
        if text.lower() not in by_text:
            raise _wrong(name, text, ", ".join(values))
        return by_text[text.lower()]

    return parse


def _parse_recording_id(name: str, text: str) -> int | str:
    if text.lower() == "all":
        return "all"
    if not text.isascii() or not text.isdigit():
        raise _wrong(name, text, "the id of a recording, or all")
    return parse_position(name, text)


def _parse_committed(name: str, text: str) -> Committed | int:
    if text.lower() in {committed.value for committed in Committed}:
        return Committed(text.lower())
    if not text.isascii() or not text.isdigit():
        raise _wrong(name, text, "false, true or a position")
    return parse_position(name, text)


def _parse_ranges(name: str, text: str) -> tuple[PositionRange, ...]:
    matches = [_RANGE.fullmatch(part.strip()) for part in text.split(",")]
    ranges = [PositionRange(*map(int, match.groups())) for match in matches if match is not None]
    if len(ranges) < len(matches):
        raise _wrong(name, text, "recordingId:start-stop, with commas between")
    return tuple(ranges)


def _parse_columns(name: str, text: str) -> tuple[str, ...]:
    columns = tuple(column.strip() for column in text.split(","))
    of_frames = choose_columns([column for column in columns if column != GROUP_COLUMN])
    if not of_frames or len(columns) - len(of_frames) > 1:
        raise _wrong(name, text, f"{GROUP_COLUMN} once at most, and another column")
    return columns


def _parse_groups(name: str, text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"\d{1,4}", part, re.ASCII) for part in parts):
        raise _wrong(name, text, "groups from 0 on, with commas between")
    return tuple(sorted({int(part) for part in parts}))


def _wrong(name: str, text: str, expected: str) -> ConfigurationError:
    return ConfigurationError(f"option {name}: {text!r} expected {expected}")


_YES_OR_NO: Final = one_of(true=True, false=False)

OPTIONS: Final[Mapping[str, OptionRule]] = {
    "path": OptionRule("path", lambda name, text: text, ""),
    "recordingId": OptionRule("recording_id", _parse_recording_id, "the newest log"),
    "startPosition": OptionRule("start_position", parse_position, "the recording's"),
    "stopPosition": OptionRule("stop_position", parse_position, "the recording's"),
    "committed": OptionRule("committed", _parse_committed, "false"),
    "messages": OptionRule("messages", _YES_OR_NO, "false"),
    "padding": OptionRule("padding", _YES_OR_NO, "true"),
    "checksums": OptionRule("checksums", one_of(auto=None, on=True, off=False), "auto"),
    "timeUnit": OptionRule(
        "time_unit",
        one_of(auto=None, ms=TimeUnit.MILLIS, us=TimeUnit.MICROS, ns=TimeUnit.NANOS),
        "auto",
    ),
    "columns": OptionRule("columns", _parse_columns, "all"),
    "mode": OptionRule("mode", one_of(**{mode.value: mode for mode in ReadMode}), "PERMISSIVE"),
    "splitBytes": OptionRule("split_bytes", parse_size, "32m to 128m by cores, more for long logs"),
    "where": OptionRule("where", lambda name, text: parse_where(text), ""),
    "exceptPositions": OptionRule("excepted", _parse_ranges, "none"),
    "group": OptionRule("groups", _parse_groups, "all"),
}
"""Every option of a batch read by its name, in the order in which docs/spark.md lists them."""
