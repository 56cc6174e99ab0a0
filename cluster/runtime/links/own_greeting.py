"""This member's own words when a link begins: its settings, its cluster, and who the members are, if it knows."""

from __future__ import annotations

from collections.abc import Callable

from ....service_api.cluster_id import ClusterId
from ....service_api.types import CONSENSUS_STREAM_ID, MemberId
from ....service_api.wire.frame import encode_frame
from ...core.vocabulary.configuration import Configuration
from ...messages.settings import MemberSettings, MembersNotice


class OwnGreeting:
    """The settings and the notice that each link of this member begins with, as they are at that moment."""

    def __init__(self, settings: MemberSettings, find_seeded: Callable[[], bool | None]) -> None:
        self.member_id = MemberId(settings.member_id)
        self.notice = b""
        """The frame that says who the members are; empty until that is known."""
        self._fixed_settings = settings
        self._find_seeded = find_seeded

    def __repr__(self) -> str:
        return f"<OwnGreeting member={self.member_id} cluster_id={self.cluster_id}>"

    @property
    def cluster_id(self) -> ClusterId:
        """Return the cluster of this member; `NULL_CLUSTER_ID` until it knows."""
        return ClusterId(self._fixed_settings.cluster_id)

    @cluster_id.setter
    def cluster_id(self, cluster_id: ClusterId) -> None:
        """Set it once it is known."""
        self._fixed_settings = self._fixed_settings.model_copy(update={"cluster_id": cluster_id})

    @property
    def settings(self) -> MemberSettings:
        """Return the settings as they are now."""
        return self._fixed_settings.model_copy(update={"is_log_seeded": self._find_seeded()})

    def note_members(self, configuration: Configuration) -> MembersNotice:
        """Make the notice of the members that are committed, which later greetings end with."""
        message = MembersNotice(
            member_id=self.member_id,
            log_position=configuration.log_position,
            cluster_members=configuration.encode_text(),
        )
        self.notice = encode_frame(message.encode(), stream_id=CONSENSUS_STREAM_ID)
        return message

    def encode(self) -> bytes:
        """Encode the messages that say this member's settings, and who the members are, if it knows."""
        return encode_frame(self.settings.encode(), stream_id=CONSENSUS_STREAM_ID) + self.notice
