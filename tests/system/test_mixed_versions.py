"""Two versions in one cluster: members are upgraded one at a time under load, and taken back one at a time.

The older version is a wheel of another commit, in an environment of its own (`tests.upgrade.older_version`).
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.places import ROOT
from tests.system.cluster_process import SystemCluster
from tests.system.fork_server import ForkedGroup
from tests.system.requester import Requester
from tests.upgrade.older_version import older_python
from tests.waiting import within
from trimaran.benchmarks.rig.processes import ManagedProcess, ProcessGroup

pytestmark = pytest.mark.slow

CLIENT = ROOT / "tests" / "upgrade" / "counting_client.py"


NEWER_OPTIONS: Final = {"--snapshot-interval-ms"}
"""What tests give every member and the older version does not have; each has one value."""


def without_newer(arguments: Sequence[str]) -> list[str]:
    """The arguments that the older version knows."""
    newer = {index for index, word in enumerate(arguments) if word in NEWER_OPTIONS}
    return [word for index, word in enumerate(arguments) if index not in newer and index - 1 not in newer]


class MixedGroup(ForkedGroup):
    """Starts some members with the Python of the older version."""

    def __init__(self, older: Path, older_names: set[str]) -> None:
        super().__init__()
        self._older = older
        self.older_names = older_names

    def spawn(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        log_path: Path,
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> ManagedProcess:
        if name not in self.older_names:
            return super().spawn(name, arguments, log_path=log_path, environment=environment)
        words = [str(self._older), *without_newer(arguments[1:])]
        return ProcessGroup.spawn(
            self, name, words, log_path=log_path, stdin=stdin, stdout=stdout, environment=environment
        )


class MixedCluster(SystemCluster):
    """Members of either version; at first all run the older one."""

    def __init__(self, data_dir: Path, older: Path) -> None:
        super().__init__(data_dir)
        self.group = MixedGroup(older, {f"member-{member_id}" for member_id in range(3)})
        self.processes.group = self.group

    async def change(self, member_id: int, *, is_older: bool) -> None:
        """Stop a member in order, and start it with a version; wait until it takes part."""
        name = f"member-{member_id}"
        self.members[member_id].terminate()
        assert await self.members[member_id].wait_exit() == 0
        (self.group.older_names.add if is_older else self.group.older_names.discard)(name)
        self.start(member_id)
        await self.wait_for_leader()


class CountingClient:
    """A client process of one version, which sends requests until it is told to end."""

    def __init__(self, python: Path | str, endpoints: Sequence[str]) -> None:
        self._command = [str(python), str(CLIENT), *endpoints]
        self._process: asyncio.subprocess.Process

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
        )

    async def finish(self) -> list[int]:
        """Tell it to end; gives the places that its requests came to, in the order in which it sent them."""
        async with within(60):
            printed, _ = await self._process.communicate(b"")
        assert self._process.returncode == 0
        places: list[int] = json.loads(printed)
        return places


async def snapshot(cluster: SystemCluster) -> None:
    """Take a snapshot: the command of this version, by the directory of the leader: versions name links otherwise."""
    leader = await cluster.wait_for_leader()
    directory = cluster.directory_of(leader.leader_member_id)
    status, said = await cluster.run_command("snapshot", "take", "--directory", str(directory))
    assert status == 0, said


async def test_members_are_upgraded_and_taken_back_one_at_a_time_under_load(data_dir: Path) -> None:
    """Nothing is lost or run twice, the recordings are identical, and the older version loads a newer snapshot."""
    older = older_python()
    async with MixedCluster(data_dir, older) as cluster:
        await cluster.wait_for_leader()
        clients = [CountingClient(python, cluster.endpoints) for python in (older, sys.executable)]
        for client in clients:
            await client.start()
        async with cluster.requester() as requester:
            requester.start_load()
            for is_older in (False, True):
                for member_id in range(3):
                    await cluster.change(member_id, is_older=is_older)
                    await requester.wait_answered(requester.submitted_count + 200)
                await snapshot(cluster)
            await requester.stop_load()
            await requester.quiesce()
            places = [await client.finish() for client in clients]
            await cluster.wait_for_equal_states()
    check_places(requester, places)
    cluster.check_answers(requester)


def check_places(requester: Requester, places: list[list[int]]) -> None:
    """Each request has a place of its own, in the order in which its client sent it."""
    flat = [place for one in places for place in one]
    assert all(len(one) > 50 and one == sorted(one) for one in places)
    assert len({*flat}) == len(flat)
    assert not {*flat} & {answer.place for answer in requester.answers.values()}


def test_the_older_version_is_the_commit_that_is_named(tmp_path: Path) -> None:
    """And it is not this checkout."""
    said = subprocess.run(
        [older_python(), "-c", "import trimaran.cluster as found; print(found.__file__)"],
        capture_output=True,
        check=True,
        cwd=tmp_path,
        text=True,
    )
    assert Path(said.stdout.strip()).is_relative_to(older_python().parent.parent)
