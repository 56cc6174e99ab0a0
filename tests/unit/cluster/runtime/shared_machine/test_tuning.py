"""What a member does because others run on its machine: all of it through one seam, and none of it when that is off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cluster.runtime.fake_kernel import FakeKernel
from tests.unit.cluster.runtime.log_member import member
from tests.unit.cluster.runtime.turns.test_agent import ManualClock
from tests.waiting import patient, until, within
from trimaran.benchmarks.rig.processes import find_base_ports
from trimaran.benchmarks.services.echo import EchoService
from trimaran.client import ClientConfig, ClusterClient
from trimaran.cluster.node.node import Node
from trimaran.cluster.runtime.shared_machine.processor_pressure import LOOK_INTERVAL_NS
from trimaran.cluster.runtime.shared_machine.processor_share import COPYING_NICE
from trimaran.cluster.runtime.shared_machine.tuning import LONG_BATCH_S, MachineTuning, SharedMachineTuning
from trimaran.cluster.settings.config import NodeConfig, parse_members

DEADLINE_S = 60.0
NEVER_US = 3_600_000_000
"""A late sync that no test lives to see."""


async def test_leader_collects_batches_only_where_processors_are_short() -> None:
    kernel, clock = FakeKernel(), ManualClock()
    async with member() as me:
        host = kernel.host(clock=clock)
        tuning = SharedMachineTuning(me.ctx, me.archive, host, is_disk_shared=True, on_failed=me.failures.append)
        assert tuning.batch_delay_s() == 0

        clock.now_ns += LOOK_INTERVAL_NS
        kernel.waited_ns += LOOK_INTERVAL_NS // 2

        assert tuning.batch_delay_s() == LONG_BATCH_S


async def test_leader_collects_batches_while_its_log_is_copied() -> None:
    clock = ManualClock()
    async with member() as me:
        host = FakeKernel().host(clock=clock)
        tuning = SharedMachineTuning(me.ctx, me.archive, host, is_disk_shared=True, on_failed=me.failures.append)
        pace = tuning.make_replay_pace(append_position=0)
        assert tuning.batch_delay_s() == 0

        pause_ns = pace.pause_ns(1000, 32, begin_ns=clock.now_ns, end_ns=clock.now_ns + 10_000_000)

        assert pause_ns > 0
        assert tuning.batch_delay_s() == LONG_BATCH_S
        clock.now_ns += 1_000_000_000
        assert tuning.batch_delay_s() == 0


async def test_without_tuning_nothing_waits_and_nothing_is_asked() -> None:
    tuning = MachineTuning()
    async with member(tuning=tuning) as me:
        me.ctx.is_spare = True
        me.append(1)
        me.control.flush()

        assert me.recorded == [me.ctx.log_buffer.append_position]
        assert tuning.batch_delay_s() == 0
        assert tuning.make_replay_pace(append_position=0) is None


class Members:
    """Three members in this process, on one machine whose kernel is the test's."""

    def __init__(self, directory: Path, stack: AsyncExitStack, shared_machine: str) -> None:
        self.kernel = FakeKernel()
        self.nodes: dict[int, Node] = {}
        self._directory, self._stack, self._shared_machine = directory, stack, shared_machine
        self._heartbeat_timeout_ms = int(patient(200))
        ports = find_base_ports(3)
        self._members = parse_members(",".join(f"{number}=127.0.0.1:{port}" for number, port in enumerate(ports)))

    async def start(self, member_id: int) -> None:
        """Start a member; it is stopped at the end of the test."""
        facts: dict[str, Any] = {"shared_machine": self._shared_machine}  # a value that the type checker cannot see
        config = NodeConfig(
            member_id=member_id,
            members=self._members,
            directory=self._directory / str(member_id),
            service="trimaran.benchmarks.services.echo:EchoService",
            term_length_bytes=1 << 16,
            segment_length_bytes=1 << 16,
            mtu_length_bytes=1408,
            startup_canvass_timeout_ms=2 * self._heartbeat_timeout_ms,
            election_timeout_ms=100,
            election_status_interval_ms=20,
            leader_heartbeat_timeout_ms=self._heartbeat_timeout_ms,
            leader_heartbeat_interval_ms=40,
            **facts,
        )
        host = self.kernel.host(spare_sync_delay_us=NEVER_US)
        node = self.nodes[member_id] = await self._stack.enter_async_context(
            Node.open(config, EchoService(), host=host)
        )
        self._stack.push_async_callback(self._stop, node, asyncio.create_task(node.run()))

    async def _stop(self, node: Node, running: asyncio.Task[Any]) -> None:
        node.stop()
        with suppress(asyncio.CancelledError):
            await running

    async def connect(self) -> ClusterClient:
        config = ClientConfig(
            endpoints=tuple(member.ingress for member in self._members), connect_timeout_s=patient(DEADLINE_S)
        )
        return await self._stack.enter_async_context(await ClusterClient.connect([], config=config))

    def durable_positions(self) -> list[int]:
        return [node.module.ctx.append_position for node in self.nodes.values()]


async def echo(client: ClusterClient, count: int) -> None:
    """Send messages one after the other, each when the one before has come back."""
    egress = client.egress()
    for number in range(count):
        await client.offer(b"%d" % number)
        assert bytes((await anext(egress)).payload) == b"%d" % number


@pytest.mark.parametrize("shared_machine", ["auto", "off"])
async def test_one_setting_switches_it_off_and_messages_come_back_all_the_same(
    shared_machine: str, tmp_path: Path
) -> None:
    """Two members serve, a third copies their log and follows: where it is off nobody waits, lowers its priority,
    reads how long it waited, or yields.
    """
    is_on = shared_machine == "auto"
    async with within(DEADLINE_S), AsyncExitStack() as stack:
        members = Members(tmp_path, stack, shared_machine)
        await members.start(0)
        await members.start(1)
        client = await members.connect()
        await echo(client, 50)
        await members.start(2)
        late = members.nodes[2]
        await until(lambda: late.module.election is None)
        await until(lambda: late.module.ctx.is_spare or members.nodes[1].module.ctx.is_spare)
        await echo(client, 50)

        if is_on:
            await until(lambda: len({*members.durable_positions()}) > 1)
        else:
            await until(_are_equal(members.durable_positions))
        assert (COPYING_NICE in members.kernel.nices) is is_on
        assert bool(members.kernel.look_count) is is_on
        assert bool(members.kernel.yield_count) is is_on
        assert [node.archive.config.drops_copied_pages for node in members.nodes.values()] == [is_on] * 3
        assert [bool(node.archive.make_replay_pace(0)) for node in members.nodes.values()] == [is_on] * 3
    assert members.kernel.nices[-1:] == ([0] if is_on else [])


def _are_equal(positions: Callable[[], list[int]]) -> Callable[[], bool]:
    return lambda: len({*positions()}) == 1
