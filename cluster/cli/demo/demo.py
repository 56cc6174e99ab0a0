"""The demo from the first process to the exit status.

Nothing in it waits without a limit, and however it ends, by success, failure, Ctrl-C or SIGTERM, its nodes
are gone. The data stays where it lies.
"""

from __future__ import annotations

import asyncio
import importlib
import signal
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from ....archive.tool.output import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_TERMINATED, EXIT_USAGE
from ....service_api.errors import ClusterError, ClusterTimeoutError, ConfigurationError
from ....service_api.net.transport import NetworkStack
from ....service_api.operating_system import expect_member_system
from ....service_api.tls import TlsSettings, client_network
from ...core.vocabulary.members import quorum_threshold
from ...settings.config import parse_members
from ...settings.service_loading import load_service_class
from ...testing.harness import ServiceHarness
from ..app import report_error
from ..certs.development import CERTIFICATES_NAME, Certificates
from ..shared.cluster_report import ask_cluster
from ..shared.event_loop import run_command_loop
from ..shared.examples import REQUESTS_FILE, SERVICE_MODULE, examples_directory
from ..shared.local_nodes import LocalNodes, free_base_ports
from .demo_report import (
    DemoReport,
    LeaderSeen,
    check_failover,
    check_recordings,
    check_replies,
    count_decisions,
    percentile_us,
    print_demo_report,
)
from .demo_view import DemoView
from .recordings import find_log_recording
from .request_file import load_messages
from .request_stream import RequestStream, connect

SERVICE_CLASS: Final = "AccessQuota"
CONNECT_TIMEOUT_S: Final = 60.0
TERM_LENGTH: Final = "2MiB"
SEGMENT_LENGTH: Final = "4MiB"
"""Short, so that the log, some 6 MiB, rolls over to new segments, and takes little room."""
STALL_TIMEOUT_S: Final = 30.0
STATUS_TIMEOUT_S: Final = 2.0
STATUS_INTERVAL_S: Final = 0.05
MEMBERS_TO_SURVIVE: Final = 3
"""The fewest members of which one may die."""


@dataclass(slots=True)
class DemoOptions:
    """What a user asked for."""

    requests_file: Path
    directory: Path | None
    member_count: int
    file_sync_level: int
    inflight_limit: int
    kill_leader: bool
    with_tls: bool

    @property
    def can_survive(self) -> bool:
        """Whether the members left after one death are still a majority."""
        return self.member_count >= MEMBERS_TO_SURVIVE


@dataclass(slots=True)
class _Run:
    """One demo under way."""

    options: DemoOptions
    directory: Path
    view: DemoView
    nodes: LocalNodes
    certificates: Certificates | None
    leaders: list[LeaderSeen] = field(default_factory=list)
    killed: list[int] = field(default_factory=list)
    stream: RequestStream | None = None
    resent_count: int = 0

    @property
    def will_kill(self) -> bool:
        """Whether the leader is killed half-way."""
        return self.options.kill_leader and self.options.can_survive

    @property
    def operator(self) -> TlsSettings | None:
        """What the demo asks members with; None: plain text."""
        return None if self.certificates is None else self.certificates.operator

    def on_leader(self, leadership_term_id: int, leader_member_id: int) -> None:
        """Note a leader: the first, or a new one that the session found."""
        leader = LeaderSeen(leadership_term_id, leader_member_id)
        if leader not in self.leaders:
            verb = "carries on as" if self.leaders else "is"
            self.leaders.append(leader)
            self.view.say("leader", f"member {leader_member_id} {verb} leader of term {leadership_term_id}")

    def on_half_way(self) -> None:
        """Kill the leader with requests in flight."""
        assert self.stream is not None
        if not self.will_kill:
            return
        member_id = self.leaders[-1].member_id
        self.nodes.kill(member_id)
        self.killed.append(member_id)
        stream = self.stream
        self.view.say(
            "kill",
            f"SIGKILL to the leader, member {member_id}, after {stream.answered_count:,} replies, "
            f"with {stream.inflight_count:,} requests in flight",
        )


def demo(
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures to this file.")
    ] = None,
    requests: Annotated[
        Path | None,
        typer.Option("--requests", metavar="FILE", help="Requests as tab separated values, plain or gzipped."),
    ] = None,
    kill_leader: Annotated[bool, typer.Option(help="Kill the leader half-way.")] = True,
    members: Annotated[int, typer.Option(min=1, max=9, help="Number of nodes.")] = 3,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir", metavar="DIR", help="The directory for the data: new or empty. [default: a temporary one]"
        ),
    ] = None,
    file_sync_level: Annotated[
        int,
        typer.Option(min=0, max=2, help="0 page cache, 1 fdatasync, 2 fsync, before a request is answered."),
    ] = 1,
    inflight: Annotated[
        int, typer.Option(min=1, max=4096, help="The most unanswered requests at the same time.")
    ] = 1024,
    tls: Annotated[bool, typer.Option("--tls", help="Use TLS, with certificates made for this run.")] = False,
) -> None:
    """Run three nodes, kill the leader half-way through real requests, and check every reply.

    Exit status 0 only if every request was answered exactly once, the replies are those of a single-process
    run, and the members recorded the same bytes.
    """
    try:
        expect_member_system("trimaran demo")
        options = DemoOptions(
            requests_file=requests or examples_directory() / "data" / REQUESTS_FILE,
            directory=directory,
            member_count=members,
            file_sync_level=file_sync_level,
            inflight_limit=inflight,
            kill_leader=kill_leader,
            with_tls=tls,
        )
        report = run_command_loop(_run(options))
        if json_file is not None:
            report.write_json(json_file)
    except KeyboardInterrupt:
        typer.echo("trimaran: interrupted; no node is left running", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except asyncio.CancelledError:
        raise typer.Exit(EXIT_TERMINATED) from None
    except ConfigurationError as error:
        report_error(error)
        raise typer.Exit(EXIT_USAGE) from None
    except (ClusterError, OSError, ExceptionGroup) as error:
        report_error(error)
        raise typer.Exit(EXIT_FAILED) from None
    if not report.holds:
        raise typer.Exit(EXIT_FAILED)


def _fresh_directory(wanted: Path | None) -> Path:
    if wanted is None:
        return Path(tempfile.mkdtemp(prefix="trimaran-demo-"))
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        is_empty = not any(wanted.iterdir())
    except OSError as error:
        raise ConfigurationError(f"directory cannot be used: dir={wanted} reason={error.strerror}") from error
    if not is_empty:
        raise ConfigurationError(f"directory is not empty: dir={wanted} expected a new or empty one")
    return wanted.resolve()


async def _run(options: DemoOptions) -> DemoReport:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    service_dir = examples_directory()
    service_class = load_service_class(f"{SERVICE_MODULE}:{SERVICE_CLASS}", service_dir)
    messages = load_messages(options.requests_file, _encoder())
    alone = ServiceHarness(service_class)
    expected = [alone.request(message) for message in messages]
    directory = _fresh_directory(options.directory)
    certificates = _make_certificates(options, directory)
    nodes = LocalNodes(
        directory,
        [f"127.0.0.1:{port}" for port in free_base_ports(options.member_count)],
        {
            "service": f"{SERVICE_MODULE}:{SERVICE_CLASS}",
            "service_dir": str(service_dir),
            "file_sync_level": str(options.file_sync_level),
            "term_length_bytes": TERM_LENGTH,
            "segment_length_bytes": SEGMENT_LENGTH,
            **({} if certificates is None else certificates.node_settings),
        },
    )
    console = Console()
    with DemoView(console) as view:
        run = _Run(options, directory, view, nodes, certificates)
        try:
            cluster_session_id = await _run_cluster(run, messages)
        finally:
            await nodes.close()
        report = _make_report(run, expected, cluster_session_id)
    print_demo_report(report, console)
    return report


def _make_certificates(options: DemoOptions, directory: Path) -> Certificates | None:
    if not options.with_tls:
        return None
    certificates = Certificates(directory / CERTIFICATES_NAME)
    certificates.make(options.member_count)
    return certificates


def _encoder() -> Any:  # the service's own class for a request, from a module that is loaded by name
    request: Any = importlib.import_module(SERVICE_MODULE).Request
    return lambda host, time_s, url: request(host, time_s, url).encode()


async def _run_cluster(run: _Run, messages: Sequence[bytes]) -> int:
    """Start the nodes, stream everything through them, and stop them; the result is the session's id."""
    run.view.say("data", str(run.directory))
    if run.certificates is not None:
        run.view.say("tls", f"certificates in {run.certificates.directory}")
    if run.options.kill_leader and not run.options.can_survive:
        run.view.say("note", "the leader will not be killed: the others would be no majority")
    stream = run.stream = RequestStream(
        messages,
        inflight_limit=run.options.inflight_limit,
        on_half_way=run.on_half_way,
        on_leader=run.on_leader,
    )
    await run.nodes.start()
    async with asyncio.TaskGroup() as group:
        for node in run.nodes.nodes:
            group.create_task(run.nodes.watch(node))
            run.view.say(
                "node",
                f"member {node.member_id} pid {node.process.pid} ingress {run.nodes.endpoints[node.member_id]}",
            )
        tls = None if run.certificates is None else run.certificates.client
        client = await connect(run.nodes.endpoints, stream, timeout_s=CONNECT_TIMEOUT_S, tls=tls)
        cluster_session_id = int(client.cluster_session_id)
        run.on_leader(client.leadership_term_id, client.leader_member_id)
        if run.will_kill:
            await wait_until_all_follow(run.nodes.members, client_network(run.operator), limit_s=CONNECT_TIMEOUT_S)
        follower = group.create_task(run.view.follow(stream))
        try:
            async with client:
                await stream.run(client, stall_timeout_s=STALL_TIMEOUT_S)
                run.resent_count = client.resent_request_count
        finally:
            follower.cancel()
        await run.nodes.stop()
    return cluster_session_id


async def wait_until_all_follow(members: str, network: NetworkStack, *, limit_s: float) -> None:
    """Return once every member is in the leader's term.

    A cluster survives a death only where the others have joined it: one that is late to start does not vote yet.

    Raises:
        ClusterTimeoutError: a member is not, after so long.
    """
    endpoints = {member.member_id: member.consensus for member in parse_members(members)}
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + limit_s
    while True:
        report = await ask_cluster(endpoints, STATUS_TIMEOUT_S, network=network)
        if report.in_term_count == report.member_count:
            return
        if loop.time() > deadline_s:
            raise ClusterTimeoutError(
                f"members in the leader's term: {report.in_term_count} of {report.member_count} after {limit_s:g} s"
            )
        await asyncio.sleep(STATUS_INTERVAL_S)


def _make_report(run: _Run, expected: Sequence[bytes], cluster_session_id: int) -> DemoReport:
    stream, options = run.stream, run.options
    assert stream is not None
    recordings = [find_log_recording(node.directory) for node in run.nodes.nodes if node.member_id not in run.killed]
    checks = [
        *check_replies(stream, expected),
        *check_recordings(
            recordings,
            cluster_session_id=cluster_session_id,
            request_count=len(stream.replies),
            quorum=quorum_threshold(options.member_count),
        ),
    ]
    if run.killed:
        checks.append(check_failover(stream, run.leaders))
    latencies_ns = sorted(stream.latencies_ns)
    allowed, denied = count_decisions(stream.replies)
    return DemoReport(
        requests=len(stream.replies),
        replies=stream.answered_count,
        allowed=allowed,
        denied=denied,
        throughput_msgs_per_s=stream.answered_count / (max(stream.elapsed_ns, 1) / 1e9),
        p50_us=percentile_us(latencies_ns, 50),
        p99_us=percentile_us(latencies_ns, 99),
        p999_us=percentile_us(latencies_ns, 99.9),
        failover_ms=None if stream.failover_ns is None else round(stream.failover_ns / 1e6, 1),
        leaders=run.leaders,
        recordings_identical=all(check.holds for check in checks if "recordings identical" in check.name),
        data_dir=run.directory,
        resent=run.resent_count,
        member_count=options.member_count,
        file_sync_level=options.file_sync_level,
        checks=checks,
    )
