"""`trimaran recover`: which directory it takes, what it refuses, and renames that are interrupted anywhere."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.facts import has_facts
from tests.tls import Issuer
from tests.unit.cluster.time_travel.recorded import DEADLINE_S, member
from tests.waiting import patient, within
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.log.group_directories import settle_group_count
from trimaran.client import ClientConfig, ClusterClient
from trimaran.cluster.cli.app import build_app
from trimaran.cluster.operating.salvage.writing import backup_name, find_begun, finish_in_place, recovered_name
from trimaran.cluster.runtime.files.cluster_id_file import ClusterIdFile
from trimaran.service_api import ClientSession, ClusteredService, ConfigurationError, SnapshotPublication
from trimaran.service_api.cluster_id import NULL_CLUSTER_ID, ClusterId

MEMBERS = "0=127.0.0.1:9000,1=127.0.0.1:9010"


class Silent(ClusteredService):
    """Takes everything and says nothing."""

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """Nothing is done."""

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        """There is nothing to keep."""


def serve(directory: Path, *payloads: bytes) -> None:
    """Run a cluster of one on a directory until it has these messages."""

    async def run() -> None:
        async with within(DEADLINE_S), member(directory, Silent()) as (node, endpoint):
            config = ClientConfig(endpoints=(endpoint,), connect_timeout_s=patient(DEADLINE_S))
            async with await ClusterClient.connect([], config=config) as client:
                for payload in payloads:
                    await client.offer(payload)
            await node.take_snapshot()

    asyncio.run(run())


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("recover") / "node-0"
    serve(directory, *[b"p" * 100] * 100)
    return directory


def recover(*arguments: str | Path) -> tuple[int, dict[str, Any], str]:  # Any: JSON
    """Run the command; gives exit status, document and error."""
    result = CliRunner().invoke(build_app(["recover"]), ["recover", *map(str, arguments), "-o", "json"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return 2, {}, str(result.exception)
    return result.exit_code, json.loads(result.stdout)[0] if result.stdout else {}, result.stderr


def copy(directory: Path, target: Path) -> Path:
    shutil.copytree(directory, target, ignore=lambda _, names: [name for name in names if name.endswith(".sock")])
    return target


def damage(directory: Path, position: int) -> None:
    with (directory / "archive" / "0-0.rec").open("r+b") as file:
        file.seek(position)
        file.write(b"\xff" * 64)


def test_the_same_directory_is_refused_also_by_another_name(recorded: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(recorded)

    status, _, error = recover("plan", recorded, link)

    assert (status, "twice" in error) == (2, True)


def test_of_two_with_as_much_the_undamaged_one_is_taken(recorded: Path, tmp_path: Path) -> None:
    """The damaged one has all that counts, too: a snapshot lies behind the damage. It is named second."""
    damaged = copy(recorded, tmp_path / "damaged")
    damage(damaged, 1_024)

    status, plan, _ = recover("plan", damaged, recorded)

    assert status == 0
    assert [found["is_usable"] for found in plan["directories"]] == [True, True]
    assert plan["directories"][0]["start_position"] == plan["directories"][1]["snapshot_positions"][-1]
    assert {found["end_position"] for found in plan["directories"]} == {plan["directories"][1]["end_position"]}


def test_directories_that_went_on_apart_are_refused(recorded: Path, tmp_path: Path) -> None:
    """Two copies were started as clusters of their own: both have committed what the other has not."""
    one, other = copy(recorded, tmp_path / "one"), copy(recorded, tmp_path / "other")
    for directory, payload in ((one, b"one"), (other, b"other")):
        serve(directory, payload)
        serve(directory, payload)

    status, _, error = recover("apply", one, other, "--members", MEMBERS, "--to", tmp_path / "out")

    assert status == 10
    # Of one cluster id they went on apart; where one does not know its id yet, they are of different clusters.
    assert "logs differ" in error or "two histories" in error
    assert not (tmp_path / "out").exists()


def test_the_record_is_in_a_term_of_its_own_in_every_new_directory(recorded: Path, tmp_path: Path) -> None:
    status, done, _ = recover("apply", recorded, "--members", MEMBERS, "--to", tmp_path / "out")
    again, plan, _ = recover("plan", tmp_path / "out" / "node-0")

    assert (status, again) == (0, 0)
    [old], [new] = done["directories"], plan["directories"]
    assert done["leadership_term_id"] == old["last_leadership_term_id"] + 1 == new["last_leadership_term_id"]
    assert done["term_base_log_position"] == old["end_position"] < new["end_position"]
    assert new["candidate_term_id"] >= done["leadership_term_id"]
    assert new["cluster_id"] == done["cluster_id"] != old["cluster_id"]
    assert new["members"] == "0, 1"
    logs = [(tmp_path / "out" / f"node-{i}" / "archive" / "0-0.rec").read_bytes() for i in range(2)]
    assert logs[0] == logs[1]


def test_plan_and_apply_say_that_certificates_have_to_name_the_new_cluster(recorded: Path, tmp_path: Path) -> None:
    _, plan, _ = recover("plan", recorded)
    new = ("--to", tmp_path / "out", "--cluster-id", "abc".zfill(16))
    _, done, _ = recover("apply", recorded, "--members", MEMBERS, *new)
    printed = CliRunner().invoke(build_app(["recover"]), ["recover", "plan", str(recorded)], env={"COLUMNS": "300"})

    assert has_facts(plan["steps"][0], "TLS", "certificates")
    assert has_facts(printed.stdout, "new cluster", "TLS")
    assert "`trimaran certs init DIR --cluster-id 0000000000000abc`" in done["steps"][0]
    assert "0000000000000abc" in done["steps"][1]


def test_a_recovered_member_with_the_old_certificate_says_what_to_make(recorded: Path, tmp_path: Path) -> None:
    recover("apply", recorded, "--members", MEMBERS, "--to", tmp_path / "out", "--cluster-id", "abc".zfill(16))
    tls = Issuer.create(tmp_path / "certificates", cluster_id=ClusterId(0xDEF)).member(0)
    settings = {f"tls_{name}": getattr(tls, name) for name in ("authorities", "certificate", "key")}

    async def start() -> None:
        async with member(tmp_path / "out" / "node-0", Silent(), **settings):
            pass

    with pytest.raises(ConfigurationError, match="--cluster-id 0000000000000abc") as caught:
        asyncio.run(start())

    assert has_facts(str(caught.value), "cluster_id=0000000000000abc", "certificate", "cluster_id=0000000000000def")


def test_a_name_that_is_empty_is_not_the_directory_that_the_shell_is_in(recorded: Path) -> None:
    status, _, error = recover("plan", recorded, "")

    assert (status, error) == (2, "a directory has an empty name: is a variable of the shell not set?")


def test_a_directory_with_groups_says_which_to_type(tmp_path: Path) -> None:
    """Each group is recovered by itself."""
    settle_group_count(tmp_path / "node-0", 2)

    status, _, error = recover("plan", tmp_path / "node-0")

    assert status == 2
    assert f"{tmp_path}/node-0/group-0 to group-1" in error


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--to", "out", "--in-place"], "either --to OUT or --in-place"),
        ([], "either --to OUT or --in-place"),
        (["--to", "out", "--gone", "7"], "--gone=7 is no member"),
        (["--to", "out", "--abandon", "7"], "--abandon=7 is no member"),
        (["--to", "out", "--cluster-id", "zz"], "bad cluster id"),
        (["--in-place"], "directories of member_id=1 found=0 expected=1"),
        (["--to", "out", "--choose", "nowhere"], "cannot be used, or is not one of those given"),
    ],
)
def test_bad_input_is_refused_with_what_was_expected(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], expected: str
) -> None:
    monkeypatch.chdir(tmp_path)

    status, _, error = recover("apply", recorded, "--members", MEMBERS, *arguments)

    assert status in (2, 10)
    assert expected in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("rename_count", range(5))
def test_renames_in_place_go_on_where_they_were_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rename_count: int
) -> None:
    """Two directories take four renames; a command ends after each of them and is repeated."""
    directories = [tmp_path / "node-0", tmp_path / "node-1"]
    for directory, name in itertools.product(directories, ("old", "new")):
        place = directory if name == "old" else recovered_name(directory)
        (place / "cluster").mkdir(parents=True)
        (place / "content").write_text(f"{name} {directory.name}")
    for directory in directories:
        ClusterIdFile.open(recovered_name(directory) / "cluster", OsFileSystem()).store(ClusterId(77))
    rename, done = OsFileSystem.rename, itertools.count()

    def interrupted(disk: OsFileSystem, source: Path, target: Path) -> None:
        if next(done) >= rename_count:
            raise KeyboardInterrupt
        rename(disk, source, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt) if rename_count < 4 else nullcontext():
        patch.setattr(OsFileSystem, "rename", interrupted)
        finish_in_place(directories)
    is_begun = find_begun(directories) != NULL_CLUSTER_ID
    kept = finish_in_place(directories)

    assert is_begun == (rename_count > 0)
    assert kept == [backup_name(directory) for directory in directories]
    for directory in directories:
        assert (directory / "content").read_text() == f"new {directory.name}"
        assert (backup_name(directory) / "content").read_text() == f"old {directory.name}"
        assert not recovered_name(directory).exists()
