"""What a handler raises is the same on every member: its text, its position, and the state afterwards."""

from __future__ import annotations

import pytest
import structlog.testing

from trimaran import ClusterError, Command, Context, TypedService, handles, state
from trimaran.client.typed import TypedClient
from trimaran.cluster.testing import MemoryCluster


class Take(Command[int]):
    key: str


class Store(TypedService):
    """Writes, speaks, and then fails for a key that it does not have."""

    taken: dict[str, int] = state()

    @handles(Take)
    def take(self, ctx: Context, message: Take) -> int:
        """Count a key that is known."""
        self.taken[f"half of {message.key}"] = 1
        ctx.logger.info("key.asked", key=message.key)
        return {"a": 1}[message.key]


def test_an_error_of_a_handler_has_one_text_and_one_position_on_every_member_and_in_a_replay() -> None:
    async def use(cluster: MemoryCluster) -> None:
        client = TypedClient(await cluster.connect())
        with pytest.raises(ClusterError, match="'b'"):
            await client.call(Take("b"))
        await cluster.settle()
        await cluster.restart((await cluster.wait_for_leader() + 1) % 3)
        await cluster.assert_identical()

    with structlog.testing.capture_logs() as lines, MemoryCluster(Store, logs=True) as cluster:
        cluster.run(use(cluster))
        told = [(position, repr(error)) for _, position, error in cluster.service_errors]
        states = [service.taken for service in cluster.services.values()]

    failed = [line for line in lines if line["event"] == "service.failed"]
    assert len(told) == 4
    assert set(told) == {(told[0][0], "KeyError('b')")}
    assert [(line["log_position"], line["error"]) for line in failed] == told
    assert states == [{}, {}, {}]
    assert [line["key"] for line in lines if line["event"] == "key.asked"] == ["b"]
