"""`python -m trimaran.benchmarks SCENARIO`: run a benchmark, print a table, write JSON."""

from __future__ import annotations

import logging
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated

import structlog
import typer

from trimaran.service_api.errors import ClusterError, ConfigurationError, first_leaf

from .backups.command import backup, restore
from .chaos.command import chaos
from .guard.command import guard
from .load.hostile_clients import FLOODS
from .options import (
    DirectoryOption,
    JsonOption,
    KeepOption,
    MembersOption,
    PayloadOption,
    TimeLimitOption,
    parse_numbers,
)
from .scenarios import archive as archive_scenario
from .scenarios import catchup as catchup_scenario
from .scenarios import codec as codec_scenario
from .scenarios import echo as echo_scenario
from .scenarios import encryption as encryption_scenario
from .scenarios import failover as failover_scenario
from .scenarios import fairness as fairness_scenario
from .scenarios import flood as flood_scenario
from .scenarios import profile as profile_scenario
from .scenarios import query as query_scenario
from .scenarios import replay as replay_scenario
from .scenarios import request as request_scenario
from .scenarios import scan as scan_scenario
from .scenarios import snapshot as snapshot_scenario
from .scenarios import spark as spark_scenario
from .scenarios import stream as stream_scenario
from .scenarios import table as table_scenario
from .scenarios import time_travel as time_travel_scenario
from .scenarios import typed as typed_scenario
from .scenarios.archive import ArchiveParameters
from .scenarios.catchup import CatchupParameters
from .scenarios.codec import CodecParameters
from .scenarios.compare_command import compare
from .scenarios.compiled import compiled
from .scenarios.echo import EchoParameters
from .scenarios.encryption import EncryptionParameters, encryption_rows
from .scenarios.failover import FailoverParameters, FaultKind
from .scenarios.fairness import FairnessParameters
from .scenarios.flood import FloodParameters
from .scenarios.groups import groups
from .scenarios.opening import opening
from .scenarios.openings import openings
from .scenarios.profile import ProfileParameters
from .scenarios.query import QueryParameters
from .scenarios.replay import ReplayParameters
from .scenarios.request import RequestParameters
from .scenarios.scan import ScanParameters
from .scenarios.snapshot import SnapshotParameters
from .scenarios.snapshots import snapshots
from .scenarios.spark import SparkParameters
from .scenarios.stream import StreamParameters
from .scenarios.table import TableParameters
from .scenarios.time_travel import TimeTravelParameters
from .statistics.report import finish, print_table, write_json
from .tails.command import tails

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="Benchmarks of Trimaran.")

SyncOption = Annotated[int, typer.Option(min=0, max=2, help="0 page cache, 1 fdatasync, 2 fsync.")]
TlsOption = Annotated[bool, typer.Option("--tls", help="Encrypt, with certificates made for the run.")]
SettingOption = Annotated[list[str] | None, typer.Option(help="Another node setting, as name=value; may be repeated.")]


def _joined(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


for _command in (
    backup,
    chaos,
    compare,
    compiled,
    groups,
    guard,
    opening,
    openings,
    restore,
    snapshots,
    tails,
):
    app.command()(_command)


@app.callback()
def _scenarios() -> None:
    """Choose a scenario."""


@app.command()
def echo(
    members: MembersOption = 3,
    payload: PayloadOption = 32,
    inflight: Annotated[int, typer.Option(help="Messages in flight, over all clients.")] = 1024,
    messages: Annotated[int, typer.Option(help="Messages to measure, over all clients.")] = 300_000,
    warmup: Annotated[int, typer.Option(help="Messages before them, not measured.")] = 20_000,
    clients: Annotated[int, typer.Option(help="Client processes.")] = 1,
    rate: Annotated[
        float | None, typer.Option(help="Open loop: messages a second, latency from the intended send time.")
    ] = None,
    file_sync_level: SyncOption = 1,
    checksums: Annotated[bool, typer.Option(help="A CRC-32 in every recorded frame.")] = True,
    tls: TlsOption = False,
    setting: SettingOption = None,
    endpoints: Annotated[
        str | None, typer.Option(help="Ingress endpoints of a running cluster, instead of starting one.")
    ] = None,
    directory: DirectoryOption = None,
    keep: KeepOption = False,
    time_limit: TimeLimitOption = 300.0,
    json: JsonOption = None,
) -> None:
    """A replicated service that sends every message back: throughput, latency, CPU time by process."""
    parameters = EchoParameters(
        members=members,
        payload=payload,
        inflight=inflight,
        messages=messages,
        warmup=warmup,
        clients=clients,
        rate=rate,
        file_sync_level=file_sync_level,
        checksums=checksums,
        tls=tls,
        node_settings=dict(_parse_setting(text) for text in setting or ()),
        endpoints=tuple(filter(None, (endpoints or "").split(","))),
        time_limit_s=time_limit,
    )
    report = echo_scenario.run(parameters, directory=directory, keep=keep)
    finish(report, json, _echo_title(parameters))


@app.command()
def codec(
    payload: PayloadOption = 32,
    messages: Annotated[int, typer.Option(help="Messages in a round, on each path.")] = 100_000,
    rounds: Annotated[int, typer.Option(help="Rounds; the median counts.")] = 9,
    json: JsonOption = None,
) -> None:
    """What a message costs on each hot path of a node and a client, without sockets, disks or a cluster."""
    report = codec_scenario.run(CodecParameters(payload=payload, messages=messages, rounds=rounds))
    finish(report, json, f"codec: nanoseconds a message, payload {payload} B")


@app.command()
def request(
    members: MembersOption = 3,
    payload: PayloadOption = 32,
    inflight: Annotated[int, typer.Option(help="Callers, each with one request after another.")] = 1024,
    requests: Annotated[int, typer.Option(help="Requests to measure.")] = 300_000,
    warmup: Annotated[int, typer.Option(help="Requests before them, not measured.")] = 20_000,
    file_sync_level: SyncOption = 1,
    setting: SettingOption = None,
    directory: DirectoryOption = None,
    keep: KeepOption = False,
    time_limit: TimeLimitOption = 300.0,
    json: JsonOption = None,
) -> None:
    """Requests that run exactly once, from one client process: how many a second, and how long each takes."""
    parameters = RequestParameters(
        members=members,
        payload=payload,
        inflight=inflight,
        requests=requests,
        warmup=warmup,
        file_sync_level=file_sync_level,
        node_settings=dict(_parse_setting(text) for text in setting or ()),
        time_limit_s=time_limit,
    )
    report = request_scenario.run(parameters, directory=directory, keep=keep)
    title = f"request: {members} members, {payload} B, {inflight} in flight, file sync level {file_sync_level}"
    finish(report, json, title)


@app.command()
def typed(
    inflight: Annotated[int, typer.Option(help="Callers, each with one request after another.")] = 1024,
    payload: PayloadOption = 32,
    requests: Annotated[int, typer.Option(help="Requests of each run.")] = 200_000,
    rounds: Annotated[int, typer.Option(help="Runs of each kind, in turn; medians count.")] = 3,
    file_sync_level: SyncOption = 1,
    directory: DirectoryOption = None,
    json: JsonOption = None,
) -> None:
    """Requests as bytes, as commands of a typed service, and with double execution, in turn: what each costs."""
    parameters = RequestParameters(
        payload=payload, inflight=inflight, requests=requests, file_sync_level=file_sync_level
    )
    report = typed_scenario.run(parameters, rounds=rounds, directory=directory)
    finish(report, json, f"typed: 3 members, {payload} B, {inflight} in flight, file sync level {file_sync_level}")


@app.command()
def failover(
    runs: Annotated[int, typer.Option(help="Faults of each kind.")] = 30,
    members: MembersOption = 3,
    kinds: Annotated[str, typer.Option(help="Kinds of faults, which take turns.")] = ",".join(FaultKind),
    rate: Annotated[float, typer.Option(help="Messages a second that the client offers.")] = 200.0,
    request_rate: Annotated[
        float, typer.Option(help="Requests a second that it makes where the leader hands over.")
    ] = 50_000.0,
    file_sync_level: SyncOption = 1,
    setting: SettingOption = None,
    directory: DirectoryOption = None,
    keep: KeepOption = False,
    json: JsonOption = None,
) -> None:
    """The leader dies, stands still, is cut off or hands over: time until the next leader has committed a message."""
    parameters = FailoverParameters(
        runs=runs,
        members=members,
        kinds=tuple(_parse_kind(text) for text in kinds.split(",")),
        rate=rate,
        request_rate=request_rate,
        file_sync_level=file_sync_level,
        node_settings=dict(_parse_setting(text) for text in setting or ()),
    )
    report = failover_scenario.run(parameters, directory=directory, keep=keep)
    finish(report, json, f"failover: {members} members, {runs} of each kind, file sync level {file_sync_level}")


@app.command()
def query(
    members: MembersOption = 3,
    payload: PayloadOption = 32,
    depths: Annotated[str, typer.Option(help="Queries in flight, one figure for each.")] = "1,64",
    queries: Annotated[int, typer.Option(help="Queries of each kind at each depth.")] = 50_000,
    warmup: Annotated[int, typer.Option(help="Queries before them, not measured.")] = 2_000,
    echoes: Annotated[bool, typer.Option(help="Measure echoes at the same depths too.")] = True,
    file_sync_level: SyncOption = 1,
    directory: DirectoryOption = None,
    keep: KeepOption = False,
    time_limit: TimeLimitOption = 300.0,
    json: JsonOption = None,
) -> None:
    """Queries that are in no log, linearizable and a second stale at most, beside echoes through the log."""
    parameters = QueryParameters(
        members=members,
        payload=payload,
        depths=parse_numbers("depths", depths),
        queries=queries,
        warmup=warmup,
        with_echo=echoes,
        file_sync_level=file_sync_level,
        time_limit_s=time_limit,
    )
    report = query_scenario.run(parameters, directory=directory, keep=keep)
    finish(report, json, f"query: {members} members, 1 client, {payload} B, file sync level {file_sync_level}")


@app.command()
def encryption(
    rounds: Annotated[int, typer.Option(help="Rounds, each with everything in plain text and with TLS.")] = 5,
    depths: Annotated[str, typer.Option(help="Messages in flight, with commas.")] = "1,64,1024",
    messages: Annotated[int, typer.Option(help="Messages of an echo at the deepest.")] = 200_000,
    missed_mib: Annotated[int, typer.Option(help="What a member catches up on, in MiB; 0: no catch-up.")] = 256,
    file_sync_level: SyncOption = 1,
    directory: DirectoryOption = None,
    keep: KeepOption = False,
    json: JsonOption = None,
) -> None:
    """What TLS costs: echoes and a catch-up in plain text and with TLS, interleaved."""
    parameters = EncryptionParameters(
        rounds=rounds,
        depths=parse_numbers("depths", depths),
        messages=messages,
        missed_mib=missed_mib,
        file_sync_level=file_sync_level,
    )
    report = encryption_scenario.run(parameters, directory=directory, keep=keep)
    print_table(f"TLS: 3 members, file sync level {file_sync_level}", encryption_rows(report))
    if json is not None:
        write_json(report, json)


@app.command()
def fairness(
    members: MembersOption = 3,
    payload: PayloadOption = 32,
    greedy_payload: Annotated[int, typer.Option(help="Bytes in a message of the greedy client.")] = 32,
    depths: Annotated[str, typer.Option(help="Messages of the greedy client in flight, one figure for each.")] = (
        "64,1024,4096"
    ),
    sessions: Annotated[int, typer.Option(help="Modest clients, each with one message in flight.")] = 1,
    messages: Annotated[int, typer.Option(help="Messages of the modest clients for each figure.")] = 2_000,
    warmup: Annotated[int, typer.Option(help="Messages before them, not measured.")] = 200,
    file_sync_level: SyncOption = 1,
    directory: DirectoryOption = None,
    keep: KeepOption = False,
    time_limit: TimeLimitOption = 300.0,
    json: JsonOption = None,
) -> None:
    """Clients with one message in flight each, alone and beside a greedy client."""
    parameters = FairnessParameters(
        members=members,
        sessions=sessions,
        payload=payload,
        greedy_payload=greedy_payload,
        depths=parse_numbers("depths", depths),
        messages=messages,
        warmup=warmup,
        file_sync_level=file_sync_level,
        time_limit_s=time_limit,
    )
    report = fairness_scenario.run(parameters, directory=directory, keep=keep)
    finish(report, json, f"fairness: {members} members, {sessions} + 1 clients, file sync level {file_sync_level}")


@app.command()
def flood(
    kinds: Annotated[
        str, typer.Option(help="Kinds of hostile clients, with commas: one cluster and one flood for each.")
    ] = ",".join(FLOODS),
    members: MembersOption = 3,
    connections: Annotated[int, typer.Option(help="Hostile connections at once.")] = 60,
    flood_s: Annotated[float, typer.Option(help="Seconds that a flood lasts.")] = 15.0,
    after_s: Annotated[float, typer.Option(help="Seconds after a flood until memory is read again.")] = 30.0,
    tls: TlsOption = False,
    setting: SettingOption = None,
    directory: DirectoryOption = None,
    keep: KeepOption = False,
    rounds: Annotated[int, typer.Option(help="How often each flood is measured, in turn.")] = 1,
    time_limit: Annotated[float, typer.Option(help="Seconds after which a flood is given up.")] = 300.0,
    json: JsonOption = None,
) -> None:
    """Hostile clients against the leader: its memory, and what an honest client gets meanwhile."""
    parameters = FloodParameters(
        kinds=tuple(filter(None, kinds.split(","))),
        members=members,
        connections=connections,
        flood_s=flood_s,
        after_s=after_s,
        tls=tls,
        rounds=rounds,
        node_settings=dict(_parse_setting(text) for text in setting or ()),
        time_limit_s=time_limit,
    )
    report = flood_scenario.run(parameters, directory=directory, keep=keep)
    finish(report, json, f"flood: {members} members, {connections} hostile connections")


@app.command()
def snapshot(
    state_mib: Annotated[int, typer.Option(help="State of the service, in MiB, as blobs.")] = 100,
    orders: Annotated[int, typer.Option(help="Instead of it: so many orders, such as 2000000.")] = 0,
    way: Annotated[str, typer.Option(help="How orders are written: message, pieces or copy.")] = "copy",
    runs: Annotated[int, typer.Option(help="Snapshots, one after another.")] = 5,
    members: MembersOption = 3,
    rate: Annotated[float, typer.Option(help="Messages a second that the client offers.")] = 1_000.0,
    file_sync_level: SyncOption = 1,
    setting: SettingOption = None,
    directory: DirectoryOption = None,
    keep: KeepOption = False,
    json: JsonOption = None,
) -> None:
    """A cluster with much state takes snapshots under load: how long ingress, replies and the loops stand still."""
    parameters = SnapshotParameters(
        state_mib=state_mib,
        orders=orders,
        way=way,
        runs=runs,
        members=members,
        rate=rate,
        file_sync_level=file_sync_level,
        node_settings=dict(_parse_setting(text) for text in setting or ()),
    )
    report = snapshot_scenario.run(parameters, directory=directory, keep=keep)
    state = f"{orders} orders by {way}" if orders else f"{state_mib} MiB of state"
    finish(report, json, f"snapshot: {members} members, {state}, file sync level {file_sync_level}")


@app.command()
def replay(
    log_mib: Annotated[int, typer.Option(help="Length of the log that is replayed, in MiB.")] = 1024,
    payload: PayloadOption = 32,
    runs: Annotated[int, typer.Option(help="Starts, one after another.")] = 3,
    file_sync_level: SyncOption = 1,
    setting: SettingOption = None,
    directory: DirectoryOption = None,
    keep: KeepOption = False,
    json: JsonOption = None,
) -> None:
    """A node starts with a long log and no snapshot: messages a second through its service, time, memory."""
    parameters = ReplayParameters(
        log_mib=log_mib,
        payload=payload,
        runs=runs,
        file_sync_level=file_sync_level,
        node_settings=dict(_parse_setting(text) for text in setting or ()),
    )
    report = replay_scenario.run(parameters, directory=directory, keep=keep)
    finish(report, json, f"replay: {log_mib} MiB of messages of {payload} B, file sync level {file_sync_level}")


@app.command(name="time-travel")
def time_travel(
    messages: Annotated[int, typer.Option(help="Messages in the log.")] = 2_000_000,
    payload: PayloadOption = 32,
    snapshots: Annotated[int, typer.Option(help="Snapshots in it, at equal distances.")] = 4,
    rounds: Annotated[int, typer.Option(help="Rounds; the median counts.")] = 3,
    spark: Annotated[bool, typer.Option(help="Measure Spark's executors, too.")] = True,
    directory: DirectoryOption = None,
    keep: KeepOption = False,
    json: JsonOption = None,
) -> None:
    """A log is replayed to a service without a cluster: messages a second for state, outputs, what-if, verification."""
    parameters = TimeTravelParameters(
        messages=messages, payload=payload, snapshots=snapshots, rounds=rounds, with_spark=spark
    )
    report = time_travel_scenario.run(parameters, directory=directory, keep=keep)
    finish(report, json, f"time-travel: {messages} messages of {payload} B, {snapshots} snapshots")


@app.command()
def catchup(
    missed_mib: Annotated[int, typer.Option(help="How much the member has missed, in MiB.")] = 1024,
    missed_payload: Annotated[int, typer.Option(help="Bytes in a message of that.")] = 1024,
    rate: Annotated[float, typer.Option(help="Messages of 32 bytes a second, offered meanwhile.")] = 100_000,
    seconds: Annotated[float, typer.Option(help="For how long, with the member away and again with it back.")] = 10.0,
    file_sync_level: SyncOption = 1,
    tls: TlsOption = False,
    setting: SettingOption = None,
    directory: DirectoryOption = None,
    keep: KeepOption = False,
    json: JsonOption = None,
) -> None:
    """A member comes back to a busy cluster: megabytes a second of its catch-up, and what clients feel of it."""
    parameters = CatchupParameters(
        missed_mib=missed_mib,
        missed_payload=missed_payload,
        rate=rate,
        seconds=seconds,
        file_sync_level=file_sync_level,
        tls=tls,
        node_settings=dict(_parse_setting(text) for text in setting or ()),
    )
    report = catchup_scenario.run(parameters, directory=directory, keep=keep)
    finish(report, json, f"catchup: {missed_mib} MiB missed, {rate:,.0f} msg/s, file sync level {file_sync_level}")


@app.command()
def scan(
    only: Annotated[
        str, typer.Option(help="What to vary, with commas: payload, inflight, members, sessions, shared, log; all.")
    ] = "",
    seconds: Annotated[float, typer.Option(help="For how long each point is measured.")] = ScanParameters().seconds,
    rounds: Annotated[int, typer.Option(help="Rounds; of each point the one with the median rate counts.")] = 1,
    payloads: Annotated[str, typer.Option(help="Bytes in a message.")] = _joined(ScanParameters().payloads),
    inflights: Annotated[str, typer.Option(help="Messages in flight.")] = _joined(ScanParameters().inflights),
    members: Annotated[str, typer.Option(help="Members of the cluster.")] = _joined(ScanParameters().members),
    sessions: Annotated[str, typer.Option(help="Client sessions.")] = _joined(ScanParameters().sessions),
    log_mibs: Annotated[str, typer.Option(help="MiB of log behind a member.")] = _joined(ScanParameters().log_mibs),
    inflight: Annotated[
        int, typer.Option(help="Messages in flight where something else is varied.")
    ] = ScanParameters().inflight,
    file_sync_level: SyncOption = 1,
    setting: SettingOption = None,
    directory: DirectoryOption = None,
    keep: KeepOption = False,
    json: JsonOption = None,
) -> None:
    """How cost grows with payload, messages in flight, members, client sessions and log length, one at a time."""
    parameters = ScanParameters(
        only=scan_scenario.parse_dimensions(only),
        seconds=seconds,
        rounds=rounds,
        payloads=parse_numbers("payloads", payloads),
        inflights=parse_numbers("inflights", inflights),
        members=parse_numbers("members", members),
        sessions=parse_numbers("sessions", sessions),
        log_mibs=parse_numbers("log_mibs", log_mibs),
        inflight=inflight,
        file_sync_level=file_sync_level,
        node_settings=dict(_parse_setting(text) for text in setting or ()),
    )
    report = scan_scenario.run(parameters, directory=directory, keep=keep)
    scan_scenario.print_points(report)
    if json is not None:
        write_json(report, json)


@app.command()
def profile(
    members: MembersOption = 3,
    payload: PayloadOption = 32,
    inflight: Annotated[
        int | None, typer.Option(help="Messages in flight: 1024, or one for each of the sessions.")
    ] = None,
    sessions: Annotated[
        int | None, typer.Option(help="Sessions that they go round, each on its own connections; one if not given.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Each of the four runs.")] = ProfileParameters().seconds,
    file_sync_level: SyncOption = 1,
    setting: SettingOption = None,
    directory: DirectoryOption = None,
    keep: KeepOption = False,
    json: JsonOption = None,
) -> None:
    """Where each microsecond of leader, follower and client goes at peak: by stage, with perf and py-spy."""
    parameters = ProfileParameters(
        members=members,
        payload=payload,
        inflight=inflight or sessions or ProfileParameters().inflight,
        sessions=sessions,
        seconds=seconds,
        file_sync_level=file_sync_level,
        node_settings=dict(_parse_setting(text) for text in setting or ()),
    )
    report = profile_scenario.run(parameters, directory=directory, keep=keep)
    profile_scenario.print_profile(report)
    if json is not None:
        write_json(report, json)


@app.command()
def table(
    rounds: Annotated[int, typer.Option(help="Rounds of the echo and request rows; medians count.")] = 3,
    compare_rounds: Annotated[int, typer.Option(help="Rounds of the comparison with peers; 0: none.")] = 1,
    log_mib: Annotated[int, typer.Option(help="Length of the logs to replay and to catch up with, in MiB.")] = 1024,
    directory: DirectoryOption = None,
    keep: KeepOption = False,
    json: JsonOption = None,
) -> None:
    """Every row of the targets: measured, target, reached."""
    parameters = TableParameters(rounds=rounds, compare_rounds=compare_rounds, log_mib=log_mib)
    report = table_scenario.run(parameters, directory=directory, keep=keep)
    table_scenario.print_targets(report)
    if json is not None:
        write_json(report, json)


@app.command()
def report(
    files: Annotated[list[Path], typer.Argument(help="JSON files of any scenarios.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The page.")],
    title: Annotated[str | None, typer.Option(help="What stands above it.")] = None,
) -> None:
    """One page for a browser from JSON files: latencies, rates, cost and its growth, peers, profile, targets."""
    from .page.building import build_page  # here: matplotlib takes a second to load, and an extra to have

    output.write_text(build_page(files, title=title), encoding="utf-8")
    print(output)


@app.command()
def performance() -> None:
    """Write docs/performance.md and its plots from benchmarks/results/*.json."""
    from .page import performance_page  # here: matplotlib takes a second to load, and an extra to have

    performance_page.write_page()
    print(performance_page.PAGE)


@app.command()
def archive(
    mib: Annotated[int, typer.Option(help="Length of each recording that is read, in MiB.")] = 128,
    rounds: Annotated[int, typer.Option(help="Rounds; in each every reader reads every recording.")] = 7,
    verify_mib: Annotated[int, typer.Option(help="Length of the recording that is verified; 0: none.")] = 1024,
    directory: DirectoryOption = None,
    keep: KeepOption = False,
    json: JsonOption = None,
) -> None:
    """Recordings are scanned and verified: bytes and frames a second of one core, beside zlib.crc32."""
    parameters = ArchiveParameters(mib=mib, rounds=rounds, verify_mib=verify_mib)
    report = archive_scenario.run(parameters, directory=directory, keep=keep)
    finish(report, json, f"archive: {mib} MiB each of frames of {', '.join(archive_scenario.SHAPES)}, page cache warm")


@app.command()
def spark(
    mib: Annotated[int, typer.Option(help="Length of the log, in MiB.")] = 1024,
    rounds: Annotated[int, typer.Option(help="Rounds that count; in each every query is asked in every way.")] = 5,
    only: Annotated[str, typer.Option(help="Queries, with commas between; all unless told.")] = "",
    directory: DirectoryOption = None,
    keep: KeepOption = False,
    json: JsonOption = None,
) -> None:
    """A log through Spark's data source, beside the same rows from Parquet: all columns, few, filters, typed."""
    names = tuple(name.strip() for name in only.split(",") if name.strip())
    parameters = SparkParameters(mib=mib, rounds=rounds, only=names)
    report = spark_scenario.run(parameters, directory=directory, keep=keep)
    finish(report, json, f"spark: {mib} MiB, local[2], page cache warm, {rounds} rounds")


@app.command()
def stream(
    rates: Annotated[str, typer.Option(help="Messages a second, with commas; a run for each.")] = "1000,20000",
    seconds: Annotated[int, typer.Option(help="Seconds that are measured, for each rate.")] = 30,
    warmup_seconds: Annotated[int, typer.Option(help="Seconds before them, at the same rate.")] = 15,
    members: MembersOption = 3,
    payload: PayloadOption = 32,
    directory: DirectoryOption = None,
    keep: KeepOption = False,
    json: JsonOption = None,
) -> None:
    """A Spark query follows a live log: how long after the leader took a message it is in the sink."""
    parameters = StreamParameters(
        rates=parse_numbers("rates", rates),
        seconds=seconds,
        warmup_seconds=warmup_seconds,
        members=members,
        payload=payload,
    )
    report = stream_scenario.run(parameters, directory=directory, keep=keep)
    finish(report, json, f"stream: {members} members, messages of {payload} B, {seconds} s at each rate")


def main() -> None:
    """Run the command; a failure is one line on standard error."""
    # Ending in order, with every child, is what Ctrl-C does; SIGTERM is to do the same.
    signal.signal(signal.SIGTERM, _interrupt)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    try:
        app()
    except (ClusterError, BaseExceptionGroup) as error:
        leaf = first_leaf(error)
        if not isinstance(leaf, ClusterError):
            raise
        print(f"benchmarks: {leaf}", file=sys.stderr)
        sys.exit(2 if isinstance(leaf, ConfigurationError) else 1)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _parse_setting(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise ConfigurationError(f"setting={text!r} expected name=value")
    return name.strip().replace("-", "_"), value.strip()


def _parse_kind(text: str) -> FaultKind:
    try:
        return FaultKind(text.strip())
    except ValueError as error:
        raise ConfigurationError(f"kinds={text!r} expected some of {','.join(FaultKind)}") from error


def _echo_title(parameters: EchoParameters) -> str:
    load = f"{parameters.inflight} in flight" if parameters.rate is None else f"{parameters.rate:g} msg/s"
    return (
        f"echo: {parameters.members} members, {parameters.clients} client(s), {parameters.payload} B, {load},"
        f" file sync level {parameters.file_sync_level}"
    )
