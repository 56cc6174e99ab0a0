"""Compares the states of two replays at the end: declared state by value and field, others by their snapshots."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...service_api.typed.state_fields import compare_fields, read_fields
from .container import Bystander
from .replay import ReplayedService
from .snapshot_comparison import SnapshotComparison


@dataclass(slots=True)
class ComparedStates:
    """What came of a comparison of the states of all services."""

    is_compared: bool = False
    """Whether both sides write snapshots, of one service at least."""
    differences: list[str] = field(default_factory=list)
    uncompared: list[str] = field(default_factory=list)
    """Fields of declared state that one side has and the other has not, each with which side has it."""


def compare_states(old: ReplayedService, new: ReplayedService) -> ComparedStates:
    """Compare what the services of both sides would write into a snapshot now.

    Raises:
        Exception: what a service raises while it writes.
    """
    found = ComparedStates()
    for service_id, (before, after) in enumerate(zip(old.services, new.services, strict=True)):
        if isinstance(before, Bystander) or not (before.takes_snapshots and after.takes_snapshots):
            continue
        found.is_compared = True
        place = "" if len(old.services) == 1 else f"service {service_id}: "
        differences, uncompared = _compare(old, new, service_id)
        found.differences += [place + each for each in differences]
        found.uncompared += [place + each for each in uncompared]
    return found


def _compare(old: ReplayedService, new: ReplayedService, service_id: int) -> tuple[list[str], list[str]]:
    messages = old.snapshot_messages(service_id)
    before = read_fields(messages)
    after = None if before is None else read_fields(new.snapshot_messages(service_id))
    if before is not None and after is not None:
        fields = compare_fields(before, after, sides=("old", "new"))
        return fields.differences, [
            *(f"{name}: only the old code has it" for name in fields.only_expected),
            *(f"{name}: only the new code has it" for name in fields.only_actual),
        ]
    comparing = SnapshotComparison(iter(messages))
    new.write_snapshot(comparing, service_id)
    detail = comparing.finish()
    return ([] if detail is None else [f"in their snapshots {detail}"]), []
