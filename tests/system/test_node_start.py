"""`trimaran node` refuses what cannot work: one clear line, exit status 2."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interchange.live_marks import lay_out
from tests.system.commands import run_trimaran_blocking
from tests.unit.archive.streams import extract_sample
from tests.waiting import patient
from trimaran.benchmarks.rig.processes import find_base_ports
from trimaran.cluster.cli.shared.examples import examples_directory

pytestmark = pytest.mark.slow

TIMEOUT_S = 60.0


class NodeRunner:
    """Starts single-member nodes on free ports, and ends them by pid."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started: list[subprocess.Popen[str]] = []
        self.base_port = find_base_ports(1)[0]

    def command(self, **changes: str) -> list[str]:
        settings = {
            "member-id": "0",
            "members": f"0=127.0.0.1:{self.base_port}",
            "directory": str(self._directory / "node"),
            "service": "access_quota:AccessQuota",
            "service-dir": str(examples_directory()),
            "term-length-bytes": "1MiB",
            "segment-length-bytes": "1MiB",
            "log-format": "json",
        } | {name.replace("_", "-"): value for name, value in changes.items()}
        flags = [part for name, value in settings.items() for part in (f"--{name}", value)]
        return ["node", *flags]

    def start(self) -> subprocess.Popen[str]:
        """Start a node and wait until it says so."""
        process = subprocess.Popen(
            [sys.executable, "-m", "trimaran", *self.command()], stderr=subprocess.PIPE, text=True
        )
        self._started.append(process)
        assert process.stderr is not None
        for line in process.stderr:
            if "node.started" in line:
                return process
        raise AssertionError("the node did not start")

    def refusal(self, exit_status: int = 2, /, **changes: str) -> str:
        """Run a node that is refused; gives its one message: an event of the log, or a line where it has none yet."""
        result = run_trimaran_blocking(*self.command(**changes))
        lines = result.errors.splitlines()
        said = [line.removeprefix("trimaran: ") for line in lines if line.startswith("trimaran: ")]
        events = [json.loads(line) for line in lines if line.startswith("{")]
        said += [event["reason"] for event in events if event["event"] == "node.failed"]
        assert result.exit_status == exit_status, result.errors
        assert len(said) == 1, result.errors
        assert len(events) in (0, len(lines)), result.errors
        return said[0]

    def close(self) -> None:
        for process in self._started:
            with process:
                process.kill()


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[NodeRunner]:
    found = NodeRunner(tmp_path)
    yield found
    found.close()


def test_a_directory_in_use_is_refused_with_the_owners_pid(runner: NodeRunner) -> None:
    owner = runner.start()

    line = runner.refusal(members=f"0=127.0.0.1:{find_base_ports(1)[0]}")

    assert f"owner_pid={owner.pid}" in line


@pytest.mark.parametrize("layout", ["not understood", "behind a link to nowhere"])
def test_a_directory_that_aeron_may_use_is_refused_and_not_changed(
    runner: NodeRunner, tmp_path: Path, layout: str
) -> None:
    """The node wrote into the log of a live Aeron, whose mark files it did not know.

    Those that say a time are tested in tests/interchange/test_live_directories.py, within one process.
    """
    directory, marks = extract_sample("single-node", tmp_path) / "node0", tmp_path / "marks"
    lay_out(directory, layout, marks)
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}

    line = runner.refusal(directory=str(directory))

    assert "in use" in line
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before


def test_a_port_in_use_is_named(runner: NodeRunner, tmp_path: Path) -> None:
    runner.start()

    line = runner.refusal(1, directory=str(tmp_path / "other"))  # a supervisor tries again

    assert f"127.0.0.1:{runner.base_port}" in line
    assert "in use" in line.lower()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"service": "absent:AccessQuota"}, "service module not found: module=absent"),
        ({"service": "access_quota:Absent"}, "service class not found: service=access_quota:Absent"),
        ({"members": "0=127.0.0.1"}, "bad endpoint: endpoint='127.0.0.1': it has no port; expected host:port"),
        ({"members": "1=127.0.0.1:9000"}, "own id is not in members: member_id=0 expected one of [1]"),
        ({"config": "absent.toml"}, "config file cannot be read: file=absent.toml"),
    ],
)
def test_a_mistake_is_one_clear_line(runner: NodeRunner, changes: dict[str, str], expected: str) -> None:
    assert expected in runner.refusal(**changes)


def test_a_config_that_is_not_toml_is_one_clear_line(runner: NodeRunner, tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("member_id = = 0\n")

    assert "TOML" in runner.refusal(config=str(file))


def test_a_stopped_node_ends_well_and_its_directory_can_be_used_again(runner: NodeRunner) -> None:
    first = runner.start()
    first.send_signal(signal.SIGTERM)

    assert first.wait(patient(TIMEOUT_S)) == 0
    second = runner.start()
    assert second.poll() is None
