"""`trimaran locks run` with real processes: the command, its lock, signals, and a cluster that is gone."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from tests.system.cluster_process import SystemCluster
from tests.system.forked_command import commands_on_path
from tests.waiting import ask_until, within
from trimaran.client import ClientConfig
from trimaran.client.ready_made import LocksClient
from trimaran.cluster.settings.variables import clean_environment
from trimaran.service_api.ready_made import READY_MADE

DEADLINE_S = 60.0
LOCK = "reports/daily"
WAIT_FOR_TERM = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: (print("told to end", flush=True), sys.exit(7)))
print(os.environ["LOCK_NAME"], os.environ["LOCK_TOKEN"], flush=True)
while True:
    signal.pause()
"""


async def start(cluster: SystemCluster, *arguments: str) -> Process:
    """Begin `trimaran locks`."""
    clean = clean_environment()
    return await asyncio.create_subprocess_exec(
        *(str(commands_on_path() / "trimaran"), "locks", *arguments),
        env=clean | {"TRIMARAN_MEMBERS": f"0={cluster.endpoints[0]}"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
    )


async def read_line(process: Process) -> str:
    assert process.stdout is not None
    async with within(DEADLINE_S):
        return (await process.stdout.readline()).decode().strip()


async def end_of(process: Process) -> tuple[int | None, str, str]:
    async with within(DEADLINE_S):
        printed, complaint = await process.communicate()
    return process.returncode, printed.decode(), complaint.decode()


@pytest.mark.slow
async def test_a_command_has_the_lock_as_long_as_it_runs_and_no_longer_than_the_cluster(data_dir: Path) -> None:
    async with SystemCluster(data_dir, member_count=1, service=READY_MADE["locks"].target) as cluster:
        await cluster.wait_for_leader()
        async with LocksClient.connect(config=ClientConfig(endpoints=tuple(cluster.endpoints))) as locks:
            running = await start(cluster, "run", LOCK, "--value", "host 7", "--", sys.executable, "-c", WAIT_FOR_TERM)
            name, token = (await read_line(running)).split()
            (holder,) = (await locks.inspect(LOCK)).holders
            assert (name, int(token), holder.value) == (LOCK, holder.token, b"host 7")

            await expect_that_others_wait_or_give_up(cluster, locks)

            running.send_signal(signal.SIGTERM)
            assert await end_of(running) == (7, "told to end\n", "")
            assert (await locks.inspect(LOCK)).holders == []

        killed = await start(cluster, "run", LOCK, "--", "sh", "-c", "kill -9 $$")
        assert await end_of(killed) == (137, "", "")
        free = await start(cluster, "show", LOCK)
        assert await end_of(free) == (
            1,
            '{"name": "reports/daily", "holders": [], "waiters": [], "waiter_count": 0}\n',
            "",
        )

        running = await start(cluster, "run", LOCK, "--lease", "2", "--", sys.executable, "-c", WAIT_FOR_TERM)
        await read_line(running)
        cluster.members[0].kill()
        told = f"trimaran: lock={LOCK!r} was lost: the command is told to end\n"
        assert await end_of(running) == (1, "told to end\n", told)
        cluster.start(0)
        await cluster.wait_for_leader()


async def expect_that_others_wait_or_give_up(cluster: SystemCluster, locks: LocksClient) -> None:
    """While another command has the lock: a signal ends a wait, which leaves nothing behind."""
    waiting = await start(cluster, "run", LOCK, "--", "echo", "must not run")
    await wait_for_waiter(locks)
    waiting.send_signal(signal.SIGINT)
    assert await end_of(waiting) == (130, "", "")
    assert (await locks.inspect(LOCK)).waiters == []

    refused = await start(cluster, "run", LOCK, "--wait", "0", "--", "echo", "must not run")
    assert await end_of(refused) == (1, "", f"trimaran: lock={LOCK!r} was not granted: timeout_s=0.0\n")


async def wait_for_waiter(locks: LocksClient) -> None:
    """Wait until a claim waits for the lock."""

    async def find() -> bool | None:
        return bool((await locks.inspect(LOCK)).waiters) or None

    await ask_until(find, timeout_s=DEADLINE_S, what=f"a waiter for {LOCK}")
