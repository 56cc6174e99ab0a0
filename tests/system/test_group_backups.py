"""Backups of a cluster with groups, with real processes: one command for all groups, and a restore to one time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.system.forked_command import MEMBER_PYTHON, commands_on_path
from tests.system.test_groups import DEADLINE_S, KEYS, Machines
from tests.waiting import patient, wait_until
from trimaran.cluster.operating.backup.status import BACKUP_STATUS_FILE_NAME
from trimaran.cluster.runtime.ground.system_clock import SystemClock
from trimaran.cluster.settings.variables import clean_environment

GROUPS: Final = (0, 1)


class Agent:
    """`trimaran backup run` as a process, and what it wrote."""

    def __init__(self, machines: Machines, directory: Path, *flags: str) -> None:
        self.directory = directory
        python, child = commands_on_path() / MEMBER_PYTHON, "trimaran.cluster.cli.shared.local_child"
        named = ["--members", machines.members, "--groups", "2", "--directory", str(directory)]
        command = ["backup", "run", *named, "--query-interval", "0.2", "--log-format", "json", *flags]
        self._log = directory.with_suffix(".log")
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(python), "-m", child, str(os.getpid()), *command],
                env=clean_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def lines(self) -> list[str]:
        return self._log.read_text().splitlines()

    def status(self, group_index: int) -> dict[str, Any]:
        """What the agent of a group says; empty before it says something."""
        path = self.directory / f"group-{group_index}" / "cluster" / BACKUP_STATUS_FILE_NAME
        return dict(json.loads(path.read_text())) if path.exists() else {}

    async def follow(self, *group_indexes: int) -> None:
        """Wait until the agents of groups follow their logs."""

        def are_following() -> bool:
            return all(self.status(index).get("state") == "BACKING_UP" for index in group_indexes)

        await wait_until(are_following, timeout_s=DEADLINE_S, what="agents that follow")

    def end(self) -> int:
        """Tell it to stop, and return the exit status."""
        self.process.terminate()
        return self.process.wait(patient(DEADLINE_S))


@pytest.fixture
def machines(data_dir: Path) -> Iterator[Machines]:
    made = Machines(data_dir, member_count=1)
    made.start_all()
    yield made
    for process in made.processes.values():
        process.kill()
        process.wait(patient(DEADLINE_S))


@pytest.fixture
def agents() -> Iterator[list[Agent]]:
    started: list[Agent] = []
    yield started
    for agent in started:
        agent.process.kill()
        agent.process.wait(patient(DEADLINE_S))


@pytest.mark.slow
async def test_one_command_backs_up_every_group_until_it_is_told_to_stop(
    machines: Machines, agents: list[Agent], tmp_path: Path
) -> None:
    """Each group has a directory, and its log lines name it; it ends with 0."""
    agent = Agent(machines, tmp_path / "copy")
    agents.append(agent)

    await agent.follow(*GROUPS)
    status = agent.end()

    assert status == 0
    assert json.loads((tmp_path / "copy" / "groups.json").read_text())["count"] == 2
    assert [agent.status(index)["state"] for index in GROUPS] == ["CLOSED", "CLOSED"]
    told = [json.loads(line) for line in agent.lines if line.startswith("{")]
    assert {line["group"] for line in told if line["event"] == "backup.state_changed"} == {0, 1}


@pytest.mark.slow
async def test_a_group_that_is_named_is_backed_up_alone(
    machines: Machines, agents: list[Agent], tmp_path: Path
) -> None:
    agent = Agent(machines, tmp_path / "copy", "--group", "1")
    agents.append(agent)

    await agent.follow(1)

    assert (agent.end(), agent.status(0)) == (0, {})


@pytest.mark.slow
async def test_an_agent_that_fails_ends_the_command_which_names_its_group(
    machines: Machines, agents: list[Agent], tmp_path: Path
) -> None:
    """The other agents are stopped in order; the status is that of the failure."""
    place = tmp_path / "copy" / "group-1"
    place.mkdir(parents=True)
    (place / "archive").write_text("no directory")
    (tmp_path / "copy" / "groups.json").write_text('{"count": 2, "hash": "crc32/4096"}')

    agent = Agent(machines, tmp_path / "copy")
    agents.append(agent)
    status = agent.process.wait(patient(DEADLINE_S))

    assert status == 2
    assert agent.lines[-1].startswith("trimaran: group 1 of 2: ")


@pytest.mark.slow
async def test_the_status_says_how_far_each_group_is_and_which_time_all_reach(
    machines: Machines, agents: list[Agent], tmp_path: Path
) -> None:
    """A group in which nothing happens reaches a later time all the same; one without a backup is named."""
    agent = Agent(machines, tmp_path / "copy")
    agents.append(agent)
    await agent.follow(*GROUPS)
    begun_ms = SystemClock().epoch_time()

    def reach_a_later_time() -> bool:
        return all((agent.status(index).get("as_of_ms") or 0) > begun_ms for index in GROUPS)

    await wait_until(reach_a_later_time, timeout_s=DEADLINE_S, what="a later time")
    whole = show_status(agent.directory)
    agent.end()
    shutil.rmtree(agent.directory / "group-1" / "cluster")
    lacking = show_status(agent.directory)

    told = json.loads(whole.stdout)
    assert (whole.returncode, [row["group"] for row in told["groups"]]) == (0, ["0/2", "1/2"])
    assert all(row["recorded_position"] > 0 for row in told["groups"])
    assert begun_ms < told["as_of_ms"] == min(row["as_of_ms"] for row in told["groups"])
    assert (lacking.returncode, json.loads(lacking.stdout)["as_of_ms"]) == (3, None)
    assert "group 1 of 2: " in lacking.stderr


def show_status(directory: Path) -> subprocess.CompletedProcess[str]:
    """Run `trimaran backup status`."""
    return run_command("backup", "status", str(directory), "-o", "json")


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [str(commands_on_path() / "trimaran"), *arguments],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=patient(DEADLINE_S),
        check=False,
    )


class Restored(Machines):
    """A machine that runs what a restore has made."""

    def __init__(self, data_dir: Path, restored: Path) -> None:
        super().__init__(data_dir, member_count=1)
        self.restored = restored

    def command(self, member_id: int, **changes: str) -> list[str]:
        return super().command(member_id, directory=str(self.restored / f"node-{member_id}"), **changes)

    def restore(self, source: Path, *flags: str) -> subprocess.CompletedProcess[str]:
        """Run `trimaran backup restore` for this machine."""
        to = ["--members", self.members, "--directory", str(self.restored), "-o", "json"]
        return run_command("backup", "restore", "--from", str(source), *to, *flags)


@pytest.fixture
def again(tmp_path: Path) -> Iterator[Restored]:
    made = Restored(tmp_path / "again", tmp_path / "restored")
    yield made
    for process in made.processes.values():
        process.kill()
        process.wait(patient(DEADLINE_S))


async def send(machines: Machines, number: int) -> None:
    """Send a number for each key."""
    async with machines.client() as client:
        for key in KEYS:
            await client.request(key, f"{key} {number}".encode(), timeout_s=patient(DEADLINE_S))


async def count_of_each_key(machines: Machines) -> set[int]:
    """How many numbers the keys have."""
    async with machines.client() as client:
        answers = [await client.query(key, key.encode(), timeout_s=patient(DEADLINE_S)) for key in KEYS]
    return {int(bytes(answer.payload)) for answer in answers}


async def as_of_later(agent: Agent) -> int:
    """Wait until the backups of all groups have what there is now; return when that was, by this machine's clock."""
    now_ms = SystemClock().epoch_time()

    def is_here() -> bool:
        return all((agent.status(index).get("as_of_ms") or 0) > now_ms for index in GROUPS)

    await wait_until(is_here, timeout_s=DEADLINE_S, what="what there is now")
    return now_ms


@pytest.mark.slow
async def test_all_groups_are_restored_to_the_time_that_is_named(
    machines: Machines, agents: list[Agent], again: Restored, tmp_path: Path
) -> None:
    """The new cluster answers as the old one did at that time, in every group."""
    agent = Agent(machines, tmp_path / "copy")
    agents.append(agent)
    await send(machines, 0)
    await send(machines, 1)
    between_ms = await as_of_later(agent)
    await send(machines, 2)
    await as_of_later(agent)

    restored = again.restore(agent.directory, "--time", str(between_ms))
    again.start_all()

    assert restored.returncode == 0, restored.stderr
    assert await count_of_each_key(again) == {2}


@pytest.mark.slow
async def test_without_a_time_all_groups_are_restored_to_the_latest_that_all_reach(
    machines: Machines, agents: list[Agent], again: Restored, tmp_path: Path
) -> None:
    """What a group has after the end of another group's backup is not in the new cluster."""
    one = Agent(machines, tmp_path / "copy")
    agents.append(one)
    await send(machines, 0)
    await as_of_later(one)
    one.end()
    other = Agent(machines, tmp_path / "copy", "--group", "1")
    agents.append(other)
    await other.follow(1)
    await send(machines, 1)
    now_ms = SystemClock().epoch_time()
    await wait_until(
        lambda: (other.status(1).get("as_of_ms") or 0) > now_ms, timeout_s=DEADLINE_S, what="all of group 1"
    )
    other.end()

    too_late = again.restore(other.directory, "--time", str(now_ms))
    restored = again.restore(other.directory)
    again.start_all()

    assert too_late.returncode == 2
    assert "group 0 of 2 ends at " in too_late.stderr
    assert "group 1" not in too_late.stderr
    assert restored.returncode == 0, restored.stderr
    assert await count_of_each_key(again) == {1}


@pytest.mark.slow
async def test_a_restore_without_one_of_the_groups_is_refused_and_writes_nothing(
    machines: Machines, agents: list[Agent], again: Restored, tmp_path: Path
) -> None:
    agent = Agent(machines, tmp_path / "copy")
    agents.append(agent)
    await as_of_later(agent)
    agent.end()
    shutil.rmtree(agent.directory / "group-1")

    lacking = again.restore(agent.directory)
    positioned = again.restore(agent.directory, "--position", "96")

    assert (lacking.returncode, again.restored.exists()) == (2, False)
    assert "group 1 of 2: " in lacking.stderr
    assert (positioned.returncode, "--time" in positioned.stderr) == (2, True)
