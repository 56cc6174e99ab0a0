"""The load of many sessions speaks our wire: with the bytes alone it opens, loads and closes sessions of a cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path

from trimaran.benchmarks.peers.many_sessions import TrimaranSessions
from trimaran.benchmarks.peers.peer import SessionsLoad
from trimaran.benchmarks.rig.member_status import wait_for_status
from trimaran.benchmarks.rig.processes import ProcessGroup


def test_sessions_of_the_raw_load_are_answered_and_closed_again(tmp_path: Path) -> None:
    ours = TrimaranSessions(1)
    # The load waits ten seconds for the ends of its sessions: in that time none of them is to time out.
    ours._settings = {**ours._settings, "session_timeout_ms": "60000"}
    with ProcessGroup() as group:
        ours.start(tmp_path, group)

        measured = ours.load_sessions(SessionsLoad(sessions=12, payload=32, processes=2, warmup_s=0.1, measure_s=0.5))

        assert measured.messages_per_s > 0
        assert measured.p50_us is not None
        assert measured.server_cpu_us is not None
        closed = wait_for_status(ours.cluster, 0, lambda status: status.session_count == 0, time_limit_s=5.0)
        assert asyncio.run(closed).session_count == 0
