"""The feature level: who says what it can, when the leader raises it, and who stops before the entry."""

from __future__ import annotations

import pytest

from tests.unit.cluster.core.roles.test_actions import commit, details, lead, steps
from tests.unit.cluster.core.sessions.test_sessions import lose_leadership
from tests.unit.cluster.core.snapshots.test_snapshot import action, deliver_action, take_snapshot
from tests.unit.cluster.core.solo import Solo
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.snapshots.snapshot import decode_module_snapshot
from trimaran.cluster.core.vocabulary.control_toggle import ActionStep, ControlToggle
from trimaran.cluster.core.vocabulary.feature_levels import FEATURE_LEVEL_LIMIT, FeatureLevels, find_known_level
from trimaran.cluster.core.vocabulary.members import KnownLevel
from trimaran.cluster.messages import snapshot as wire
from trimaran.service_api import ClusteredService, ConfigurationError, InvariantViolation
from trimaran.service_api.types import MemberId, TermId
from trimaran.service_api.wire.frame import HEADER_LENGTH
from trimaran.service_api.wire.log.messages import (
    CLUSTER_ACTION_FLAGS_FEATURE_LEVEL,
    LOG_MESSAGES,
    ClusterAction,
    ClusterActionRequest,
    EntrySkip,
    FeatureLevelRaise,
    decode_feature_level_raise,
)
from trimaran.service_api.wire.message import decode_message, peek_header

A = ActionStep


def leader(*, can: int = 2, others: dict[int, int] | None = None) -> Solo:
    """A leader of three whose first entry is committed, and what the others have said."""
    solo = Solo(known_level=KnownLevel(can, "service 0, Bank")).lead()
    commit(solo)
    for member_id, level in ({1: can, 2: can} if others is None else others).items():
        solo.feed(ev.FeatureLevelSaid(MemberId(member_id), KnownLevel(level, "service 1, Ledger")))
    return solo


def ask(solo: Solo, level: int | None = None) -> list[fx.Effect]:
    return solo.feed(ev.ActionRequested(1, ControlToggle.RAISE_FEATURE_LEVEL, feature_level=level))


def appended_raise(solo: Solo) -> FeatureLevelRaise | None:
    (chunk,) = solo.ctx.log_buffer.take_pending()
    return decode_feature_level_raise(chunk[HEADER_LENGTH:])


def raised(level: int, position: int = 1024, *, trimaran_level: int = 0) -> FeatureLevelRaise:
    return FeatureLevelRaise(
        leadership_term_id=TermId(0),
        log_position=position,
        timestamp=100,
        action=None,
        flags=CLUSTER_ACTION_FLAGS_FEATURE_LEVEL,
        feature_level=level,
        trimaran_level=trimaran_level,
    )


# --- the entry


def test_readers_that_do_not_know_the_entry_find_a_cluster_action_that_asks_for_nothing() -> None:
    """Aeron's readers are among them."""
    message = decode_message(raised(3).encode(), registry=LOG_MESSAGES)

    assert type(message) is ClusterActionRequest
    assert (message.action, message.flags) == (None, CLUSTER_ACTION_FLAGS_FEATURE_LEVEL)


def test_the_entry_is_told_from_other_actions_also_by_readers_that_look_at_lengths() -> None:
    skip = EntrySkip(
        leadership_term_id=TermId(0), log_position=0, timestamp=1, action=None, flags=256, skipped_log_position=64
    )

    assert decode_feature_level_raise(raised(3).encode()) == raised(3)
    assert decode_feature_level_raise(skip.encode()) is None
    assert decode_feature_level_raise(action(64).encode()) is None
    assert peek_header(raised(3).encode())[0] != peek_header(skip.encode())[0]


@pytest.mark.parametrize("flags", [1, 4, 1024, -1])
@pytest.mark.parametrize("kind", [*ClusterAction, None])
def test_a_cluster_action_with_flags_of_a_later_version_does_nothing(flags: int, kind: ClusterAction | None) -> None:
    solo = lead()
    message = action(1024).model_copy(update={"flags": flags, "action": kind})

    stands_still, effects = deliver_action(solo, message)

    assert (stands_still, effects) == (False, [])


# --- the leader


def test_the_level_rises_when_the_entry_is_delivered_and_not_before() -> None:
    solo = leader()
    solo.ctx.log_buffer.take_pending()

    told = ask(solo, 2)

    position = solo.ctx.log_buffer.append_position
    assert steps(told) == [(A.APPENDED, position, False)]
    assert appended_raise(solo) == raised(2, position).model_copy(update={"timestamp": solo.ctx.timestamp})
    assert steps(commit(solo)) == [(A.COMMITTED, position, False)]
    assert solo.ctx.feature_levels == FeatureLevels(0)
    solo.module.on_replay_feature_level(raised(2, position))
    _, effects = deliver_action(solo, raised(2, position))
    assert steps(effects) == [(A.DONE, position, True)]
    assert solo.ctx.feature_levels == FeatureLevels(2)


def test_without_a_level_it_rises_to_the_highest_that_every_member_can() -> None:
    solo = leader(can=5, others={1: 3, 2: 4})

    said = details(ask(solo))

    assert said == ["feature_level=0 becomes 3"]


def test_the_leader_refuses_while_a_member_can_less_and_names_it() -> None:
    said = details(ask(leader(others={1: 2, 2: 1}), 2))

    assert "feature_level=2" in said[0]
    assert "at most 1 on member 2 (service 1, Ledger)" in said[0]
    assert "member 1" not in said[0]


def test_a_level_that_cannot_rise_names_the_service_that_holds_it_down() -> None:
    """Without a level to raise to, nobody was named."""
    (said,) = details(ask(leader(can=2, others={1: 0, 2: 2})))

    assert "at most 0 on member 1 (service 1, Ledger)" in said
    assert "member 2" not in said


def test_a_member_of_an_older_version_names_no_service() -> None:
    solo = leader(others={1: 2})
    solo.feed(ev.FeatureLevelSaid(MemberId(2), KnownLevel(0)))

    assert "at most 0 on member 2;" in details(ask(solo, 2))[0]


def test_the_leader_refuses_while_a_member_has_not_said_what_it_can() -> None:
    assert "members [2] are not connected" in details(ask(leader(others={1: 2}), 2))[0]


def test_what_a_member_said_counts_only_while_its_link_is_up() -> None:
    """It may come back with older code."""
    solo = leader()

    solo.feed(ev.LinkChanged(MemberId(1), is_up=False), ev.LinkChanged(MemberId(1), is_up=True))

    assert "members [1] are not connected" in details(ask(solo, 2))[0]


def test_a_level_never_falls_nor_stays() -> None:
    solo = leader()
    solo.module.on_replay_feature_level(raised(2))

    assert "expected above 2" in details(ask(solo, 1))[0]
    assert "expected above 2" in details(ask(solo))[0]


def test_a_follower_refuses() -> None:
    solo = Solo(terms=[(0, 0, 64)], known_level=KnownLevel(1)).follow(leader_id=2)

    assert "not the leader: leader_member_id=2" in details(ask(solo, 1))[0]


def test_of_what_a_deposed_leader_appended_and_never_committed_nothing_is_left() -> None:
    solo = leader()
    ask(solo, 2)

    told = lose_leadership(solo)

    assert [step for step, *_ in steps(told)] == [A.UNKNOWN]
    assert solo.ctx.feature_levels == FeatureLevels(0)


# --- every member


def test_a_member_that_knows_less_stops_before_the_entry() -> None:
    solo = leader(can=1)

    with pytest.raises(ConfigurationError, match=r"feature_level=2 .*log_position=1024.*declares feat"):
        solo.module.on_replay_feature_level(raised(2))
    assert solo.ctx.feature_levels == FeatureLevels(0)


def test_a_trimaran_that_knows_less_stops_before_the_entry() -> None:
    with pytest.raises(ConfigurationError, match=r"trimaran_level=1 .*log_position=1024"):
        leader().module.on_replay_feature_level(raised(2, trimaran_level=1))


def test_a_log_in_which_the_level_falls_is_no_leaders() -> None:
    solo = leader()
    solo.module.on_replay_feature_level(raised(2))

    with pytest.raises(InvariantViolation, match="never falls"):
        solo.module.on_replay_feature_level(raised(1))


def test_a_snapshot_holds_the_level_and_a_member_that_knows_less_does_not_start_from_it() -> None:
    solo = leader()
    assert not any(isinstance(one, wire.FeatureLevelSnapshot) for one in take_snapshot(solo, 512).module_messages)
    solo = leader()
    solo.module.on_replay_feature_level(raised(2))

    snapshot = decode_module_snapshot(take_snapshot(solo, 2048).module_messages)

    newer, older = (Solo(terms=[(0, 0, 4096)], is_started=False, known_level=KnownLevel(level)) for level in (2, 1))
    newer.module.snapshots.restore(snapshot, [], timestamp=9)
    assert newer.ctx.feature_levels == FeatureLevels(2)
    with pytest.raises(ConfigurationError, match=r"feature_level=2 .*log_position=2048"):
        older.module.snapshots.restore(snapshot, [], timestamp=9)


# --- what services declare


class Declaring(ClusteredService):
    def __init__(self, level: object) -> None:
        self.feature_level = level  # type: ignore[assignment]  # what an author may write


def test_a_member_can_what_the_least_of_its_services_can() -> None:
    assert find_known_level([Declaring(3), Declaring(1)]) == KnownLevel(1, "service 1, Declaring")
    assert find_known_level([Declaring(1), Declaring(2), Declaring(1)]).limiting_service == (
        "service 0, Declaring and service 2, Declaring"
    )
    assert find_known_level([ClusteredService()]).feature_level == 0
    assert find_known_level([]) == KnownLevel(FEATURE_LEVEL_LIMIT)


@pytest.mark.parametrize("level", [-1, FEATURE_LEVEL_LIMIT + 1, 1.0, "2", True, None])
def test_a_service_that_declares_no_level_is_named(level: object) -> None:
    with pytest.raises(ConfigurationError, match=r"service=Declaring feature_level="):
        find_known_level([Declaring(level)])
