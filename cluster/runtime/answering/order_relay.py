"""Passes an operator's order on to the leader, where another member was asked for what only the leader does.

An operator on a member's machine shows who it is to that member alone, and the leader may be another one by now. The
member that was asked shows its own certificate to the leader, says for whom it asks, and passes the steps back. An
order is passed on once: who gets it and leads no more refuses it, and the command looks for the leader again.

In plain text a member cannot show the leader who it is, so nothing is passed on.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from ....service_api.cluster_id import parse_cluster_id
from ....service_api.documents.document import printable_line
from ....service_api.net.connection_gate import AcceptedConnection
from ....service_api.net.transport import NetworkStack
from ....service_api.types import NULL_VALUE
from ...core import effects as fx
from ...core.consensus_module import ConsensusModule
from ...core.vocabulary.control_toggle import ActionStep
from ...documents.operations import OperationRequest, run_operation
from ...documents.query import StatusQueryError

_TIMEOUT_S: Final = 3_600.0
"""Longer than any order takes; the command that waits for it has a limit of its own, and leaves at that."""


class OrderRelay:
    """Finds out whether an order is to be passed on, and passes it on."""

    def __init__(self, module: ConsensusModule, network: NetworkStack) -> None:
        self._module = module
        self._network = network

    def __repr__(self) -> str:
        return f"<OrderRelay leader={self._module.ctx.leader_member_id}>"

    def passes_on(self, order: OperationRequest) -> bool:
        """Return whether another member leads, which can be shown who asks."""
        leader_id = self._module.ctx.leader_member_id
        return (
            self._network.encrypts
            and order.passed_on_for is None
            and self._module.leader is None
            and leader_id is not None
            and leader_id in self._module.ctx.roster.addresses
        )

    async def run(
        self, order: OperationRequest, asker: AcceptedConnection
    ) -> AsyncGenerator[fx.ActionProgressed, None]:
        """Ask the leader, and give each of its steps.

        Raises:
            ClusterError: the answer stopped before its final step: it may or may not take effect.
        """
        ctx = self._module.ctx
        assert ctx.leader_member_id is not None
        leader = ctx.roster.address_of(ctx.leader_member_id)
        asking = run_operation(
            leader.consensus,
            order.operation,
            _TIMEOUT_S,
            log_position=order.log_position,
            change=order.change,
            target_member_id=order.target_member_id,
            feature_level=order.feature_level,
            sessions=order.sessions,
            cluster_id=parse_cluster_id(order.cluster_id or ""),
            passed_on_for=printable_line(str(asker.caller)),
            network=self._network,
        )
        try:
            async with aclosing(asking) as steps:
                async for step in steps:
                    yield fx.ActionProgressed(
                        request_id=NULL_VALUE,
                        step=step.step,
                        log_position=step.log_position,
                        detail=step.detail,
                        member_id=step.member_id,
                        is_final=step.is_final,
                    )
        except StatusQueryError as error:  # nothing was begun
            yield fx.ActionProgressed(
                request_id=NULL_VALUE,
                step=ActionStep.REFUSED,
                log_position=None,
                detail=f"member {leader.member_id} leads, and was not asked: {error}",
                member_id=None,
                is_final=True,
            )
