"""What a planted bug is: a rule of the product, broken on purpose while a simulation goes on.

A plant replaces functions or methods of the product for the time of one run; nothing in the product knows of it. Its
code says `planting.ran()` where it does other than the product would: a run that fails although nothing was ever done
wrong found something else, and does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest

from trimaran.cluster.simulation.run import Options

CHECKLIST: Final = {
    1: "acknowledged before a quorum has it durably",
    2: "vote or term not durable",
    3: "torn, short or failed write, then on as if nothing were",
    4: "sync error ignored or tried again",
    5: "corruption in the middle of the log taken for its end",
    6: "a corrupted or incomplete minority leads",
    7: "a partial copy accepted as whole",
    8: "matching entries truncated",
    9: "commit or match position goes back",
    10: "entries of an older term committed by counting",
    11: "term or vote taken backwards by what is copied or cut",
    12: "off by one where a piece of the log ends",
    15: "a member that comes back disrupts the others",
    17: "member id used again with an empty disk",
    19: "stale or uncommitted state shown after a change of leader",
    21: "no leader, or a useless one, in a partition",
    22: "what a client sends again applied twice",
    23: "replies of a session lost with a leader or a snapshot",
    25: "timer fired twice, never, or by a follower's clock",
    26: "reply of an old leader accepted by the client",
    27: "crash or endless loop on legal input",
    28: "one slow disk or member stalls the cluster",
    29: "memory without bound while a follower is down",
    31: "replay differs from what was live",
    32: "a restart of all members loses or reorders",
    33: "disk full",
    35: "what the archive replays differs from the live order",
}
"""The classes of bugs, numbered as in the project's checklist; the numbers left out are of what does not exist yet."""


_ORDERS: Final = frozenset({"suspend", "shutdown", "abort"})

SNAPSHOT_HUNT_OPTIONS: Final = Options(
    safety_timeouts=8, requester_count=0, without=frozenset({"query", "relay"}) | _ORDERS
)
"""For plants in snapshots."""

QUERY_HUNT_OPTIONS: Final = Options(
    safety_timeouts=8, requester_count=0, without=frozenset({"snapshot", "leave_behind", "relay"}) | _ORDERS
)
"""For plants in queries."""

RELAY_HUNT_OPTIONS: Final = Options(safety_timeouts=8, requester_count=0, without=frozenset({"query"}) | _ORDERS)
"""For plants in messages of services."""

REQUEST_HUNT_OPTIONS: Final = Options(
    safety_timeouts=8, client_count=1, requester_count=3, without=frozenset({"query", "relay"}) | _ORDERS
)
"""For plants in requests."""

ACTION_HUNT_OPTIONS: Final = Options(
    safety_timeouts=8, requester_count=0, without=frozenset({"query", "relay", "leave_behind"})
)
"""For plants in what an operator orders."""

CONTROL_OPTIONS: Final = Options(safety_timeouts=8)
"""With everything."""

HUNT_OPTIONS: Final = Options(
    safety_timeouts=8, requester_count=0, without=frozenset({"snapshot", "leave_behind", "query", "relay"}) | _ORDERS
)
"""Runs shorter than those of `trimaran sim`: more seeds in the same time."""


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
