"""A cluster for a test: real members and clients in one process, on virtual time.

The problem: a test wants to write `await client.request(...)` and `cluster.kill_leader()`, and must neither wait for
real time nor depend on it. The idea: the test's coroutine is one more process of the simulator, on a machine of its
own; its event loop is driven by the same queue as those of the members, so time passes only while the test awaits.
What takes no time is a plain function, what takes time is a coroutine. `run` drives a coroutine from a plain function,
which is the synchronous style, and what the pytest plugin does with a test that is a coroutine. `run_async` drives it
from a coroutine of another loop, such as a notebook's.

Rejected: a client that a coroutine of another loop may await itself. That loop lives on real time, and takes no future
of a simulated one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, Final, Self, TypeVar

from ...client import ClientConfig, ClusterClient, SessionPool, SharedConnection
from ...service_api import ClusteredService, ConfigurationError
from ...service_api.access.identity import Caller, CallerRole, Proof
from ...service_api.types import MemberId
from ..core.events import ActionRequested
from ..core.vocabulary.control_toggle import ControlToggle
from ..service.digests import digest_of
from ..service.failure_log import FailureLog
from ..service.kept_snapshot import state_of
from ..service.state_difference import describe_difference
from ..subscriptions.subscription import Subscription, subscribe
from .check import StrictFinding, StrictGuard
from .driving import Drive
from .harness import Code, MakeService, makers_of, new_service
from .simulation.cluster import DIRECTORY, Member, Settings, SimulatedCluster
from .simulation.kept_log import complete_snapshot_positions
from .simulation.member_disks import MemberDisks
from .simulation.world.quiet import quiet_log
from .waiting import StillWaitingError

_PARTS: Final = "archive", "cluster"
"""What a member's directory consists of."""
CLIENT: Final = "client"
"""What `partition` calls the machine of the test and of its clients."""
MEMBER_LIMIT: Final = 9
_SLICE_EVENTS: Final = 1_000
"""Events of the simulated world for which `run_async` holds the caller's loop at once: about 5 ms."""
_WAIT_LIMIT_S: Final = 30.0
_POLL_S: Final = 0.002
_MTU_LENGTH_BYTES: Final = 1_408
_NS: Final = 1_000_000_000

TERM_LENGTH_BYTES: Final = 1 << 20
"""An eighth of it is the largest message. Eight times as much, as on a real node, would take a test 60 ms longer."""

T = TypeVar("T")


class MemoryCluster:
    """Members of a cluster that run a service, in memory and on virtual time.

        async def test_total_survives_a_leader(cluster):
            client = await cluster.connect()
            await client.request(b"5")
            cluster.kill_leader()
            assert await client.request(b"2") == b"7"

    What takes no time is a plain method, such as `kill`; what takes time is a coroutine, such as `restart`. In a plain
    function use `cluster.run(client.request(b"5"))`. Members are numbered from 0.

    Args:
        service: The class, or a function without arguments that makes the service; a list where a node runs several.
        members: How many members there are, 1 to 9.
        seed: What everything random is drawn from. The same seed gives the same run, event by event.
        term_length_bytes: A power of two from 64 KiB. The largest message is an eighth of it: 128 KiB by default.
        strict: Whether the test fails where a callback reads a clock, random numbers, the environment or a file, or
            uses the network, processes or threads; see docs/determinism.md.
        double_execution: Whether each member runs two instances of the service, and stops where they differ.
        logs: Whether members and clients log, as structlog is configured; by default nothing is logged.

    Raises:
        ConfigurationError: a value that cannot work.
    """

    def __init__(
        self,
        service: Code,
        *,
        members: int = 3,
        seed: int = 0,
        term_length_bytes: int = TERM_LENGTH_BYTES,
        strict: bool = True,
        double_execution: bool = False,
        logs: bool = False,
    ) -> None:
        code = makers_of(service)
        if type(members) is not int or not 1 <= members <= MEMBER_LIMIT:
            raise ConfigurationError(f"members={members!r} expected a whole number from 1 to {MEMBER_LIMIT}")
        self.service_errors: list[tuple[int, int, BaseException]] = []
        """What callbacks raised and members answered: member id, log position, exception, in order."""
        self.stopped: dict[int, BaseException | None] = {}
        """Members that ended by themselves and were not asked to, with why. Empty it if a test expects that."""
        self.strict_findings: list[StrictFinding] = []
        """Places of the service that left the log, each once, in order. Empty it if a test expects them."""
        self._is_strict, self._is_quiet = strict, not logs
        self._code: dict[MemberId, Sequence[MakeService]] = {MemberId(number): code for number in range(members)}
        self._services: dict[MemberId, tuple[ClusteredService, ...]] = {}
        self._stopping: set[int] = set()
        self._secrets, self._client_random = Random(f"{seed} secrets"), Random(f"{seed} clients")
        self._keep = Random(f"{seed} power")
        self._cluster = SimulatedCluster(
            seed,
            Settings(
                member_count=members,
                term_length_bytes=term_length_bytes,
                segment_length_bytes=term_length_bytes,
                mtu_length_bytes=_MTU_LENGTH_BYTES,
                ingress_window_bytes=max(4 * _MTU_LENGTH_BYTES, term_length_bytes // 2),
                double_execution=double_execution,
            ),
            self._make_service,
            make_others=lambda member: self._services[member.member_id][1:],
        )
        self._cluster.on_node, self._cluster.on_member_exit = self._on_node, self._on_exit
        self._disks = MemberDisks()
        self._cuts: list[tuple[str, str]] = []
        self._drive: Drive[Any] | None = None  # Any: whatever it returns
        self._cluster.network.identify(CLIENT, Caller(CallerRole.OPERATOR, CLIENT, Proof.CERTIFICATE))
        self._machine = self._cluster.add_client(CLIENT, _idle)
        for member_id in self._code:
            self._cluster.start(member_id)
        self._is_closed = False

    def __repr__(self) -> str:
        members = ", ".join(self._describe(member) for member in self._cluster.members.values())
        return f"<MemoryCluster {self.time_s:.3f}s {members}>"

    def _describe(self, member: Member) -> str:
        if not member.is_running:
            return f"{member.member_id}=down"
        if member.node is None:
            return f"{member.member_id}=starting"
        role = "leader" if member.is_leader else "follower" if member.node.module.election is None else "election"
        return f"{member.member_id}={role} position={member.node.delivered_position}"

    # --- running

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Drive a coroutine to its end and return its result; members and their clients go on meanwhile.

        Where an event loop runs in this thread already, as in a notebook, that loop stands still until then.

        Raises:
            StillWaitingError: it waits for something that does not happen: no progress for 60 virtual seconds.
            ConfigurationError: the test that is driven calls this, or the cluster is closed.
        """
        __tracebackhide__ = True  # pytest shows where the test failed, not who drives it
        with self._driving(coroutine) as drive:
            drive.step()
        return drive.result()

    async def run_async(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Do as `run`, for callers in another event loop, which goes on meanwhile: a notebook, an async fixture.

        Raises:
            StillWaitingError: it waits for something that does not happen: no progress for 60 virtual seconds.
            ConfigurationError: the test that is driven calls this, another one is driven, or the cluster is closed.
        """
        __tracebackhide__ = True
        with self._driving(coroutine) as drive:
            while not drive.step(self._after(_SLICE_EVENTS)):  # noqa: ASYNC110  # it is this loop that drives
                await asyncio.sleep(0)
        return drive.result()

    def _after(self, event_count: int) -> Callable[[], bool]:
        """Make a function that says whether so many events have happened."""
        scheduler = self._cluster.scheduler
        end = scheduler.event_count + event_count
        return lambda: scheduler.event_count >= end

    @contextlib.contextmanager
    def _driving(self, coroutine: Coroutine[Any, Any, T]) -> Iterator[Drive[T]]:
        reason = self._why_not_run()
        if reason is not None:
            coroutine.close()
            raise ConfigurationError(reason)
        drive = self._drive = Drive(
            self._cluster, self._machine, coroutine, self._describe_trouble, is_quiet=self._is_quiet
        )
        try:
            yield drive
        except asyncio.CancelledError:
            drive.cancel()
            raise
        except BaseException:
            coroutine.close()
            raise
        finally:
            self._drive = None

    def _why_not_run(self) -> str | None:
        if self._is_closed:
            return "the cluster is closed: its test is over"
        if self._drive is None:
            return None
        if asyncio._get_running_loop() is self._machine.loop:
            return "cluster.run() inside a test that is a coroutine: write `await` instead"
        return f"the cluster is driven already: {self._drive!r} expected to end before the next coroutine begins"

    def _describe_trouble(self) -> list[str]:
        lines = [f"  cluster: {self!r}"]
        lines += [f"  member {number} stopped: {error!r}" for number, error in self.stopped.items()]
        lines += [f"  service raised on member {one[0]}: {one[2]!r}" for one in self.service_errors[:3]]
        return lines

    def _check_loop(self) -> None:
        if asyncio._get_running_loop() is not self._machine.loop:
            raise ConfigurationError(
                "the cluster lives on virtual time, and this runs in another event loop, such as that of a notebook or "
                "of an async fixture: await cluster.run_async(test()), where test is a coroutine function with all "
                "that is awaited; cluster.run(test()) without await"
            )

    @property
    def time_s(self) -> float:
        """Virtual seconds since the cluster was made, about."""
        return self._cluster.now_ns / _NS

    async def advance(self, seconds: float) -> None:
        """Let virtual time pass: timers fire, sessions time out, leaders are elected.

        A simulated second of a cluster at rest takes about a millisecond. For days, use a `ServiceHarness`.
        """
        self._check_loop()
        if not seconds >= 0:
            raise ConfigurationError(f"seconds={seconds} expected at least 0: time never goes backwards")
        self._current_drive.allow(seconds)
        await asyncio.sleep(seconds)

    async def _until(self, what: str, is_done: Callable[[], bool]) -> None:
        """Wait until something holds.

        Raises:
            StillWaitingError: it did not within 30 virtual seconds.
        """
        self._check_loop()
        end_ns = self._cluster.now_ns + int(_WAIT_LIMIT_S * _NS)
        while not is_done():
            if self._cluster.now_ns > end_ns:
                lines = [f"{what}: not within {_WAIT_LIMIT_S:g} virtual seconds", f"  cluster: {self!r}"]
                lines += [f"  member {number} stopped: {error!r}" for number, error in self.stopped.items()]
                raise StillWaitingError("\n".join(lines))
            await asyncio.sleep(_POLL_S)
        self._current_drive.note_progress()

    @property
    def _current_drive(self) -> Drive[Any]:  # Any: whatever it returns
        assert self._drive is not None
        return self._drive

    # --- looking

    @property
    def leader(self) -> int | None:
        """The id of the member that leads; None while none does."""
        leader = self._cluster.leader()
        return None if leader is None else int(leader.member_id)

    @property
    def services(self) -> Mapping[int, Any]:
        """The service of each running member by member id: its state may be looked at, and must not be changed.

        Where a node runs several services it is a tuple of them.
        """
        running = {member.member_id for member in self._cluster.members.values() if member.node is not None}
        return MappingProxyType(
            {
                int(number): services if len(services) > 1 else services[0]
                for number, services in sorted(self._services.items())
                if number in running
            }
        )

    async def wait_for_leader(self) -> int:
        """Wait until a member leads, and return its id."""
        await self._until("a member leads", lambda: self._cluster.leader() is not None)
        leader = self.leader
        assert leader is not None
        return leader

    async def settle(self) -> None:
        """Wait until every running member that can reach the leader has processed the whole log."""
        await self._until("every member has processed the whole log", self._is_settled)

    def _is_settled(self) -> bool:
        leader = self._cluster.leader()
        if leader is None or leader.node is None:
            return False
        end = leader.node.module.ctx.log_buffer.append_position
        return all(
            member.node is not None
            and member.node.module.election is None
            and member.node.module.ctx.commit_position == end
            and member.node.delivered_position == end
            for member in self._reachable(leader)
        )

    def _reachable(self, leader: Member) -> Iterator[Member]:
        """Members that run and are not cut off from the leader."""
        network, address = self._cluster.network, leader.machine.address
        for member in self._cluster.running():
            other = member.machine.address
            if not network.is_blocked(address, other) and not network.is_blocked(other, address):
                yield member

    async def assert_identical(self) -> None:
        """Wait until all running members have processed the whole log; then compare their logs and their states.

        States are compared by `state_hash`, or by what a snapshot would hold where the service has none.

        Raises:
            AssertionError: members differ, with where.
        """
        await self.settle()
        members = [member for member in self._cluster.running() if member.node is not None]
        first, *others = members
        for other in others:
            self._compare_logs(first, other)
            self._compare_states(first, other)

    def _compare_logs(self, first: Member, other: Member) -> None:
        end = min(member.node.delivered_position for member in (first, other) if member.node is not None)
        begin = max(self._disks.kept_log(member).start_position for member in (first, other))
        logs = [self._disks.durable_log(member, begin, end) for member in (first, other)]
        if logs[0] == logs[1]:
            return
        at = next((index for index, pair in enumerate(zip(*logs, strict=False)) if pair[0] != pair[1]), len(logs[0]))
        raise AssertionError(
            f"members have different logs: members={first.member_id},{other.member_id} first difference at "
            f"log_position={begin + at}"
        )

    def _compare_states(self, first: Member, other: Member) -> None:
        for one, two in zip(self._services[first.member_id], self._services[other.member_id], strict=True):
            states = state_of(one), state_of(two)
            if None in states or digest_of(states[0]) == digest_of(states[1]):
                continue
            raise AssertionError(
                f"services have different states after the same log: members={first.member_id},{other.member_id} "
                f"service={type(one).__qualname__} {describe_difference(*states)}"
            )

    def save_directory(self, member_id: int, directory: Path | str) -> None:
        """Write a member's directory to the real disk as it is now, for `replay_log` or the commands of `trimaran`.

        Raises:
            FileExistsError: there is such a directory.
        """
        (member,) = self._chosen([member_id])
        disk, target = member.machine.disk, Path(directory)
        target.mkdir(parents=True)
        for part in _PARTS:
            (target / part).mkdir()
            for name in disk.list_directory(DIRECTORY / part):
                (target / part / name).write_bytes(disk.content(DIRECTORY / part / name))

    # --- clients

    async def connect(self, **settings: Any) -> ClusterClient:
        """Open a session, and return the client. `settings` are fields of `ClientConfig`, such as `credentials`."""
        self._check_loop()
        return await ClusterClient.connect(config=self._client_config(settings))

    def share(self, **settings: Any) -> SharedConnection:
        """Return a connection that sessions share. `settings` are fields of `ClientConfig`."""
        self._check_loop()
        return SharedConnection(self._client_config(settings))

    async def pool(self, *, size: int = 8, **settings: Any) -> SessionPool:
        """Open a pool of sessions. `settings` are fields of `ClientConfig`."""
        self._check_loop()
        return await SessionPool.connect(size=size, config=self._client_config(settings))

    def _client_config(self, settings: dict[str, Any]) -> ClientConfig:
        config = {
            "endpoints": self._cluster.ingress_endpoints,
            "network": self._cluster.network,
            "random": Random(self._client_random.random()).random,
            "make_secret": partial(self._secrets.randbytes, 32),
            "connect_timeout_s": _WAIT_LIMIT_S,
            **settings,
        }
        return ClientConfig(**config)

    def subscribe(self, **settings: Any) -> Subscription:
        """Subscribe to the committed log. `settings` are arguments of `trimaran.cluster.subscriptions.subscribe`."""
        self._check_loop()
        endpoints = [member.config.me.consensus for member in self._cluster.members.values()]
        random = Random(self._client_random.random()).random
        return subscribe(endpoints, **{"network": self._cluster.network, "random": random, **settings})

    # --- faults

    def kill(self, *member_ids: int) -> None:
        """Kill the processes of members, as SIGKILL does: what they wrote stays. `restart` starts them again."""
        for member in self._chosen(member_ids):
            self._cluster.kill(member.member_id)

    def kill_leader(self) -> int:
        """Kill the member that leads, and return its id.

        Raises:
            ConfigurationError: no member leads just now.
        """
        leader = self.leader
        if leader is None:
            raise ConfigurationError(f"no member leads just now: {self!r}; await cluster.wait_for_leader() before")
        self.kill(leader)
        return leader

    def power_loss(self, *member_ids: int) -> None:
        """Cut the power of members, or of all if none is named: about half of what was not synced is lost.

        `restart` starts them again.
        """
        for member in self._chosen(member_ids or self._all_ids()):
            self._cluster.lose_power(member.member_id, lambda: self._keep.random() < 0.5)

    def partition(self, *groups: Sequence[int | str]) -> None:
        """Cut the network between groups of members, such as `partition([0], [1, 2])`, until `heal`.

        `"client"` in a group stands for the clients of the test. Who is in no group keeps all links.

        Raises:
            ConfigurationError: fewer than two groups, an unknown name, or one in two groups.
        """
        named = [name for group in groups for name in group]
        if len(groups) < 2 or len(set(named)) != len(named):
            raise ConfigurationError(f"groups={groups} expected at least two, and each name once: ([0], [1, 2])")
        addresses = [[self._address(name) for name in group] for group in groups]
        for index, group in enumerate(addresses):
            for other in addresses[index + 1 :]:
                self._cut([(one, two) for one in group for two in other])

    def _cut(self, pairs: list[tuple[str, str]]) -> None:
        for source, target in [*pairs, *((two, one) for one, two in pairs)]:
            self._cluster.network.block(source, target)

    def heal(self) -> None:
        """Mend the network: nobody is cut off from anybody."""
        self._cluster.network.unblock_all()

    def _address(self, name: int | str) -> str:
        if name == CLIENT:
            return CLIENT
        (member,) = self._chosen([name])
        return member.machine.address

    # --- starting again

    async def restart(self, *member_ids: int, code: Code | None = None, accept_code: bool = False) -> None:
        """Start members again, or all if none is named; those that run are killed before.

        Waits until they have caught up with the leader, where a majority of the members runs.

        Args:
            member_ids: Which members.
            code: The service that they run from now on; None: what they ran.
            accept_code: Let other code replay what older code ran, as `trimaran node --accept-code` does.

        Raises:
            ClusterError: why a member did not start, such as code that must not replay this log.
        """
        self._check_loop()
        members = self._chosen(member_ids or self._all_ids())
        makers = None if code is None else makers_of(code)
        for member in members:
            self._cluster.kill(member.member_id)
        for member in members:
            self._start(member, makers, accept_code)
        await self._started(members)

    def _start(self, member: Member, code: Sequence[MakeService] | None, accept_code: bool) -> None:
        if code is not None:
            self._code[member.member_id] = code
        if accept_code:
            member.config = member.config.model_copy(update={"accept_code": "any"})
        self.stopped.pop(int(member.member_id), None)
        self._cluster.start(member.member_id)

    async def _started(self, members: Sequence[Member]) -> None:
        """Wait until members have caught up, or at least opened their files where there is no majority."""
        running_count = sum(member.is_running for member in self._cluster.members.values())
        has_majority = 2 * running_count > len(self._cluster.members)

        def is_over() -> bool:
            if any(int(member.member_id) in self.stopped for member in members):
                return True
            if not has_majority:
                return all(member.node is not None for member in members)
            return self._is_settled()

        await self._until("members that were started have caught up", is_over)
        for member in members:
            number = int(member.member_id)
            if number in self.stopped:
                error = self.stopped.pop(number)
                if error is None:
                    raise ConfigurationError(f"member {number} ended as soon as it was started")
                error.add_note(f"this is why member {number} did not start")
                raise error

    async def snapshot(self) -> None:
        """Take a snapshot on every running member, and wait for it.

        Raises:
            ConfigurationError: the service has no `on_take_snapshot`.
            StillWaitingError: a snapshot failed.
        """
        await self.wait_for_leader()
        self._check_snapshots()
        await self.settle()
        members = [*self._cluster.running()]
        before = {member.member_id: _newest_snapshot(member) for member in members}
        self._order(ControlToggle.SNAPSHOT)
        await self._until(
            "every member has taken a snapshot",
            lambda: all(_newest_snapshot(member) > before[member.member_id] for member in members if member.is_running),
        )

    async def snapshot_and_restart(self, *, code: Code | None = None) -> None:
        """Stop the whole cluster after a snapshot, as `trimaran shutdown` does, and start it again from it.

        Args:
            code: The service that members run from now on; None: what they ran.

        Raises:
            ConfigurationError: the service has no `on_take_snapshot`.
            StillWaitingError: the snapshot failed, or members did not come back.
        """
        await self.wait_for_leader()
        self._check_snapshots()
        members = self._chosen(self._all_ids())
        down = [int(member.member_id) for member in members if not member.is_running]
        if down:
            raise ConfigurationError(f"members are down: {down} expected all to run: await cluster.restart() before")
        self._stopping = {int(member.member_id) for member in members}
        try:
            self._order(ControlToggle.SHUTDOWN)
            await self._until(
                "all members have stopped after a snapshot", lambda: not any(member.is_running for member in members)
            )
        finally:
            self._stopping = set()
        await self.restart(code=code)

    async def upgrade(self, code: Code, *, accept_code: bool = False) -> None:
        """Give the members other code, one after another while the cluster serves, the leader last.

        Before each member a snapshot is taken, so it replays nothing that the older code ran.

        Args:
            code: The service that members run from now on.
            accept_code: Let the new code replay what the older ran instead, without snapshots.

        Raises:
            ClusterError: why a member did not start with the new code.
        """
        makers = makers_of(code)
        leader = await self.wait_for_leader()
        order = [number for number in self._all_ids() if number != leader] + [leader]
        for number in order:
            if not accept_code:
                await self.snapshot()
            (member,) = self._chosen([number])
            await self._stop(member)
            self._start(member, makers, accept_code)
            await self._started([member])

    async def _stop(self, member: Member) -> None:
        """SIGTERM: a leader hands over, then the process ends."""
        loop, node = member.machine.loop, member.node
        if loop is None or node is None:
            return
        self._stopping.add(int(member.member_id))
        try:
            loop.call_soon(node.departure.begin)
            await self._until(f"member {member.member_id} stops", lambda: not member.is_running)
        finally:
            self._stopping.discard(int(member.member_id))

    def _order(self, action: ControlToggle) -> None:
        leader = self._cluster.leader()
        assert leader is not None
        assert leader.node is not None
        assert leader.machine.loop is not None
        leader.machine.loop.call_soon(leader.node.agent.post, ActionRequested(0, action))

    def _check_snapshots(self) -> None:
        for service in (one for services in self._services.values() for one in services):
            if not service.takes_snapshots:
                raise ConfigurationError(
                    f"the service takes no snapshots: service={type(service).__qualname__} expected a method "
                    f"on_take_snapshot or snapshot_messages"
                )

    # --- members

    def _all_ids(self) -> list[int]:
        return [int(number) for number in self._cluster.members]

    def _chosen(self, member_ids: Sequence[int | str]) -> list[Member]:
        members = self._cluster.members
        unknown = [number for number in member_ids if type(number) is not int or number not in members]
        if unknown or not member_ids:
            named = ", ".join(repr(number) for number in unknown) or "none"
            raise ConfigurationError(f"no such member: {named} expected ids from {self._all_ids()}")
        return [members[MemberId(int(number))] for number in member_ids]

    def _make_service(self, member: Member) -> ClusteredService:
        services = self._services[member.member_id] = tuple(map(new_service, self._code[member.member_id]))
        return services[0]

    def _on_node(self, member: Member) -> None:
        assert member.node is not None
        member.node.service_agent.failures = _KeptFailures(member, self.service_errors)
        for service_id, double in member.node.service_agent.doubles.items():
            double.make = self._code[member.member_id][service_id]
        if self._is_strict:
            member.node.service_agent.guard = StrictGuard(self._on_finding)

    def _on_finding(self, finding: StrictFinding) -> None:
        if finding not in self.strict_findings:
            self.strict_findings.append(finding)

    def _on_exit(self, member: Member, error: BaseException | None) -> None:
        number = int(member.member_id)
        if error is not None or number not in self._stopping:
            self.stopped[number] = error

    # --- the end

    def close(self) -> None:
        """End every process; nothing can be done afterwards.

        Raises:
            AssertionError: a member ended by itself, an error was left unhandled in one, or a callback left the log.
        """
        if self._is_closed:
            return
        self._is_closed = True
        with quiet_log(is_quiet=self._is_quiet):
            self._cluster.close()
        problems = [f"member {number} ended by itself: {error!r}" for number, error in self.stopped.items()]
        problems += [f"nobody caught in {name}: {error!r}" for name, error in self._cluster.unhandled]
        problems += map(str, self.strict_findings)
        if problems:
            raise AssertionError("; ".join(problems))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        with contextlib.suppress(*([] if error is None else [AssertionError])):
            self.close()


class _KeptFailures(FailureLog):
    """What callbacks raise, kept for the test besides the log."""

    def __init__(self, member: Member, kept: list[tuple[int, int, BaseException]]) -> None:
        super().__init__(member.machine.clock.monotonic_ns)
        self._member_id, self._kept = int(member.member_id), kept

    def note(self, error: BaseException, *, service: object, log_position: int) -> None:
        """Keep it, and log it."""
        self._kept.append((self._member_id, log_position, error))
        super().note(error, service=service, log_position=log_position)


async def _idle() -> None:
    """What the machine of the test does by itself: nothing, until the end."""
    await asyncio.Event().wait()


def _newest_snapshot(member: Member) -> int:
    return max(complete_snapshot_positions(member.machine.disk), default=-1)
