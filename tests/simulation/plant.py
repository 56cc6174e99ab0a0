"""What a planted bug is: a rule of the product, broken on purpose while a simulation goes on.

A plant replaces functions or methods of the product for the time of one run; nothing in the product knows of it. Its
code says `planting.ran()` where it does other than the product would: a run that fails although nothing was ever done
wrong found something else, and does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from trimaran.cluster.testing.simulation.run import Options

CHECKLIST: Final = {
    1: "an entry is acknowledged before a majority has it durably",
    2: "a vote or a term is not durable",
    3: "a member goes on after a torn, short or failed write",
    4: "a sync error is ignored, or the sync is tried again",
    5: "corruption in the middle of the log is taken for its end",
    6: "a member with a corrupted or incomplete log leads",
    7: "an incomplete copy or snapshot counts as complete",
    8: "entries that match the leader's log are truncated",
    9: "a commit position goes back",
    10: "entries of an older term are committed by counting copies",
    11: "a truncation, an announcement or a snapshot takes a term or vote back",
    12: "off by one where a piece of the log ends",
    13: "a change of the members counts too late, or is not undone when the log is cut back",
    14: "changes of the members are made without the rules that make their majorities meet",
    15: "a member that returns disrupts the others",
    16: "a member counts, votes or leads that must not",
    17: "a member id is used again with an empty disk",
    18: "members of before are taken for those of now",
    19: "a client or service sees stale or uncommitted state after a change of leader",
    21: "a partition leaves a majority without a leader that can commit",
    22: "a message that a client sends again is applied twice, or lost",
    23: "the replies of a session are lost with a leader or in a snapshot",
    25: "a timer fires twice, never, or by a follower's clock",
    26: "a client accepts the reply of an old leader, or of another session",
    27: "a member crashes or loops forever on legal input",
    28: "one slow disk or member stalls the cluster",
    29: "memory grows without bound while a follower is down",
    31: "a replay differs from live delivery",
    32: "a restart of all members loses or reorders",
    33: "the disk is full",
    35: "a replay of the archive differs from the live order or time",
    36: "a backup is taken during a purge, or is not whole",
    37: "a key is served by a group that does not own it, or a log forgets which group it is of",
}
"""The classes of bugs that have plants, numbered as in the project's checklist; `report.NOT_PLANTED` has the others."""


_MEMBER_ORDERS: Final = frozenset({"add_member", "remove_member", "replace_member", "move_member"})
ORDERS: Final = frozenset({"suspend", "shutdown", "abort", "transfer"}) | _MEMBER_ORDERS
"""What an operator orders of a cluster, and of its members."""

COPIES: Final = frozenset({"backup", "cold", "scrub", "store", "groups", "sessions"})
"""What keeps a log elsewhere, or is more of the same: plants are found without it, and in less time."""

SNAPSHOT_HUNT_OPTIONS: Final = Options(
    safety_timeouts=8, requester_count=0, without=frozenset({"query", "relay"}) | ORDERS | COPIES
)
"""For plants in snapshots."""

QUERY_HUNT_OPTIONS: Final = Options(
    safety_timeouts=8, requester_count=0, without=frozenset({"snapshot", "leave_behind", "relay"}) | ORDERS | COPIES
)
"""For plants in queries."""

RELAY_HUNT_OPTIONS: Final = Options(
    safety_timeouts=8, requester_count=0, without=frozenset({"query"}) | ORDERS | COPIES
)
"""For plants in messages of services."""

REQUEST_HUNT_OPTIONS: Final = Options(
    safety_timeouts=8, client_count=1, requester_count=3, without=frozenset({"query", "relay"}) | ORDERS | COPIES
)
"""For plants in requests."""

ACTION_HUNT_OPTIONS: Final = Options(
    safety_timeouts=8,
    requester_count=0,
    without=frozenset({"query", "relay", "leave_behind"}) | _MEMBER_ORDERS | COPIES,
)
"""For plants in what an operator orders."""

MEMBER_HUNT_OPTIONS: Final = Options(
    safety_timeouts=12,
    requester_count=0,
    without=frozenset({"query", "relay", "leave_behind", "suspend", "shutdown", "abort", "transfer"}) | COPIES,
)
"""For plants in changes of the members."""

CONTROL_OPTIONS: Final = Options(safety_timeouts=8)
"""With everything."""

HUNT_OPTIONS: Final = Options(
    safety_timeouts=8,
    requester_count=0,
    without=frozenset({"snapshot", "leave_behind", "query", "relay"}) | ORDERS | COPIES,
)
"""Runs shorter than those of `trimaran sim`: more seeds in the same time."""

WITNESS_HUNT_OPTIONS: Final = replace(HUNT_OPTIONS, member_count=3, witness_count=1)
"""For plants in what a witness does."""


@dataclass(slots=True)
class Planting:
    """One plant while it is in the ground."""

    patch: pytest.MonkeyPatch
    count: int = 0
    """How often the planted code did other than the product would."""

    def replace(self, owner: object, name: str, value: object) -> None:
        """Put something in the place of an attribute, which must exist."""
        self.patch.setattr(owner, name, value)

    def replace_item(self, owner: dict[Any, Any], key: object, value: object) -> None:  # Any: any table
        """Put something in the place of an entry of a table."""
        self.patch.setitem(owner, key, value)

    def ran(self) -> None:
        """Count that something was done wrong."""
        self.count += 1


@dataclass(slots=True, frozen=True)
class Plant:
    """One planted bug."""

    name: str
    class_number: int
    rule: str
    """The rule that it breaks, as one sentence."""
    break_it: Callable[[Planting], None]
    scenario: str | None = None
    """The directed scenario that finds it; without one, whole runs do, seed after seed."""
    options: Options = HUNT_OPTIONS
    """What such runs are like. Most take no snapshots, with which less is replayed and less of what is wrong is met."""

    def __repr__(self) -> str:
        return f"<Plant {self.name} class={self.class_number}>"


@contextmanager
def planted(plant: Plant | None) -> Iterator[Planting]:
    """Break a rule until the end of the block; None plants nothing."""
    with pytest.MonkeyPatch.context() as patch:
        planting = Planting(patch)
        if plant is not None:
            plant.break_it(planting)
        yield planting
