"""One group of a simulated cluster, or the only one: its members, its referee, its faults, what its clients saw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from ....service_api import ClusteredService
from ....service_api.groups.group import Group
from .backups.actor import BACKUP, PRUNE, BackupActor, has_backup
from .backups.restored import RestoredCluster
from .backups.scrubs import SCRUB, Scrubs, has_scrubs
from .clients.history import History
from .clients.linearizability import (
    SearchVerdict,
    check_linearizability,
    check_log_order,
)
from .clients.register_model import RegisterModel, explained
from .clients.stale_reads import QUERY_KIND, check_stale_reads
from .cluster import Settings, SimulatedCluster, World
from .faults.hidden_flip import mend_flip
from .faults.nemesis import Nemesis
from .groups.drawing import keys_of, seed_of_group
from .rules.group_rules import KeyOf, RanAt
from .rules.referee import Referee
from .rules.store_rules import COLD, waiting_bytes
from .services.messenger import Messenger, draw_message_of
from .services.registers import Request
from .services.relay import RELAY, RELAY_CHANCE, Relay
from .trace import Trace
from .world.expect import ServiceChecks, expect

_MS: Final = 1_000_000
_KEY_COUNT: Final = 4
_TIMER_KEY_COUNT: Final = 1
_SESSIONS_OF_A_KEY: Final = 8
"""With many sessions there is another key for each so many of them."""
_SEARCH_STEP_LIMIT: Final = 400_000


@dataclass(slots=True, frozen=True)
class Services:
    """What the members run, and what is known about it."""

    make_first: Callable[[], ClusteredService]
    make_further: Sequence[Callable[[], ClusteredService]]
    checks: ServiceChecks
    key_of: KeyOf
    has_registers: bool
    """Whether the first is the simulation's own."""
    has_histories: bool
    """Whether its clients say what each answer means."""


class Part:
    """One group under way, of a run of one seed."""

    def __init__(
        self,
        seed: int,
        group: Group,
        settings: Settings,
        services: Services,
        world: World,
        *,
        without: frozenset[str],
        session_count: int,
        beside: Sequence[Part],
        write_line: Callable[[str], None] | None,
    ) -> None:
        """Make the members; `beside` are the groups before this one."""
        self.seed, self.group = seed_of_group(seed, group.index), group
        self._services, self._without, self._beside = services, without, beside
        drawn = (draw_message_of(make) for make in (services.make_first, *services.make_further))
        draw_message = next((draw for draw in drawn if draw is not None), None)
        make_relay = Relay if draw_message is None else partial(Messenger, draw_message)
        self.referee = Referee(
            services.make_first,
            make_relay=make_relay,
            make_further=services.make_further,
            checks=services.checks,
            key_of=services.key_of,
        )
        self._has_relay = (
            (services.has_registers or draw_message is not None)
            and RELAY not in without
            and Random(f"{self.seed} {RELAY}").random() < RELAY_CHANCE
        )
        self._makers = [services.make_first, *services.make_further, *([make_relay] if self._has_relay else [])]
        """Of the services that each member runs."""
        self.cluster = SimulatedCluster(
            self.seed,
            settings,
            self.referee.services.make_service,
            make_others=partial(self.referee.services.make_others, has_relay=self._has_relay),
            clock_skew=_draw_skew,
            world=world,
            group=group,
        )
        self.trace: Trace = Trace(self.cluster, write_line, beside=beside[0].trace if beside else None)
        self.referee.watch(self.cluster, self.trace)
        self.history = History()
        self._nemesis: Nemesis | None = None
        self._backup: BackupActor | None = None
        self._scrubs: Scrubs | None = None
        key_count = _KEY_COUNT + session_count // _SESSIONS_OF_A_KEY
        keys = keys_of(group, key_count + _TIMER_KEY_COUNT)
        self.keys, self.timer_keys = keys[:key_count], keys[key_count:]

    def __repr__(self) -> str:
        return f"<Part {self.group} {self.cluster!r}>"

    @property
    def nemesis(self) -> Nemesis:
        """What strikes it."""
        assert self._nemesis is not None
        return self._nemesis

    def start(self) -> None:
        """Start the members."""
        for member_id in self.cluster.members:
            self.cluster.start(member_id)

    def strike(self, kill_client: Callable[[Random], bool]) -> None:
        """Let faults strike from now on."""
        without = self._without
        self._nemesis = Nemesis(
            self.cluster,
            self.referee,
            self.trace,
            without=without,
            kill_client=kill_client,
            beside=[part.nemesis for part in self._beside],
        )
        self._nemesis.fired[RELAY] = int(self._has_relay)
        if SCRUB not in without and has_scrubs(self.seed):
            self._scrubs = Scrubs(self.cluster, self.referee)
        if BACKUP not in without and has_backup(self.seed):
            self._backup = BackupActor(self.cluster, self.referee, has_prunes=PRUNE not in without)
            self._nemesis.fired[BACKUP] = 1

    def fired(self) -> dict[str, int]:
        """Count what has struck, by kind."""
        history = self.history
        fired = {} if self._nemesis is None else dict(self._nemesis.fired)
        fired[COLD] = self.referee.stored.segment_count
        fired[PRUNE] = 0 if self._backup is None else self._backup.prune_count
        fired[SCRUB] = 0 if self._scrubs is None else self._scrubs.asked_count
        fired[QUERY_KIND] = history.query_count + len(history.stale_reads) + history.service_query_count
        return fired

    # --- the end

    def mend(self) -> None:
        """Stop striking; a majority is mended."""
        self.nemesis.end()
        if self._backup is not None:
            self._backup.end()

    def served_count(self) -> int:
        """Count answers; where clients cannot tell them, messages that were delivered."""
        if self._services.has_histories:
            return self.history.acknowledged_count - self.history.query_count
        by_kind = self.referee.counts.by_kind
        return by_kind.get("message", 0) + by_kind.get("request", 0)

    def is_at_rest(self) -> bool:
        """Whether all members that were not left for dead have the same, and nothing is under way."""
        leader = self.cluster.leader()
        if leader is None or leader.node is None:
            return False
        end = leader.node.module.ctx.log_buffer.append_position
        return all(
            member.node is not None
            and member.node.module.election is None
            and member.node.delivered_position == end
            and member.node.module.ctx.commit_position == end
            and not any(member.node.module.service_messages.trackers)
            for member in self.nemesis.core()
        )

    def expect_equal(self) -> None:
        """Check the members at rest."""
        core = self.nemesis.core()
        mend_flip(self.nemesis.target)  # the members have come to rest before it looked again
        self.referee.expect_equal(core)
        self.referee.services.look_at_rest(core)

    def expect_kept_elsewhere(self, limit_ns: int) -> None:
        """Wait until cold storage and the backup have everything, and make a cluster of the backup."""
        cluster, core = self.cluster, self.nemesis.core()
        is_done = cluster.run_until(lambda: not any(map(waiting_bytes, core)), limit_ns=5 * limit_ns)
        expect(is_done, "cold storage comes to have what is to go", waiting=[*map(waiting_bytes, core)])
        if self._backup is not None:
            is_done = cluster.run_until(self._backup.has_all, limit_ns=2 * limit_ns)
            expect(is_done, "a backup comes to have everything", backup=self._backup, cluster=cluster)
            self._check_restored(self._backup)
        expect(not cluster.unhandled, "no error is left unhandled", errors=cluster.unhandled[:3])

    def _check_restored(self, backup: BackupActor) -> None:
        """Make a cluster of what is in the store, up to some position, and have it come to what this one was there."""
        rules = self.referee.services
        delivered = [rules.delivered, *rules.further, *([rules.relayed] if self._has_relay else [])]
        services = [*zip(self._makers, delivered, strict=True)]
        found = backup.found
        assert found is not None  # it has everything
        RestoredCluster(self.cluster, backup.machine, services, found[0]).check()

    # --- what clients saw

    def check_history(self) -> int:
        """Check what the clients saw, in two independent ways; give how many keys the search left undecided."""
        history, model = self.history, RegisterModel()
        operations = explained(history)
        expect(not history.faults, "clients see nothing impossible", faults=history.faults[:3])
        problems = check_log_order(operations, model)
        expect(not problems, "answers are those of the log's order, which agrees with time", problems=problems[:2])
        for operation in operations:
            if operation.is_acknowledged and not operation.is_query:
                expect(
                    operation.log_position in self.referee.services.delivered,
                    "what was acknowledged is in the log",
                    operation=str(operation),
                )
        if self._services.has_histories:
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
        ran = self.find_requests()
        for operation in self.history:
            if operation.sequence is None or operation.client_id is None:
                continue
            places = ran.get((operation.client_id, operation.sequence))
            position = None if places is None else places[0].log_position
            if operation.is_rejected:
                expect(position is None, "what was rejected never runs", operation=str(operation))
            elif operation.is_acknowledged:
                expect(
                    position == operation.log_position,
                    "the reply to a request is the one of its only run",
                    operation=str(operation),
                    ran_at=position,
                )

    def find_requests(self) -> dict[tuple[int, int], list[RanAt]]:
        """Return where each request ran, by client and sequence; each in one place."""
        ran: dict[tuple[int, int], list[RanAt]] = {}
        for position, (kind, *what) in sorted(self.referee.services.delivered.items()):
            if kind != "request":
                continue
            assert isinstance(what[1], bytes)
            request = Request.decode(what[1])
            key = request.client_id, request.sequence
            expect(key not in ran, "a request runs once", request=request, at=(ran.get(key), position))
            ran[key] = [RanAt(self.group.index, position)]
        return ran


def _draw_skew(random: Random) -> tuple[int, int]:
    """Draw a machine's drift in parts per million and how far its time of day is off, in nanoseconds."""
    drift_ppm = random.choice((0, 0, random.randint(-500, 500), random.randint(-20_000, 20_000)))
    return drift_ppm, random.choice((0, random.randint(-2_000, 2_000), random.randint(-60_000, 60_000))) * _MS
