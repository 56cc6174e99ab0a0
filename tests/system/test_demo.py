"""`trimaran demo` as a user runs it: three processes, a kill, every reply checked, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.system.forked_command import commands_on_path
from tests.system.guide import SHORT_LOGS
from tests.waiting import patient, wait_blocking
from trimaran.cluster.cli.demo.recordings import are_identical, find_log_recording
from trimaran.cluster.settings.variables import clean_environment

pytestmark = pytest.mark.slow

TIMEOUT_S = 170.0


@pytest.fixture
def requests_file(tmp_path: Path) -> Path:
    """4,000 requests of 40 hosts in 200 seconds."""
    file = tmp_path / "requests.tsv"
    rows = [f"host-{i * 7 % 40}\t{807256800 + i // 20}\t/page/{i}" for i in range(4_000)]
    file.write_text("\n".join(["host\ttime\turl", *rows]) + "\n")
    return file


@pytest.fixture
def demos() -> Iterator[list[subprocess.Popen[str]]]:
    """Demos that a test starts; killed by pid if the test leaves them."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        with process:
            process.kill()


REAL: Final = (sys.executable, "-m", "trimaran")
"""The command as a user starts it; other tests have it forked, with its members, as the guides have."""


def demo_command(*arguments: str | Path) -> list[str]:
    return [*REAL, "demo", *map(str, arguments)]


def run_demo(tmp_path: Path, *arguments: str | Path, command: Sequence[str] | None = None) -> dict[str, object]:
    """Run a demo to its end; the figures it wrote."""
    report = tmp_path / "report.json"
    started = command or [str(commands_on_path() / "trimaran")]
    result = subprocess.run(
        [*started, "demo", "--json", report, "--dir", tmp_path / "data", *arguments],
        capture_output=True,
        text=True,
        timeout=patient(TIMEOUT_S),
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    figures: dict[str, object] = json.loads(report.read_text())
    return figures


def test_the_cluster_survives_the_death_of_its_leader(tmp_path: Path, requests_file: Path) -> None:
    figures = run_demo(tmp_path, "--requests", requests_file, "--inflight", "256", command=REAL)

    leaders = figures["leaders"]
    assert (figures["requests"], figures["replies"]) == (4_000, 4_000)
    assert figures["allowed"] != 0
    assert figures["denied"] != 0
    assert figures["recordings_identical"] is True
    assert isinstance(leaders, list)
    assert len({leader["term"] for leader in leaders}) >= 2
    assert leaders[0]["member_id"] != leaders[-1]["member_id"]
    assert isinstance(figures["failover_ms"], float)
    assert figures["data_dir"] == str(tmp_path / "data")


def test_a_demo_with_tls_survives_the_death_of_its_leader(tmp_path: Path, requests_file: Path) -> None:
    figures = run_demo(tmp_path, "--requests", requests_file, "--inflight", "256", "--tls")

    assert (figures["requests"], figures["replies"]) == (4_000, 4_000)
    assert figures["recordings_identical"] is True
    assert (tmp_path / "data" / "certs" / "member-2.pem").is_file()


def form_cluster(directory: Path, environment: dict[str, str]) -> str:
    """Run `up` until every member has written which cluster it is of: the id."""
    files = [directory / f"node-{member_id}" / "cluster" / "cluster-id" for member_id in range(3)]
    command = [str(commands_on_path() / "trimaran"), "up", "--dir", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as up:
        try:
            wait_blocking(
                lambda: (
                    up.poll() is not None or all(file.exists() and file.read_text().strip() for file in files) or None
                ),
                timeout_s=TIMEOUT_S,
                what="a cluster id of each member",
            )
            assert up.poll() is None, "up has ended"
        finally:
            up.send_signal(signal.SIGINT)
    return files[0].read_text().split()[0]


def test_a_development_cluster_with_tls_is_the_same_cluster_when_it_starts_again(tmp_path: Path) -> None:
    """The first start is in plain text: the certificates that come later name the cluster that there is."""
    directory, environment = tmp_path / "up", {**clean_environment(), **SHORT_LOGS}

    def run(*arguments: str | Path) -> str:
        command = [commands_on_path() / "trimaran", *arguments]
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=patient(TIMEOUT_S), check=False, env=environment
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    cluster_id = form_cluster(directory, environment)
    introduction = run("up", "--once", "--tls", "--dir", directory)
    assert "TRIMARAN_TLS_CERTIFICATE=" in introduction
    (shown,) = json.loads(run("certs", "show", directory / "certs" / "member-1.pem", "-o", "json"))
    assert shown["identities"] == [f"trimaran://{cluster_id}/member/1"]
    run("up", "--once", "--dir", directory)  # it has certificates, and uses them


def test_the_real_requests_get_the_replies_of_a_single_process(tmp_path: Path) -> None:
    """The day's totals, which follow from the rule and the data alone."""
    figures = run_demo(tmp_path)

    assert (figures["requests"], figures["allowed"], figures["denied"]) == (30_969, 29_954, 1_015)


def test_without_a_kill_one_leader_leads_and_every_member_records_the_same(tmp_path: Path, requests_file: Path) -> None:
    figures = run_demo(tmp_path, "--requests", requests_file, "--no-kill-leader", "--file-sync-level", "0")

    recordings = [find_log_recording(tmp_path / "data" / f"node-{i}") for i in range(3)]
    assert figures["failover_ms"] is None
    assert len(figures["leaders"]) == 1  # type: ignore[arg-type]  # a list, or the test is right to fail
    assert are_identical(recordings)


@pytest.mark.parametrize(("signal_number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_demo_leaves_no_process_behind(
    tmp_path: Path, demos: list[subprocess.Popen[str]], signal_number: signal.Signals, status: int
) -> None:
    demo = subprocess.Popen(
        demo_command("--dir", tmp_path / "data", "--inflight", "1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )
    demos.append(demo)
    assert demo.stdout is not None
    pids = []
    for line in demo.stdout:
        if line.startswith("node"):
            pids.append(int(line.split()[4]))
        if line.startswith("leader"):
            break

    demo.send_signal(signal_number)
    demo.communicate(timeout=patient(TIMEOUT_S))

    assert demo.returncode == status
    assert len(pids) == 3
    assert [pid for pid in pids if is_running(pid)] == []


def is_running(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be collected does not."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"


def test_a_directory_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "something").write_text("")

    result = subprocess.run(
        demo_command("--dir", tmp_path), capture_output=True, text=True, timeout=patient(60), check=False
    )

    assert result.returncode == 2
    assert "not empty" in result.stderr
