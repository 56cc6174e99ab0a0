"""Which code of the services a leadership term runs: the first entry of the term says it, and so does each snapshot.

Both messages are Aeron's with one field more at the end of the block, which Aeron's readers pass over. A leader that
cannot name its code, and Aeron, write the plain messages: their digest is 0, unknown.
"""

from __future__ import annotations

import struct
from typing import Annotated, Final, TypeVar

from ..fields import Int64, Since
from ..message import MESSAGE_HEADER_LENGTH, ClusterMessage, peek_header
from ..versioned import build
from .messages import NewLeadershipTermEvent
from .snapshot_marker import SnapshotMarker

UNKNOWN_CODE: Final = 0
"""The digest of code that nobody has named."""

_VERSION: Final = ClusterMessage.SCHEMA_VERSION
"""The field follows those of this version of the schema."""


class CodedTermEvent(NewLeadershipTermEvent):
    """The first entry of a term whose leader names the code of its services."""

    code_digest: Annotated[Int64, Since(_VERSION)] = UNKNOWN_CODE
    """Positive: 63 bits of a hash of the services' source. See `cluster.service.service_code`."""


class CodedSnapshotMarker(SnapshotMarker):
    """The first or last message of a snapshot that names the code of the term that it was taken in."""

    code_digest: Annotated[Int64, Since(_VERSION)] = UNKNOWN_CODE
    """As in `CodedTermEvent`: that of the term's leader, so that the snapshot is the same on every member."""


_CODED: Final[dict[int, type[CodedTermEvent | CodedSnapshotMarker]]] = {
    NewLeadershipTermEvent.TEMPLATE_ID: CodedTermEvent,
    SnapshotMarker.TEMPLATE_ID: CodedSnapshotMarker,
}
_DIGEST: Final = struct.Struct("<q")


CodedT = TypeVar("CodedT", bound=NewLeadershipTermEvent | SnapshotMarker)


def with_code_digest(message: CodedT, digest: int) -> CodedT:
    """Return the message with the digest; unchanged where the digest is `UNKNOWN_CODE`."""
    if digest == UNKNOWN_CODE:
        return message
    coded: CodedT = build(_CODED[message.TEMPLATE_ID], {**vars(message), "code_digest": digest})  # type: ignore[assignment]
    return coded


def read_code_digest(encoded: bytes) -> int:
    """Return the code digest that a term's first entry or a snapshot's marker holds; `UNKNOWN_CODE` without one.

    A block of another schema version is not ours: a longer one holds what that version added.

    Raises:
        RemoteProtocolError: fewer bytes than the SBE header has.
    """
    block_length, template_id, _, version = peek_header(encoded)
    coded = _CODED.get(template_id)
    if coded is None or version != coded.SCHEMA_VERSION or block_length != coded.LAYOUT.block_length:
        return UNKNOWN_CODE
    end = MESSAGE_HEADER_LENGTH + block_length
    (digest,) = _DIGEST.unpack_from(encoded, end - _DIGEST.size)
    return max(int(digest), UNKNOWN_CODE)
