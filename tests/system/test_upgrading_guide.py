"""docs/upgrading.md is walked: its commands on one host after the other, with real members, to a raised level."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

import pytest

from tests.facts import has_facts
from tests.places import ROOT
from tests.system.commands import run_trimaran
from tests.system.guide import Step, steps_of
from tests.system.test_code_versions import SumCluster
from tests.system.test_feature_level import NEW
from tests.system.test_operations import ordered

pytestmark = pytest.mark.slow

STEPS: Final = steps_of(ROOT / "docs" / "upgrading.md")


class Host:
    """One host: its service manager and its packages are the test's, `trimaran` is real."""

    def __init__(self, cluster: SumCluster, member_id: int) -> None:
        self.cluster, self.member_id = cluster, member_id
        self.accepted = ""

    async def run(self, step: Step) -> None:
        """Do what the page says, and keep what was printed in the step."""
        words = shlex.split(step.command, comments=True)
        cluster = self.cluster
        if words[:2] == ["systemctl", "stop"]:
            cluster.members[self.member_id].terminate()
            step.status = await cluster.members[self.member_id].wait_exit()
        elif words[:2] == ["pip", "install"]:
            cluster.write(NEW)
            step.status = 0
        elif words[:2] == ["systemctl", "start"]:
            settings = cluster.processes.settings
            cluster.processes.settings = {**settings, "accept_code": self.accepted}
            cluster.start(self.member_id)
            step.status = 0
        elif words[:2] == ["trimaran", "code"]:
            printed = await run_trimaran(
                "code", "--service", "sum_service:Sum", "--service-dir", str(cluster.code_directory)
            )
            step.printed, step.status = printed.output, printed.exit_status
            (self.accepted,) = re.findall(r"--accept-code (\w+)", printed.output)
        else:
            assert words[0] == "trimaran", step.command
            members = ",".join(f"{number}={endpoint}" for number, endpoint in enumerate(cluster.endpoints))
            filled = [members if word == "$members" else word for word in words[1:]]
            printed = await run_trimaran(*filled)
            step.printed, step.status = printed.output, printed.exit_status


def steps_between(begin: str, end: str) -> list[Step]:
    """Give new steps of the page: from the first command that begins so to the next one that ends so."""
    first = next(number for number, step in enumerate(STEPS) if step.command.startswith(begin))
    last = next(number for number, step in enumerate(STEPS) if number >= first and end in step.command)
    return [Step(step.command) for step in STEPS[first : last + 1]]


async def test_the_upgrade_goes_as_the_page_says_host_by_host_and_the_level_is_raised(data_dir: Path) -> None:
    """The page waited for health, which members with different code never had."""
    async with SumCluster(data_dir) as cluster:
        leader_id = (await cluster.wait_for_leader()).leader_member_id
        assert await cluster.add(3, 4) == [3, 7]
        hosts = [Host(cluster, member_id) for member_id in sorted(range(3), key=leader_id.__eq__)]

        for number, host in enumerate(hosts):
            for step in steps_between("trimaran health", "--wait"):
                await host.run(step)
                assert step.status == 0, f"{step.command}\n{step.printed}"
            assert has_facts(step.printed, "healthy: ", "3 of 3 members")
            assert ("upgrade in progress" in step.printed) is (number < 2), step.printed
        assert await cluster.add(1) == [8]
        for step in steps_between("trimaran feature-level show", "feature-level raise"):
            await hosts[0].run(step)
            assert step.status == 0, f"{step.command}\n{step.printed}"

        assert await cluster.add(1) == [18]
        assert await cluster.totals() == [18, 18, 18]
        report = await ordered(cluster, "health")
        assert (report["is_healthy"], report["upgrade"]) == (True, None)
