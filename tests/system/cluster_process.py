"""A cluster of real `trimaran node` processes under test: started, killed, paused, watched by their logs, and checked.

The processes come from `fork_server`, and are ended by pid whatever happens. What is here is for tests:
waiting for what members log, never for time; and at the end of each test every member is stopped in order, its
directory is held against the layout by our own verifier and by the independent checker, its log against the other
members' byte for byte, and the state that its service printed against a fold of its own log.
"""

from __future__ import annotations

import asyncio
import signal
import struct
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from typer.testing import CliRunner

from tests.system.append_list import Answer, AppendList
from tests.system.commands import run_trimaran
from tests.system.directory_checker import DirectoryReport, RecordingView, check_directory, log_end_position
from tests.system.fork_server import ForkedGroup
from tests.system.requester import Requester
from tests.waiting import slowness, wait_for, wait_until
from trimaran.archive.tool.app import app as archive_app
from trimaran.benchmarks.rig.member_log import Leadership as Leadership
from trimaran.benchmarks.rig.member_log import RigMemberLog
from trimaran.benchmarks.rig.member_status import wait_for_status
from trimaran.benchmarks.rig.processes import ClusterProcesses, ManagedProcess, find_base_ports
from trimaran.benchmarks.rig.proxies import ProxyMesh
from trimaran.service_api.net.transport import SOCKETS, NetworkStack

SERVICE: Final = "tests.system.append_list:AppendListService"
TIMEOUT_S: Final = 60.0
"""For everything that a test waits for: far more than needed, so that a busy machine does not fail it."""

SETTINGS: Final = {
    "keep_all": "true",  # what tests look at is kept, but where they say otherwise
    "snapshot_interval_ms": "0",  # and snapshots are those that tests take: an imported one is old at once
    "term_length_bytes": "65536",
    "segment_length_bytes": "65536",
    "mtu_length_bytes": "8192",
    "startup_canvass_timeout_ms": "2000",
    "election_timeout_ms": "500",
    "election_status_interval_ms": "50",
    "leader_heartbeat_timeout_ms": "1000",
    "leader_heartbeat_interval_ms": "100",
}
"""Short terms and segments, so that logs roll; short timeouts, so that elections are soon."""

MOST_PATIENT: Final = 4
"""Factor of short timeouts at most: tests wait for elections."""
SHORT_MS: Final = 5_000
"""A timeout that is longer than this is patient already."""

STEADY: Final = {"leader_heartbeat_timeout_ms": "10000", "startup_canvass_timeout_ms": "20000"}
"""For tests in which no election may begin but by a death: on a busy machine a member may stand still for seconds."""

START_ATTEMPTS: Final = 3
LOG_TAIL_LINES: Final = 25


class Member(RigMemberLog):
    """One run of one member: its process, and what that has logged."""

    def __init__(self, member_id: int, process: ManagedProcess, log_offset: int) -> None:
        super().__init__(process.log_path, offset=log_offset)
        self.member_id = member_id
        self.process = process
        self.is_paused = False
        self.is_cut_off = False

    def __repr__(self) -> str:
        return f"<Member {self.member_id} pid={self.process.pid} running={self.process.is_running}>"

    async def wait_for_event(
        self, name: str, *, count: int = 1, timeout_s: float = TIMEOUT_S, **facts: object
    ) -> dict[str, Any]:  # Any: JSON
        """Wait until the event was logged `count` times; gives the last one."""

        def find() -> dict[str, Any] | None:
            found = self.events(name, **facts)
            if len(found) >= count:
                return found[-1]
            assert self.process.is_running, f"{self!r} ended while waiting for {name}:\n{self.process.log_tail()}"
            return None

        return await wait_for(find, timeout_s=timeout_s, what=f"{name} {facts} of {self!r}")

    def pause(self) -> None:
        """Let the process stand still (SIGSTOP)."""
        self.is_paused = True
        self.process.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the process go on (SIGCONT)."""
        self.is_paused = False
        self.process.signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the process without warning (SIGKILL)."""
        self.process.signal(signal.SIGKILL)
        self.process.popen.wait()

    def terminate(self) -> None:
        """Ask the process to stop in order (SIGTERM)."""
        self.process.signal(signal.SIGTERM)

    async def wait_exit(self, timeout_s: float = TIMEOUT_S) -> int:
        """Wait until the process has ended; gives its exit status."""
        return await wait_for(self.process.popen.poll, timeout_s=timeout_s, what=lambda: f"the end of {self!r}")


class SystemCluster:
    """A cluster under test. Leaving the block in peace stops it in order and checks everything it wrote."""

    def __init__(
        self,
        data_dir: Path,
        *,
        member_count: int = 3,
        settings: Mapping[str, str] | None = None,
        start: Iterable[int] | None = None,
        is_proxied: bool = False,
        service: str = SERVICE,
        network: NetworkStack = SOCKETS,
    ) -> None:
        self.processes = ClusterProcesses(
            data_dir=data_dir,
            service=service,
            member_count=member_count,
            settings=in_time({**SETTINGS, **(settings or {})}),
            group=ForkedGroup(),
            network=network,
        )
        self.members: dict[int, Member] = {}
        self.mesh: ProxyMesh | None = None
        self._is_proxied = is_proxied
        self._proxies = AsyncExitStack()
        self._first_members = list(range(member_count) if start is None else start)
        self._is_checked_identical = True

    async def __aenter__(self) -> Self:
        self.processes.data_dir.mkdir(parents=True, exist_ok=True)
        try:
            await self._start_first()
        except BaseException as error:
            self._fail(error)
            await self._proxies.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None:
                self._fail(error)
                return
            try:
                await self.stop()
                self.check()
            except BaseException as failure:
                self._fail(failure)
                raise
        finally:
            self.processes.group.stop()
            await self._proxies.aclose()

    # --- members

    @property
    def endpoints(self) -> list[str]:
        """Where clients connect, by member id."""
        return self.processes.ingress_endpoints

    @property
    def running(self) -> list[Member]:
        """The members that run, are not paused and not cut off."""
        return [
            member
            for member in self.members.values()
            if member.process.is_running and not member.is_paused and not member.is_cut_off
        ]

    def directory_of(self, member_id: int) -> Path:
        """Where a member keeps its files."""
        return self.processes.directory_of(member_id)

    def start(self, member_id: int) -> Member:
        """Start a member, or start it again."""
        log_path = self.processes.log_path_of(member_id)
        log_offset = log_path.stat().st_size if log_path.exists() else 0
        member = Member(member_id, self.processes.start_member(member_id), log_offset)
        self.members[member_id] = member
        return member

    def make_place(self) -> int:
        """Find ports for one member more, which joins the first ones when it is started. Gives its id."""
        processes = self.processes
        if not processes.member_lists:
            first = ",".join(f"{i}=127.0.0.1:{port}" for i, port in enumerate(processes.base_ports))
            processes.member_lists = dict.fromkeys(range(processes.member_count), first)
        new_id = len(processes.base_ports)
        ports = (port for port in find_base_ports(new_id + 1) if port not in processes.base_ports)
        processes.base_ports.append(next(ports))
        self.join(new_id, 0)
        return new_id

    def join(self, member_id: int, *through: int) -> None:
        """Have a member that is started know these others alone."""
        processes = self.processes
        seeds = ",".join(f"{i}=127.0.0.1:{processes.base_ports[i]}" for i in through)
        own = f"{member_id}=127.0.0.1:{processes.base_ports[member_id]}"
        processes.member_lists = {**processes.member_lists, member_id: own}
        processes.environments = {**processes.environments, member_id: {"TRIMARAN_JOIN": seeds}}

    async def run_command(self, *arguments: str, asked: Iterable[int] = (0, 1, 2)) -> tuple[int, str]:
        """Run a command on the cluster, asking these members; gives its exit status and what it said."""
        members = ",".join(f"{i}={self.endpoints[i]}" for i in asked)
        printed = await run_trimaran(*arguments, "--members", members)
        return printed.exit_status, printed.output + printed.errors

    async def change_members(self, *arguments: str, asked: Iterable[int] = (0, 1, 2)) -> str:
        """Run `trimaran member`; it must succeed. Gives what it said."""
        status, said = await self.run_command("member", *arguments, asked=asked)
        assert status == 0, said
        return said

    def cut_off(self, member_id: int, *, also_from_clients: bool = True) -> None:
        """Let nothing through to a member and from it; no socket closes. The cluster must be proxied."""
        assert self.mesh is not None
        self.members[member_id].is_cut_off = True
        self.mesh.isolate(member_id, also_from_clients=also_from_clients)

    def heal(self) -> None:
        """Let everything through again."""
        assert self.mesh is not None
        self.mesh.heal()
        for member in self.members.values():
            member.is_cut_off = False

    def requester(self, *member_ids: int, **config: Any) -> Requester:  # Any: fields of ClientConfig
        """A client that knows these members, or all of them."""
        return Requester(
            [self.endpoints[i] for i in member_ids] or self.endpoints, **{"network": self.processes.network, **config}
        )

    async def wait_for_leader(self, *, min_term_id: int = 0, timeout_s: float = TIMEOUT_S) -> Leadership:
        """Wait until every running member has closed its election in one term, with one running leader."""

        def find() -> Leadership | None:
            for member in self.running:
                member.process.check_running()
            views = {member.leadership() for member in self.running}
            view = views.pop() if len(views) == 1 else None
            if view is None or view.leadership_term_id < min_term_id:
                return None
            return view if view.leader_member_id in {member.member_id for member in self.running} else None

        return await wait_for(
            find,
            timeout_s=timeout_s,
            what=lambda: f"one leader: {[(m, m.leadership()) for m in self.members.values()]}",
        )

    async def kill_and_serve(self, requester: Requester, *member_ids: int) -> Leadership:
        """Kill members, the leader among them, and wait until the next one has answered; a load must be running."""
        old = await self.wait_for_leader()
        assert old.leader_member_id in member_ids
        for member_id in member_ids:
            self.members[member_id].kill()
        new = await self.wait_for_leader(min_term_id=old.leadership_term_id + 1)
        await requester.wait_answered(requester.submitted_count + 300)
        return new

    async def wait_for_log_end(self, member_id: int, position: int, *, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until a member's log has come to a position."""
        directory = self.directory_of(member_id)
        await wait_until(
            lambda: log_end_position(directory) >= position,
            timeout_s=timeout_s,
            what=lambda: f"log of member {member_id} at {position}: it ends at {log_end_position(directory)}",
        )

    async def wait_for_equal_logs(self, *, timeout_s: float = TIMEOUT_S) -> int:
        """Wait until the logs of all running members end at one position, and give it.

        It is the end only while nothing is in flight. That is what `Requester.quiesce` is for; after a session that
        closes it may not be: the leader confirms that before its event is in any file.
        """

        def ends() -> set[int]:
            return {log_end_position(self.directory_of(member.member_id)) for member in self.running}

        await wait_until(
            lambda: len(ends()) == 1, timeout_s=timeout_s, what=lambda: f"equal logs: they end at {ends()}"
        )
        return ends().pop()

    async def wait_for_equal_states(self, *, timeout_s: float = TIMEOUT_S) -> int:
        """Wait for equal logs, and until every member has them durable and its service has them; give where they end.

        What a log's files show may be neither: it is written first, then synced, then known to be committed.
        """
        position = await self.wait_for_equal_logs(timeout_s=timeout_s)
        for member in self.running:
            await wait_for_status(
                self.processes,
                member.member_id,
                lambda status: status.delivered_position >= position,
                time_limit_s=timeout_s,
            )
        return position

    async def stop(self) -> None:
        """Stop every running member in order; each must end with exit status 0."""
        running = [member for member in self.members.values() if member.process.is_running]
        for member in running:
            if member.is_paused:
                member.resume()
            member.terminate()
        for member in running:
            status = await member.wait_exit()
            assert status == 0, f"{member!r} ended with status {status}:\n{member.process.log_tail(LOG_TAIL_LINES)}"

    # --- checks

    def check(self) -> list[DirectoryReport]:
        """Hold every directory, log and service state against the rules and against each other."""
        reports = []
        states: dict[int, tuple[int, str]] = {}
        for member_id, member in sorted(self.members.items()):
            assert not member.process.is_running
            directory = self.directory_of(member_id)
            was_stopped = member.process.popen.returncode == 0
            reports.append(check_directory(directory, stopped=was_stopped))
            verify_archive(directory)
            assert not member.other_lines(), f"{member!r} printed: {member.other_lines()}"
            for state in member.events("test_service.terminated"):
                actual = state["place"], state["digest"]
                assert states.setdefault(state["log_position"], actual) == actual, member
                if reports[-1].log.start_position == 0:
                    folded = fold_log(reports[-1].log, stop_position=state["log_position"])
                    assert (folded.place, folded.digest.hex()) == actual, member
        if self._is_checked_identical:
            was_removed = [bool(member.events("member.removed")) for _, member in sorted(self.members.items())]
            check_identical(reports, was_removed)
        return reports

    def check_answers(self, requester: Requester) -> None:
        """Whether every answer that a client got is what the longest log says. The cluster must be stopped."""
        logs = [check_directory(self.directory_of(i), stopped=False).log for i in self.members]
        answers = fold_log(max(logs, key=lambda log: log.end_position)).answers.get(requester.session_id, [])
        expected = {answer.sequence: answer for answer in answers}
        wrong = {i: (answer, expected.get(i)) for i, answer in requester.answers.items() if expected.get(i) != answer}
        assert not wrong, f"answers that the log does not hold: {list(wrong.items())[:5]} of {len(wrong)}"

    # --- helpers

    async def _start_first(self) -> None:
        """Start the first members; on other ports if somebody took one in between."""
        for _ in range(START_ATTEMPTS):
            await self._start_proxies()
            for member_id in self._first_members:
                self.start(member_id)
            if await self._have_started():
                return
            for member in self.members.values():
                member.kill()
            self.processes.__post_init__()
        raise AssertionError("no free ports for the cluster")

    async def _start_proxies(self) -> None:
        """Put proxies before the members' ports, in place of those of an earlier attempt."""
        await self._proxies.aclose()
        if self._is_proxied:
            self.mesh = await self._proxies.enter_async_context(ProxyMesh(self.processes.base_ports))
            self.mesh.route_clients(asyncio.get_running_loop())
            self.processes.member_lists = self.mesh.member_lists

    async def _have_started(self) -> bool:
        def find() -> bool | None:
            for member in self.members.values():
                if not member.process.is_running:
                    tail = member.process.log_tail()
                    assert "cannot listen" in tail, f"{member!r} did not start:\n{tail}"
                    return False
            return True if all(member.events("node.started") for member in self.members.values()) else None

        return await wait_for(find, timeout_s=TIMEOUT_S, what="the members to start")

    def _fail(self, error: BaseException) -> None:
        """Put the ends of the members' logs to an error, and leave no process behind."""
        for member in self.members.values():
            error.add_note(f"--- {member!r} {member.process.log_path}\n{member.process.log_tail(LOG_TAIL_LINES)}")
        for member in self.members.values():
            member.kill()


def in_time(settings: Mapping[str, str]) -> dict[str, str]:
    """Make a cluster's short timeouts longer on a slow machine: there a member may stand still for a second.

    All by the same whole factor, since some settings may not be shorter than others; by 1 where the suite runs alone.
    """
    factor = max(1, min(MOST_PATIENT, int(slowness() / 2)))
    return {
        name: str(int(value) * factor) if name.endswith("_timeout_ms") and int(value) < SHORT_MS else value
        for name, value in settings.items()
    }


def election_count(members: Iterable[Member]) -> int:
    """How many elections these members have begun."""
    return sum(len(member.events("election.started")) for member in members)


def verify_archive(directory: Path) -> None:
    """Run `trimaran archive verify` on a member's archive: nothing may be wrong."""
    result = CliRunner().invoke(archive_app, ["verify", str(directory / "archive"), "-o", "json"])
    assert result.exit_code == 0, f"{directory}: {result.output}"


def check_identical(reports: list[DirectoryReport], was_removed: list[bool]) -> None:
    """Compare every log with the newest: from where both begin to where the shorter ends they hold the same bytes.

    What a leader appends after its own removal is committed by nobody. So of a member that was removed what counts ends
    where the first term begins that it has not seen.
    """
    first = max(reports, key=lambda report: (report.last_term_id, report.log.end_position))
    newest = first.log
    for report, is_removed in zip(reports, was_removed, strict=True):
        log = report.log
        assert log.term_length == newest.term_length
        begin, end = max(log.start_position, newest.start_position), min(log.end_position, newest.end_position)
        if is_removed:
            unseen = (term for term in first.terms if term.leadership_term_id > report.last_term_id)
            end = min([end, *(term.term_base_log_position for term in unseen)])
        actual = log.data[begin - log.start_position : max(begin, end) - log.start_position]
        expected = newest.data[begin - newest.start_position : max(begin, end) - newest.start_position]
        if actual != expected:
            at = next(i for i in range(len(expected)) if actual[i] != expected[i])
            raise AssertionError(f"logs differ at position={begin + at}: {report.directory}")


def fold_log(log: RecordingView, *, stop_position: int | None = None) -> AppendList:
    """Apply the session messages of a log to a fresh list, as a service is given them."""
    state = AppendList()
    open_sessions: set[int] = set()
    for message in log.messages():
        if stop_position is not None and message.end_position > stop_position:
            break
        block_length, template_id = struct.unpack_from("<HH", message.encoded)
        if template_id == 1 and block_length == 40:
            session_id, timestamp, sequence = struct.unpack_from("<qqq", message.encoded, 16)
            is_next = sequence == len(state.ran.get(session_id, ())) + 1
            if session_id in open_sessions and is_next:  # otherwise it had run before, or runs when it comes again
                state.run(session_id, timestamp, message.encoded[48:])
        elif template_id == 1:
            session_id, timestamp = struct.unpack_from("<qq", message.encoded, 16)
            if session_id in open_sessions:
                with suppress(struct.error):  # a message too short for a request: the service has failed, too
                    state.apply(session_id, timestamp, message.encoded[32:])
        elif template_id == 21:
            open_sessions.add(struct.unpack_from("<q", message.encoded, 24)[0])
        elif template_id == 22:
            open_sessions.discard(struct.unpack_from("<q", message.encoded, 16)[0])
    return state


def last_answers(log: RecordingView, session_id: int) -> list[Answer]:
    """What a log says about one session's requests."""
    return fold_log(log).answers.get(session_id, [])


def last_ran(cluster: SystemCluster, session_id: int) -> list[Answer]:
    """What the longest log says that one session's requests were answered. The cluster must be stopped."""
    return all_last_ran(cluster).get(session_id, [])


def all_last_ran(cluster: SystemCluster) -> dict[int, list[Answer]]:
    """What the longest log says that each session's requests were answered. The cluster must be stopped."""
    logs = [check_directory(cluster.directory_of(i), stopped=False).log for i in cluster.members]
    return fold_log(max(logs, key=lambda log: log.end_position)).ran
