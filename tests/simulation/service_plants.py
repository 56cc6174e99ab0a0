"""Planted bugs in what the service is given and the client takes, in timers, and in links and memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from trimaran.client.egress import EgressListener
from trimaran.client.protocol.egress_adapter import ClientSessionState, EgressAdapter
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core.consensus_module import ConsensusModule
from trimaran.cluster.core.log.log_buffer import LogBuffer
from trimaran.cluster.core.sessions.sessions import SessionManager
from trimaran.cluster.core.vocabulary.cluster_clock import ClusterClock
from trimaran.cluster.core.vocabulary.timers import TimerService
from trimaran.cluster.runtime.links import dialling, log_links
from trimaran.cluster.runtime.links.ingress import Ingress
from trimaran.cluster.runtime.links.log_links import _LogLink
from trimaran.cluster.runtime.turns import container_requests
from trimaran.cluster.runtime.turns.agent import ConsensusModuleAgent
from trimaran.cluster.service import bounded_log_adapter
from trimaran.cluster.service.bounded_log_adapter import BoundedLogAdapter
from trimaran.service_api import Role
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.net.transport import NetworkStack, Purpose
from trimaran.service_api.types import CorrelationId, MemberId
from trimaran.service_api.wire.log.messages import SessionCloseEvent, TimerEvent

from .plant import Plant, Planting

# --- 19, 26: what a client is shown


def _accept_egress_of_any_term(planting: Planting) -> None:
    """The client takes what an old leader says for what the new one says."""
    real = EgressAdapter.__init__

    def init(self: EgressAdapter, session: ClientSessionState, listener: EgressListener, **facts: Any) -> None:
        real(self, session, listener, **facts)
        # The adapter asks these two for the term and tells them what came; everything else is passed on.
        self._session = _AnyTerm(session)  # type: ignore[assignment]
        self._listener = _Listener(planting, session, listener)  # type: ignore[assignment]

    planting.replace(EgressAdapter, "__init__", init)


class _AnyTerm:
    """A session's state that knows no term."""

    leadership_term_id = -1

    def __init__(self, session: ClientSessionState) -> None:
        self._session = session
        self.foreign_egress_count = 0

    @property
    def cluster_session_id(self) -> int:
        return self._session.cluster_session_id


class _Listener:
    def __init__(self, planting: Planting, session: ClientSessionState, listener: EgressListener) -> None:
        self._planting, self._session, self._listener = planting, session, listener

    def on_message(self, timestamp: int, leadership_term_id: int, payload: memoryview) -> None:
        if leadership_term_id < self._session.leadership_term_id:
            self._planting.ran()
        self._listener.on_message(timestamp, leadership_term_id, payload)


# --- 19: sessions across leaders


def _give_session_ids_from_memory(planting: Planting) -> None:
    """A leader counts on from what it gave out itself."""
    real = SessionManager.on_replay_session_open

    def on_replay_session_open(self: SessionManager, event: Any, end_position: int) -> None:
        given = self._next_session_id
        real(self, event, end_position)
        if self._next_session_id != given:
            planting.ran()
            self._next_session_id = given

    planting.replace(SessionManager, "on_replay_session_open", on_replay_session_open)


# --- 25: timers


def _set_timers_on_the_leader_only(planting: Planting) -> None:
    """Whoever follows when a timer is set will not fire it when it leads."""

    def schedule_timer(self: container_requests.ContainerRequests, correlation_id: int, deadline: int) -> None:
        timers = self._module.timers
        if self._module.leader is not None:
            timers.schedule(correlation_id, deadline)
        else:
            planting.ran()
            timers._deadlines[correlation_id] = deadline

    planting.replace(container_requests.ContainerRequests, "schedule_timer", schedule_timer)
    planting.replace(TimerService, "rearm", lambda self: None)


def _keep_fired_timers(planting: Planting) -> None:
    """A timer that has fired stays: the next leader fires it again."""

    def on_fired(self: TimerService, correlation_id: int) -> None:
        planting.ran()

    planting.replace(TimerService, "on_fired", on_fired)


def _fire_by_the_own_clock(planting: Planting) -> None:
    """Every member gives due timers to its service when its own clock says so."""
    real = BoundedLogAdapter.poll

    def poll(self: BoundedLogAdapter, limit_bytes: int) -> bool:
        module = self._module
        assert isinstance(module, ConsensusModule)
        if module.leader is None:
            for correlation_id in module.timers.expired(module.ctx.timestamp, limit=20):
                planting.ran()
                event = TimerEvent(
                    leadership_term_id=module.ctx.leadership_term_id,
                    correlation_id=CorrelationId(correlation_id),
                    timestamp=module.ctx.timestamp,
                )
                self._agent.enter_messages()
                self._agent.on_timer_event(event)
                self._agent.leave_messages()
        return real(self, limit_bytes)

    planting.replace(BoundedLogAdapter, "poll", poll)


def _let_log_time_go_backwards(planting: Planting) -> None:
    """A leader stamps with its own clock, behind that of the leader before it or not."""

    def begin_term(clock: ClusterClock, now_ns: int, epoch_ms: int) -> None:
        clock.start(now_ns)
        clock._anchor_ns = epoch_ms * 1_000_000
        if epoch_ms < clock.newest_time:
            planting.ran()
        clock.newest_time = 0

    planting.replace(ClusterClock, "begin_term", begin_term)


def _clamp_the_time_of_day(planting: Planting) -> None:
    """Cluster time is the leader's time of day, clamped to the log: it stands still where that is behind, and leaps."""
    offsets: dict[int, int] = {}
    real_steer, real_begin_term, real_read = ClusterClock.steer, ClusterClock.begin_term, ClusterClock.read

    def steer(clock: ClusterClock, now_ns: int, epoch_ms: int) -> None:
        offsets[id(clock)] = epoch_ms - now_ns // 1_000_000
        real_steer(clock, now_ns, epoch_ms)

    def begin_term(clock: ClusterClock, now_ns: int, epoch_ms: int) -> None:
        offsets[id(clock)] = epoch_ms - now_ns // 1_000_000
        real_begin_term(clock, now_ns, epoch_ms)

    def read(clock: ClusterClock, now_ns: int) -> int:
        time, real = max(clock.newest_time, offsets.get(id(clock), 0) + now_ns // 1_000_000), real_read(clock, now_ns)
        if abs(time - real) > 5:
            planting.ran()
        return time

    def stamp(clock: ClusterClock, now_ns: int) -> int:
        clock.newest_time = read(clock, now_ns)
        return clock.newest_time

    planting.replace(ClusterClock, "steer", steer)
    planting.replace(ClusterClock, "begin_term", begin_term)
    planting.replace(ClusterClock, "read", read)
    planting.replace(ClusterClock, "stamp", stamp)


# --- 21, 28: links


def _dial_once(planting: Planting) -> None:
    """A member whose link was lost is not dialled again."""

    async def dial(
        network: NetworkStack,
        purpose: Purpose,
        endpoint: Endpoint,
        make_protocol: Callable[[asyncio.Future[None]], asyncio.BaseProtocol],
        *,
        member_id: MemberId,
        find_former: Callable[[], Endpoint | None],
    ) -> None:
        while True:
            closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            try:
                transport, _ = await network.dial(
                    purpose, endpoint, partial(make_protocol, closed), member_id=member_id
                )
            except OSError:
                await asyncio.sleep(0.05)
                continue
            try:
                await closed
            finally:
                transport.close()
            planting.ran()
            return

    planting.replace(dialling, "dial_forever", dial)


# --- 27: legal input


# --- 29: memory


def _keep_the_whole_log(planting: Planting) -> None:
    """The window keeps everything."""

    def discard_before(self: LogBuffer, position: int) -> None:
        planting.ran()

    planting.replace(LogBuffer, "discard_before", discard_before)


def _let_links_fill(planting: Planting) -> None:
    """What a follower does not read waits in the leader's memory, however much it is."""
    real = _LogLink.send

    def send(self: _LogLink, chunks: list[bytes]) -> None:
        transport = self._transport
        assert transport is not None
        if transport.get_write_buffer_size() <= log_links._SEND_LIMIT_BYTES:
            real(self, chunks)
            return
        planting.ran()
        transport.writelines(chunks)

    planting.replace(_LogLink, "send", send)


def _never_pause_ingress(planting: Planting) -> None:
    """Clients are read however much waits to be committed."""
    planting.replace(Ingress, "pause", lambda self: planting.ran())


# --- 31, 35: replay


def _lead_in_the_replay(planting: Planting) -> None:
    """A service is told that its member leads when the ballot is won, before the old entries are replayed."""
    real = ConsensusModuleAgent._start_replay

    def start_replay(self: ConsensusModuleAgent, effect: fx.StartReplay) -> None:
        if self.module.ctx.role is Role.LEADER and effect.to_position > self._service.log_position:
            planting.ran()
            self._service.on_term_begun(Role.LEADER, effect.to_position)
        real(self, effect)

    planting.replace(ConsensusModuleAgent, "_start_replay", start_replay)


def _replay_no_closes(planting: Planting) -> None:
    """What is read from the archive passes over the closes of sessions."""
    real = BoundedLogAdapter._on_session_close

    def on_session_close(self: BoundedLogAdapter, event: SessionCloseEvent, position: int) -> None:
        if self._archived:
            planting.ran()
            return
        real(self, event, position)

    planting.replace_item(bounded_log_adapter._HANDLERS, SessionCloseEvent, on_session_close)


def _replay_timers_to_the_service_only(planting: Planting) -> None:
    """A timer that fires in a replay is given to the service and stays set."""
    real = BoundedLogAdapter._on_timer

    def on_timer(self: BoundedLogAdapter, event: TimerEvent, position: int) -> None:
        if self._archived:
            planting.ran()
            self._agent.on_timer_event(event)
            return
        real(self, event, position)

    planting.replace_item(bounded_log_adapter._HANDLERS, TimerEvent, on_timer)


def _replay_with_todays_time(planting: Planting) -> None:
    """What is read from the archive is given the time of the replay."""
    real = BoundedLogAdapter._on_timer

    def on_timer(self: BoundedLogAdapter, event: TimerEvent, position: int) -> None:
        if self._archived:
            planting.ran()
            module = self._module
            assert isinstance(module, ConsensusModule)
            event = event.model_copy(update={"timestamp": module.ctx.timestamp})
        real(self, event, position)

    planting.replace_item(bounded_log_adapter._HANDLERS, TimerEvent, on_timer)


def _replay_the_first_frame_of_a_segment_twice(planting: Planting) -> None:
    """What is read back goes on one frame too early where a segment begins."""
    real = BoundedLogAdapter._on_message

    def on_message(self: BoundedLogAdapter, encoded: bytes, position: int) -> None:
        real(self, encoded, position)
        if self._archived and position % (64 << 10) < 512:
            planting.ran()
            real(self, encoded, position)

    planting.replace(BoundedLogAdapter, "_on_message", on_message)


PLANTS = (
    Plant("session-id-in-memory", 19, "session ids come from committed state", _give_session_ids_from_memory),
    Plant("links-dialled-once", 21, "a link that was lost is dialled again", _dial_once),
    Plant("timer-of-one-leader", 25, "a timer fires under any leader", _set_timers_on_the_leader_only),
    Plant("timer-fires-twice", 25, "a timer that has fired is removed", _keep_fired_timers),
    Plant("timer-by-own-clock", 25, "a timer fires when its event is delivered", _fire_by_the_own_clock),
    Plant("clamped-clock", 25, "cluster time goes on with monotonic time", _clamp_the_time_of_day),
    Plant("log-time-goes-back", 25, "log time never goes backwards across leaders", _let_log_time_go_backwards),
    Plant(
        "old-term-egress",
        26,
        "a client drops messages of old leaders",
        _accept_egress_of_any_term,
        "old-replies",
    ),
    Plant("window-keeps-all", 29, "the window is bounded", _keep_the_whole_log, scenario="bounded-memory"),
    Plant(
        "links-fill", 29, "the bytes that wait for a follower are bounded", _let_links_fill, scenario="bounded-memory"
    ),
    Plant(
        "ingress-never-pauses",
        29,
        "the bytes that wait for a commit are bounded",
        _never_pause_ingress,
        "bounded-memory",
    ),
    Plant("leads-in-the-replay", 31, "a member replays as a follower, even if it will lead", _lead_in_the_replay),
    Plant("replay-skips-closes", 31, "a replay delivers every kind of entry", _replay_no_closes),
    Plant(
        "replay-keeps-timers",
        31,
        "a replay leaves the state that live delivery leaves",
        _replay_timers_to_the_service_only,
    ),
    Plant(
        "replay-doubles-a-frame", 12, "a reader goes on where it stopped", _replay_the_first_frame_of_a_segment_twice
    ),
    Plant("replay-tells-todays-time", 35, "a replay passes the time of the log", _replay_with_todays_time),
)
