"""Locks, one service by hand, and any order of claims."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.unit.service_api.ready_made.calling import call_as
from trimaran.cluster.testing import TypedHarness
from trimaran.service_api.ready_made.locks import (
    ClaimLock,
    ClaimState,
    ListLocks,
    LockError,
    LockGranted,
    LockHolder,
    LockService,
    LockSummary,
    ReadClaim,
    ReadLock,
    ReleaseLock,
    RenewLease,
)

NAMES = st.sampled_from(["a", "b"])
NUMBERS = st.integers(1, 4)


class FewClaims(LockService):
    claim_limit = 3
    queue_limit = 2
    share_divisor = 1


@pytest.fixture
def locks() -> TypedHarness[LockService]:
    return TypedHarness(LockService)


def test_a_lock_has_one_holder_and_those_who_wait_are_granted_in_order(locks: TypedHarness[LockService]) -> None:
    other = locks.open_session()
    first = call_as(locks, other, ClaimLock("a", 1, value=b"me"))
    assert first.is_held
    assert locks.call(ClaimLock("a", 1)).place == 1
    assert locks.call(ClaimLock("a", 2)).place == 2
    assert locks.ask(ReadLock("a")).holders == [LockHolder(other.id, True, b"me", first.token)]
    assert locks.ask(ListLocks()) == [LockSummary("a", True, first.token, 1, 2)]

    assert call_as(locks, other, ReleaseLock(1)) is True
    assert call_as(locks, other, ReleaseLock(1)) is False

    (event,) = locks.events(LockGranted)
    assert event.number == 1
    assert event.token > first.token
    assert locks.ask(ReadClaim(locks.client.id, 1)) == ClaimState(True, event.token, 0)
    assert locks.ask(ReadClaim(locks.client.id, 2)).place == 1


def test_a_claim_that_is_sent_again_changes_nothing(locks: TypedHarness[LockService]) -> None:
    first = locks.call(ClaimLock("a", 1))

    assert locks.call(ClaimLock("a", 1)) == first
    with pytest.raises(LockError, match=r"number=1 .*'a'.*'b'"):
        locks.call(ClaimLock("b", 1))


def test_a_shared_claim_does_not_pass_an_exclusive_one(locks: TypedHarness[LockService]) -> None:
    assert locks.call(ClaimLock("a", 1, is_exclusive=False)).is_held
    assert locks.call(ClaimLock("a", 2, is_exclusive=False)).is_held
    assert locks.call(ClaimLock("a", 3)).place == 1
    assert locks.call(ClaimLock("a", 4, is_exclusive=False)).place == 2
    assert locks.call(ClaimLock("a", 5, is_exclusive=False)).place == 3

    locks.call(ReleaseLock(1))
    locks.call(ReleaseLock(2))
    assert [event.number for event in locks.events(LockGranted)] == [3]
    locks.call(ReleaseLock(3))
    assert [event.number for event in locks.events(LockGranted)] == [3, 4, 5]


def test_an_exclusive_claim_that_goes_lets_the_shared_ones_after_it_in(locks: TypedHarness[LockService]) -> None:
    locks.call(ClaimLock("a", 1, is_exclusive=False))
    locks.call(ClaimLock("a", 2, wait_s=1))
    locks.call(ClaimLock("a", 3, is_exclusive=False))

    locks.advance(1)

    assert [event.number for event in locks.events(LockGranted)] == [3]
    assert locks.ask(ReadClaim(locks.client.id, 2)) == ClaimState(False, 0, 0)


def test_what_a_session_holds_ends_with_it(locks: TypedHarness[LockService]) -> None:
    other = locks.open_session()
    for number in (1, 2):
        call_as(locks, other, ClaimLock("a", number))
    call_as(locks, other, ClaimLock("b", 3))
    locks.call(ClaimLock("a", 1))
    locks.call(ClaimLock("b", 2))

    other.close()

    assert [event.number for event in locks.events(LockGranted)] == [1, 2]
    assert set(locks.service.claims) == {(locks.client.id, 1), (locks.client.id, 2)}


def test_a_lease_ends_unless_it_is_renewed(locks: TypedHarness[LockService]) -> None:
    locks.call(ClaimLock("a", 1, lease_s=2))
    locks.call(ClaimLock("a", 2, lease_s=2))
    locks.advance(1)
    assert locks.call(RenewLease(1)) is True
    locks.restart()
    locks.advance(1.5)
    assert locks.ask(ReadClaim(locks.client.id, 1)).is_held

    locks.advance(0.5)

    assert locks.call(RenewLease(1)) is False
    assert locks.ask(ReadClaim(locks.client.id, 2)).is_held
    locks.advance(2)
    assert not locks.service.claims
    assert not locks.service.holders
    assert not locks.service.waiters


def test_a_try_leaves_nothing(locks: TypedHarness[LockService]) -> None:
    locks.call(ClaimLock("a", 1))

    assert locks.call(ClaimLock("a", 2, wait_s=0)) == ClaimState(False, 0, 0)
    assert locks.ask(ReadLock("a")).waiters == []
    assert locks.call(ClaimLock("b", 2, wait_s=0)).is_held


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (ClaimLock("", 1), "name .*0 bytes.*1 to 512"),
        (ClaimLock("a", -1), "number=-1 .*0 to"),
        (ClaimLock("a", 1, lease_s=0), "lease_s=0"),
        (ClaimLock("a", 1, wait_s=float("nan")), "wait_s=nan"),
        (ClaimLock("a", 1, value=bytes(4_097)), "value .*4097 bytes.*4096"),
    ],
)
def test_a_wrong_claim_is_refused(locks: TypedHarness[LockService], command: ClaimLock, reason: str) -> None:
    with pytest.raises(LockError, match=reason):
        locks.call(command)
    assert locks.service.claims == {}


def test_claims_have_limits() -> None:
    locks = TypedHarness(FewClaims)
    for number in (1, 2):
        locks.call(ClaimLock("a", number))
    with pytest.raises(LockError, match=r"claims.*'a': 2,.* 2"):
        locks.call(ClaimLock("a", 3))
    locks.call(ClaimLock("b", 3))
    with pytest.raises(LockError, match=r"claims=3.* 3"):
        locks.call(ClaimLock("c", 4))


class LockMachine(RuleBasedStateMachine):
    """Claims of two sessions in any order; the model is a queue for each lock."""

    def __init__(self) -> None:
        super().__init__()
        self.locks = TypedHarness(LockService)
        self.sessions = [self.locks.client, self.locks.open_session()]
        self.queues: dict[str, list[tuple[tuple[int, int], bool]]] = {"a": [], "b": []}
        self.tokens: dict[str, dict[tuple[int, int], int]] = {"a": {}, "b": {}}
        self.newest = {"a": 0, "b": 0}

    @rule(who=st.integers(0, 1), name=NAMES, number=NUMBERS, is_exclusive=st.booleans())
    def claim(self, who: int, name: str, number: int, is_exclusive: bool) -> None:
        key = (int(self.sessions[who].id), number)
        if any(key == each for queue in self.queues.values() for each, _ in queue):
            return
        call_as(self.locks, self.sessions[who], ClaimLock(name, number, is_exclusive))
        self.queues[name].append((key, is_exclusive))

    @rule(who=st.integers(0, 1), number=NUMBERS)
    def release(self, who: int, number: int) -> None:
        key = (int(self.sessions[who].id), number)
        is_known = call_as(self.locks, self.sessions[who], ReleaseLock(number))
        assert is_known is any(key == each for queue in self.queues.values() for each, _ in queue)
        self.queues = {name: [each for each in queue if each[0] != key] for name, queue in self.queues.items()}

    @rule()
    def end_session(self) -> None:
        session = self.sessions[1]
        session.close()
        self.queues = {
            name: [each for each in queue if each[0][0] != session.id] for name, queue in self.queues.items()
        }
        self.sessions[1] = self.locks.open_session()

    @invariant()
    def the_first_of_each_queue_hold(self) -> None:
        for name, queue in self.queues.items():
            expected = [key for key, is_exclusive in queue[:1]]
            if queue and not queue[0][1]:
                shared_count = next((n for n, each in enumerate(queue) if each[1]), len(queue))
                expected = [key for key, _ in queue[:shared_count]]
            assert [*self.locks.service.holders.get(name, ())] == expected
            assert [*self.locks.service.waiters.get(name, ())] == [key for key, _ in queue[len(expected) :]]

    @invariant()
    def tokens_grow(self) -> None:
        for name, before in self.tokens.items():
            now = {key: self.locks.service.claims[key].token for key in self.locks.service.holders.get(name, ())}
            new = [token for key, token in now.items() if before.get(key) != token]
            assert all(token > self.newest[name] for token in new)
            self.newest[name] = max([self.newest[name], *new])
            self.tokens[name] = now


LockMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=30)
test_any_order_of_claims_keeps_one_holder_and_the_order = LockMachine.TestCase
