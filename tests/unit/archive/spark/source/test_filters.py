"""Filters: Spark's and those of `where`, evaluated on columns, as SQL would; and the intervals they leave."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource as sources

from trimaran.archive.spark.source.filters import ANY_VALUE, Condition, Interval, push_down
from trimaran.archive.spark.where import parse_where
from trimaran.service_api.errors import ConfigurationError

VALUES = [None, -5, 0, 1, 2, 7, 40_000]
MOMENT = datetime(2026, 11, 21, 4, 1, 25, 500_000, tzinfo=UTC)
MOMENT_US = 1_795_233_685_500_000
COLUMN = ("template_id",)

PUSHED: list[tuple[sources.Filter, Callable[[int | None], bool]]] = [
    (sources.EqualTo(COLUMN, 1), lambda v: v == 1),
    (sources.EqualNullSafe(COLUMN, 1), lambda v: v == 1),
    (sources.GreaterThan(COLUMN, 1), lambda v: v is not None and v > 1),
    (sources.GreaterThanOrEqual(COLUMN, 1), lambda v: v is not None and v >= 1),
    (sources.LessThan(COLUMN, 1), lambda v: v is not None and v < 1),
    (sources.LessThanOrEqual(COLUMN, 1), lambda v: v is not None and v <= 1),
    (sources.In(COLUMN, (1, 7, 5_000_000_000)), lambda v: v in (1, 7)),
    (sources.LessThan(COLUMN, 5_000_000_000), lambda v: v is not None),
    (sources.IsNull(COLUMN), lambda v: v is None),
    (sources.IsNotNull(COLUMN), lambda v: v is not None),
    (sources.Not(sources.EqualTo(COLUMN, 1)), lambda v: v is not None and v != 1),
    (sources.Not(sources.EqualNullSafe(COLUMN, 1)), lambda v: v != 1),
    (sources.Not(sources.In(COLUMN, (1, 7))), lambda v: v is not None and v not in (1, 7)),
    (sources.Not(sources.IsNull(COLUMN)), lambda v: v is not None),
    (sources.Not(sources.LessThan(COLUMN, 1)), lambda v: v is not None and v >= 1),
]


def rows_of(conditions: Any, column: str, values: list[int | None], arrow_type: Any) -> list[int | None]:
    batch = pa.RecordBatch.from_arrays([pa.array(values, arrow_type)], [column])
    found = pickle.loads(pickle.dumps(conditions)).find_rows(batch)
    return [value for value, is_found in zip(values, found.tolist(), strict=True) if is_found]


@pytest.mark.parametrize("arrow_type", [pa.int32(), pa.int64()])
@pytest.mark.parametrize(("pushed", "is_wanted"), PUSHED, ids=[str(pushed) for pushed, _ in PUSHED])
def test_a_filter_leaves_the_rows_that_sql_would_leave(
    pushed: sources.Filter, is_wanted: Callable[[int | None], bool], arrow_type: Any
) -> None:
    conditions, left = push_down([pushed])

    assert left == []
    assert conditions.columns == ("template_id",)
    assert rows_of(conditions, "template_id", VALUES, arrow_type) == [v for v in VALUES if is_wanted(v)]


@pytest.mark.parametrize(
    "pushed",
    [
        sources.EqualTo(("payload",), b"x"),
        sources.IsNotNull(("payload",)),
        sources.EqualTo(("payload", "price"), 1),
        sources.EqualTo(("amount",), 1),
        sources.EqualTo(COLUMN, None),
        sources.EqualTo(COLUMN, 1.5),
        sources.EqualTo(COLUMN, True),
        sources.In(COLUMN, (1, None)),
        sources.In(COLUMN, ()),
        sources.StringStartsWith(COLUMN, "1"),
        sources.EqualTo(("timestamp",), 5),
        sources.EqualTo(("timestamp",), datetime(2026, 11, 21)),  # what has no time zone is meant
    ],
    ids=str,
)
def test_what_cannot_be_handled_is_left_to_spark_by_reference(pushed: sources.Filter) -> None:
    handled = sources.EqualTo(COLUMN, 1)

    conditions, left = push_down([pushed, handled])

    assert len(left) == 1
    assert left[0] is pushed
    assert conditions.conditions == (Condition("template_id", "equal", (1,)),)


def test_timestamps_are_compared_in_microseconds() -> None:
    conditions, left = push_down([sources.GreaterThanOrEqual(("timestamp",), MOMENT)])

    values: list[int | None] = [None, MOMENT_US - 1, MOMENT_US]
    assert left == []
    assert rows_of(conditions, "timestamp", values, pa.timestamp("us", tz="UTC")) == [MOMENT_US]
    assert conditions.interval("timestamp") == Interval(low=MOMENT_US)


def test_intervals_are_what_all_conditions_leave() -> None:
    conditions = parse_where("position > 5 AND position <= 90 AND position IN (3, 7, 80) AND type = 1")

    assert conditions.interval("position") == Interval(6, 80)
    assert conditions.interval("type") == Interval(1, 1)
    assert conditions.interval("timestamp") == ANY_VALUE
    assert parse_where("position <> 5 AND position NOT BETWEEN 1 AND 9").interval("position") == ANY_VALUE
    assert not parse_where("position < 5 AND position > 9").interval("position").meets(0, 100)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("template_id = 1", [1]),
        ("TEMPLATE_ID == 1", [1]),
        ("template_id<>1 and template_id!=2", [-5, 0, 7, 40_000]),
        ("template_id BETWEEN 0 AND 2", [0, 1, 2]),
        ("template_id NOT BETWEEN 0 AND 2", [-5, 7, 40_000]),
        ("template_id in (1,7)", [1, 7]),
        ("template_id NOT IN (1,7)", [-5, 0, 2, 40_000]),
        ("template_id IS NULL", [None]),
        ("template_id is not null AND template_id >= -5 AND template_id < 1", [-5, 0]),
    ],
)
def test_where_is_a_conjunction_in_the_words_of_sql(text: str, values: list[int | None]) -> None:
    assert rows_of(parse_where(text), "template_id", VALUES, pa.int32()) == values


def test_a_time_in_where_is_utc_unless_it_says_otherwise() -> None:
    times = [
        parse_where(f"timestamp = {text}").conditions[0].values[0]
        for text in ("'2026-11-21 04:01:25.5'", "timestamp '2026-11-21T06:01:25.5+02:00'")
    ]

    assert times == [MOMENT_US, MOMENT_US]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'the end' in '' expected a column out of recording_id"),
        ("position", "'the end' in 'position' expected a comparison, IN, BETWEEN or IS"),
        ("position NOT = 3", "'=' in 'position NOT = 3' expected IN or BETWEEN"),
        ("position IN (3", "'the end' in 'position IN (3' expected )"),
        ("position = 5 type = 1", "'type' in 'position = 5 type = 1' expected AND"),
        ("payload IS NULL", "'payload' in 'payload IS NULL' expected a column out of"),
        ("position = '5'", "'5' in \"position = '5'\" expected an integer"),
        ("timestamp > 5", "'5' in 'timestamp > 5' expected a timestamp such as '2026-11-21 04:01:25'"),
        ("timestamp > 'noon'", "expected a timestamp such as"),
        ("position = 9223372036854775808", "expected an integer"),
        ("position = 5.5", "'.' in 'position = 5.5' expected AND"),
    ],
)
def test_where_says_at_which_word_it_is_not_understood(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_where(text)

    assert said in str(caught.value)
