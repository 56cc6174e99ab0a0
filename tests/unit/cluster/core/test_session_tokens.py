"""A session is its client's alone: naming its id is not enough."""

from __future__ import annotations

from cluster.core import effects as fx
from tests.unit.cluster.core.solo import Solo, of
from tests.unit.cluster.core.test_sessions import keep_alive, opened


def test_client_that_names_anothers_session_does_not_get_it() -> None:
    """The hole that tokens close: a keep-alive with another's id took the session over."""
    solo = Solo().lead()
    session = opened(solo)

    effects = solo.feed(keep_alive(session.cluster_session_id, connection_id=8))

    assert of(effects, fx.UnbindIngress) == []
    assert of(effects, fx.BindIngress) == []
