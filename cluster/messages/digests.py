"""The messages in which members tell each other digests of their services. See `core.digests`.

Aeron Cluster has no such messages; they are of our own schema, and of no file.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, ClassVar, Final

from ...service_api.wire.fields import Data, Int32, Int64, Position, Since, Text, UInt8, WireMemberId
from ...service_api.wire.message import GroupElement, TrimaranMessage

FIELD_LIMIT: Final = 64
"""The most fields of a service's state that members compare."""


class DigestKind(IntEnum):
    """What a digest is of."""

    STATE = 1
    """What `state_hash` of a service returned at the position."""
    OUTPUTS = 2
    """What the services gave out over a stretch of the log that ends at the position: replies, offers, timers."""
    SNAPSHOT = 3
    """What a service, or the consensus module, wrote to its snapshot at the position."""


class ServiceDigest(TrimaranMessage):
    """A member tells what came of its service at a position of the log that all members reach."""

    TEMPLATE_ID: ClassVar[int] = 40
    member_id: WireMemberId
    kind: UInt8
    """A `DigestKind`; members may know more kinds than this one, and compare what they know."""
    service_id: Int32
    """-1 for all services together, and for the consensus module."""
    code_digest: Int64
    """Of the code of the services; only digests of members that run the same code are compared."""
    log_position: Position
    digest: Data
    value: Text = ""
    """What was digested, as text for people, where it is short; a digest in hex otherwise."""
    copies: Annotated[Text, Since(3)] = ""
    """Which ranges of the member's log are copies, as `LogCopies` writes them."""


class FieldDigest(GroupElement):
    """A field of a service's state."""

    type_digest: Int64 = 0
    """Of the type that the field is declared with; 0 if it is not declared with one."""
    name: Text = ""
    digest: Data = b""
    value: Text = ""
    """The value as text for people, if that is short; the digest in hex otherwise."""


class StateFields(TrimaranMessage):
    """A member tells one whose code differs what each field of a service's state is at a position of the log."""

    TEMPLATE_ID: ClassVar[int] = 41
    member_id: WireMemberId
    service_id: Int32
    code_digest: Int64
    """Of the code of the services."""
    log_position: Position
    fields: tuple[FieldDigest, ...] = ()
