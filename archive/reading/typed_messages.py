"""The messages of typed clients and services in a recording, told apart by class. Needs numpy and pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final, NamedTuple

from ...service_api.typed.log_schemas import TypedPayload, split_payload
from ...service_api.types import TimeUnit
from ...service_api.wire.log.fields import MESSAGE_HEADER_LENGTH
from ...service_api.wire.log.layout import SESSION_MESSAGE_HEADER
from ...service_api.wire.payload_header import PayloadKind
from ...service_api.wire.request import REQUEST_BLOCK_LENGTH, REQUEST_HEADER
from ...service_api.wire.topics import decode_topic_message
from ..format.descriptor import RecordingDescriptor
from ..log.member_directory import ArchiveLocation
from .frame_batches import FrameSelection, ReadProblem, make_schema, read_batches

_COLUMNS: Final = ("position", "template_id", "cluster_session_id", "timestamp", "payload")
_KINDS: Final = (PayloadKind.COMMAND, PayloadKind.EVENT)


class RecordedTypedMessage(NamedTuple):
    """A command or a published event of a log."""

    position: int
    timestamp: datetime | None
    """Cluster time."""
    cluster_session_id: int | None
    """The client's; of a service a negative number."""
    request_sequence: int | None
    topic: str | None
    typed: TypedPayload
    payload: bytes
    """The payload as the application has it, with the header that `typed` was read of."""


def read_typed_messages(
    location: ArchiveLocation,
    descriptor: RecordingDescriptor,
    selection: FrameSelection,
    time_unit: TimeUnit,
    on_problem: Callable[[ReadProblem], None],
    on_progress: Callable[[int], None] = lambda position: None,
) -> Iterator[RecordedTypedMessage]:
    """Yield the commands and published events of a recording, in its order; `on_problem` is told of damage at the end.

    `selection` says which; its messages are whole. A payload of an application that is not typed is passed over.

    Raises:
        OSError: the disk or the store refused.
    """
    import pyarrow.compute as pc

    for batch in read_batches(
        location,
        descriptor,
        selection,
        make_schema(_COLUMNS, time_unit),
        on_problem,
        on_progress,
    ):
        wanted = batch.filter(pc.equal(batch.column("template_id"), SESSION_MESSAGE_HEADER)).drop_columns("template_id")
        for row in zip(*(column.to_pylist() for column in wanted.columns), strict=True):
            message = _typed_message(*row)
            if message is not None:
                yield message


def _typed_message(position: int, session_id: int | None, time: Any, message: bytes) -> RecordedTypedMessage | None:
    block_length = int.from_bytes(message[:2], "little")
    body = message[MESSAGE_HEADER_LENGTH + block_length :]
    published = decode_topic_message(body) if session_id is not None and session_id < 0 else None
    payload = body if published is None else published.payload
    typed = split_payload(payload)
    if typed is None or typed.kind not in _KINDS:
        return None
    sequence = None
    if block_length == REQUEST_BLOCK_LENGTH and len(message) >= REQUEST_HEADER.size:
        sequence = REQUEST_HEADER.unpack_from(message)[-2]
    topic = None if published is None else published.topic
    return RecordedTypedMessage(position, time, session_id, sequence, topic, typed, payload)
