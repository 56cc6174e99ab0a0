"""A stream through Spark over the directories of real members: batches, restarts, refusals. Nothing is running."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.sessions import run_to_end
from tests.unit.archive.streams import extract_sample
from trimaran.archive import frames
from trimaran.archive.spark import register

pytestmark = pytest.mark.slow

COMMITTED_POSITION = 436416
"""Where the last term ended when the cluster stopped in order. Source: samples, three-node-failover, recording.log."""

Run = Callable[..., list[list[int]]]


@pytest.fixture
def members(tmp_path: Path) -> list[Path]:
    sample = extract_sample("three-node-failover", tmp_path)
    return [sample / f"node{i}" for i in range(3)]


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Run:
    """Run a query until it has all; gives the positions in each batch that its sink was given, by all runs."""
    register(spark)
    batches: list[list[int]] = []

    def run_query(path: str, **options: Any) -> list[list[int]]:

        def sink(batch: DataFrame, batch_id: int) -> None:
            batches.append([row.position for row in batch.select("position").collect()])
            if len(batches) == options.get("fails_after"):
                raise RuntimeError("the sink is gone")

        reader = spark.readStream.format("aeron_archive").option("columns", "position,timestamp,payload")
        for name, value in options.items():
            if name != "fails_after":
                reader = reader.option(name, value)
        writer = reader.load(path).writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        run_to_end(writer.trigger(availableNow=True).foreachBatch(sink))
        return batches

    return run_query


def positions_in(member: Path, stop: int = COMMITTED_POSITION) -> list[int]:
    table = frames(member, recording_id=0, columns=["position"], bound_position=stop).read_all()
    positions: list[int] = table.column(0).to_pylist()
    return positions


def test_stream_shows_each_committed_frame_in_bounded_batches(run: Run, members: list[Path]) -> None:
    batches = run(",".join(map(str, members)), maxBytesPerTrigger="128k", splitBytes="64k")

    assert len(batches) == 4
    assert [position for batch in batches for position in sorted(batch)] == positions_in(members[0])


def test_batch_whose_sink_failed_is_given_again_alike_from_other_directories(
    run: Run, members: list[Path], tmp_path: Path
) -> None:
    expected = positions_in(members[0])
    with pytest.raises(StreamingQueryException, match="sink"):
        run(",".join(map(str, members)), maxBytesPerTrigger="128k", fails_after=2)
    shutil.rmtree(members[0])

    batches = run(f"{members[2]},{members[0]},{members[1]}", maxBytesPerTrigger="128k")

    assert len(batches) == 5
    assert batches[1] == batches[2]
    assert [position for batch in batches[:1] + batches[2:] for position in batch] == expected


def test_checkpoint_used_with_another_value_of_messages_is_refused_with_both(run: Run, members: list[Path]) -> None:
    """Where it ends inside a message, that message would be lost."""
    with pytest.raises(StreamingQueryException, match="sink"):
        run(str(members[0]), maxBytesPerTrigger="64k", fails_after=2)

    with pytest.raises(StreamingQueryException, match="messages=false expected=true") as caught:
        run(str(members[0]), maxBytesPerTrigger="64k", messages="true")
    assert "Traceback" not in str(caught.value)


def test_where_of_a_stream_leaves_rows_out(run: Run, members: list[Path]) -> None:
    batches = run(str(members[0]), where="template_id = 1 OR position < 1000", columns="position,template_id")

    table = frames(
        members[0], recording_id=0, columns=["position", "template_id"], bound_position=COMMITTED_POSITION
    ).read_all()
    expected = [row["position"] for row in table.to_pylist() if row["template_id"] == 1 or row["position"] < 1000]
    assert [position for batch in batches for position in batch] == expected
    assert 0 < len(expected) < table.num_rows


def test_error_of_a_stream_says_in_one_line_what_is_wrong(run: Run, members: list[Path], tmp_path: Path) -> None:
    """Issue 20, section 7: a mistake is one line, not a traceback of 40 lines."""
    mistakes: list[tuple[Path, dict[str, str], str]] = [
        (members[0], {"startPosition": "0"}, "option='startposition' expected startingPosition"),
        (members[0], {"startingPosition": "x"}, "startingPosition"),
        (members[0], {"maxBytesPerTrigger": "some"}, "maxBytesPerTrigger"),
        (tmp_path, {}, "no archive.catalog in"),
    ]
    for path, options, expected in mistakes:
        with pytest.raises(StreamingQueryException) as caught:
            run(str(path), **options)

        text = str(caught.value)
        assert expected in text
        assert "Traceback" not in text
        assert len([line for line in text.splitlines() if expected in line]) == 1
