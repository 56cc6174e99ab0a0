"""Options: each is read, and what is wrong with one is said in one line that names it."""

from __future__ import annotations

import pytest

from trimaran.archive.spark.source.filters import Condition
from trimaran.archive.spark.source.options import (
    OPTIONS,
    STREAM_OPTIONS,
    Committed,
    ReadMode,
    ReadOptions,
    parse_options,
)
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.types import TimeUnit

GIVEN = {
    "path": "data/node-0",
    "recordingId": "3",
    "startPosition": "64",
    "stopPosition": "4096",
    "committed": "2048",
    "messages": "TRUE",
    "padding": "false",
    "checksums": "off",
    "timeUnit": "ns",
    "columns": "position, type",
    "mode": "failfast",
    "splitBytes": "64m",
    "where": "type = 1",
    "exceptPositions": "0:0-64",
    "group": "2, 0",
}


@pytest.mark.parametrize("spell", [str, str.lower, str.upper])
def test_every_option_is_read_whatever_its_case(spell: type[str]) -> None:
    """Spark hands them over in lower case."""
    options = parse_options({spell(name): text for name, text in GIVEN.items()})

    assert set(GIVEN) == set(OPTIONS)
    assert options == ReadOptions(
        path="data/node-0",
        recording_id=3,
        start_position=64,
        stop_position=4096,
        committed=2048,
        messages=True,
        padding=False,
        checksums=False,
        time_unit=TimeUnit.NANOS,
        columns=("position", "type"),
        mode=ReadMode.FAILFAST,
        split_bytes=64 << 20,
        where=options.where,
        excepted=options.excepted,
        groups=(0, 2),
    )
    assert options.where == Condition("type", "equal", (1,))


def test_words_that_are_no_numbers() -> None:
    options = parse_options({"path": "x", "recordingId": "ALL", "checksums": "auto", "timeUnit": "auto"})

    assert (options.all_recordings, options.recording_id, options.checksums, options.time_unit) == (
        *(True, None, None, None),
    )
    assert parse_options({"path": "x", "committed": "True"}).committed is Committed.BY_RECORDING_LOG
    assert parse_options({"path": "x", "committed": "false"}) == ReadOptions(path="x")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "no path"),
        ({"path": " "}, "no path"),
        ({"recordingid": "-1"}, "recordingId: '-1'"),
        ({"startPosition": "x"}, "startPosition: 'x'"),
        ({"stopPosition": "9223372036854775808"}, "stopPosition: '9223372036854775808'"),
        ({"committed": "maybe"}, "committed: 'maybe'"),
        ({"messages": "1"}, "messages: '1'"),
        ({"checksums": "true"}, "checksums: 'true'"),
        ({"timeUnit": "s"}, "timeUnit: 's'"),
        ({"columns": "position,nosuch"}, "column='nosuch'"),
        ({"columns": "type,type"}, "twice"),
        ({"mode": "lenient"}, "mode: 'lenient'"),
        ({"splitBytes": "1k"}, "splitBytes: '1k'"),
        ({"splitBytes": "9" * 30}, "option splitBytes: "),
        ({"where": "type = 1 XOR type = 2"}, "'XOR' in 'type = 1 XOR type = 2'"),
        ({"recordingIds": "1"}, "option='recordingIds'"),
        ({"maxBytesPerTrigger": "1m"}, "option='maxBytesPerTrigger'"),
        ({"recordingId": "all", "startPosition": "0"}, "startPosition=0 with recordingId=all"),
        ({"recordingId": "all", "committed": "true"}, "committed=true with recordingId=all"),
        ({"startPosition": "64", "stopPosition": "32"}, "stopPosition=32 is before startPosition=64"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_options({} if not options else {"path": "x", **options})

    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_options_that_another_reader_checks_are_passed_over() -> None:
    assert parse_options({"path": "x", "startingposition": "no"}, also=STREAM_OPTIONS) == ReadOptions(path="x")
