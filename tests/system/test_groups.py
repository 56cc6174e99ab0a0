"""Groups with real processes: members with a process for each group, behind `trimaran node --groups 2`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql.streaming.datasource import ReadMaxBytes

from tests.facts import has_facts
from tests.system.cluster_process import SETTINGS, in_time
from tests.system.directory_checker import check_directory
from tests.system.forked_command import MEMBER_PYTHON, commands_on_path
from tests.system.test_demo import is_running
from tests.waiting import ask_until, patient, wait_until
from trimaran.archive.spark.source.data_source import AeronArchiveDataSource
from trimaran.benchmarks.rig.processes import find_base_ports
from trimaran.client import ClientConfig, ConnectRejectedError, GroupedClient, RequestFailedError, SyncGroupedClient
from trimaran.cluster.documents.query import StatusQueryError, query_status
from trimaran.cluster.settings.config_layers import flag_arguments
from trimaran.cluster.settings.variables import clean_environment
from trimaran.service_api.connecting import Connecting
from trimaran.service_api.groups import Group, GroupTable
from trimaran.service_api.groups.ports import group_endpoint

SERVICE: Final = "tests.system.group_ledger:GroupLedger"
MEMBER_COUNT: Final = 3
GROUP_COUNT: Final = 2
DEADLINE_S: Final = 120.0
TABLE: Final = GroupTable(GROUP_COUNT)
KEYS: Final = [f"account-{i}" for i in range(12)]


async def repeat_until(ask: Callable[[], Awaitable[bool]]) -> None:
    """Ask until the answer is yes."""

    async def is_so() -> bool | None:
        return await ask() or None

    await ask_until(is_so, timeout_s=DEADLINE_S, what=ask.__name__)


class Machines:
    """Three machines, or fewer, each with a supervisor and its groups."""

    def __init__(self, data_dir: Path, member_count: int = MEMBER_COUNT, **settings: str) -> None:
        self.directory = data_dir
        data_dir.mkdir(parents=True)
        self.base_ports = find_base_ports(member_count, group_count=GROUP_COUNT)
        self.endpoints = [f"127.0.0.1:{port}" for port in self.base_ports]
        self.settings = in_time({**SETTINGS, "groups": str(GROUP_COUNT), "log_format": "json", **settings})
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def members(self) -> str:
        return ",".join(f"{i}={endpoint}" for i, endpoint in enumerate(self.endpoints))

    def command(self, member_id: int, **changes: str) -> list[str]:
        """What starts a member."""
        settings = {
            "member_id": str(member_id),
            "members": self.members,
            "directory": str(self.directory / f"node-{member_id}"),
            "service": SERVICE,
            **self.settings,
            **changes,
        }
        flags = [part for name, value in settings.items() for part in flag_arguments(name, value)]
        python, child = commands_on_path() / MEMBER_PYTHON, "trimaran.cluster.cli.shared.local_child"
        return [str(python), "-m", child, str(os.getpid()), "node", *flags]  # it ends with this process

    def log(self, member_id: int) -> str:
        return (self.directory / f"node-{member_id}.log").read_text()

    def start(self, member_id: int, **changes: str) -> None:
        with (self.directory / f"node-{member_id}.log").open("ab") as log:
            self.processes[member_id] = subprocess.Popen(
                self.command(member_id, **changes),
                env=clean_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start_all(self) -> None:
        for member_id in range(len(self.endpoints)):
            self.start(member_id)

    def kill(self, member_id: int) -> None:
        """End a supervisor without warning."""
        self.processes[member_id].kill()
        self.processes[member_id].wait(patient(DEADLINE_S))

    def stop_all(self) -> list[int]:
        """Tell every supervisor to stop; gives the exit statuses."""
        for process in self.processes.values():
            process.terminate()
        return [process.wait(patient(DEADLINE_S)) for process in self.processes.values()]

    async def find_leader(self, group_index: int) -> int | None:
        """Which member leads a group; None if none says so."""
        for member_id, endpoint in enumerate(self.endpoints):
            host, _, port = group_endpoint(endpoint, group_index).rpartition(":")
            try:
                status = await query_status(f"{host}:{int(port) + 1}", 5.0)
            except StatusQueryError:
                continue
            if status.state == "LEADER":
                return member_id
        return None

    async def wait_for_leaders(self, *member_ids: int) -> None:
        """Wait until each group is led by the member that is named for it."""

        async def are_leading() -> bool:
            return [await self.find_leader(i) for i in range(len(member_ids))] == [*member_ids]

        await repeat_until(are_leading)

    def client(self, **arguments: int) -> Connecting[GroupedClient]:
        config = ClientConfig(
            endpoints=tuple(self.endpoints), connect_timeout_s=patient(DEADLINE_S), new_leader_timeout_s=patient(60.0)
        )
        return GroupedClient.connect(config=config, **arguments)  # type: ignore[arg-type]

    def processes_of(self, member_id: int, *group_indexes: int) -> list[int]:
        """The pids of a member's groups, or of these, that its log says have started, and that run."""
        lines = [json.loads(line) for line in self.log(member_id).splitlines() if line.startswith("{")]
        wanted = {f"group-{i}" for i in group_indexes or range(GROUP_COUNT)}
        started = [line for line in lines if line["event"] == "node.started"]
        pids = [int(line["pid"]) for line in started if Path(line["directory"]).name in wanted]
        return [pid for pid in pids if is_running(pid)]


@pytest.fixture
def machines(data_dir: Path) -> Iterator[Machines]:
    made = Machines(data_dir)
    yield made
    for process in made.processes.values():
        process.kill()
        process.wait(patient(DEADLINE_S))


async def keep_requesting(client: GroupedClient, key: str, done: asyncio.Event) -> int:
    """Make requests for a key, one after the other, until told to end; gives how many."""
    number = 0
    while not done.is_set():
        reply = await client.request(key, f"{key} {number}".encode(), timeout_s=patient(DEADLINE_S))
        number += 1
        assert int(reply) == number
    return number


@pytest.mark.slow
async def test_a_machine_that_dies_takes_no_request_of_any_group_with_it(machines: Machines) -> None:
    """Nothing is lost or run twice in either group; leaders are spread before and after."""
    machines.start_all()
    await machines.wait_for_leaders(0, 1)
    done = asyncio.Event()
    async with machines.client() as client:
        async with asyncio.TaskGroup() as tasks:
            loads = {key: tasks.create_task(keep_requesting(client, key, done)) for key in KEYS}
            await wait_for_progress(client, 20)
            assert len(machines.processes_of(0)) == GROUP_COUNT

            machines.kill(0)
            await wait_until(lambda: not machines.processes_of(0), timeout_s=DEADLINE_S, what="the end of its groups")
            await wait_for_progress(client, 20)
            assert await machines.find_leader(0) in (1, 2)
            machines.start(0)
            await machines.wait_for_leaders(0, 1)
            await wait_for_progress(client, 20)
            done.set()
        for key, load in loads.items():
            result = await client.query(key, key.encode())
            assert int(result.payload) == load.result()
        assert (await client.for_key(KEYS[0])).group == Group(TABLE.group_of(KEYS[0]), GROUP_COUNT)

    assert machines.stop_all() == [0, 0, 0]
    for member_id in range(MEMBER_COUNT):
        for group_index in range(GROUP_COUNT):
            directory = machines.directory / f"node-{member_id}" / f"group-{group_index}"
            check_directory(directory, stopped=False)
            log = b"".join(file.read_bytes() for file in sorted((directory / "archive").glob("*.rec")))
            found = {key for key in KEYS if f"{key} 0".encode() in log}
            assert found == {key for key in KEYS if TABLE.group_of(key) == group_index}


async def wait_for_progress(client: GroupedClient, count: int) -> None:
    """Wait until every key has so many requests more."""

    async def count_of(key: str) -> int:
        return int((await client.query(key, key.encode())).payload)

    before = {key: await count_of(key) for key in KEYS}

    async def have_more() -> bool:
        return all([await count_of(key) >= before[key] + count for key in KEYS])

    await repeat_until(have_more)


async def test_a_client_learns_the_groups_and_is_refused_by_other_ones(machines: Machines) -> None:
    """A service refuses a key that came to the wrong group, whichever way it came."""
    machines.start_all()
    await machines.wait_for_leaders(0, 1)
    key = next(key for key in KEYS if TABLE.group_of(key) == 1)

    async with machines.client() as client:
        assert client.group_count == GROUP_COUNT
        assert await client.request(key, f"{key} 0".encode()) == b"1"
        with pytest.raises(RequestFailedError, match=rf"key='{key}'.*group 1,.*group 0 of 2"):
            await (await client.for_group(0)).request(f"{key} 1".encode())
    async with machines.client(group_count=4) as client:
        with pytest.raises(ConnectRejectedError, match=r"group 0 of 2.*group 0 of 4"):
            await client.for_group(0)

    def request() -> bytes:
        with SyncGroupedClient.connect(machines.endpoints) as blocking:
            return blocking.request(key, f"{key} 1".encode(), timeout_s=patient(DEADLINE_S))

    assert await asyncio.to_thread(request) == b"2"
    await follow_both_groups(machines, key)


async def follow_both_groups(machines: Machines, key: str) -> None:
    """Follow the running members as Spark does: each group's messages, up to what its own members have committed.

    The stream is told the consensus endpoints of group 0; an answer of the wrong group would be refused.
    """
    path = ",".join(str(machines.directory / f"node-{member_id}") for member_id in range(MEMBER_COUNT))
    commit_from = ",".join(f"127.0.0.1:{port + 1}" for port in machines.base_ports)
    source = AeronArchiveDataSource({"path": path, "commitFrom": commit_from, "where": "template_id = 1"})
    reader = source.streamReader(source.schema())
    start = await asyncio.to_thread(reader.initialOffset)
    found: list[tuple[int, str]] = []

    async def has_all_messages() -> bool:
        nonlocal start
        end = await asyncio.to_thread(reader.latestOffset, start, ReadMaxBytes(1 << 20))
        for partition in reader.partitions(start, end):
            batches: Iterator[Any] = reader.read(partition)
            rows = [row for batch in batches for row in batch.to_pylist()]
            found.extend((row["group"], bytes(row["payload"])[-len(f"{key} 0") :].decode()) for row in rows)
        start = end
        return len(found) >= 3

    await repeat_until(has_all_messages)
    assert sorted(found) == [(0, f"{key} 1"), (1, f"{key} 0"), (1, f"{key} 1")]  # group 0 has the one it refused


async def test_one_group_without_a_leader_does_not_stop_the_other(machines: Machines) -> None:
    """Group 1 stands still on every machine."""
    machines.start_all()
    await machines.wait_for_leaders(0, 1)
    here, there = (next(key for key in KEYS if TABLE.group_of(key) == i) for i in range(GROUP_COUNT))
    async with machines.client() as client:
        await client.request(there, f"{there} 0".encode())
        groups = [pid for member_id in range(MEMBER_COUNT) for pid in machines.processes_of(member_id, 1)]
        for pid in groups:
            os.kill(pid, signal.SIGSTOP)
        waiting = asyncio.create_task(client.request(there, f"{there} 1".encode(), timeout_s=patient(DEADLINE_S)))
        for number in range(10):
            await client.request(here, f"{here} {number}".encode(), timeout_s=patient(DEADLINE_S))
        assert not waiting.done()
        for pid in groups:
            os.kill(pid, signal.SIGCONT)

        assert await waiting == b"2"
        batch = [(there, f"{there} 2".encode()), (here, f"{here} 10".encode()), (there, f"{there} 3".encode())]
        assert await client.request_many(batch, timeout_s=patient(DEADLINE_S)) == [b"3", b"11", b"4"]


async def test_a_member_of_another_group_is_not_heard(machines: Machines) -> None:
    """Its settings put group 1 where group 0 of the others is; neither has an id yet when they meet."""
    stranger = ",".join(f"{i}=127.0.0.1:{port - 100}" for i, port in enumerate(machines.base_ports))
    machines.start(0)
    machines.start(1)
    machines.start(2, group="1", members=stranger)
    await wait_until(
        lambda: has_facts(machines.log(0), "group 0 of 2", "group 1 of 2", "member 2"),
        timeout_s=DEADLINE_S,
        what="the word of member 0",
    )
    await machines.wait_for_leaders(0, 1)

    status = await query_status(f"127.0.0.1:{machines.base_ports[2] + 1}", 5.0)

    assert (status.group, status.commit_position) == ("1/2", 0)
    assert status.differing_members


def test_another_number_of_groups_is_refused_by_both_numbers(machines: Machines) -> None:
    """Before a file is touched."""
    directory = machines.directory / "node-0"
    directory.mkdir()
    (directory / "groups.json").write_text('{"count": 2, "hash": "crc32/4096"}')

    ended = subprocess.run(
        machines.command(0, groups="4"),
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=patient(DEADLINE_S),
    )

    assert ended.returncode == 2
    assert has_facts(ended.stderr, "groups=2", "groups=4")
    assert [each.name for each in directory.iterdir()] == ["groups.json"]
