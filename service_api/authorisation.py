"""Who may do what: asked for each request that is more than a message of a client's own session.

    is_authorised(schema_id, template_id, request_type, encoded_principal) -> bool

A request is told by its SBE message: `(111, 26)` is an admin request, and its `request_type` says which one; messages
that Aeron has no counterpart of are of schema 811. The principal is what the `Authenticator` gave the session. Ordinary
messages, keep-alives and closes are not asked for: the client that holds a session may send on it. Nor is an admin
request of a caller whose role permits it by the table of `access.permissions`: an operator's certificate is enough,
whatever this service says, because its holder can ask for the same at another port.

Source: aeron.md §3.6; Aeron `AuthorisationService`, `ConsensusModule.Configuration.DEFAULT_AUTHORISATION_SERVICE`.
"""

from __future__ import annotations

from typing import Final, Protocol

from .wire.message import ClusterMessage, TrimaranMessage

_BACKUP_QUERY: Final = 77
_HEARTBEAT_REQUEST: Final = 79
_STANDBY_SNAPSHOT: Final = 81

_QUERY_TEMPLATE_IDS: Final = range(1, 10)
"""Of schema 811: reading the service's state over a session."""

_ALLOWED_BY_DEFAULT: Final = frozenset(
    (ClusterMessage.SCHEMA_ID, template_id) for template_id in (_BACKUP_QUERY, _HEARTBEAT_REQUEST, _STANDBY_SNAPSHOT)
) | frozenset((TrimaranMessage.SCHEMA_ID, template_id) for template_id in _QUERY_TEMPLATE_IDS)


class AuthorisationService(Protocol):
    """Decides whether a principal may make a request. A plain function that must not block.

    It is asked outside of replicated state, on the member that has the request before it: members may answer
    differently. One that raises has said no.

        class OnlyOps:
            def is_authorised(self, schema_id, template_id, request_type, encoded_principal):
                return encoded_principal == b"ops"
    """

    def is_authorised(
        self, schema_id: int, template_id: int, request_type: int | None, encoded_principal: bytes
    ) -> bool:
        """Whether the principal may make this request; `request_type` is None where the message has no types."""


class AllowAll:
    """Everybody may do everything."""

    def is_authorised(
        self, schema_id: int, template_id: int, request_type: int | None, encoded_principal: bytes
    ) -> bool:
        """Yes."""
        return True


class DenyAll:
    """Refuses everything but messages on a session."""

    def is_authorised(
        self, schema_id: int, template_id: int, request_type: int | None, encoded_principal: bytes
    ) -> bool:
        """No."""
        return False


class DefaultAuthorisation:
    """Aeron's default: backups and heartbeats, but no admin request. A client with a session may also query."""

    def is_authorised(
        self, schema_id: int, template_id: int, request_type: int | None, encoded_principal: bytes
    ) -> bool:
        """Whether anybody may."""
        return (schema_id, template_id) in _ALLOWED_BY_DEFAULT


BUILT_IN_AUTHORISATION_SERVICES: Final[dict[str, type[AuthorisationService]]] = {
    "default": DefaultAuthorisation,
    "allow-all": AllowAll,
    "deny-all": DenyAll,
}
"""By the name that the setting `authorisation` gives them."""
