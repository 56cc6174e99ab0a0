"""The fail-over benchmark: what counts as the next leader's reply, its figures, and a whole run that leaves nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.unit.client.fake_member import fake_cluster
from tests.waiting import wait_until
from trimaran.benchmarks.app import main
from trimaran.benchmarks.load.echo import SEQUENCE, LoadError
from trimaran.benchmarks.load.failover import FailoverLoad
from trimaran.benchmarks.rig.member_log import RigMemberLog
from trimaran.benchmarks.scenarios.failover import FailoverParameters, FaultKind, run, steps_before_reply
from trimaran.client import ClusterClient
from trimaran.service_api.errors import ConfigurationError

OLD_TERM, NEW_TERM = 3, 4


def reply(load: FailoverLoad, sequence: int, term_id: int) -> None:
    load.on_message(0, term_id, memoryview(SEQUENCE.pack(sequence)))


def test_only_a_message_offered_after_the_fault_and_committed_by_a_later_leader_counts() -> None:
    load = FailoverLoad(rate_per_s=100)
    load._sent = 5
    expected = load.expect_next_leader(OLD_TERM)

    reply(load, 3, OLD_TERM)
    reply(load, 4, NEW_TERM)
    reply(load, 5, OLD_TERM)
    assert not expected.replied.is_set()
    load.on_new_leader(NEW_TERM, 1)
    reply(load, 7, NEW_TERM)

    assert expected.replied.is_set()
    assert expected.leadership_term_id == NEW_TERM
    assert 0 < expected.told_ns <= expected.replied_ns


async def test_traffic_is_steady_and_a_reply_that_comes_twice_ends_the_run() -> None:
    load = FailoverLoad(rate_per_s=1_000)
    async with (
        asyncio.timeout(30),
        fake_cluster() as cluster,
        ClusterClient.connect(cluster.endpoints, egress_listener=load) as client,
    ):
        traffic = asyncio.create_task(load.run(client))
        load.is_paused = False
        await cluster.until(lambda: load.replied_count >= 20)
        reply(load, 0, OLD_TERM)

        with pytest.raises(LoadError, match="sequence=0 last="):
            await traffic


def test_what_the_new_leader_does_after_the_first_reply_is_no_step_to_it(tmp_path: Path) -> None:
    """A loaded machine can elect once more before the member's log is read."""
    log = RigMemberLog(tmp_path / "member-1.log")
    states = [(10, "CANVASS"), (40, "CANDIDATE_BALLOT"), (60, "LEADER_READY"), (90, "CANVASS")]
    at = {ms: datetime.fromtimestamp(1_000 + ms / 1_000, UTC).isoformat() for ms, _ in states}
    lines = [{"event": "election.state_changed", "new": state, "timestamp": at[ms]} for ms, state in states]
    log.path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    steps = steps_before_reply(log, 1_000 * 10**9, 70.0)

    assert steps == {"CANVASS": 10.0, "CANDIDATE_BALLOT": 40.0, "LEADER_READY": 60.0}


@pytest.mark.parametrize(
    "values",
    [
        {"runs": 0},
        {"members": 2},
        {"kinds": ()},
        {"kinds": (FaultKind.KILL9,) * 2},
        {"rate": 0.5},
        {"request_rate": 1e9},
    ],
    ids=str,
)
def test_parameters_that_make_no_run_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(values))):
        FailoverParameters(**values)


def test_an_unknown_kind_is_one_line_and_exit_status_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "failover", "--kinds", "kill9,fire"])
    monkeypatch.setattr("signal.signal", lambda number, handler: None)

    with pytest.raises(SystemExit) as raised:
        main()

    assert raised.value.code == 2
    assert (
        capsys.readouterr().err
        == "benchmarks: kinds='fire' expected some of kill9,sigstop,cut_link,hand_over,sigterm\n"
    )


def pids_below(directory: Path) -> list[int]:
    """The processes that name a directory on their command lines."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(directory) in command and int(process.name) != os.getpid():
            found.append(int(process.name))
    return found


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param((FaultKind.KILL9, FaultKind.HAND_OVER), marks=pytest.mark.slow, id="a sample"),
        pytest.param(tuple(FaultKind), marks=pytest.mark.campaign, id="all"),
    ],
)
def test_each_kind_of_fault_is_measured_and_every_process_ended(tmp_path: Path, kinds: tuple[FaultKind, ...]) -> None:
    """Issue 3: keys kill9, sigstop and cut_link, each with p50_ms, p99_ms and max_ms; issue 23: and the hand-overs."""
    directory = tmp_path / "data"
    settings = {
        "leader_heartbeat_timeout_ms": "4000",
        "startup_canvass_timeout_ms": "8000",
        "term_length_bytes": "1MiB",
        "segment_length_bytes": "1MiB",
    }

    parameters = FailoverParameters(runs=1, kinds=kinds, request_rate=500.0, node_settings=settings)
    report = run(parameters, directory=directory)

    for kind in kinds:
        figures = report[kind]
        assert figures["count"] == len(figures["values_ms"]) == 1
        assert 0 < figures["p50_ms"] == figures["p99_ms"] == figures["max_ms"]
        assert list(report[f"{kind}_steps_p50_ms"])[-1] == "client.replied"
    assert report["kill9"]["max_ms"] < 4_000  # a closed link is news: the heartbeat timeout is not waited for
    if FaultKind.SIGSTOP in kinds:
        assert report["sigstop"]["max_ms"] > 4_000
        assert report["sigstop"]["target_ms"] == 4_500
    assert (report["environment"]["file_sync_level"], report["environment"]["election_timeout_ms"]) == (1, 500)
    assert json.loads(json.dumps(report))["runs"][0]["kind"] == "kill9"
    assert pids_below(directory) == []


@pytest.mark.campaign
async def test_an_interrupted_run_leaves_no_process_behind(tmp_path: Path) -> None:
    command = ("-m", "trimaran.benchmarks", "failover", "--kinds", "sigstop", "--dir", str(tmp_path / "data"))
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    log = RigMemberLog(tmp_path / "data" / "direct" / "member-0.log")
    await wait_until(lambda: log.path.exists() and log.leadership() is not None, timeout_s=60, what="a leader")

    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(60):
        await process.wait()

    assert process.returncode != 0
    assert pids_below(tmp_path) == []
