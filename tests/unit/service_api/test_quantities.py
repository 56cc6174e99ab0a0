"""Sizes and durations as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimaran.archive.spark.source.options import parse_options
from trimaran.cluster.settings.config_layers import load_node_config
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.quantities import format_size_bytes, parse_duration_ms, parse_size_bytes

MIB = 1 << 20
SIZES = {
    "67108864": 64 * MIB,
    "67108864B": 64 * MIB,
    "65536k": 64 * MIB,
    "65536KB": 64 * MIB,
    "64m": 64 * MIB,
    "64M": 64 * MIB,
    "64mb": 64 * MIB,
    "64MiB": 64 * MIB,
    "64 mib": 64 * MIB,
    "1g": 1024 * MIB,
    "1GiB": 1024 * MIB,
}
NO_SIZES = ["", "m", "many", "-1", "+1", "1.5m", "64ib", "64 mi b", "64mm", "1_000_000", "\u0661", "9" * 30, "8388608t"]


@pytest.mark.parametrize("text", SIZES)
def test_settings_and_spark_options_take_the_same_sizes(text: str) -> None:
    settings = {"member_id": "0", "members": "0=h:1", "directory": "/d", "service": "a:B"}

    assert parse_size_bytes(text) == SIZES[text]
    assert load_node_config(None, settings | {"keep_log_bytes": text}).config.keep_log_bytes == SIZES[text]
    assert parse_options({"path": "a", "splitBytes": text}).split_bytes == SIZES[text]


@pytest.mark.parametrize("text", NO_SIZES)
def test_settings_and_spark_options_refuse_the_same_sizes(text: str) -> None:
    settings = {"member_id": "0", "members": "0=h:1", "directory": "/d", "service": "a:B"}

    with pytest.raises(ValueError, match=r"size: .*bytes"):
        parse_size_bytes(text)
    with pytest.raises(ConfigurationError, match="size"):
        load_node_config(None, settings | {"keep_log_bytes": text})
    with pytest.raises(ConfigurationError, match="option splitBytes: "):
        parse_options({"path": "a", "splitBytes": text})


@given(st.integers(0, (1 << 63) - 1))
def test_a_size_is_read_as_it_was_written(length: int) -> None:
    assert parse_size_bytes(format_size_bytes(length)) == length


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [("500", 500), ("500ms", 500), ("2s", 2_000), ("2 S", 2_000), ("1m", 60_000), ("1h", 3_600_000), (" 7 ", 7)],
)
def test_durations_are_milliseconds_unless_they_say_otherwise(text: str, expected_ms: int) -> None:
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize("text", ["", "s", "soon", "-1", "1.5s", "1_000", "1d", "\u0661s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"bad duration: .* expected milliseconds"):
        parse_duration_ms(text)
