"""Commands in batches, with real members, in memory and on virtual time."""

from __future__ import annotations

import asyncio
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.places import ROOT
from tests.unit.service_api.typed.bank import Annotate, Balance, BalanceOf, Bank, Deposit, Overdrawn, Paid, Withdraw
from trimaran import ClusterClient, RejectedError, RequestFailedError, RequestIndeterminateError
from trimaran.client.ready_made import CountersClient, KvClient, QueueClient
from trimaran.client.typed import TypedClient
from trimaran.cluster.testing import MemoryCluster
from trimaran.service_api.errors import LocalProtocolError, RemoteProtocolError
from trimaran.service_api.ready_made.counters import CounterService
from trimaran.service_api.ready_made.kv import KvService, PutKey
from trimaran.service_api.ready_made.queue import QueueService


@pytest.fixture
def memory() -> Iterator[MemoryCluster]:
    with MemoryCluster(Bank) as cluster:
        cluster.run(cluster.wait_for_leader())
        yield cluster


def test_commands_of_several_classes_are_answered_by_position(memory: MemoryCluster) -> None:
    async def test() -> None:
        bank = TypedClient(await memory.connect())
        commands = [Deposit("a", 5), Withdraw("a", 50), Annotate("a", "oops", is_mistaken=True), Withdraw("a", 2)]

        outcomes = await bank.call_many(commands, return_exceptions=True)

        assert outcomes[:2] == [Balance(5), Overdrawn(5)]
        assert isinstance(outcomes[2], RequestFailedError)
        assert outcomes[3] == Balance(3)
        assert await bank.call_many([]) == []
        with pytest.raises(Overdrawn) as caught:
            await bank.call_many([Deposit("a", 1), Withdraw("a", 9), Deposit("a", 1), Withdraw("a", 9)])
        assert ["position=1 of 4" in note and "errors=2" in note for note in caught.value.__notes__] == [True]
        assert await bank.ask(BalanceOf("a")) == Balance(5)

    memory.run(test())


def test_a_batch_keeps_its_place_among_calls_also_where_its_classes_are_new(memory: MemoryCluster) -> None:
    async def test() -> None:
        bank = TypedClient(await memory.connect())
        await bank.call(Deposit("a", 1))

        first, one, last = await asyncio.gather(
            bank.call_many([Deposit("a", 1), Withdraw("a", 2)]),
            bank.call(Deposit("a", 7)),
            bank.call_many([Deposit("a", 1)] * 2),
        )

        assert (first, one, last) == ([Balance(2), Balance(0)], Balance(7), [Balance(8), Balance(9)])

    memory.run(test())


def test_nothing_is_sent_if_one_cannot_be_written_or_is_no_command(memory: MemoryCluster) -> None:
    async def test() -> None:
        bank = TypedClient(await memory.connect())
        wrong: Any = "5"
        with pytest.raises(RemoteProtocolError, match="amount") as caught:
            await bank.call_many([Deposit("a", 5), Deposit("a", wrong)], return_exceptions=True)
        assert ["position=1 of 2" in note for note in caught.value.__notes__] == [True]
        query: Any = BalanceOf("a")
        with pytest.raises(LocalProtocolError, match="Query"):
            await bank.call_many([Deposit("a", 5), query])
        assert await bank.call(Deposit("a", 1)) == Balance(1)

    memory.run(test())


def test_a_reply_that_cannot_be_read_is_an_error_at_its_position(
    memory: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        client = await memory.connect()
        bank = TypedClient(client)
        real = client.request_many

        async def spoil(payloads: list[bytes], **settings: Any) -> Any:
            replies = await real(payloads, **settings)
            replies[1] = bytes(replies[1])[:-1] + b"\xc1"  # never used in MessagePack
            return replies

        monkeypatch.setattr(client, "request_many", spoil)
        outcomes = await bank.call_many([Deposit("a", 1)] * 3, return_exceptions=True)

        assert [type(outcome) for outcome in outcomes] == [Balance, RemoteProtocolError, Balance]

    memory.run(test())


@pytest.mark.parametrize("is_shared", [False, True])
def test_each_runs_once_when_leaders_die_in_the_middle(memory: MemoryCluster, is_shared: bool) -> None:
    async def test() -> None:
        settings = {"request_window_count": 16}
        client = await (memory.share(**settings).open_session() if is_shared else memory.connect(**settings))
        bank = TypedClient(client)
        paid = bank.events(Paid)
        for account in ("a", "b"):
            batch = asyncio.ensure_future(bank.call_many([Deposit(account, 1)] * 1000, timeout_s=120))
            count = 0
            while count < 300:
                count += (await anext(paid)).account == account
            assert not batch.done()
            dead = memory.kill_leader()

            assert [balance.amount for balance in await batch] == [*range(1, 1001)]
            await memory.restart(dead)
        assert client.resent_request_count > 0

    memory.run(test())


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_session_that_ends_leaves_what_was_sent_unknown_and_the_next_one_runs_the_rest(
    memory: MemoryCluster, is_shared: bool
) -> None:
    async def test() -> None:
        settings = {"reopen": True, "new_leader_timeout_s": 2.0, "connect_timeout_s": 2.0, "request_window_count": 2}
        client = await (memory.share(**settings).open_session() if is_shared else memory.connect(**settings))
        bank = TypedClient(client)
        await bank.call_many([Deposit("a", 1)] * 2)

        memory.partition(["client"], [0, 1, 2])
        batch = asyncio.ensure_future(bank.call_many([Deposit("b", 1)] * 5, timeout_s=100, return_exceptions=True))
        late = asyncio.ensure_future(bank.call_many([Deposit("c", 1)] * 3, timeout_s=1, return_exceptions=True))
        await memory.advance(20)
        memory.heal()

        outcomes = await batch
        assert [type(each) for each in outcomes[:2]] == [RequestIndeterminateError] * 2
        assert outcomes[2:] == [Balance(1), Balance(2), Balance(3)]
        assert [type(each) for each in await late] == [RejectedError] * 3
        assert await bank.call(Deposit("c", 1)) == Balance(1)

    memory.run(test())


def test_a_client_that_is_closed_rejects_what_waits_for_a_session(memory: MemoryCluster) -> None:
    async def test() -> None:
        settings = {"reopen": True, "new_leader_timeout_s": 2.0, "connect_timeout_s": 2.0}
        client: ClusterClient = await memory.connect(**settings)
        memory.partition(["client"], [0, 1, 2])
        sent = asyncio.ensure_future(client.request_many([b"x"] * 2, return_exceptions=True))
        await memory.advance(15)
        with pytest.raises(RejectedError):
            await client.request_many([b"x"] * 2, timeout_s=1)
        assert [type(each) for each in await sent] == [RequestIndeterminateError] * 2
        memory.heal()
        await client.aclose()

    memory.run(test())


def test_ready_made_clients_have_batches_of_what_is_written_most() -> None:
    with MemoryCluster([KvService, QueueService, CounterService]) as memory:

        async def test() -> None:
            client = await memory.connect()
            kv, queues, counters = KvClient(client), QueueClient(client), CountersClient(client)

            assert await kv.put_many({"a": "1", b"b": b"2"}) == [1, 2]
            assert [await kv.get("a"), await kv.get("b")] == [b"1", b"2"]
            revisions = await kv.call_many(
                [PutKey(b"a", b"3", None, None), PutKey(b"c", b"3", 7, None)], return_exceptions=True
            )
            assert revisions[0] == 3
            ids = await queues.send_many("mail", [b"one", "two"], priority=1)
            assert [(job.id, job.body) for job in await queues.receive("mail", limit=9)] == [
                (ids[0], b"one"),
                (ids[1], b"two"),
            ]
            assert await counters.add_many({"x": 2, "y": 3}) == [2, 3]

        memory.run(memory.wait_for_leader())
        memory.run(test())


def test_the_batch_of_the_page_does_what_the_page_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "typed-services.md").read_text(), flags=re.DOTALL)
    (tmp_path / "page.py").write_text("\n\n".join(code))
    page = runpy.run_path(str(tmp_path / "page.py"), run_name="typed_services_page")  # others run it, too
    with MemoryCluster(page["Bank"]) as memory:

        async def test() -> None:
            bank = page["BankClient"](await memory.connect())
            await page["pay_out"](bank)
            assert (await bank.balance("account-7")).amount == 5

        memory.run(memory.wait_for_leader())
        memory.run(test())
    assert capsys.readouterr().out.splitlines() == ["refused, the balance is 5", "now 3"]
