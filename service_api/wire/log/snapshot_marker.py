"""The message that begins and ends each snapshot, and says which log and time it belongs to.

Source: Aeron `ConsensusModuleSnapshotTaker`; schema 111, template 100.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, ClassVar

from ...types import TimeUnit
from ..fields import Int32, Int64, Position, Since, Version, WireTermId
from ..message import ClusterMessage


class SnapshotMark(IntEnum):
    """Where in a snapshot a marker stands. Source: schema 111 `SnapshotMark`."""

    BEGIN = 0
    SECTION = 1
    END = 2


class SnapshotMarker(ClusterMessage):
    """The first and the last message of a snapshot: a snapshot without its END is not one.

    `log_position` is the end of the SNAPSHOT action; `index` is 0 in what Aeron writes.
    """

    TEMPLATE_ID: ClassVar[int] = 100
    type_id: Int64
    log_position: Position
    leadership_term_id: WireTermId
    index: Int32
    mark: SnapshotMark | None
    time_unit: Annotated[TimeUnit | None, Since(4)] = None
    app_version: Annotated[Version, Since(4)] = 0
