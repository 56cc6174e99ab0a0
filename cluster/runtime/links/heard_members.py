"""Takes what members say on their links: it goes to the core, and what only a later version knows is passed over."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

import structlog

from ....service_api.types import MemberId
from ....service_api.wire.frame import HEADER_LENGTH
from ....service_api.wire.message import (
    MESSAGES,
    ClusterMessage,
    TrimaranMessage,
    peek_header,
    registry_key,
    registry_of,
)
from ...core.events import MembersHeard
from ...core.vocabulary.configuration import decode_text
from ...core.vocabulary.roster import Roster
from ...messages.settings import MemberSettings, MembersNotice

GREETING: Final = registry_of(MemberSettings, MembersNotice)
"""The messages that a link begins with, and that it is answered."""

PASSED_OVER_LIMIT: Final = 16
"""So many kinds of passed over messages of one member are logged, each once."""

_OWN_SCHEMAS: Final = frozenset({ClusterMessage.SCHEMA_ID, TrimaranMessage.SCHEMA_ID})
"""The schemas of which a later version may have messages that this one does not know."""

logger = structlog.get_logger()


class HeardMembers:
    """Takes what members say, whichever connection it comes on."""

    def __init__(self, roster: Roster, post: Callable[[object], None]) -> None:
        self.roster = roster
        self.post = post
        self.differences: dict[MemberId, str] = {}
        """Members that are not heard, and in which settings they differ: what their configured endpoints answered."""
        self.passed_over_counts: Counter[MemberId] = Counter()
        """The number of messages of each member that this version does not know."""
        self.speaking: asyncio.Transport | None = None
        """The link whose message is being handled."""
        self._logged_kinds: dict[MemberId, set[tuple[int, int]]] = {}
        """The kinds of passed over messages that were logged, by schema id and template id."""

    def __repr__(self) -> str:
        return f"<HeardMembers differences={self.differences} passed_over={dict(self.passed_over_counts)}>"

    def on_notice(self, notice: MembersNotice, *, shows_member: bool) -> None:
        """Take who the members are, as one says; `shows_member` if its connection has shown that it is that member.

        Raises:
            RemoteProtocolError: that cannot be read.
        """
        configuration = decode_text(notice.cluster_members, notice.log_position)
        if configuration is not None and configuration.log_position > 0:
            is_known = self.roster.vouches_for(MemberId(notice.member_id))
            self.post(
                MembersHeard(
                    configuration, is_trusted=shows_member and is_known, is_rumour=shows_member and not is_known
                )
            )

    def passes_over(self, member_id: MemberId, frame: bytes) -> bool:
        """Return whether a frame holds a message that only a later version knows; count a member's, and log it once.

        Raises:
            RemoteProtocolError: fewer bytes than a message has.
        """
        _, template_id, schema_id, version = peek_header(frame, HEADER_LENGTH)
        if schema_id not in _OWN_SCHEMAS or registry_key(schema_id, template_id) in MESSAGES:
            return False
        if member_id not in self.roster.members:
            return True  # anybody may say any id: nothing is kept of it
        self.passed_over_counts[member_id] += 1
        logged = self._logged_kinds.setdefault(member_id, set())
        if (schema_id, template_id) not in logged and len(logged) < PASSED_OVER_LIMIT:
            logged.add((schema_id, template_id))
            logger.info(
                "member_message.passed_over",
                peer_member_id=member_id,
                schema_id=schema_id,
                template_id=template_id,
                version=version,
                reason="this version does not know the message: a newer member sent it",
            )
        return True
