"""docs/deploying.md runs as it is printed: members by name, restarted one by one, one more, and one less."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.places import ROOT
from tests.system.guide import run_guide
from trimaran.benchmarks.rig.processes import find_base_ports
from trimaran.cluster.cli.shared.examples import examples_directory


@pytest.mark.slow
def test_members_by_name_come_and_go_as_the_page_says(tmp_path: Path) -> None:
    port, service_dir = str(find_base_ports(1)[0]), str(examples_directory())

    for step in run_guide(ROOT / "docs" / "deploying.md", tmp_path, PORT=port, TRIMARAN_SERVICE_DIR=service_dir):
        step.check()
