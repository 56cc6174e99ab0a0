"""The loads of many sessions against a real cluster: sessions are opened, answered, and closed again."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.system.fork_server import ForkedGroup
from tests.waiting import patient
from trimaran.benchmarks.peers.many_sessions import TrimaranSessions
from trimaran.benchmarks.peers.peer import LoadPoint, SessionsLoad, StoreOperation
from trimaran.benchmarks.peers.trimaran import TrimaranKv
from trimaran.benchmarks.rig.member_status import wait_for_status

SHORT_LOGS = {"term_length_bytes": "1MiB", "segment_length_bytes": "1MiB"}
"""A segment of the default length is 128 MiB, which are written at the start and read by the check at the end."""


def test_sessions_of_the_raw_load_are_answered_and_closed_again(tmp_path: Path) -> None:
    """The raw load speaks our wire without our client."""
    ours = TrimaranSessions(1)
    # The load waits ten seconds for the ends of its sessions: in that time none of them is to time out.
    ours._settings = {**ours._settings, **SHORT_LOGS, "session_timeout_ms": "60000"}
    with ForkedGroup() as group:
        ours.start(tmp_path, group)

        load = SessionsLoad(sessions=12, payload=32, processes=2, warmup_s=0.1, measure_s=0.5)
        measured = ours.load_sessions(load, tmp_path, group.processes)

        assert measured.messages_per_s > 0
        assert measured.p50_us is not None
        assert measured.server_cpu_us is not None
        closed = wait_for_status(ours.cluster, 0, lambda status: status.session_count == 0, time_limit_s=patient(5.0))
        assert asyncio.run(closed).session_count == 0


def test_two_processes_share_the_sessions_and_operations_of_a_store(tmp_path: Path) -> None:
    ours = TrimaranKv(1)
    ours._settings = {**ours._settings, **SHORT_LOGS}
    with ForkedGroup() as group:
        ours.start(tmp_path, group)

        measured = ours.operate(LoadPoint(2, 5, StoreOperation.PUT), messages=101, payload=32)

    assert measured.messages_per_s > 0
    assert measured.client_cpu_us is not None
    names = sorted(path.name for path in tmp_path.glob("store-client-*.log"))
    assert names == ["store-client-0.log", "store-client-1.log"]
