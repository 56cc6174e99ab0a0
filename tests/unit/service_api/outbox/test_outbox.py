"""The outbox of a service without declared state: what it keeps, what it answers, and what is settled."""

from __future__ import annotations

import pytest

from tests.unit.client.outbox.plain_shop import Shop
from trimaran.cluster.testing import ServiceHarness
from trimaran.service_api.errors import (
    BackPressureError,
    ConfigurationError,
    LocalProtocolError,
    RemoteProtocolError,
)
from trimaran.service_api.outbox import EffectKey, Outbox
from trimaran.service_api.outbox.effects import REASON_LIMIT_BYTES, OutboxEntry
from trimaran.service_api.outbox.outbox import SNAPSHOT_MARK
from trimaran.service_api.outbox.protocol import (
    ANSWER_LIMIT_BYTES,
    OUTBOX_MARK,
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
from trimaran.service_api.wire.payload_header import MAGIC, PayloadKind


def ask(harness: ServiceHarness[Shop], *, given_up: bool = False) -> list[EffectRow]:
    question = EffectsQuestion("outbox", is_given_up=given_up)
    return decode_outbox_message(harness.query(encode_outbox_message(question, 0)), EffectsAnswer).effects


def settle(harness: ServiceHarness[Shop], settled_as: SettledAs, *rows: EffectRow, reason: str = "") -> SettlementReply:
    settled = [SettledRow(row.log_position, row.number, settled_as, 3, reason) for row in rows]
    reply = harness.request(encode_outbox_message(Settlement("outbox", settled), 0))
    return decode_outbox_message(reply, SettlementReply)


def test_a_settlement_removes_what_it_names_once_and_twice() -> None:
    harness = ServiceHarness(Shop)
    harness.request(b"1")
    effects = ask(harness)

    assert [settle(harness, SettledAs.DONE, effects[0]).settled_count for _ in range(2)] == [1, 0]

    assert ask(harness) == effects[1:]
    keys = [EffectKey(effect.log_position, effect.number) for effect in effects]
    assert [str(key) for key in keys] == [f"{effects[0].log_position}-{number}" for number in (0, 1)]


def test_keys_never_come_again() -> None:
    harness = ServiceHarness(Shop)
    keys = [harness.request(b"%d" % number) for number in range(50)]
    harness.restart()
    keys += [harness.request(b"%d" % number) for number in range(10)]

    assert len(set(keys)) == 60


def test_an_outbox_that_nobody_empties_refuses_more() -> None:
    harness = ServiceHarness(Shop)
    for number in range(0, 200, 2):
        harness.request(b"%d" % number)

    with pytest.raises(BackPressureError, match="effects=100 limit=100"):
        harness.request(b"2")


def test_what_is_given_up_stays_with_its_error_until_an_operator_retries_or_drops_it() -> None:
    harness = ServiceHarness(Shop)
    harness.request(b"1")
    effects = ask(harness)

    settle(harness, SettledAs.GIVEN_UP, *effects, reason="refused " + "ü" * 500)
    harness.restart()

    assert ask(harness) == []
    given_up = ask(harness, given_up=True)
    assert [(row.payload, row.attempt_count) for row in given_up] == [(b"deliver 1", 3), (b"invoice 1", 3)]
    assert given_up[0].reason == "refused " + "ü" * ((REASON_LIMIT_BYTES - 8) // 2)
    assert harness.service.outbox_counts() == [("outbox", 0, 2)]

    settle(harness, SettledAs.RETRIED, given_up[0])
    settle(harness, SettledAs.DROPPED, given_up[1])

    assert ask(harness) == effects[:1]
    assert ask(harness, given_up=True) == []


def test_at_most_a_tenth_is_given_up_and_more_stay_pending() -> None:
    harness = ServiceHarness(Shop)
    for number in range(0, 24, 2):
        harness.request(b"%d" % number)
    effects = ask(harness)

    reply = settle(harness, SettledAs.GIVEN_UP, *effects)

    assert reply.refused == [(row.log_position, row.number) for row in effects[10:]]
    assert ask(harness) == effects[10:]


def test_an_answer_is_bounded_and_holds_one_effect_at_least() -> None:
    outbox = Outbox()
    for number, length in enumerate((5, ANSWER_LIMIT_BYTES, 7, 9)):
        outbox.entries[number, 0] = OutboxEntry(bytes(length))

    lengths, after = [], (-1, 0)
    for _ in range(3):
        rows, is_last = outbox.page(after, is_given_up=False)
        lengths.append([len(row.payload) for row in rows])
        after = rows[-1].log_position, rows[-1].number

    assert lengths == [[5], [ANSWER_LIMIT_BYTES], [7, 9]]
    assert is_last


def test_what_is_retried_is_asked_for_in_the_order_of_keys() -> None:
    harness = ServiceHarness(Shop)
    for number in range(0, 6, 2):
        harness.request(b"%d" % number)
    effects = ask(harness)

    settle(harness, SettledAs.GIVEN_UP, effects[0])
    settle(harness, SettledAs.RETRIED, effects[0])

    assert ask(harness) == effects


def test_two_outboxes_of_a_service_each_take_their_own() -> None:
    class Two(Shop):
        def __init__(self) -> None:
            super().__init__()
            self.other = Outbox("other")

    harness = ServiceHarness(Two)
    harness.request(b"1")
    other = Outbox("other")
    (settlement,) = [encode_outbox_message(Settlement("other", [SettledRow(0, 0, SettledAs.DONE)]), 0)]

    assert harness.service.outbox.on_request(settlement) is None
    assert other.on_request(settlement) is not None
    assert harness.service.outbox.on_query(encode_outbox_message(EffectsQuestion("other"), 0)) is None
    assert [other.load(message) for message in harness.service.outbox.snapshot_messages()] == [False, False]
    assert other.on_request(encode_outbox_message(Settlement("other", []), 3)) is None, "it is for another service"


def test_what_is_none_of_its_messages_is_left_to_the_service_or_named() -> None:
    outbox, header = Outbox(), bytes((MAGIC, PayloadKind.OUTBOX)) + OUTBOX_MARK

    assert outbox.on_request(b"5") is None
    assert outbox.on_query(b"5") is None
    assert outbox.load(b"5") is False
    with pytest.raises(RemoteProtocolError, match="payload of 15 bytes expected a Settlement"):
        outbox.on_request(header + bytes(5))
    with pytest.raises(RemoteProtocolError, match="payload of 15 bytes expected a EffectsQuestion"):
        outbox.on_query(header + bytes(5))
    with pytest.raises(RemoteProtocolError, match="of an outbox"):
        outbox.load(SNAPSHOT_MARK + bytes(5))
    with pytest.raises(LocalProtocolError, match="call attach"):
        outbox.add(b"")
    with pytest.raises(RemoteProtocolError, match="not typed"):
        outbox.on_request(encode_outbox_message(Settlement("outbox", [], b"x"), 0))


@pytest.mark.parametrize(("name", "limit", "facts"), [("", 5, "name=''"), ("a", 0, "effect_limit=0")])
def test_what_no_outbox_can_be_made_of_is_refused(name: str, limit: int, facts: str) -> None:
    with pytest.raises(ConfigurationError, match=facts):
        Outbox(name, effect_limit=limit)
