"""An agent that keeps what its parts say to it."""

from __future__ import annotations

from trimaran.cluster.core.events import LogCommitted
from trimaran.cluster.runtime.ground.agent_door import NodeEnd


class FakeAgent:
    """Stands for the agent of a member; takes no turn."""

    def __init__(self) -> None:
        self.posted: list[object] = []
        self.recorded: list[int] = []
        self.failures: list[BaseException | None] = []
        self.ends: list[NodeEnd] = []

    def post(self, event: object) -> None:
        self.posted.append(event)

    def on_recorded(self, position: int, committed: LogCommitted | None) -> None:
        self.recorded.append(position)
        if committed is not None:
            self.posted.append(committed)

    def terminate(self, error: BaseException | None) -> None:
        self.failures.append(error)

    def restart(self, end: NodeEnd) -> None:
        self.ends.append(end)
