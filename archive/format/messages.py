"""The control protocol of an archive, the records of its catalog and its mark file.

Every request carries control_session_id and correlation_id (`ControlMessage`); the answer is a `ControlResponse`
unless the request says otherwise. Channels are texts that our transport does not interpret. Written as Aeron 1.52.2
does.
Source: Aeron `ArchiveProxy`, `ControlResponseProxy`; schema 101 version 13, schema 100 version 2.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, ClassVar, Final

from pydantic import Field

from ...service_api.wire.fields import (
    At,
    Capacity,
    Data,
    Int8,
    Int32,
    Int64,
    Position,
    Since,
    Text,
    Timestamp,
    Version,
    Wire,
    WireCorrelationId,
    WireRecordingId,
)
from ...service_api.wire.message import MESSAGES, Message, Registry, registry_of
from ...service_api.wire.sbe import INT64_NULL
from .descriptor import RecordingState


class ControlResponseCode(IntEnum):
    """How a request ended. Source: schema 101 `ControlResponseCode`."""

    OK = 0
    ERROR = 1
    RECORDING_UNKNOWN = 2
    SUBSCRIPTION_UNKNOWN = 3


class SourceLocation(IntEnum):
    """Whether a recording's publisher shares the archive's machine. Source: schema 101 `SourceLocation`."""

    LOCAL = 0
    REMOTE = 1


class RecordingSignal(IntEnum):
    """What became of a recording. Source: schema 101 `RecordingSignal`."""

    START = 0
    STOP = 1
    EXTEND = 2
    REPLICATE = 3
    MERGE = 4
    SYNC = 5
    DELETE = 6
    REPLICATE_END = 7


class ArchiveMessage(Message):
    """A message of the archive schema."""

    SCHEMA_ID: ClassVar[int] = 101
    SCHEMA_VERSION: ClassVar[int] = 13


class ControlMessage(ArchiveMessage):
    """A message of a control session: begins with the session, and with the request that it is or that it answers."""

    control_session_id: Int64
    correlation_id: WireCorrelationId


class RecordingControlMessage(ControlMessage):
    """A message of a control session about one recording."""

    recording_id: WireRecordingId


class ControlResponse(ControlMessage):
    """Answers a request: `relevant_id` is what was asked for, or with ERROR the error code.

    `error_message` is empty with OK.
    """

    TEMPLATE_ID: ClassVar[int] = 1
    relevant_id: Int64
    code: ControlResponseCode | None
    version: Annotated[Version, Since(4)] = 0
    error_message: Text = ""


class ConnectRequest(ArchiveMessage):
    """Opens a control session without credentials.

    Removed in Aeron 1.53: `AuthConnectRequest` replaces it.
    """

    TEMPLATE_ID: ClassVar[int] = 2
    correlation_id: WireCorrelationId
    response_stream_id: Int32
    version: Annotated[Version, Since(2)] = 0
    response_channel: Text = ""


class CloseSessionRequest(ArchiveMessage):
    """Ends a control session."""

    TEMPLATE_ID: ClassVar[int] = 3
    control_session_id: Int64


class StartRecordingRequest(ControlMessage):
    """Starts a recording of a channel and stream."""

    TEMPLATE_ID: ClassVar[int] = 4
    stream_id: Int32
    source_location: SourceLocation | None
    channel: Text = ""


class StopRecordingRequest(ControlMessage):
    """Stops the recordings of a channel and stream."""

    TEMPLATE_ID: ClassVar[int] = 5
    stream_id: Int32
    channel: Text = ""


class ReplayRequest(RecordingControlMessage):
    """Asks for a range of a recording; the answer's `relevant_id` is the replay session id.

    `position` -1 is the start of the recording, `length` -1 its end as it grows.
    """

    TEMPLATE_ID: ClassVar[int] = 6
    position: Position
    length: Int64
    replay_stream_id: Int32
    file_io_max_length: Annotated[Int32 | None, Since(7)] = None
    replay_token: Annotated[Int64 | None, Since(10)] = None
    replay_channel: Text = ""


class StopReplayRequest(ControlMessage):
    """Stops one replay."""

    TEMPLATE_ID: ClassVar[int] = 7
    replay_session_id: Int64


class ListRecordingsRequest(ControlMessage):
    """Asks for the descriptors of up to `record_count` recordings."""

    TEMPLATE_ID: ClassVar[int] = 8
    from_recording_id: WireRecordingId
    record_count: Int32


class ListRecordingsForUriRequest(ControlMessage):
    """Asks for the descriptors of the recordings of one stream whose channel contains a text."""

    TEMPLATE_ID: ClassVar[int] = 9
    from_recording_id: WireRecordingId
    record_count: Int32
    stream_id: Int32
    channel: Text = ""


class ListRecordingRequest(RecordingControlMessage):
    """Asks for the descriptor of one recording."""

    TEMPLATE_ID: ClassVar[int] = 10


class ExtendRecordingRequest(RecordingControlMessage):
    """Goes on with a recording that has stopped."""

    TEMPLATE_ID: ClassVar[int] = 11
    stream_id: Int32
    source_location: SourceLocation | None
    channel: Text = ""


class RecordingPositionRequest(RecordingControlMessage):
    """Asks how far an active recording is written."""

    TEMPLATE_ID: ClassVar[int] = 12


class TruncateRecordingRequest(RecordingControlMessage):
    """Cuts a recording that has stopped back to a position."""

    TEMPLATE_ID: ClassVar[int] = 13
    position: Position


class StopRecordingSubscriptionRequest(ControlMessage):
    """Stops one subscription of a recording."""

    TEMPLATE_ID: ClassVar[int] = 14
    subscription_id: Int64


class StopPositionRequest(RecordingControlMessage):
    """Asks where a recording stopped."""

    TEMPLATE_ID: ClassVar[int] = 15


class FindLastMatchingRecordingRequest(ControlMessage):
    """Asks for the newest recording of a stream and session whose channel contains a text."""

    TEMPLATE_ID: ClassVar[int] = 16
    min_recording_id: WireRecordingId
    session_id: Int32
    stream_id: Int32
    channel: Text = ""


class ListRecordingSubscriptionsRequest(ControlMessage):
    """Asks for the subscriptions that recordings are made from."""

    TEMPLATE_ID: ClassVar[int] = 17
    pseudo_index: Int32
    subscription_count: Int32
    apply_stream_id: bool | None
    stream_id: Int32
    channel: Text = ""


class BoundedReplayRequest(RecordingControlMessage):
    """As `ReplayRequest`, never beyond the value of a counter."""

    TEMPLATE_ID: ClassVar[int] = 18
    position: Position
    length: Int64
    limit_counter_id: Int32
    replay_stream_id: Int32
    file_io_max_length: Annotated[Int32 | None, Since(7)] = None
    replay_token: Annotated[Int64 | None, Since(10)] = None
    replay_channel: Text = ""


class StopAllReplaysRequest(RecordingControlMessage):
    """Stops every replay of a recording."""

    TEMPLATE_ID: ClassVar[int] = 19


class CatalogHeaderMessage(ArchiveMessage):
    """The first 32 bytes of `archive.catalog`, there without an SBE header."""

    WIRE_NAME: ClassVar[str] = "CatalogHeader"
    TEMPLATE_ID: ClassVar[int] = 20
    version: Int32
    length: Int32
    next_recording_id: WireRecordingId
    alignment: Int32
    reserved: Annotated[Int8, At(31)] = 0


class RecordingDescriptorHeader(ArchiveMessage):
    """Precedes each descriptor in `archive.catalog`, there without an SBE header."""

    TEMPLATE_ID: ClassVar[int] = 21
    length: Int32
    state: RecordingState | None
    checksum: Int32
    reserved: Annotated[Int8, At(31)] = 0


class RecordingDescriptorRow(RecordingControlMessage):
    """What an archive knows of one recording: in the catalog, and as an answer to the list requests.

    `stop_position` and `stop_timestamp` are -1 while the recording is active, or was not stopped in order.
    """

    WIRE_NAME: ClassVar[str] = "RecordingDescriptor"
    TEMPLATE_ID: ClassVar[int] = 22
    start_timestamp: Timestamp
    stop_timestamp: Timestamp
    start_position: Position
    stop_position: Position
    initial_term_id: Int32
    segment_file_length: Int32
    term_buffer_length: Int32
    mtu_length: Int32
    session_id: Int32
    stream_id: Int32
    stripped_channel: Text = ""
    original_channel: Text = ""
    source_identity: Text = ""


class RecordingSubscriptionDescriptor(ControlMessage):
    """Answers a `ListRecordingSubscriptionsRequest`."""

    TEMPLATE_ID: ClassVar[int] = 23
    subscription_id: Int64
    stream_id: Int32
    stripped_channel: Text = ""


class RecordingSignalEvent(RecordingControlMessage):
    """Tells a control session what became of a recording."""

    TEMPLATE_ID: ClassVar[int] = 24
    subscription_id: Int64
    position: Position
    signal: RecordingSignal | None


class ReplicateRequest(ControlMessage):
    """Copies a recording from another archive."""

    TEMPLATE_ID: ClassVar[int] = 50
    src_recording_id: WireRecordingId
    dst_recording_id: WireRecordingId
    src_control_stream_id: Int32
    src_control_channel: Text = ""
    live_destination: Text = ""


class StopReplicationRequest(ControlMessage):
    """Stops a replication."""

    TEMPLATE_ID: ClassVar[int] = 51
    replication_id: Int64


class StartPositionRequest(RecordingControlMessage):
    """Asks where a recording starts."""

    TEMPLATE_ID: ClassVar[int] = 52


class DetachSegmentsRequest(RecordingControlMessage):
    """Takes the front segments off a recording, leaving the files."""

    TEMPLATE_ID: ClassVar[int] = 53
    new_start_position: Position


class DeleteDetachedSegmentsRequest(RecordingControlMessage):
    """Deletes the files of segments that were detached."""

    TEMPLATE_ID: ClassVar[int] = 54


class PurgeSegmentsRequest(RecordingControlMessage):
    """Takes the front segments off a recording and deletes the files."""

    TEMPLATE_ID: ClassVar[int] = 55
    new_start_position: Position


class AttachSegmentsRequest(RecordingControlMessage):
    """Puts detached segments back."""

    TEMPLATE_ID: ClassVar[int] = 56


class MigrateSegmentsRequest(ControlMessage):
    """Moves the segments of one recording to the front of another."""

    TEMPLATE_ID: ClassVar[int] = 57
    src_recording_id: WireRecordingId
    dst_recording_id: WireRecordingId


class AuthConnectRequest(ArchiveMessage):
    """Opens a control session."""

    TEMPLATE_ID: ClassVar[int] = 58
    correlation_id: WireCorrelationId
    response_stream_id: Int32
    version: Version
    response_channel: Text = ""
    encoded_credentials: Data = b""
    client_info: Annotated[Text, Since(12)] = ""


class ArchiveChallenge(ControlMessage):
    """The authenticator asks a control session to prove who it is."""

    WIRE_NAME: ClassVar[str] = "Challenge"
    TEMPLATE_ID: ClassVar[int] = 59
    version: Version
    encoded_challenge: Data = b""


class ArchiveChallengeResponse(ControlMessage):
    """Answers a `ArchiveChallenge`."""

    WIRE_NAME: ClassVar[str] = "ChallengeResponse"
    TEMPLATE_ID: ClassVar[int] = 60
    encoded_credentials: Data = b""


class KeepAliveRequest(ControlMessage):
    """Keeps a control session open."""

    TEMPLATE_ID: ClassVar[int] = 61


class TaggedReplicateRequest(ControlMessage):
    """As `ReplicateRequest`, with tags for the channel and the subscription."""

    TEMPLATE_ID: ClassVar[int] = 62
    src_recording_id: WireRecordingId
    dst_recording_id: WireRecordingId
    channel_tag_id: Int64
    subscription_tag_id: Int64
    src_control_stream_id: Int32
    src_control_channel: Text = ""
    live_destination: Text = ""


class StartRecordingRequest2(ControlMessage):
    """As `StartRecordingRequest`; `auto_stop` ends the recording with its first image."""

    TEMPLATE_ID: ClassVar[int] = 63
    stream_id: Int32
    source_location: SourceLocation | None
    auto_stop: bool | None
    channel: Text = ""


class ExtendRecordingRequest2(RecordingControlMessage):
    """As `ExtendRecordingRequest`; `auto_stop` ends the recording with its first image."""

    TEMPLATE_ID: ClassVar[int] = 64
    stream_id: Int32
    source_location: SourceLocation | None
    auto_stop: bool | None
    channel: Text = ""


class StopRecordingByIdentityRequest(RecordingControlMessage):
    """Stops the recording with an id."""

    TEMPLATE_ID: ClassVar[int] = 65


class ReplicateRequest2(ControlMessage):
    """As `TaggedReplicateRequest`, up to a position, with credentials for the source."""

    TEMPLATE_ID: ClassVar[int] = 66
    src_recording_id: WireRecordingId
    dst_recording_id: WireRecordingId
    stop_position: Position
    channel_tag_id: Int64
    subscription_tag_id: Int64
    src_control_stream_id: Int32
    file_io_max_length: Annotated[Int32 | None, Since(7)] = None
    replication_session_id: Annotated[Int32 | None, Since(8)] = None
    src_control_channel: Text = ""
    live_destination: Text = ""
    replication_channel: Text = ""
    encoded_credentials: Annotated[Data, Since(8)] = b""
    src_response_channel: Annotated[Text, Since(10)] = ""


class MaxRecordedPositionRequest(RecordingControlMessage):
    """Asks how far a recording is written, or where it stopped."""

    TEMPLATE_ID: ClassVar[int] = 67


class ArchiveIdRequest(ControlMessage):
    """Asks for the id of the archive."""

    TEMPLATE_ID: ClassVar[int] = 68


class RecordingStarted(ArchiveMessage):
    """Tells the event stream that a recording started."""

    TEMPLATE_ID: ClassVar[int] = 101
    recording_id: WireRecordingId
    start_position: Position
    session_id: Int32
    stream_id: Int32
    channel: Text = ""
    source_identity: Text = ""


class RecordingProgress(ArchiveMessage):
    """Tells the event stream how far a recording is written."""

    TEMPLATE_ID: ClassVar[int] = 102
    recording_id: WireRecordingId
    start_position: Position
    position: Position


class RecordingStopped(ArchiveMessage):
    """Tells the event stream that a recording stopped."""

    TEMPLATE_ID: ClassVar[int] = 103
    recording_id: WireRecordingId
    start_position: Position
    stop_position: Position


class PurgeRecordingRequest(RecordingControlMessage):
    """Deletes a recording and its files."""

    TEMPLATE_ID: ClassVar[int] = 104


class ReplayTokenRequest(RecordingControlMessage):
    """Asks for a token that allows a replay on another channel."""

    TEMPLATE_ID: ClassVar[int] = 105


class Ping(ArchiveMessage):
    """Asks whether the peer of a control session is alive."""

    TEMPLATE_ID: ClassVar[int] = 106
    control_session_id: Int64


class UpdateChannelRequest(RecordingControlMessage):
    """Renames the channel of a recording."""

    TEMPLATE_ID: ClassVar[int] = 107
    channel: Text = ""


ArchiveId = Annotated[int, Field(ge=INT64_NULL, le=(1 << 63) - 1), Wire("q", -1)]
"""The identity of an archive; -1 in files written before it was known."""


class ArchiveMarkFileHeader(Message):
    """The header of `archive-mark.dat`: who runs here, and since when.

    `activity_timestamp` (epoch milliseconds) is renewed about once a second and is -1 after an orderly stop.
    """

    SCHEMA_ID: ClassVar[int] = 100
    SCHEMA_VERSION: ClassVar[int] = 2
    TEMPLATE_ID: ClassVar[int] = 200
    WIRE_NAME: ClassVar[str] = "MarkFileHeader"
    BLOCK_LENGTH: ClassVar[int | None] = 128
    version: Int32
    """A semantic version; -1 when the start failed, 0 while the file is being written."""
    activity_timestamp: Annotated[Timestamp, At(8)]
    start_timestamp: Timestamp
    pid: Int64
    control_stream_id: Int32
    local_control_stream_id: Int32
    events_stream_id: Int32
    header_length: Annotated[Capacity, Since(1)] = 0
    """The bytes before the error log."""
    error_buffer_length: Annotated[Capacity, Since(1)] = 0
    archive_id: Annotated[ArchiveId, Since(2), At(56)] = -1
    control_channel: Text = ""
    local_control_channel: Text = ""
    events_channel: Text = ""
    aeron_directory: Text = ""


_NOT_REQUESTS: Final = (
    ControlResponse,
    CatalogHeaderMessage,
    RecordingDescriptorHeader,
    RecordingDescriptorRow,
    RecordingSubscriptionDescriptor,
    RecordingSignalEvent,
    ArchiveChallenge,
    RecordingStarted,
    RecordingProgress,
    RecordingStopped,
    Ping,
)

CONTROL_REQUESTS: Final[Registry] = registry_of(
    *(message for message in MESSAGES.values() if issubclass(message, ArchiveMessage) and message not in _NOT_REQUESTS)
)
"""What an archive accepts on its control stream."""

CONTROL_RESPONSES: Final[Registry] = registry_of(
    ControlResponse,
    RecordingDescriptorRow,
    RecordingSubscriptionDescriptor,
    RecordingSignalEvent,
    ArchiveChallenge,
    Ping,
)
"""What an archive client accepts as an answer."""
