"""The table of planted bugs, and the command that finds them.

    python -m tests.simulation.plants [--seeds N] [--jobs N] [--only NAME,...] [--markdown FILE]

For each plant, whole runs of the simulator are tried seed after seed until one breaks a rule; the control, without a
plant, must break none. Exit status 1 if a plant is not found, or the control finds something.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Final

from . import (
    action_plants,
    backup_plants,
    bound_plants,
    careless_plants,
    code_plants,
    cold_plants,
    consensus_plants,
    digest_plants,
    group_plants,
    identity_plants,
    membership_plants,
    query_plants,
    relay_plants,
    repair_plants,
    request_plants,
    retention_plants,
    service_plants,
    snapshot_plants,
    standby_plants,
    storage_plants,
)
from .plant import CHECKLIST, Plant

PLANTS: Final[tuple[Plant, ...]] = tuple(
    sorted(
        (
            *consensus_plants.PLANTS,
            *digest_plants.PLANTS,
            *group_plants.PLANTS,
            *identity_plants.PLANTS,
            *membership_plants.PLANTS,
            *storage_plants.PLANTS,
            *repair_plants.PLANTS,
            *service_plants.PLANTS,
            *snapshot_plants.PLANTS,
            *standby_plants.PLANTS,
            *action_plants.PLANTS,
            *backup_plants.PLANTS,
            *cold_plants.PLANTS,
            *bound_plants.PLANTS,
            *query_plants.PLANTS,
            *relay_plants.PLANTS,
            *retention_plants.PLANTS,
            *request_plants.PLANTS,
            *code_plants.PLANTS,
            *careless_plants.PLANTS,
        ),
        key=lambda plant: plant.class_number,
    )
)
"""Every plant, by class."""


def main() -> int:
    """Run the command."""
    from .report import Report

    parser = argparse.ArgumentParser(prog="python -m tests.simulation.plants", description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=2_000, help="the most seeds to try for each plant")
    parser.add_argument(
        "--control-seeds", type=int, help="seeds of the control; as many as a plant needed, unless given"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="worker processes")
    parser.add_argument("--only", default="", help="names of plants, or class numbers, with commas; no control then")
    parser.add_argument("--markdown", type=Path, help="write the table for the docs into this file")
    arguments = parser.parse_args()
    wanted = {name for name in arguments.only.split(",") if name}
    chosen = [plant for plant in PLANTS if not wanted or plant.name in wanted or str(plant.class_number) in wanted]
    unknown = wanted - {plant.name for plant in PLANTS} - {str(number) for number in CHECKLIST}
    if unknown:
        parser.error(f"no plants of these names or classes: {', '.join(sorted(unknown))}")
    control_count = 0 if wanted else arguments.control_seeds
    return Report(chosen, arguments.seeds, control_count).run(arguments.jobs, arguments.markdown)


if __name__ == "__main__":
    # Under its own name, so that the workers and this process mean the same module.
    from tests.simulation import plants

    sys.exit(plants.main())
