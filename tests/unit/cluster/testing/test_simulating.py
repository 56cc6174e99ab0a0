"""`simulate`: a service under faults from a test, rules of its author, and failures that can be run again."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.facts import has_facts
from trimaran import (
    ClientSession,
    ClusterClient,
    Command,
    ConfigurationError,
    Context,
    TypedService,
    handles,
    state,
)
from trimaran.client.typed import TypedClient
from trimaran.cluster.settings.variables import REPLAY_VARIABLE
from trimaran.cluster.testing import ClientWorkload, simulate
from trimaran.cluster.testing.simulating import parse_replay, replay_line
from trimaran.cluster.testing.simulation.faults.nemesis import KIND_NAMES
from trimaran.cluster.testing.simulation.run import Options, RunOutcome

from .counting import Counter


class Additions(ClientWorkload):
    def __init__(self) -> None:
        self.acknowledged = 0

    async def use(self, client: ClusterClient, random: Random) -> None:
        await client.request(b"1")
        self.acknowledged += 1

    def invariant(self, service: Counter) -> None:
        assert service.total >= 0

    def at_rest(self, services: Sequence[Counter]) -> None:
        assert services
        assert all(service.total >= self.acknowledged for service in services)


class Forgetting(Counter):
    """Writes a snapshot that has nothing."""

    async def on_take_snapshot(self, snapshot: Any) -> None:
        await snapshot.offer(b"0 0")


class Capped(Counter):
    """Answers wrongly from 20 on."""

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        reply = super().on_request(session, timestamp, payload)
        return b"20" if self.total > 20 else reply


def fails(service: Any, workload: Any, **settings: Any) -> str:
    with pytest.raises(AssertionError) as raised:
        simulate(service, workload, **{"members": 3, "length": 3, **settings})
    return str(raised.value)


def test_a_service_that_is_right_passes_under_faults() -> None:
    totals = simulate(Counter, Additions, seeds=3, members=3, length=3)

    assert totals.seed_count == 3
    assert sum(totals.fired.values()) > 0


def test_an_invariant_that_breaks_is_told_with_a_smaller_run_and_the_line_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Low(Additions):
        def invariant(self, service: Counter) -> None:
            assert service.total < 5, "five is too much"

    told = fails(Counter, Low, seeds=[4], shrink_runs=12)

    assert "invariant" in told
    assert "too much" in told
    assert re.search(r"shrunk in \d+ runs: length 3 to", told)
    found = re.search(rf"replay: {REPLAY_VARIABLE}='(.*?)' pytest \S+::test_an_invariant\w+$", told)
    assert found is not None, told
    monkeypatch.setenv(REPLAY_VARIABLE, found[1])
    assert "too much" in fails(Counter, Low, seeds=[9], shrink_runs=0)


def test_what_must_hold_at_rest_finds_state_that_a_snapshot_forgets() -> None:
    others = set(KIND_NAMES) - {"snapshot", "shutdown"}

    told = fails(Forgetting, Additions, seeds=[10], length=10, without=others, shrink_runs=0)

    assert "at rest" in told
    assert "test_simulating.py" in told


def test_a_client_that_sees_what_its_author_does_not_expect_ends_the_run_at_once() -> None:
    class Watching(ClientWorkload):
        async def use(self, client: ClusterClient, random: Random) -> None:
            before = int(await client.request(b"0"))
            assert int(await client.request(b"1")) > before

    told = fails(Capped, Watching, seeds=[1], clients=1, shrink_runs=0, without=KIND_NAMES)

    assert "the author of" in told
    assert "test_simulating.py" in told


class Clocked(Counter):
    """Reads a clock that others do not have, and keeps nothing of it."""

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        time.time()
        return super().on_request(session, timestamp, payload)


def test_a_callback_that_leaves_the_log_is_told_with_its_line_and_may_be_let_pass() -> None:
    told = fails(Clocked, Additions, seeds=[0], shrink_runs=0)

    assert "callbacks of a" in told
    assert re.search(r"test_simulating.py:\d+: wall-clock: time.time\(\)", told)
    simulate(Clocked, Additions, seeds=[0], members=3, length=1, strict=False)


class Addressed(Counter):
    """Answers with what is another number in each instance."""

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        super().on_request(session, timestamp, payload)
        return b"%d" % id(self)


def test_double_execution_finds_what_two_instances_do_otherwise() -> None:
    told = fails(Addressed, Additions, seeds=[0], shrink_runs=0, double_execution=True)

    assert has_facts(told, "double execution", "Addressed")


class Put(Command[None]):
    key: str
    amount: int


class Shelf(TypedService):
    """Keeps another amount in each instance, from seven on."""

    amounts: dict[str, int] = state()

    @handles(Put)
    def put(self, ctx: Context, message: Put) -> None:
        self.amounts[message.key] = message.amount + (id(self) if message.amount > 6 else 0)


class Puts(ClientWorkload):
    async def use(self, client: ClusterClient, random: Random) -> None:
        await TypedClient(client).call(Put("a", random.randint(1, 9)))


class SmallPuts(Puts):
    def invariant(self, service: Shelf) -> None:
        assert service.amounts.get("a", 0) < 7


@pytest.mark.parametrize(
    ("workload", "double_execution", "rule"),
    [
        (Puts, False, "becomes the same"),
        (Puts, True, "two instances of Shelf"),
        (SmallPuts, False, "invariant"),
    ],
    ids=["members", "double execution", "invariant"],
)
def test_a_typed_message_is_told_by_name_and_field_with_its_handler(
    workload: type[ClientWorkload], double_execution: bool, rule: str
) -> None:
    told = fails(Shelf, workload, seeds=1, shrink_runs=0, double_execution=double_execution)

    handler = f"{Path(__file__).name}:{Shelf.put.__code__.co_firstlineno}"
    assert has_facts(told, rule, "Put(key=", "amount=", "Shelf.put", handler)
    assert "\\x" not in told


def test_a_simulation_logs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    simulate(Counter, Additions, seeds=1, length=0.5)

    assert capsys.readouterr() == ("", "")


def test_double_execution_finds_what_a_snapshot_forgets_by_the_next_answer() -> None:
    others = set(KIND_NAMES) - {"snapshot"}

    told = fails(Forgetting, Additions, seeds=[2], length=10, without=others, shrink_runs=0, double_execution=True)

    assert has_facts(told, "second instance", "snapshot")


def test_a_service_that_is_right_passes_doubled_under_faults() -> None:
    simulate(Counter, Additions, seeds=2, members=3, length=3, double_execution=True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"workload": Additions()}, "ClientWorkload"),
        ({"service": Counter()}, "is an instance"),
        ({"without": ["earthquake"]}, "kinds"),
        ({"seeds": 0}, "seeds=0"),
    ],
    ids=["object", "instance", "kind", "no seeds"],
)
def test_wrong_use_says_what_to_do(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        simulate(**{"service": Counter, "workload": Additions, **settings})


@pytest.mark.parametrize(
    "options",
    [
        Options(requester_count=0),
        Options(requester_session_count=5),
        Options(member_count=1, client_count=1, requester_count=0, safety_timeouts=0.5, operation_limit=2),
        Options(member_count=5, witness_count=2),
        Options(without=frozenset(KIND_NAMES)),
        Options(without=frozenset(KIND_NAMES[2:])),
        Options(without=frozenset(KIND_NAMES[:2])),
    ],
    ids=["plain", "shared", "small", "witnesses", "no faults", "few faults", "most faults"],
)
def test_what_a_failure_prints_is_read_as_the_same_run(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    line = replay_line(RunOutcome(7, options))
    found = re.match(rf"{REPLAY_VARIABLE}='?(.*?)'? python", line)

    assert found is not None
    assert parse_replay(found[1]) == ([7], options)


@pytest.mark.parametrize("text", ["seven", "7 --colour red", "7 --length long", "'"])
def test_a_replay_that_nobody_printed_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="failure printed"):
        parse_replay(text)


def test_a_replay_with_a_kind_of_fault_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="thunder"):
        parse_replay("7 --only thunder")
