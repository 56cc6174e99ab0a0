"""One seed: a safety phase in which anything may go wrong, a liveness phase in which a healed majority must go on.

A run is a function of its seed and its options. It ends with an outcome: what was met, or which rule was broken and
when. Source: TigerBeetle's two modes; DESIGN §6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Final

from trimaran.client import ClientConfig
from trimaran.service_api import ClusteredService

from .backups.actor import BACKUP, BackupActor, has_backup
from .backups.cold_rules import COLD, COLD_URL, waiting_bytes
from .backups.restored import RestoredCluster
from .backups.scrubs import SCRUB, Scrubs, has_scrubs
from .clients.history import History
from .clients.linearizability import SearchVerdict, check_linearizability, check_log_order
from .clients.queries import QUERY_KIND, QueryMix, check_stale_reads, has_queries
from .clients.register_model import RegisterModel, explained
from .clients.request_workload import RequestWorkload
from .clients.service_workload import ClientApplication, MakeWorkload
from .clients.workload import Workload, WorkloadSettings
from .cluster import Member, Settings, SimulatedCluster
from .faults import Nemesis
from .messenger import Messenger, draw_message_of
from .referee import Referee
from .registers import Registers, Request
from .relay import RELAY, RELAY_CHANCE, Relay
from .rules import NO_CHECKS, RuleBroken, ServiceChecks, expect
from .trace import Trace
from .world.quiet import quiet_log

_MS: Final = 1_000_000
_CLIENT_COUNT: Final = 3
_REQUESTER_COUNT: Final = 1
_SAFETY_TIMEOUTS: Final = 20
"""How long the safety phase lasts, in heartbeat timeouts."""

_LIVENESS_TIMEOUTS: Final = 40
"""How long a healed majority may take to go on: elections, catch-ups and clients' back-offs, with room."""

_LIVENESS_FLOOR_NS: Final = 20_000 * _MS
_SEARCH_STEP_LIMIT: Final = 400_000


@dataclass(slots=True, frozen=True, kw_only=True)
class Options:
    """What may be changed about a run without changing the rest of it: this is what shrinks."""

    member_count: int | None = None
    """None: drawn per seed, mostly 3."""
    witness_count: int = 0
    """How many of the members are witnesses, where a majority without them would be left: of 3 one, of 5 two."""
    client_count: int = _CLIENT_COUNT
    requester_count: int = _REQUESTER_COUNT
    """Clients that ask with `request`, of the simulation's own service."""
    requester_session_count: int = 1
    """Sessions that each of them has at once; more than 1 share its connection."""
    without: frozenset[str] = frozenset()
    """Kinds of faults left out."""
    safety_timeouts: float = _SAFETY_TIMEOUTS
    operation_limit: int | None = None
    """The most operations a client begins."""

    def arguments(self) -> list[str]:
        """Return the command-line flags that mean the same."""
        flags = []
        if self.member_count is not None:
            flags += ["--members", str(self.member_count)]
        if self.witness_count:
            flags += ["--witnesses", str(self.witness_count)]
        if self.client_count != _CLIENT_COUNT:
            flags += ["--clients", str(self.client_count)]
        if self.requester_count != _REQUESTER_COUNT:
            flags += ["--requesters", str(self.requester_count)]
        if self.requester_session_count != 1:
            flags += ["--requester-sessions", str(self.requester_session_count)]
        if self.without:
            flags += ["--without", ",".join(sorted(self.without))]
        if self.safety_timeouts != _SAFETY_TIMEOUTS:
            flags += ["--length", f"{self.safety_timeouts:g}"]
        if self.operation_limit is not None:
            flags += ["--operations", str(self.operation_limit)]
        return flags


@dataclass(slots=True, frozen=True)
class Failure:
    """A rule that was broken."""

    rule: str
    message: str
    at_s: float


@dataclass(slots=True)
class RunOutcome:
    """What became of one seed."""

    seed: int
    options: Options
    member_count: int = 0
    failure: Failure | None = None
    simulated_ns: int = 0
    event_count: int = 0
    elections: int = 0
    committed_bytes: int = 0
    acknowledged_count: int = 0
    unknown_count: int = 0
    undecided_count: int = 0
    fired: dict[str, int] = field(default_factory=dict)
    trace_hash: str = ""


def run_seed(
    seed: int,
    options: Options | None = None,
    *,
    make_service: Callable[[], ClusteredService] = Registers,
    make_further: Sequence[Callable[[], ClusteredService]] = (),
    make_workload: MakeWorkload = Workload,
    checks: ServiceChecks = NO_CHECKS,
    write_line: Callable[[str], None] | None = None,
) -> RunOutcome:
    """Run one seed to its end and give what became of it. Never raises for what the cluster does wrong.

    Members run the service and the further ones, with ids in this order. With clients of another kind than `Workload`
    only what holds for every service is checked.
    """
    options = Options() if options is None else options
    with quiet_log(is_quiet=write_line is None):
        return _Run(seed, options, make_service, make_further, make_workload, checks, write_line).run()


def draw_settings(
    seed: int, member_count: int | None, witness_count: int = 0, *, without: frozenset[str] = frozenset()
) -> Settings:
    """Draw what the members of a seed's cluster are told: quick and slow timeouts, small segments, several sizes."""
    random = Random(f"{seed} settings")
    drawn_count = random.choice((3, 3, 3, 3, 3, 3, 5, 5, 1, 2, 4, 7))
    timeout_ms = random.choice((200, 500, 1_000, 2_000))
    retention = Random(f"{seed} retention")
    keep_all, cold = retention.random() < 0.4, Random(f"{seed} {COLD}")
    is_cold = cold.random() < 0.5 and not keep_all and COLD not in without
    schedule = Random(f"{seed} snapshot schedule")
    is_scheduled = schedule.random() < 0.3
    count = drawn_count if member_count is None else member_count
    witness_ids = Random(f"{seed} witnesses").sample(range(count), min(witness_count, (count - 1) // 2))
    segment_length = random.choice((64, 128)) << 10
    return Settings(
        member_count=count,
        witnesses=",".join(map(str, sorted(witness_ids))),
        leader_heartbeat_timeout_ms=timeout_ms,
        leader_heartbeat_interval_ms=timeout_ms // 10,
        election_timeout_ms=timeout_ms // 4,
        election_status_interval_ms=timeout_ms // 20,
        startup_canvass_timeout_ms=3 * timeout_ms,
        session_timeout_ms=5 * timeout_ms,
        segment_length_bytes=segment_length,
        file_sync_level=random.choice((1, 1, 2)),
        spare_sync_delay_us=Random(f"{seed} spare sync").choice((0, 0, 2_000, 20_000, 20_000)),
        is_copied=Random(f"{seed} copies").random() < 0.3,
        gathers_from=Random(f"{seed} gathering").choice((1, 1, 2, 4)),
        snapshot_interval_ms=schedule.choice((0, 2, 5)) * timeout_ms if is_scheduled else 0,
        snapshot_log_bytes=schedule.choice((5_000, 20_000, 80_000)) if is_scheduled else 0,
        keep_all=keep_all,
        keep_snapshots=retention.choice((1, 1, 2)),
        keep_log_bytes=retention.choice((0, 0, 40_000)),
        cold_storage_url=COLD_URL if is_cold else "",
        cold_cache_bytes=segment_length * cold.choice((1, 2, 16)),
    )


class _Run:
    """One run under way."""

    def __init__(
        self,
        seed: int,
        options: Options,
        make_service: Callable[[], ClusteredService],
        make_further: Sequence[Callable[[], ClusteredService]],
        make_workload: MakeWorkload,
        checks: ServiceChecks,
        write_line: Callable[[str], None] | None,
    ) -> None:
        self._seed, self._options = seed, options
        settings = draw_settings(seed, options.member_count, options.witness_count, without=options.without)
        self._unit_ns = settings.leader_heartbeat_timeout_ms * _MS
        drawn = (draw_message_of(make) for make in (make_service, *make_further))
        draw_message = next((draw for draw in drawn if draw is not None), None)
        make_relay = Relay if draw_message is None else partial(Messenger, draw_message)
        self._referee = Referee(
            make_service,
            make_relay=make_relay,
            make_further=make_further,
            checks=checks,
        )
        self._has_relay = (
            (make_service is Registers or draw_message is not None)
            and RELAY not in options.without
            and Random(f"{seed} {RELAY}").random() < RELAY_CHANCE
        )
        self._makers = [make_service, *make_further, *([make_relay] if self._has_relay else [])]
        """Of the services that each member runs."""
        self._cluster = SimulatedCluster(
            seed,
            settings,
            self._referee.make_service,
            make_others=partial(self._referee.make_others, has_relay=self._has_relay),
            clock_skew=_draw_skew,
        )
        self._trace = Trace(self._cluster, write_line)
        self._referee.watch(self._cluster, self._trace)
        self._referee.membership.on_changed = self._correct_clients
        self._history = History()
        self._make_workload = make_workload
        self._workloads: dict[str, ClientApplication] = {}
        self._live: dict[str, None] = {}
        """Clients whose process is there."""
        self._nemesis: Nemesis | None = None
        self._backup: BackupActor | None = None
        self._scrubs: Scrubs | None = None
        self._has_queries = make_workload is Workload and QUERY_KIND not in options.without and has_queries(seed)

    def run(self) -> RunOutcome:
        """Go through both phases."""
        outcome = RunOutcome(self._seed, self._options, member_count=len(self._cluster.members))
        try:
            self._safety_phase()
            self._liveness_phase()
            outcome.undecided_count = self._check_history()
        except RuleBroken as broken:
            outcome.failure = Failure(broken.rule, str(broken), self._cluster.now_ns / 1e9)
        finally:
            self._cluster.close()
        self._fill(outcome)
        return outcome

    def _fill(self, outcome: RunOutcome) -> None:
        outcome.simulated_ns = self._cluster.now_ns
        outcome.event_count = self._cluster.scheduler.event_count
        outcome.elections = self._referee.counts.elections
        outcome.committed_bytes = self._referee.counts.committed_bytes
        outcome.acknowledged_count = self._history.acknowledged_count
        outcome.unknown_count = self._history.unknown_count
        if self._nemesis is not None:
            outcome.fired = {**self._nemesis.fired, QUERY_KIND: self._history.query_count}
            outcome.fired[COLD] = self._referee.cold.segment_count
            outcome.fired[SCRUB] = 0 if self._scrubs is None else self._scrubs.asked_count
            outcome.fired[QUERY_KIND] += len(self._history.stale_reads) + self._history.service_query_count
        outcome.trace_hash = self._trace.hexdigest()

    # --- the phases

    def _safety_phase(self) -> None:
        cluster = self._cluster
        for member_id in cluster.members:
            cluster.start(member_id)
        for _ in range(self._options.client_count):
            self._start_client(self._make_workload)
        if self._make_workload is Workload:
            for _ in range(self._options.requester_count):
                self._start_client(RequestWorkload)
        self._nemesis = Nemesis(
            cluster, self._referee, self._trace, without=self._options.without, kill_client=self._kill_client
        )
        self._nemesis.fired[RELAY] = int(self._has_relay)
        if SCRUB not in self._options.without and has_scrubs(self._seed):
            self._scrubs = Scrubs(cluster, self._referee)
        if BACKUP not in self._options.without and has_backup(self._seed):
            self._backup = BackupActor(cluster, self._referee)
            self._nemesis.fired[BACKUP] = 1
        cluster.run_for(int(self._options.safety_timeouts * self._unit_ns))

    def _liveness_phase(self) -> None:
        cluster, nemesis = self._cluster, self._nemesis
        assert nemesis is not None
        core = nemesis.end()
        if self._backup is not None:
            self._backup.end()
        limit_ns = max(_LIVENESS_TIMEOUTS * self._unit_ns, _LIVENESS_FLOOR_NS)
        before = self._served_count()
        wanted = before + 5 * len(self._live) if self._options.operation_limit is None else before
        is_live = cluster.run_until(lambda: self._served_count() >= wanted, limit_ns=limit_ns)
        self._expect_live(is_live, "a healed majority serves its clients", core)
        for name in self._live:
            self._workloads[name].stop()
        is_done = cluster.run_until(lambda: self._is_at_rest(nemesis.core()), limit_ns=limit_ns)
        core = nemesis.core()
        self._expect_live(is_done, "a healed majority comes to rest, all equal", core)
        is_done = cluster.run_until(lambda: not nemesis.lingering(), limit_ns=limit_ns)
        self._expect_live(is_done, "a member that was removed stops when it is told", nemesis.lingering())
        nemesis.hidden_flip.mend()  # the members have come to rest before it looked again
        self._referee.expect_equal(core)
        self._referee.look_at_rest(core)
        is_done = cluster.run_until(lambda: not any(map(waiting_bytes, core)), limit_ns=5 * limit_ns)
        expect(is_done, "cold storage comes to have what is to go", waiting=[*map(waiting_bytes, core)])
        if self._backup is not None:
            is_done = cluster.run_until(self._backup.has_all, limit_ns=2 * limit_ns)
            expect(is_done, "a backup comes to have everything", backup=self._backup, cluster=cluster)
            self._check_restored(self._backup)
        expect(not cluster.unhandled, "no error is left unhandled", errors=cluster.unhandled[:3])

    def _check_restored(self, backup: BackupActor) -> None:
        """Make a cluster of what is in the store, up to some position, and have it come to what this one was there."""
        referee = self._referee
        delivered = [referee.delivered, *referee.further, *([referee.relayed] if self._has_relay else [])]
        services = [*zip(self._makers, delivered, strict=True)]
        RestoredCluster(self._cluster, backup.machine, services, backup.place).check()

    def _served_count(self) -> int:
        """Count answers; where clients cannot tell them, messages that were delivered."""
        if self._make_workload is Workload:
            return self._history.acknowledged_count - self._history.query_count
        by_kind = self._referee.counts.by_kind
        return by_kind.get("message", 0) + by_kind.get("request", 0)

    def _is_at_rest(self, core: list[Member]) -> bool:
        if self._live:
            return False
        leader = self._cluster.leader()
        if leader is None or leader.node is None:
            return False
        end = leader.node.module.ctx.log_buffer.append_position
        return all(
            member.node is not None
            and member.node.module.election is None
            and member.node.delivered_position == end
            and member.node.module.ctx.commit_position == end
            and not any(member.node.module.service_messages.trackers)
            for member in core
        )

    def _expect_live(self, is_live: bool, rule: str, core: list[Member]) -> None:
        expect(
            is_live,
            rule,
            core=[member.member_id for member in core],
            cluster=self._cluster,
            history=self._history,
            workloads=[repr(workload) for workload in self._workloads.values()],
            unhandled=self._cluster.unhandled[:3],
        )

    def _check_history(self) -> int:
        """Check what the clients saw, in two independent ways; give how many keys the search left undecided."""
        history, model = self._history, RegisterModel()
        operations = explained(history)
        expect(not history.faults, "clients see nothing impossible", faults=history.faults[:3])
        problems = check_log_order(operations, model)
        expect(not problems, "answers are those of the log's order, which agrees with time", problems=problems[:2])
        for operation in operations:
            if operation.is_acknowledged and not operation.is_query:
                expect(
                    operation.log_position in self._referee.delivered,
                    "what was acknowledged is in the log",
                    operation=str(operation),
                )
        if self._make_workload is Workload:
            self._check_requests()
        problems = check_stale_reads(operations, history.stale_reads, model)
        expect(not problems, "a read is no staler than it says", problems=problems[:2])
        report = check_linearizability(operations, model, step_limit=_SEARCH_STEP_LIMIT)
        expect(
            report.verdict is not SearchVerdict.NOT_LINEARIZABLE,
            "clients see one linearizable object",
            violations=report.violations,
        )
        return report.undecided_count

    def _check_requests(self) -> None:
        """Hold what services have run of requests against what clients were told."""
        ran: dict[tuple[int, int], int] = {}
        for position, (kind, *what) in sorted(self._referee.delivered.items()):
            if kind != "request":
                continue
            assert isinstance(what[1], bytes)
            request = Request.decode(what[1])
            key = request.client_id, request.sequence
            expect(key not in ran, "a request runs once", request=request, at=(ran.get(key), position))
            ran[key] = position
        for operation in self._history:
            if operation.sequence is None or operation.client_id is None:
                continue
            position_or_none = ran.get((operation.client_id, operation.sequence))
            if operation.is_rejected:
                expect(position_or_none is None, "what was rejected never runs", operation=str(operation))
            elif operation.is_acknowledged:
                expect(
                    position_or_none == operation.log_position,
                    "the reply to a request is the one of its only run",
                    operation=str(operation),
                    ran_at=position_or_none,
                )

    # --- clients

    def _start_client(self, make_workload: MakeWorkload) -> None:
        number = len(self._workloads)
        unit_s = self._unit_ns / 1e9
        random = Random(f"{self._seed} {'requester' if make_workload is RequestWorkload else 'client'} {number}")
        config = ClientConfig(
            endpoints=self._ingress_endpoints(),
            connect_timeout_s=2 * unit_s,
            dial_timeout_s=unit_s,
            attempt_timeout_s=unit_s / 2,
            new_leader_timeout_s=4 * unit_s,
            close_timeout_s=unit_s,
            keep_alive_interval_s=unit_s / 2,
            reconnect_max_s=unit_s / 2,
            network=self._cluster.network,
            random=random.random,
            make_secret=partial(Random(f"{self._seed} secrets of client {number}").randbytes, 32),
        )
        settings = WorkloadSettings(
            think_mean_s=unit_s * random.choice((0.03, 0.08, 0.3)),
            idle_max_s=unit_s,
            timer_delay_max_ms=int(2_000 * unit_s),
            operation_limit=self._options.operation_limit,
        )
        if make_workload is RequestWorkload:
            make_workload = partial(RequestWorkload, parallel_count=self._options.requester_session_count)
        elif self._has_queries:
            make_workload = partial(Workload, queries=self._make_query_mix(number, settings))
        workload = make_workload(
            config,
            number,
            history=self._history,
            random=random,
            now_ns=lambda: self._cluster.now_ns,
            settings=settings,
        )
        name = f"client-{number}"
        self._workloads[name] = workload
        self._live[name] = None
        self._cluster.add_client(name, lambda: self._drive(name, workload))

    def _correct_clients(self) -> None:
        for name in self._live:
            workload = self._workloads[name]
            workload.config = replace(workload.config, endpoints=self._ingress_endpoints())

    def _ingress_endpoints(self) -> tuple[str, ...]:
        """Where a new client finds the cluster: at its members, as they are now."""
        return tuple(member.ingress for member in self._referee.membership.current.members)

    def _make_query_mix(self, number: int, settings: WorkloadSettings) -> QueryMix:
        return QueryMix(
            self._history,
            Random(f"{self._seed} queries {number}"),
            lambda: self._cluster.now_ns,
            key_count=settings.key_count + settings.timer_key_count,
            unit_s=self._unit_ns / 1e9,
        )

    async def _drive(self, name: str, workload: ClientApplication) -> None:
        await workload.run()
        del self._live[name]

    def _kill_client(self, random: Random) -> bool:
        """A client application dies with what it has in flight, and another one begins."""
        if not self._live:
            return False
        name = random.choice([*self._live])
        del self._live[name]
        self._cluster.clients[name].kill()
        workload = self._workloads[name]
        workload.abandon()
        self._start_client(RequestWorkload if isinstance(workload, RequestWorkload) else self._make_workload)
        return True


def _draw_skew(random: Random) -> tuple[int, int]:
    """Draw a machine's drift in parts per million and how far its time of day is off, in nanoseconds."""
    drift_ppm = random.choice((0, 0, random.randint(-500, 500), random.randint(-20_000, 20_000)))
    return drift_ppm, random.choice((0, random.randint(-2_000, 2_000), random.randint(-60_000, 60_000))) * _MS
