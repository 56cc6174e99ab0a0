"""What the command does when one of its groups ends: scripts stand for groups."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.waiting import wait_until, within
from trimaran.cluster.cli.groups.supervisor import GroupSupervisor
from trimaran.cluster.settings.config import NodeConfig
from trimaran.cluster.settings.member_endpoints import parse_members

GROUP: Final = """
import os, pathlib, signal, sys, time
scripts, parent, *flags = sys.argv[1:]
group = flags[flags.index("--group") + 1]
place = pathlib.Path(scripts) / group
place.mkdir(exist_ok=True)
number = len([*place.iterdir()])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(int((pathlib.Path(scripts) / "at-stop").read_text() or 0)))
(place / str(number)).write_text(f"{os.getpid()} {' '.join(flags)}")
exits = pathlib.Path(scripts) / f"exit-{group}"
if exits.exists() and number < int(exits.read_text().split()[1]):
    sys.exit(int(exits.read_text().split()[0]))
while True:
    time.sleep(60)
"""
"""Notes each start, and ends as the files say: `exit-K` holds a status, and how many starts end with it."""


class Groups:
    """A supervisor of scripts, and what it has started."""

    def __init__(self, directory: Path, group_count: int = 2) -> None:
        self.directory = directory
        (directory / "at-stop").write_text("0")
        config = NodeConfig(
            member_id=1,
            members=parse_members("0=127.0.0.1:9000,1=127.0.0.1:9010"),
            directory=directory / "data",
            service="a:B",
            groups=group_count,
            strict=True,
        )
        program = (sys.executable, "-c", GROUP, str(directory))
        self.supervisor = GroupSupervisor(config, program=program, restart_min_s=0.05)

    def starts(self, group_index: int) -> list[str]:
        """What each process of a group has said: its pid and its flags."""
        place = self.directory / str(group_index)
        found = sorted(place.iterdir(), key=lambda file: int(file.name)) if place.exists() else []
        return [text for file in found if (text := file.read_text())]

    def pid(self, group_index: int) -> int:
        """The newest process of a group."""
        return int(self.starts(group_index)[-1].split()[0])

    async def wait_until_running(self, *counts: int) -> None:
        """Wait until each group has been started so often."""
        await wait_until(
            lambda: all(len(self.starts(i)) >= count for i, count in enumerate(counts)),
            timeout_s=60.0,
            what=lambda: f"starts {counts}: {self.supervisor!r}",
        )


async def run(groups: Groups, then: Callable[[Groups], object], *counts: int) -> int:
    """Run the groups until each has been started so often, do something, and return the exit status."""
    async with within(90), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(groups.supervisor.run())
        await groups.wait_until_running(*counts)
        then(groups)
        return await running


async def test_a_signal_stops_every_group_and_the_command_ends_with_success(tmp_path: Path) -> None:
    """SIGTERM to this process is what the command gets."""
    status = await run(Groups(tmp_path), lambda _: os.kill(os.getpid(), signal.SIGTERM), 1, 1)

    assert status == 0


async def test_each_group_gets_the_settings_of_the_member_and_its_index(tmp_path: Path) -> None:
    """The process makes its own settings of them."""
    groups = Groups(tmp_path)

    await run(groups, lambda each: each.supervisor.stop(), 1, 1)

    flags = groups.starts(1)[0].split()[1:]
    assert flags[0] == "node"
    assert {"--strict", "0=127.0.0.1:9000,1=127.0.0.1:9010", str(tmp_path / "data")} <= set(flags)
    assert flags[flags.index("--groups") + 1] == "2"
    assert flags[-2:] == ["--group", "1"]
    assert not any(flag.startswith("--election") for flag in flags)


async def test_a_group_that_is_killed_starts_again_and_the_others_go_on(tmp_path: Path) -> None:
    """The other one is started once."""
    groups = Groups(tmp_path)

    async with within(90), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(groups.supervisor.run())
        await groups.wait_until_running(1, 1)
        first = groups.pid(1)
        os.kill(first, signal.SIGKILL)
        await groups.wait_until_running(1, 2)
        assert groups.pid(1) != first
        groups.supervisor.stop()

    assert (await running, len(groups.starts(0))) == (0, 1)


async def test_a_group_that_fails_is_started_again_and_again(tmp_path: Path) -> None:
    """Status 1: it could not go on; a disk that was full may be so no more."""
    (tmp_path / "exit-0").write_text("1 3")

    status = await run(groups := Groups(tmp_path), lambda each: each.supervisor.stop(), 4, 1)

    assert (status, len(groups.starts(1))) == (0, 1)


async def test_a_group_that_was_told_to_stop_stays_stopped_and_the_last_one_ends_the_command(tmp_path: Path) -> None:
    """`trimaran shutdown` ends groups one by one."""
    (tmp_path / "exit-0").write_text("0 1")
    groups = Groups(tmp_path)

    status = await run(groups, lambda each: os.kill(each.pid(1), signal.SIGTERM), 1, 1)

    assert (status, len(groups.starts(0)), len(groups.starts(1))) == (0, 1, 1)


async def test_settings_that_a_group_refuses_end_all_groups(tmp_path: Path) -> None:
    """Status 2: it would refuse them again."""
    (tmp_path / "exit-0").write_text("2 1")
    groups = Groups(tmp_path)

    assert await run(groups, lambda _: None, 1) == 2  # the other one may be stopped before it says anything
    assert len(groups.starts(0)) == 1


async def test_a_group_that_fails_while_it_stops_is_told_by_the_exit_status(tmp_path: Path) -> None:
    """It is not started again."""
    groups = Groups(tmp_path)
    (tmp_path / "at-stop").write_text("1")

    assert await run(groups, lambda each: each.supervisor.stop(), 1, 1) == 1
    assert (len(groups.starts(0)), len(groups.starts(1))) == (1, 1)


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")
async def test_a_process_that_watches_a_pipe_ends_with_the_other_end() -> None:
    """What ends groups where the kernel does not."""
    read_end, write_end = os.pipe()
    code = "from trimaran.cluster.cli.shared import local_child as it; print('ready', flush=True); it.end_with_pipe(0)"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdin=read_end, stdout=asyncio.subprocess.PIPE
    )
    os.close(read_end)
    assert process.stdout is not None
    async with within(60):
        assert await process.stdout.readline() == b"ready\n"
        os.write(write_end, b"what comes is passed over")
        os.close(write_end)

        assert await process.wait() == -signal.SIGKILL
