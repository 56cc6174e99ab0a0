"""Topic messages: what services publish, as messages of a service in the log.

A topic message is the payload of a service's message that begins with this header:

    offset size
    0      8     TOPIC_MARK: no other payload of a service may begin with it
    8      1     length of the topic's name, in bytes
    9      ..    the name, UTF-8
    ..     ..    the payload

It goes the way of `Cluster.offer`, so it stands in the log once, under any leader; members deliver it to no service.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ..errors import LocalProtocolError

TOPIC_MARK: Final = b"\xf7TOPIC\x01\n"
TOPIC_NAME_LIMIT_BYTES: Final = 255
SCHEMA_TOPIC: Final = "trimaran/schemas"
"""On which typed services publish the schemas of their events, each before the first event of its class."""


class TopicMessage(NamedTuple):
    """What a service has published."""

    topic: str
    payload: bytes


def encode_topic_message(topic: object, payload: bytes | bytearray | memoryview) -> bytes:
    """Return a payload, behind the name of its topic.

    Raises:
        LocalProtocolError: the name is none: expected 1 to 255 bytes of UTF-8 that can be printed.
    """
    name = topic.encode(errors="replace") if isinstance(topic, str) and topic.isprintable() else b""
    if not 0 < len(name) <= TOPIC_NAME_LIMIT_BYTES:
        raise LocalProtocolError(
            f"topic={topic!r} expected a text of 1 to {TOPIC_NAME_LIMIT_BYTES} bytes that can be printed"
        )
    return b"".join((TOPIC_MARK, bytes((len(name),)), name, payload))


def is_topic_message(payload: bytes | bytearray | memoryview) -> bool:
    """Whether the payload of a service's message is a topic message."""
    return bytes(payload[: len(TOPIC_MARK)]) == TOPIC_MARK


def decode_topic_message(payload: bytes) -> TopicMessage | None:
    """Return the topic message that is the payload of a service's message; None if it is none."""
    name_position = len(TOPIC_MARK) + 1
    if not is_topic_message(payload) or len(payload) < name_position:
        return None
    end = name_position + payload[len(TOPIC_MARK)]
    name = payload[name_position:end]
    if len(payload) < end:
        return None
    return TopicMessage(name.decode(errors="replace"), payload[end:])
