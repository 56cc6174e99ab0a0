"""A member looks once a second how long its syncs take: it logs a slow one, and tells its consensus module."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.cluster.testing.simulation.small_cluster import running_cluster
from tests.unit.cluster.testing.simulation.small_world import SECOND
from trimaran.cluster.runtime.turns import wiring
from trimaran.cluster.runtime.watching.recent_syncs import RECENT_LIMIT

SLOW_NS = SECOND // 5


def test_slow_syncs_are_logged_and_told_to_the_consensus_module(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[tuple[str, dict[str, Any]]] = []
    logger = SimpleNamespace(warning=lambda event, **facts: lines.append((event, facts)))
    monkeypatch.setattr(wiring, "logger", logger)
    with running_cluster() as small:
        leader = small.leader
        assert leader.node is not None
        recent = leader.node.parts.files.member.timed_disk.recent
        now_ns = leader.machine.clock.monotonic_ns()
        for _ in range(RECENT_LIMIT):
            recent.end(99, Path("archive/0-0.rec"), now_ns - SLOW_NS, SLOW_NS)

        small.cluster.run_for(2 * SECOND)

        assert leader.node.module.ctx.sync_ns == SLOW_NS
    assert lines == [
        (
            "sync.slow",
            {
                "file": "archive/0-0.rec",
                "duration_ms": 200.0,
                "is_running": False,
                "limit_ms": 100,
                "count": RECENT_LIMIT,
            },
        )
    ]
