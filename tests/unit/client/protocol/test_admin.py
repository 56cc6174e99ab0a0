"""What a client asks of the cluster itself: a snapshot is answered, a hand-over shows in who leads next."""

from __future__ import annotations

import pytest

from tests.unit.client.dialogue import ENDPOINTS_TEXT, Dialogue
from trimaran.client.errors import AdminRefusedError, IndeterminateError
from trimaran.client.protocol.admin import SNAPSHOT_WISH, AdminWish
from trimaran.service_api.types import ClusterSessionId, CorrelationId, MemberId, TermId
from trimaran.service_api.wire.session import (
    AdminRequest,
    AdminRequestType,
    AdminResponse,
    AdminResponseCode,
    NewLeaderEvent,
)

TO_ONE = AdminWish(AdminRequestType.TRANSFER, 1)
TO_ANY = AdminWish(AdminRequestType.TRANSFER)


def asked(wish: AdminWish) -> tuple[Dialogue, list[object], int]:
    """A client whose leader is member 0, which it has asked."""
    dialogue = Dialogue()
    outcomes: list[object] = []
    dialogue.open()
    number = dialogue.protocol.request_admin(wish, outcomes.append)
    assert number is not None
    return dialogue, outcomes, number


def answer(dialogue: Dialogue, number: int, code: AdminResponseCode, message: str) -> None:
    dialogue.say(
        0,
        AdminResponse(
            cluster_session_id=ClusterSessionId(dialogue.protocol.session.cluster_session_id),
            correlation_id=CorrelationId(number),
            request_type=AdminRequestType.TRANSFER,
            response_code=code,
            message=message,
        ),
    )


def lead(dialogue: Dialogue, member_id: int) -> None:
    dialogue.say(
        member_id,
        NewLeaderEvent(
            cluster_session_id=ClusterSessionId(dialogue.protocol.session.cluster_session_id),
            leadership_term_id=TermId(dialogue.protocol.session.leadership_term_id + 1),
            leader_member_id=MemberId(member_id),
            ingress_endpoints=ENDPOINTS_TEXT,
        ),
    )


def test_hand_over_names_its_target() -> None:
    dialogue, _, _ = asked(TO_ONE)

    (request,) = [message for message in dialogue.sent(0) if isinstance(message, AdminRequest)]

    assert (request.request_type, request.payload) == (AdminRequestType.TRANSFER, b"\x01\x00\x00\x00")


@pytest.mark.parametrize("wish", [TO_ONE, TO_ANY])
def test_hand_over_is_done_when_the_next_leader_speaks(wish: AdminWish) -> None:
    """Also where the old leader's connection is lost first, as when it stops."""
    dialogue, outcomes, _ = asked(wish)
    dialogue.down(0)
    assert outcomes == []

    lead(dialogue, 1)

    assert outcomes == [1]


def test_hand_over_that_is_refused_or_given_up_says_why() -> None:
    dialogue, outcomes, number = asked(TO_ONE)

    answer(dialogue, number, AdminResponseCode.ERROR, "member 1 cannot be reached")

    (error,) = outcomes
    assert isinstance(error, AdminRefusedError)
    assert "member 1 cannot" in str(error)


def test_hand_over_to_one_member_is_not_done_when_another_leads() -> None:
    dialogue, outcomes, _ = asked(TO_ONE)

    lead(dialogue, 2)

    (error,) = outcomes
    assert isinstance(error, AdminRefusedError)
    assert "member 2 leads now" in str(error)


def test_old_leaders_word_that_it_is_done_is_not_enough() -> None:
    dialogue, outcomes, number = asked(TO_ONE)

    answer(dialogue, number, AdminResponseCode.OK, "member 1 leads")
    assert outcomes == []
    lead(dialogue, 1)

    assert outcomes == [1]


def test_outcome_of_a_snapshot_is_not_known_when_the_leader_changes() -> None:
    dialogue, outcomes, _ = asked(SNAPSHOT_WISH)

    lead(dialogue, 1)

    (error,) = outcomes
    assert isinstance(error, IndeterminateError)
