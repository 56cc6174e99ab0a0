"""Numbers as people read them."""

from __future__ import annotations

import pytest

from trimaran.archive.report import words


@pytest.mark.parametrize(
    ("value_us", "expected"),
    [
        (0, "0 s"),
        (85, "85 µs"),
        (999, "999 µs"),
        (1_000, "1 ms"),
        (4_230, "4.23 ms"),
        (99_900, "99.9 ms"),
        (310_000, "0.31 s"),
        (13_400_000, "13.4 s"),
        (119_000_000, "119 s"),
        (200_000_000, "3 min 20 s"),
        (7_500_000_000, "2 h 5 min"),
        (3 * 86_400_000_000, "3 d 0 h"),
        (-2_000_000, "-2 s"),
    ],
)
def test_a_length_of_time_has_three_digits_and_its_unit(value_us: float, expected: str) -> None:
    assert words.duration(value_us) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (1_024, "1 KiB"), (436_416, "426 KiB"), (1 << 40, "1 TiB")],
)
def test_a_number_of_bytes_has_three_digits_and_its_unit(value: int, expected: str) -> None:
    assert words.length(value) == expected


def test_one_thing_is_not_many() -> None:
    assert words.count(1, "message") == "1 message"
    assert words.count(1_018, "change of leader") == "1,018 changes of leader"
    assert words.count(0, "directory") == "0 directories"
    assert words.rate(12.5, "message") == "12.5 messages/s"
    assert words.rate(1_204.4, "message") == "1,204 messages/s"
    assert [words.share(part) for part in (0, 0.004, 0.123, 1)] == ["0 %", "0.4 %", "12 %", "100 %"]


def test_only_the_whole_is_100_percent_and_only_nothing_is_0() -> None:
    parts = (0.975, 0.994, 0.9951, 0.99999, 0.0004)

    assert [words.share(part) for part in parts] == ["98 %", "99 %", "99.5 %", "99.9 %", "under 0.1 %"]
    assert words.listing(["a"]) == "a"
    assert words.listing(["a", "b", "c"]) == "a, b and c"
