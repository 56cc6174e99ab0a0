"""The header of `cluster-mark.dat` and `cluster-mark-service-<id>.dat`: which process runs here, and since when.

Source: Aeron `ClusterMarkFile`; schema 110 version 2, block of 128 bytes.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, ClassVar

from ...service_api.wire.fields import Int32, Int64, Since, Text, Timestamp, WireMemberId, WireTermId
from ...service_api.wire.message import Message


class ClusterComponentType(IntEnum):
    """The part of a node that owns a mark file. Source: schema 110 `ClusterComponentType`."""

    UNKNOWN = 0
    CONSENSUS_MODULE = 1
    CONTAINER = 2
    BACKUP = 3
    STANDBY = 4


class MarkFileHeader(Message):
    """The process that runs in a cluster directory.

    `activity_timestamp` (epoch milliseconds) is renewed about once a second and is -1 after an orderly stop.
    `candidate_term_id` is legacy. The stream ids and channels are Aeron's; where ours has none it writes 0
    and "".
    """

    SCHEMA_ID: ClassVar[int] = 110
    SCHEMA_VERSION: ClassVar[int] = 2
    TEMPLATE_ID: ClassVar[int] = 200
    BLOCK_LENGTH: ClassVar[int | None] = 128
    version: Int32
    """A semantic version, 0.3.0; -1 when the start failed, 0 while the file is being written."""
    component_type: ClusterComponentType | None
    activity_timestamp: Timestamp
    start_timestamp: Timestamp
    pid: Int64
    candidate_term_id: WireTermId
    archive_stream_id: Int32
    service_stream_id: Int32
    consensus_module_stream_id: Int32
    ingress_stream_id: Int32
    member_id: WireMemberId
    service_id: Int32
    header_length: Int32
    """The bytes before the error log."""
    error_buffer_length: Int32
    cluster_id: Int32
    aeron_directory: Text = ""
    control_channel: Text = ""
    ingress_channel: Text = ""
    service_name: Text = ""
    authenticator: Text = ""
    services_cluster_dir: Annotated[Text, Since(1)] = ""
