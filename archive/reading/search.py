"""Searches recordings for messages: by type, session, time and payload.

What a payload is depends on the message: of a session message it is what the application wrote, behind the header; of
any other message it is all of it. So a pattern never matches in the header of a client's message by chance.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ...service_api.wire.message import (
    MESSAGE_HEADER_LENGTH,
    Message,
    Registry,
    peek_header,
    registry_key,
)
from ...service_api.wire.session import SessionMessageHeader
from ..files.reader import RecordedMessage
from .message_view import APPLICATION, OPAQUE, UNREADABLE, find_message

UNKNOWN_NAMES = frozenset({APPLICATION, OPAQUE, UNREADABLE})
"""What a message is called that no registry knows; as types to look for they mean the same."""


class Hit(NamedTuple):
    """A message that matches, or one near such a one; `match_start` is where in its payload the pattern does."""

    message: RecordedMessage
    is_match: bool
    match_start: int | None = None


@dataclass(slots=True, frozen=True, kw_only=True)
class MessageQuery:
    """What a message must be to be found; what is None or empty is not asked for."""

    registry: Registry
    type_names: frozenset[str] = frozenset()
    session_id: int | None = None
    """Of a message with a cluster session that session's id, of any other the session id of its first frame."""
    since: int | None = None
    """The first timestamp that is wanted, in the unit of the log; a message without a timestamp is not found then."""
    until: int | None = None
    """The first one that is not wanted any more."""
    pattern: re.Pattern[bytes] | None = None

    def match(self, message: RecordedMessage) -> Hit | None:
        """Return whether a message is wanted, the cheap questions first."""
        payload = message.payload
        if self.type_names and self._type_name(payload) not in self.type_names:
            return None
        if not self._is_wanted(message):
            return None
        if self.pattern is None:
            return Hit(message, True)
        found = self.pattern.search(memoryview(payload)[payload_start(payload, self.registry) :])
        return None if found is None else Hit(message, True, found.start())

    def _type_name(self, payload: bytes) -> str:
        model = _find_model(payload, self.registry)
        return APPLICATION if model is None else model.WIRE_NAME

    def _is_wanted(self, message: RecordedMessage) -> bool:
        if self.session_id is None and self.since is None and self.until is None:
            return True
        decoded = find_message(message.payload, self.registry)
        if self.session_id not in (None, getattr(decoded, "cluster_session_id", message.session_id)):
            return False
        if self.since is None and self.until is None:
            return True
        timestamp: int | None = getattr(decoded, "timestamp", None)
        if timestamp is None or (self.since is not None and timestamp < self.since):
            return False
        return self.until is None or timestamp < self.until


def find_hits(messages: Iterable[RecordedMessage], query: MessageQuery, *, context: int = 0) -> Iterator[Hit]:
    """Yield what matches, and the `context` messages before and after each match, each message once."""
    before: deque[RecordedMessage] = deque(maxlen=context)
    wanted_after = 0
    for message in messages:
        hit = query.match(message)
        if hit is not None:
            for earlier in before:
                yield Hit(earlier, False)
            before.clear()
            wanted_after = context
            yield hit
        elif wanted_after:
            wanted_after -= 1
            yield Hit(message, False)
        else:
            before.append(message)


def payload_start(payload: bytes, registry: Registry) -> int:
    """Return where in a recorded message its payload begins: behind the header of a session message, else at 0."""
    model = _find_model(payload, registry)
    if model is None or not issubclass(model, SessionMessageHeader):
        return 0
    return MESSAGE_HEADER_LENGTH + peek_header(payload)[0]


def _find_model(payload: bytes, registry: Registry) -> type[Message] | None:
    if len(payload) < MESSAGE_HEADER_LENGTH:
        return None
    _, template_id, schema_id, _ = peek_header(payload)
    return registry.get(registry_key(schema_id, template_id))
