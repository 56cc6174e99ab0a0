"""Log lines of effects that only tell: elections, votes, sessions.

A line costs more than the opening of a session does otherwise, and a thousand clients that come to a new leader would
fill the log. So of sessions that open and close, `SESSION_LINE_LIMIT` have a line of their own in a second, and the
others are counted in one line of their kind at its end.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import structlog

from ....service_api.access.line_limiter import LineLimiter
from ....service_api.types import MemberId
from ...core import effects as fx

SESSION_LINE_LIMIT: Final = 20
"""Sessions that opened or closed and have a line of their own, in a second."""
_SESSION_INTERVAL_NS: Final = 1_000_000_000
_MANY: Final = {"session.opened": "sessions.opened", "session.closed": "sessions.closed"}
"""Events that may come by the thousand, and the event of their number."""

logger = structlog.get_logger()


class EffectLines:
    """Logs what the core tells. Called on the event loop."""

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self._monotonic_ns = monotonic_ns
        self._refused_votes = LineLimiter[tuple[MemberId, str]]()
        """By candidate and reason."""
        self._interval_began_ns = 0
        self._line_count = 0
        """Lines of single sessions in this interval."""
        self._untold = Counter[str]()
        self._timer: asyncio.TimerHandle | None = None
        self.handlers: Final[dict[type, Callable[[Any], None]]] = {  # Any: each takes the effect of its key
            **_LOGGED,
            fx.VoteRefused: self._log_vote_refused,
            fx.SessionChanged: self._log_session_changed,
        }

    def __repr__(self) -> str:
        return f"<EffectLines untold={dict(self._untold)}>"

    def close(self) -> None:
        """Log what was only counted."""
        if self._timer is not None:
            self._timer.cancel()
            self._tell()

    def _log_session_changed(self, effect: fx.SessionChanged) -> None:
        now_ns = self._monotonic_ns()
        if now_ns - self._interval_began_ns >= _SESSION_INTERVAL_NS:
            self._interval_began_ns, self._line_count = now_ns, 0
        if effect.event in _MANY and self._line_count >= SESSION_LINE_LIMIT:
            self._untold[effect.event] += 1
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(_SESSION_INTERVAL_NS / 1e9, self._tell)
            return
        self._line_count += 1
        logger.info(effect.event, cluster_session_id=effect.cluster_session_id, reason=effect.reason)

    def _tell(self) -> None:
        self._timer = None
        untold, self._untold = self._untold, Counter()
        for event, count in untold.items():
            logger.info(_MANY[event], count=count, reason="besides those with a line of their own")

    def _log_vote_refused(self, effect: fx.VoteRefused) -> None:
        """Log the first refusal of a candidate for a reason at once; a member can ask for votes without end."""
        kind = (effect.candidate_member_id, effect.reason.name)
        count = self._refused_votes.count(kind, self._monotonic_ns())
        if count is not None:
            logger.info(
                "vote.refused",
                candidate_member_id=effect.candidate_member_id,
                candidate_term_id=effect.candidate_term_id,
                reason=effect.reason.name,
                detail=str(effect.reason),
                count=count,
            )


def _log_state_changed(effect: fx.StateChanged) -> None:
    logger.info(
        "election.state_changed",
        old=effect.old.name,
        new=effect.new.name,
        reason=effect.reason.name,
        detail=str(effect.reason),
        leadership_term_id=effect.leadership_term_id,
        append_position=effect.append_position,
        commit_position=effect.commit_position,
    )


def _log_module_state_changed(effect: fx.ModuleStateChanged) -> None:
    logger.info(
        "module.state_changed",
        old=effect.old.name,
        new=effect.new.name,
        reason=effect.reason,
        leadership_term_id=effect.leadership_term_id,
    )


def _log_leader_refused(effect: fx.LeaderRefused) -> None:
    logger.info(
        "leader.refused",
        leader_member_id=effect.leader_member_id,
        leadership_term_id=effect.leadership_term_id,
        reason=effect.reason.name,
        detail=str(effect.reason),
    )


def _log_reluctance(effect: fx.ReluctanceNoted) -> None:
    if effect.detail is None:
        logger.info("member.willing_to_lead", kind=effect.kind.label)
    else:
        logger.warning(
            "member.reluctant_to_lead",
            kind=effect.kind.label,
            detail=f"{effect.detail}; this member does not become leader while a willing member can",
        )


def _log_transfer(effect: fx.TransferNoted) -> None:
    logger.info(
        "leadership.transfer_changed",
        step=effect.step,
        target_member_id=effect.target_id,
        log_position=effect.log_position,
        reason=effect.why,
        detail=effect.detail,
    )


_LOGGED: Final[dict[type, Callable[[Any], None]]] = {  # Any: each takes the effect that it is keyed by
    fx.StateChanged: _log_state_changed,
    fx.AdminProgressed: lambda effect: None,  # nothing is performed: the audit trail watches it
    fx.SessionsRevoked: lambda effect: None,  # as above
    fx.ModuleStateChanged: _log_module_state_changed,
    fx.NominationRefused: lambda effect: logger.warning(
        "nomination.refused", reason=effect.reason.name, detail=str(effect.reason)
    ),
    fx.LeaderRefused: _log_leader_refused,
    fx.ReluctanceNoted: _log_reluctance,
    fx.TransferNoted: _log_transfer,
}
"""Effects that only tell."""
