"""The records of `node-state.dat`, which keeps the highest candidate term a member has voted in.

Each record has a 16-byte header: the SBE header, int32 frame_length (the record with its header), int32
padding.
Source: Aeron `NodeStateFile`; schema 112 version 10.
"""

from __future__ import annotations

from typing import ClassVar, Final

from ...service_api.wire.fields import Int32, Position, Text, Timestamp, WireMemberId, WireTermId
from ...service_api.wire.message import Message, Registry, registry_of


class NodeStateMessage(Message):
    """A record of the node state schema."""

    SCHEMA_ID: ClassVar[int] = 112
    SCHEMA_VERSION: ClassVar[int] = 10
    HEADER_LENGTH: ClassVar[int] = 16


class NodeStateHeader(NodeStateMessage):
    """The first 8 bytes of the file are this block, without a header."""

    TEMPLATE_ID: ClassVar[int] = 300
    WIRE_NAME: ClassVar[str] = "nodeStateHeader"
    version: Int32
    """A semantic version; 0.3.0."""
    padding: Int32


class CandidateTerm(NodeStateMessage):
    """The highest term this member has stood or voted in; -1 while there is none."""

    TEMPLATE_ID: ClassVar[int] = 301
    WIRE_NAME: ClassVar[str] = "candidateTerm"
    candidate_term_id: WireTermId
    timestamp: Timestamp
    log_position: Position


class NodeStateClusterMembers(NodeStateMessage):
    """The members as last known: defined by the schema, written by nobody."""

    TEMPLATE_ID: ClassVar[int] = 303
    WIRE_NAME: ClassVar[str] = "ClusterMembers"
    leadership_term_id: WireTermId
    member_id: WireMemberId
    high_member_id: WireMemberId
    cluster_members: Text = ""


class NodeStateFooter(NodeStateMessage):
    """The end of the records; the rest of the file is zero."""

    TEMPLATE_ID: ClassVar[int] = 304
    WIRE_NAME: ClassVar[str] = "nodeStateFooter"


NODE_STATE_RECORDS: Final[Registry] = registry_of(
    NodeStateHeader, CandidateTerm, NodeStateClusterMembers, NodeStateFooter
)
"""What the file may hold after its header block."""
