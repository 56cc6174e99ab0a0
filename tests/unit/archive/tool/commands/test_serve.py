"""`trimaran archive serve`: says where, keeps what was recorded over a restart, stops in order, refuses clearly."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.places import ROOT
from tests.system.commands import run_trimaran_blocking
from tests.tls import Issuer
from tests.waiting import patient
from trimaran.archive.errors import ArchiveError, ArchiveErrorCode
from trimaran.archive.net.client import ArchiveClient
from trimaran.service_api.access.identity import CallerRole
from trimaran.service_api.tls import TlsSettings

SMALL = ("--port=0", "--term-length=65536", "--segment-length=65536")


def run_refused(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a command that ends by itself."""
    arguments = ("archive", "serve", str(directory), *SMALL, *options)
    printed = run_trimaran_blocking(*arguments, PYTHONPATH=str(ROOT))
    return subprocess.CompletedProcess(arguments, printed.exit_status, printed.output, printed.errors)


@contextmanager
def running(directory: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A process that serves; ended by SIGTERM, and its exit status is 0."""
    with subprocess.Popen(
        [sys.executable, "-m", "trimaran.archive", "serve", str(directory), *SMALL, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        try:
            assert process.stdout is not None
            found = re.match(r"serving on (127\.0\.0\.1:\d+) directory=", process.stdout.readline())
            assert found is not None
            yield found[1], process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(patient(30))
    assert process.returncode == 0


async def test_recordings_outlast_the_process_and_are_stopped_in_order(tmp_path: Path) -> None:
    with running(tmp_path) as (endpoint, process):
        async with ArchiveClient.connect(endpoint) as client:
            with pytest.raises(ArchiveError, match=r"was stopped|connection lost"):  # noqa: PT012
                async with client.record("c", stream_id=7) as publication:
                    await publication.offer(b"kept")
                    await publication.recorded()
                    process.send_signal(signal.SIGTERM)
                    while True:
                        await publication.offer(b"more")
                        await publication.recorded()
            position = publication.recorded_position
        # A second signal may come when the process has put its handlers away, and would end it by itself.
        await asyncio.to_thread(process.wait, 30)

    with running(tmp_path, "--read-only") as (endpoint, _):
        async with ArchiveClient.connect(endpoint) as client:
            stop_position = await client.stop_position(0)
            payloads = [message.payload async for message in client.replay(0)]
            with pytest.raises(ArchiveError) as caught:
                async with client.record("c", stream_id=7):
                    pass

    assert caught.value.code is ArchiveErrorCode.UNAUTHORISED_ACTION
    assert stop_position is not None
    assert stop_position >= position
    assert payloads == [b"kept", *[b"more"] * (stop_position // 64 - 1)]


async def test_an_archive_is_served_over_tls(tmp_path: Path) -> None:
    issuer = Issuer.create(tmp_path / "certs")
    files = issuer.host("127.0.0.1")
    tls = [f"--tls-{name}={getattr(files, name)}" for name in ("authorities", "certificate", "key")]
    client = issuer.of(CallerRole.OPERATOR, "ops")

    with running(tmp_path / "archive", *tls, f"--cluster-id={issuer.cluster_id:016x}") as (endpoint, _):
        async with ArchiveClient.connect(endpoint, tls=replace(client, verify="name")) as archive:
            assert await archive.list_recordings() == []
        async with ArchiveClient.connect(endpoint, tls=TlsSettings(authorities=files.authorities)) as archive:
            with pytest.raises(ArchiveError, match=r"observer.*operator.*member"):
                await archive.list_recordings()
        with pytest.raises(ArchiveError, match="not a member"):
            async with ArchiveClient.connect(endpoint, tls=client):
                pass
        with pytest.raises(ArchiveError, match="connection lost"):
            async with ArchiveClient.connect(endpoint):
                pass


async def test_an_archive_that_knows_no_cluster_lets_its_authenticator_decide(tmp_path: Path) -> None:
    issuer = Issuer.create(tmp_path / "certs")
    files = issuer.host("127.0.0.1")
    tls = [f"--tls-{name}={getattr(files, name)}" for name in ("authorities", "certificate", "key")]

    with running(tmp_path / "archive", *tls) as (endpoint, _):
        async with ArchiveClient.connect(endpoint, tls=TlsSettings(authorities=files.authorities)) as archive:
            assert await archive.list_recordings() == []


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ("--read-only", "--host 203.0.113.1"),
        ("--cluster-id=3f9a0c12d45e77b1", "endpoint=203.0.113.1:0"),
        ("--authenticator=trimaran.service_api.authenticator:AcceptAll", "endpoint=203.0.113.1:0"),
    ],
)
def test_to_other_machines_an_archive_over_tls_is_served_only_where_callers_are_known(
    option: str, named: str, tmp_path: Path
) -> None:
    """The address belongs to nobody, so what is not refused fails to listen on it."""
    files = Issuer.create(tmp_path / "certs").host("203.0.113.1")
    tls = [f"--tls-{name}={getattr(files, name)}" for name in ("authorities", "certificate", "key")]

    run = run_refused(tmp_path / "archive", "--host=203.0.113.1", *tls, option)

    assert run.returncode == 2
    assert named in run.stderr


@pytest.mark.parametrize(
    ("options", "status", "named"),
    [
        (("--term-length=65537",), 2, "--term-length=65537"),
        (("--segment-length=100000",), 2, "--segment-length=100000"),
        (("--authenticator=nobody:Here",), 2, "--authenticator=nobody:Here"),
        (("--host=203.0.113.1", "--insecure-plaintext"), 2, "endpoint=203.0.113.1:0"),
        (("--host=0.0.0.0",), 2, "endpoint=0.0.0.0:"),
        (("--tls-authorities=nowhere.pem",), 2, "--tls-authorities without --tls-certificate and --tls-key"),
        (
            ("--tls-authorities=nowhere.pem", "--tls-certificate=c.pem", "--tls-key=k.pem"),
            2,
            "file=nowhere.pem",
        ),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(
    options: tuple[str, ...], status: int, named: str, tmp_path: Path
) -> None:
    run = run_refused(tmp_path, *options)

    assert run.returncode == status
    assert named in run.stderr
    assert "Traceback" not in run.stderr


def test_directory_in_use_is_refused(tmp_path: Path) -> None:
    with running(tmp_path):
        run = run_refused(tmp_path)

    assert run.returncode == 12
    assert "in use" in run.stderr
