"""Filters of `where`, evaluated on columns, as SQL would; and the intervals they leave."""

from __future__ import annotations

import pickle
import random
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from trimaran.archive.spark.source.filters import EVERY_ROW, Condition
from trimaran.archive.spark.source.intervals import ANY_VALUE, Interval, Intervals
from trimaran.archive.spark.source.where import parse_where
from trimaran.service_api.errors import ConfigurationError

VALUES = [None, -5, 0, 1, 2, 7, 40_000]
MOMENT = datetime(2026, 11, 21, 4, 1, 25, 500_000, tzinfo=UTC)
MOMENT_US = 1_795_233_685_500_000


def rows_of(found: Any, column: str, values: list[int | None], arrow_type: Any) -> list[int | None]:
    batch = pa.RecordBatch.from_arrays([pa.array(values, arrow_type)], [column])
    is_found = pickle.loads(pickle.dumps(found)).find_rows(batch)
    return [value for value, is_it in zip(values, is_found.tolist(), strict=True) if is_it]


@pytest.mark.parametrize("arrow_type", [pa.int32(), pa.int64()])
@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("template_id = 1", [1]),
        ("TEMPLATE_ID == 1", [1]),
        ("template_id <=> 1", [1]),
        ("NOT template_id <=> 1", [None, -5, 0, 2, 7, 40_000]),
        ("NOT template_id = 1", [-5, 0, 2, 7, 40_000]),
        ("NOT NOT template_id = 1", [1]),
        ("template_id < 5000000000", [-5, 0, 1, 2, 7, 40_000]),
        ("template_id<>1 and template_id!=2", [-5, 0, 7, 40_000]),
        ("template_id BETWEEN 0 AND 2", [0, 1, 2]),
        ("template_id NOT BETWEEN 0 AND 2", [-5, 7, 40_000]),
        ("NOT template_id BETWEEN 0 AND 2 AND template_id > 0", [7, 40_000]),
        ("template_id in (1,7,5000000000)", [1, 7]),
        ("template_id NOT IN (1,7)", [-5, 0, 2, 40_000]),
        ("template_id IS NULL", [None]),
        ("NOT template_id IS NULL", [-5, 0, 1, 2, 7, 40_000]),
        ("template_id is not null AND template_id >= -5 AND template_id < 1", [-5, 0]),
        ("template_id = 1 OR template_id = 2 AND template_id > 5", [1]),
        ("(template_id = 1 or template_id = 7) and template_id > 5", [7]),
        ("NOT (template_id = 1 OR template_id > 2)", [-5, 0, 2]),
        ("NOT (template_id > 0 AND NOT template_id = 7)", [-5, 0, 7]),
        ("template_id IS NULL OR template_id = 0", [None, 0]),
    ],
)
def test_where_leaves_the_rows_that_sql_would_leave(text: str, values: list[int | None], arrow_type: Any) -> None:
    assert rows_of(parse_where(text), "template_id", VALUES, arrow_type) == values


def draw_filter(draw: random.Random, depth: int) -> str:
    kind = draw.randrange(4) if depth else 3
    if kind == 0:
        return f"NOT ({draw_filter(draw, depth - 1)})"
    if kind < 3:
        word = ("AND", "OR")[kind - 1]
        return f" {word} ".join(f"({draw_filter(draw, depth - 1)})" for _ in range(draw.randrange(2, 4)))
    column, numbers = draw.choice(("position", "template_id")), [draw.randrange(12) for _ in range(3)]
    return draw.choice(
        (
            f"{column} {draw.choice(('=', '<>', '<', '<=', '>', '>=', '<=>'))} {numbers[0]}",
            f"{column} {draw.choice(('', 'NOT '))}IN ({numbers[0]}, {numbers[1]}, {numbers[2]})",
            f"{column} {draw.choice(('', 'NOT '))}BETWEEN {min(numbers)} AND {max(numbers)}",
            f"{column} IS {draw.choice(('', 'NOT '))}NULL",
        )
    )


def test_any_filter_leaves_what_sqlite_leaves_and_intervals_that_hold_it() -> None:
    """SQLite is the judge: of three values, precedence and negation."""
    import sqlite3

    draw = random.Random(20)
    rows = [(p, t) for p in (*range(12),) for t in (None, *range(12))]
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE log (position INTEGER, template_id INTEGER)")
    connection.executemany("INSERT INTO log VALUES (?, ?)", rows)
    batch = pa.RecordBatch.from_arrays(
        [pa.array([p for p, _ in rows], pa.int64()), pa.array([t for _, t in rows], pa.int32())],
        ["position", "template_id"],
    )
    for _ in range(500):
        text = draw_filter(draw, draw.randrange(4))
        found = parse_where(text)

        wanted = connection.execute(
            f"SELECT position, template_id FROM log WHERE {text.replace('<=>', 'IS')}"
        ).fetchall()

        left = [row for row, is_it in zip(rows, found.find_rows(batch).tolist(), strict=True) if is_it]
        assert left == sorted(wanted, key=rows.index), text
        again = connection.execute(f"SELECT count(*) FROM log WHERE {found.sql.replace('<=>', 'IS')}").fetchone()
        assert again == (len(wanted),), found.sql
        assert all(found.values_of("position").meets(p, p) for p, _ in wanted), text
        assert all(t is None or found.values_of("template_id").meets(t, t) for _, t in wanted), text


def test_timestamps_are_compared_in_microseconds() -> None:
    found = parse_where("timestamp >= '2026-11-21 04:01:25.5'")

    values: list[int | None] = [None, MOMENT_US - 1, MOMENT_US]
    assert rows_of(found, "timestamp", values, pa.timestamp("us", tz="UTC")) == [MOMENT_US]
    assert found.values_of("timestamp") == Intervals.of(Interval(low=MOMENT_US))


def test_intervals_are_what_the_filter_leaves() -> None:
    both = parse_where("position > 5 AND position <= 90 AND position IN (3, 7, 80) AND type = 1")

    assert both.values_of("position") == Intervals.of(Interval(7, 7), Interval(80, 80))
    assert both.values_of("type") == Intervals.of(Interval(1, 1))
    assert both.values_of("timestamp") == ANY_VALUE
    assert EVERY_ROW.values_of("position") == ANY_VALUE
    outside = parse_where("position <> 5 AND NOT position BETWEEN 1 AND 9").values_of("position")
    assert outside == Intervals.of(Interval(high=0), Interval(low=10))
    assert not parse_where("position < 5 AND position > 9").values_of("position")
    either = parse_where("position < 5 AND timestamp > '2026-11-21' OR position BETWEEN 20 AND 30")
    assert either.values_of("position") == Intervals.of(Interval(high=4), Interval(20, 30))
    assert either.values_of("timestamp") == ANY_VALUE


def test_a_missing_value_that_is_wanted_rules_nothing_out() -> None:
    """Of a message without a timestamp no place is known."""
    for text in ("timestamp IS NULL OR timestamp > '2026-11-21'", "NOT timestamp <=> '2026-11-21'"):
        assert parse_where(text).values_of("timestamp") == ANY_VALUE


def test_a_time_in_where_is_utc_unless_it_says_otherwise() -> None:
    times = []
    for text in ("'2026-11-21 04:01:25.5'", "timestamp '2026-11-21T06:01:25.5+02:00'"):
        found = parse_where(f"timestamp = {text}")
        assert isinstance(found, Condition)
        times.append(found.values[0])

    assert times == [MOMENT_US, MOMENT_US]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'the end' in '' expected"),
        ("position", "'the end' in 'position' expected"),
        ("position NOT = 3", "'=' in 'position NOT = 3'"),
        ("position IN (3", "'the end' in 'position IN (3'"),
        ("position = 5 type = 1", "'type' in 'position = 5 type = 1'"),
        ("(position = 5 OR type = 1", "'the end' in '(position = 5 OR type = 1'"),
        ("position = 5) OR type = 1", "')' in 'position = 5) OR type = 1'"),
        ("NOT", "'the end' in 'NOT'"),
        ("NOT " * 70 + "type = 1", "at most 64"),
        ("payload IS NULL", "'payload' in 'payload IS NULL'"),
        ("position = '5'", "'5' in \"position = '5'\""),
        ("timestamp > 5", "'5' in 'timestamp > 5'"),
        ("timestamp > 'noon'", "a timestamp"),
        ("position = 9223372036854775808", "an integer"),
        ("position = 5.5", "'.' in 'position = 5.5'"),
    ],
)
def test_where_says_at_which_word_it_is_not_understood(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_where(text)

    assert said in str(caught.value)
