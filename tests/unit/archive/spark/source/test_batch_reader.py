"""What a worker of Spark does around the reading of a partition."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from tests.unit.archive.spark.written_logs import Entry, write_log
from trimaran.archive.reading.frame_batches import ReadProblem
from trimaran.archive.spark.source import batch_reader
from trimaran.archive.spark.source.columns import frame_struct
from trimaran.archive.spark.source.options import parse_options
from trimaran.archive.spark.source.partitions import plan_read


class _Worker:
    @staticmethod
    def get() -> object:
        return object()


@pytest.fixture(autouse=True)
def collected_again() -> Iterator[None]:
    """Let collections look at everything again after a test."""
    batch_reader._spare_modules.cache_clear()
    yield
    gc.unfreeze()
    batch_reader._spare_modules.cache_clear()


def read_all(directory: Path) -> int:
    schema = to_arrow_schema(frame_struct(), timezone="UTC")
    plan = plan_read(parse_options({"path": str(directory)}), tuple(schema.names))
    problems: list[ReadProblem] = []
    count: int = sum(
        batch.num_rows
        for partition in plan.partitions
        for batch in batch_reader.read_partition(partition, schema, problems.append)
    )
    assert problems == []
    return count


def test_a_worker_leaves_its_modules_out_of_the_collections_after_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(tmp_path, [Entry(b"x")] * 10)
    monkeypatch.setattr("pyspark.TaskContext", _Worker)

    assert read_all(tmp_path) == 10
    frozen = gc.get_freeze_count()
    assert frozen > 10_000
    assert read_all(tmp_path) == 10
    assert gc.get_freeze_count() <= frozen


def test_another_process_is_left_as_it_is(tmp_path: Path) -> None:
    write_log(tmp_path, [Entry(b"x")] * 10)
    before = gc.get_freeze_count()

    assert read_all(tmp_path) == 10

    assert gc.get_freeze_count() == before
