"""docs/migrating-from-aeron.md runs as it is printed: import, start, ask, stop; with what a real Aeron Cluster left."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from benchmarks.processes import find_base_ports
from cluster.config import NodeConfig
from tests.system.directory_checker import check_directory
from tests.system.test_operations_guide import MARK, as_script, leave_nothing_behind, plain, steps_of

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "migrating-from-aeron.md"
SAMPLE = ROOT / "tests" / "data" / "aeron" / "three-node-failover.tar.gz"
PORTS = ("9000", "9100", "9200")
DEADLINE_S = 150


def with_free_ports(text: str) -> str:
    for printed, free in zip(PORTS, find_base_ports(len(PORTS)), strict=True):
        text = text.replace(f"127.0.0.1:{printed}", f"127.0.0.1:{free}")
    return text


def lay_out(directory: Path) -> None:
    """Make what the page shows: the files with a name in their first line, and what the cluster left."""
    text = with_free_ports(GUIDE.read_text())
    for name, body in re.findall(r"```\w+\n# (\S+)\n(.*?)```", text, flags=re.DOTALL):
        (directory / name).write_text(body)
    with tarfile.open(SAMPLE) as archive:
        archive.extractall(directory, filter="data")
    (directory / "three-node-failover").rename(directory / "aeron")


@pytest.mark.slow
def test_the_import_goes_as_the_page_says(tmp_path: Path) -> None:
    lay_out(tmp_path)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("QUORATE_")}
    environment = clean | {"PATH": f"{Path(sys.executable).parent}:{clean['PATH']}", "COLUMNS": "160"}
    environment["PYTHONPATH"] = str(ROOT)
    wanted = steps_of(GUIDE)

    with (tmp_path / "output").open("wb") as output:
        shell = subprocess.Popen(
            ["bash", "-m", "-c", as_script(wanted)],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            shell.wait(DEADLINE_S)
        finally:
            leave_nothing_behind(shell)

    text = (tmp_path / "output").read_text()
    parts = re.split(rf"{MARK} (\d+)\n", text)
    assert len(parts) // 2 == len(wanted), text
    for step, printed, status in zip(wanted, parts[0::2], parts[1::2], strict=False):
        assert status == "0", f"{step.command}\n{printed}"
        for line in step.lines:
            found = (plain(line) in plain(printed_line) for printed_line in printed.splitlines())
            assert any(found), f"{step.command}\n{printed}"
    assert "1009 messages, 353630 bytes" in text  # what the sample's log holds, and one of five bytes
    for member_id in range(3):
        assert check_directory(tmp_path / "data" / f"node-{member_id}", stopped=False).snapshots


def test_the_page_names_settings_that_there_are() -> None:
    """In the table of system properties, every name on the right is a setting."""
    rows = re.findall(r"^\| [^|]*`aeron\.[^|]*\|([^|]*)\|$", GUIDE.read_text(), flags=re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)}

    assert len(named) >= 15
    assert named - NodeConfig.model_fields.keys() == {"cluster", "archive"}
