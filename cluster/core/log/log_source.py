"""Which member a standby takes the log from: one that its settings name, or the leader while that one cannot be used.

A standby that follows another standby costs the leader nothing but heartbeats: it asks that member, its *source*, for a
catch-up replay, and stays on it, for a replay follows the live end of a recording. Who leads, which terms there are and
how far the log is committed it hears from the leader, as every member does. So a source is believed in nothing: what it
sends has to be the next frames of the leader's log, and only what the leader says is committed is delivered.

A source fails when its link or its replay ends, or when nothing comes from it although more is committed. Then the
standby follows the leader, and tries the source again after a pause, or in the next term: when a leader dies, the
replays of its standbys end as well. A source has a lower id than the standby that follows it, so standbys never follow
each other in a ring.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ....service_api.types import NULL_TERM_ID, MemberId, TermId
from ..vocabulary.members import ClusterMember

_PAUSE_NS: Final = 30_000_000_000
"""How long a source that failed is left alone in the term in which it failed."""
_LONG_AGO_NS: Final = -(1 << 62)


@dataclass(slots=True)
class SourceChoice:
    """The source that the settings name, and when it may be asked. Times in monotonic nanoseconds."""

    wanted_member_id: MemberId | None
    _not_before_ns: int = _LONG_AGO_NS
    _failed_term_id: TermId = NULL_TERM_ID

    def choose(
        self, leader_member_id: MemberId, source: ClusterMember | None, *, leadership_term_id: TermId, now_ns: int
    ) -> MemberId:
        """Choose whom to ask for the log; `source` is the wanted member as this one sees it, None if it is none."""
        may_be_asked = now_ns >= self._not_before_ns or leadership_term_id != self._failed_term_id
        is_usable = source is not None and source.is_reachable and may_be_asked
        return source.member_id if source is not None and is_usable else leader_member_id

    def give_up(self, leadership_term_id: TermId, now_ns: int) -> None:
        """Leave the source alone for a while in this term: it failed."""
        self._failed_term_id, self._not_before_ns = leadership_term_id, now_ns + _PAUSE_NS

    def on_link_up(self, member_id: MemberId) -> None:
        """A member can be reached again: if it is the source, what failed before counts no more."""
        if member_id == self.wanted_member_id:
            self._not_before_ns = _LONG_AGO_NS
