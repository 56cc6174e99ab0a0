"""Every rule of the referee is shown a cluster that breaks it; without, it is silent."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from trimaran.cluster.messages.consensus import AppendPosition, RequestVote, Vote
from trimaran.cluster.service.replies import SessionReplies
from trimaran.cluster.simulation.cluster import DIRECTORY, Member
from trimaran.cluster.simulation.kept_log import KeptLog
from trimaran.cluster.simulation.referee import Referee
from trimaran.cluster.simulation.relay import Relay
from trimaran.cluster.simulation.rules import RuleBroken, expect
from trimaran.service_api import ClientSession
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.types import ClusterSessionId, TermId

from .small_cluster import Counter, SmallCluster, running_cluster, small_cluster
from .small_world import SECOND


@pytest.fixture
def small() -> Iterator[SmallCluster]:
    with running_cluster() as made:
        yield made


MODULE_RULE = "every consensus module has the same sessions and timers at the same position"
CONTAINER_RULE = "every container keeps the same replies at the same position"


def claim(small: SmallCluster, member: Member, position: int, *, afresh: bool = False) -> None:
    """Let a member call a position committed, and the referee look; afresh: as a process that has claimed nothing."""
    assert member.node is not None
    if afresh:
        small.cluster.on_node(member)
    member.node.module.ctx.commit_position = position
    look(small, member)


def look(small: SmallCluster, member: Member) -> None:
    """Let the referee look as it does after everything that a member does."""
    loop = member.machine.loop
    assert loop is not None
    assert loop.observer is not None
    loop.observer()


def damage(member: Member, position: int, *, length: int = 1) -> None:
    """Change the log of a member on its disk."""
    assert member.node is not None
    path = DIRECTORY / "archive" / f"{member.node.module.ctx.log_recording_id}-0.rec"
    data = member.machine.disk.durable_read(path, length, position)
    assert len(data) == length
    member.machine.disk.damage(path, position, bytes(byte ^ 1 for byte in data))


def uncommit(small: SmallCluster, length: int) -> int:
    """Let nobody have called the last bytes committed; give where they begin."""
    del small.referee.committed[-length:]
    end = len(small.referee.committed)
    for member in small.cluster.members.values():
        assert member.node is not None
        small.referee._views[member.member_id].commit_position = end
        member.node.module.ctx.commit_position = end
    return end


def vote(member: Member, candidate: Member, term_id: int) -> Vote:
    return Vote(
        candidate_term_id=TermId(term_id),
        log_leadership_term_id=TermId(0),
        log_position=0,
        candidate_member_id=candidate.member_id,
        follower_member_id=member.member_id,
        vote=True,
    )


def append_position(member: Member, position: int, *, term_id: int = 0) -> AppendPosition:
    return AppendPosition(
        leadership_term_id=TermId(term_id), log_position=position, follower_member_id=member.member_id
    )


# --- nothing is wrong


def test_a_healthy_cluster_breaks_no_rule(small: SmallCluster) -> None:
    referee = small.referee
    small.cluster.kill(small.leader.member_id)
    small.wait(lambda: small.cluster.leader() is not None)
    small.send(20, length=3_000)
    for member in small.cluster.members.values():
        small.cluster.start(member.member_id)
    small.cluster.run_for(SECOND)
    small.wait(small.is_at_rest)

    referee.expect_equal([*small.cluster.members.values()])

    assert small.cluster.unhandled == []
    assert len(referee.leaders) == referee.counts.elections == 2
    assert referee.counts.by_kind["message"] == 40
    assert referee.counts.by_kind["term"] == 2
    assert referee.counts.votes >= 4
    assert referee.counts.committed_bytes == len(referee.committed) > 40 * 32
    assert referee.counts.delivered_entries == len(referee.delivered)
    assert max(referee.delivered) <= len(referee.committed)
    assert all(referee.is_sound(member) for member in small.cluster.members.values())


def test_a_broken_rule_tells_its_facts() -> None:
    expect(1, "nothing", a=1)
    with pytest.raises(RuleBroken, match=r"^a rule: member=1 what='x'$") as raised:
        expect([], "a rule", member=1, what="x")
    assert raised.value.rule == "a rule"


# --- what is committed


def test_a_commit_position_that_goes_back_is_told(small: SmallCluster) -> None:
    with pytest.raises(RuleBroken, match="a commit position never goes back"):
        claim(small, small.follower, len(small.referee.committed) - 32)


def test_a_member_that_commits_other_bytes_is_told(small: SmallCluster) -> None:
    damage(small.follower, 200)

    with pytest.raises(
        RuleBroken, match="committed bytes are the same everywhere, and durable where they are called committed"
    ):
        claim(small, small.follower, len(small.referee.committed), afresh=True)


def test_a_member_whose_disk_was_damaged_on_purpose_is_excused_for_what_it_has(small: SmallCluster) -> None:
    damage(small.follower, 200)
    small.referee.damaged[small.follower.member_id] = None

    claim(small, small.follower, len(small.referee.committed), afresh=True)


def test_a_member_that_commits_what_it_does_not_have_is_told(small: SmallCluster) -> None:
    beyond = len(small.referee.committed) + small.leader.config.segment_length_bytes

    with pytest.raises(RuleBroken, match="what is committed is durable where it is called committed"):
        claim(small, small.leader, beyond)


def test_a_commit_that_a_minority_has_on_disk_is_told(small: SmallCluster) -> None:
    begin = uncommit(small, 64)
    for member in small.followers:
        damage(member, begin)

    with pytest.raises(RuleBroken, match=r"what is committed is durable on a majority: .*holders=\[\d\]"):
        claim(small, small.leader, begin + 64)


def test_a_commit_that_a_bare_majority_has_on_disk_is_none(small: SmallCluster) -> None:
    begin = uncommit(small, 64)
    damage(small.follower, begin)

    claim(small, small.leader, begin + 64)

    assert len(small.referee.committed) == begin + 64


def test_what_is_written_and_not_synced_counts_for_nothing(small: SmallCluster) -> None:
    begin = uncommit(small, 64)
    for member in small.followers:
        assert member.node is not None
        disk = member.machine.disk
        path = DIRECTORY / "archive" / f"{member.node.module.ctx.log_recording_id}-0.rec"
        written = disk.content(path)[begin : begin + 64]
        damage(member, begin, length=64)
        disk.pwrite(disk.open_file(path), written, begin)
        assert disk.content(path)[begin : begin + 64] == written

    with pytest.raises(RuleBroken, match="what is committed is durable on a majority"):
        claim(small, small.leader, begin + 64)


def test_a_member_that_cuts_what_it_held_and_is_committed_is_told(small: SmallCluster) -> None:
    assert small.follower.node is not None
    ctx = small.follower.node.module.ctx
    ctx.append_position = len(small.referee.committed) - 32

    with pytest.raises(RuleBroken, match="what is committed and was held stays on that disk"):
        look(small, small.follower)


def test_a_member_that_stops_while_its_log_is_purged_may_know_less_than_its_disk(small: SmallCluster) -> None:
    """Seed 21000924: the recording went on to the end of a batch, and the core was told nothing any more."""
    follower = small.follower
    assert follower.node is not None
    view = small.referee._views[follower.member_id]
    view.append_position = follower.node.module.ctx.append_position = len(small.referee.committed) - 32
    view.log_start_position = -1

    look(small, follower)

    assert view.log_start_position == 0


def test_a_member_that_purges_what_it_held_is_told(small: SmallCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with bytes gone from the disk, from a log that begins above 0 and after a snapshot."""
    follower = small.follower
    assert follower.node is not None
    kept = (follower.machine.disk, follower.node, 0), KeptLog(0, 64)
    small.referee.disks.kept_logs[follower.member_id] = kept
    monkeypatch.setattr("trimaran.cluster.simulation.referee.complete_snapshot_positions", lambda disk: [96])
    view = small.referee._views[follower.member_id]
    view.append_position = follower.node.module.ctx.append_position = 128
    view.log_start_position = -1
    damage(follower, 256)

    with pytest.raises(RuleBroken, match="what is committed and was held stays on that disk"):
        look(small, follower)


RULE_OF_SEGMENTS = "a segment goes when the catalog knows, durably, that the log begins after it"


def test_a_segment_that_goes_before_the_catalog_knows_is_told(small: SmallCluster) -> None:
    follower = small.follower
    path = DIRECTORY / "archive" / "0-0.rec"

    follower.machine.disk.remove(path)

    with pytest.raises(RuleBroken, match=RULE_OF_SEGMENTS):
        look(small, follower)


def test_a_log_that_begins_above_0_without_a_snapshot_is_told(small: SmallCluster) -> None:
    follower = small.follower
    small.referee.disks.kept_logs[follower.member_id] = (follower.machine.disk, follower.node, 0), KeptLog(0, 64)

    with pytest.raises(
        RuleBroken, match="where the log does not begin at 0, a complete snapshot stands in for what is missing"
    ):
        small.referee._expect_kept(follower, len(small.referee.committed))


def test_a_member_that_starts_without_what_it_held_is_told_unless_its_disk_is_another(small: SmallCluster) -> None:
    follower = small.follower
    for is_wiped in (True, False):
        small.cluster.kill(follower.member_id)
        if is_wiped:
            small.cluster.wipe(follower.member_id)
            small.cluster.start(follower.member_id)
            small.wait(small.is_at_rest)
    small.cluster.start(follower.member_id)
    small.wait(small.is_at_rest)

    assert follower.node is not None
    follower.node.module.ctx.append_position = 0
    small.cluster.on_node(follower)
    with pytest.raises(RuleBroken, match="what is committed and was held stays on that disk"):
        look(small, follower)


# --- leaders


def test_a_member_whose_term_goes_back_is_told(small: SmallCluster) -> None:
    assert small.follower.node is not None
    small.follower.node.module.ctx.candidate_term_id = TermId(-1)

    with pytest.raises(RuleBroken, match="the term of a member never goes back"):
        look(small, small.follower)


def test_two_leaders_of_one_term_are_told(small: SmallCluster) -> None:
    with pytest.raises(RuleBroken, match="one leader per term: term=0"):
        small.referee._on_leader(small.follower)


@pytest.mark.parametrize("is_emptied", [True, False])
def test_a_leader_that_lacks_what_was_committed_is_told_also_when_its_disk_was_emptied(
    small: SmallCluster, monkeypatch: pytest.MonkeyPatch, is_emptied: bool
) -> None:
    """A flipped bit is no lack; what a member has on a disk that was emptied is whole, as far as it goes."""
    referee, follower = small.referee, small.follower
    assert follower.node is not None
    follower.machine.disk.damage(Path(DIRECTORY / "archive/0-0.rec"), 40, b"?")
    referee.damaged[follower.member_id] = None
    if is_emptied:
        referee.emptied[follower.member_id] = None
    follower.node.module.ctx.leadership_term_id = TermId(9)
    monkeypatch.setattr(referee, "_voted_for", lambda member_id, term_id: follower.member_id)

    with pytest.raises(RuleBroken, match="a leader has everything") if is_emptied else nullcontext():
        referee._on_leader(follower)


def test_a_member_that_says_it_leads_is_looked_at(small: SmallCluster) -> None:
    leader, follower = small.leader, small.follower
    assert leader.node is not None
    assert follower.node is not None
    follower.node.module.leader = leader.node.module.leader

    with pytest.raises(RuleBroken, match="one leader per term"):
        look(small, follower)


def test_a_leader_without_everything_that_was_committed_is_told(small: SmallCluster) -> None:
    small.referee._committed_in = {-1: len(small.referee.committed)}  # in an earlier term
    damage(small.leader, 100)

    with pytest.raises(RuleBroken, match="a leader has everything that was ever committed"):
        small.referee._on_leader(small.leader)


def test_a_leader_that_lacks_the_end_of_what_was_committed_is_told(small: SmallCluster) -> None:
    small.referee.committed += b"more"
    small.referee._committed_in = {-1: len(small.referee.committed)}

    with pytest.raises(RuleBroken, match="a leader has everything that was ever committed"):
        small.referee._on_leader(small.leader)


def test_a_leader_that_comes_late_need_not_have_what_a_later_term_committed(small: SmallCluster) -> None:
    """Found by seed 112110101: it won term 10, stood still, and went on when term 11 had long committed more."""
    small.referee.committed += b"more"
    small.referee._committed_in[99] = len(small.referee.committed)

    small.referee._on_leader(small.leader)


# --- what members say


def say(small: SmallCluster, member: Member, message: RequestVote | Vote | AppendPosition) -> None:
    """Let a member send a message on one of its connections to another's consensus port."""
    for transport in small.cluster.network.transports:
        port = Endpoint.parse(small.leader.config.me.consensus).port
        if transport.address[0] == member.machine.address and transport.peer_address[1] == port:
            transport.write(bytes(32) + message.encode())
            return
    raise AssertionError("not connected")


def test_a_position_that_is_reported_before_it_is_durable_is_told(small: SmallCluster) -> None:
    assert small.follower.node is not None
    durable = small.follower.node.module.ctx.append_position
    say(small, small.follower, append_position(small.follower, durable))
    look(small, small.follower)

    say(small, small.follower, append_position(small.follower, durable + small.follower.config.segment_length_bytes))
    with pytest.raises(RuleBroken, match="a position is durable before it is reported"):
        look(small, small.follower)


def test_a_reported_position_whose_bytes_are_written_and_not_synced_is_told(small: SmallCluster) -> None:
    follower, disk = small.follower, small.follower.machine.disk
    assert follower.node is not None
    end = follower.node.module.ctx.append_position
    path = DIRECTORY / "archive" / f"{follower.node.module.ctx.log_recording_id}-0.rec"
    disk.pwrite(disk.open_file(path), b"written", end)

    say(small, follower, append_position(follower, end + 32))
    with pytest.raises(RuleBroken, match="a position is durable before it is reported"):
        look(small, follower)


def test_a_position_that_is_reported_in_a_term_that_is_not_marked_is_told(small: SmallCluster) -> None:
    say(small, small.follower, append_position(small.follower, 0, term_id=1))

    with pytest.raises(RuleBroken, match="a term is marked durably before a position in it is reported"):
        look(small, small.follower)


def test_a_vote_that_is_sent_before_it_is_durable_is_told(small: SmallCluster) -> None:
    say(small, small.follower, vote(small.follower, small.leader, 7))

    with pytest.raises(RuleBroken, match=r"a vote is durable before it is sent: .*term=7 durable_term=\d"):
        look(small, small.follower)


def test_a_candidate_votes_for_itself_and_durably(small: SmallCluster) -> None:
    request = RequestVote(
        log_leadership_term_id=TermId(0),
        log_position=0,
        candidate_term_id=TermId(7),
        candidate_member_id=small.follower.member_id,
        protocol_version=0,
    )
    say(small, small.follower, request)

    with pytest.raises(RuleBroken, match="a vote is durable before it is sent"):
        look(small, small.follower)


def test_two_votes_in_one_term_are_told(small: SmallCluster) -> None:
    follower, leader, other = small.followers[0], small.leader, small.followers[1]
    say(small, follower, vote(follower, leader, 0))
    look(small, follower)

    say(small, follower, vote(follower, other, 0))
    with pytest.raises(RuleBroken, match="one vote per term"):
        look(small, follower)


@pytest.mark.parametrize("stood", [True, False])
def test_a_vote_that_was_lost_with_a_disk_counts_unless_it_was_for_a_candidacy_that_ended_with_it(
    small: SmallCluster, stood: bool
) -> None:
    follower, leader, other = small.followers[0], small.leader, small.followers[1]
    small.referee._votes.clear()
    say(small, follower, vote(follower, follower if stood else leader, 0))
    look(small, follower)
    voted, _ = small.referee._votes[follower.member_id, 0]
    small.referee._votes[follower.member_id, 0] = voted, object()

    say(small, follower, vote(follower, other, 0))
    if stood:
        look(small, follower)
    else:
        with pytest.raises(RuleBroken, match="one vote per term"):
            look(small, follower)


def test_a_vote_that_is_refused_is_no_vote(small: SmallCluster) -> None:
    refusal = vote(small.follower, small.leader, 7).model_copy(update={"vote": False})
    say(small, small.follower, refusal)
    look(small, small.follower)


def test_what_is_said_through_the_network_reaches_the_run(small: SmallCluster) -> None:
    """Not only a look by hand: the run ends by itself."""
    say(small, small.follower, vote(small.follower, small.leader, 7))

    with pytest.raises(RuleBroken, match="a vote is durable before it is sent"):
        small.cluster.run_for(SECOND)


# --- what services are given


def deliver(small: SmallCluster, position: int, timestamp: int, *what: object) -> None:
    small.referee._on_delivered(small.follower, position, timestamp, what)
    look(small, small.follower)


def test_a_delivery_beyond_what_is_committed_is_told(small: SmallCluster) -> None:
    with pytest.raises(RuleBroken, match="only what is committed is delivered"):
        deliver(small, len(small.referee.committed) + 32, 1 << 50, "message", 1, b"x")


def test_services_that_are_given_different_entries_are_told(small: SmallCluster) -> None:
    position, what = [*small.referee.delivered.items()][5]
    deliver(small, position, 0, *what)

    with pytest.raises(RuleBroken, match="every service is given the same, and becomes the same"):
        deliver(small, position, 0, "message", 1, b"another", what[-1])


def test_services_that_become_different_are_told(small: SmallCluster) -> None:
    position, what = [*small.referee.delivered.items()][5]

    with pytest.raises(RuleBroken, match="every service is given the same, and becomes the same"):
        deliver(small, position, 0, *what[:-1], b"another state")


def test_log_time_that_goes_backwards_is_told(small: SmallCluster) -> None:
    small.referee.committed += bytes(96)
    end = len(small.referee.committed)
    deliver(small, end - 64, 1 << 50, "message", 1, b"x", None)
    deliver(small, end - 32, 1 << 50, "message", 1, b"x", None)

    with pytest.raises(RuleBroken, match="log time never goes backwards"):
        deliver(small, end, (1 << 50) - 1, "message", 1, b"x", None)


def test_a_service_whose_state_depends_on_its_member_is_found_in_a_run() -> None:
    class Fickle(Counter):
        made_count = 0

        def __init__(self) -> None:
            super().__init__()
            Fickle.made_count += 1
            self._number = Fickle.made_count

        def state_hash(self) -> bytes:
            return super().state_hash() + bytes([self._number])

    with small_cluster(make_service=Fickle) as small:
        small.start()
        with pytest.raises(RuleBroken, match="every service is given the same, and becomes the same"):
            small.send(1)


def test_a_service_that_raises_is_found_in_a_run() -> None:
    class Failing(Counter):
        def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
            raise ValueError("as expected")

    with small_cluster(make_service=Failing) as small:
        small.start()
        with pytest.raises(RuleBroken, match=r"no callback of a service raises: .*as expected.*test_referee\.py"):
            small.send(1)


def test_a_module_with_another_timer_is_told(small: SmallCluster) -> None:
    position = 1 << 40
    node = small.follower.node
    assert node is not None
    small.referee._on_module(small.follower, position)
    look(small, small.follower)
    node.module.timers.schedule(7, 70)

    small.referee._on_module(small.follower, position)

    with pytest.raises(RuleBroken, match=f"{MODULE_RULE}.*7, 70"):
        look(small, small.follower)


def test_a_container_that_keeps_another_reply_is_told(small: SmallCluster) -> None:
    position = max(small.referee.delivered)
    for member, reply in zip(small.cluster.running(), (b"one", b"one", b"another"), strict=True):
        assert member.node is not None
        replies = member.node.service_agent.requests.sessions[ClusterSessionId(9)] = SessionReplies()
        replies.append(0, reply)
        if reply == b"one":
            small.referee._kept.pop(position, None)
        small.referee._on_container(member, position)

    with pytest.raises(RuleBroken, match=f"{CONTAINER_RULE}.*sessions=\\[9\\]"):
        look(small, small.follower)


def test_a_module_with_another_message_of_a_service_is_told(small: SmallCluster) -> None:
    position = 1 << 40
    node = small.follower.node
    assert node is not None
    small.referee._on_module(small.follower, position)
    node.module.service_messages.offer(0, b"extra")

    small.referee._on_module(small.follower, position)

    with pytest.raises(RuleBroken, match=SAME_MESSAGES_RULE):
        look(small, small.follower)


SAME_MESSAGES_RULE = "every consensus module has the same messages of services at the same position"
ONCE_RULE = "a message of a service is delivered once, in the order offered"
OFFERED_RULE = "the log holds what services have offered"


@pytest.mark.parametrize("rule", [ONCE_RULE, OFFERED_RULE])
def test_messages_of_a_service_that_are_not_as_offered_are_told(small: SmallCluster, rule: str) -> None:
    node, relay = small.follower.node, Relay()
    assert node is not None
    small.referee._on_further(small.follower, relay, 64, ("service message", 1), small.referee.relayed)
    look(small, small.follower)
    if rule == ONCE_RULE:
        relay.faults.append("number=3 expected=2")
    else:
        node.module.service_messages.divergence_count = 1

    small.referee._on_further(small.follower, relay, 128, ("service message", 1), small.referee.relayed)

    with pytest.raises(RuleBroken, match=rule):
        look(small, small.follower)


def test_a_second_service_that_becomes_another_is_told(small: SmallCluster) -> None:
    small.referee._on_further(small.leader, Relay(), 64, ("message", 1, "state"), small.referee.relayed)

    small.referee._on_further(small.follower, Relay(), 64, ("message", 1, "another state"), small.referee.relayed)

    with pytest.raises(RuleBroken, match="every service is given the same, and becomes the same"):
        look(small, small.follower)


def test_a_service_that_loads_another_state_is_told(small: SmallCluster) -> None:
    small.referee._on_loaded(small.follower, len(small.referee.committed), b"another state", small.referee.delivered)

    with pytest.raises(RuleBroken, match="a service loaded from a snapshot is what every service was at that position"):
        look(small, small.follower)


def test_a_snapshot_of_what_is_not_committed_is_told(small: SmallCluster) -> None:
    small.referee._on_loaded(small.follower, len(small.referee.committed) + 32, b"", small.referee.delivered)

    with pytest.raises(RuleBroken, match="a snapshot holds only what is committed"):
        look(small, small.follower)


# --- the end of a run


def test_members_that_have_not_committed_everything_are_told(small: SmallCluster) -> None:
    members = [*small.cluster.members.values()]
    small.referee.expect_equal(members)
    small.referee.committed += b"more"

    with pytest.raises(RuleBroken, match="members at rest have committed everything"):
        small.referee.expect_equal(members)


def test_members_with_another_log_at_the_end_are_told(small: SmallCluster) -> None:
    damage(small.follower, 100)

    with pytest.raises(RuleBroken, match="members at rest have the same log"):
        small.referee.expect_equal([*small.cluster.members.values()])


def test_a_service_that_noted_something_impossible_is_told(small: SmallCluster) -> None:
    service = small.referee._services[small.follower.member_id]
    service.faults = ["the same request twice"]  # type: ignore[attr-defined]  # as the registers have it

    with pytest.raises(RuleBroken, match=r"a service is given nothing impossible: .*the same request twice"):
        small.referee.expect_equal([*small.cluster.members.values()])


def test_a_leader_with_a_timer_that_should_have_fired_is_told(small: SmallCluster) -> None:
    assert small.leader.node is not None
    small.leader.node.module.timers._deadlines[7] = 1

    with pytest.raises(RuleBroken, match=r"a timer that is due fires: .*overdue=\[7\]"):
        small.referee.expect_equal([*small.cluster.members.values()])


def test_a_member_with_an_empty_disk_is_not_sound(small: SmallCluster) -> None:
    follower = small.follower
    assert small.referee.is_sound(follower)
    small.cluster.kill(follower.member_id)
    small.cluster.wipe(follower.member_id)

    assert not small.referee.is_sound(follower)
    assert not small.referee.has_committed(follower)


def rules() -> set[str]:
    """Every rule that the referee may tell of, from its source."""
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(Referee))) if isinstance(node, ast.Call)]
    names = {("expect", 1), ("RuleBroken", 0)}
    return {
        str(argument.value)
        for call in calls
        for name, index in names
        if isinstance(call.func, ast.Name)
        and call.func.id == name
        and isinstance(argument := call.args[index], ast.Constant)
    }


def test_every_rule_of_the_referee_is_broken_by_a_test() -> None:
    """A new rule asks for a test that breaks it."""
    tests = Path(__file__).read_text(encoding="utf-8")

    assert len(rules()) >= 20
    assert {rule for rule in rules() if f'"{rule}' not in tests} == set()
