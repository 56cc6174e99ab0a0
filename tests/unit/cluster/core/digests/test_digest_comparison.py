"""What one member makes of the digests of all: who stops, who is named, and when all is well again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.cluster.core.rosters import configured
from tests.unit.cluster.core.solo import Solo
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.log.recording_log import RecordedSnapshot
from trimaran.cluster.core.vocabulary.configuration import MemberKind
from trimaran.cluster.messages.digests import DigestKind, ServiceDigest
from trimaran.service_api.types import MemberId, TermId
from trimaran.service_api.wire.log.recording_log import EntryType

POSITION = 4096
A, B, C = b"a" * 16, b"b" * 16, b"c" * 16


class Comparing:
    """Member 0, whose links to the others are up."""

    def __init__(self, member_count: int = 3, *, stops_when_diverged: bool = True) -> None:
        self.solo = Solo(member_count=member_count, terms=((0, 0, 8192),), stops_when_diverged=stops_when_diverged)
        self.module = self.solo.module
        for member_id in range(1, member_count):
            self.link(member_id, is_up=True)

    def link(self, member_id: int, *, is_up: bool) -> list[ServiceDigest]:
        self.module.take_effects()
        self.module.ctx.on_link_changed(ev.LinkChanged(MemberId(member_id), is_up))
        return self.sent_to(member_id)

    def own(self, digest: bytes, position: int = POSITION, *, kind: int = DigestKind.STATE, value: str = "") -> None:
        self.module.digests.on_replay_digest(kind, 0, position, digest, value)

    def told(self, member_id: int, digest: bytes, position: int = POSITION, **facts: Any) -> None:
        message = ServiceDigest(
            member_id=MemberId(member_id),
            kind=DigestKind.STATE,
            service_id=0,
            code_digest=0,
            log_position=position,
            digest=digest,
        )
        self.module.digests.on_digest(message.model_copy(update=facts))

    def sent_to(self, member_id: int) -> list[ServiceDigest]:
        effects = self.module.take_effects()
        sent = [each for each in effects if isinstance(each, fx.SendToMember) and each.member_id == member_id]
        return [each.message for each in sent if isinstance(each.message, ServiceDigest)]

    def found(self) -> list[fx.DigestsDiffered]:
        return [effect for effect in self.module.take_effects() if isinstance(effect, fx.DigestsDiffered)]


def test_a_minority_stops() -> None:
    comparing = Comparing()

    comparing.own(A, value="308")
    comparing.told(1, B, value="210")
    before = comparing.found()
    comparing.told(2, B, value="210")

    assert before == []
    (effect,) = comparing.found()
    assert effect.is_stopping
    assert effect.divergence.differing == {0}
    assert str(effect.divergence) == "states of service 0 differ at log_position=4096 by member: 0=308 1=210 2=210"


def test_a_minority_that_arrives_last_stops() -> None:
    comparing = Comparing()

    comparing.told(1, B)
    comparing.told(2, B)
    assert comparing.found() == []
    comparing.own(A)

    assert [effect.is_stopping for effect in comparing.found()] == [True]


def test_a_minority_goes_on_and_says_so_where_the_setting_wants_a_report() -> None:
    comparing = Comparing(stops_when_diverged=False)

    comparing.own(A)
    comparing.told(1, B)
    comparing.told(2, B)

    assert [(effect.is_stopping, effect.divergence.differing) for effect in comparing.found()] == [(False, {0})]


def test_snapshots_of_a_minority_from_that_position_on_are_invalid() -> None:
    comparing = Comparing()
    log = comparing.module.ctx.recording_log
    for position in (2048, POSITION, 6144):
        for service_id in (0, -1):
            log.append_snapshot(
                RecordedSnapshot(
                    recording_id=position + service_id,
                    leadership_term_id=TermId(0),
                    term_base_log_position=0,
                    log_position=position,
                    timestamp=0,
                    service_id=service_id,
                )
            )

    comparing.own(A)
    comparing.told(1, B)
    comparing.told(2, B)

    valid = {entry.log_position for entry in log.entries if entry.entry_type is EntryType.SNAPSHOT and entry.is_valid}
    assert valid == {2048}
    kinds = [type(effect) for effect in comparing.module.take_effects()]
    assert kinds.index(fx.PersistRecordingLog) < kinds.index(fx.DigestsDiffered)


def test_one_of_a_majority_names_the_other_once() -> None:
    comparing = Comparing()

    for position in (POSITION, POSITION + 4096, POSITION + 8192):
        comparing.own(A, position)
        comparing.told(2, C, position)
        comparing.told(1, A, position)

    (effect,) = comparing.found()
    assert not effect.is_stopping
    assert effect.divergence.has_majority
    assert effect.divergence.differing == {2}


def test_two_that_differ_are_told_at_once_where_the_third_is_down() -> None:
    comparing = Comparing()
    comparing.link(2, is_up=False)

    comparing.own(A)
    comparing.told(1, B)

    assert [effect.divergence.differing for effect in comparing.found()] == [{0, 1}]


def test_two_that_differ_are_told_where_the_third_says_nothing_for_long() -> None:
    comparing = Comparing()
    comparing.own(A)
    comparing.told(1, B)
    assert comparing.found() == []

    comparing.module.ctx.now_ns += comparing.module.ctx.config.leader_heartbeat_timeout_ns
    comparing.own(A, POSITION + 4096)
    comparing.told(1, B, POSITION + 4096)

    assert [effect.divergence.differing for effect in comparing.found()] == [{0, 1}]


def test_of_five_the_two_that_agree_are_no_majority() -> None:
    comparing = Comparing(5)

    comparing.own(A)
    for member_id, digest in ((1, A), (2, B), (3, B), (4, C)):
        comparing.told(member_id, digest)

    (effect,) = comparing.found()
    assert not effect.divergence.has_majority
    assert len(effect.divergence.differing) == 5


def test_of_five_two_minorities_stop_and_three_go_on() -> None:
    for own, is_stopping in ((A, False), (B, True)):
        comparing = Comparing(5)
        comparing.own(own)
        for member_id, digest in ((1, A), (2, A), (3, C), (4, A)):
            comparing.told(member_id, digest)

        assert [effect.is_stopping for effect in comparing.found()][-1] is is_stopping


def with_learners(*learner_ids: int) -> Comparing:
    """Member 0 of three voters, and learners."""
    comparing = Comparing()
    history = comparing.module.ctx.roster.history
    learners = tuple(configured(each, MemberKind.LEARNER) for each in learner_ids)
    current = history.current
    history.append(replace(current, members=(*current.members, *learners), log_position=POSITION - 32))
    comparing.module.ctx.roster.refresh()
    for each in learner_ids:
        comparing.link(each, is_up=True)
    return comparing


def test_learners_are_compared_and_are_no_vote() -> None:
    """Two learners and a voter are no majority of three voters: the third one decides."""
    comparing = with_learners(3, 4)

    comparing.own(A)
    for member_id in (3, 4, 1):
        comparing.told(member_id, B)

    assert comparing.found() == []
    comparing.told(2, A)
    assert [(effect.is_stopping, effect.divergence.differing) for effect in comparing.found()] == [(False, {1, 3, 4})]


def test_learner_that_differs_from_the_voters_is_named() -> None:
    comparing = with_learners(3)

    comparing.own(A)
    comparing.told(1, A)
    comparing.told(3, B)

    assert [(effect.is_stopping, effect.divergence.differing) for effect in comparing.found()] == [(False, {3})]


@pytest.mark.parametrize("facts", [{"code_digest": 2}, {"kind": DigestKind.OUTPUTS}, {"service_id": 1}], ids=str)
def test_digests_of_other_code_kinds_or_services_are_not_compared(facts: dict[str, int]) -> None:
    comparing = Comparing()

    comparing.own(A)
    comparing.told(1, B, **facts)
    comparing.told(2, B, **facts)

    assert comparing.found() == []


def test_a_member_hears_the_digest_that_is_unlike_its_own_once() -> None:
    comparing = Comparing(stops_when_diverged=False)
    comparing.own(A)
    comparing.module.take_effects()

    comparing.told(2, B)
    first = comparing.sent_to(2)
    comparing.told(2, B)
    again = comparing.sent_to(2)
    comparing.told(1, A)
    equal = comparing.sent_to(1)

    assert [message.digest for message in first] == [A]
    assert again == equal == []


def test_a_member_whose_link_comes_up_hears_the_newest_digests() -> None:
    comparing = Comparing()
    for number in range(1, 101):
        comparing.own(A, number * 4096)

    sent = comparing.link(1, is_up=True)

    assert [message.log_position for message in sent] == [number * 4096 for number in range(37, 101)]


def test_a_difference_stays_while_members_agree_by_chance() -> None:
    comparing = Comparing()
    comparing.own(A)
    comparing.told(1, A)
    comparing.told(2, C)

    comparing.own(A, POSITION + 4096)
    comparing.told(1, A, POSITION + 4096)
    comparing.told(2, A, POSITION + 4096)

    assert [each.differing for each in comparing.module.digests.divergences.values()] == [{2}]


def test_a_difference_is_mended_by_a_member_that_is_started_again_and_agrees() -> None:
    comparing = Comparing()
    comparing.own(A)
    comparing.told(1, A)
    comparing.told(2, C)
    comparing.link(2, is_up=False)
    comparing.link(2, is_up=True)

    comparing.own(A, POSITION + 4096)
    comparing.told(2, A, POSITION + 4096)

    assert comparing.module.digests.divergences == {}
    assert any(isinstance(effect, fx.DivergenceMended) for effect in comparing.module.take_effects())


def test_a_member_that_is_started_again_and_differs_again_is_not_mended() -> None:
    comparing = Comparing()
    comparing.own(A)
    comparing.told(1, A)
    comparing.told(2, C)
    comparing.link(2, is_up=False)

    for position, digest in ((POSITION + 4096, C), (POSITION + 8192, A)):
        comparing.own(A, position)
        comparing.told(1, A, position)
        comparing.told(2, digest, position)

    assert [each.differing for each in comparing.module.digests.divergences.values()] == [{2}]


def test_what_is_kept_is_bounded() -> None:
    comparing = Comparing()

    for number in range(1, 6_000):
        comparing.own(A, number * 4096)
        comparing.told(2, b"x" * 1_000, number * 4096 + 32)
        comparing.module.take_effects()

    assert "places=4096" in repr(comparing.module.digests)


def test_nothing_is_compared_between_a_skipped_entry_and_its_skip() -> None:
    """A member that had delivered the entry goes on from it until it meets the skip: it must get there."""
    comparing = Comparing()
    comparing.module.ctx.skipped_entries = {POSITION - 32: POSITION + 32}
    comparing.module.take_effects()

    comparing.own(A)
    comparing.told(1, B)
    comparing.told(2, B)
    told = comparing.sent_to(1)
    comparing.own(A, POSITION + 64)

    assert told == []
    assert [message.log_position for message in comparing.sent_to(1)] == [POSITION + 64]
    assert comparing.module.digests.divergences == {}


@pytest.mark.parametrize(
    ("copies", "is_doubtful"), [("", False), ("0-4096:1", True), ("64-96:1", True), ("0-32:3", False)]
)
def test_a_majority_with_members_of_one_source_is_doubtful(copies: str, *, is_doubtful: bool) -> None:
    comparing = Comparing()

    comparing.own(A)
    comparing.told(1, B)
    comparing.told(2, B, copies=copies)

    (found,) = comparing.found()
    assert (found.divergence.has_majority, found.divergence.differing) == (True, {0})
    assert found.divergence.is_doubtful is is_doubtful


def test_a_copy_from_before_all_had_the_same_state_is_no_source_of_what_differs_later() -> None:
    comparing = Comparing()
    comparing.own(A)
    comparing.told(1, A)
    comparing.told(2, A, copies=f"0-{POSITION}:1")

    comparing.own(A, 2 * POSITION)
    comparing.told(1, B, 2 * POSITION)
    comparing.told(2, B, 2 * POSITION, copies=f"0-{POSITION}:1")

    (found,) = comparing.found()
    assert found.is_stopping
    assert not found.divergence.is_doubtful


@pytest.mark.parametrize(("other", "expected"), [(1, f"0-{POSITION}:1"), (2, f"0-32:1 {POSITION - 64}-{POSITION}:1")])
def test_a_copy_that_led_to_the_state_of_an_independent_member_is_one_no_more(other: int, expected: str) -> None:
    """Return what lies before the snapshot that delivery began with was not looked at, nor what was copied later."""
    comparing = Comparing()
    comparing.module.digests.begin_position = 32
    comparing.module.ctx.log_copies.note(0, POSITION, {MemberId(1)})

    comparing.own(A, POSITION - 64)
    comparing.told(other, A, POSITION - 64)

    assert comparing.module.ctx.log_copies.encode_text() == expected


def test_a_difference_is_decided_in_time_where_a_member_does_not_tell_its_digest() -> None:
    comparing = Comparing()
    comparing.own(A)
    comparing.told(1, B)
    assert comparing.found() == []

    comparing.module.ctx.now_ns = comparing.module.digests.next_deadline_ns()
    comparing.module.digests.poll()

    (found,) = comparing.found()
    assert found.divergence.differing == {0, 1}


def test_a_member_that_does_not_say_what_its_log_is_a_copy_of_is_not_counted() -> None:
    comparing = Comparing()
    comparing.own(A)
    comparing.told(1, B)
    comparing.told(2, B, copies="of others")

    assert not any(found.is_stopping for found in comparing.found())
