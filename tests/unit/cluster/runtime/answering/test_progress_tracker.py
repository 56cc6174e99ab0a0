"""How long a member got no further: only where it has something to do, and from the moment its position stood still."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from trimaran.cluster.core.vocabulary.election_state import ElectionState
from trimaran.cluster.runtime.answering.progress_tracker import ProgressTracker
from trimaran.cluster.runtime.snapshots.snapshot_shipping import FetchProgress
from trimaran.service_api.types import MemberId


class Member:
    """The positions of a member, and a clock."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.delivered = 64
        self.fetch: FetchProgress | None = None
        self.ctx = SimpleNamespace(
            commit_position=64, append_position=64, log_buffer=SimpleNamespace(append_position=64)
        )
        self.election: Any = None  # stands for an Election
        member: Any = self
        self.tracker = ProgressTracker(member, delivered=member, fetcher=member, clock=member)

    @property
    def position(self) -> int:
        return self.delivered

    @property
    def progress(self) -> FetchProgress | None:
        return self.fetch

    def monotonic_ns(self) -> int:
        return self.now_ns

    def look_at(self, now_ns: int) -> int | None:
        self.now_ns = now_ns
        return self.tracker.look()


def test_a_member_with_nothing_to_deliver_is_never_stalled() -> None:
    member = Member()

    assert [member.look_at(now) for now in (0, 5, 1_000)] == [None, None, None]


def test_delivery_that_stands_still_counts_from_when_it_was_first_seen_so() -> None:
    member = Member()
    member.ctx.commit_position = 128
    still = [member.look_at(now) for now in (10, 15, 30)]
    member.ctx.commit_position = 4096  # more is committed: that is no progress of the delivery
    growing = member.look_at(40)
    member.delivered = 96
    moved = [member.look_at(50), member.look_at(57)]
    member.delivered = 4096

    assert still == [0, 5, 20]
    assert growing == 30
    assert moved == [0, 7]
    assert member.look_at(60) is None


def test_a_replay_counts_only_in_the_states_that_move_something() -> None:
    member = Member()
    member.election = SimpleNamespace(state=ElectionState.CANVASS)
    canvass = [member.look_at(0), member.look_at(100)]
    member.election.state = ElectionState.FOLLOWER_REPLAY
    replay = [member.look_at(200), member.look_at(250)]
    member.delivered = 65
    moved = member.look_at(300)
    member.election.state = ElectionState.FOLLOWER_CATCHUP
    changed = [member.look_at(350), member.look_at(360)]

    assert canvass == [None, None]
    assert replay == [0, 50]
    assert moved == 0
    assert changed == [50, 60]


def test_a_copy_of_a_snapshot_counts_its_bytes() -> None:
    member = Member()
    member.election = SimpleNamespace(state=ElectionState.CANVASS)
    member.fetch = FetchProgress(MemberId(2), 128, 10, 100)
    still = [member.look_at(0), member.look_at(9)]
    member.fetch = FetchProgress(MemberId(2), 128, 20, 100)

    assert still == [0, 9]
    assert member.look_at(10) == 0
