"""The table of requests that an archive serves: the handler of each, and whether it only reads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from ....service_api.wire.message import Message
from ...format import messages
from . import editing_requests, queries, recording_requests, replay_requests, replication_requests
from .control_session import ControlSession
from .served_archive import ServedArchive

Handler = Callable[[ServedArchive, ControlSession, Any], Awaitable[None]]
"""Serves one kind of request; what it raises is the answer."""


class RequestRow(NamedTuple):
    """How an archive serves one kind of request."""

    handle: Handler
    is_reading: bool = False
    """Whether the request changes nothing, so that a `ReadOnly` archive allows it."""


REQUESTS: Final[Mapping[type[Message], RequestRow]] = {
    messages.ListRecordingRequest: RequestRow(queries.on_list_recording, is_reading=True),
    messages.ListRecordingsRequest: RequestRow(queries.on_list_recordings, is_reading=True),
    messages.ListRecordingsForUriRequest: RequestRow(queries.on_list_recordings_for_uri, is_reading=True),
    messages.FindLastMatchingRecordingRequest: RequestRow(queries.on_find_last_matching, is_reading=True),
    messages.ListRecordingSubscriptionsRequest: RequestRow(queries.on_list_subscriptions, is_reading=True),
    messages.RecordingPositionRequest: RequestRow(queries.on_position, is_reading=True),
    messages.StartPositionRequest: RequestRow(queries.on_position, is_reading=True),
    messages.StopPositionRequest: RequestRow(queries.on_position, is_reading=True),
    messages.MaxRecordedPositionRequest: RequestRow(queries.on_position, is_reading=True),
    messages.ArchiveIdRequest: RequestRow(queries.on_archive_id, is_reading=True),
    messages.StartRecordingRequest: RequestRow(recording_requests.on_start),
    messages.StartRecordingRequest2: RequestRow(recording_requests.on_start),
    messages.ExtendRecordingRequest: RequestRow(recording_requests.on_extend),
    messages.ExtendRecordingRequest2: RequestRow(recording_requests.on_extend),
    messages.StopRecordingRequest: RequestRow(recording_requests.on_stop),
    messages.StopRecordingSubscriptionRequest: RequestRow(recording_requests.on_stop_subscription),
    messages.StopRecordingByIdentityRequest: RequestRow(recording_requests.on_stop_by_identity),
    messages.ReplayRequest: RequestRow(replay_requests.on_replay, is_reading=True),
    messages.BoundedReplayRequest: RequestRow(replay_requests.on_replay, is_reading=True),
    messages.StopReplayRequest: RequestRow(replay_requests.on_stop_replay, is_reading=True),
    messages.StopAllReplaysRequest: RequestRow(replay_requests.on_stop_all_replays),
    messages.TruncateRecordingRequest: RequestRow(editing_requests.on_truncate),
    messages.PurgeRecordingRequest: RequestRow(editing_requests.on_purge_recording),
    messages.PurgeSegmentsRequest: RequestRow(editing_requests.on_purge_segments),
    messages.DetachSegmentsRequest: RequestRow(editing_requests.on_detach_segments),
    messages.DeleteDetachedSegmentsRequest: RequestRow(editing_requests.on_delete_detached),
    messages.AttachSegmentsRequest: RequestRow(editing_requests.on_attach_segments),
    messages.MigrateSegmentsRequest: RequestRow(editing_requests.on_migrate_segments),
    messages.UpdateChannelRequest: RequestRow(editing_requests.on_update_channel),
    messages.ReplicateRequest: RequestRow(replication_requests.on_replicate),
    messages.TaggedReplicateRequest: RequestRow(replication_requests.on_replicate),
    messages.ReplicateRequest2: RequestRow(replication_requests.on_replicate),
    messages.StopReplicationRequest: RequestRow(replication_requests.on_stop_replication),
}
