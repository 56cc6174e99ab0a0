"""Who may query: whoever holds an open session on the very connection that the query comes on."""

from __future__ import annotations

from tests.unit.cluster.core.sessions.test_sessions import deliver, opened
from tests.unit.cluster.core.solo import Solo
from trimaran.cluster.core import events as ev
from trimaran.service_api import CloseReason
from trimaran.service_api.types import ClusterSessionId, TermId
from trimaran.service_api.wire.log.messages import SessionCloseEvent


def test_connection_on_which_a_session_was_opened_may_query() -> None:
    solo = Solo().lead()
    session = opened(solo, connection_id=7)

    principal = solo.module.sessions.principal_on(7, session.cluster_session_id)

    assert principal == session.encoded_principal


def test_another_connection_or_session_may_not() -> None:
    solo = Solo().lead()
    session_id = opened(solo, connection_id=7).cluster_session_id

    assert solo.module.sessions.principal_on(8, session_id) is None
    assert solo.module.sessions.principal_on(7, ClusterSessionId(session_id + 1)) is None


def test_session_that_has_ended_or_is_about_to_may_not() -> None:
    solo = Solo().lead()
    first, second = opened(solo, connection_id=7), opened(solo, connection_id=8)

    solo.module.sessions.on_service_close(first.cluster_session_id)
    deliver(
        solo,
        SessionCloseEvent(
            leadership_term_id=TermId(0),
            cluster_session_id=second.cluster_session_id,
            timestamp=0,
            close_reason=CloseReason.TIMEOUT,
        ),
    )

    assert solo.module.sessions.principal_on(7, first.cluster_session_id) is None
    assert solo.module.sessions.principal_on(8, second.cluster_session_id) is None


def test_connection_that_is_gone_may_not() -> None:
    solo = Solo().lead()
    session_id = opened(solo, connection_id=7).cluster_session_id

    solo.feed(ev.ClientDisconnected(7))

    assert solo.module.sessions.principal_on(7, session_id) is None
