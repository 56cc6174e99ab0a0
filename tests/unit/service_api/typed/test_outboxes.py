"""Declared outboxes: what a refused command added is undone, and the rest is state like any other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.client.outbox.ticket_shop import Buy, Charge, Charged, Mail, SeatTaken, Sold, TicketShop
from trimaran import (
    Command,
    Context,
    Effect,
    EffectKey,
    Outbox,
    Query,
    ServiceError,
    TypedService,
    answers,
    handles,
    outbox,
    state,
)
from trimaran.cluster.service.service_cluster import ServiceCluster
from trimaran.cluster.testing import TypedHarness
from trimaran.cluster.testing.harness import HarnessSession
from trimaran.service_api.errors import (
    BackPressureError,
    ConfigurationError,
    LocalProtocolError,
    RemoteProtocolError,
)
from trimaran.service_api.outbox.protocol import (
    EffectRow,
    EffectsAnswer,
    EffectsQuestion,
    SettledAs,
    SettledRow,
    Settlement,
    SettlementReply,
    decode_outbox_message,
    encode_outbox_message,
)


@pytest.fixture
def shop() -> TypedHarness[TicketShop]:
    return TypedHarness(TicketShop, double_execution=True)


def ask(shop: TypedHarness[Any], name: str = "payments", *, given_up: bool = False) -> EffectsAnswer:
    question = encode_outbox_message(EffectsQuestion(name, is_given_up=given_up), 0)
    return decode_outbox_message(shop.query(question), EffectsAnswer)


def settle(
    shop: TypedHarness[Any], row: EffectRow, settled_as: SettledAs = SettledAs.DONE, *, result: bytes = b""
) -> SettlementReply:
    rows = [SettledRow(row.log_position, row.number, settled_as, 7, "card refused")]
    reply = shop.request(encode_outbox_message(Settlement("payments", rows, result), 0))
    return decode_outbox_message(reply, SettlementReply)


def test_an_effect_of_a_refused_command_is_undone(shop: TypedHarness[TicketShop]) -> None:
    shop.call(Buy(1))
    before = shop.service.state_hash()

    with pytest.raises(SeatTaken):
        shop.call(Buy(2, is_refused=True))

    assert [*shop.service.payments.pending.values()] == [Charge(1, 20)]
    assert [*shop.service.mails.pending.values()] == [Mail("seat 1")]
    assert shop.service.state_hash() == before


def test_effects_of_one_command_have_keys_of_one_position(shop: TypedHarness[TicketShop]) -> None:
    shop.call(Buy(1))

    (charge,), (mail,) = shop.service.payments.pending, shop.service.mails.pending
    assert charge == EffectKey(mail.log_position, 0)
    assert mail.number == 1


def test_effects_come_back_from_a_snapshot_with_their_keys(shop: TypedHarness[TicketShop]) -> None:
    shop.call(Buy(1))
    shop.call(Buy(2))
    settle(shop, ask(shop).effects[0], SettledAs.GIVEN_UP)
    pending, given_up = shop.service.payments.pending, shop.service.payments.given_up

    shop.restart()

    assert shop.service.payments.pending == pending
    assert shop.service.payments.given_up == given_up
    assert [entry.reason for entry in given_up.values()] == ["card refused"]
    shop.call(Buy(3))
    assert [effect.seat for effect in shop.service.payments.pending.values()] == [2, 3]


def test_effects_are_in_the_digest_of_the_state(shop: TypedHarness[TicketShop]) -> None:
    shop.call(Buy(1))
    before: Any = shop.service.state_hash()

    settle(shop, ask(shop).effects[0])

    after: Any = shop.service.state_hash()
    assert [len(each["payments"]) for each in (before, after)] == [1, 0]


def test_a_worker_learns_the_outboxes_and_their_classes(shop: TypedHarness[TicketShop]) -> None:
    shop.call(Buy(1))

    facts = ask(shop, "").outboxes

    assert [(each.name, each.effect_name, each.pending_count) for each in facts] == [
        ("payments", "Charge", 1),
        ("mails", "Mail", 1),
    ]
    assert shop.service.outbox_counts() == [("payments", 1, 0), ("mails", 1, 0)]
    with pytest.raises(RemoteProtocolError, match=r"outbox=bills.*payments, mails"):
        ask(shop, "bills")


def test_a_result_runs_once_where_its_effect_is_settled(shop: TypedHarness[TicketShop]) -> None:
    shop.call(Buy(1))
    result = shop.route(Charged).payload(Charged(1, "r-17"))
    row = ask(shop).effects[0]

    replies = [settle(shop, row, result=result) for _ in range(2)]

    assert [(reply.settled_count, bool(reply.answer)) for reply in replies] == [(1, True), (0, False)]
    assert shop.service.seats == {1: "paid r-17"}
    assert shop.service.charged_count == 1


@pytest.mark.parametrize(("receipt", "raised"), [("wrong", None), ("bug", ValueError)])
def test_a_result_that_the_service_refuses_is_undone_and_its_effect_stays_settled(
    shop: TypedHarness[TicketShop], receipt: str, raised: type[Exception] | None
) -> None:
    shop.call(Buy(1))
    route, row = shop.route(Charged), ask(shop).effects[0]

    if raised is None:
        reply = settle(shop, row, result=route.payload(Charged(1, receipt)))
        with pytest.raises(SeatTaken):
            route.read(reply.answer)
    else:
        with pytest.raises(raised):
            settle(shop, row, result=route.payload(Charged(1, receipt)))

    assert shop.service.seats == {1: "reserved"}
    assert shop.service.charged_count == 0
    assert shop.service.payments.pending == {}


def test_a_result_is_a_command_for_one_effect(shop: TypedHarness[TicketShop]) -> None:
    shop.call(Buy(1))
    row = ask(shop).effects[0]
    result = shop.route(Charged).payload(Charged(1, "r"))

    with pytest.raises(RemoteProtocolError, match="expected a command"):
        settle(shop, row, result=shop.route(Sold).payload(Sold()))
    with pytest.raises(RemoteProtocolError, match="result of 0 effects"):
        shop.request(encode_outbox_message(Settlement("payments", [], result), 0))

    assert len(shop.service.payments.pending) == 1


class Small(TypedService):
    jobs: Outbox[Charge] = outbox(effect_limit=2)
    more: Outbox[Charge] = outbox()
    lines: dict[int, int] = state()

    @handles(Buy)
    def buy(self, ctx: Context, message: Buy) -> int:
        self.lines[message.seat] = 1
        self.jobs.add(Charge(message.seat, 1))
        return 1

    @handles(Charged)
    def ambiguous(self, ctx: Context, message: Charged) -> None:
        ctx.effect(Mail("x") if message.receipt == "mail" else Charge(1, 1))

    @answers(Sold)
    def sold(self, ctx: Context, message: Sold) -> dict[int, str]:
        self.jobs.add(Charge(1, 1))
        return {}


def test_a_full_outbox_refuses_the_command_that_adds() -> None:
    small = TypedHarness(Small)
    for seat in range(2):
        small.call(Buy(seat))

    with pytest.raises(BackPressureError, match="outbox=jobs effects=2 limit=2"):
        small.call(Buy(5))

    assert small.service.lines == {0: 1, 1: 1}


def test_an_effect_goes_to_the_one_outbox_of_its_class() -> None:
    small = TypedHarness(Small)

    with pytest.raises(LocalProtocolError, match=r"jobs, more.*Charge"):
        small.call(Charged(1, "charge"))
    with pytest.raises(LocalProtocolError, match=r"Mail.*Outbox\[Mail\]"):
        small.call(Charged(1, "mail"))


def test_a_query_adds_no_effect() -> None:
    small = TypedHarness(Small)

    with pytest.raises(LocalProtocolError, match="a query"):
        small.ask(Sold())

    assert small.service.jobs.pending == {}


class OldCharge(Effect, name="Charge"):
    seat: int


class OldShop(TypedService, name="shop"):
    payments: Outbox[OldCharge] = outbox()

    @handles(Buy)
    def buy(self, ctx: Context, message: Buy) -> int:
        ctx.effect(OldCharge(message.seat))
        return 1


class NewCharge(Effect, name="Charge"):
    seat: int
    currency: str = "EUR"


class NewShop(TypedService, name="shop"):
    payments: Outbox[NewCharge] = outbox()


class MovedCharge(Effect, name="Charge"):
    place: str


class MovedShop(TypedService, name="shop"):
    payments: Outbox[MovedCharge] = outbox()

    @staticmethod
    def migrate_payments(old: dict[tuple[int, int], Any]) -> dict[tuple[int, int], Any]:
        return {key: {**entry, "effect": {"place": f"seat {entry['effect']['seat']}"}} for key, entry in old.items()}


def test_effects_are_read_by_names_after_a_change_or_migrated() -> None:
    for version, expected in ((NewShop, NewCharge(5)), (MovedShop, MovedCharge("seat 5"))):
        harness: TypedHarness[Any] = TypedHarness(OldShop)
        harness.call(Buy(5))
        (key,) = harness.service.payments.pending
        harness.restart(version)

        assert harness.service.payments.pending == {key: expected}


def test_an_outbox_that_cannot_work_is_refused_where_it_is_declared() -> None:
    with pytest.raises(ConfigurationError, match=r"Wrong.jobs.*Outbox\[Charge\]"):
        type("Wrong", (TypedService,), {"__annotations__": {"jobs": dict[str, int]}, "jobs": outbox()})
    with pytest.raises(ConfigurationError, match=r"Wrong.jobs.*outbox\(\)"):
        type("Wrong", (TypedService,), {"__annotations__": {"jobs": Outbox[Charge]}, "jobs": state()})
    with pytest.raises(ConfigurationError, match="effect_limit=0"):
        type("Wrong", (TypedService,), {"__annotations__": {"jobs": Outbox[Charge]}, "jobs": outbox(effect_limit=0)})


def test_the_outbox_of_plain_services_is_refused_in_a_typed_one() -> None:
    class Mixed(TypedService):
        def __init__(self) -> None:
            self.payments = Outbox()

        async def on_take_snapshot(self, snapshot: Any) -> None:
            await super().on_take_snapshot(snapshot)

    with pytest.raises(ConfigurationError, match=r"Mixed.payments.*Outbox\[Charge\] = outbox\(\)"):
        TypedHarness(Mixed)


def test_an_outbox_is_not_assigned() -> None:
    class Assigning(Small):
        @handles(Charged)
        def ambiguous(self, ctx: Context, message: Charged) -> None:
            self.jobs = self.more

    with pytest.raises(LocalProtocolError, match=r"jobs.*add"):
        TypedHarness(Assigning).call(Charged(1, ""))


# What else a handler does


class Do(Command[None]):
    what: str
    is_refused: bool = False


class See(Query[None]):
    what: str


class Refused(ServiceError):
    pass


class Doer(TypedService):
    done: dict[str, int] = state()

    @handles(Do)
    def do(self, ctx: Context, message: Do) -> None:
        self.done[message.what] = 1
        self.call(ctx, message.what)
        if message.is_refused:
            raise Refused

    @answers(See)
    def see(self, ctx: Context, message: See) -> None:
        self.call(ctx, message.what)

    def call(self, ctx: Context, what: str) -> None:
        match what:
            case "offer":
                ctx.cluster.offer(b"hello")
            case "publish":
                ctx.cluster.publish("topic", b"hello")
            case "session":
                ctx.session.offer(b"hello")
            case "sessions":
                for session in ctx.cluster.client_sessions.values():
                    session.offer(b"hello")
            case "session offer":
                ctx.session.offer(b"hello")
                ctx.cluster.offer(b"hello")
            case "close":
                ctx.session.close()
            case "close by id":
                assert ctx.cluster.close_client_session(ctx.session.id)
            case "long":
                ctx.session.offer(bytes(ctx.payload_limit_bytes + 1))
            case "timer":
                ctx.cluster.schedule_timer(1, 5)
            case "topic":
                ctx.cluster.publish("", b"hello")


CALLS = ("offer", "publish", "session", "sessions", "close", "close by id")


def outputs(harness: TypedHarness[Doer], client: HarnessSession) -> tuple[object, ...]:
    return [*harness.offered], [each.payload for each in harness.published], [*client.egress], client.close_reason


@pytest.mark.parametrize("what", CALLS)
def test_what_a_handler_sends_is_undone_with_it_and_done_after_it(what: str) -> None:
    harness = TypedHarness(Doer)
    harness.route(Do)
    client = harness.client
    before = outputs(harness, client)

    with pytest.raises(Refused):
        harness.call(Do(what, is_refused=True))
    undone = outputs(harness, client)
    harness.call(Do(what))

    assert undone == before
    assert outputs(harness, client) != before


def test_a_handler_for_whose_messages_there_is_no_room_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def check_room(cluster: object, lengths: Sequence[int]) -> None:
        assert [*lengths] == [5]
        raise BackPressureError("limit=4")

    monkeypatch.setattr(ServiceCluster, "check_room", check_room)
    harness = TypedHarness(Doer)

    with pytest.raises(BackPressureError):
        harness.call(Do("session offer"))

    assert harness.egress == []
    assert harness.offered == []
    assert harness.service.done == {}


@pytest.mark.parametrize("what", [each for each in CALLS if each not in ("session", "close", "close by id")])
def test_a_query_sends_nothing(what: str) -> None:
    harness = TypedHarness(Doer)
    assert harness.client.close_reason is None

    with pytest.raises(LocalProtocolError, match="a query"):
        harness.ask(See(what))


@pytest.mark.parametrize(("what", "facts"), [("long", "limit="), ("timer", r"ctx\.schedule"), ("topic", "topic=''")])
def test_what_cannot_be_sent_is_refused_while_all_can_be_undone(what: str, facts: str) -> None:
    harness = TypedHarness(Doer)

    with pytest.raises(LocalProtocolError, match=facts):
        harness.call(Do(what))

    assert harness.service.done == {}
