"""The trace of a run, event by event: a hash that tells two runs apart, and a line for each event.

A line about a member is its whole consensus state, so that a failure can be read from the lines alone.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from ....service_api.groups.group import ONLY_GROUP
from ...node.node import Node
from .cluster import Member, SimulatedCluster

_ARRIVAL: Final = struct.Struct("<QIi")
_NUMBERS: Final = struct.Struct("<5q")


class Trace:
    """The trace of one run; of a run with groups, what happens to one of them."""

    def __init__(
        self, cluster: SimulatedCluster, write_line: Callable[[str], None] | None, *, beside: Trace | None = None
    ) -> None:
        """With `beside` it goes on with the trace of another group of the run, which has the arrivals of both."""
        self._cluster, self._write_line = cluster, write_line
        self._hash: blake2b = blake2b(digest_size=16) if beside is None else beside._hash
        self._states: dict[int, tuple[object, ...]] = {}
        self._begin = "" if cluster.group == ONLY_GROUP else f"group {cluster.group.index}  "
        if beside is None:
            cluster.network.trace = self._on_arrival

    def __repr__(self) -> str:
        return f"<Trace {self.hexdigest()}>"

    def hexdigest(self) -> str:
        """Return the hash of everything so far."""
        return self._hash.hexdigest()

    def on_fault(self, what: str) -> None:
        """Note that a fault strikes, or that all are mended."""
        self._hash.update(self._begin.encode() + what.encode())
        self._write(f"fault     {what}")

    def on_member(self, member: Member) -> None:
        """Note a member's state, if it is another than before."""
        node = member.node
        if node is None:
            return
        module = node.module
        ctx, election = module.ctx, module.election
        numbers = (
            ctx.leadership_term_id,
            ctx.candidate_term_id,
            ctx.append_position,
            ctx.commit_position,
            node.delivered_position,
        )
        state = (None if election is None else election.state, ctx.role, *numbers)
        if self._states.get(member.member_id) == state:
            return
        self._states[member.member_id] = state
        name = "TERM" if election is None else election.state.name
        self._hash.update(b"%s%d %s %d " % (self._begin.encode(), member.member_id, name.encode(), ctx.role.value))
        self._hash.update(_NUMBERS.pack(*numbers))
        if self._write_line is not None:
            self._write(_describe(member.member_id, node))

    def _on_arrival(self, end_number: int, length: int) -> None:
        self._hash.update(_ARRIVAL.pack(self._cluster.now_ns, end_number, length))

    def _write(self, text: str) -> None:
        if self._write_line is not None:
            self._write_line(f"{self._cluster.now_ns / 1e9:12.6f}  {self._begin}{text}")


def _describe(member_id: int, node: Node) -> str:
    """Write out a member's whole consensus state."""
    ctx, election = node.module.ctx, node.module.election
    leader_id = "-" if ctx.leader_member_id is None else ctx.leader_member_id
    return (
        f"member {member_id}  {ctx.role.name:9} {'TERM' if election is None else election.state.name:23} "
        f"term={ctx.leadership_term_id} candidate={ctx.candidate_term_id} leader={leader_id} "
        f"append={ctx.append_position} commit={ctx.commit_position} delivered={node.delivered_position}"
    )
