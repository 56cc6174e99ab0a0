"""Where the time of requests goes: one chunk at a time is followed, and slow stages are told."""

from __future__ import annotations

from tests.unit.cluster.testing.simulation.small_cluster import small_cluster
from trimaran.cluster.runtime.watching.stage_watch import FOLLOW_INTERVAL_NS, RequestStage, StageWatch


class Clock:
    now_ns = 0

    def __call__(self) -> int:
        self.now_ns += 10
        return self.now_ns


def followed() -> StageWatch:
    watch = StageWatch(Clock())
    watch.follow()
    return watch


def receive(watch: StageWatch) -> None:
    """Receive a chunk, some time after the one before."""
    watch.received_ns += FOLLOW_INTERVAL_NS


def is_ready(watch: StageWatch) -> bool:
    return watch.received_ns >= watch.next_ns


def counts(watch: StageWatch) -> list[int]:
    return [durations.count for durations in watch.durations.values()]


def test_a_chunk_is_followed_from_ingress_to_egress_and_then_the_next_one() -> None:
    watch = followed()

    for _ in range(2):
        receive(watch)
        assert is_ready(watch)
        watch.begin(320)
        receive(watch)
        assert not is_ready(watch)
        for stage in [*RequestStage][1:]:
            watch.reach(stage, 288)  # less than what is followed
            watch.reach(stage, 352)

    assert counts(watch) == [2] * 6
    assert watch.durations[RequestStage.QUORUM].total_ns == 20


def test_no_chunk_is_followed_soon_after_the_one_before() -> None:
    watch = followed()
    watch.received_ns = 1_000
    watch.begin(320)
    for stage in [*RequestStage][1:]:
        watch.reach(stage, 320)

    watch.received_ns = 1_000 + FOLLOW_INTERVAL_NS - 1
    assert not is_ready(watch)
    watch.received_ns += 1
    assert is_ready(watch)


def test_a_stage_that_is_out_of_order_is_passed_over() -> None:
    """The leader hears that a position is durable here after it was followed to the quorum, or twice."""
    watch = followed()
    watch.begin(320)

    watch.reach(RequestStage.SYNC, 320)
    watch.reach(RequestStage.APPEND, 320)
    watch.reach(RequestStage.APPEND, 320)

    assert counts(watch) == [1, 1, 0, 0, 0, 0]


def test_what_was_begun_is_dropped_when_another_member_leads() -> None:
    watch = followed()
    watch.begin(320)

    watch.drop()
    watch.reach(RequestStage.APPEND, 640)

    assert counts(watch) == [1, 0, 0, 0, 0, 0]
    receive(watch)
    assert is_ready(watch)


def test_nothing_is_followed_unless_it_is_asked_for() -> None:
    watch = StageWatch(Clock())

    watch.drop()
    receive(watch)

    assert not is_ready(watch)


def test_a_stage_that_holds_the_loop_for_long_is_told() -> None:
    told = []
    watch = StageWatch(Clock())
    watch.slow_ns, watch.on_slow = 100, lambda *slow: told.append(slow)

    watch.look("append", 0, 99)
    watch.look("append", 100, 200)

    assert told == [("append", 100, 200)]


def test_the_leader_of_a_cluster_finds_a_time_for_each_stage_and_followers_none() -> None:
    with small_cluster() as small:
        small.start()
        for member in small.cluster.members.values():
            assert member.node is not None
            member.node.parts.links.ingress.stages.follow()
        small.send(50)

        leader, *followers = [small.leader, *small.followers]
        assert leader.node is not None
        found = counts(leader.node.parts.links.ingress.stages)
        assert found[0] > 0
        assert len({*found}) == 1
        for follower in followers:
            assert follower.node is not None
            assert counts(follower.node.parts.links.ingress.stages) == [0] * 6
