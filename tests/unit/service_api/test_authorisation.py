"""What the built-in authorisation services allow. Source: aeron.md §3.6."""

from __future__ import annotations

import pytest

from trimaran.cluster.messages.backup import BackupQuery, HeartbeatRequest, StandbySnapshot
from trimaran.service_api.authorisation import BUILT_IN_AUTHORISATION_SERVICES, AllowAll, DefaultAuthorisation, DenyAll
from trimaran.service_api.wire.message import Message, TrimaranMessage
from trimaran.service_api.wire.session import AdminRequest, AdminRequestType


@pytest.mark.parametrize("message", [BackupQuery, HeartbeatRequest, StandbySnapshot])
def test_the_default_allows_what_aeron_allows_to_anybody(message: type[Message]) -> None:
    assert DefaultAuthorisation().is_authorised(message.SCHEMA_ID, message.TEMPLATE_ID, None, b"")


def test_the_default_denies_admin_requests_to_everybody() -> None:
    service = DefaultAuthorisation()

    for principal in (b"", b"admin"):
        assert not service.is_authorised(
            AdminRequest.SCHEMA_ID, AdminRequest.TEMPLATE_ID, AdminRequestType.SNAPSHOT, principal
        )


def test_the_default_allows_queries_and_no_other_request_of_ours() -> None:
    service = DefaultAuthorisation()

    allowed = [number for number in range(100) if service.is_authorised(TrimaranMessage.SCHEMA_ID, number, None, b"")]

    assert [*range(1, 10)] == allowed


def test_allow_all_and_deny_all_do_what_they_say() -> None:
    assert AllowAll().is_authorised(AdminRequest.SCHEMA_ID, AdminRequest.TEMPLATE_ID, 0, b"")
    assert not DenyAll().is_authorised(BackupQuery.SCHEMA_ID, BackupQuery.TEMPLATE_ID, None, b"admin")
    assert {"default", "allow-all", "deny-all"} == set(BUILT_IN_AUTHORISATION_SERVICES)
