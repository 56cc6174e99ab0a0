"""Commands of several sessions to one service by hand."""

from __future__ import annotations

from typing import Any, TypeVar

from trimaran.cluster.testing import TypedHarness
from trimaran.cluster.testing.harness import HarnessSession
from trimaran.service_api.typed import Command

R = TypeVar("R")


def call_as(harness: TypedHarness[Any], session: HarnessSession, command: Command[R]) -> R:
    """Have another session than the harness's own send a command."""
    route = harness.route(type(command))
    answer: R = route.read(session.request(route.payload(command)))
    return answer
