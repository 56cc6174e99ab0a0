"""One seed: a safety phase in which anything may go wrong, a liveness phase in which a healed majority must go on.

A run is a function of its seed and its options. It ends with an outcome: what was met, or which rule was broken and
when. Source: TigerBeetle's two modes; DESIGN §6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from random import Random
from typing import Final

from ....client import ClientConfig
from ....service_api import ClusteredService
from ....service_api.groups.group import Group, GroupTable
from ....service_api.groups.ports import group_endpoint
from .clients.application import Application, Lane, MakeWork, Pace, Work
from .clients.register_work import RegisterWork
from .clients.stale_reads import QUERY_KIND, has_queries
from .cluster import Settings, World
from .groups.drawing import GROUPS, SESSIONS, draw_group_count, draw_session_count
from .groups.stranger import StrangerWork, key_of_register
from .part import Part, Services
from .rules.group_rules import KeyOf, RanAt, expect_ran_once
from .rules.store_rules import COLD, STORE_URL
from .services.registers import Registers
from .world.expect import NO_CHECKS, RuleBroken, ServiceChecks, expect
from .world.quiet import quiet_log

_MS: Final = 1_000_000
_CLIENT_COUNT: Final = 3
_REQUESTER_COUNT: Final = 1
_SAFETY_TIMEOUTS: Final = 20
"""How long the safety phase lasts, in heartbeat timeouts."""

_LIVENESS_TIMEOUTS: Final = 40
"""How long a healed majority may take to go on: elections, catch-ups and clients' back-offs, with room."""

_LIVENESS_FLOOR_NS: Final = 20_000 * _MS
_WANTED_COUNT: Final = 5
"""How many more answers a client, or a group, has when it is served again."""
_CROWD_PAUSE: Final = 0.25
"""Between two requests of one of many clients, times how many there are: with more of them each asks less often."""


class _ClientKind(Enum):
    """What a client application of a run does; its value is part of the name of its generator."""

    PLAIN = "client"
    REQUESTER = "requester"
    CROWD = "crowd"
    """Many clients with one request in flight each, in one process."""
    STRANGER = "stranger"


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
    session_count: int | None = None
    """Further clients with a session, a connection and one request in flight each, of the simulation's own service.
    None: drawn per seed, mostly 0."""
    group_count: int | None = None
    """How many groups the cluster has. None: of the simulation's own service drawn per seed, mostly 1."""
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
        if self.session_count is not None:
            flags += ["--sessions", str(self.session_count)]
        if self.group_count is not None:
            flags += ["--groups", str(self.group_count)]
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
    group_count: int = 1
    session_count: int = 0
    """How many of its clients are those of `Options.session_count`."""
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
    make_work: MakeWork | None = None,
    checks: ServiceChecks = NO_CHECKS,
    key_of: KeyOf = key_of_register,
    write_line: Callable[[str], None] | None = None,
) -> RunOutcome:
    """Run one seed to its end and give what became of it. Never raises for what the cluster does wrong.

    Members run the service and the further ones, with ids in this order. With clients that do other work than the
    simulation's own, only what holds for every service is checked. Where the cluster has groups, `key_of` takes a
    message of a client to the key that it is about.
    """
    options = Options() if options is None else options
    has_registers, has_histories = make_service is Registers, make_work is None
    services = Services(make_service, make_further, checks, key_of, has_registers, has_histories)
    with quiet_log(is_quiet=write_line is None):
        return _Run(seed, options, services, make_work, write_line).run()


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
        cold_storage_url=STORE_URL if is_cold else "",
        cold_cache_bytes=segment_length * cold.choice((1, 2, 16)),
    )


class _Run:
    """One run under way: its groups, which are one part or several, and the clients, which use all of them."""

    def __init__(
        self,
        seed: int,
        options: Options,
        services: Services,
        make_work: MakeWork | None,
        write_line: Callable[[str], None] | None,
    ) -> None:
        self._seed, self._options, self._make_work = seed, options, make_work
        settings = draw_settings(seed, options.member_count, options.witness_count, without=options.without)
        self._unit_ns = settings.leader_heartbeat_timeout_ns
        self._has_histories = services.has_histories
        group_count, self._session_count = _draw_sizes(seed, options, settings, is_drawn=self._has_histories)
        self._world, self._parts = World(seed), list[Part]()
        for index in range(group_count):
            part = Part(
                seed,
                Group(index, group_count),
                settings,
                services,
                self._world,
                without=options.without,
                session_count=self._session_count,
                beside=(*self._parts,),
                write_line=write_line,
            )
            part.referee.membership.on_changed = self._correct_clients
            self._parts.append(part)
        self._applications: dict[str, Application] = {}
        self._live: dict[str, None] = {}
        """Clients whose process is there."""
        self._kinds: dict[str, _ClientKind] = {}

    def run(self) -> RunOutcome:
        """Go through both phases."""
        outcome = RunOutcome(self._seed, self._options, member_count=len(self._parts[0].cluster.members))
        outcome.group_count, outcome.session_count = len(self._parts), self._session_count
        try:
            self._safety_phase()
            self._liveness_phase()
            outcome.undecided_count = sum(part.check_history() for part in self._parts)
            self._check_groups()
        except RuleBroken as broken:
            outcome.failure = Failure(broken.rule, str(broken), self._parts[0].cluster.now_ns / 1e9)
        finally:
            for part in self._parts:
                part.cluster.close()
        self._fill(outcome)
        return outcome

    def _fill(self, outcome: RunOutcome) -> None:
        parts = self._parts
        outcome.simulated_ns = parts[0].cluster.now_ns
        outcome.event_count = self._world.scheduler.event_count
        outcome.elections = sum(part.referee.counts.elections for part in parts)
        outcome.committed_bytes = sum(part.referee.counts.committed_bytes for part in parts)
        outcome.acknowledged_count = sum(part.history.acknowledged_count for part in parts)
        outcome.unknown_count = sum(part.history.unknown_count for part in parts)
        for part in parts:
            for name, count in part.fired().items():
                outcome.fired[name] = outcome.fired.get(name, 0) + count
        outcome.fired[GROUPS] = len(parts) if len(parts) > 1 else 0
        outcome.fired[SESSIONS] = self._session_count
        outcome.trace_hash = parts[0].trace.hexdigest()

    # --- the phases

    def _safety_phase(self) -> None:
        for part in self._parts:
            part.start()
        for _ in range(self._options.client_count):
            self._start_client(_ClientKind.PLAIN)
        if self._has_histories:
            for _ in range(self._options.requester_count):
                self._start_client(_ClientKind.REQUESTER)
            if self._session_count:
                self._start_client(_ClientKind.CROWD)
            if len(self._parts) > 1:
                self._start_client(_ClientKind.STRANGER)
        for part in self._parts:
            part.strike(self._kill_client)
        self._parts[0].cluster.run_for(int(self._options.safety_timeouts * self._unit_ns))

    def _liveness_phase(self) -> None:
        run_until, parts = self._parts[0].cluster.run_until, self._parts
        for part in parts:
            part.mend()
        limit_ns = max(_LIVENESS_TIMEOUTS * self._unit_ns, _LIVENESS_FLOOR_NS)
        before = [part.served_count() for part in parts]
        is_live = run_until(lambda: self._have_served(before), limit_ns=limit_ns)
        self._expect_live(is_live, "a healed majority serves its clients")
        for name in self._live:
            self._applications[name].stop()
        is_done = run_until(
            lambda: not self._live and all(part.is_at_rest() for part in parts),
            limit_ns=limit_ns,
        )
        self._expect_live(is_done, "a healed majority comes to rest, all equal")
        is_done = run_until(lambda: not any(part.nemesis.lingering() for part in parts), limit_ns=limit_ns)
        self._expect_live(is_done, "a member that was removed stops when it is told")
        for part in parts:
            part.expect_equal()
        for part in parts:
            part.expect_kept_elsewhere(limit_ns)

    def _have_served(self, before: Sequence[int]) -> bool:
        """Whether all groups have given some more answers; of a user's service nobody knows which of them get any."""
        served = [part.served_count() - count for part, count in zip(self._parts, before, strict=True)]
        is_each = self._has_histories and len(self._parts) > 1
        wanted = _WANTED_COUNT if is_each else _WANTED_COUNT * len(self._live)
        return self._options.operation_limit is not None or (min(served) if is_each else sum(served)) >= wanted

    def _expect_live(self, is_live: bool, rule: str) -> None:
        expect(
            is_live,
            rule,
            core=[[member.member_id for member in part.nemesis.core()] for part in self._parts],
            clusters=[part.cluster for part in self._parts],
            histories=[part.history for part in self._parts],
            applications=[repr(application) for application in self._applications.values()],
            unhandled=[error for part in self._parts for error in part.cluster.unhandled][:3],
        )

    def _check_groups(self) -> None:
        """Check what no group can know alone."""
        if not self._has_histories or len(self._parts) == 1:
            return
        ran: dict[tuple[int, int], list[RanAt]] = {}
        for part in self._parts:
            for key, places in part.find_requests().items():
                ran.setdefault(key, []).extend(places)
        expect_ran_once(ran, [part.history for part in self._parts], GroupTable(len(self._parts)))

    # --- clients

    def _start_client(self, kind: _ClientKind) -> None:
        number = len(self._applications)
        unit_s = self._unit_ns / 1e9
        random = Random(f"{self._seed} {kind.value} {number}")
        config = ClientConfig(
            endpoints=self._ingress_endpoints(),
            connect_timeout_s=2 * unit_s,
            dial_timeout_s=unit_s,
            attempt_timeout_s=unit_s / 2,
            new_leader_timeout_s=4 * unit_s,
            close_timeout_s=unit_s,
            keep_alive_interval_s=unit_s / 2,
            reconnect_max_s=unit_s / 2,
            network=self._world.network,
            random=random.random,
            make_secret=partial(Random(f"{self._seed} secrets of client {number}").randbytes, 32),
        )
        pace = Pace(think_mean_s=unit_s * random.choice((0.03, 0.08, 0.3)), idle_max_s=unit_s)
        name = f"client-{number}"
        application = self._applications[name] = Application(
            config,
            number,
            self._make_client_work(kind, number, pace, random),
            random=random,
            group_count=len(self._parts) if self._uses_all_groups(kind) else 1,
            parallel_count=self._parallel_count(kind),
            shares_connection=kind is _ClientKind.REQUESTER,
            operation_limit=self._options.operation_limit,
        )
        self._kinds[name] = kind
        self._live[name] = None
        self._part_of(number).cluster.add_client(name, lambda: self._drive(name, application))

    def _uses_all_groups(self, kind: _ClientKind) -> bool:
        is_user = kind is _ClientKind.PLAIN and self._make_work is not None
        return is_user or kind in (_ClientKind.REQUESTER, _ClientKind.CROWD)

    def _parallel_count(self, kind: _ClientKind) -> int:
        """Return how many sessions a client has at once."""
        requester_count = self._options.requester_session_count if kind is _ClientKind.REQUESTER else 1
        return self._session_count if kind is _ClientKind.CROWD else requester_count

    def _make_client_work(self, kind: _ClientKind, number: int, pace: Pace, random: Random) -> Work:
        parts, unit_s = self._parts, self._unit_ns / 1e9
        if kind is _ClientKind.STRANGER:
            keys = {each.group.index: each.keys for each in parts}
            return StrangerWork(number, len(parts), keys, random=random, unit_s=unit_s)
        if kind is not _ClientKind.PLAIN:
            if kind is _ClientKind.CROWD:
                think_mean_s = pace.think_mean_s * self._session_count * _CROWD_PAUSE
                pace = replace(pace, in_flight_limit=1, think_mean_s=think_mean_s)
            work = self._make_register_work(number, parts)
            work.lanes = [Lane(work.requests(), pace, random)]
            return work
        part = self._part_of(number)
        if self._make_work is not None:
            return self._make_work(number, history=part.history, pace=pace, random=random)
        work = self._make_register_work(number, [part])
        work.lanes = [Lane(work.messages(), pace, random)]
        if QUERY_KIND not in self._options.without and has_queries(self._seed):
            pace = Pace(in_flight_limit=1, think_mean_s=0.1 * unit_s, idle_max_s=unit_s, close_rate=0.0)
            work.lanes.append(Lane(work.queries(), pace, Random(f"{self._seed} queries {number}")))
        return work

    def _make_register_work(self, number: int, parts: Sequence[Part]) -> RegisterWork:
        """Make the work of a client that uses these groups, all or one of them."""
        is_of_group = len(parts) < len(self._parts)
        return RegisterWork(
            number,
            histories=[each.history for each in parts],
            now_ns=lambda: self._world.scheduler.now_ns,
            keys=[key for each in parts for key in each.keys],
            timer_keys=[key for each in parts for key in each.timer_keys],
            unit_s=self._unit_ns / 1e9,
            group=parts[0].group if is_of_group else None,
        )

    def _part_of(self, number: int) -> Part:
        """Return the group of a client that uses one only."""
        return self._parts[number % len(self._parts)]

    def _correct_clients(self) -> None:
        for name in self._live:
            application = self._applications[name]
            application.config = replace(application.config, endpoints=self._ingress_endpoints())

    def _ingress_endpoints(self) -> tuple[str, ...]:
        """Where a new client finds the cluster: at its members, as they are now.

        In a cluster with groups these are the members of every group, at the ports of group 0: an operator changes them
        in one group after the other, and clients are told of all.
        """
        found = {
            group_endpoint(member.ingress, -part.group.index): None
            for part in self._parts
            for member in part.referee.membership.current.members
        }
        return (*found,)

    async def _drive(self, name: str, application: Application) -> None:
        await application.run()
        del self._live[name]

    def _kill_client(self, random: Random) -> bool:
        """A client application dies with what it has in flight, and another one begins."""
        if not self._live:
            return False
        name = random.choice([*self._live])
        del self._live[name]
        self._world.clients[name].kill()
        self._applications[name].abandon()
        self._start_client(self._kinds[name])
        return True


def _draw_sizes(seed: int, options: Options, settings: Settings, *, is_drawn: bool) -> tuple[int, int]:
    """Return how many groups and further sessions a run has; `is_drawn`: where the options do not say, drawn ones."""
    group_count, session_count = options.group_count, options.session_count
    if group_count is None:
        may_have = is_drawn and GROUPS not in options.without
        group_count = draw_group_count(seed, settings.member_count) if may_have else 1
    if session_count is None:
        may_have = is_drawn and SESSIONS not in options.without and group_count == 1
        session_count = draw_session_count(seed, settings.member_count) if may_have else 0
    return group_count, session_count
