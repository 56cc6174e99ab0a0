"""The messages that begin a consensus link: a member's settings (`core.member_settings`), and who the members are.

Aeron Cluster has no such messages; they are of our own schema, and of no file.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from ...service_api.wire.checksum import ChecksumKind
from ...service_api.wire.fields import Int32, Int64, Position, Since, Text, Version, WireMemberId
from ...service_api.wire.message import TrimaranMessage


class MemberSettings(TrimaranMessage):
    """The first message on a consensus link: what has to be the same on every member of a cluster."""

    TEMPLATE_ID: ClassVar[int] = 30
    member_id: WireMemberId
    member_count: Int32
    """How many members the settings name; 0 once the log says who the members are."""
    service_count: Int32
    service_queue_limit_bytes: Int64
    term_length_bytes: Int32
    mtu_length_bytes: Int32
    checksums: bool | None
    shared_timer_ids: bool | None
    aeron_messages_only: bool | None
    app_version: Version
    """Major << 16 | minor << 8 | patch: the major has to be the same."""
    cluster_id: Int64 = 0
    """Which cluster the member belongs to; 0 while it does not know, which goes with every id."""
    checksum_kind: ChecksumKind | None = ChecksumKind.CRC32
    is_log_seeded: bool | None = None
    """Whether the log begins with the state of a snapshot, or with nothing; None where it is empty, or was purged. A
    member whose log is empty needs that state first."""
    feature_level: Annotated[Int64 | None, Since(1)] = None
    """The highest feature level that its services know; None of an older member, which knows 0."""
    group_index: Annotated[Int32 | None, Since(2)] = None
    group_count: Annotated[Int32 | None, Since(2)] = None
    """Which of the cluster's groups it is in, and how many there are; None of an older member."""
    limiting_service: Annotated[Text, Since(4)] = ""
    """The services that know no higher feature level, as text; empty of an older member."""


class MembersNotice(TrimaranMessage):
    """The newest configuration of the cluster that a member knows to be committed; see `core.configuration`."""

    TEMPLATE_ID: ClassVar[int] = 31
    member_id: WireMemberId
    """Who says so."""
    log_position: Position
    """Where its entry ends."""
    cluster_members: Text = ""
    """The text of that entry."""
