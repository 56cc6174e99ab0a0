"""`trimaran recording-log` and `recovery-plan`, held against what a real Aeron says of its own files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.unit.archive.streams import extract_sample, load_truth
from trimaran.archive.tool.output import EXIT_UNHEALTHY
from trimaran.cluster.cli.app import build_app

NODES = [("single-node", "node0"), *(("three-node-failover", f"node{i}") for i in range(3))]


def run(name: str, *arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "160"}).invoke(build_app([name]), [name, *arguments], catch_exceptions=False)


@pytest.mark.parametrize(("name", "node"), NODES)
def test_recording_log_gives_what_aeron_reads(tmp_path: Path, name: str, node: str) -> None:
    directory = extract_sample(name, tmp_path) / node
    truth = load_truth(f"{name}-{node}")["recording_log"]["entries"]

    result = run("recording-log", str(directory), "-o", "jsonl")

    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert found == truth
    assert result.exit_code == 0


def test_the_table_has_a_line_for_each_entry(tmp_path: Path) -> None:
    directory = extract_sample("single-node", tmp_path) / "node0"

    lines = run("recording-log", str(directory)).stdout.splitlines()

    unfolded = "".join(line.strip() for line in lines)  # a path longer than the table is folded
    assert unfolded.startswith(str(directory / "cluster" / "recording.log"))
    entry = next(line for line in lines if "TERM" in line)
    assert entry.split()[:8] == ["0", "TERM", "yes", "0", "0", "1193536", "-1", "0"]


def test_a_damaged_recording_log_is_named_with_the_entry(tmp_path: Path) -> None:
    directory = extract_sample("single-node", tmp_path) / "node0"
    path = directory / "cluster" / "recording.log"
    data = bytearray(path.read_bytes())
    data[64 + 44] = 9  # a type that there is not
    path.write_bytes(data)

    for name in ("recording-log", "recovery-plan"):
        result = run(name, str(directory))
        assert result.exit_code == EXIT_UNHEALTHY
        assert f"path={path}" in result.stderr
        assert "entry_index=1 position=64" in result.stderr


@pytest.mark.parametrize(("name", "node"), NODES)
def test_the_plan_is_the_newest_snapshots_and_the_log_behind_them(tmp_path: Path, name: str, node: str) -> None:
    directory = extract_sample(name, tmp_path) / node
    truth = load_truth(f"{name}-{node}")
    log = next(r for r in truth["recordings"] if r["kind"] == "log")
    snapshots = [e for e in truth["recording_log"]["entries"] if e["typeName"] == "SNAPSHOT"]
    position = max(e["logPosition"] for e in snapshots)
    terms = [e for e in truth["recording_log"]["entries"] if e["typeName"] == "TERM"]

    result = run("recovery-plan", str(directory), "-o", "json")

    plan = json.loads(result.stdout)
    assert (result.exit_code, plan["problems"]) == (0, [])
    assert plan["replay_position"] == position
    assert plan["append_position"] == log["scan_ended"]["position"]
    assert plan["replay_length"] == plan["append_position"] - position
    assert plan["last_leadership_term_id"] == terms[-1]["leadershipTermId"]
    newest = {e["serviceId"]: e["recordingId"] for e in snapshots if e["logPosition"] == position}
    assert [(s["service_id"], s["recording_id"]) for s in plan["snapshots"]] == sorted(newest.items())
    assert all(s["length_bytes"] > 0 for s in plan["snapshots"])


def test_more_services_than_have_snapshots_replay_the_whole_log(tmp_path: Path) -> None:
    directory = extract_sample("single-node", tmp_path) / "node0"

    plan = json.loads(run("recovery-plan", str(directory), "--services", "2", "-o", "json").stdout)

    assert (plan["snapshots"], plan["replay_position"], plan["replay_length"]) == ([], 0, 1193536)


def test_a_log_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    """A recording log beside another member's archive."""
    samples = extract_sample("single-node", tmp_path)
    directory = tmp_path / "mixed"
    shutil.copytree(samples / "node0" / "cluster", directory / "cluster")
    shutil.copytree(extract_sample("archive-only", tmp_path) / "node0" / "archive", directory / "archive")

    result = run("recovery-plan", str(directory))

    assert result.exit_code == EXIT_UNHEALTHY
    assert "cannot start" in result.stdout
