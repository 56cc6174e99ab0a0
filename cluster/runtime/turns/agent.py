"""The consensus module's agent: it takes turns.

A turn drains the inbox through the core and performs the effects, in order. Most effects are done at once; a few must
have reached the disk, or have waited for something to settle, before the next one may be performed: then the turn
goes on in a task, and what arrives meanwhile waits in the inbox. That is how "persist, then send" holds without the
core knowing time.

A turn is run where its event arrives, not by a task that wakes up for it: an event and what comes of it are then one
stack, which is what a trace shows. The wake-up itself would cost little (1.4 us on uvloop).

The data plane does not go through the inbox. Received chunks are appended to the window where they arrive, and one
flush per pass of the loop hands them to the links and the recording.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import structlog

from ....service_api import (
    Clock,
    ClusterError,
    InvariantViolation,
    NodeTerminatedError,
    RemoteProtocolError,
    Role,
)
from ....service_api.types import ClusterSessionId
from ....service_api.wire.pieces import CATCHUP_DELIVERY_BYTES, FOLLOWER_DELIVERY_BYTES, LEADER_DELIVERY_BYTES
from ....service_api.wire.queries import AskedQuery
from ...core import effects as fx
from ...core import events as ev
from ...core.consensus_module import ConsensusModule
from ...core.log.log_publisher import LogPublisher
from ...messages.consensus import AppendPosition, CommitPosition
from ...service.agent import ClusteredServiceAgent
from ...service.bounded_log_adapter import BoundedLogAdapter
from ...service.digests import DIGEST_PAUSE_NS
from ..ground.activities import ActivityScope
from ..ground.agent_door import NodeEnd
from ..links.ingress import Ingress
from ..links.member_links import MemberLinks
from ..shared_machine.tuning import MachineTuning
from ..snapshots.snapshot_shipping import SnapshotFetcher
from ..watching.stage_watch import RequestStage
from .divergence_reporter import DivergenceReporter
from .effect_lines import EffectLines
from .log_control import LogControl
from .member_roster import MemberRoster
from .queries import QueryHandler

_INBOX_LIMIT: Final = 65536
"""Events that may wait while an effect settles; so many can only mean that it never will, and the node stops."""

_SOON_LIMIT: Final = 64
"""What clients do with their sessions that one turn takes: 3 ms to 6 ms."""

_SAID_ONCE: Final = (ev.LinkChanged, ev.SeedAnnounced, ev.ReluctanceChanged, ev.MembersHeard, ev.FeatureLevelSaid)
"""What nobody says again: it is kept while the agent is held."""
_KEEPS_DEADLINE: Final = frozenset((ev.Recorded, ev.LogCommitted, AppendPosition, CommitPosition))
"""Frequent events after which the next deadline can only be later, so the running timer may stay.

At worst it fires early and the poll does nothing. Setting it again would cost a tenth of what a message costs.
"""

logger = structlog.get_logger()


class ConsensusModuleAgent:
    """Drives one member's consensus module on the event loop."""

    def __init__(
        self,
        module: ConsensusModule,
        *,
        clock: Clock,
        ingress_window_bytes: int,
        tuning: MachineTuning,
    ) -> None:
        self.module = module
        self.tuning: Final = tuning
        self._ctx = module.ctx
        self._clock = clock
        self.monotonic_ns: Final = clock.monotonic_ns
        """Now, for durations."""
        self._lines = EffectLines(clock.monotonic_ns)
        self._ingress_window_bytes = ingress_window_bytes
        self._inbox: deque[object] = deque()
        self._soon: asyncio.Handle | None = None
        """The turn that takes what `post_soon` has put into the inbox."""
        self._is_in_turn = False
        self._settling: asyncio.Task[None] | None = None
        self._flush_handle: asyncio.Handle | None = None
        self._is_delivery_scheduled = False
        self._is_delivery_due = False
        self._replay_target: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._digest_timer: asyncio.TimerHandle | None = None
        self._timer_deadline_ns = 0
        self._is_closed = False
        self._is_held = False
        self._held_proofs: dict[int, ev.ClientChallengeResponse] = {}
        """By connection: what clients have shown while the agent is held."""
        self._handlers: dict[type, Callable[[Any], Coroutine[Any, Any, None] | None]] = {}
        self._action_waiters: dict[int, asyncio.Queue[fx.ActionProgressed | NodeTerminatedError]] = {}
        """Who hears of the steps of an action, by the number of the request; few at once, and few steps."""
        self._delivery_target: int | None = None
        self._next_request_id = 1
        self.terminated: asyncio.Future[None] | None = None
        self.end = NodeEnd.STOPPED

    def __repr__(self) -> str:
        return f"<ConsensusModuleAgent inbox={len(self._inbox)} {self.module!r}>"

    def attach(
        self,
        *,
        links: MemberLinks,
        ingress: Ingress,
        log: LogControl,
        adapter: BoundedLogAdapter,
        service: ClusteredServiceAgent,
        queries: QueryHandler,
        snapshot_handlers: Mapping[type, Callable[[Any], None]],
        fetcher: SnapshotFetcher,
        roster: MemberRoster,
        divergence: DivergenceReporter,
        tasks: ActivityScope,
    ) -> None:
        """Connect the agent with what performs its effects. Called once, before `start`."""
        self._links, self.ingress, self._log = links, ingress, log
        self._adapter, self._service, self._tasks = adapter, service, tasks
        self._queries, self._divergence = queries, divergence
        self._loop = asyncio.get_running_loop()
        self.terminated = self._loop.create_future()
        self._handlers = {
            **self._lines.handlers,
            **roster.handlers,
            **snapshot_handlers,
            fx.SendToMember: lambda effect: links.send(effect.member_id, effect.message),
            fx.MessageRefused: lambda effect: links.on_message_refused(effect),
            fx.SendToClient: self._send_to_client,
            fx.BindIngress: self._bind_ingress,
            fx.UnbindIngress: self._unbind_ingress,
            fx.PersistCandidateTerm: log.persist_candidate_term,
            fx.PersistRecordingLog: lambda effect: log.persist_recording_log(),
            fx.StopLog: self._stop_log,
            fx.TruncateLog: self._truncate_log,
            fx.OpenLogPublication: log.open_publication,
            fx.StartReplay: self._start_replay,
            fx.StartLogReplication: log.start_replication,
            fx.AcceptCatchup: log.accept_catchup,
            fx.FollowCatchup: lambda effect: log.follow_catchup(),
            fx.CloseCatchup: lambda effect: log.close_catchup(),
            fx.JoinLiveLog: log.join_log,
            fx.StartCatchupReplay: log.start_catchup_replay,
            fx.StopCatchupReplay: lambda effect: log.stop_catchup_replay(effect.member_id),
            fx.CommitAdvanced: self._commit_advanced,
            fx.ReadConfirmed: self._read_confirmed,
            fx.ResumeDelivery: self._resume_delivery,
            fx.ActionProgressed: self._notify_waiter,
            fx.HoldIngress: self._hold_ingress,
            fx.AwaitDelivery: self._await_delivery,
            fx.Terminate: self._terminate,
            fx.FetchSnapshot: fetcher.fetch,
            fx.StopSnapshotFetch: lambda effect: fetcher.stop(),
            fx.InstallSnapshot: fetcher.install,
            fx.ElectionStarted: self._election_started,
            fx.ElectionClosed: self._election_closed,
            fx.ServiceDiverged: self._log_service_diverged,
            fx.DigestsDiffered: self._digests_differed,
            fx.DivergenceMended: divergence.on_mended,
            fx.FieldDiffered: divergence.on_field_differed,
        }

    def watch(self, kind: type[fx.Effect], observer: Callable[[Any], None]) -> None:
        """Call a function with every effect of a kind before the effect is performed. Called after `attach`."""
        handler = self._handlers[kind]

        def observe_and_perform(effect: Any) -> Coroutine[Any, Any, None] | None:  # Any: the effect of that kind
            observer(effect)
            return handler(effect)

        self._handlers[kind] = observe_and_perform

    # --- inputs

    def hold(self) -> None:
        """Take no turn before `start`, while the service loads its state.

        Kept until then: which links are up, who has a seeded log, what makes this member reluctant to lead, and what
        clients show to prove their sessions, the newest of each connection: they show it once. Everything else is
        dropped: members and clients say it again.
        """
        self._is_held = True

    def start(self) -> None:
        """Begin the first election."""
        self._is_held = False
        self._is_in_turn = True
        self.module.start(now_ns=self._clock.monotonic_ns(), timestamp=self._clock.epoch_time())
        self._is_in_turn = False
        self._inbox.extend(self._held_proofs.values())
        self._held_proofs.clear()
        self._turn()

    def post(self, event: object) -> None:
        """Hand a message or an event to the core: now, or after what is being done."""
        if self._is_closed or (self._is_held and not self._is_kept(event)):
            return
        if not (self._is_in_turn or self._is_held or self._settling is not None):
            self._turn(event)
            return
        self._keep(event)

    def post_soon(self, event: object) -> None:
        """Hand an event to the core at the end of this pass of the loop, with others of its kind: in one turn.

        For what clients do with their sessions. Where a thousand open one, or come to a new leader, a turn for each
        would take longer than what is done in it. Of events that come by `post` meanwhile all these are first, so
        the order stays. A turn takes no more than `_SOON_LIMIT` of them.
        """
        if self._is_closed or (self._is_held and not self._is_kept(event)):
            return
        self._keep(event)
        if self._is_in_turn or self._is_held or self._settling is not None:
            return
        if len(self._inbox) >= _SOON_LIMIT:
            self._turn()
        elif self._soon is None:
            self._soon = self._loop.call_soon(self._turn_soon)

    def _keep(self, event: object) -> None:
        self._inbox.append(event)
        if len(self._inbox) > _INBOX_LIMIT:
            self.terminate(NodeTerminatedError(f"inbox is full: events={len(self._inbox)} settling={self._settling}"))

    def take_soon(self) -> None:
        """Give the core now what `post_soon` has put by: what comes next depends on it."""
        if self._soon is not None and not self._is_in_turn:
            self._soon.cancel()
            self._turn_soon()

    def _turn_soon(self) -> None:
        self._soon = None
        if self._inbox and not self._is_closed and self._settling is None and not self._is_held:
            self._turn()

    def _is_kept(self, event: object) -> bool:
        """Whether an event that comes while the agent is held waits in the inbox; a client's proof waits beside it."""
        if isinstance(event, ev.ClientChallengeResponse) and event.session_id >= 0:
            self._held_proofs[event.connection_id] = event
        elif isinstance(event, ev.ClientDisconnected):
            self._held_proofs.pop(event.connection_id, None)
        return isinstance(event, _SAID_ONCE)

    def run_action(self, wanted: ev.ActionRequested) -> AsyncGenerator[fx.ActionProgressed, None]:
        """Have the cluster do something, if this member leads; give each step, the last one being final.

        Who asks is not looked at: a number is given here.

        Raises:
            NodeTerminatedError: this node stops before that.
        """
        return self._run_request(lambda number: replace(wanted, asker=number))

    def run_transfer(self, target_id: int | None) -> AsyncGenerator[fx.ActionProgressed, None]:
        """Have this member, if it leads, hand over to another one, or to any; otherwise as `run_action`."""
        return self._run_request(lambda number: ev.TransferRequested(number, target_id))

    async def _run_request(self, make_request: Callable[[int], object]) -> AsyncGenerator[fx.ActionProgressed, None]:
        if self._is_closed:
            raise NodeTerminatedError("the node has stopped")
        request_id = self._next_request_id
        self._next_request_id += 1
        steps = self._action_waiters[request_id] = asyncio.Queue()
        try:
            self.post(make_request(request_id))
            while True:
                step = await steps.get()
                if isinstance(step, NodeTerminatedError):
                    raise step
                yield step
                if step.is_final:
                    return
        finally:
            del self._action_waiters[request_id]

    def terminate(self, error: BaseException | None) -> None:
        """Stop this node: in order, or because of an error that it cannot live with."""
        assert self.terminated is not None
        if not self.terminated.done():
            if error is None:
                self.terminated.set_result(None)
            else:
                self.terminated.set_exception(error)

    def restart(self, end: NodeEnd) -> None:
        """Stop this node, to be opened again in this process."""
        self.end = end
        self.terminate(None)
        self.close()

    def close(self) -> None:
        """Take no more turns."""
        self._is_closed = True
        self._inbox.clear()
        if self._soon is not None:
            self._soon.cancel()
        self._lines.close()
        for steps in self._action_waiters.values():
            steps.put_nowait(NodeTerminatedError("the node stops: it may or may not take effect"))
        for timer in (self._timer, self._digest_timer):
            if timer is not None:
                timer.cancel()

    def _fail(self, error: Exception) -> None:
        """Stop this node for what must not happen, and take no turn after it."""
        self.terminate(error)
        self.close()

    # --- what ingress needs

    def holds_session(self, connection_id: int) -> bool:
        """Whether the client of a connection has shown that an open session is its own."""
        return self.module.sessions.is_any_on(connection_id)

    def is_keep_alive_known(self, connection_id: int, leadership_term_id: int, session_id: ClusterSessionId) -> bool:
        """Whether a keep-alive tells the core nothing: a turn for each would be most of what sessions at rest cost."""
        return self.module.sessions.is_known(connection_id, session_id, leadership_term_id)

    def disconnect_egress(self, session_id: ClusterSessionId) -> None:
        """Discard what a session offers: its connection is gone."""
        self._service.disconnect_egress(session_id)

    @property
    def publisher(self) -> LogPublisher | None:
        """The leader's publisher of entries, or None while this member does not lead."""
        leader = self.module.leader
        return None if leader is None else leader.publisher

    def stamp(self) -> int:
        """Now, for log entries."""
        return self._ctx.cluster_clock.stamp(self.monotonic_ns())

    def on_query(self, connection_id: int, question: AskedQuery) -> None:
        """Take a query; it is answered on its connection.

        Its session may have been shown just before, in the same write: a client asks again on a new connection.
        """
        if self.module.sessions.principal_on(connection_id, question.cluster_session_id) is None:
            self.take_soon()
        if not self._is_closed:
            self._queries.on_query(connection_id, question)

    def is_window_full(self) -> bool:
        """Whether clients are not to be read.

        Either more is appended and not delivered than the ingress window allows, committed or not; or the leader holds.
        """
        if self.module.actions.is_holding:
            return True
        return self._ctx.log_buffer.append_position - self._adapter.position > self._ingress_window_bytes

    def schedule_flush(self) -> None:
        """Send and record what has been appended: at once when idle, otherwise once per pass of the loop.

        A leader whose tuning says so flushes once per batch: when the batch before is committed, or a little later.
        """
        ctx = self._ctx
        if ctx.log_buffer.flushed_position == ctx.commit_position and not self._is_in_turn:
            self._flush()
        elif self._flush_handle is None:
            delay_s = 0.0 if self.module.leader is None else self.tuning.batch_delay_s()
            if delay_s:
                self._flush_handle = self._loop.call_later(delay_s, self._flush)
            else:
                self._flush_handle = self._loop.call_soon(self._flush)

    # --- turns

    def _turn(self, event: object | None = None, rest: Sequence[fx.Effect] = ()) -> None:
        """Take in everything that waits, `event` last, and perform what comes of it; unless an effect has to settle.

        `rest` are the effects of an earlier turn that waited for one to settle: they come before anything else.
        """
        self._is_in_turn = True
        module, ctx, inbox, clock = self.module, self._ctx, self._inbox, self._clock
        if type(event) not in _KEEPS_DEADLINE or module.election is not None:
            module.is_deadline_stale = True
        try:
            is_done = not rest or self._perform(rest)
            if ctx.effects or inbox or not is_done:
                module.is_deadline_stale = True
                if event is not None:
                    inbox.append(event)
                    event = None
                is_done = is_done and self._perform(module.take_effects())
            while is_done and (event is not None or inbox):
                if event is None:
                    module.is_deadline_stale = True
                    event = inbox.popleft()
                module.step(event, now_ns=clock.monotonic_ns(), timestamp=clock.epoch_time())
                event = None
                is_done = not ctx.effects or self._perform(module.take_effects())
        except Exception as error:
            # The core and the effects do not fail in ordinary operation: what is left is a bug or a broken disk.
            self._fail(error)
            return
        finally:
            self._is_in_turn = False
        log_buffer = ctx.log_buffer
        if log_buffer.flushed_position != log_buffer.append_position and self._settling is None:
            self.schedule_flush()
        if self._is_delivery_due:
            self._deliver()
        elif self._settling is None:
            self._schedule_poll()
        self.tuning.on_worked(ctx.now_ns)

    def _perform(self, effects: Sequence[fx.Effect]) -> bool:
        """Perform effects in order. False when one has to settle: the rest follows when it has."""
        for index, effect in enumerate(effects):
            settling = self._handlers[type(effect)](effect)
            if settling is not None:
                self._settling = self._tasks.create_task(
                    self._settle(settling, effects[index + 1 :]), name="settle-effect"
                )
                return False
        return True

    async def _settle(self, settling: Coroutine[Any, Any, None], rest: Sequence[fx.Effect]) -> None:
        """Wait for an effect that others depend on, then go on with the turn."""
        try:
            await settling
        except (ClusterError, OSError) as error:
            self.terminate(error)
            return
        if not self._is_closed:
            self._settling = None
            self._turn(rest=rest)

    def _schedule_poll(self) -> None:
        """Have the core polled in time, unless the timer that runs is early enough."""
        module = self.module
        if not module.is_deadline_stale and self._timer is not None and module.election is None:
            return
        deadline_ns = module.next_deadline_ns()
        if self._timer is not None:
            if self._timer_deadline_ns <= deadline_ns:
                return
            self._timer.cancel()
        self._timer_deadline_ns = deadline_ns
        delay_s = max(0, deadline_ns - self._clock.monotonic_ns()) / 1e9
        self._timer = self._loop.call_later(min(delay_s, 3600.0), self._poll)

    def _poll(self) -> None:
        self._timer = None
        if self._is_closed or self._settling is not None:
            return
        self._is_in_turn = True
        try:
            self.module.poll(now_ns=self._clock.monotonic_ns(), timestamp=self._clock.epoch_time())
        except Exception as error:
            self._fail(error)
            return
        finally:
            self._is_in_turn = False
        self._turn()

    # --- the data plane

    def _flush(self) -> None:
        """Send and record the chunks appended since the last flush."""
        if self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush_handle = None
        if self._is_closed:
            return
        try:
            self._log.flush()
        except Exception as error:
            self._fail(error)

    def on_recorded(self, position: int, committed: ev.LogCommitted | None) -> None:
        """The recording is durable up to a position; the leader may have said something with its frames.

        Where nothing can come of it, it is noted without a turn: a leader's own recording is ready before anybody has
        reported, as a rule.
        """
        if not (self._is_in_turn or self._inbox or self._is_closed or self._is_held or self._settling is not None):
            now_ns = self._clock.monotonic_ns()
            if self.module.take_recorded(position, now_ns):
                self.tuning.on_worked(now_ns)
                return
        self.post(ev.Recorded(position, committed))

    def _commit_advanced(self, effect: fx.CommitAdvanced) -> None:
        position, stages = effect.position, self._log.stages
        if stages is not None:
            stages.reach(RequestStage.QUORUM, position)
        self._adapter.advance_limit(position)
        self._deliver_soon()

    def _read_confirmed(self, effect: fx.ReadConfirmed) -> None:
        self._sync_up_to(effect.log_position)
        self._queries.on_confirmed(effect)

    def _sync_up_to(self, position: int) -> None:
        """Let nothing wait below a position that somebody waits for: what is not durable here is not delivered."""
        if self._ctx.append_position < position:
            self._log.sync()

    def _resume_delivery(self, effect: fx.ResumeDelivery) -> None:
        self._adapter.resume()
        self._deliver_soon()

    def _notify_waiter(self, effect: fx.ActionProgressed) -> None:
        logger.info(
            "action.progressed",
            step=effect.step,
            log_position=effect.log_position,
            detail=effect.detail,
            member=effect.member_id,
        )
        steps = self._action_waiters.get(effect.request_id)
        if steps is not None:
            steps.put_nowait(effect)

    def _hold_ingress(self, effect: fx.HoldIngress) -> None:
        if effect.is_held:
            self.ingress.pause()
        elif not self.is_window_full():
            self.ingress.resume()

    def _await_delivery(self, effect: fx.AwaitDelivery) -> None:
        self._sync_up_to(effect.position)
        self._delivery_target = effect.position
        self._deliver_soon()

    def _terminate(self, effect: fx.Terminate) -> None:
        """Stop in order, and take no turn any more: this member has done its part."""
        logger.info("node.terminating", log_position=effect.log_position, reason=effect.reason)
        self.terminate(None)
        self.close()

    def _start_replay(self, effect: fx.StartReplay) -> None:
        self._replay_target = effect.to_position
        self._deliver_soon()

    def _deliver_soon(self) -> None:
        """Deliver when this turn is over, or on the next pass of the loop where there is none."""
        if self._is_in_turn:
            self._is_delivery_due = True
        elif not self._is_delivery_scheduled:
            self._is_delivery_scheduled = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        """Deliver what is committed, a bounded piece at a time."""
        self._is_delivery_scheduled = False
        self._is_delivery_due = False
        if self._is_closed or self._ctx.is_comparing:
            return
        ctx, adapter = self._ctx, self._adapter
        try:
            has_more = adapter.poll(self._delivery_bytes())
        except (RemoteProtocolError, InvariantViolation) as error:
            ctx.is_comparing = True
            self._tasks.create_task(self._settle_undeliverable(error), name="compare-logs")
            return
        except Exception as error:
            self._fail(error)
            return
        if self.module.leader is not None:
            ctx.note_delivery(adapter.began_ns, adapter.ended_ns)
        if has_more:
            self._deliver_soon()
        ctx.log_buffer.discard_before(ctx.commit_position)
        reached_position = adapter.reached_position
        if self._delivery_target is not None and reached_position >= self._delivery_target:
            self._delivery_target = None
            self.post(ev.DeliveredTo(reached_position))
        target = self._replay_target
        if target is not None and reached_position >= target:
            self._replay_target = None
            self.post(ev.ReplayDone(reached_position, max(self._service.time, adapter.newest_timestamp)))
        elif self._settling is None:
            if ctx.effects:
                self._turn()
            else:
                self._schedule_poll()
        if adapter.has_pending_digests:
            self._schedule_digests()
        self._queries.serve()
        if self.ingress.is_paused and not self.is_window_full():
            self.ingress.resume()

    def _schedule_digests(self) -> None:
        """Go on with digests in the making after a pause, which keeps them to their share of the time."""
        if self._digest_timer is None:
            self._digest_timer = self._loop.call_later(DIGEST_PAUSE_NS / 1e9, self._advance_digests)

    def _advance_digests(self) -> None:
        self._digest_timer = None
        if self._is_closed or self._ctx.is_comparing:
            return  # the next delivery goes on with them
        try:
            self._adapter.advance_digests()
        except Exception as error:
            self._fail(error)
            return
        if self._ctx.effects and self._settling is None:
            self._turn()
        if self._adapter.has_pending_digests:
            self._schedule_digests()

    def _digests_differed(self, effect: fx.DigestsDiffered) -> Coroutine[Any, Any, None] | None:
        self._ctx.is_comparing = self._ctx.is_comparing or effect.is_stopping
        return self._divergence.on_differed(effect)

    def go_on(self) -> None:
        """Deliver on: the comparison of logs has found no fault of this member."""
        self._ctx.is_comparing = False
        self._deliver_soon()

    async def _settle_undeliverable(self, error: ClusterError) -> None:
        """The log has what no leader writes: it differs from others' logs, or this member cannot go on."""
        try:
            await self._divergence.on_undeliverable(error, self._ctx.commit_position)
        except Exception as failure:
            self._fail(failure)

    def _delivery_bytes(self) -> int:
        """How much is delivered in one go; the adapter bounds the time besides, where the service is slow."""
        if self.module.leader is not None:
            return LEADER_DELIVERY_BYTES
        return FOLLOWER_DELIVERY_BYTES if self.module.election is None else CATCHUP_DELIVERY_BYTES

    # --- effects

    def _send_to_client(self, effect: fx.SendToClient) -> None:
        connection = self.ingress.connections.get(effect.connection_id)
        if connection is not None:
            connection.egress.send(effect.message)
            if effect.close_after:
                connection.life.close()

    def _bind_ingress(self, effect: fx.BindIngress) -> None:
        connection = self.ingress.connections.get(effect.connection_id)
        if connection is not None:
            session_id = ClusterSessionId(effect.cluster_session_id)
            connection.life.bind(session_id, effect.leadership_term_id)
            self._service.connect_egress(session_id, connection.egress, effect.leadership_term_id)

    def _unbind_ingress(self, effect: fx.UnbindIngress) -> None:
        if effect.connection_id is None:
            self.ingress.unbind_all()
            self.ingress.resume()  # what filled the window may be cut off, and then no commit would resume it
            self._service.disconnect_egress(None)
            return
        connection = self.ingress.connections.get(effect.connection_id)
        if connection is not None:
            connection.life.release(ClusterSessionId(effect.cluster_session_id))

    async def _stop_log(self, effect: fx.StopLog) -> None:
        self._replay_target = None
        self._inbox.appendleft(ev.LogStopped(await self._log.stop()))

    async def _truncate_log(self, effect: fx.TruncateLog) -> None:
        logger.warning("log.truncated", position=effect.position, append_position=self._ctx.append_position)
        await self._log.truncate(effect.position)
        # What was recorded above is gone; an event that still says so would bring the append position back up.
        stale = [event for event in self._inbox if isinstance(event, ev.Recorded) and event.position > effect.position]
        for event in stale:
            self._inbox.remove(event)
        self._inbox.appendleft(ev.LogTruncated(effect.position))

    def _log_service_diverged(self, effect: fx.ServiceDiverged) -> None:
        logger.error(
            "service.diverged",
            service_id=effect.service_id,
            log_position=self._service.log_position,
            detail=f"{effect.detail}; a service must offer the same messages on every member",
        )

    def _election_started(self, effect: fx.ElectionStarted) -> None:
        logger.info("election.started", reason=effect.reason.name, detail=str(effect.reason))
        self._queries.on_election_started(effect)
        self._service.on_term_ended()
        self._service.disconnect_egress(None)

    def _election_closed(self, effect: fx.ElectionClosed) -> None:
        logger.info(
            "election.closed",
            leadership_term_id=effect.leadership_term_id,
            leader_member_id=effect.leader_member_id,
            log_position=effect.log_position,
        )
        if self._ctx.held is not None:
            return  # the service is given nothing: it does not lead
        is_leader = effect.leader_member_id == self._ctx.config.member_id
        self._service.on_term_begun(Role.LEADER if is_leader else Role.FOLLOWER, effect.log_position)
