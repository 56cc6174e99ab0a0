"""A typed service as its clients meet it, on the container that members run."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from trimaran.cluster.testing import TypedHarness
from trimaran.service_api import Cluster, SnapshotImage, SnapshotPublication
from trimaran.service_api.errors import LocalProtocolError, RemoteProtocolError
from trimaran.service_api.typed import Command, Context, TypedService, handles, state
from trimaran.service_api.wire.payload_header import HEADER_BYTES, MAGIC, PayloadKind

from .bank import (
    Annotate,
    Balance,
    BalanceOf,
    Bank,
    Cancel,
    Deposit,
    Empty,
    Meddle,
    Notes,
    Overdrawn,
    Paid,
    PayInterest,
    Withdraw,
)
from .lottery import Draw, Lottery


@pytest.fixture
def bank() -> TypedHarness[Bank]:
    harness = TypedHarness(Bank)
    harness.call(Deposit("a", 5))
    harness.call(Annotate("a", "first"))
    return harness


def test_a_command_has_a_typed_reply_and_a_query_sees_what_it_did(bank: TypedHarness[Bank]) -> None:
    assert bank.call(Deposit("a", amount=3)) == Balance(8)
    assert bank.ask(BalanceOf("a")) == Balance(8)
    assert bank.call(Annotate("a", "second")) == ["first", "second"]
    assert bank.events(Paid) == [Paid("a", 5), Paid("a", 3)]


def test_an_error_of_the_service_comes_with_its_fields_and_changes_nothing(bank: TypedHarness[Bank]) -> None:
    before: Any = bank.service.state_hash()

    with pytest.raises(Overdrawn) as raised:
        bank.call(Withdraw("a", 50))

    assert raised.value.balance == 5
    after: Any = bank.service.state_hash()
    assert {name for name in after if after[name] != before[name]} == {"known_schemas"}
    assert bank.events(Paid) == [Paid("a", 5)]
    bank.advance(5)
    assert bank.service.accounts == {"a": 5}


@pytest.mark.parametrize("account", ["a", "new"])
def test_a_mistake_in_a_handler_changes_nothing_either(bank: TypedHarness[Bank], account: str) -> None:
    """What is changed in place is undone, too."""
    with pytest.raises(KeyError, match="oops"):
        bank.call(Annotate(account, "oops", is_mistaken=True))

    assert {name: notes.texts for name, notes in bank.service.notes.items()} == {"a": ["first"]}
    assert bank.call(Annotate("a", "second")) == ["first", "second"]


def test_state_that_was_emptied_and_replaced_is_as_it_was(bank: TypedHarness[Bank]) -> None:
    for name in "bcd":
        bank.call(Deposit(name))

    with pytest.raises(Overdrawn):
        bank.call(Empty())

    assert bank.service.accounts == {"a": 5, "b": 1, "c": 1, "d": 1}
    assert bank.service.notes["a"].texts == ["first"]
    assert bank.service.journal_of_names == []


@pytest.mark.parametrize("way", ["assign", "write", "mutate", "iterate", "append", "schedule", "random"])
def test_a_query_that_would_change_something_is_told_so_and_changes_nothing(bank: TypedHarness[Bank], way: str) -> None:
    bank.call(Withdraw("a", 1))
    before = bank.service.state_hash()

    with pytest.raises(LocalProtocolError, match="quer"):
        bank.ask(Meddle(way))

    assert bank.service.state_hash() == before
    assert bank.ask(Meddle("not at all")) == 1


def test_timers_fire_are_cancelled_and_survive_a_restart(bank: TypedHarness[Bank]) -> None:
    bank.call(PayInterest("a", after_s=10))
    dropped = bank.call(PayInterest("a", after_s=10))
    assert bank.call(Cancel(dropped)) is True
    assert bank.call(Cancel(dropped)) is False
    bank.advance(9)
    assert bank.ask(BalanceOf("a")) == Balance(5)

    bank.restart()
    bank.advance(2)

    assert bank.ask(BalanceOf("a")) == Balance(10)
    assert bank.service.timers == {}


def test_a_snapshot_has_all_that_is_declared_in_its_order() -> None:
    bank = TypedHarness(Bank)
    random = Random(5)
    for name in random.sample(range(100_000), 3_000):
        bank.service.accounts[str(name)] = random.getrandbits(60)
    bank.service.notes["x" * 70_000] = Notes(["y" * 90_000])
    before = bank.service.state_hash()
    order = list(bank.service.accounts)

    bank.restart()

    assert bank.service.state_hash() == before
    assert list(bank.service.accounts) == order
    assert max(map(len, bank.snapshot())) < 40_000


def test_typed_service_yields_its_snapshots_unless_a_derived_class_writes_them() -> None:
    class More(Bank):
        async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
            await super().on_take_snapshot(snapshot)
            await snapshot.offer(b"more")

    bank = TypedHarness(More)

    assert (Bank().yields_snapshots, More().yields_snapshots) == (True, False)
    assert bank.snapshot()[-1] == b"more"


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"", "no command"),
        (b"deposit 5", "no command"),
        (bytes((MAGIC, PayloadKind.COMMAND)) + bytes(8), "fingerprint=0000000000000000"),
        (bytes((MAGIC, PayloadKind.QUERY)) + bytes(8), "no command"),
        (bytes((MAGIC, PayloadKind.SCHEMA)) + bytes(8), "schema cannot"),
        (bytes((MAGIC, PayloadKind.SCHEMA)) + bytes(8) + b"{" * 70_000, "at most 65536"),
        (bytes((MAGIC, PayloadKind.SCHEMA)) + bytes(8) + b'{"name": "A B", "fields": []}', "schema cannot"),
    ],
)
def test_bytes_of_a_stranger_are_refused_and_change_nothing(
    bank: TypedHarness[Bank], payload: bytes, message: str
) -> None:
    before = bank.service.state_hash()

    with pytest.raises(RemoteProtocolError, match=message):
        bank.request(payload)

    assert bank.service.state_hash() == before


def test_every_cut_and_flipped_byte_of_a_command_is_refused_or_run(bank: TypedHarness[Bank]) -> None:
    payload = bank.route(Deposit).payload(Deposit("account", 5))
    spoiled = [payload[:length] for length in range(len(payload))]
    spoiled += [
        payload[:place] + bytes((payload[place] ^ 1 << bit,)) + payload[place + 1 :]
        for place in range(HEADER_BYTES, len(payload))
        for bit in range(8)
    ]

    for one in spoiled:
        before = bank.service.state_hash()
        try:
            bank.request(one)
        except RemoteProtocolError:
            assert bank.service.state_hash() == before
        else:
            assert len(one) == len(payload)


def test_clients_cannot_fill_the_state_with_schemas(bank: TypedHarness[Bank], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimaran.service_api.typed.service.SCHEMA_LIMIT_COUNT", 5)
    announce = bytes((MAGIC, PayloadKind.SCHEMA)) + bytes(8)
    for number in range(5 - len(bank.service.known_schemas)):
        bank.request(announce + b'{"name": "A%d", "fields": []}' % number)

    with pytest.raises(RemoteProtocolError, match="less than 5"):
        bank.request(announce + b'{"name": "Further", "fields": []}')

    assert len(bank.service.known_schemas) == 5


def test_members_draw_the_same_random_numbers() -> None:
    first, second = TypedHarness(Lottery), TypedHarness(Lottery)

    drawn = [first.call(Draw()) for _ in range(3)]

    assert drawn == [second.call(Draw()) for _ in range(3)]
    assert len(set(drawn)) == 3


class Note(Command[int]):
    text: str


class Noted(TypedService):
    """Writes more into its snapshot than what it declares, as the page says."""

    count: int = state()

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        await super().on_start(cluster, snapshot)
        if snapshot is not None:
            self.texts = [bytes(message).decode() async for message in snapshot]

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        await super().on_take_snapshot(snapshot)
        for text in self.texts:
            await snapshot.offer(text.encode())

    @handles(Note)
    def note(self, ctx: Context, message: Note) -> int:
        self.count += 1
        self.texts.append(message.text)
        return self.count


@pytest.mark.parametrize("texts", [[], ["first", '{"pieces": 7}', "last"]])
def test_what_is_written_after_the_declared_state_is_left_to_its_author(texts: list[str]) -> None:
    """The last message was taken for the end of the declared state: no member started again."""
    harness = TypedHarness(Noted)
    for text in texts:
        harness.call(Note(text))

    harness.restart()

    assert (harness.service.count, harness.service.texts) == (len(texts), texts)


class Put(Command[str]):
    field: str


class Kinds(TypedService):
    """Gives each field a value that is not of its type."""

    count: int = state()
    ratio: float = state()
    name: str | None = state()
    totals: dict[str, int] = state()
    groups: dict[int, list[int]] = state()

    @handles(Put)
    def put(self, ctx: Context, message: Put) -> str:
        self.count += 1
        match message.field:
            case "count":
                self.count += 0.5  # type: ignore[assignment]  # the mistakes of this test
            case "bool":
                self.count = True
            case "name":
                self.name = 5  # type: ignore[assignment]
            case "value":
                self.totals["a"] = 1.5  # type: ignore[assignment]
            case "key":
                self.totals[5] = 1  # type: ignore[index]
            case "deep key":
                self.groups["a"] = [1]  # type: ignore[index]
            case "whole":
                self.totals = {"a": "b"}  # type: ignore[dict-item]
            case "setdefault":
                self.totals.setdefault("a", b"1")  # type: ignore[arg-type]
            case _:
                self.ratio, self.name, self.groups[7] = 5, "x", [1]
        return repr(self.ratio)


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ("count", r"Kinds\.count: value=1\.5.* float.* int"),
        ("bool", r"Kinds\.count: value=True.* bool.* int"),
        ("name", r"Kinds\.name: value=5.* int.* str \| None"),
        ("value", r"Kinds\.totals\['a'\]: value=1\.5.* float.* int"),
        ("key", r"Kinds\.totals: key: value=5.* int.* str"),
        ("deep key", r"Kinds\.groups: key: value='a'.* str.* int"),
        ("whole", r"Kinds\.totals\['a'\]: value='b'.* str.* int"),
        ("setdefault", r"Kinds\.totals\['a'\]: value=b'1'.* bytes.* int"),
    ],
)
def test_a_value_of_another_type_is_refused_and_its_command_undone(field: str, told: str) -> None:
    """It was taken, and no member could read the snapshot that it was written to."""
    harness = TypedHarness(Kinds)

    with pytest.raises(LocalProtocolError, match=told):
        harness.call(Put(field))

    assert (harness.service.count, harness.service.totals, harness.service.groups) == (0, {}, {})
    harness.call(Put("all right"))
    assert repr(harness.service.ratio) == "5.0"
    harness.restart()
    assert repr(harness.service.ratio) == "5.0"
