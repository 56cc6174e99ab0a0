"""Signals that ask a process to stop: all of them are heard, also by the first process of a container."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.waiting import patient, within
from trimaran.service_api.stop_signals import on_stop_signal

FIRST_PROCESS = """
import signal, subprocess, sys
from trimaran.service_api.process_start import end_first_process_on_signals
end_first_process_on_signals()
subprocess.Popen(["sh", "-c", f"kill -{sys.argv[1]} $PPID"])
while True:
    signal.pause()
"""


@pytest.fixture
def hangup() -> Iterator[None]:
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_each_signal_is_heard(number: signal.Signals, hangup: None) -> None:
    heard = asyncio.Event()
    on_stop_signal(heard.set)

    signal.raise_signal(number)

    async with within(10.0):
        await heard.wait()


async def test_a_process_that_outlives_its_terminal_stays_so(hangup: None) -> None:
    """`nohup` has SIGHUP ignored."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    on_stop_signal(lambda: None)

    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_first_process_of_a_container_ends_before_it_has_a_loop(number: signal.Signals) -> None:
    """The kernel ignores a signal that the first process has no handler for."""
    unshare = shutil.which("unshare")
    prefix = [unshare or "unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    if unshare is None or subprocess.run([*prefix, "true"], check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("this machine makes no namespaces of process ids: install util-linux, and allow user namespaces")

    ended = subprocess.run(
        [*prefix, sys.executable, "-c", FIRST_PROCESS, str(number.value)], timeout=patient(20.0), check=False
    )

    assert ended.returncode == 128 + number
