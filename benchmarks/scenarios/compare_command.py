"""`python -m trimaran.benchmarks compare`."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

import typer

from ..options import DirectoryOption, JsonOption, KeepOption, PayloadOption, parse_numbers
from ..statistics.report import write_json
from . import compare as scenario
from .compare import ComparedWork, CompareParameters
from .compare_sessions import print_sessions

_DEFAULTS: Final = CompareParameters()


def compare(
    rounds: Annotated[int, typer.Option(help="In each, every system is started, loaded and stopped once.")] = 5,
    payload: PayloadOption = 32,
    depths: Annotated[str, typer.Option(help="Messages in flight, with commas: some of 1,64,1024.")] = "1,64,1024",
    sessions: Annotated[
        str,
        typer.Option(
            help="Clients with one message in flight of each, with commas, such as 100,1000,10000: instead of the "
            "depths. For kv besides them, 1000 if not given; 1 leaves it out."
        ),
    ] = "",
    processes: Annotated[
        int, typer.Option(help="Processes that make the load of many sessions, where it is made in Python.")
    ] = _DEFAULTS.processes,
    seconds: Annotated[float, typer.Option(help="How long a load of many sessions is measured.")] = _DEFAULTS.seconds,
    peers: Annotated[str, typer.Option(help="Only systems whose names contain one of these, with commas.")] = "",
    tls: Annotated[bool, typer.Option("--tls", help="Measure ourselves with TLS, too.")] = False,
    workload: Annotated[
        ComparedWork,
        typer.Option(help="messages: an echo of ours and writes of others; kv: put and get of ours, etcd and Redis."),
    ] = ComparedWork.MESSAGES,
    directory: DirectoryOption = None,
    keep: KeepOption = False,
    json: JsonOption = None,
) -> None:
    """Ourselves, etcd, ZooKeeper, NATS JetStream, PySyncObj and Redis, as far as installed: see `make peers`."""
    parameters = CompareParameters(
        rounds=rounds,
        payload=payload,
        depths=parse_numbers("depths", depths),
        peers=tuple(filter(None, peers.split(","))),
        tls=tls,
        workload=workload,
        sessions=parse_numbers("sessions", sessions) if sessions else (),
        processes=processes,
        seconds=seconds,
    )
    on_round = None if json is None else partial(write_json, path=json)
    report = scenario.run(parameters, directory=directory, keep=keep, on_round=on_round)
    if parameters.with_sessions:
        print_sessions(report)
        scenario.print_failures(report)
    else:
        scenario.print_comparison(report)
    scenario.check_ourselves(report)
