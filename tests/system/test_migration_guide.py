"""docs/migrating-from-aeron.md runs as it is printed: import, start, ask, stop; with what a real Aeron Cluster left."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.places import ROOT
from tests.system.directory_checker import check_directory
from tests.system.guide import run_guide
from tests.unit.archive.streams import extract_sample
from trimaran.benchmarks.rig.processes import find_base_ports
from trimaran.cluster.settings.config import NodeConfig

GUIDE = ROOT / "docs" / "migrating-from-aeron.md"
PORTS = ("9000", "9100", "9200")


def with_free_ports(text: str) -> str:
    for printed, free in zip(PORTS, find_base_ports(len(PORTS)), strict=True):
        text = text.replace(f"127.0.0.1:{printed}", f"127.0.0.1:{free}")
    return text


def lay_out(directory: Path) -> None:
    """Make what the page shows: the files with a name in their first line, and what the cluster left."""
    text = with_free_ports(GUIDE.read_text())
    for name, body in re.findall(r"```\w+\n# (\S+)\n(.*?)```", text, flags=re.DOTALL):
        (directory / name).write_text(body)
    extract_sample("three-node-failover", directory).rename(directory / "aeron")
    (extract_sample("cluster-backup", directory) / "node0").rename(directory / "aeron-backup")


@pytest.mark.slow
def test_the_import_goes_as_the_page_says(tmp_path: Path) -> None:
    lay_out(tmp_path)

    steps = run_guide(GUIDE, tmp_path, PYTHONPATH=str(ROOT))

    for step in steps:
        step.check()
    printed = "".join(step.printed for step in steps)
    assert "1009 messages, 353630 bytes" in printed  # what the sample's log holds, and one of five bytes
    for member_id in range(3):
        assert check_directory(tmp_path / "data" / f"node-{member_id}", stopped=False).snapshots


def test_the_page_names_settings_that_there_are() -> None:
    """In the table of system properties, every name on the right is a setting."""
    rows = re.findall(r"^\| [^|]*`aeron\.[^|]*\|([^|]*)\|$", GUIDE.read_text(), flags=re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)}

    assert len(named) >= 15
    assert named - NodeConfig.model_fields.keys() == {"cluster", "archive"}
