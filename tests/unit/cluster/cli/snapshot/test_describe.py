"""`trimaran snapshot describe`, held against what a real Aeron says of its own snapshots."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.unit.archive.streams import extract_sample, load_truth
from trimaran.archive.tool.output import EXIT_UNHEALTHY, EXIT_USAGE
from trimaran.cluster.cli.app import build_app

NODES = [("single-node", "node0"), ("checksummed", "node0"), *(("three-node-failover", f"node{i}") for i in range(3))]


def describe(*arguments: object) -> Result:
    app = build_app(["snapshot"])
    runner = CliRunner(env={"COLUMNS": "160"})
    return runner.invoke(app, ["snapshot", "describe", *map(str, arguments)], catch_exceptions=False)


@pytest.mark.parametrize(("name", "node"), NODES)
def test_the_newest_snapshot_of_the_module_is_shown_message_by_message(tmp_path: Path, name: str, node: str) -> None:
    directory = extract_sample(name, tmp_path) / node
    truth = load_truth(f"{name}-{node}")["recordings"]
    newest = [recording for recording in truth if recording["kind"] == "snapshot:consensus-module"][-1]

    result = describe(directory, "-o", "jsonl")

    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert rows == [{"recording_id": newest["recording_id"], **message} for message in newest["messages"]]
    assert result.exit_code == 0


def test_the_table_says_which_snapshot_it_is_and_what_is_in_it(tmp_path: Path) -> None:
    lines = describe(extract_sample("checksummed", tmp_path) / "node0").stdout.splitlines()

    assert lines[0].strip() == "log_position=287008 leadership_term_id=0 recording_id=6"
    assert any("Timer" in line and "correlationId=900004 deadline=1795320112597990202" in line for line in lines)


def test_a_member_without_a_snapshot_has_nothing_to_describe(tmp_path: Path) -> None:
    result = describe(extract_sample("torn", tmp_path) / "node0")

    assert (result.exit_code, result.stdout) == (EXIT_USAGE, "")
    assert "no valid snapshot" in result.stderr


@pytest.mark.parametrize(
    ("offset", "data", "reason"),
    [
        (20, b"\x63", "frame"),  # the stream id of the first frame
        (32 + 2, b"\x09", "unknown message"),  # the template id of the first message
    ],
)
def test_a_damaged_snapshot_is_named_with_the_place(tmp_path: Path, offset: int, data: bytes, reason: str) -> None:
    directory = extract_sample("single-node", tmp_path) / "node0"
    with (directory / "archive" / "2-0.rec").open("r+b") as segment:
        segment.seek(offset)
        segment.write(data)

    result = describe(directory)

    assert (result.exit_code, result.stdout) == (EXIT_UNHEALTHY, "")
    assert len(result.stderr.splitlines()) == 1
    assert "snapshot cannot" in result.stderr
    assert "recording_id=2 position=0" in result.stderr
    assert reason in result.stderr


def test_a_snapshot_that_the_archive_does_not_have_is_damage(tmp_path: Path) -> None:
    directory = extract_sample("single-node", tmp_path) / "node0"
    with (directory / "archive" / "archive.catalog").open("r+b") as catalog:
        catalog.truncate(32)

    result = describe(directory)

    assert result.exit_code == EXIT_UNHEALTHY
    assert "archive does not" in result.stderr
