"""A service by a careless author, and a client that makes it show.

nested    a request of JSON that is nested deep: whether that is an answer or an error, it is the same everywhere
raises    a request on which the service raises: an answer like any other
memory, refuses, interrupted
          a request on which one member alone has no memory, is refused by its operating system, or ends its process.
          That member has to stop before it answers; the others go on. It is started again when it has what it
          lacked, and comes to the same state
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Final

from ...client import ClusterClient, RequestFailedError
from ...service_api import ClientSession, Cluster, SnapshotImage
from ...service_api.errors import ClusterError
from .cluster import ChaosCluster
from .inflicting import FaultRecord
from .schedule import ChaosFault, PlannedFault
from .service import HEAD, ChaosService

CARELESS_SERVICE: Final = "trimaran.benchmarks.chaos.careless:CarelessChaosService"
_MARK: Final = b"careless "
_CLIENT: Final = 1 << 21
_COUNT_REGISTER: Final = 900
_END_S: Final = 20.0
_ANSWER_S: Final = 40.0
_RETURN_S: Final = 60.0


class CarelessAct(StrEnum):
    """What a request makes the service do."""

    NESTED = "nested"
    RAISES = "raises"
    MEMORY = "memory"
    REFUSES = "refuses"
    INTERRUPTED = "interrupted"


OF_ONE_MEMBER: Final = frozenset({CarelessAct.MEMORY, CarelessAct.REFUSES, CarelessAct.INTERRUPTED})


class CarelessChaosService(ChaosService):
    """The campaign's service, which also does what its requests say."""

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        """Keep the cluster."""
        self._cluster = cluster
        await super().on_start(cluster, snapshot)

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        """Run an operation, or be careless."""
        text = bytes(payload[HEAD.size :])
        if not text.startswith(_MARK):
            return super().on_request(session, timestamp, payload)
        act, _, rest = text[len(_MARK) :].decode().partition(" ")
        if act == CarelessAct.NESTED:
            json.loads(rest)
        elif act == CarelessAct.RAISES:
            raise KeyError(rest)
        else:
            member_id, flag = rest.split(" ", 1)
            if int(member_id) == self._cluster.member_id and Path(flag).exists():
                _fail(CarelessAct(act))
        self.registers[_COUNT_REGISTER] = self.registers.get(_COUNT_REGISTER, 0) + 1
        return b"%d" % self.registers[_COUNT_REGISTER]


def _fail(act: CarelessAct) -> None:
    if act is CarelessAct.MEMORY:
        raise MemoryError
    if act is CarelessAct.REFUSES:
        raise OSError(24, "Too many open files")
    raise KeyboardInterrupt


@dataclass(slots=True, frozen=True)
class PlannedAct:
    """One act, and when."""

    act: CarelessAct
    at_s: float
    member_id: int
    depth: int

    def __str__(self) -> str:
        what = f"depth={self.depth}" if self.act is CarelessAct.NESTED else f"member {self.member_id}"
        return f"{self.at_s:7.2f} s  {self.act:<14} {'' if self.act is CarelessAct.RAISES else what}"


def draw_acts(seed: str, *, seconds: float, member_count: int) -> list[PlannedAct]:
    """Draw the acts of one round; each comes once before any comes twice."""
    random = Random(f"{seed} careless")
    acts: list[PlannedAct] = []
    pending: list[CarelessAct] = []
    at_s = 1.0
    while at_s < seconds - 4.0:
        if not pending:
            pending = random.sample(list(CarelessAct), len(CarelessAct))
        act = pending.pop()
        acts.append(PlannedAct(act, round(at_s, 2), random.randrange(member_count), random.randint(200, 2_000)))
        at_s += random.uniform(3.0, 6.0) if act in OF_ONE_MEMBER else random.uniform(0.3, 1.5)
    return acts


class CarelessClient:
    """Sends the acts, one after the other, and looks at what members do."""

    def __init__(
        self, cluster: ChaosCluster, directory: Path, on_change: Callable[[str], None], *, begun_ns: int
    ) -> None:
        self.records: list[FaultRecord] = []
        self.finished = asyncio.Event()
        self._cluster = cluster
        self._directory = directory
        self._on_change = on_change
        self._begun_ns = begun_ns

    async def run(self, acts: Sequence[PlannedAct]) -> None:
        """Do all acts."""
        try:
            await self._run(acts)
        finally:
            self.finished.set()

    async def _run(self, acts: Sequence[PlannedAct]) -> None:
        async with await ClusterClient.connect(config=self._cluster.client_config) as client:
            for number, planned in enumerate(acts, start=1):
                await asyncio.sleep(max(self._begun_ns / 1e9 + planned.at_s - time.monotonic(), 0))
                self._on_change(f"{planned.act} {planned.member_id}")
                plan = PlannedFault(
                    number=number, kind=ChaosFault.CARELESS, at_s=planned.at_s, duration_s=0.0, target=planned.member_id
                )
                record = FaultRecord(plan=plan, member_id=planned.member_id, begun_ns=time.monotonic_ns())
                self.records.append(record)
                try:
                    record.note = f"{planned.act}: {await self._do(client, planned, number)}"
                finally:
                    record.ended_ns = time.monotonic_ns()

    async def _do(self, client: ClusterClient, planned: PlannedAct, number: int) -> str:
        head = HEAD.pack(_CLIENT, number) + _MARK + planned.act.encode() + b" "
        if planned.act is CarelessAct.NESTED:
            return await self._ask(client, head + b"[" * planned.depth + b"]" * planned.depth)
        if planned.act is CarelessAct.RAISES:
            return await self._ask(client, head + b"nothing")
        return await self._fail_alone(client, head, planned)

    async def _ask(self, client: ClusterClient, payload: bytes) -> str:
        try:
            async with asyncio.timeout(_ANSWER_S):
                return (await client.request(payload)).decode()
        except RequestFailedError as error:
            return error.text[:80]
        except TimeoutError:
            self._cluster.violations.append(f"no answer in {_ANSWER_S:g} s: {payload[HEAD.size :][:60]!r}")
            return "no answer"
        except ClusterError as error:
            return str(error)

    async def _fail_alone(self, client: ClusterClient, head: bytes, planned: PlannedAct) -> str:
        """Have one member fail, and see that it stops and comes back while the others answer."""
        cluster, member_id = self._cluster, planned.member_id
        flag = self._directory / f"careless-{planned.act}-{planned.at_s}"
        flag.touch()
        cluster.expect_end(member_id)
        answer = await self._ask(client, head + f"{member_id} {flag}".encode())
        status = await cluster.wait_for_end(member_id, _END_S)
        flag.unlink()
        if status is None:
            cluster.violations.append(f"member {member_id} goes on after {planned.act} in its service")
            await cluster.kill(member_id)
        elif status == 0:
            cluster.violations.append(f"member {member_id} ended with status 0 after {planned.act} in its service")
        tail = cluster.processes.members[member_id].log_tail(3)
        if status and "on_request" not in tail:
            cluster.violations.append(f"member {member_id} did not say which callback failed:\n{tail}")
        await cluster.start(member_id)
        await cluster.wait_until_serving(member_id, _RETURN_S)
        return f"answer {answer}, the member stopped with status {status}"
