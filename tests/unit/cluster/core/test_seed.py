"""A member whose log is empty, of a cluster whose log begins with the state of a snapshot: it needs that state first.

The log alone gives another state, and nobody would notice.
Source: Aeron `ClusterTool seed-recording-log-from-snapshot`.
"""

from __future__ import annotations

import pytest

from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.seeded import add_seed
from tests.unit.cluster.core.solo import S, Solo, messages, of, path
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.peers import dialogue
from trimaran.cluster.core.peers.member_settings import difference, find_seeded, settings_of
from trimaran.cluster.core.vocabulary.members import ClusterMember
from trimaran.cluster.core.vocabulary.reason import ReasonKind
from trimaran.cluster.messages.consensus import NewLeadershipTerm, Vote
from trimaran.service_api.types import MemberId, TermId

ONE, TWO = MemberId(1), MemberId(2)


def seeded() -> Solo:
    """A member with an empty log and the seed."""
    solo = Solo()
    add_seed(solo.ctx.recording_log)
    return solo


def newcomer() -> tuple[Solo, list[fx.Effect]]:
    """A member with an empty log, which canvasses and hears that the logs of both others are seeded."""
    solo = Solo()
    return solo, solo.feed(ev.SeedAnnounced(ONE), ev.SeedAnnounced(TWO)) + solo.wait(200 * MS)


def test_it_asks_for_the_seed_whether_there_is_a_leader_or_not() -> None:
    solo, effects = newcomer()

    assert of(effects, fx.FetchSnapshot) == [fx.FetchSnapshot(ONE)]
    assert solo.module.last_election is not None
    assert solo.module.last_election.reason.kind is ReasonKind.SEED_MISSING


def test_it_follows_no_leader_nor_stands_nor_votes_before_it_has_the_seed() -> None:
    solo, _ = newcomer()

    effects = solo.feed(solo.canvass(1, -1, 0), solo.canvass(2, -1, 0), solo.new_term(1, 2, 0))
    effects += solo.feed(solo.request_vote(2, 3, 2, 64)) + solo.wait(60_000 * MS)

    assert path(effects) == []
    assert messages(effects, Vote, to=2) == []
    assert solo.is_in(S.CANVASS)


@pytest.mark.parametrize("position", [0, 65536])
def test_the_seed_or_a_later_snapshot_is_installed(position: int) -> None:
    """A later one will do where the log before it is purged."""
    solo, _ = newcomer()

    assert solo.feed(ev.SnapshotFetched(position)) == [fx.InstallSnapshot(position)]


def test_another_member_is_asked_after_a_pause_when_one_cannot_give_it() -> None:
    solo, _ = newcomer()

    at_once = solo.feed(ev.SnapshotFetchFailed("gone")) + solo.wait(400 * MS)
    later = solo.wait(400 * MS)

    assert of(at_once, fx.FetchSnapshot) == []
    assert of(later, fx.FetchSnapshot) == [fx.FetchSnapshot(TWO)]


def test_a_member_that_can_be_reached_is_asked_first() -> None:
    solo = Solo()
    solo.feed(ev.LinkChanged(ONE, is_up=False))

    effects = solo.feed(ev.SeedAnnounced(ONE), ev.SeedAnnounced(TWO)) + solo.wait(200 * MS)

    assert of(effects, fx.FetchSnapshot) == [fx.FetchSnapshot(TWO)]


def test_what_was_begun_without_the_seed_is_void() -> None:
    """Three members without anything begin a cluster; that one of them has a seed is heard when its link comes up."""
    solo = Solo()
    solo.feed(solo.canvass(1, -1, 0), solo.canvass(2, -1, 0))
    assert solo.is_in(S.NOMINATE)

    effects = solo.feed(ev.SeedAnnounced(TWO), ev.LogStopped(0)) + solo.wait(100 * MS)

    assert path(effects) == ["INIT", "CANVASS"]
    assert of(effects, fx.FetchSnapshot) == [fx.FetchSnapshot(TWO)]


@pytest.mark.parametrize("solo", [Solo(terms=[(0, 0, 96)]), seeded()], ids=["has a log", "has the seed"])
def test_who_has_a_log_or_the_seed_needs_none(solo: Solo) -> None:
    effects = solo.feed(ev.SeedAnnounced(ONE)) + solo.wait(1_000 * MS)

    assert of(effects, fx.FetchSnapshot) == []
    assert not solo.ctx.lacks_seed


@pytest.mark.parametrize(
    ("solo", "log_start_position", "expected"),
    [
        (Solo(), 0, None),
        (Solo(terms=[(0, 0, 96)]), 0, False),
        (Solo(terms=[(0, 0, 96)]), 64, None),
        (seeded(), 0, True),
    ],
    ids=["empty", "from nothing", "purged", "seeded"],
)
def test_members_say_how_their_logs_begin(solo: Solo, log_start_position: int, expected: bool | None) -> None:
    assert find_seeded(solo.ctx, log_start_position) is expected


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        (True, False, "another log: it begins with the state of a snapshot here, with nothing at member 1"),
        (False, True, "another log: it begins with nothing here, with the state of a snapshot at member 1"),
        (True, None, None),
        (False, None, None),
        (True, True, None),
    ],
)
def test_members_whose_logs_begin_differently_are_not_of_one_cluster(
    mine: bool, theirs: bool | None, expected: str | None
) -> None:
    settings = settings_of(Solo().ctx)
    here = settings.model_copy(update={"is_log_seeded": mine})
    there = settings.model_copy(update={"is_log_seeded": theirs, "member_id": ONE})

    assert difference(here, there) == expected


def test_a_leader_tells_a_member_without_terms_of_the_first_that_there_is() -> None:
    """The log of a cluster that Aeron seeded begins with a later term than 0: there is no term before the seed's."""
    solo = Solo(terms=[(1, 0, 96), (2, 96, 128)])
    solo.ctx.leadership_term_id = TermId(2)

    dialogue.send_new_leadership_term(solo.ctx, ClusterMember(ONE, log_position=0), is_startup=False)

    (sent,) = messages(solo.take(), NewLeadershipTerm, to=1)
    assert (sent.next_leadership_term_id, sent.next_term_base_log_position, sent.next_log_position) == (1, 0, 96)
