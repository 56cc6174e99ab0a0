"""A key-value client beside a client that takes all it can get of one limit: its latencies before, and meanwhile.

Each kind of greed has a cluster of its own, with the ready-made services and the settings of every other cluster.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final

from ...client import ClientConfig, ClusterClient
from ...client.ready_made import KvClient
from ...service_api.ready_made import READY_MADE
from ..load.coordination import spawn_clients
from ..load.greedy_process import GreedyLoad
from ..rig.processes import ClusterProcesses, ProcessGroup
from ..statistics.histogram import Histogram
from ..statistics.report import Report, latency_figures

_CONNECT_TIMEOUT_S: Final = 60.0
_PAUSE_S: Final = 0.01
_WARMUP_S: Final = 0.5


async def measure_kind(kind: str, seconds: float, cluster: ClusterProcesses, directory: Path) -> Report:
    """Measure puts of a client: alone, beside one kind of greed, and beside it afterwards, when it has its share.

    Raises:
        ProcessError: the greedy process, or a member, ended.
    """
    endpoints = cluster.ingress_endpoints
    config = ClientConfig(endpoints=tuple(endpoints), connect_timeout_s=_CONNECT_TIMEOUT_S, client_info="benchmark")
    async with ClusterClient.connect(config=config) as client:
        kv = KvClient(client)
        await _put(kv, _WARMUP_S)
        calm = await _put(kv, seconds)
        with ProcessGroup() as group:
            told = [GreedyLoad(endpoints=endpoints, kind=kind)]
            spawned = spawn_clients(
                group, told, directory=directory, name=f"greedy-{kind}", module="load.greedy_process"
            )
            async with spawned as (greedy,):
                await greedy.wait_for("ready")
                greedy.go()
                taking = await _put(kv, seconds)
                holding = await _put(kv, seconds)
                greedy.go()
                got = await greedy.wait_for("measured")
    cluster.check_running()
    return {
        **{f"calm_{name}": value for name, value in calm.items()},
        **{f"taking_{name}": value for name, value in taking.items()},
        "taking_p99_times_calm": round(taking["p99_us"] / calm["p99_us"], 2),
        **holding,
        "p99_times_calm": round(holding["p99_us"] / calm["p99_us"], 2),
        "taken": got["taken"],
        "refused": got["refused"],
        "refusal": got["refusal"],
    }


def services() -> str:
    """Return the ready-made services, as the setting `service` takes them."""
    return ",".join(each.target for each in READY_MADE.values())


async def _put(kv: KvClient, seconds: float) -> Report:
    """Put one key, again and again, with a pause between."""
    latencies_ns: list[int] = []
    histogram, end_s = Histogram(), time.monotonic() + seconds
    while time.monotonic() < end_s:
        begin_ns = time.monotonic_ns()
        await kv.put("modest", str(len(latencies_ns)))
        latencies_ns.append(time.monotonic_ns() - begin_ns)
        await asyncio.sleep(_PAUSE_S)
    histogram.record_all(latencies_ns)
    return {"puts": histogram.count, **latency_figures(histogram)}
