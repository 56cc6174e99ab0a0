"""The recording log, the node state and the mark files, changed and cut: named with the place and the reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.facts import has_facts
from tests.interchange.mutations import Field, Value, mutated, run_all, run_cluster, write_value
from tests.interchange.samples import Ended, link_directory, run, truth_of

DIRECTORY: Final = "single-node/node0"


def change(field: Field, value: Value) -> Callable[[Path], object]:
    return lambda path: write_value(path, field.offset, field.format, value)


def cut(length: int) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(path.read_bytes()[:length])


def recording_log_rows(result: Ended) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(result.stdout)
    return rows


# recording.log


@pytest.mark.parametrize("entry_index", [0, 1, 2])
@pytest.mark.parametrize("type_value", [3, 77, -2, 2**31 - 1, -(2**31) + 3])
def test_an_entry_of_a_type_that_there_is_not(samples: Path, tmp_path: Path, entry_index: int, type_value: int) -> None:
    place = Field(entry_index * 64 + 44, "<i")
    directory = mutated(samples / DIRECTORY, tmp_path / "damaged", "recording.log", change(place, type_value))

    outcome = run_cluster(directory)

    for result in (outcome.recording_log, outcome.recovery_plan):
        assert (result.exit_code, result.stdout) == (10, "")
        assert f"path={directory / 'cluster' / 'recording.log'}: " in result.stderr
        assert f"entry_index={entry_index} position={entry_index * 64} type={type_value & 0x7FFFFFFF}" in (
            result.stderr.replace(f"type={type_value}", f"type={type_value & 0x7FFFFFFF}")
        )


@pytest.mark.parametrize(
    "words",
    [
        ("archive", "import", "DIR", "--to", "TARGET", "--dry-run"),
        ("archive", "grep", "DIR", "--log"),
        ("archive", "tail", "DIR"),
        ("snapshot", "list", "DIR"),
        ("snapshot", "describe", "DIR"),
        ("snapshot", "verify", "DIR"),
    ],
    ids=lambda words: "-".join(words[:2]),
)
def test_every_command_ends_with_10_and_names_a_damaged_recording_log(
    samples: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    directory = mutated(samples / DIRECTORY, tmp_path / "damaged", "recording.log", change(Field(44, "<i"), 77))
    places = {"DIR": directory, "TARGET": tmp_path / "target"}

    result = run(*(places.get(word, word) for word in words))

    assert (result.exit_code, result.stdout) == (10, "")
    path = directory / "cluster" / "recording.log"
    assert has_facts(result.stderr, f"path={path}:", "entry_index=0 position=0 type=77")


@pytest.mark.parametrize("endpoint_length", [-1, 5000, 2**31 - 1])
def test_a_standby_snapshot_whose_endpoint_cannot_be(samples: Path, tmp_path: Path, endpoint_length: int) -> None:
    source = samples / "state-files" / "standby-snapshots"
    standby = next(e for e in truth_of("state-files")["standby-snapshots"]["entries"] if e["type"] == 2)
    place = Field(standby["filePosition"] + 48, "<i")
    directory = mutated(source, tmp_path / "damaged", "recording.log", change(place, endpoint_length))

    result = run("recording-log", directory)

    assert result.exit_code == 10
    assert f"entry_index={standby['entryIndex']} position={standby['filePosition']} endpoint" in result.stderr


def test_two_terms_with_one_id_are_refused(samples: Path, tmp_path: Path) -> None:
    directory = mutated(
        samples / "three-node-failover" / "node0",
        tmp_path / "damaged",
        "recording.log",
        change(Field(64 * 3 + 8, "<q"), 0),
    )
    first = next(e for e in truth_of("three-node-failover-node0")["recording_log"]["entries"] if e["entryIndex"] == 3)

    outcome = run_cluster(directory)

    assert (first["typeName"], outcome.recording_log.exit_code) == ("TERM", 10)
    assert "leadership_term_id=0 entry_index=3 and 0" in outcome.recording_log.stderr


def test_an_empty_slot_in_front_of_an_entry_is_refused(samples: Path, tmp_path: Path) -> None:
    def blank(path: Path) -> None:
        path.write_bytes(bytes(64) + path.read_bytes()[64:])

    directory = mutated(samples / DIRECTORY, tmp_path / "damaged", "recording.log", blank)

    outcome = run_cluster(directory)

    assert outcome.recording_log.exit_code == outcome.recovery_plan.exit_code == 10
    assert "entry_index=0 position=0 is empty" in outcome.recording_log.stderr


@pytest.mark.parametrize("length", [0, 1, 47, 48, 63, 64, 65, 111, 112, 128, 191])
def test_a_recording_log_that_is_cut_ends_with_its_last_whole_entry(samples: Path, tmp_path: Path, length: int) -> None:
    """An entry that a crash cut short was never acknowledged. Its slot is whole when its 48 bytes are."""
    directory = mutated(samples / DIRECTORY, tmp_path / "damaged", "recording.log", cut(length))

    outcome = run_cluster(directory)

    whole = (length + 16) // 64
    entries = truth_of("single-node-node0")["recording_log"]["entries"]
    assert outcome.recording_log.exit_code == 0
    assert recording_log_rows(outcome.recording_log) == [e for e in entries if e["entryIndex"] < whole]
    assert len(json.loads(outcome.recovery_plan.stdout)["snapshots"]) == (2 if whole == 3 else 0)


@pytest.mark.parametrize(
    ("name", "offset", "key"),
    [
        ("recordingId", 0, "recordingId"),
        ("termBaseLogPosition", 16, "termBaseLogPosition"),
        ("logPosition", 24, "logPosition"),
        ("timestamp", 32, "timestamp"),
        ("serviceId", 40, "serviceId"),
    ],
)
def test_what_nothing_protects_in_aerons_file_is_shown_as_it_is(
    samples: Path, tmp_path: Path, name: str, offset: int, key: str
) -> None:
    """Aeron writes no checksum. Ours has one: the state files' tests flip every bit of it."""
    format_ = "<i" if name == "serviceId" else "<q"
    directory = mutated(
        samples / DIRECTORY, tmp_path / "damaged", "recording.log", change(Field(64 + offset, format_), "+3")
    )

    outcome = run_cluster(directory)

    expected = truth_of("single-node-node0")["recording_log"]["entries"]
    shown = {row["entryIndex"]: row for row in recording_log_rows(outcome.recording_log)}
    assert [shown[e["entryIndex"]] for e in expected if e["entryIndex"] != 1] == [
        e for e in expected if e["entryIndex"] != 1
    ]
    assert shown[1] == expected[1] | {key: expected[1][key] + 3}


def test_a_plan_whose_recordings_are_not_there_ends_with_10(samples: Path, tmp_path: Path) -> None:
    directory = mutated(samples / DIRECTORY, tmp_path / "damaged", "recording.log", change(Field(64, "<q"), 99))

    outcome = run_cluster(directory)

    assert outcome.recovery_plan.exit_code == 10
    assert "service_id=0 recording_id=99" in outcome.recovery_plan.stderr


# node-state.dat


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        (Field(0, "<i"), 0x0001_0000, "version=0x00010000 expected=0x00000300"),
        (Field(0, "<i"), 0, "version=0x00000000"),
        (Field(8, "<H"), 9, "block_length=9"),
        (Field(10, "<H"), 302, "template_id=302"),
        (Field(10, "<H"), 999, "template_id=999"),
        (Field(12, "<H"), 111, "schema_id=111"),
        (Field(16, "<i"), 0, "position=8: frame_length=0 expected from 16"),
        (Field(16, "<i"), -8, "position=8: frame_length=-8"),
        (Field(16, "<i"), 2**31 - 1, "position=8: frame_length=2147483647"),
        (Field(16, "<i"), 24, "candidateTerm: length=24"),
        (Field(50, "<H"), 999, "template_id=999"),
        (Field(56, "<i"), 0, "position=48: frame_length=0"),
    ],
)
def test_a_damaged_node_state(samples: Path, tmp_path: Path, field: Field, value: int, reason: str) -> None:
    directory = mutated(samples / DIRECTORY, tmp_path / "damaged", "node-state.dat", change(field, value))

    check_damaged(run_cluster(directory).state, directory, "node-state.dat", reason)


@pytest.mark.parametrize("length", [0, 7, 8, 20, 47, 48, 63])
def test_a_node_state_that_is_cut(samples: Path, tmp_path: Path, length: int) -> None:
    directory = mutated(samples / DIRECTORY, tmp_path / "damaged", "node-state.dat", cut(length))

    check_damaged(run_cluster(directory).state, directory, "node-state.dat", "")


def check_damaged(result: Ended, directory: Path, name: str, reason: str) -> None:
    """One file is named with the reason, the others are shown as ever."""
    assert result.exit_code == 10
    (path,) = directory.rglob(name)
    assert f"damaged file: {path}: " in result.stderr
    rows = {row["file"]: row for row in json.loads(result.stdout)}
    assert reason in rows[name].pop("problem")
    assert [name for name, row in rows.items() if "fields" not in row] == [name]
    assert len(rows) == 4


# mark files


MARK_CASES: Final = [
    (Field(0, "<H"), 20, "block_length=20"),
    (Field(0, "<H"), 60000, "length=60000"),
    (Field(2, "<H"), 201, "template_id=201"),
    (Field(4, "<H"), 111, "schema_id=111"),
    (Field(8 + 128, "<I"), 2**32 - 1, "length=4294967295"),
]


@pytest.mark.parametrize("name", ["cluster-mark.dat", "cluster-mark-service-0.dat", "archive-mark.dat"])
@pytest.mark.parametrize(("field", "value", "reason"), MARK_CASES)
def test_a_damaged_mark_file(samples: Path, tmp_path: Path, name: str, field: Field, value: int, reason: str) -> None:
    directory = mutated(samples / DIRECTORY, tmp_path / "damaged", name, change(field, value))

    check_damaged(run_cluster(directory).state, directory, name, reason)


@pytest.mark.parametrize("name", ["cluster-mark.dat", "archive-mark.dat"])
@pytest.mark.parametrize("length", [0, 7, 8, 100, 136, 200, 8192, 1_056_767])
def test_a_mark_file_that_is_cut(samples: Path, tmp_path: Path, name: str, length: int) -> None:
    directory = mutated(samples / DIRECTORY, tmp_path / "damaged", name, cut(length))

    check_damaged(run_cluster(directory).state, directory, name, "")


def test_the_error_log_in_a_damaged_mark_file_is_refused_in_one_line(samples: Path, tmp_path: Path) -> None:
    directory = mutated(samples / DIRECTORY, tmp_path / "damaged", "cluster-mark.dat", change(Field(2, "<H"), 201))

    result = run("errors", directory)

    assert result.exit_code != 0
    assert len(result.stderr.splitlines()) == 1
    assert f"path={directory / 'cluster' / 'cluster-mark.dat'}: " in result.stderr


def test_a_member_without_its_cluster_directory_has_no_recording_log(samples: Path, tmp_path: Path) -> None:
    directory = link_directory(samples / DIRECTORY / "archive", tmp_path / "damaged" / "archive").parent

    outcome = run_all(directory)

    assert outcome.statuses == (0, 0, 0, 0)
    assert (outcome.cluster.recording_log.exit_code, outcome.recovery_plan.exit_code) == (2, 2)
    assert "no member has" in outcome.cluster.recording_log.stderr
