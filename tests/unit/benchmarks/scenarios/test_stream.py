"""The figures of the benchmark `stream`: which messages count, and from when to when."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from trimaran.benchmarks.scenarios.stream import StreamParameters, summarize
from trimaran.benchmarks.scenarios.stream_query import StreamQueryParameters, write_batch
from trimaran.service_api.errors import ConfigurationError

TIMESTAMP = pa.timestamp("us", tz="UTC")


def batch_table(rows: list[tuple[int, int, int | None]]) -> pa.Table:
    positions, lengths, times = zip(*rows, strict=True)
    return pa.table(
        {"position": positions, "frame_length": lengths, "timestamp": pa.array(times, pa.int64()).cast(TIMESTAMP)}
    )


def test_a_batch_becomes_a_file_named_by_its_positions_whoever_writes_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = batch_table([(64, 33, 1), (128, 32, 2), (160, 100, None)])

    write_batch(table, 4, tmp_path)
    write_batch(table, 4, tmp_path)
    write_batch(table.slice(3), 5, tmp_path)

    name = f"{64:019d}-{160:019d}.parquet"
    assert [path.name for path in tmp_path.iterdir()] == [name]
    first, second = capsys.readouterr().out.splitlines()
    assert '"batch_id": 4, "rows": 3, "end_position": 288, "sunk_ns": ' in first
    assert f'"file": "{name}"' in second


def test_messages_count_that_the_leader_took_while_it_was_measured(tmp_path: Path) -> None:
    names = []
    for first, times in ((0, [1_000, 2_000]), (64, [3_000, 5_000]), (128, [6_000, None])):
        write_batch(batch_table([(first, 32, times[0]), (first + 32, 32, times[1])]), 0, tmp_path)
        names.append(f"{first:019d}-{first + 32:019d}.parquet")
    batches = [{"file": name, "sunk_ns": (i + 1) * 10_000_000} for i, name in enumerate(names)]

    report = summarize(batches, tmp_path, started_ns=2_000_000, ended_ns=6_000_000)

    assert (report["messages"], report["batches"]) == (3, 2)
    assert report["sink_max_us"] == pytest.approx(17_000, rel=0.02)
    assert report["batch_messages_median"] == 1.5
    assert report["batch_interval_median_us"] == 10_000


def test_parameters_of_a_query_survive_the_command_line() -> None:
    parameters = StreamQueryParameters(
        path="a,b", sink="s", checkpoint="c", columns=["position"], options={"messages": "true"}, is_drain=True
    )

    assert StreamQueryParameters.from_json(parameters.to_json()) == parameters


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"rates": ()}, "rates="),
        ({"rates": (0,)}, "rates="),
        ({"seconds": 0}, "seconds=0"),
        ({"payload": 4}, "payload=4"),
    ],
)
def test_values_that_make_no_run_are_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        StreamParameters(**fields)  # type: ignore[arg-type]
