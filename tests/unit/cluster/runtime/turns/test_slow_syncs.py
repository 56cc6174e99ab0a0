"""A member looks once a second how long its syncs take: it logs a slow one, and tells its consensus module."""

from __future__ import annotations

from pathlib import Path

from structlog.testing import capture_logs

from tests.unit.cluster.testing.simulation.small_cluster import running_cluster
from tests.unit.cluster.testing.simulation.small_world import SECOND
from trimaran.cluster.runtime.watching.recent_syncs import RECENT_LIMIT

SLOW_NS = SECOND // 5


def test_slow_syncs_are_logged_and_told_to_the_consensus_module() -> None:
    with running_cluster() as small:
        leader = small.leader
        assert leader.node is not None
        recent = leader.node.parts.files.member.timed_disk.recent
        now_ns = leader.machine.clock.monotonic_ns()
        for _ in range(RECENT_LIMIT):
            recent.end(99, Path("archive/0-0.rec"), now_ns - SLOW_NS, SLOW_NS)

        with capture_logs() as lines:
            small.cluster.run_for(2 * SECOND)

        assert leader.node.module.ctx.sync_ns == SLOW_NS
        assert [line for line in lines if line["event"] == "sync.slow"] == [
            {
                "event": "sync.slow",
                "log_level": "warning",
                "file": "archive/0-0.rec",
                "duration_ms": 200.0,
                "is_running": False,
                "limit_ms": 100,
                "count": RECENT_LIMIT,
            }
        ]
