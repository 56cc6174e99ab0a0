"""Who may do what."""

from __future__ import annotations

import pytest

from tests.facts import has_facts
from trimaran.cluster.documents.operations import Operation
from trimaran.service_api.access.identity import LOCAL_OPERATOR, STRANGER, Caller, CallerRole, Proof
from trimaran.service_api.access.permissions import PERMISSIONS, Permission, describe_refusal, is_permitted

OPERATIONS = [Permission(operation.value) for operation in Operation]


def caller(role: CallerRole) -> Caller:
    return Caller(role, "1", Proof.CERTIFICATE)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_only_operators_and_members_operate(operation: Permission) -> None:
    allowed = [role for role in CallerRole if is_permitted(operation, caller(role), knows_caller=True)]

    assert allowed == [CallerRole.OPERATOR, CallerRole.MEMBER]
    assert is_permitted(operation, LOCAL_OPERATOR, knows_caller=True)
    assert not is_permitted(operation, STRANGER, knows_caller=False)


def test_on_a_port_in_plain_text_everybody_reads_and_members_link() -> None:
    allowed = {each for each in Permission if is_permitted(each, STRANGER, knows_caller=False)}

    assert allowed >= {Permission.STATUS, Permission.INSPECTION, Permission.MEMBER_LINK, Permission.SNAPSHOT_SHIPPING}
    assert {each for each in Permission if is_permitted(each, STRANGER, knows_caller=True)} < allowed


def test_a_stranger_at_an_encrypted_port_may_ask_for_a_session_and_for_probes_alone() -> None:
    allowed = {each for each in Permission if is_permitted(each, STRANGER, knows_caller=True)}

    assert allowed == {Permission.SESSION, Permission.PROBES}


def test_whoever_may_do_more_may_do_what_those_before_may() -> None:
    for each, row in PERMISSIONS.items():
        if each is Permission.MEMBER_LINK:
            continue
        allowed = [role in row.roles for role in (CallerRole.STRANGER, CallerRole.OBSERVER, CallerRole.OPERATOR)]
        assert allowed == sorted(allowed), each


def test_a_refusal_says_who_may_and_who_asked() -> None:
    refusal = describe_refusal(Permission.ABORT, Caller(CallerRole.CLIENT, "app", Proof.CERTIFICATE))

    assert has_facts(refusal, "abort", "operator or member", "client app (by certificate)")
