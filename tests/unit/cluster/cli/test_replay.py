"""`trimaran replay`: the report, the files that it writes, and what is said of wrong usage, damage and services."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.facts import has_facts
from tests.interchange.samples import Ended, run
from tests.unit.cluster.time_travel.ledger import Ledger
from tests.unit.cluster.time_travel.recorded import Recorded
from trimaran.client.typed import TypedClient
from trimaran.cluster.settings.service_loading import load_service_class
from trimaran.cluster.testing import MemoryCluster
from trimaran.cluster.time_travel import Output, OutputKind, replay_service

SERVICE = "tests.unit.cluster.time_travel.ledger:Ledger"
OTHER = "tests.unit.cluster.time_travel.ledger:FeeLedger"
TOLD = """
from tests.unit.cluster.time_travel.ledger import Ledger


class Talking(Ledger):
    def on_session_open(self, session, timestamp):
        print("a session")
        super().on_session_open(session, timestamp)


class Broken(Ledger):
    async def on_start(self, cluster, snapshot):
        raise RuntimeError("cannot load")
"""
SHELVES = """
from trimaran import Command, Context, Reply, TypedService, handles, state


class Stored(Reply):
    amount: int


class Put(Command[Stored]):
    key: str
    amount: int


class Shelf(TypedService, name="shelf"):
    amounts: dict[str, int] = state()

    @handles(Put)
    def put(self, ctx: Context, message: Put) -> Stored:
        self.amounts[message.key] = message.amount
        return Stored(message.amount)


class Doubling(Shelf, name="shelf"):
    notes: list[str] = state()

    @handles(Put)
    def put(self, ctx: Context, message: Put) -> Stored:
        self.amounts[message.key] = 2 * message.amount
        return Stored(2 * message.amount)
"""


def replay(directory: Path, *arguments: object, service: str = SERVICE) -> Ended:
    return run("replay", directory, "--service", service, *arguments)


def document_of(ended: Ended, *, exit_code: int = 0) -> Any:  # Any: JSON
    assert ended.exit_code == exit_code, ended.output
    return json.loads(ended.stdout)


def test_the_report_says_what_the_state_is(recorded: Recorded) -> None:
    position = sorted(recorded.observed)[60]

    document = document_of(replay(recorded.directory, "--position", position, "-o", "json"))

    replayed = replay_service(recorded.directory, Ledger, position=position)
    assert document["state"] == repr(replayed.service)
    assert (document["service"], document["log_position"]) == ("Ledger", position)
    assert document["cluster_time"] == replayed.cluster_time
    assert document["time"].startswith("20")
    assert document["session_ids"] == [1]
    assert document["outputs"] == {str(kind): count for kind, count in replayed.output_counts.items()}
    assert [error["position"] for error in document["errors"]] == [error.position for error in replayed.errors]
    assert document["divergences"] == []


def test_a_table_is_for_people(recorded: Recorded) -> None:
    ended = replay(recorded.directory)

    assert ended.exit_code == 0
    assert "<Ledger accounts=8" in ended.stdout
    assert "77 at " in ended.stdout
    assert ended.stderr == ""


@pytest.mark.parametrize("snapshot", ["none", "oldest"])
def test_a_time_is_a_date_or_a_number(recorded: Recorded, snapshot: str) -> None:
    last = replay_service(recorded.directory, Ledger)
    arguments = ("--snapshot", snapshot, "-o", "jsonl")

    found = [
        document_of(replay(recorded.directory, "--time", moment, *arguments))["log_position"]
        for moment in (last.cluster_time, "2100-01-01T00:00:00+02:00", "2000-01-01")
    ]

    assert found == [last.log_position, last.log_position, 0]


def test_outputs_and_the_state_are_written_to_files(recorded: Recorded, tmp_path: Path) -> None:
    outputs: list[Output] = []
    replayed = replay_service(recorded.directory, Ledger, snapshot="none", sink=outputs.append)

    ended = replay(recorded.directory, "--outputs", tmp_path / "outputs", "--state", tmp_path / "state")

    assert ended.exit_code == 0
    rows = [json.loads(line) for line in (tmp_path / "outputs").read_text().splitlines()]
    assert [(row["position"], row["kind"], row["payload"]) for row in rows] == [
        (output.position, output.kind, output.payload.hex()) for output in outputs
    ]
    timer = next(row for row in rows if row["kind"] == OutputKind.TIMER_SCHEDULED)
    assert set(timer) == {"position", "timestamp", "kind", "correlation_id", "deadline", "payload"}
    state, messages = (tmp_path / "state").read_bytes(), replayed.snapshot_messages()
    assert state == b"".join(len(message).to_bytes(4, "little") + message for message in messages)


def test_other_code_differs_with_exit_status_10(recorded: Recorded) -> None:
    document = document_of(replay(recorded.directory, "--what-if", OTHER, "-o", "json"), exit_code=10)
    table = replay(recorded.directory, "--what-if", OTHER)
    same = document_of(replay(recorded.directory, "--what-if", SERVICE, "-o", "json"))

    assert document["is_same"] is False
    assert list(document["changes"]) == ["reply changed"]
    assert document["difference_count"] == document["changes"]["reply changed"] > len(document["differences"]) == 20
    first = document["differences"][0]
    assert (first["kind"], first["change"], first["position"]) == ("reply", "changed", first["old"]["position"])
    assert table.exit_code == 10
    assert f"differences: {document['difference_count']}, from 0 to" in table.stdout
    assert has_facts(table.stdout, "states differ", "message 1")
    assert (same["is_same"], same["state"], same["differences"]) == (True, None, [])


def test_typed_answers_are_shown_by_name_and_field(tmp_path: Path) -> None:
    (tmp_path / "shelves.py").write_text(SHELVES)
    make = load_service_class("shelves:Shelf", tmp_path)
    put = sys.modules["shelves"].Put
    with MemoryCluster(make, members=1) as cluster:
        cluster.run(_call(cluster, [put(key="a", amount=number) for number in (1, 2)]))
        cluster.save_directory(0, tmp_path / "node-0")
    options = ["--what-if", "shelves:Doubling", "--service-dir", tmp_path, "--bound", "recorded"]

    document = document_of(replay(tmp_path / "node-0", *options, "-o", "json", service="shelves:Shelf"), exit_code=10)
    table = replay(tmp_path / "node-0", *options, service="shelves:Shelf")

    assert document["state"] == "amounts['a']: old=2 new=4"
    assert document["uncompared_fields"] == ["notes: only the new code has it"]
    assert document["differences"][0]["detail"] == "Stored.amount: expected=1 actual=2"
    assert has_facts(document["differences"][0]["handler"], "Doubling.put", "shelves.py:")
    assert has_facts(table.stdout, "Stored(amount=1)", "Stored(amount=2)", "Doubling.put", "not compared: notes")


def test_the_state_and_the_outputs_of_a_typed_service_are_shown_by_name_and_field(tmp_path: Path) -> None:
    (tmp_path / "shelves.py").write_text(SHELVES)
    make = load_service_class("shelves:Shelf", tmp_path)
    put = sys.modules["shelves"].Put
    with MemoryCluster(make, members=1) as cluster:
        cluster.run(_call(cluster, [put(key=f"k{number:04}", amount=1) for number in range(1_000)]))
        cluster.save_directory(0, tmp_path / "node-0")
    options = ["--service-dir", tmp_path, "--bound", "recorded", "--outputs", tmp_path / "outputs"]

    document = document_of(replay(tmp_path / "node-0", *options, "-o", "json", service="shelves:Shelf"))
    table = replay(tmp_path / "node-0", *options, service="shelves:Shelf")

    assert has_facts(document["fields"]["amounts"], "1,000 keys", "'k0000': 1")
    assert len(document["fields"]["amounts"]) < 200
    assert document["state"] == f"amounts={document['fields']['amounts']}"
    assert has_facts(table.stdout, "state: amounts", "1,000 keys")
    rows = [json.loads(line) for line in (tmp_path / "outputs").read_text().splitlines()]
    replies = [row for row in rows if row["kind"] == OutputKind.REPLY and row["payload"]]
    assert [row["message"] for row in replies] == ["Stored(amount=1)"] * 1_000


async def _call(cluster: MemoryCluster, messages: Sequence[Any]) -> None:
    client = TypedClient(await cluster.connect())
    for message in messages:
        await client.call(message)


def test_a_service_is_compared_with_the_log(recorded: Recorded) -> None:
    ended = replay(recorded.directory, "--against-log")

    assert ended.exit_code == 0
    assert "nothing differs" in ended.stdout


def test_snapshots_are_verified(recorded: Recorded) -> None:
    rows = document_of(replay(recorded.directory, "--verify-snapshots", "-o", "json"))
    bad = replay(recorded.directory, "--verify-snapshots", service=OTHER)

    assert [row["to_position"] for row in rows] == recorded.snapshots
    assert bad.exit_code == 10
    assert "service 0: message" in bad.stdout
    assert "snapshots that differ" in bad.stderr


def test_what_is_recorded_and_does_not_count_is_told(recorded: Recorded, tmp_path: Path) -> None:
    shutil.copytree(recorded.directory, tmp_path / "node")
    assert run("snapshot", "invalidate", tmp_path / "node").exit_code == 0

    bounded = replay(tmp_path / "node", "-o", "json")
    whole = document_of(replay(tmp_path / "node", "--bound", "recorded", "-o", "json"))

    document = document_of(bounded)
    behind = document["recorded_position"] - document["committed_position"]
    assert document["log_position"] == document["committed_position"] == recorded.snapshots[1]
    assert f"{behind} more bytes" in bounded.stderr
    assert whole["log_position"] == whole["recorded_position"]
    assert document_of(replay(tmp_path / "node", "--bound", whole["log_position"] - 32, "-o", "json"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--position", "1", "--time", "2"], "one of", id="position and time"),
        pytest.param(["--time", "yesterday"], "--time: bad time: 'yesterday'", id="time"),
        pytest.param(["--snapshot", "last"], "--snapshot last:", id="snapshot"),
        pytest.param(["--bound", "all"], "--bound all:", id="bound"),
        pytest.param(["--position", str(1 << 40)], f"position={1 << 40}", id="after the end"),
        pytest.param(["--what-if", OTHER, "--verify-snapshots"], "one of --what-if", id="two comparisons"),
        pytest.param(["--what-if", OTHER, "--state", "x"], "comparison", id="files"),
        pytest.param(["--what-if", "no_such:Service"], "module=no_such", id="other service"),
    ],
)
def test_wrong_usage_is_one_line(recorded: Recorded, arguments: list[str], said: str) -> None:
    ended = replay(recorded.directory, *arguments)

    assert ended.exit_code == 2
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert ended.stdout == ""


def test_no_directory_of_a_member_is_wrong_usage(tmp_path: Path) -> None:
    ended = replay(tmp_path)

    assert ended.exit_code == 2
    assert "no archive.catalog" in ended.stderr


def test_damage_ends_with_10_and_says_where(recorded: Recorded, tmp_path: Path) -> None:
    shutil.copytree(recorded.directory, tmp_path / "node")
    path = tmp_path / "node" / "archive" / "0-0.rec"
    data = bytearray(path.read_bytes())
    data[sorted(recorded.observed)[30] + 40] ^= 1
    path.write_bytes(data)

    ended = replay(tmp_path / "node", "--snapshot", "none")

    assert ended.exit_code == 10
    assert f"position={sorted(recorded.observed)[30]}" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_what_a_service_prints_and_raises_is_kept_apart(recorded: Recorded, tmp_path: Path) -> None:
    (tmp_path / "told.py").write_text(TOLD)
    arguments = ("--service-dir", tmp_path, "--snapshot", "none", "-o", "json")

    talking = replay(recorded.directory, *arguments, service="told:Talking")
    broken = replay(recorded.directory, *arguments, service="told:Broken")

    assert document_of(talking)["service"] == "Talking"
    assert talking.stderr.count("a session") == 4
    assert broken.exit_code == 1
    assert f"{tmp_path / 'told.py'}:13: RuntimeError: cannot load" in broken.stderr
