"""Time travel is measured on a log that no cluster wrote, short here: it is as a member would have left it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.interchange.samples import run as run_command
from trimaran.benchmarks.logs.time_travel_log import make_log
from trimaran.benchmarks.scenarios.time_travel import TimeTravelParameters, run
from trimaran.benchmarks.services.time_travel import AnsweringSumService, RoundingSumService
from trimaran.cluster.time_travel import replay_service, verify_snapshots, what_if
from trimaran.service_api import ConfigurationError


def test_the_log_is_one_that_a_member_could_have_left(tmp_path: Path) -> None:
    positions = asyncio.run(
        make_log(tmp_path / "node", AnsweringSumService, message_count=6000, payload_length=40, snapshot_count=3)
    )

    verified = run_command("archive", "verify", tmp_path / "node" / "archive")
    planned = run_command("recovery-plan", tmp_path / "node")
    replayed = replay_service(tmp_path / "node", AnsweringSumService, snapshot="none")
    assert isinstance(replayed.service, AnsweringSumService)
    assert replayed.service.message_count == 6000
    assert (verified.exit_code, planned.exit_code) == (0, 0), verified.output + planned.output
    assert len(positions) == 3
    assert [verdict.to_position for verdict in verify_snapshots(tmp_path / "node", AnsweringSumService)] == positions
    changed = what_if(tmp_path / "node", old=AnsweringSumService, new=RoundingSumService)
    assert changed.first is not None
    assert changed.first.new is not None
    assert changed.first.new.payload == b"seven"


def test_every_way_is_measured() -> None:
    report = run(TimeTravelParameters(messages=3000, snapshots=2, rounds=1, with_spark=False))

    assert len(report["messages_per_cpu_s"]) == 6
    assert all(rate > 0 for rate in report["messages_per_cpu_s"].values())


def test_values_that_make_no_run_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="messages=10"):
        TimeTravelParameters(messages=10)
