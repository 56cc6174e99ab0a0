"""State at any position: what a member's service was, counted by the member itself, and what a replay makes of it."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.unit.cluster.time_travel.ledger import Ledger
from tests.unit.cluster.time_travel.recorded import Recorded, member
from tests.waiting import patient, within
from trimaran.archive import CorruptionError
from trimaran.cluster.time_travel import (
    MemberLog,
    Output,
    OutputKind,
    ReplayedService,
    SnapshotChoice,
    replay_service,
)
from trimaran.service_api import ClusteredService, ConfigurationError
from trimaran.service_api.types import TimeUnit


def ledger_of(replayed: ReplayedService) -> Ledger:
    assert isinstance(replayed.service, Ledger)
    return replayed.service


def test_the_state_at_every_position_is_the_one_that_the_member_had(recorded: Recorded) -> None:
    replayed = replay_service(recorded.directory, Ledger, snapshot="none", position=0)

    digests = {}
    for position in sorted(recorded.observed):
        replayed.advance(position)
        digests[position] = ledger_of(replayed).digest

    assert digests == recorded.observed
    assert len(digests) > 300


def test_a_replay_from_the_newest_snapshot_below_comes_to_the_same_state(recorded: Recorded) -> None:
    positions = random.Random(1).sample(sorted(recorded.observed), 20)

    found = {position: replay_service(recorded.directory, Ledger, position=position) for position in positions}

    assert {position: ledger_of(each).digest for position, each in found.items()} == {
        position: recorded.observed[position] for position in positions
    }
    assert {each.start_position for each in found.values()} <= {0, *recorded.snapshots}
    assert all(each.start_position <= position for position, each in found.items())
    assert {each.start_position > 0 for each in found.values()} == {True, False}


def test_every_snapshot_can_be_gone_on_from(recorded: Recorded) -> None:
    last = max(recorded.observed)

    choices: list[SnapshotChoice] = [*recorded.snapshots[:2], "none"]
    ends = [replay_service(recorded.directory, Ledger, position=last, snapshot=choice) for choice in choices]

    assert {ledger_of(each).digest for each in ends} == {recorded.observed[last]}
    assert [each.start_position for each in ends] == [*recorded.snapshots[:2], 0]
    assert len({tuple(each.timers) for each in ends}) == 1
    assert [correlation_id for correlation_id, _ in ends[0].timers] == [77]


@pytest.mark.parametrize("distance", [1, 31, 32, 100])
def test_a_position_within_an_entry_stands_for_the_entry_before_it(recorded: Recorded, distance: int) -> None:
    position = sorted(recorded.observed)[150]

    replayed = replay_service(recorded.directory, Ledger, position=position - distance)

    before = max(each for each in recorded.observed if each <= position - distance)
    assert (replayed.log_position, ledger_of(replayed).digest) == (before, recorded.observed[before])


def test_a_position_between_the_fragments_of_a_message_stands_for_what_was_before(recorded: Recorded) -> None:
    positions = sorted(recorded.observed)
    end, before = next((b, a) for a, b in itertools.pairwise(positions) if b - a > 5000)

    found = [replay_service(recorded.directory, Ledger, position=p) for p in (before + 1408, end - 32, end)]

    assert [each.log_position for each in found] == [before, before, end]


def test_requests_are_answered_as_they_were(recorded: Recorded) -> None:
    outputs: list[Output] = []

    replay_service(recorded.directory, Ledger, snapshot="none", sink=outputs.append)

    replies = [json.loads(output.payload) for output in outputs if output.kind is OutputKind.REPLY]
    answered = {tuple(reply) for reply in recorded.replies}
    assert answered <= {tuple(reply) for reply in replies}
    assert all(output.code == 0 for output in outputs if output.kind is OutputKind.REPLY)
    assert [reply[0] for reply in replies] == [o.position for o in outputs if o.kind is OutputKind.REPLY]


def test_outputs_are_counted_and_told_of_every_kind(recorded: Recorded) -> None:
    outputs: list[Output] = []

    replayed = replay_service(recorded.directory, Ledger, snapshot="none", sink=outputs.append)
    counted = replay_service(recorded.directory, Ledger, snapshot="none")

    counts = {kind: sum(output.kind is kind for output in outputs) for kind in OutputKind}
    assert counts == dict(replayed.output_counts) == dict(counted.output_counts)
    assert all(counts.values())
    assert [output.position for output in outputs] == sorted(output.position for output in outputs)
    assert {output.cluster_session_id for output in outputs if output.kind is OutputKind.OFFER} == {
        -(1 << 63) + number for number in range(1, counts[OutputKind.OFFER] + 1)
    }
    scheduled = [o for o in outputs if o.kind is OutputKind.TIMER_SCHEDULED]
    assert all(o.deadline is not None and o.deadline > o.timestamp for o in scheduled)


def test_what_a_callback_raises_is_kept_and_the_log_goes_on(recorded: Recorded) -> None:
    replayed = replay_service(recorded.directory, Ledger, snapshot="none")

    error = replayed.errors[0]
    assert replayed.error_count == len(replayed.errors) == 36
    assert (error.service, error.error) == ("Ledger", f"ValueError: boom at {error.timestamp}")
    assert error.position in recorded.observed
    assert "in on_session_message" in error.traceback


def test_a_time_stands_for_all_entries_up_to_it(recorded: Recorded) -> None:
    outputs: list[Output] = []
    replay_service(recorded.directory, Ledger, snapshot="none", sink=outputs.append)
    times = sorted({output.timestamp for output in outputs})
    log = MemberLog.open(recorded.directory)

    found = {time: replay_service(log, Ledger, time=time, snapshot="none", position=None) for time in times[::9]}

    last_position = {output.timestamp: output.position for output in outputs}
    for time, replayed in found.items():
        assert replayed.cluster_time == time
        assert replayed.log_position >= last_position[time]
    moment = datetime.fromtimestamp(times[9] / 1000, tz=UTC)
    assert replay_service(log, Ledger, time=moment).log_position == found[times[9]].log_position
    assert replay_service(log, Ledger, time=times[0] - 10**6).log_position == 0
    assert replay_service(log, Ledger, time=times[-1] + 10**6).log_position == log.committed_position


def test_nothing_in_the_directory_is_changed(recorded: Recorded) -> None:
    def content() -> dict[Path, tuple[bytes, int]]:
        files = (path for path in recorded.directory.rglob("*") if path.is_file())
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}

    before = content()
    replay_service(recorded.directory, Ledger, bound="recorded")

    assert content() == before


def test_what_the_directory_does_not_know_to_be_committed_is_not_delivered(recorded: Recorded, tmp_path: Path) -> None:
    """A member that was killed leaves a log behind its newest snapshot and term; nobody can tell what of it counts."""
    shutil.copytree(recorded.directory, tmp_path / "node")
    log = MemberLog.open(tmp_path / "node")
    assert log.recording_log.invalidate_latest_snapshot()
    committed = log.committed_position

    replayed = replay_service(log, Ledger)

    assert committed == recorded.snapshots[1] < max(recorded.observed)
    assert replayed.log_position == committed
    assert ledger_of(replayed).digest == recorded.observed[max(p for p in recorded.observed if p <= committed)]
    assert replay_service(log, Ledger, bound="recorded").log_position > committed
    with pytest.raises(ConfigurationError, match=rf"position={committed + 32} expected 0 to {committed}.*recorded"):
        replay_service(log, Ledger, position=committed + 32)
    assert replay_service(log, Ledger, bound=committed + 32).end_position == committed + 32


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        pytest.param({"position": -1}, "position=-1 .*0 to", id="position"),
        pytest.param({"position": 1, "time": 1}, "position=1 time=1: .*one", id="both"),
        pytest.param({"snapshot": 64}, r"snapshot=64 expected one of \[\d+", id="snapshot"),
        pytest.param({"snapshot": "first"}, "snapshot='first' .*newest, oldest, none", id="choice"),
        pytest.param({"bound": "durable"}, "bound='durable' .*committed, recorded", id="bound"),
        pytest.param({"bound": 1 << 40}, f"bound={1 << 40} expected 0 to", id="bound position"),
        pytest.param({"service_id": 10}, "service_id=10", id="service id"),
    ],
)
def test_bad_arguments_are_named(recorded: Recorded, arguments: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        replay_service(recorded.directory, Ledger, **arguments)  # type: ignore[arg-type]  # each case another one


def test_no_member_or_no_service_is_said_so(recorded: Recorded, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no archive\.catalog"):
        replay_service(tmp_path, Ledger)
    with pytest.raises(ConfigurationError, match=r"service module.*module=no_such"):
        replay_service(recorded.directory, "no_such:Service", service_dir=tmp_path)
    with pytest.raises(ConfigurationError, match="service"):
        replay_service(recorded.directory, dict)  # type: ignore[arg-type]  # what a user may get wrong


def test_damage_is_named_where_it_lies(recorded: Recorded, tmp_path: Path) -> None:
    shutil.copytree(recorded.directory, tmp_path / "node")
    segment = tmp_path / "node" / "archive" / "0-0.rec"
    data = bytearray(segment.read_bytes())
    position = sorted(recorded.observed)[100]
    data[position + 40] ^= 1
    segment.write_bytes(data)

    with pytest.raises(CorruptionError, match=f"position={position}"):
        replay_service(tmp_path / "node", Ledger, snapshot="none")


def test_a_purged_log_is_replayed_from_its_snapshots_only(tmp_path: Path) -> None:
    """With less kept than all, the log begins above 0: positions below the oldest snapshot are gone."""
    directory = tmp_path / "node-0"

    async def run() -> list[int]:
        from trimaran.client import ClientConfig, ClusterClient

        taken = []
        settings = {"keep_all": False, "keep_snapshots": 1, "keep_log_bytes": 0}
        async with within(30), member(directory, Ledger(), **settings) as (node, endpoint):
            config = ClientConfig(endpoints=(endpoint,), connect_timeout_s=patient(30))
            async with await ClusterClient.connect([], config=config) as client:
                for _ in range(2):
                    for number in range(40):
                        await client.offer(b"echo %d " % number + b"x" * 2000)
                    await client.request(b"a 1")
                    taken.append(await node.take_snapshot())
                await client.request(b"a 1")
        return taken

    taken = asyncio.run(run())
    log = MemberLog.open(directory)

    assert log.log.start_position > 0
    with pytest.raises(ConfigurationError, match=rf"start_position={log.log.start_position}.*snapshots"):
        replay_service(log, Ledger, position=log.log.start_position, bound="recorded")
    with pytest.raises(ConfigurationError, match="purged"):
        replay_service(log, Ledger, snapshot="none")
    replayed = replay_service(log, Ledger, bound="recorded")
    oldest = replay_service(log, Ledger, bound="recorded", snapshot="oldest")
    assert replayed.start_position == oldest.start_position == taken[-1]
    assert ledger_of(replayed).balances == {"a": 3}


async def test_a_replay_runs_where_a_loop_runs_already(recorded: Recorded) -> None:
    """As in a notebook."""
    replayed = replay_service(recorded.directory, Ledger)

    assert ledger_of(replayed).digest == recorded.observed[max(recorded.observed)]


async def test_a_service_that_fails_to_load_its_state_says_so_also_there(recorded: Recorded) -> None:
    class Failing(Ledger):
        async def on_start(self, cluster: object, snapshot: object) -> None:
            raise RuntimeError("cannot load")

    with pytest.raises(RuntimeError, match="cannot load"):
        replay_service(recorded.directory, Failing)


def test_the_replay_says_what_the_member_knew(recorded: Recorded) -> None:
    replayed = replay_service(recorded.directory, Ledger(), position=sorted(recorded.observed)[5], snapshot="none")

    assert replayed.time_unit is TimeUnit.MILLIS
    assert replayed.leadership_term_id == 0
    assert [int(session_id) for session_id in replayed.sessions] == [1]
    assert replayed.services == (replayed.service,)
    assert replayed.snapshot_messages()[0].startswith(b'["')
    with pytest.raises(ConfigurationError, match="position=0 expected"):
        replayed.advance(0)
    assert isinstance(replayed.service, ClusteredService)
