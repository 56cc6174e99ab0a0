"""Messages of a typed service in words, as texts about differences have them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.facts import has_facts
from trimaran.cluster.testing import ServiceHarness, TypedHarness
from trimaran.service_api import ClientSession, ClusteredService
from trimaran.service_api.service_texts import texts_of
from trimaran.service_api.typed import Command, Context, Event, Reply, ServiceError, TypedService, handles, state
from trimaran.service_api.wire.topics import encode_topic_message


class Balance(Reply):
    amount: int
    owner: str = "nobody"


class Deposit(Command[Balance]):
    account: str
    amount: int = 1


class OlderDeposit(Command[Balance], name="Deposit"):
    account: str


class Count(Command[int]):
    """Answered with a number."""


class Deposited(Event):
    account: str


class Refused(ServiceError):
    amount: int


class Bank(TypedService):
    events = (Deposited,)
    balances: dict[str, int] = state()

    @handles(Deposit)
    def deposit(self, ctx: Context, message: Deposit) -> Balance:
        if message.amount < 0:
            raise Refused(amount=message.amount)
        self.balances[message.account] = self.balances.get(message.account, 0) + message.amount
        ctx.send(Deposited(message.account))
        return Balance(self.balances[message.account])

    @handles(Count)
    def count(self, ctx: Context, message: Count) -> int:
        return len(self.balances)


@pytest.fixture
def bank() -> TypedHarness[Bank]:
    return TypedHarness(Bank)


def asked(bank: TypedHarness[Bank], command: Any) -> tuple[bytes, bytes]:
    """Send a command, and return its payload and that of the answer."""
    payload = bank.route(type(command)).payload(command)
    return payload, bank.request(payload)


@pytest.mark.parametrize(
    ("command", "shown", "answer"),
    [
        (Deposit("ann", 5), "Deposit(account='ann', amount=5)", "Balance(amount=5, owner='nobody')"),
        (Deposit("ann", -5), "Deposit(account='ann', amount=-5)", "Refused(amount=-5)"),
        (Count(), "Count()", "0"),
    ],
)
def test_commands_and_answers_are_shown_by_name_and_field(
    bank: TypedHarness[Bank], command: Any, shown: str, answer: str
) -> None:
    payload, reply = asked(bank, command)
    texts = texts_of(bank.service)

    assert (texts.message(payload), texts.message(reply)) == (shown, answer)


def test_events_are_shown_with_their_topic(bank: TypedHarness[Bank]) -> None:
    asked(bank, Deposit("ann", 5))
    texts, (event,) = texts_of(bank.service), bank.egress

    assert texts.message(event) == "Deposited(account='ann')"
    assert texts.message(encode_topic_message("news", event)) == "news: Deposited(account='ann')"


def test_a_command_of_an_older_client_is_shown_by_the_schema_that_it_announced(bank: TypedHarness[Bank]) -> None:
    payload = bank.route(OlderDeposit).payload(OlderDeposit("ann"))

    texts = texts_of(bank.service)
    assert texts.message(payload) == "Deposit(account='ann')"
    assert has_facts(texts.handler(payload) or "", "Bank.deposit")


def test_the_handler_of_a_message_is_named_with_its_line(bank: TypedHarness[Bank]) -> None:
    payload, reply = asked(bank, Deposit("ann", 5))
    line = Bank.deposit.__code__.co_firstlineno

    assert has_facts(texts_of(bank.service).handler(payload) or "", "Bank.deposit", f"test_message_texts.py:{line}")
    assert texts_of(bank.service).handler(reply) is None


def test_two_messages_of_a_class_differ_in_a_field(bank: TypedHarness[Bank]) -> None:
    (five, reply), (six, other), (_, refused) = (asked(bank, Deposit("ann", amount)) for amount in (5, 6, -1))
    texts = texts_of(bank.service)

    assert texts.difference(five, six) == "Deposit.amount: expected=5 actual=6"
    assert texts.difference(reply, other) == "Balance.amount: expected=5 actual=11"
    assert texts.difference(reply, refused) == "expected=Balance(amount=5, owner='nobody') actual=Refused(amount=-1)"
    assert texts.difference(reply, b"bytes") is None


def test_states_differ_in_a_field_and_a_key_however_many_there_are() -> None:
    harnesses = [TypedHarness(Bank), TypedHarness(Bank)]
    for number in range(10_001):
        for harness in harnesses:
            harness.service.balances[str(number)] = number
    harnesses[1].service.balances["77"] = 0

    one, two = (harness.service for harness in harnesses)

    assert texts_of(one).states(one, two) == "balances['77']: expected=77 actual=0"
    assert texts_of(one).states(one, one) == ""


def test_bytes_that_only_look_typed_and_other_services_are_not_shown(bank: TypedHarness[Bank]) -> None:
    class Plain(ClusteredService):
        def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
            return bytes(payload)

    payload, _ = asked(bank, Deposit("ann", 5))
    texts = texts_of(bank.service)

    assert [texts.message(each) for each in (b"", b"5", payload[:10], payload[:12], b"\xc1" * 40)] == [None] * 5
    plain = texts_of(ServiceHarness(Plain).service)
    assert (plain.message(payload), plain.difference(payload, payload), plain.handler(payload)) == (None, None, None)
