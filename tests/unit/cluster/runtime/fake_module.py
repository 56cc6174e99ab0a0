"""A consensus module that follows a script, and the parts of a node that perform its effects, as a journal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from trimaran.cluster.core import effects as fx
from trimaran.cluster.core.log.log_buffer import LogBuffer
from trimaran.cluster.core.vocabulary.cluster_clock import ClusterClock
from trimaran.service_api import Role


@dataclass
class FakeContext:
    """The part of `ConsensusContext` that the agent reads."""

    log_buffer: LogBuffer = field(default_factory=lambda: LogBuffer(position=0, retained_bytes=1 << 20))
    commit_position: int = 0
    append_position: int = 0
    cluster_clock: ClusterClock = field(default_factory=ClusterClock)
    timestamp: int = 0
    now_ns: int = 0
    is_comparing: bool = False
    effects: list[fx.Effect] = field(default_factory=list)
    deliveries: list[tuple[int, int]] = field(default_factory=list)
    """When each began and ended."""

    def note_delivery(self, begin_ns: int, end_ns: int) -> None:
        self.deliveries.append((begin_ns, end_ns))


@dataclass
class FakeActions:
    """The part of `ActionControl` that the agent reads."""

    is_holding: bool = False


@dataclass
class FakePrincipals:
    """The part of `SessionManager` that the agent reads."""

    principal: bytes | None = None
    """Of the session that a query names, whichever that is."""

    def principal_on(self, connection_id: int, session_id: int) -> bytes | None:
        return self.principal


class FakeModule:
    """Stands in for `ConsensusModule`: an event is answered with the effects that the test wrote for it."""

    def __init__(self) -> None:
        self.ctx = FakeContext()
        self.actions = FakeActions()
        self.sessions = FakePrincipals()
        self.leader: object | None = None
        self.election: object | None = None
        self.script: dict[object, list[fx.Effect]] = {}
        self.steps: list[object] = []
        self.poll_count = 0
        self.deadline_ns = 1 << 62
        self.is_deadline_stale = True
        self.asked_count = 0
        """How often the next deadline was asked for."""

    def start(self, *, now_ns: int, timestamp: int) -> None:
        self.step("start", now_ns=now_ns, timestamp=timestamp)

    def step(self, event: object, *, now_ns: int, timestamp: int) -> None:
        self.steps.append(event)
        key = event if isinstance(event, str) else type(event)
        effects = self.script.get(key, [])
        if effects and isinstance(effects[0], BaseException):
            raise effects[0]
        self.ctx.effects += effects

    def poll(self, *, now_ns: int, timestamp: int) -> None:
        self.poll_count += 1
        self.deadline_ns = 1 << 62

    def next_deadline_ns(self) -> int:
        self.is_deadline_stale = False
        self.asked_count += 1
        return self.deadline_ns

    def take_effects(self) -> list[fx.Effect]:
        effects, self.ctx.effects = self.ctx.effects, []
        return effects


class FakeParts:
    """Links, log, ingress, adapter and service of a node in one: everything that is asked of them is journalled.

    What settles waits for one `resolve` of the test each.
    """

    def __init__(self, module: FakeModule) -> None:
        self.module = module
        self.journal: list[object] = []
        self._disk: asyncio.Queue[Exception | None] = asyncio.Queue()
        self.connections: dict[int, object] = {}
        self.position = 0
        self.limit_position = 0
        self.is_paused = True
        self.newest_timestamp = 0
        self.time = 0
        self.began_ns = self.ended_ns = 0
        self.has_pending_digests = False
        self.stages = None
        self.on_mended = self.journal.append
        self.on_field_differed = self.journal.append
        self.on_deliver: Callable[[], object] = lambda: None
        self.on_join: Callable[[], object] = lambda: None

    @property
    def reached_position(self) -> int:
        return self.position

    def resolve(self, error: Exception | None = None) -> None:
        """Let one thing that waits for the disk go on, or fail."""
        self._disk.put_nowait(error)

    async def _wait_for_disk(self) -> None:
        error = await self._disk.get()
        if error is not None:
            raise error

    # queries

    def on_query(self, connection_id: int, request: object) -> None:
        self.journal.append(("query", connection_id))

    # links

    def send(self, member_id: int, message: object) -> None:
        self.journal.append(("send", member_id, message))

    # log

    async def persist_candidate_term(self, effect: fx.PersistCandidateTerm) -> None:
        await self._wait_for_disk()
        self.journal.append(("persisted", effect.candidate_term_id))

    async def persist_recording_log(self) -> None:
        await self._wait_for_disk()
        self.journal.append("recording log")

    async def stop(self) -> int:
        await self._wait_for_disk()
        self.journal.append("log stopped")
        return 640

    async def truncate(self, position: int) -> None:
        await self._wait_for_disk()
        self.journal.append(("log truncated", position))

    def flush(self) -> None:
        self.journal.append(("flush", len(self.module.ctx.log_buffer.take_pending())))

    def sync(self) -> None:
        self.journal.append("sync")

    def join_log(self, effect: fx.JoinLiveLog) -> None:
        self.journal.append("join")
        self.on_join()

    def open_publication(self, effect: object) -> None:
        self.journal.append(effect)

    start_replication = accept_catchup = start_catchup_replay = fetch = open_publication

    def close_catchup(self) -> None:
        self.journal.append("close catchup")

    def stop_catchup_replay(self, member_id: int) -> None:
        self.journal.append(("stop catchup", member_id))

    # ingress

    async def install(self, effect: fx.InstallSnapshot) -> None:
        self.journal.append(effect)

    def unbind_all(self) -> None:
        self.journal.append("unbind all")

    def resume(self) -> None:
        self.journal.append("resume")

    # adapter

    def advance_limit(self, position: int) -> None:
        self.limit_position = position

    def poll(self, limit_bytes: int) -> bool:
        self.position = min(self.limit_position, self.position + limit_bytes)
        self.on_deliver()
        return self.position < self.limit_position

    # queries

    def serve(self) -> None:
        """Nothing waits."""

    def on_confirmed(self, effect: fx.ReadConfirmed) -> None:
        self.journal.append(effect)

    def on_election_started(self, effect: fx.ElectionStarted) -> None:
        self.journal.append(effect)

    # service

    def on_term_begun(self, role: Role, append_position: int) -> None:
        self.journal.append(role)

    def on_term_ended(self) -> None:
        self.journal.append("term ended")

    def disconnect_egress(self, session_id: int | None) -> None:
        self.journal.append(("disconnect", session_id))
