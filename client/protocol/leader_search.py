"""Whom a connecting client asks to open its session, and when.

One member is asked at a time. A follower redirects to the leader, or says that there is none yet; a member
that says nothing within the attempt timeout (it may be frozen) is left and another one asked. So more than
one request can be under way: the first OK wins, and the protocol closes the sessions of later ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...service_api.errors import ConfigurationError, RemoteProtocolError
from ...service_api.types import MemberId
from ..config import ClientConfig, back_off_s, parse_ingress_endpoints
from .member_link import ClientLinks, MemberLink

_BACK_OFF_S: Final = 0.05
_BACK_OFF_MAX_S: Final = 0.5
_EXPECTED_NS: Final = 200_000_000
"""How long a leader that a neighbour has found may take to be connected to, until another member is asked."""


class LeaderSearch:
    """The state of a connect that has not ended."""

    def __init__(self, config: ClientConfig, links: ClientLinks, *, random: Callable[[], float]) -> None:
        self._links = links
        self._random = random
        self._attempt_timeout_ns = int(config.attempt_timeout_s * 1e9)
        self._target: MemberLink | None = None
        self._last: MemberLink | None = None
        self._leader: MemberLink | None = None
        self._answer_by_ns = 0
        self._ask_at_ns = 0
        self._redirect_count = 0

    def expect(self, link: MemberLink, now_ns: int) -> None:
        """Ask this member first, which led when a neighbour last heard; if it cannot be reached soon, any other."""
        self._leader = link
        self._answer_by_ns = now_ns + _EXPECTED_NS

    def poll(self, now_ns: int) -> MemberLink | None:
        """Choose the member to ask now, if it is time to ask one."""
        target = self._target
        if target is not None:
            if target.is_up and now_ns < self._answer_by_ns:
                return None
            if target.is_up:
                target.outcome = "connected, no answer in time"
            self._target = None
            self._leader = None if self._leader is target else self._leader
        if now_ns < self._ask_at_ns:
            return None
        return self._choose(now_ns)

    def on_asked(self, link: MemberLink, now_ns: int) -> None:
        """Note that a request went to `link`."""
        self._target = self._last = link
        self._answer_by_ns = now_ns + self._attempt_timeout_ns

    def on_redirect(self, link: MemberLink, leader: MemberLink | None, now_ns: int) -> None:
        """Follow a redirect; without a leader to go to, or going round in circles, ask after a back-off."""
        if self._target is link:
            self._target = None
        self._links.dial_spared(now_ns)
        self._redirect_count += 1
        self._leader = None if leader is link else leader
        self._answer_by_ns = now_ns + self._attempt_timeout_ns
        if self._leader is None:
            link.outcome = "connected, it knows no leader"
        else:
            link.outcome = f"redirected to leader_member_id={self._leader.member_id}"
        if self._leader is None or self._redirect_count > 2:
            wait_s = back_off_s(
                self._redirect_count - 1, first_s=_BACK_OFF_S, limit_s=_BACK_OFF_MAX_S, random=self._random
            )
            self._ask_at_ns = now_ns + int(wait_s * 1e9)

    def next_deadline_ns(self, now_ns: int) -> int | None:
        """When `poll` has something to do next, unless a link comes up or goes down before."""
        if self._target is not None or now_ns >= self._ask_at_ns:
            return self._answer_by_ns if self._answer_by_ns > now_ns else None
        return self._ask_at_ns

    def _choose(self, now_ns: int) -> MemberLink | None:
        leader = self._leader
        if leader is not None:
            if leader.is_up:
                return leader
            if now_ns < self._answer_by_ns and not leader.failure_count:
                return None
            self._leader = None
        self._links.dial_spared(now_ns)
        ring = list(self._links)
        start = ring.index(self._last) + 1 if self._last in ring else 0
        return next((link for link in ring[start:] + ring[:start] if link.is_up), None)


def member_endpoints(text: str) -> dict[MemberId, str]:
    """Read a member list that came from the cluster, where a mistake is the peer's."""
    try:
        return parse_ingress_endpoints(text)
    except ConfigurationError as error:
        raise RemoteProtocolError(str(error)) from error
