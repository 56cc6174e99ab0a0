"""Other code against the old log: what differs is found at the exact message."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.facts import has_facts
from tests.unit.cluster.time_travel.ledger import FeeLedger, Ledger
from tests.unit.cluster.time_travel.recorded import Recorded
from trimaran.cluster.time_travel import Change, MemberLog, Output, OutputKind, replay_service, what_if
from trimaran.cluster.time_travel.difference import OutputDifference, compare_outputs
from trimaran.service_api import ClientSession, ClusteredService, ConfigurationError


def first_fee(recorded: Recorded) -> int:
    """The position of the first transfer that costs something under the new rule, by the old code's own replies."""
    balances: dict[str, int] = {}
    outputs: list[Output] = []
    replay_service(recorded.directory, Ledger, snapshot="none", sink=outputs.append)
    fee_ledger = FeeLedger()
    names = iter(output for output in outputs if output.kind is OutputKind.REPLY)
    for reply, amount in zip(names, (13 * index % 101 for index in range(60)), strict=False):
        balances["any"] = amount
        if fee_ledger.fee(amount):
            return reply.position
    raise AssertionError("no transfer is above the limit")


def test_the_same_code_differs_in_nothing(recorded: Recorded) -> None:
    result = what_if(recorded.directory, old=Ledger, new="tests.unit.cluster.time_travel.ledger:Ledger")

    assert result.is_same
    assert result.is_state_compared
    assert result.old_counts == result.new_counts
    assert set(result.new_counts) == set(OutputKind)
    assert (result.start_position, result.end_position) == (0, recorded.snapshots[-1])


def test_a_changed_rule_is_found_at_the_exact_message(recorded: Recorded) -> None:
    result = what_if(recorded.directory, old=Ledger, new=FeeLedger)

    assert result.first is not None
    old, new = result.first.old, result.first.new
    assert old is not None
    assert new is not None
    assert result.first.change is Change.CHANGED
    assert result.first.position == old.position == new.position == first_fee(recorded)
    assert json.loads(old.payload)[1] - json.loads(new.payload)[1] == 1
    assert set(result.changes) == {(OutputKind.REPLY, Change.CHANGED)}
    assert result.state is not None
    assert has_facts(result.state.detail, "message 1", "byte")
    assert len(result.sample) == 20 < result.difference_count


def test_a_state_that_shows_in_no_output_is_found_at_the_exact_message(recorded: Recorded) -> None:
    class Silent(FeeLedger):
        """Answers as the old code did."""

        def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
            reply = json.loads(super().on_request(session, timestamp, payload))
            self.owed = getattr(self, "owed", Counter[str]())
            name, amount = str(payload, "ascii").split()
            self.owed[name] += self.fee(int(amount))
            return json.dumps([reply[0], reply[1] + self.owed[name], reply[2]]).encode()

    def balances(service: ClusteredService) -> object:
        assert isinstance(service, Ledger)
        return dict(service.balances)

    result = what_if(recorded.directory, old=Ledger, new=Silent, state=balances)

    assert result.first is None
    assert result.state is not None
    assert result.state.position == first_fee(recorded)
    assert result.state.detail.startswith("old={'account0': 91")


def test_a_comparison_may_begin_with_a_snapshot_and_end_early(recorded: Recorded) -> None:
    stop = recorded.snapshots[1] + 2000

    result = what_if(
        recorded.directory, old=Ledger, new=FeeLedger, snapshot=recorded.snapshots[1], position=stop, bound="recorded"
    )

    assert result.start_position == recorded.snapshots[1]
    assert recorded.snapshots[1] < result.end_position <= stop
    assert all(recorded.snapshots[1] < difference.position <= stop for difference in result.sample)


class NoOffers(Ledger):
    """Offers nothing any more, and sets no timers."""

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        if bytes(payload[:5]) == b"offer" or bytes(payload[:5]) == b"timer":
            return
        super().on_session_message(session, timestamp, payload)


class MoreOffers(Ledger):
    """Offers one message more, at the third request."""

    requests = 0

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        self.requests += 1
        if self.requests == 3:
            self.cluster.offer(b"one more")
        return super().on_request(session, timestamp, payload)


def test_a_service_is_held_against_the_log_alone(recorded: Recorded) -> None:
    result = what_if(recorded.directory, old=None, new=Ledger)

    assert result.is_same
    assert result.old_counts == {}
    assert result.new_counts[OutputKind.OFFER] == 36


def test_what_the_log_holds_and_the_service_did_not_ask_for_is_told(recorded: Recorded) -> None:
    fired, offered = 0, 0
    outputs: list[Output] = []
    replayed = replay_service(recorded.directory, Ledger, snapshot="none", sink=outputs.append)
    assert isinstance(replayed.service, Ledger)
    fired, offered = replayed.service.timers_fired, replayed.output_counts[OutputKind.OFFER]

    result = what_if(recorded.directory, old=None, new=NoOffers)

    assert result.changes == {
        (OutputKind.OFFER, Change.MISSING): offered,
        (OutputKind.TIMER_SCHEDULED, Change.MISSING): fired,
    }
    assert fired > 0
    assert result.first is not None
    assert result.first.new is None


def test_an_offer_that_is_not_in_the_log_is_told_and_the_others_still_fit(recorded: Recorded) -> None:
    result = what_if(recorded.directory, old=None, new=MoreOffers)

    assert result.changes == {(OutputKind.OFFER, Change.EXTRA): 1}
    assert result.first is not None
    assert result.first.output.payload == b"one more"
    compared = what_if(recorded.directory, old=Ledger, new=MoreOffers)
    assert compared.changes == {(OutputKind.OFFER, Change.EXTRA): 1}


def test_a_side_that_fails_is_a_difference(recorded: Recorded) -> None:
    class Raising(Ledger):
        def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
            raise KeyError(correlation_id)

    result = what_if(recorded.directory, old=Ledger, new=Raising)

    assert result.changes[OutputKind.ERROR, Change.EXTRA] > 0
    assert result.changes[OutputKind.MESSAGE, Change.MISSING] > 0


def test_sides_that_cannot_be_compared_are_refused(recorded: Recorded, tmp_path: Path) -> None:
    log = MemberLog.open(recorded.directory)
    with pytest.raises(ConfigurationError, match="expected a class"):
        what_if(log, old=Ledger(), new=Ledger)  # type: ignore[arg-type]  # what a user may get wrong
    with pytest.raises(ConfigurationError, match=r"old=2 .*new=1"):
        what_if(log, old=[Ledger, Ledger], new=Ledger)
    with pytest.raises(ConfigurationError, match="snapshot=100"):
        what_if(log, old=Ledger, new=Ledger, snapshot=100)


def output(position: int, kind: OutputKind, payload: bytes = b"", **ids: int) -> Output:
    return Output(position, 0, kind, payload=payload, **ids)


def told(old: list[Output], new: list[Output]) -> list[tuple[Change, bytes | None, bytes | None]]:
    def payload(side: Output | None) -> bytes | None:
        return None if side is None else side.payload

    return [(each.change, payload(each.old), payload(each.new)) for each in compare_outputs(old, new)]


def test_outputs_of_an_entry_are_aligned() -> None:
    """One message more at the begin is one difference, not one for each that follows."""
    kind = OutputKind.MESSAGE
    old = [output(32, kind, text, cluster_session_id=1) for text in (b"a", b"b", b"c")]
    new = [output(32, kind, text, cluster_session_id=1) for text in (b"x", b"a", b"b", b"c")]

    assert told(old, new) == [(Change.EXTRA, None, b"x")]
    assert told(new, old) == [(Change.MISSING, b"x", None)]
    assert told(old, [*old[:1], old[1]._replace(payload=b"B"), old[2]]) == [(Change.CHANGED, b"b", b"B")]


def test_another_order_between_sessions_is_told_once() -> None:
    kind = OutputKind.MESSAGE
    old = [output(32, kind, b"a", cluster_session_id=1), output(32, kind, b"b", cluster_session_id=2)]

    assert told(old, old[::-1]) == [(Change.MOVED, b"a", b"b")]


def test_ids_of_offers_do_not_count_and_positions_do() -> None:
    kind = OutputKind.OFFER
    one, other = (output(32, kind, b"a", cluster_session_id=number) for number in (-5, -4))

    assert told([one], [other]) == []
    assert told([one], [other._replace(position=64)]) == [(Change.MISSING, b"a", None), (Change.EXTRA, None, b"a")]


def test_many_outputs_of_one_entry_are_compared_one_by_one() -> None:
    old = [output(32, OutputKind.MESSAGE, b"%d" % number, cluster_session_id=1) for number in range(300)]

    assert told(old, [*old[:299], old[299]._replace(payload=b"other")]) == [(Change.CHANGED, b"299", b"other")]
    assert OutputDifference(Change.MISSING, old[3], None).position == 32
