"""Requests, exported and gone on with by a real Aeron 1.52.2, and taken back: what the rig recorded on 2026-11-24.

Of each cluster, of one service and of two, there is the directory that our member left when it was killed, with
requests before and after its snapshot, and replies kept in it; the directory with which a real member went on after the
export; and the states that the Java service said it had.
"""

from __future__ import annotations

import json
import struct
from dataclasses import astuple
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from tests.interchange.samples import run
from tests.system.aeron_sample import AeronSampleService
from tests.unit.archive.streams import extract_sample
from trimaran.archive.files.reader import MessageReader
from trimaran.archive.log.log_file import LogFile
from trimaran.archive.log.member_directory import MemberDirectory
from trimaran.archive.reading.difference import find_mismatch
from trimaran.cluster.time_travel import replay_service

SERVICES = {
    "one": "tests.system.aeron_sample:AeronSampleService",
    "two": "tests.system.aeron_sample:FirstOfTwo,tests.system.aeron_sample:SecondOfTwo",
}


class Cluster(NamedTuple):
    """One of the two."""

    name: str
    directory: Path

    @property
    def truth(self) -> Any:  # Any: JSON
        return json.loads((self.directory.parent / "truth.json").read_bytes())[self.name]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extract_sample("back-to-aeron", tmp_path_factory.mktemp("back"))


@pytest.fixture(params=SERVICES)
def cluster(recorded: Path, request: pytest.FixtureRequest) -> Cluster:
    return Cluster(request.param, recorded / request.param)


@pytest.fixture
def exported(cluster: Cluster, tmp_path: Path) -> Path:
    result = run("archive", "export-aeron", cluster.directory / "ours", tmp_path / "exported", "-o", "json")
    assert result.exit_code == 0, result.output
    (document,) = json.loads(result.stdout)
    assert (document["requests_as_messages"], document["requests_omitted"]) == (24, 0)
    return tmp_path / "exported"


def log_of(directory: Path) -> LogFile:
    return LogFile.find(MemberDirectory.find(directory))


def states(cluster: Cluster, directory: Path, *, snapshot: Any = "newest") -> list[tuple[int, ...]]:
    """Replay a log to the Python services; gives the numbers that the Java service has, too, but for the last."""
    replayed = replay_service(
        directory, SERVICES[cluster.name], snapshot=snapshot, bound="recorded", shared_timer_ids=True
    )
    return [astuple(cast(AeronSampleService, service).counts) for service in replayed.services]


def java_states(cluster: Cluster, when: str) -> list[tuple[int, ...]]:
    """Give what the Java services said, without the hash at the end."""
    return [tuple(numbers[:-1]) for _, numbers in sorted(cluster.truth[when].items())]


def test_our_snapshots_hold_what_a_real_member_loaded(cluster: Cluster) -> None:
    """Schema 111 throughout, and before the application's own bytes what Aeron has or passes over, kept replies too."""
    member = MemberDirectory.find(cluster.directory / "ours")
    snapshots = [each for each in member.read_catalog().readable if each.stream_id == 106]
    heads = []
    for descriptor in snapshots:
        for message in MessageReader(LogFile(member.archive, descriptor).reader()):
            heads.append(struct.unpack_from("<xxHH", message.payload))
            if heads[-1] == (100, 111) and heads.count((100, 111)) % 2 == 0:
                break

    assert len(snapshots) == len(SERVICES[cluster.name].split(","))
    assert set(heads) == {(100, 111), (102, 111), (8110, 111), (8111, 111)}


def test_recovery_plan_tells_what_aeron_would_misread_from_what_it_went_on_with(cluster: Cluster) -> None:
    found = {}
    for name in ("ours", "continued"):
        result = run("recovery-plan", cluster.directory / name, "-o", "json")
        assert result.exit_code == 0, result.output
        found[name] = json.loads(result.stdout)["aeron_obstacle"]

    assert "`trimaran archive export-aeron`" in found["ours"]
    assert found["continued"] is None


def test_the_export_has_the_bytes_that_the_real_member_went_on_with(cluster: Cluster, exported: Path) -> None:
    """Up to the end of the export, the log of the real member is the exported one."""
    mine, theirs = log_of(exported), log_of(cluster.directory / "continued")
    end = mine.descriptor.stop_position
    assert end is not None

    mismatch = find_mismatch(mine, theirs, 0, end, ignores_session_ids=False)

    assert mismatch is None
    assert theirs.find_reach() > end


@pytest.mark.parametrize("snapshot", ["newest", "none"])
def test_ours_the_export_and_java_have_one_state(cluster: Cluster, exported: Path, snapshot: str) -> None:
    expected = java_states(cluster, "recovered")

    ours = states(cluster, cluster.directory / "ours", snapshot=snapshot)
    theirs = states(cluster, exported, snapshot=snapshot)

    assert ours == theirs
    # Neither the sessions that Java closed meanwhile nor offers count: this port's service offers at other timers.
    assert [_comparable(state) for state in ours] == [_comparable(state) for state in expected]


def test_what_aeron_wrote_since_comes_back(cluster: Cluster, tmp_path: Path) -> None:
    result = run("archive", "import", cluster.directory / "continued", "--to", tmp_path / "back", "-o", "json")

    assert result.exit_code == 0, result.output
    assert run("archive", "verify", tmp_path / "back").exit_code == 0
    for snapshot in ("newest", "none"):
        found = states(cluster, tmp_path / "back", snapshot=snapshot)
        assert [_comparable(state) for state in found] == [
            _comparable(state) for state in java_states(cluster, "ended")
        ]


def _comparable(state: tuple[int, ...]) -> tuple[int, ...]:
    messages, length, timers, _, _, _, service_messages = state
    return messages, length, timers, service_messages
