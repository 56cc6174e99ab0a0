"""Turns: what waits for what, what is dropped, and what stops the node. The core is a script, the parts a journal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from structlog.testing import capture_logs

from tests.unit.cluster.core.rosters import roster
from tests.unit.cluster.runtime.fake_gate import quiet_gate
from tests.unit.cluster.runtime.fake_module import FakeModule, FakeParts
from tests.waiting import let_pass, passes, until
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.consensus_module import ConsensusModule
from trimaran.cluster.core.vocabulary.control_toggle import ActionStep, ControlToggle
from trimaran.cluster.core.vocabulary.members import KnownLevel
from trimaran.cluster.core.vocabulary.reason import Reason, ReasonKind
from trimaran.cluster.messages.consensus import StopCatchup
from trimaran.cluster.runtime.files.members_file import MembersFile
from trimaran.cluster.runtime.ground.activities import ActivityScope
from trimaran.cluster.runtime.links.ingress import Ingress
from trimaran.cluster.runtime.links.member_links import MemberLinks
from trimaran.cluster.runtime.shared_machine.tuning import MachineTuning
from trimaran.cluster.runtime.snapshots.snapshot_shipping import SnapshotFetcher
from trimaran.cluster.runtime.turns.agent import ConsensusModuleAgent
from trimaran.cluster.runtime.turns.divergence_reporter import DivergenceReporter
from trimaran.cluster.runtime.turns.log_control import LogControl
from trimaran.cluster.runtime.turns.member_roster import MemberRoster
from trimaran.cluster.runtime.turns.queries import QueryHandler
from trimaran.cluster.service.agent import ClusteredServiceAgent
from trimaran.cluster.service.bounded_log_adapter import BoundedLogAdapter
from trimaran.service_api import NodeTerminatedError
from trimaran.service_api.access.rights import Rights
from trimaran.service_api.types import ClusterSessionId, CorrelationId, MemberId, TermId
from trimaran.service_api.wire.queries import AskedQuery

ONE = MemberId(1)
HELLO = StopCatchup(leadership_term_id=TermId(0), follower_member_id=ONE)
PERSIST = fx.PersistCandidateTerm(5, 0, 0)
SEND = fx.SendToMember(ONE, HELLO)

ELECTION = fx.ElectionStarted(Reason(ReasonKind.NODE_STARTED))


class ManualClock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now_ns = 1_000

    def monotonic_ns(self) -> int:
        return self.now_ns

    def epoch_time(self) -> int:
        return self.now_ns


class FakeTuning(MachineTuning):
    """Has a leader collect batches for as long as the test says."""

    delay_s = 0.0

    def batch_delay_s(self) -> float:
        return self.delay_s


class Rig:
    """An agent between a scripted core and journalled parts."""

    def __init__(self, tasks: ActivityScope) -> None:
        self.module = FakeModule()
        self.parts = FakeParts(self.module)
        self.clock = ManualClock()
        self.tuning = FakeTuning()
        self.agent = ConsensusModuleAgent(
            cast(ConsensusModule, self.module),
            clock=self.clock,
            ingress_window_bytes=1024,
            tuning=self.tuning,
        )
        parts = self.parts
        self.agent.attach(
            links=cast(MemberLinks, parts),
            ingress=cast(Ingress, parts),
            log=cast(LogControl, parts),
            adapter=cast(BoundedLogAdapter, parts),
            queries=cast(QueryHandler, parts),
            service=cast(ClusteredServiceAgent, parts),
            snapshot_handlers=dict.fromkeys((fx.TakeSnapshot, fx.PurgeArchive), parts.journal.append),
            fetcher=cast(SnapshotFetcher, parts),
            divergence=cast(DivergenceReporter, parts),
            roster=MemberRoster(
                cast(MemberLinks, parts),
                cast(LogControl, parts),
                MembersFile(Path("members"), None, MemoryFileSystem()),
                tasks=tasks,
                rights=Rights(),
                gate=quiet_gate(),
                agent=self.agent,
            ),
            tasks=tasks,
        )

    @property
    def journal(self) -> list[object]:
        return self.parts.journal


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with ActivityScope() as tasks:
        rig = Rig(tasks)
        yield rig
        rig.agent.close()


async def test_nothing_is_sent_before_what_was_asked_for_earlier_is_on_the_disk(rig: Rig) -> None:
    """Persist, then send. Source: effects.py; aeron.md §10 hazard 10; peers.md C4 class 2."""
    rig.module.script["vote"] = [PERSIST, SEND]

    rig.agent.post("vote")
    await passes(5)
    assert rig.journal == []
    rig.parts.resolve()
    await until(lambda: len(rig.journal) == 2)

    assert rig.journal == [("persisted", 5), ("send", 1, HELLO)]


async def test_events_that_come_while_an_effect_settles_wait_for_every_effect_before_them(rig: Rig) -> None:
    rig.module.script |= {"first": [PERSIST, SEND], "second": [fx.StopCatchupReplay(ONE)]}

    rig.agent.post("first")
    rig.agent.post("second")
    await passes(5)
    assert rig.module.steps == ["first"]
    rig.parts.resolve()
    await until(lambda: len(rig.journal) == 3)

    assert rig.journal == [("persisted", 5), ("send", 1, HELLO), ("stop catchup", 1)]


async def test_effects_that_settle_one_after_another_keep_their_order(rig: Rig) -> None:
    rig.module.script["adopt"] = [PERSIST, fx.PersistRecordingLog(), SEND]

    rig.agent.post("adopt")
    rig.parts.resolve()
    await until(lambda: rig.journal == [("persisted", 5)])
    await passes(5)
    assert rig.journal == [("persisted", 5)]
    rig.parts.resolve()
    await until(lambda: len(rig.journal) == 3)

    assert rig.journal == [("persisted", 5), "recording log", ("send", 1, HELLO)]


async def test_event_posted_by_an_effect_that_had_waited_does_not_overtake_the_effects_after_it(rig: Rig) -> None:
    """Else a turn inside the turn could begin a second wait for the disk, and lose the first."""
    rig.module.script |= {
        "go": [PERSIST, fx.JoinLiveLog(7), SEND],
        ev.LogJoined: [fx.PersistRecordingLog(), fx.StopCatchupReplay(ONE)],
    }
    rig.parts.on_join = lambda: rig.agent.post(ev.LogJoined(7))

    rig.agent.post("go")
    rig.parts.resolve()
    await until(lambda: ("send", 1, HELLO) in rig.journal)
    rig.parts.resolve()
    await until(lambda: ("stop catchup", 1) in rig.journal)

    assert rig.journal == [("persisted", 5), "join", ("send", 1, HELLO), "recording log", ("stop catchup", 1)]


async def test_log_stopped_is_taken_in_before_what_waited(rig: Rig) -> None:
    rig.module.script["election"] = [fx.StopLog()]

    rig.agent.post("election")
    rig.agent.post("canvass")
    rig.parts.resolve()
    await until(lambda: len(rig.module.steps) == 3)

    assert rig.module.steps == ["election", ev.LogStopped(640), "canvass"]


async def test_what_was_recorded_above_a_truncation_is_not_told_after_it(rig: Rig) -> None:
    """Or the member would vote and answer for bytes that it has just cut off.

    1. A deposed leader stops its log; the last sync ends at 640, and says so, behind a waiting NewLeadershipTerm.
    2. That message makes it cut its log back to 320.
    3. Then "recorded up to 640" was taken in: append_position was 640 again, on the way to an acknowledged loss.
    """
    rig.module.script |= {"election": [fx.StopLog()], "new term": [fx.TruncateLog(320)]}

    rig.agent.post("election")
    rig.agent.post("new term")
    rig.agent.post(ev.Recorded(640))
    rig.agent.post(ev.Recorded(320))
    rig.agent.post("last")
    rig.parts.resolve()
    await until(lambda: "log stopped" in rig.journal)
    rig.parts.resolve()
    await until(lambda: "last" in rig.module.steps)

    assert rig.module.steps == [
        "election",
        ev.LogStopped(640),
        "new term",
        ev.LogTruncated(320),
        ev.Recorded(320),
        "last",
    ]


async def test_disk_that_fails_while_an_effect_settles_stops_the_node_and_nothing_after_it_is_done(rig: Rig) -> None:
    """Source: peers.md C4 classes 3 and 4."""
    error = OSError(5, "Input/output error")
    rig.module.script["vote"] = [PERSIST, SEND]

    rig.agent.post("vote")
    await passes(5)
    rig.parts.resolve(error)
    assert rig.agent.terminated is not None
    with pytest.raises(OSError, match="Input/output"):
        await rig.agent.terminated
    rig.agent.post("more")
    await passes(5)

    assert rig.journal == []
    assert rig.module.steps == ["vote"]


async def test_core_that_fails_stops_the_node_at_once(rig: Rig) -> None:
    rig.module.script["bad"] = [RuntimeError("a bug")]  # type: ignore[list-item]  # raised by the fake

    rig.agent.post("bad")
    rig.agent.post("more")

    assert rig.agent.terminated is not None
    with pytest.raises(RuntimeError, match="a bug"):
        await rig.agent.terminated
    assert rig.module.steps == ["bad"]


async def test_inbox_that_only_grows_stops_the_node(rig: Rig) -> None:
    """The bound of the queue, and what happens there. Source: STYLE 11."""
    rig.module.script["vote"] = [PERSIST]

    rig.agent.post("vote")
    for number in range(65537):
        rig.agent.post(str(number))

    assert rig.agent.terminated is not None
    with pytest.raises(NodeTerminatedError, match="inbox"):
        await rig.agent.terminated


async def test_time_that_came_while_an_effect_settled_is_polled_for_afterwards(rig: Rig) -> None:
    rig.module.script["vote"] = [PERSIST]

    rig.agent.post("start")
    rig.module.deadline_ns = rig.clock.now_ns
    rig.agent.post("wake")
    rig.agent.post("vote")
    await let_pass(0.002)
    await passes(5)
    assert rig.module.poll_count == 0
    rig.parts.resolve()
    await until(lambda: rig.module.poll_count == 1)


async def test_timer_that_a_service_sets_while_it_is_delivered_to_is_polled_for_in_time(rig: Rig) -> None:
    """Nothing else may happen on an idle leader for 100 ms: its next deadline has to be asked for again.

    Source: aeron.md §3.9.
    """
    rig.agent.post("start")
    rig.module.leader = object()

    def schedule() -> None:
        rig.module.deadline_ns = rig.clock.now_ns
        rig.module.is_deadline_stale = True

    rig.parts.on_deliver = schedule
    rig.module.script[ev.Recorded] = [fx.CommitAdvanced(96)]

    rig.agent.post(ev.Recorded(96))
    await until(lambda: rig.parts.position == 96)

    await until(lambda: rig.module.poll_count > 0)


async def test_messages_that_are_recorded_committed_and_delivered_ask_no_part_for_its_deadline(rig: Rig) -> None:
    rig.agent.post("start")
    rig.module.leader = object()
    asked_count = rig.module.asked_count

    for position in range(96, 960, 96):
        rig.module.script[ev.Recorded] = [fx.CommitAdvanced(position)]
        rig.agent.post(ev.Recorded(position))
    assert (rig.parts.position, rig.module.asked_count) == (864, asked_count)
    rig.agent.post("start")
    assert rig.module.asked_count == asked_count + 1


async def test_timer_is_set_for_what_an_event_that_only_delays_brings_with_it(rig: Rig) -> None:
    """An event like `Recorded` puts off what is due; another that is posted while its effects are performed may not."""
    rig.agent.post("start")
    rig.module.script[ev.Recorded] = [SEND]

    def post_another(effect: fx.Effect) -> None:
        rig.module.deadline_ns = rig.clock.now_ns
        rig.agent.post("another")

    rig.agent.watch(type(SEND), post_another)

    rig.agent.post(ev.Recorded(96))

    assert rig.module.steps[-1] == "another"
    await until(lambda: rig.module.poll_count > 0)


async def test_effects_asked_for_by_delivered_entries_are_performed(rig: Rig) -> None:
    rig.agent.post("start")
    rig.parts.on_deliver = lambda: rig.module.ctx.effects.append(SEND)
    rig.module.script["commit"] = [fx.CommitAdvanced(96)]

    rig.agent.post("commit")

    await until(lambda: ("send", 1, HELLO) in rig.journal)


@pytest.mark.parametrize("leads", [True, False])
async def test_core_of_a_leader_is_told_how_long_each_delivery_took(rig: Rig, leads: bool) -> None:
    """A follower delivers as much in one go as it can, so that this says nothing of its service."""
    rig.agent.post("start")
    rig.module.leader = object() if leads else None

    rig.parts.began_ns, rig.parts.ended_ns = 1_000, 1_700
    rig.module.script["commit"] = [fx.CommitAdvanced(96)]

    rig.agent.post("commit")
    await until(lambda: rig.parts.position == 96)

    assert rig.module.ctx.deliveries == [(1_000, 1_700)] * leads


async def test_replay_is_done_when_everything_up_to_its_end_is_delivered(rig: Rig) -> None:
    rig.parts.time = 77
    size = 3 << 20
    rig.module.script["lead"] = [fx.CommitAdvanced(size), fx.StartReplay(size)]

    rig.agent.post("lead")
    await until(lambda: len(rig.module.steps) == 2)

    assert rig.module.steps == ["lead", ev.ReplayDone(size, 77)]


@pytest.mark.parametrize(
    ("is_electing", "is_leading", "expected"),
    [(False, True, 64 << 10), (False, False, 256 << 10), (True, False, 4 << 20)],
)
async def test_one_go_of_delivery_is_short_where_others_wait_and_long_where_no_term_needs_this_member(
    rig: Rig, is_electing: bool, is_leading: bool, expected: int
) -> None:
    """A member that catches up delivers as much as arrives, or it would read that again from its archive."""
    rig.module.election = object() if is_electing else None
    rig.module.leader = object() if is_leading else None
    positions: list[int] = []
    rig.parts.on_deliver = lambda: positions.append(rig.parts.position)
    rig.module.script["commit"] = [fx.CommitAdvanced(16 << 20)]

    rig.agent.post("commit")

    assert positions == [expected]


async def test_batch_of_a_leader_waits_for_the_one_before_only_where_its_tuning_says_so(rig: Rig) -> None:
    ctx, journal = rig.module.ctx, rig.journal
    rig.module.leader = object()

    def append() -> None:
        ctx.log_buffer.append(bytes(32))
        rig.agent.schedule_flush()

    append()
    assert journal == [("flush", 1)]
    append()
    await passes(2)
    assert journal == [("flush", 1), ("flush", 1)]

    rig.tuning.delay_s = 3600.0
    append()
    append()
    await passes(5)
    assert len(journal) == 2
    ctx.commit_position = 64  # what was flushed before is committed
    append()
    assert journal[2:] == [("flush", 3)]
    rig.tuning.delay_s = 0.002
    append()
    await until(lambda: len(journal) > 3)  # or the time has come
    assert journal[3:] == [("flush", 1)]


async def test_follower_flushes_in_the_next_pass_whatever_its_tuning_says(rig: Rig) -> None:
    rig.module.ctx.commit_position = -1
    rig.tuning.delay_s = 3600.0

    rig.module.ctx.log_buffer.append(bytes(32))
    rig.agent.schedule_flush()
    await passes(2)

    assert rig.journal == [("flush", 1)]


async def test_replay_of_nothing_is_done_at_once(rig: Rig) -> None:
    rig.module.script["follow"] = [fx.StartReplay(0)]

    rig.agent.post("follow")
    await until(lambda: len(rig.module.steps) == 2)

    assert rig.module.steps == ["follow", ev.ReplayDone(0, 0)]


async def test_election_unbinds_clients_and_reads_them_again(rig: Rig) -> None:
    """What filled the window may be cut off; then no commit would ever resume them."""
    rig.module.script["election"] = [ELECTION, fx.UnbindIngress(None)]

    rig.agent.post("election")

    assert rig.journal == [
        ELECTION,
        "term ended",
        ("disconnect", None),
        "unbind all",
        "resume",
        ("disconnect", None),
    ]


async def test_window_is_full_when_more_is_appended_and_not_committed_than_it_allows(rig: Rig) -> None:
    rig.module.ctx.log_buffer.append(bytes(1024))
    assert not rig.agent.is_window_full()

    rig.module.ctx.log_buffer.append(bytes(32))

    assert rig.agent.is_window_full()
    rig.module.ctx.commit_position = rig.parts.position = 32
    assert not rig.agent.is_window_full()


async def test_window_is_full_when_the_service_lags_behind_the_commit(rig: Rig) -> None:
    """Clients are held back at the pace of a slow service.

    Otherwise the log grows ahead of it without bound, and so does a fail-over: the next leader has to deliver all of
    it before it leads. Source: aeron.md §10 hazards 27 and 32.
    """
    rig.agent.post("start")
    rig.module.ctx.log_buffer.append(bytes(2048))
    rig.module.ctx.commit_position = 2048
    rig.parts.position = 32
    rig.module.script["commit"] = [fx.CommitAdvanced(2048)]

    assert rig.agent.is_window_full()
    rig.agent.post("commit")
    await until(lambda: rig.parts.position == 2048)

    assert not rig.agent.is_window_full()
    assert rig.journal[-1] == "resume"


async def test_time_of_entries_does_not_go_back_with_the_clock(rig: Rig) -> None:
    """Source: aeron.md §10 hazard 29."""
    rig.clock.now_ns = 5_000_000
    rig.module.ctx.cluster_clock.note(900, 5_000_000)

    assert rig.agent.stamp() == 900
    rig.clock.now_ns += 1_000_000
    assert rig.agent.stamp() == 901


async def test_held_agent_remembers_what_is_said_once_until_it_starts(rig: Rig) -> None:
    """A service may take long to load its snapshot; what comes meanwhile would find neither election nor term."""
    once = [
        ev.LinkChanged(ONE, is_up=True),
        ev.FeatureLevelSaid(ONE, KnownLevel(1)),
        ev.MembersHeard(roster(2, 2).current, is_trusted=True),  # perhaps that this member is none any more
    ]
    rig.agent.hold()
    for event in (*once, "canvass"):
        rig.agent.post(event)
    assert rig.module.steps == []

    rig.agent.start()

    assert rig.module.steps == ["start", *once]


async def test_what_clients_show_while_the_agent_is_held_is_known_when_it_starts(rig: Rig) -> None:
    """They show it once on each connection: lost, the session would be refused, and with it all that is under way."""
    older, newer, gone = (
        ev.ClientChallengeResponse(connection_id, CorrelationId(-1), ClusterSessionId(session_id), b"secret")
        for connection_id, session_id in ((1, 5), (1, 6), (2, 7))
    )
    answer = ev.ClientChallengeResponse(3, CorrelationId(9), ClusterSessionId(-1), b"answer to a challenge")
    rig.agent.hold()
    for event in (older, gone, newer, answer, ev.ClientDisconnected(2), ev.ClientDisconnected(4)):
        rig.agent.post(event)
    rig.agent.post(ev.LinkChanged(ONE, is_up=True))

    rig.agent.start()

    assert rig.module.steps == ["start", ev.LinkChanged(ONE, is_up=True), newer]


async def test_closed_agent_takes_no_more_turns(rig: Rig) -> None:
    rig.agent.post("start")

    rig.agent.close()
    rig.agent.post("late")
    await passes(5)

    assert rig.module.steps == ["start"]


# --- actions and termination


async def test_whoever_asks_for_an_action_hears_each_step_to_the_last(rig: Rig) -> None:
    steps = [
        fx.ActionProgressed(1, ActionStep.APPENDED, 96, "", None, is_final=False),
        fx.ActionProgressed(1, ActionStep.DONE, 96, "", None, is_final=True),
    ]
    rig.module.script[ev.ActionRequested] = [*steps]

    heard = [step async for step in rig.agent.run_action(ev.ActionRequested(0, ControlToggle.SUSPEND))]

    assert heard == steps


async def test_whoever_waits_for_an_action_is_told_that_the_node_stops(rig: Rig) -> None:
    rig.module.script[ev.ActionRequested] = [fx.ActionProgressed(1, ActionStep.APPENDED, 96, "", None, is_final=False)]
    steps = rig.agent.run_action(ev.ActionRequested(0, ControlToggle.SUSPEND))
    await anext(steps)

    rig.agent.close()

    with pytest.raises(NodeTerminatedError, match="may not"):
        await anext(steps)


async def test_clients_are_not_read_while_the_leader_holds(rig: Rig) -> None:
    rig.module.actions.is_holding = True

    assert rig.agent.is_window_full()


async def test_termination_ends_the_node_and_its_turns(rig: Rig) -> None:
    rig.module.script["stop"] = [fx.Terminate(96, "the cluster stops")]

    rig.agent.post("stop")
    rig.agent.post("late")

    assert rig.agent.terminated is not None
    assert rig.agent.terminated.result() is None
    assert rig.module.steps == ["stop"]


@pytest.mark.parametrize("is_durable", [True, False])
async def test_what_somebody_waits_for_does_not_wait_for_its_sync(rig: Rig, is_durable: bool) -> None:
    """A spare follower syncs late; what is not durable on it is not delivered there."""
    rig.module.ctx.append_position = 96 if is_durable else 95
    confirmed = fx.ReadConfirmed(1, 96, 0)
    rig.module.script |= {"read": [confirmed], "stop": [fx.AwaitDelivery(96)]}

    rig.agent.post("read")
    assert rig.journal == [*([] if is_durable else ["sync"]), confirmed]
    rig.agent.post("stop")

    assert rig.journal.count("sync") == (0 if is_durable else 2)


async def test_votes_that_are_refused_again_and_again_do_not_fill_the_log(rig: Rig) -> None:
    """A member asks for a vote with every forged or repeated message; each costs this one a line otherwise."""
    refused = fx.VoteRefused(ONE, 7, Reason(ReasonKind.NOT_A_VOTER))
    rig.module.script["ask"] = [refused]

    with capture_logs() as lines:
        for _ in range(100):
            rig.agent.post("ask")
        rig.clock.now_ns += 10_000_000_000
        rig.agent.post("ask")
        rig.module.script["ask"] = [fx.VoteRefused(MemberId(2), 7, Reason(ReasonKind.NOT_A_VOTER))]
        rig.agent.post("ask")
        await passes(5)

    told = [(line["candidate_member_id"], line["count"]) for line in lines if line["event"] == "vote.refused"]
    assert told == [(1, 1), (1, 100), (2, 1)]


async def test_what_clients_do_in_one_pass_is_one_turn_in_its_order(rig: Rig) -> None:
    """A turn for each of a thousand sessions that open would take longer than what is done in it."""
    rig.module.script["connect"] = [SEND]
    turns = []
    rig.agent.watch(fx.SendToMember, lambda effect: turns.append(len(rig.module.steps)))

    for _ in range(3):
        rig.agent.post_soon("connect")
    assert rig.module.steps == []
    await passes(2)

    assert rig.module.steps == ["connect"] * 3
    assert turns == [1, 2, 3]


async def test_what_was_posted_at_once_comes_after_what_clients_did_before(rig: Rig) -> None:
    rig.agent.post_soon("proof")
    rig.agent.post_soon("keep-alive")
    rig.agent.post("stray")
    assert rig.module.steps == ["proof", "keep-alive", "stray"]

    await passes(2)
    assert rig.module.steps == ["proof", "keep-alive", "stray"]


async def test_query_comes_after_the_proof_that_came_with_it(rig: Rig) -> None:
    """Or a client that comes back is refused what it asks in the same write, each time that it comes back."""
    question = AskedQuery(CorrelationId(1), ClusterSessionId(3), -1, None, 0, 1, b"")
    rig.agent.post_soon("proof")
    rig.agent.on_query(7, question)

    assert rig.module.steps == ["proof"]
    assert rig.journal[-1] == ("query", 7)
    rig.module.sessions.principal = b"known"
    rig.agent.post_soon("keep-alive of another")
    rig.agent.on_query(7, question)
    assert rig.module.steps == ["proof"]


async def test_turn_of_many_clients_is_bounded(rig: Rig) -> None:
    for number in range(200):
        rig.agent.post_soon(f"connect {number}")
        assert number - len(rig.module.steps) < 64
    await passes(2)

    assert rig.module.steps == [f"connect {number}" for number in range(200)]


async def test_what_clients_do_waits_for_an_effect_that_settles(rig: Rig) -> None:
    rig.module.script["vote"] = [PERSIST, SEND]
    rig.agent.post("vote")
    for _ in range(100):
        rig.agent.post_soon("connect")
    await passes(5)
    assert rig.module.steps == ["vote"]

    rig.parts.resolve()
    await until(lambda: len(rig.module.steps) == 101)


async def test_held_agent_drops_what_clients_do_and_keeps_their_proofs(rig: Rig) -> None:
    rig.agent.hold()
    proof = ev.ClientChallengeResponse(7, CorrelationId(-1), ClusterSessionId(3), b"secret")
    rig.agent.post_soon("connect")
    rig.agent.post_soon(proof)
    await passes(5)
    assert rig.module.steps == []

    rig.agent.start()

    assert rig.module.steps == ["start", proof]


async def test_closed_agent_takes_nothing_that_clients_did_before(rig: Rig) -> None:
    rig.agent.post_soon("connect")
    rig.agent.close()
    rig.agent.post_soon("connect")
    await passes(5)

    assert rig.module.steps == []
