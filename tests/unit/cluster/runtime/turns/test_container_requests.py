"""What a service asks for may be due at once: the core is asked again when to poll it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import cast
from unittest.mock import MagicMock

import pytest

from trimaran.cluster.core.consensus_module import ConsensusModule
from trimaran.cluster.runtime.turns.container_requests import ContainerRequests
from trimaran.service_api.errors import RemoteProtocolError
from trimaran.service_api.types import ClusterSessionId


@pytest.mark.parametrize(
    "ask",
    [
        lambda requests: requests.schedule_timer(1, 2),
        lambda requests: requests.cancel_timer(1),
        lambda requests: requests.close_session(ClusterSessionId(3)),
        lambda requests: requests.offer(0, b"payload"),
    ],
    ids=["schedule_timer", "cancel_timer", "close_session", "offer"],
)
def test_the_deadline_is_stale_after_each(ask: Callable[[ContainerRequests], object]) -> None:
    module = MagicMock(is_deadline_stale=False)

    ask(ContainerRequests(cast(ConsensusModule, module)))

    assert module.is_deadline_stale is True


@pytest.mark.parametrize("name", sorted(name for name in vars(ConsensusModule) if name.startswith("on_replay_")))
def test_the_deadline_is_stale_after_each_entry_that_is_no_message_of_a_client(name: str) -> None:
    """Some set deadlines and some end them; which do is nobody's business here."""
    method = vars(ConsensusModule)[name]
    module = MagicMock(is_deadline_stale=False)

    with contextlib.suppress(RemoteProtocolError):  # such an entry ends the member
        method(module, *[MagicMock()] * (method.__code__.co_argcount - 1))

    assert module.is_deadline_stale is True
