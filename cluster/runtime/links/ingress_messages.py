"""The messages of clients, but for those that are stamped in place: one function each, by class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ....service_api import LocalProtocolError, RemoteProtocolError
from ....service_api.access.identity import Caller, CallerRole
from ....service_api.access.permissions import Permission, describe_refusal
from ....service_api.authenticator import CREDENTIALS_LIMIT_BYTES
from ....service_api.cluster_id import describe_other_cluster, is_other_cluster
from ....service_api.wire.message import MESSAGE_HEADER_LENGTH, Message, peek_header, registry_key
from ....service_api.wire.queries import QueryRequest, read_query
from ....service_api.wire.request import REQUEST_BLOCK_LENGTH
from ....service_api.wire.session import (
    SESSION_HEADER_LENGTH,
    SESSION_MESSAGE,
    AdminRequest,
    AdminRequestType,
    AskingKeepAlive,
    ChallengeResponse,
    SessionCloseRequest,
    SessionConnectRequest,
    SessionKeepAlive,
    SessionMessageHeader,
    refusal_of_requests,
)
from ....service_api.wire.session_frame import PREFIX_LENGTH
from ...core import events as ev
from .connection_life import ConnectionLife

_MESSAGE_BLOCK: Final = SESSION_MESSAGE[0].to_bytes(2, "little")
_OPENS_SESSIONS: Final = frozenset({CallerRole.CLIENT, CallerRole.OPERATOR})
"""Whose certificates are enough for a session; its name is the principal."""

_ADMIN_TYPES: Final = frozenset(AdminRequestType)


def take_message(connection: ConnectionLife, encoded: bytes, meant_cluster_id: int) -> None:
    """Take one whole message of a client that means this cluster.

    Raises:
        RemoteProtocolError: clients send no such message, or it is malformed.
    """
    ingress = connection.ingress
    if is_other_cluster(meant_cluster_id, ingress.find_cluster_id(), whole=ingress.whole_cluster_id):
        reason = describe_other_cluster(ingress.find_cluster_id(), expected=meant_cluster_id)
        connection.refuse_asker("other_cluster", reason, encoded)
        return
    _, template_id, schema_id, _ = peek_header(encoded)
    handler = _HANDLERS_BY_KEY.get(registry_key(schema_id, template_id))
    if handler is None:
        raise RemoteProtocolError(f"unknown message: schema_id={schema_id} template_id={template_id}")
    handler(connection, encoded)


def _on_session_message(connection: ConnectionLife, encoded: bytes) -> None:
    """Take a session message that came in fragments, or is a stray."""
    ingress, owner = connection.ingress, connection.ingress.owner
    if len(encoded) < SESSION_HEADER_LENGTH:
        raise RemoteProtocolError(f"session message of length={len(encoded)} expected at least {SESSION_HEADER_LENGTH}")
    header = SessionMessageHeader.decode(encoded)
    publisher = owner.publisher
    if publisher is None:
        return  # Only a leader answers strays; in an election they would fill the inbox.
    if _MESSAGE_BLOCK + encoded[len(_MESSAGE_BLOCK) : PREFIX_LENGTH] not in connection.prefixes:
        owner.post(ev.ClientStray(connection.connection_id, header.leadership_term_id, header.cluster_session_id))
        return
    block_length = peek_header(encoded)[0]
    if block_length not in (SessionMessageHeader.LAYOUT.block_length, REQUEST_BLOCK_LENGTH):
        raise RemoteProtocolError(f"session message: block_length={block_length} expected=24 or 40")
    if len(encoded) < MESSAGE_HEADER_LENGTH + block_length:
        raise RemoteProtocolError(f"incomplete session message: {block_length=} length={len(encoded)}")
    if block_length in publisher.refused_blocks:
        # It was told so when its session opened.
        if block_length == REQUEST_BLOCK_LENGTH:
            connection.refuse(refusal_of_requests(publisher.refused_ingress))
        else:
            connection.refuse("the service takes no messages: it has no on_session_message")
        return
    timestamp = owner.stamp().to_bytes(8, "little", signed=True)
    stamped = encoded[:PREFIX_LENGTH] + timestamp + encoded[SESSION_HEADER_LENGTH:]
    try:
        publisher.append_session_message(stamped)
    except LocalProtocolError as error:
        raise RemoteProtocolError(str(error)) from error
    owner.schedule_flush()
    if owner.is_window_full():
        ingress.on_window_filled(connection.connection_id)


def _on_query(connection: ConnectionLife, encoded: bytes) -> None:
    connection.ingress.owner.on_query(connection.connection_id, read_query(encoded))


def _on_admin_request(connection: ConnectionLife, encoded: bytes) -> None:
    accepted, request = connection.accepted, _decode_admin_request(encoded)
    is_permitted = accepted.may(Permission[(request.request_type or AdminRequestType.SNAPSHOT).name])
    connection.ingress.owner.post(
        ev.ClientAdmin(connection.connection_id, request, accepted.caller, accepted.address, is_permitted)
    )


def _decode_admin_request(encoded: bytes) -> AdminRequest:
    """Read an admin request; one of a type that is unknown here has none, and gets an answer."""
    *ids, request_type = AdminRequest.unpack(encoded)
    if request_type in _ADMIN_TYPES:
        return AdminRequest.decode(encoded)
    term_id, session_id, correlation_id = ids
    return AdminRequest(
        leadership_term_id=term_id, cluster_session_id=session_id, correlation_id=correlation_id, request_type=None
    )


def _on_keep_alive(connection: ConnectionLife, encoded: bytes) -> None:
    owner, connection_id = connection.ingress.owner, connection.connection_id
    term_id, session_id = SessionKeepAlive.unpack(encoded)
    if not owner.is_keep_alive_known(connection_id, term_id, session_id):
        owner.post_soon(ev.ClientKeepAlive(connection_id, term_id, session_id))
    if peek_header(encoded)[0] == AskingKeepAlive.LAYOUT.block_length:
        connection.asks_for_answers = True
        connection.answer_keep_alive(AskingKeepAlive.unpack(encoded)[-1])


def _on_connect_request(connection: ConnectionLife, encoded: bytes) -> None:
    request = SessionConnectRequest.decode(encoded)
    if _may_have_session(connection, encoded):
        accepted = connection.accepted
        connection.ingress.owner.post_soon(
            ev.ClientConnect(connection.connection_id, request, _certified_principal(accepted.caller), accepted.address)
        )


def _on_close_request(connection: ConnectionLife, encoded: bytes) -> None:
    request = SessionCloseRequest.decode(encoded)
    connection.ingress.owner.post_soon(
        ev.ClientClose(connection.connection_id, request.leadership_term_id, request.cluster_session_id)
    )


def _on_challenge_response(connection: ConnectionLife, encoded: bytes) -> None:
    response = ChallengeResponse.decode(encoded)
    if not _may_have_session(connection, encoded):
        return
    length = len(response.encoded_credentials)
    if length > CREDENTIALS_LIMIT_BYTES:
        raise RemoteProtocolError(f"credentials too long: length={length} limit={CREDENTIALS_LIMIT_BYTES}")
    connection.claim()
    connection.ingress.owner.post_soon(
        ev.ClientChallengeResponse(
            connection.connection_id,
            response.correlation_id,
            response.cluster_session_id,
            response.encoded_credentials,
            _certified_principal(connection.accepted.caller),
            connection.accepted.address,
        )
    )


def _may_have_session(connection: ConnectionLife, encoded: bytes) -> bool:
    """Return whether the caller may have a session; the connection of one that may not is ended."""
    accepted = connection.accepted
    if accepted.may(Permission.SESSION):
        return True
    connection.refuse_asker("no_right", describe_refusal(Permission.SESSION, accepted.caller), encoded)
    return False


def _certified_principal(caller: Caller) -> bytes:
    """Return who the client is by its certificate; empty where the authenticator has to decide."""
    return caller.name.encode() if caller.role in _OPENS_SESSIONS else b""


HANDLERS: Final[dict[type[Message], Callable[[ConnectionLife, bytes], None]]] = {
    SessionMessageHeader: _on_session_message,
    SessionConnectRequest: _on_connect_request,
    SessionCloseRequest: _on_close_request,
    SessionKeepAlive: _on_keep_alive,
    ChallengeResponse: _on_challenge_response,
    AdminRequest: _on_admin_request,
    QueryRequest: _on_query,
}
"""The messages that a member accepts from a client."""

_HANDLERS_BY_KEY: Final = {registry_key(cls.SCHEMA_ID, cls.TEMPLATE_ID): handler for cls, handler in HANDLERS.items()}
