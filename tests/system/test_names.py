"""Members that are found by name, and bind something else than what others dial: real processes on loopback.

Each member has an address of its own, and all have the same ports, as the pods of a StatefulSet have.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.facts import has_facts
from tests.system.fork_server import ForkedGroup
from tests.system.named_node import HostsFile
from tests.waiting import patient, wait_for, wait_until
from trimaran.benchmarks.rig.processes import ManagedProcess, ProcessGroup, find_base_ports
from trimaran.client import ClientConfig, ClusterClient
from trimaran.cluster.cli.shared.examples import examples_directory
from trimaran.cluster.documents.query import StatusQueryError, query_status
from trimaran.service_api.net import sockets
from trimaran.service_api.net.transport import SocketStack

pytestmark = pytest.mark.slow

TIMEOUT_S: Final = 60.0


class NamedCluster:
    """Members with names, an address each, and a file that says which is whose."""

    def __init__(self, directory: Path, group: ProcessGroup) -> None:
        self.directory = directory
        self.group = group
        self.hosts = directory / "hosts"
        self.pattern = f"dns://node-{{member_id}}.test:{find_base_ports(1)[0]}?size=3"
        self.running: dict[int, ManagedProcess] = {}

    def name(self, **addresses: str) -> None:
        """Say where the members are, as node_0="127.0.0.10"; whole, so that nobody reads half of it."""
        text = "".join(f"{address} {name.replace('_', '-')}.test\n" for name, address in addresses.items())
        scratch = self.directory / "hosts.new"
        scratch.write_text(text)
        scratch.replace(self.hosts)

    def start(self, member_id: int, listen: str, **changes: str) -> None:
        """Start a member that binds an address, which others need not know."""
        settings = {
            "member-id": str(member_id),
            "members": self.pattern,
            "listen": listen,
            "directory": str(self.directory / f"node-{member_id}"),
            "service": "access_quota:AccessQuota",
            "service-dir": str(examples_directory()),
            "term-length-bytes": "1MiB",
            "segment-length-bytes": "1MiB",
            "startup-canvass-timeout-ms": "2000",
            "leader-heartbeat-timeout-ms": "1000",
            "log-format": "json",
        } | changes
        flags = [part for name, value in settings.items() for part in (f"--{name}", value)]
        self.running[member_id] = self.spawn("node", *flags, log_path=self.log(member_id))

    def spawn(self, *arguments: str, log_path: Path) -> ManagedProcess:
        """Start a command that looks names up in the file."""
        command = (sys.executable, "-m", "tests.system.named_node", str(self.hosts), *arguments)
        return self.group.spawn(arguments[0], command, log_path=log_path)

    def log(self, member_id: int) -> Path:
        """The log of all runs of a member."""
        return self.directory / f"node-{member_id}.log"

    def stop(self, member_id: int) -> int:
        """Stop a member in order; gives its exit status."""
        process = self.running.pop(member_id)
        process.signal(signal.SIGTERM)
        return process.popen.wait(patient(TIMEOUT_S))

    async def wait_for_event(self, member_id: int, name: str, count: int = 1, **facts: object) -> dict[str, Any]:
        """Wait until a member has logged it so often; gives the last one."""

        def find() -> dict[str, Any] | None:
            lines = self.log(member_id).read_text().splitlines()
            events = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
            found = [event for event in events if event["event"] == name and facts.items() <= event.items()]
            return found[-1] if len(found) >= count else None

        return await wait_for(
            find, timeout_s=TIMEOUT_S, what=lambda: f"{name} {facts} of {member_id}:\n{self.log(member_id).read_text()}"
        )

    async def command(self, *arguments: str, members: str = "") -> str:
        """Run a command on the members, by name unless others are given; gives what it prints."""
        with tempfile.NamedTemporaryFile("r", dir=self.directory) as log:
            asked = (*arguments, "--members", members or self.pattern)
            process = self.spawn(*asked, log_path=Path(log.name))
            await wait_until(lambda: not process.is_running, timeout_s=TIMEOUT_S, what=f"the end of {asked}")
            return log.read()


@contextmanager
def named_cluster(directory: Path) -> Iterator[NamedCluster]:
    with ForkedGroup() as group:
        yield NamedCluster(directory, group)


async def test_members_are_found_by_name_wherever_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two form the cluster while the third has no name yet; it comes, goes, and comes back at another address."""
    with named_cluster(tmp_path) as cluster:
        cluster.name(node_0="127.0.0.10", node_1="127.0.0.11")
        cluster.start(0, "127.0.0.10")
        cluster.start(1, "127.0.0.11")
        told = await cluster.wait_for_event(0, "member_link.unresolved", peer_member_id=2)
        assert has_facts(told["reason"], "host=node-2.test", "file")
        assert "host=node-2.test" in await cluster.command("status", "-o", "json")

        cluster.name(node_0="127.0.0.10", node_1="127.0.0.11", node_2="127.0.0.12")
        cluster.start(2, "127.0.0.12")
        assert "3 of 3 members" in await cluster.command("health", "--wait", "60")

        assert cluster.stop(2) == 0
        cluster.name(node_0="127.0.0.10", node_1="127.0.0.11", node_2="127.0.0.22")
        cluster.start(2, "127.0.0.22")
        assert "3 of 3 members" in await cluster.command("health", "--wait", "60")

        monkeypatch.setattr(sockets, "resolve", HostsFile(cluster.hosts).resolve)
        config = ClientConfig(endpoints=(cluster.pattern,), connect_timeout_s=patient(TIMEOUT_S))
        async with await ClusterClient.connect(config=config) as client:
            assert client.leader_member_id in (0, 1, 2)
        assert [cluster.stop(member_id) for member_id in (0, 1, 2)] == [0, 0, 0]


async def test_a_name_that_leads_to_a_dead_address_first_is_no_obstacle(tmp_path: Path) -> None:
    """A name may have the address of the machine before, and be late to lose it."""
    with named_cluster(tmp_path) as cluster:
        names = {"node_0": "127.0.0.10", "node_1": "127.0.0.11", "node_2": "127.0.0.12"}
        stale = "".join(f"127.0.0.99 {name.replace('_', '-')}.test\n" for name in names)
        cluster.name(**names)
        cluster.hosts.write_text(stale + cluster.hosts.read_text())
        for member_id, address in enumerate(names.values()):
            cluster.start(member_id, address)

        assert "3 of 3 members" in await cluster.command("health", "--wait", "60")


async def test_a_member_whose_own_name_is_unknown_says_what_to_do(tmp_path: Path) -> None:
    with named_cluster(tmp_path) as cluster:
        cluster.name(node_1="127.0.0.11")
        cluster.start(0, "")

        assert cluster.running[0].popen.wait(patient(TIMEOUT_S)) == 2
        line = cluster.log(0).read_text().splitlines()[-1]
        assert "host=node-0.test" in line
        assert "setting listen" in line


async def test_what_is_bound_need_not_be_what_others_dial(tmp_path: Path) -> None:
    """IPv6 on the inside, IPv4 on the outside, and other ports, as behind a NAT: only the forwarder knows both."""
    outside, inside = find_base_ports(2)
    members = f"0=127.0.0.1:{outside}"

    async def forward(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("::1", port)

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                while data := await source.read(65_536):
                    sink.write(data)
            sink.close()

        async with asyncio.TaskGroup() as pumps:
            pumps.create_task(pump(reader, inner_writer))
            pumps.create_task(pump(inner_reader, writer))

    with named_cluster(tmp_path) as cluster:
        cluster.start(0, f"[::1]:{inside}", members=members)
        await cluster.wait_for_event(0, "election.closed")
        assert "no process" in await _status_by_tcp(members), "nobody forwards yet"

        server = await asyncio.start_server(partial(forward, inside), "127.0.0.1", outside)
        async with await ClusterClient.connect(f"127.0.0.1:{outside}") as client:
            assert client.leader_member_id == 0
        server.close()
        assert "1 of 1 members" in await cluster.command("health", "--wait", "60", members=members), "control socket"
        assert cluster.stop(0) == 0


async def _status_by_tcp(members: str) -> str:
    """Ask for the status as a process of another machine would, without the control socket."""
    try:
        await query_status(members.partition("=")[2], 5.0, network=SocketStack(uses_control_sockets=False))
    except StatusQueryError as error:
        return str(error)
    return ""


async def test_without_tls_nothing_but_loopback_is_bound(tmp_path: Path) -> None:
    with named_cluster(tmp_path) as cluster:
        cluster.start(0, "0.0.0.0", members=f"0=127.0.0.1:{find_base_ports(1)[0]}")

        assert cluster.running[0].popen.wait(patient(TIMEOUT_S)) == 2
        assert "endpoint=0.0.0.0:" in cluster.log(0).read_text().splitlines()[-1]
