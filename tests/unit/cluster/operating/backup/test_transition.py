"""`trimaran standby transition`: what a new cluster gets of a standby, also of one that follows a standby."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.facts import has_facts
from tests.unit.cluster.testing.simulation.small_cluster import small_cluster
from tests.unit.cluster.testing.simulation.test_snapshots import Keeper
from trimaran.cluster.cli.app import build_app
from trimaran.cluster.core.vocabulary.member_change import MemberChangeKind
from trimaran.cluster.runtime.files.mark_file import MARK_FILE_NAME, ClusterMarkFile
from trimaran.cluster.testing.simulation.cluster import DIRECTORY, Member
from trimaran.cluster.time_travel import replay_service
from trimaran.service_api.types import MemberId

FIRST, SECOND = MemberId(3), MemberId(4)
NEW_MEMBERS = "0=127.0.0.1:9000,1=127.0.0.1:9010,2=127.0.0.1:9020"


def transition(source: Path, *options: str) -> tuple[int, dict[str, Any], str]:  # Any: JSON
    """Run the command; gives exit status, document and error."""
    arguments = ["standby", "transition", str(source), *options, "-o", "json"]
    result = CliRunner().invoke(build_app(arguments), arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return 2, {}, str(result.exception)
    return result.exit_code, json.loads(result.stdout), result.stderr


def write_to(member: Member, target: Path) -> Path:
    """Copy what is durable on a member's disk to a real one."""
    disk = member.machine.disk
    for name in ("archive", "cluster"):
        (target / name).mkdir(parents=True)
        for file in disk.list_directory(DIRECTORY / name):
            (target / name / file).write_bytes(disk.durable_read(DIRECTORY / name / file, 1 << 30, 0))
    ClusterMarkFile.open(target / "cluster", member_id=member.member_id, now_ms=1).close()
    return target


def state_of(directory: Path | str) -> bytes:
    """The state of the service that a directory's log leads to."""
    service = replay_service(directory, Keeper, bound="recorded").service
    assert isinstance(service, Keeper)
    return service.state_hash()


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is left of a cluster of three, of a standby and of a standby that follows it: 40 messages."""
    place = tmp_path_factory.mktemp("left")
    with small_cluster(make_service=Keeper) as small:
        small.start()
        small.send(20)
        small.add_member(FIRST, MemberChangeKind.ADD_STANDBY)
        small.add_member(SECOND, MemberChangeKind.ADD_STANDBY, log_source=str(FIRST))
        small.send(20)
        for member_id in small.cluster.members:
            small.cluster.kill(member_id)
        for member_id in (MemberId(0), FIRST, SECOND):
            write_to(small.member(member_id), place / f"node-{member_id}")
    return place


@pytest.mark.parametrize("member_id", [FIRST, SECOND])
def test_a_new_cluster_goes_on_with_all_that_the_standby_holds(left: Path, tmp_path: Path, member_id: int) -> None:
    source = left / f"node-{member_id}"
    before = {path.name: path.read_bytes() for path in source.rglob("*") if path.is_file()}

    status, told, said = transition(source, "--members", NEW_MEMBERS, "--directory", str(tmp_path / "apart"))

    assert status == 0, said
    assert len(told["directories"]) == 3
    assert {state_of(path) for path in told["directories"]} == {state_of(source)}
    assert len(json.loads(state_of(source))[0]) == 40
    assert {path.name: path.read_bytes() for path in source.rglob("*") if path.is_file()} == before


def test_what_is_no_standbys_is_refused_with_what_to_do(left: Path, tmp_path: Path) -> None:
    status, _, said = transition(left / "node-0", "--members", NEW_MEMBERS, "--directory", str(tmp_path / "apart"))

    assert status == 2
    assert has_facts(said, "member 0, a voter", "standby")
    assert "trimaran recover" in said
    assert not (tmp_path / "apart").exists()


def test_a_directory_that_does_not_say_which_member_it_was_is_refused(left: Path, tmp_path: Path) -> None:
    """It was taken for member 0's."""
    copied = shutil.copytree(left / "node-3", tmp_path / "copied")
    (copied / "cluster" / MARK_FILE_NAME).unlink()

    status, _, said = transition(copied, "--members", NEW_MEMBERS, "--directory", str(tmp_path / "apart"))

    assert status == 2
    assert "which member" in said


def test_a_directory_that_is_there_stays_as_it_is(left: Path, tmp_path: Path) -> None:
    apart = tmp_path / "apart"
    apart.mkdir()
    (apart / "mine").write_text("mine")

    status, _, said = transition(left / "node-3", "--members", NEW_MEMBERS, "--directory", str(apart))

    assert status != 0
    assert "apart" in said
    assert [path.name for path in apart.iterdir()] == ["mine"]
