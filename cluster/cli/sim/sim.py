"""`trimaran sim`: run the real node and client code on virtual time, with faults, once per seed.

Exit status: 0 when every rule held in every seed, 1 when one was broken, 2 on wrong usage, 130 after Ctrl-C or SIGTERM,
with the counts so far.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import typer
from rich.console import Console

from ....archive.tool.output import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    HelpAllOption,
    OutputFormat,
    OutputOption,
    make_console,
    print_error,
)
from ....service_api.errors import ConfigurationError
from ....service_api.processors import count_processors
from ...runtime.ground.system_clock import SystemClock
from ...testing.simulation.campaign import kinds_left_out, run_campaign
from ...testing.simulation.run import Options, RunOutcome
from ...testing.simulation.shrink import Attempt, shrink
from .campaign_report import SimulationReport, as_json, describe_outcome, find_commit, print_campaign_report
from .flags import (
    CheckDeterminismFlag,
    ClientsFlag,
    GroupsFlag,
    JobsFlag,
    LengthFlag,
    MembersFlag,
    NoShrinkFlag,
    OnlyFlag,
    OperationsFlag,
    RequesterSessionsFlag,
    RequestersFlag,
    SeedsFlag,
    ServiceDirFlag,
    ServiceFlag,
    SessionsFlag,
    TraceFileFlag,
    TraceFlag,
    UntilFailureFlag,
    VerboseFlag,
    WithoutFlag,
    WitnessesFlag,
    parse_seeds,
)
from .seed_job import SeedJob
from .sim_view import SimView
from .trace_output import TraceOutput
from .workers import WorkerPool, run_guarded

SEED_LIMIT_S: Final = 300.0
"""The processor time that a seed may take; one takes some seconds."""

SHRINK_LIMIT_S: Final = 180.0
SHRINK_COUNT: Final = 3
"""How many failures are made smaller: the first of each rule, up to this many."""

WIDTH_IN_PIPE: Final = 120
DEFAULTS: Final = Options()


@dataclass(slots=True)
class _Run:
    """One campaign under way."""

    report: SimulationReport
    view: SimView
    is_verbose: bool
    started_ns: int
    clock: SystemClock

    def on_outcome(self, outcome: RunOutcome) -> None:
        """Count a seed, and say so if it failed."""
        self.report.add(outcome)
        if self.is_verbose or outcome.failure is not None:
            self.view.say(describe_outcome(outcome))

    def on_tick(self) -> None:
        """Show how far it has come."""
        self.report.elapsed_s = (self.clock.monotonic_ns() - self.started_ns) / 1e9
        self.view.show(self.report)


def sim(
    seeds: SeedsFlag = "0:20",
    members: MembersFlag = None,
    witnesses: WitnessesFlag = DEFAULTS.witness_count,
    jobs: JobsFlag = None,
    until_failure: UntilFailureFlag = False,
    without: WithoutFlag = "",
    only: OnlyFlag = "",
    clients: ClientsFlag = DEFAULTS.client_count,
    requesters: RequestersFlag = DEFAULTS.requester_count,
    requester_sessions: RequesterSessionsFlag = DEFAULTS.requester_session_count,
    sessions: SessionsFlag = None,
    groups: GroupsFlag = None,
    length: LengthFlag = DEFAULTS.safety_timeouts,
    operations: OperationsFlag = None,
    service: ServiceFlag = None,
    service_dir: ServiceDirFlag = Path(),
    trace: TraceFlag = False,
    trace_file: TraceFileFlag = None,
    check_determinism: CheckDeterminismFlag = False,
    no_shrink: NoShrinkFlag = False,
    verbose: VerboseFlag = False,
    output: OutputOption = OutputFormat.TABLE,
    help_all: HelpAllOption = False,
) -> None:
    """Run the real node and client code on virtual time, with faults; check that no rule is ever broken.

    Every random decision comes from the seed: the same seed, options and commit give the same run, event by event. The
    command makes a failing run smaller and prints one command that repeats it.

    With --groups the cluster has several logs, on the same machines, and clients send each request to the log that owns
    its key. With --service your own service runs, and every member must reach the same state: see docs/simulation.md.
    Exit status 0: every rule held; 1: a rule was broken; 2: wrong usage; 130: Ctrl-C, with the counts so far.
    """
    begin, end = parse_seeds(seeds)
    options = Options(
        member_count=members,
        witness_count=witnesses,
        client_count=clients,
        requester_count=requesters,
        requester_session_count=requester_sessions,
        session_count=sessions,
        group_count=groups,
        without=kinds_left_out(without, only),
        safety_timeouts=length,
        operation_limit=operations,
    )
    job = _make_job(options, service, service_dir, check_determinism)
    if trace or trace_file is not None:
        _expect_one_seed(seeds)
        raise typer.Exit(_trace(begin, options, job, trace_file))
    if end is None and not until_failure:
        raise ConfigurationError(f"seeds without an end need --until-failure: seeds={seeds!r}")
    job_count = min(jobs or count_processors(), sys.maxsize if end is None else end - begin)
    report = SimulationReport(job, options, job_count, find_commit())
    seed_range = itertools.count(begin) if end is None else iter(range(begin, end))
    with SimView(Console(stderr=True), None if end is None else end - begin) as view:
        _run(report, view, seed_range, until_failure=until_failure, is_shrunk=not no_shrink, is_verbose=verbose)
    _print(report, output)
    if report.is_interrupted or report.totals.failures:
        raise typer.Exit(EXIT_INTERRUPTED if report.is_interrupted else EXIT_FAILED)


def _print(report: SimulationReport, output: OutputFormat) -> None:
    if output is OutputFormat.TABLE:
        print_campaign_report(report, make_console(WIDTH_IN_PIPE))
    else:
        typer.echo(as_json(report, indent=2 if output is OutputFormat.JSON else None))


def _make_job(options: Options, service: str | None, service_dir: Path, is_run_twice: bool) -> SeedJob:
    """Make what worker processes do; refuse options that exclude each other, and services that are not there.

    Raises:
        ConfigurationError: the user's: names them.
    """
    if service is not None and options.session_count:
        raise ConfigurationError(
            f"--sessions={options.session_count} is for the simulator's own service: with --service use --clients"
        )
    if options.group_count is not None and options.group_count > 1 and options.requester_session_count > 1:
        raise ConfigurationError(
            f"--groups={options.group_count} --requester-sessions={options.requester_session_count}: sessions with "
            "several groups cannot share a connection: leave one of these out, or use --sessions"
        )
    job = SeedJob(service, service_dir, is_run_twice)
    if service is not None:
        job.load_services(service)
    return job


def _expect_one_seed(seeds: str) -> None:
    begin, end = parse_seeds(seeds)
    if end != begin + 1:
        raise ConfigurationError(f"a trace needs exactly one seed: seeds={seeds!r} (--trace)")


def _run(
    report: SimulationReport,
    view: SimView,
    seeds: Iterator[int],
    *,
    until_failure: bool,
    is_shrunk: bool,
    is_verbose: bool,
) -> None:
    """Run the campaign and make its failures smaller; Ctrl-C ends either and leaves what is known so far."""
    clock = SystemClock()
    run = _Run(report, view, is_verbose, clock.monotonic_ns(), clock)
    limit_s = SEED_LIMIT_S * (2 if report.job.is_run_twice else 1)
    pool = WorkerPool(report.job, count=report.job_count, limit_s=limit_s, monotonic_ns=clock.monotonic_ns)
    with pool, _terminated_like_interrupted():
        try:
            run_campaign(
                seeds,
                report.options,
                pool,
                until_failure=until_failure,
                on_outcome=run.on_outcome,
                on_tick=run.on_tick,
            )
            if is_shrunk:
                _shrink_failures(report, view, pool, clock)
        except KeyboardInterrupt:
            report.is_interrupted = True
        if not report.totals.failures:
            run.on_tick()


@contextlib.contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does: with its processes, and the counts so far."""
    kept = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, kept)


def _shrink_failures(report: SimulationReport, view: SimView, pool: WorkerPool, clock: SystemClock) -> None:
    """Make the first failure of each rule smaller."""
    firsts: dict[str, RunOutcome] = {}
    for failed in report.totals.failures:
        assert failed.failure is not None
        firsts.setdefault(failed.failure.rule, failed)
    for failed in [*firsts.values()][:SHRINK_COUNT]:
        view.say(f"making seed {failed.seed} smaller")
        end_ns = clock.monotonic_ns() + int(SHRINK_LIMIT_S * 1e9)

        def run(options: Options, seed: int = failed.seed) -> RunOutcome:
            return pool.run(seed, options)

        def has_time(end_ns: int = end_ns) -> bool:
            return clock.monotonic_ns() < end_ns

        def say(attempt: Attempt) -> None:
            view.say(f"  {'kept   ' if attempt.is_kept else 'refused'}  {attempt.change}")

        report.shrunk[failed.seed] = shrink(failed, run, has_time=has_time, on_attempt=say)


def _trace(seed: int, options: Options, job: SeedJob, file: Path | None) -> int:
    """Run one seed in this process and write every line of its trace; the result is the exit status."""
    with contextlib.ExitStack() as stack:
        output = TraceOutput(sys.stdout)
        if file is not None:
            try:
                output = TraceOutput(stack.enter_context(file.open("w", encoding="utf-8")))
            except OSError as error:
                raise ConfigurationError(f"trace cannot be written: file={file} reason={error.strerror}") from error
        stack.enter_context(output.with_member_logs())

        def simulate(seed: int, options: Options) -> RunOutcome:
            return job.run(seed, options, write_line=output.write_line)

        try:
            outcome = run_guarded(simulate, seed, options)
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
    typer.echo(describe_outcome(outcome), err=True)
    if outcome.failure is not None:
        print_error(outcome.failure.message)
    return 0 if outcome.failure is None else EXIT_FAILED
