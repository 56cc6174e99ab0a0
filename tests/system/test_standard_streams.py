"""A member's standard streams decide nothing: not where its log goes, not whether anybody reads it."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.system.commands import run_trimaran
from tests.waiting import patient
from trimaran.benchmarks.rig.processes import find_base_ports
from trimaran.client.ready_made import KvClient
from trimaran.cluster.settings.variables import clean_environment

pytestmark = pytest.mark.slow

TIMEOUT_S = 60.0
CLIENT_COUNT = 30
"""Each is worth lines in the log, more than a small pipe holds."""


@contextmanager
def started(directory: Path, *prefix: str, port: int, stderr: int | None) -> Iterator[subprocess.Popen[bytes]]:
    """A member alone, killed when the block ends."""
    command = [
        *(*prefix, sys.executable, "-m", "trimaran", "node", "--member-id", "0", "--members", f"0=127.0.0.1:{port}"),
        *("--directory", str(directory), "--service", "trimaran.service_api.ready_made.kv:KvService"),
        *("--term-length-bytes", "1MiB", "--segment-length-bytes", "1MiB", "--log-format", "json"),
    ]
    with subprocess.Popen(command, env=clean_environment(), stderr=stderr) as process:
        try:
            yield process
        finally:
            process.kill()


async def expect_service(port: int) -> None:
    async with KvClient.connect([f"127.0.0.1:{port}"], connect_timeout_s=patient(TIMEOUT_S)) as kv:
        await kv.put("key", "value")


async def expect_an_end_in_order(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(patient(TIMEOUT_S)) == 0


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
async def test_a_member_that_was_started_with_closed_descriptors_ends_in_order(data_dir: Path, closed: str) -> None:
    """The event loop took the free number, and libuv aborted at the end: a supervisor started the member again."""
    (port,) = find_base_ports(1)
    with started(data_dir / "0", "sh", "-c", f'exec "$@" {closed}', "sh", port=port, stderr=None) as process:
        await expect_service(port)

        await expect_an_end_in_order(process)


@pytest.mark.parametrize("sink", ["reader gone", "nobody reads", "full device"])
async def test_a_member_goes_on_when_its_log_cannot_be_written(data_dir: Path, sink: str) -> None:
    """The first line that failed ended it, and all members of the machine at once."""
    (port,) = find_base_ports(1)
    with ExitStack() as stack:
        read, write = os.pipe()
        stack.callback(os.close, write)
        if sink == "nobody reads":
            fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
            stack.callback(os.close, read)
        elif sink == "reader gone":
            os.close(read)
        else:
            os.close(read)
            write = os.open("/dev/full", os.O_WRONLY)
            stack.callback(os.close, write)
        process = stack.enter_context(started(data_dir / "0", port=port, stderr=write))
        await expect_service(port)
        for _ in range(CLIENT_COUNT):
            await expect_service(port)

        await expect_an_end_in_order(process)

    errors = await run_trimaran("errors", str(data_dir / "0"), "-o", "json")
    assert "log.write_failed" in errors.output
