"""Checks from whom a standby takes the log: the leader, or the older member that its settings name."""

from __future__ import annotations

from .....service_api.types import MemberId
from ..cluster import Member, SimulatedCluster
from ..world.expect import expect


class SourceRule:
    """Looks at every member now and then."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.relayed_count = 0
        """How often a standby was seen that took the log from another member than the leader."""
        self._cluster = cluster
        self._look()

    def __repr__(self) -> str:
        return f"<SourceRule relayed={self.relayed_count}>"

    def _look(self) -> None:
        for member in self._cluster.running():
            if member.node is not None and member.node.module.ctx.is_relayed:
                self._on_relayed(member, member.node.module.ctx.log_source_id)
        interval_ns = self._cluster.settings.leader_heartbeat_timeout_ns // 8
        self._cluster.scheduler.call_after(interval_ns, self._look)

    def _on_relayed(self, member: Member, source_id: MemberId | None) -> None:
        self.relayed_count += 1
        expect(
            source_id is not None and source_id == member.config.log_source_id and source_id < member.member_id,
            "a member takes the log from the leader, or from the older member that its settings name",
            member=member.member_id,
            source=source_id,
            wanted=member.config.log_source_id,
        )
