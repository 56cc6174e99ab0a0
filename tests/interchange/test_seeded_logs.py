"""A log that `ClusterTool seed-recording-log-from-snapshot` has begun again: it begins with the state of a snapshot.

The tool keeps one set of snapshots and writes position 0 into its entries; their markers name the place in the log
before. A real member loads that state and records a new log, from 0 on. The log alone gives another state, so that set
is never left out silently.
Source: Aeron `ClusterToolOperator.seedRecordingLogFromSnapshot`, `ConsensusModuleAgent.loadSnapshot`.
"""

from __future__ import annotations

import json
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.interchange.samples import SEEDED_NODES, run, sample_of, truth_of
from tests.interchange.test_real_tools import elements, facts_of
from trimaran.cluster.directories.source import read_source
from trimaran.cluster.directories.survey import survey_source
from trimaran.cluster.runtime.files.recording_log_file import read_recording_log
from trimaran.cluster.time_travel.determinism import find_stretches
from trimaran.cluster.time_travel.member_log import MemberLog
from trimaran.cluster.time_travel.replay import SnapshotChoice, choose_snapshot
from trimaran.service_api import ConfigurationError

MARKER_POSITION = 61568
"""Where the snapshot was taken, in the log before."""
SEEDS = [("seeded-node0", 0), ("seeded-node1", 4544)]
"""Each directory with the end of its log: the second one a real member has gone on with."""


@pytest.fixture(params=SEEDED_NODES)
def copy(samples: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A directory that may be changed."""
    target = tmp_path / str(request.param)
    shutil.copytree(sample_of(samples, request.param).directory, target)
    return target


def change_entries(directory: Path, offset: int, layout: str, value: int) -> None:
    """Write a field of both entries of the seed, which are the first two; their slots end with no checksum."""
    with (directory / "cluster" / "recording.log").open("r+b") as file:
        for slot in (0, 64):
            file.seek(slot + offset)
            file.write(struct.pack("<" + layout, value))


def import_directory(directory: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    result = run("archive", "import", directory, "--to", directory.parent / "imported", "-o", "json", *options)
    return result.exit_code, json.loads(result.stdout)[0] if result.stdout else {}, result.stderr


@pytest.mark.parametrize("name", SEEDED_NODES)
def test_the_recording_log_of_a_seeded_log_is_as_in_the_truth(samples: Path, name: str) -> None:
    result = run("recording-log", sample_of(samples, name).directory, "-o", "json")

    assert json.loads(result.stdout) == truth_of(name)["recording_log"]["entries"]


@pytest.mark.parametrize("name", SEEDED_NODES)
def test_the_recovery_plan_of_a_seeded_log_is_that_of_cluster_tool(samples: Path, name: str) -> None:
    sample = sample_of(samples, name)
    said = sample.said("cluster-recovery-plan")
    whole, snapshots = facts_of(said), elements(said, "Snapshot")

    result = run("recovery-plan", sample.directory, "-o", "json")

    plan = json.loads(result.stdout)
    assert (result.exit_code, plan["problems"]) == (0, [])
    assert plan["last_leadership_term_id"] == whole["lastLeadershipTermId"]
    assert [(s["recording_id"], s["log_position"], s["service_id"]) for s in plan["snapshots"]] == [
        (s["recordingId"], s["logPosition"], s["serviceId"]) for s in snapshots
    ]
    assert plan["replay_position"] == 0
    assert (plan["append_position"] or 0) == whole["appendedLogPosition"]


@pytest.mark.parametrize(("name", "stop_position"), SEEDS)
def test_import_takes_the_state_that_a_log_was_seeded_with(
    samples: Path, tmp_path: Path, name: str, stop_position: int
) -> None:
    """Issue 21: it was left out, with exit status 0, and the services began with nothing."""
    source = sample_of(samples, name).directory

    result = run("archive", "import", source, "--to", tmp_path / "node", "-o", "json")

    (document,) = json.loads(result.stdout)
    assert (result.exit_code, document["problems"]) == (0, [])
    assert (document["snapshot_positions"], document["replay_position"]) == ([0], 0)
    assert document["stop_position"] == stop_position
    entries = read_recording_log(tmp_path / "node" / "cluster" / "recording.log").entries
    assert [entry.service_id for entry in entries if entry.is_seed] == [0, -1]
    assert run("archive", "verify", tmp_path / "node").exit_code == 0
    assert run("recovery-plan", tmp_path / "node").exit_code == 0


@pytest.mark.parametrize("name", SEEDED_NODES)
def test_the_state_counts_at_the_begin_of_the_log(samples: Path, name: str) -> None:
    """As in Aeron, the entry says where: sessions that it holds were opened before the log."""
    survey = survey_source(read_source(str(sample_of(samples, name).directory), now_ms=None))

    (seed,) = survey.snapshots
    assert seed.state.module.marker.log_position == MARKER_POSITION
    assert (seed.state.log_position, seed.state.module.log_position) == (0, 0)
    assert {session.opened_log_position for session in seed.state.module.sessions} == {0}
    assert survey.facts.open_sessions


def test_without_snapshots_the_one_that_the_log_begins_with_is_kept(copy: Path) -> None:
    status, document, _ = import_directory(copy, "--no-snapshots")

    assert (status, document["snapshot_positions"]) == (0, [0])


def test_a_seed_that_cannot_be_read_is_refused_and_the_option_named(copy: Path) -> None:
    _flip_byte(copy / "archive" / "8-0.rec", 40)

    status, document, said = import_directory(copy)

    assert (status, document["is_written"]) == (10, False)
    assert "seeded" in said
    assert "cannot be used" in said
    assert "--without-seed" in said
    assert not (copy.parent / "imported").exists()


def test_a_seed_that_is_not_whole_is_refused(copy: Path) -> None:
    """One entry of the set says another term."""
    with (copy / "cluster" / "recording.log").open("r+b") as file:
        file.seek(8)
        file.write(struct.pack("<q", 0))

    status, _, said = import_directory(copy)

    assert status == 10
    assert "--without-seed" in said


def test_a_seed_that_was_marked_invalid_is_not_left_out_silently(samples: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(sample_of(samples, "seeded-node1").directory, tmp_path / "source")
    change_entries(copy, 44, "I", 1 << 31 | 1)

    status, _, said = import_directory(copy)

    assert status == 10
    assert "marked invalid" in said


def test_a_seed_is_left_out_where_that_is_asked_for(samples: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(sample_of(samples, "seeded-node1").directory, tmp_path / "source")
    _flip_byte(copy / "archive" / "8-0.rec", 40)

    status, document, _ = import_directory(copy, "--without-seed")

    assert (status, document["snapshot_positions"]) == (0, [])
    assert any("left out" in note for note in document["notes"])


def test_markers_of_one_seed_name_one_place(copy: Path) -> None:
    """The entry does not say where the set was taken: so nothing else tells that a part of it is of another set."""
    path = copy / "archive" / "7-0.rec"
    data = bytearray(path.read_bytes())
    (length,) = struct.unpack_from("<i", data)
    struct.pack_into("<q", data, 32 + 8 + 8, MARKER_POSITION + 32)
    struct.pack_into("<I", data, 12, zlib.crc32(data[32 : -(-length // 32) * 32]))
    path.write_bytes(data)

    status, document, said = import_directory(copy)

    assert status == 10
    assert any(f"({MARKER_POSITION + 32}, 1) expected=({MARKER_POSITION}, 1)" in note for note in document["notes"])
    assert "--without-seed" in said


@pytest.mark.parametrize("choice", ["newest", "oldest", "none"])
def test_a_replay_of_a_seeded_log_always_begins_with_its_state(samples: Path, choice: SnapshotChoice) -> None:
    log = MemberLog.open(sample_of(samples, "seeded-node1").directory)

    chosen = choose_snapshot(log, choice, service_count=1, target=4544)

    assert chosen is not None
    assert chosen.log_position == 0
    assert find_stretches(log, 1) == []


def test_no_replay_begins_without_the_state_that_a_log_was_seeded_with(samples: Path, tmp_path: Path) -> None:
    copy = tmp_path / "source"
    shutil.copytree(sample_of(samples, "seeded-node1").directory, copy)
    change_entries(copy, 44, "I", 1 << 31 | 1)

    with pytest.raises(ConfigurationError, match=r"begins.*snapshot"):
        choose_snapshot(MemberLog.open(copy), "none", service_count=1, target=4544)


def _flip_byte(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        (value,) = file.read(1)
        file.seek(offset)
        file.write(bytes([value ^ 0xFF]))
