"""A load in a process of its own: it is started with parameters as JSON, and prints one line of JSON of `Measured`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from array import array
from collections.abc import Mapping
from dataclasses import asdict

from trimaran.service_api.errors import ClusterError

from ..statistics.histogram import Histogram
from .peer import Measured


def run_load_process(module: str, parameters: Mapping[str, object], *, timeout_s: float, what: str) -> Measured:
    """Run a module of this package as a process, and return what it measured.

    Raises:
        ClusterError: it failed; the error says what it printed last.
    """
    command = (sys.executable, "-m", f"trimaran.benchmarks.peers.{module}", json.dumps(parameters))
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        raise ClusterError(f"client of {what} failed: {last}")
    return Measured(**json.loads(done.stdout))


def print_measured(
    latencies_ns: array[int], *, count: int, took_ns: int, before: os.times_result, after: os.times_result
) -> None:
    """Print what a process measured, for `run_load_process`; `before` and `after` are its processor times."""
    latencies = Histogram()
    latencies.record_all(latencies_ns)
    cpu_s = after.user + after.system - before.user - before.system
    measured = Measured(
        count / (took_ns / 1e9),
        p50_us=latencies.percentile_ns(50.0) / 1e3,
        p99_us=latencies.percentile_ns(99.0) / 1e3,
        client_cpu_us=cpu_s * 1e6 / count,
    )
    print(json.dumps(asdict(measured)))
