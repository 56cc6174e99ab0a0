"""The table of the requests that an archive serves: complete, and read-only archives keep to it."""

from __future__ import annotations

import pytest

from trimaran.archive.format import messages
from trimaran.archive.net.server.policy import ReadOnly
from trimaran.archive.net.server.requests import REQUESTS

OF_THE_SESSION = {
    messages.AuthConnectRequest,
    messages.ArchiveChallengeResponse,
    messages.CloseSessionRequest,
    messages.KeepAliveRequest,
}
"""What the connection itself answers."""

CHANGING = ("Start", "Extend", "Stop", "Truncate", "Purge", "Detach", "Delete", "Attach", "Migrate", "Update")
"""How requests begin that change an archive, or what others do with it; and `Replicate`, in front or within."""

READING = {"StartPositionRequest", "StopPositionRequest", "StopReplayRequest"}
"""The requests that begin like those and only read: the last one stops a replay of the session itself."""


UNSERVED = {"ConnectRequest", "ReplayTokenRequest"}
"""What the protocol has and no archive of ours serves: the peer is told so."""


def test_every_request_of_the_protocol_has_a_row_or_belongs_to_the_session() -> None:
    unserved = {*messages.CONTROL_REQUESTS.values()} - {*REQUESTS} - OF_THE_SESSION

    assert {each.__name__ for each in unserved} == UNSERVED
    assert OF_THE_SESSION & {*REQUESTS} == set()


@pytest.mark.parametrize("request_type", [*REQUESTS])
def test_read_only_archive_allows_what_changes_nothing(request_type: type[messages.KeepAliveRequest]) -> None:
    name = request_type.__name__
    is_changing = name not in READING and (name.startswith(CHANGING) or "Replicate" in name)

    is_allowed = ReadOnly().is_authorised(request_type.SCHEMA_ID, request_type.TEMPLATE_ID, None, b"")

    assert is_allowed is not is_changing
    assert is_allowed is REQUESTS[request_type].is_reading
