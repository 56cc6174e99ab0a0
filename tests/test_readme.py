"""The README's service, client and commands run as they are printed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import ROOT
from tests.waiting import patient
from trimaran.benchmarks.rig.processes import find_base_ports

DEADLINE_S = 60


def blocks(language: str) -> list[str]:
    """Every fenced block of a language in the README, in order."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)


def on_free_ports(text: str, ports: dict[str, int]) -> str:
    for printed, free in ports.items():
        text = text.replace(f":{printed}", f":{free}")
    return text


def run_example(binaries: Path, directory: Path) -> None:
    """Run the service, the client and three nodes with the commands in a directory. Only the ports are exchanged."""
    ports = dict(zip(("9000", "9100", "9200"), find_base_ports(3), strict=True))
    service, client, *_ = blocks("python")
    (commands,) = blocks("bash")
    (directory / "counter.py").write_text(service)
    (directory / "count.py").write_text(on_free_ports(client, ports))
    environment = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}"}

    with (directory / "output").open("w") as output:
        shell = subprocess.Popen(
            ["bash", "-c", on_free_ports(commands, ports)],
            cwd=directory,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = shell.wait(patient(DEADLINE_S))
        finally:
            os.killpg(shell.pid, signal.SIGTERM)
            shell.wait()

    text = (directory / "output").read_text()
    assert status == 0, text
    totals = [int(total) for total in re.findall(r"^total (\d+)$", text, flags=re.MULTILINE)]
    assert totals == [1, 3, 6, 10, 15, 21, 28, 36, 45, 55]


@pytest.mark.slow
def test_the_readme_example_runs_as_printed(tmp_path: Path) -> None:
    run_example(Path(sys.executable).parent, tmp_path)


def test_the_readme_opens_with_the_two_commands() -> None:
    """One runs the main job, one passes the tests; both do all the set-up."""
    opening = blocks("console")[0].splitlines()

    assert [line.split("#")[0].strip() for line in opening] == ["make demo", "make test"]


def test_the_archive_example_runs_as_printed(tmp_path: Path) -> None:
    """With the command in front of it; only the port is exchanged for a free one."""
    example = blocks("python")[2]
    (command,) = re.findall(r"`trimaran (archive serve [^`]*)`", (ROOT / "README.md").read_text())
    arguments = command.replace("8010", "0").split()
    with subprocess.Popen(
        [Path(sys.executable).parent / "trimaran", *arguments, "--term-length=65536", "--segment-length=65536"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    ) as archive:
        try:
            assert archive.stdout is not None
            found = re.match(r"serving on 127\.0\.0\.1:(\d+) ", archive.stdout.readline())
            assert found is not None
            (tmp_path / "orders.py").write_text(example.replace("8010", found[1]))
            run = subprocess.run(
                [sys.executable, "orders.py"], cwd=tmp_path, capture_output=True, text=True, timeout=patient(DEADLINE_S)
            )
        finally:
            archive.send_signal(signal.SIGTERM)
            status = archive.wait(patient(DEADLINE_S))

    assert (run.stdout, run.stderr) == ("0 order 0\n64 order 1\n128 order 2\n", "")
    assert status == 0
