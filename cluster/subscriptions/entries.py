"""What a subscriber gets: an entry of the log, and the filter that chooses entries."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

from ...archive.files.reader import RecordedMessage
from ...service_api.errors import ConfigurationError
from ...service_api.wire.log import layout
from ...service_api.wire.log.fields import MESSAGE_HEADER_LENGTH, read_log_fields
from ...service_api.wire.request import REQUEST_BLOCK_LENGTH
from ...service_api.wire.topics import decode_topic_message


class EntryKind(StrEnum):
    """What an entry of the log is."""

    MESSAGE = "message"
    """A client offered it."""
    REQUEST = "request"
    """A client requested it. One that was sent again after a fail-over may be in the log twice; it ran once."""
    SERVICE_MESSAGE = "service-message"
    """A service offered it."""
    TOPIC = "topic"
    """A service published it to a topic."""
    TIMER = "timer"
    SESSION_OPEN = "session-open"
    SESSION_CLOSE = "session-close"
    ACTION = "action"
    """An operator's: snapshot, suspend, resume, shutdown, a skipped entry, a feature level."""
    TERM = "term"
    """The first entry of a leader."""
    MEMBERSHIP = "membership"
    OTHER = "other"
    """Of a newer version, or of another program."""


_KINDS: Final = {
    layout.TIMER_EVENT: EntryKind.TIMER,
    layout.SESSION_OPEN_EVENT: EntryKind.SESSION_OPEN,
    layout.SESSION_CLOSE_EVENT: EntryKind.SESSION_CLOSE,
    layout.CLUSTER_ACTION_REQUEST: EntryKind.ACTION,
    layout.NEW_LEADERSHIP_TERM_EVENT: EntryKind.TERM,
    layout.MEMBERSHIP_CHANGE_EVENT: EntryKind.MEMBERSHIP,
}


class LogEntry(NamedTuple):
    """A committed entry of the log."""

    position: int
    """Where it begins in the log, in bytes: the same on every member, and of no other entry."""
    end_position: int
    """Where it ends. A subscriber that has handled the entry goes on from here."""
    kind: EntryKind
    leadership_term_id: int | None
    timestamp: int | None
    """Cluster time, in the cluster's time unit."""
    cluster_session_id: int | None
    """Whose entry it is; a negative number for a message of a service. None for entries of no session."""
    payload: bytes
    """What the application sent; for kinds that carry nothing of the application, the whole SBE message."""
    topic: str | None = None
    """Of an entry of the kind TOPIC, whose payload is what was published."""
    typed: Mapping[str, Any] | None = None
    """The message of a typed client or service: `message`, its class, and `values` by field, as JSON has them.

    Only in a subscription that is told `typed=True`. A message whose schema is not in the log has its `fingerprint`.
    """

    @classmethod
    def of(cls, message: RecordedMessage) -> Self:
        """Make the entry of a recorded message of the log."""
        payload, topic = message.payload, None
        fields = read_log_fields(payload)
        kind = EntryKind.OTHER if fields.template_id is None else _KINDS.get(fields.template_id, EntryKind.OTHER)
        if fields.template_id == layout.SESSION_MESSAGE_HEADER and fields.block_length is not None:
            payload = payload[MESSAGE_HEADER_LENGTH + fields.block_length :]
            kind = EntryKind.REQUEST if fields.block_length == REQUEST_BLOCK_LENGTH else EntryKind.MESSAGE
            if fields.cluster_session_id is not None and fields.cluster_session_id < 0:
                kind = EntryKind.SERVICE_MESSAGE
                published = decode_topic_message(payload)
                if published is not None:
                    kind, topic, payload = EntryKind.TOPIC, published.topic, published.payload
        return cls(
            message.position,
            message.end_position,
            kind,
            fields.leadership_term_id,
            fields.timestamp,
            fields.cluster_session_id,
            payload,
            topic,
        )


@dataclass(slots=True, frozen=True)
class EntryFilter:
    """Which entries a subscriber wants; an empty condition lets every entry pass."""

    kinds: frozenset[EntryKind] = frozenset()
    cluster_session_ids: frozenset[int] = frozenset()
    topics: frozenset[str] = frozenset()
    template_ids: frozenset[int] = frozenset()
    """SBE templates of the application's own messages: bytes 2 and 3 of the payload, little-endian."""

    @classmethod
    def make(
        cls,
        *,
        kinds: Collection[EntryKind | str] = (),
        cluster_session_ids: Collection[int] = (),
        topics: Collection[str] = (),
        template_ids: Collection[int] = (),
    ) -> Self:
        """Make a filter of what a caller gave.

        Raises:
            ConfigurationError: a kind is none; the kinds are named.
        """
        if isinstance(kinds, str):
            kinds = (kinds,)
        known = [str(kind) for kind in EntryKind]
        if isinstance(topics, str):
            topics = (topics,)
        unknown = [kind for kind in kinds if kind not in known]
        if unknown:
            raise ConfigurationError(f"kinds={unknown} expected some of {', '.join(known)}")
        return cls(
            kinds=frozenset(map(EntryKind, kinds)),
            cluster_session_ids=frozenset(cluster_session_ids),
            topics=frozenset(topics),
            template_ids=frozenset(template_ids),
        )

    def wants(self, entry: LogEntry) -> bool:
        """Return True if the subscriber wants an entry."""
        if self.kinds and entry.kind not in self.kinds:
            return False
        if self.cluster_session_ids and entry.cluster_session_id not in self.cluster_session_ids:
            return False
        if self.topics and entry.topic not in self.topics:
            return False
        return not self.template_ids or int.from_bytes(entry.payload[2:4], "little") in self.template_ids
