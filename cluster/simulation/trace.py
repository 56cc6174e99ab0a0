"""What happened, event by event: a hash that tells two runs apart, and a line per event for people.

A line about a member is its whole consensus state, so that a failure can be read from the lines alone.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from .cluster import Member, SimulatedCluster

_ARRIVAL: Final = struct.Struct("<QIi")


class Trace:
    """The trace of one run."""

    def __init__(self, cluster: SimulatedCluster, write_line: Callable[[str], None] | None) -> None:
        self._cluster, self._write_line = cluster, write_line
        self._hash = blake2b(digest_size=16)
        self._states: dict[int, tuple[object, ...]] = {}
        cluster.network.trace = self._on_arrival

    def __repr__(self) -> str:
        return f"<Trace {self.hexdigest()}>"

    def hexdigest(self) -> str:
        """Give the hash of everything so far."""
        return self._hash.hexdigest()

    def on_fault(self, what: str) -> None:
        """Note that a fault strikes, or that all are mended."""
        self._add(f"fault     {what}")

    def on_member(self, member: Member) -> None:
        """Note a member's state, if it is another than before."""
        node = member.node
        if node is None:
            return
        module = node.module
        ctx, election = module.ctx, module.election
        state = (
            "TERM" if election is None else election.state.name,
            ctx.role,
            ctx.leadership_term_id,
            ctx.candidate_term_id,
            ctx.append_position,
            ctx.commit_position,
            node.delivered_position,
        )
        if self._states.get(member.member_id) != state:
            self._states[member.member_id] = state
            self._add(self._describe(member, state))

    def _describe(self, member: Member, state: tuple[object, ...]) -> str:
        name, role, term_id, candidate_term_id, append_position, commit_position, delivered_position = state
        leader = self._cluster.members[member.member_id].node
        leader_id = None if leader is None else leader.module.ctx.leader_member_id
        return (
            f"member {member.member_id}  {getattr(role, 'name', role):9} {name:23} term={term_id} "
            f"candidate={candidate_term_id} leader={'-' if leader_id is None else leader_id} append={append_position} "
            f"commit={commit_position} delivered={delivered_position}"
        )

    def _on_arrival(self, end_number: int, length: int) -> None:
        self._hash.update(_ARRIVAL.pack(self._cluster.now_ns, end_number, length))

    def _add(self, text: str) -> None:
        line = f"{self._cluster.now_ns / 1e9:12.6f}  {text}"
        self._hash.update(line.encode())
        if self._write_line is not None:
            self._write_line(line)
