"""A service against the snapshots that it wrote itself: what depends on something else than the log is found."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from pathlib import Path
from typing import ClassVar

import pytest

from tests.facts import has_facts
from tests.system.aeron_sample import AeronSampleService, FirstOfTwo, SecondOfTwo
from tests.unit.archive.streams import extract_sample
from tests.unit.cluster.time_travel.ledger import FeeLedger, Ledger
from tests.unit.cluster.time_travel.recorded import DEADLINE_S, Recorded, member
from tests.waiting import patient, within
from trimaran.client import ClientConfig, ClusterClient
from trimaran.cluster.time_travel import verify_snapshots
from trimaran.service_api import ClientSession, Cluster, SnapshotImage, SnapshotPublication


class RandomLedger(Ledger):
    """Not deterministic: it throws dice."""

    dice: ClassVar[random.Random] = random.Random(3)

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        self.balances["luck"] = self.dice.randrange(1 << 30)
        return super().on_request(session, timestamp, payload)


class UnorderedLedger(Ledger):
    """Not deterministic: what it writes comes in the order of a set of strings, another in each process."""

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        for name in set(self.balances):
            await snapshot.offer(json.dumps([name, self.balances[name]]).encode())


async def run(directory: Path, service: Ledger) -> None:
    async with within(DEADLINE_S), member(directory, service) as (node, endpoint):
        config = ClientConfig(endpoints=(endpoint,), connect_timeout_s=patient(DEADLINE_S))
        async with await ClusterClient.connect([], config=config) as client:
            for _ in range(3):
                for number in range(8):
                    await client.request(b"account%d 1" % number)
                await node.take_snapshot()


def test_a_deterministic_service_writes_the_same_bytes(recorded: Recorded) -> None:
    """All of them: what the service writes, sessions, kept replies, timers and messages that are on their way."""
    verdicts = verify_snapshots(recorded.directory, Ledger)

    starts = [0, *recorded.snapshots[:-1]]
    assert [verdict[:2] for verdict in verdicts] == [*zip(starts, recorded.snapshots, strict=True)]
    assert [verdict.problem for verdict in verdicts] == [None] * 3
    assert all(verdict.message_count > 10 and verdict.length_bytes > 300 for verdict in verdicts)


def test_several_processes_find_the_same(recorded: Recorded) -> None:
    name = "tests.unit.cluster.time_travel.ledger:Ledger"

    assert verify_snapshots(recorded.directory, name, processes=2) == verify_snapshots(recorded.directory, Ledger)


def test_a_random_number_is_found(tmp_path: Path) -> None:
    asyncio.run(run(tmp_path / "node", RandomLedger()))

    verdicts = verify_snapshots(tmp_path / "node", RandomLedger)

    assert len(verdicts) == 3
    assert all(verdict.problem is not None for verdict in verdicts)
    assert 'expected=b\'["luck", ' in str(verdicts[-1].problem)


def test_the_order_of_a_set_is_found_in_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    asyncio.run(run(tmp_path / "node", UnorderedLedger()))

    verdicts = verify_snapshots(tmp_path / "node", UnorderedLedger, processes=2)

    assert any(verdict.problem is not None and "service 0: message" in verdict.problem for verdict in verdicts)


def test_other_code_is_found(recorded: Recorded) -> None:
    problems = [verdict.problem for verdict in verify_snapshots(recorded.directory, FeeLedger)]

    assert all(problem is not None and problem.startswith("service 0: message") for problem in problems)


def test_what_a_service_raises_is_the_verdict(recorded: Recorded) -> None:
    class Failing(Ledger):
        async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
            raise OSError("no room")

    problems = [verdict.problem for verdict in verify_snapshots(recorded.directory, Failing)]

    assert problems == ["the service failed: OSError('no room')"] * 3


@pytest.mark.parametrize("what", ["snapshot", "log"])
def test_damage_is_the_verdict_of_its_stretch(recorded: Recorded, tmp_path: Path, what: str) -> None:
    shutil.copytree(recorded.directory, tmp_path / "node")
    name, offset = ("1-0.rec", 200) if what == "snapshot" else ("0-0.rec", recorded.snapshots[0] + 1040)
    path = tmp_path / "node" / "archive" / name
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)

    problems = [verdict.problem for verdict in verify_snapshots(tmp_path / "node", Ledger)]

    damaged = [index for index, problem in enumerate(problems) if problem is not None]
    assert damaged == ([0, 1] if what == "snapshot" else [1])
    assert "recording_id" in str(problems[damaged[0]])


def test_a_service_that_was_ported_from_java_is_held_against_what_java_wrote(tmp_path: Path) -> None:
    """The sample's service writes one number more than the port does: that is what is found, and nothing before it."""
    one = extract_sample("single-node", tmp_path) / "node0"
    two = extract_sample("checksummed", tmp_path) / "node0"

    (verdict,) = verify_snapshots(one, AeronSampleService)
    verdicts = verify_snapshots(two, (FirstOfTwo, SecondOfTwo))

    assert "byte 64" in str(verdict.problem)
    assert all("byte 64" in str(each.problem) for each in verdicts)


class ForgetfulLedger(Ledger):
    """Replies with the request before; its snapshot forgets it."""

    newest = b""

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        super().on_request(session, timestamp, payload)
        before, self.newest = self.newest, bytes(payload)
        return before


class HashedForgetfulLedger(ForgetfulLedger):
    """The same, with a `state_hash`."""

    def state_hash(self) -> object:
        return {"newest": self.newest, "balances": self.balances}


class LosingLedger(Ledger):
    """Loads less than it wrote."""

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        await super().on_start(cluster, snapshot)
        self.balances.pop("account1", None)


async def run_on(directory: Path, service: Ledger) -> None:
    """As `run`, with requests after the last snapshot."""
    async with within(DEADLINE_S), member(directory, service) as (node, endpoint):
        config = ClientConfig(endpoints=(endpoint,), connect_timeout_s=patient(DEADLINE_S))
        async with await ClusterClient.connect([], config=config) as client:
            for number in range(8):
                await client.request(b"account%d 1" % number)
            await node.take_snapshot()
            await client.request(b"account0 2")


def test_a_field_that_the_snapshot_forgets_is_found_by_what_comes_after_it(tmp_path: Path) -> None:
    """The bytes of both snapshots are the same: `--verify-snapshots` said that all was well."""
    asyncio.run(run_on(tmp_path / "node", ForgetfulLedger()))

    (verdict,) = verify_snapshots(tmp_path / "node", ForgetfulLedger)

    assert verdict.problem is not None
    assert has_facts(verdict.problem, "another reply", "position=")
    assert "expected=b'account7 1'" in verdict.problem


def test_a_field_that_the_snapshot_forgets_is_found_by_the_state_hash(tmp_path: Path) -> None:
    asyncio.run(run(tmp_path / "node", HashedForgetfulLedger()))

    verdicts = verify_snapshots(tmp_path / "node", HashedForgetfulLedger)

    assert [verdict.problem for verdict in verdicts] == [
        "service 0: the state after loading is not the one before: ['newest']: expected=b'account7 1' actual=b''; "
        "does on_take_snapshot write every field, and on_start read it?"
    ] * 3


def test_a_field_that_the_snapshot_forgets_is_found_where_nothing_came_after_it(tmp_path: Path) -> None:
    """By the attributes of the two services: no message followed the last snapshot."""
    asyncio.run(run(tmp_path / "node", ForgetfulLedger()))

    *_, verdict = verify_snapshots(tmp_path / "node", ForgetfulLedger)

    assert has_facts(str(verdict.problem), "ForgetfulLedger['newest']", "actual=b''")


def test_a_service_that_loads_less_than_it_wrote_is_found(tmp_path: Path) -> None:
    asyncio.run(run(tmp_path / "node", LosingLedger()))

    verdicts = verify_snapshots(tmp_path / "node", LosingLedger)

    assert has_facts(str(verdicts[0].problem), "after loading", "message")


def test_a_service_with_a_state_hash_that_forgets_nothing_is_well(tmp_path: Path) -> None:
    class HashedLedger(Ledger):
        def state_hash(self) -> object:
            return self.digest, self.balances

    asyncio.run(run_on(tmp_path / "node", HashedLedger()))

    assert [verdict.problem for verdict in verify_snapshots(tmp_path / "node", HashedLedger)] == [None]
