"""Checks what services are given, and what they become of it: the same on every member, from the log or a snapshot."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from .....service_api import ClusteredService
from .....service_api.types import MemberId
from ....core.service_messages import TrackerState
from ..cluster import Member
from ..services.messenger import Messenger
from ..services.observed_service import EntryObserver, ObservedService
from ..services.relay import Relay
from ..world.expect import FoundInside, RuleBroken, ServiceChecks, expect
from .agreement_rules import describe_entry, describe_states, expect_same
from .group_rules import GroupRules
from .role_rules import expect_role

_FREQUENT: Final = ("message", "request", "service message")
_LOOKS_AT: Final = 3 << 5
"""Of the frequent entries those are looked at from all sides whose positions have these bits clear: one in four."""

Delivered = dict[int, tuple[object, ...]]
"""Every delivered entry by its end position: what it was, and the hash of the service's state after it."""


@dataclass(slots=True)
class Counts:
    """The numbers of one run."""

    elections: int = 0
    committed_bytes: int = 0
    delivered_entries: int = 0
    votes: int = 0
    loaded_snapshots: int = 0
    by_kind: dict[str, int] = field(default_factory=dict)


class Judge(Protocol):
    """Knows the log, and keeps what is found while a service runs."""

    committed: bytearray
    counts: Counts
    group_rules: GroupRules
    inside: FoundInside

    def is_committing(self, member: Member, position: int) -> bool:
        """Whether this very callback is the first to hear of the commit: then it is checked right here."""


class ServiceRules:
    """Observes the services of all members of one cluster."""

    def __init__(
        self,
        judge: Judge,
        make_service: Callable[[], ClusteredService],
        make_relay: Callable[[], Relay | Messenger],
        make_further: Sequence[Callable[[], ClusteredService]],
        checks: ServiceChecks,
    ) -> None:
        self._judge, self._checks = judge, checks
        self._make_service, self._make_relay, self._make_further = make_service, make_relay, make_further
        self.delivered: Delivered = {}
        """The entries of the first service."""
        self.relayed: Delivered = {}
        """Those of the relay, where there is one."""
        self.further: list[Delivered] = [{} for _ in make_further]
        """Those of the services after the first."""
        self.first: dict[MemberId, ClusteredService] = {}
        """The first service of the newest process of each member."""
        self._others: dict[MemberId, list[ClusteredService]] = {}
        """Those after the first, without the relay."""
        self._modules: dict[int, tuple[frozenset[int], frozenset[tuple[int, int]], tuple[TrackerState, ...]]] = {}
        """The open sessions, the timers and what services have offered, by the end position of each delivered entry."""
        self._kept: dict[int, dict[int, int]] = {}
        """What containers keep of requests, by the end position of each delivered entry: session id to a hash."""
        self._newest_time = self._newest_position = 0

    def __repr__(self) -> str:
        return f"<ServiceRules delivered={len(self.delivered)}>"

    def make_service(self, member: Member) -> ObservedService:
        """Give a member its service, observed."""
        service = self.first[member.member_id] = self._make_service()
        return ObservedService(service, _Observer(self, member, service, self.delivered))

    def make_others(self, member: Member, *, has_relay: bool = True) -> list[ObservedService]:
        """Give a member the services after the first, observed, and the relay as the last one."""
        made = self._others[member.member_id] = [make_service() for make_service in self._make_further]
        pairs = [*zip(made, self.further, strict=True)]
        if has_relay:
            pairs.append((self._make_relay(), self.relayed))
        return [ObservedService(one, _Observer(self, member, one, delivered)) for one, delivered in pairs]

    # --- entries

    def on_entry(self, member: Member, position: int, timestamp: int, what: tuple[object, ...]) -> None:
        """Look at an entry just delivered, from the service's side and from the module's."""
        self._on_delivered(member, position, timestamp, what)
        if what[0] in _FREQUENT and position & _LOOKS_AT:
            return  # what a module or a container has wrong it still has at the next one that is looked at
        self._on_module(member, position)
        self._on_container(member, position)

    def _on_delivered(self, member: Member, position: int, timestamp: int, what: tuple[object, ...]) -> None:
        """Runs inside a service's callback: what is found is kept until the next look."""
        if member.node is None:
            return  # its machine lost power in the middle of this callback: nobody hears of what is left of it
        with self._judge.inside.keeping():
            expect(
                position <= len(self._judge.committed) or self._judge.is_committing(member, position),
                "only what is committed is delivered",
                member=member.member_id,
                position=position,
                committed=len(self._judge.committed),
            )
            expect_role(member, position)
            service = self.first[member.member_id]
            expect_same(member, position, self.delivered.setdefault(position, what), what, service)
            self._look(service, what, member=member.member_id, position=position)
            if position > self._newest_position:
                expect(
                    timestamp >= self._newest_time,
                    "log time never goes backwards",
                    member=member.member_id,
                    position=position,
                    before=self._newest_time,
                    now=timestamp,
                )
                self._newest_position, self._newest_time = position, timestamp
                self._judge.group_rules.on_entry(position, what)
                self._judge.counts.delivered_entries += 1
                self._judge.counts.by_kind[str(what[0])] = self._judge.counts.by_kind.get(str(what[0]), 0) + 1

    def _look(self, service: ClusteredService, what: tuple[object, ...], **facts: object) -> None:
        self._checks.look(service, lambda: describe_entry(service, what), **facts)

    def _on_module(self, member: Member, position: int) -> None:
        """Compare what consensus modules keep for services: the same on all, from the log or from a snapshot."""
        if member.node is None:
            return
        module = member.node.module
        sessions = frozenset(
            [s.cluster_session_id for s in module.sessions.sessions.values() if s.opened_log_position <= position]
        )
        timers = frozenset(module.timers.pending())
        pending = tuple([tracker.state() for tracker in module.service_messages.trackers])
        now = (sessions, timers, pending)
        first = self._modules.setdefault(position, now)
        if first == now:
            return
        if first[2] != pending:
            rule = "every consensus module has the same messages of services at the same position"
            facts: dict[str, object] = {"expected": first[2], "actual": pending}
        else:
            rule = "every consensus module has the same sessions and timers at the same position"
            facts = {"sessions": sorted(first[0] ^ sessions), "timers": sorted(first[1] ^ timers)}
        self._judge.inside.keep(RuleBroken(rule, member=member.member_id, position=position, **facts))

    def _on_container(self, member: Member, position: int) -> None:
        """Compare what containers keep of requests: the same on all, from the log or from a snapshot."""
        if member.node is None:
            return
        sessions = member.node.service_agent.requests.sessions
        kept = {int(key): hash((replies.first_sequence, *replies.kept)) for key, replies in sessions.items()}
        first = self._kept.setdefault(position, kept)
        if first != kept:
            self._judge.inside.keep(
                RuleBroken(
                    "every container keeps the same replies at the same position",
                    member=member.member_id,
                    position=position,
                    sessions=sorted(key for key in {*first, *kept} if first.get(key) != kept.get(key)),
                )
            )

    def on_further(
        self,
        member: Member,
        service: ClusteredService,
        position: int,
        what: tuple[object, ...],
        delivered: dict[int, tuple[object, ...]],
    ) -> None:
        """Look at what a service after the first was given, and at what its messages have become."""
        if member.node is None:
            return
        faults = getattr(service, "faults", ())
        with self._judge.inside.keeping():
            expect_same(member, position, delivered.setdefault(position, what), what, service)
            if delivered is not self.relayed:
                self._look(service, what, member=member.member_id, position=position)
            expect(
                not faults,
                "a message of a service is delivered once, in the order offered",
                member=member.member_id,
                position=position,
                faults=faults[:3],
            )
            expect(
                member.node.module.service_messages.divergence_count == 0,
                "the log holds what services have offered",
                member=member.member_id,
                position=position,
            )

    def on_loaded(
        self, member: Member, position: int, state_hash: object, delivered: dict[int, tuple[object, ...]]
    ) -> None:
        """Look at a service that was given a snapshot: it is what every service was there, and goes on right there.

        What it goes on with is told from its state too: were an entry given twice or never, its hash would differ.
        """
        self._judge.counts.loaded_snapshots += 1
        newest = max((end for end in delivered if end <= position), default=None)
        expected = None if newest is None else delivered[newest][-1]
        with self._judge.inside.keeping():
            expect(
                position <= len(self._judge.committed),
                "a snapshot holds only what is committed",
                member=member.member_id,
                position=position,
                committed=len(self._judge.committed),
            )
            expect(
                newest is None or state_hash == expected,
                "a service loaded from a snapshot is what every service was at that position",
                member=member.member_id,
                position=position,
                newest=newest,
                **({} if state_hash == expected else describe_states(expected, state_hash)),
            )

    def on_error(self, member: Member, position: int, error: Exception) -> None:
        """Keep what a callback raised. A cluster goes on when one raises, but a service under test should not."""
        where = traceback.extract_tb(error.__traceback__)[-1]
        self._judge.inside.keep(
            RuleBroken(
                "no callback of a service raises",
                member=member.member_id,
                position=position,
                error=error,
                file=where.filename,
                line=where.lineno,
            )
        )

    # --- the end of a run

    def look_at_rest(self, members: Sequence[Member]) -> None:
        """Hand the services of members that have the same log to the check of the user's."""
        ids = [one.member_id for one in members if not one.config.is_witness]
        if self._make_further:
            self._checks.look_at_rest([(self.first[each], *self._others[each]) for each in ids])
        else:
            self._checks.look_at_rest([self.first[each] for each in ids])


class _Observer(EntryObserver):
    """Looks on at one service of one member."""

    def __init__(self, rules: ServiceRules, member: Member, service: ClusteredService, delivered: Delivered) -> None:
        self._rules, self._member, self._service, self._delivered = rules, member, service, delivered
        self._is_first = delivered is rules.delivered

    def on_begin(self, position: int) -> None:
        """Fail where the member's service is to fail."""
        self._member.service_failure.on_entry(position, False)

    def on_entry(self, position: int, timestamp: int, what: tuple[object, ...]) -> None:
        """Look at the entry, and fail where the member's service is to fail."""
        if self._is_first:
            self._rules.on_entry(self._member, position, timestamp, what)
        else:
            self._rules.on_further(self._member, self._service, position, what, self._delivered)
        self._member.service_failure.on_entry(position, True)

    def on_error(self, position: int, error: Exception) -> None:
        """Keep it as a broken rule."""
        self._rules.on_error(self._member, position, error)

    def on_loaded(self, position: int, state_hash: object) -> None:
        """Compare the state with that of the others."""
        self._rules.on_loaded(self._member, position, state_hash, self._delivered)
