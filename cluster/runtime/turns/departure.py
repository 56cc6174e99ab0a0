"""A member's orderly stop: where it leads, it hands over first, so that clients wait for milliseconds only.

It is bounded by the setting `handover_timeout_ms`, and ends early where it cannot help: with no other member fit to
lead, as where all members are stopped together, the leader stops at once. What becomes of the hand-over is no reason to
go on; a second request to stop is one to stop now.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from ....service_api import NodeTerminatedError
from ....service_api.types import NULL_VALUE
from ...core import effects as fx
from ...core.vocabulary.control_toggle import ActionStep
from ..ground.activities import ActivityScope
from .agent import ConsensusModuleAgent


class Departure:
    """How one member stops."""

    def __init__(self, agent: ConsensusModuleAgent, *, timeout_s: float) -> None:
        self._agent = agent
        self._timeout_s = timeout_s
        self._is_begun = False
        self.tasks: ActivityScope | None = None
        """What a hand-over runs in, while the member runs."""

    def __repr__(self) -> str:
        return f"<Departure begun={self._is_begun}>"

    def stop(self) -> None:
        """Stop this member in order, and at once."""
        self._agent.module.actions.quit()
        self._agent.terminate(None)

    def begin(self) -> None:
        """Stop this member, after a hand-over if it leads; at once when it is asked a second time."""
        if self._is_begun or self.tasks is None or not self.tasks.is_open or not self._hands_over:
            self.stop()
            return
        self._is_begun = True
        self.tasks.create_task(self._depart(), name="departure")

    async def _depart(self) -> None:
        with suppress(NodeTerminatedError):  # it has stopped meanwhile
            async with aclosing(self.run()) as steps:
                async for _ in steps:
                    """The member's log tells each step."""

    async def run(self) -> AsyncGenerator[fx.ActionProgressed, None]:
        """Stop this member, after a hand-over if it leads; give each step of that, and that it stops as the last."""
        self._is_begun = True
        detail = "this member stops"
        try:
            if self._hands_over:
                deadline_s = asyncio.get_running_loop().time() + self._timeout_s
                async with aclosing(self._agent.run_transfer(None)) as steps:
                    while (step := await _next_before(deadline_s, steps)) is not None and not step.is_final:
                        yield step
                outcome = "no hand-over in time" if step is None else f"hand-over {step.step}: {step.detail}"
                detail = f"this member stops; {outcome}"
            position = self._agent.module.ctx.append_position
            yield fx.ActionProgressed(NULL_VALUE, ActionStep.DONE, position, detail, None, is_final=True)
        finally:
            self.stop()

    @property
    def _hands_over(self) -> bool:
        return self._timeout_s > 0 and self._agent.module.leader is not None


async def _next_before(
    deadline_s: float, steps: AsyncGenerator[fx.ActionProgressed, None]
) -> fx.ActionProgressed | None:
    try:
        async with asyncio.timeout_at(deadline_s):
            return await anext(steps, None)
    except TimeoutError:
        return None
