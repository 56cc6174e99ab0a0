"""Slow callbacks of a service: what other clients feel while one client's message makes every member wait.

A callback runs in the loop of its member: meanwhile that member receives, sends and records nothing. The followers run
the same callback at the same time, nearly. A follower that hears nothing of its leader for the heartbeat timeout begins
an election.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Final

from ...client import ClientConfig, ClusterClient
from ...cluster.settings.config import NodeConfig
from ...service_api.errors import ClusterError
from ..services import SLOW_SERVICE
from ..services.slow import slow_command
from ..statistics.report import Report
from .disturbances import Disturbance, DisturbingMeter, measure_disturbance
from .open_loop import Place, Step
from .parameters import TailsParameters

RATE_LIMIT_PER_S: Final = 2_000.0
"""Messages a second of the others: few, so that what they feel is the callback and no backlog of their own."""

_IDLE_SHARE: Final = 3
"""Times its own length that a service is left alone between two callbacks, where that is more than a second."""
_INTERVAL_S: Final = 1.0
_LEADER_CHANGED: Final = "leader changed"


def heartbeat_timeout_ms() -> int:
    """Return the default of the setting that is the limit of a callback."""
    return int(NodeConfig.model_fields["leader_heartbeat_timeout_ms"].default)


def measure_callbacks(parameters: TailsParameters, rate: float | None, place: Place, step: Step) -> list[Report]:
    """Measure each length of callbacks; at `rate` where that is less than usual."""
    rows = []
    for callback_ms in parameters.callbacks_ms:
        step(f"callbacks of {callback_ms:g} ms")
        with place() as directory:
            rows.append(_measure(parameters, callback_ms, min(rate or RATE_LIMIT_PER_S, RATE_LIMIT_PER_S), directory))
    return rows


def interval_s(callback_ms: float) -> float:
    """Return how long after the beginning of a callback the next one begins: a second, or four times as long."""
    return max(_INTERVAL_S, (1 + _IDLE_SHARE) * callback_ms / 1e3)


def _measure(parameters: TailsParameters, callback_ms: float, rate: float, directory: Path) -> Report:
    name = f"a callback of {callback_ms:g} ms"
    disturbance = Disturbance(
        names={"slow": name},
        cause=partial(_call, callback_ms, parameters.callback_count),
        service=SLOW_SERVICE,
        after_s=parameters.callback_count * interval_s(callback_ms),
    )
    said: Report = {"what": name, "callback_ms": callback_ms, "interval_s": interval_s(callback_ms)}
    try:
        (row,) = measure_disturbance(parameters, disturbance, rate, directory)
    except ClusterError as error:
        # The load gives up when the leader changes: then there is nothing to be told but that.
        if _LEADER_CHANGED not in str(error):
            raise
        return {**said, "elections": 1}
    return {**row, **said}


async def _call(callback_ms: float, count: int, meter: DisturbingMeter) -> None:
    """Have the service be slow a few times, by messages of a client of its own."""
    begun = await meter.find_leader()
    config = ClientConfig(endpoints=tuple(meter.cluster.ingress_endpoints), client_info="benchmark")
    async with ClusterClient.connect(config=config) as client:
        begin_ns = time.monotonic_ns()
        for number in range(1, count + 1):
            await client.offer(slow_command(callback_ms / 1e3))
            left_s = number * interval_s(callback_ms) - (time.monotonic_ns() - begin_ns) / 1e9
            if number < count:
                await asyncio.sleep(max(0.0, left_s))
        meter.mark("slow", begin_ns, after_s=interval_s(callback_ms))
        await asyncio.sleep(interval_s(callback_ms))
    ended = await meter.find_leader()
    meter.facts["slow"] = {"elections": int(ended.leadership_term_id != begun.leadership_term_id)}
