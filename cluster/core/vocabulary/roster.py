"""Who the members are, as one member has it: from its log, and from what others say of theirs.

Two kinds of knowledge are kept apart. The *configuration* is the newest in this member's own log: it alone says who
counts. *Contacts* are what other members' committed configurations say of addresses: a member whose log is old reaches
with them those that are there now, hears them and votes for them; they are counted nowhere.

A member that the log removes is still spoken to until the removal is committed and it has heard so (`leaving`).

By the configuration it is decided, too, what the certificate of a member is worth (`judge`). Contacts and members that
leave are heard, and that is all: hearsay gives nobody a right.

Where connections show who they are, there may be a *rumour*, too: a process told it that shows a member's certificate,
and nobody else calls it a member. A member whose log is so old that all others are new to it has no other way back. A
rumour adds contacts. It moves no known member and replaces nothing that is known. It is over once a known member says
who the members are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ....service_api import ClusterError, ConfigurationError
from ....service_api.access.identity import Caller, CallerRole
from ....service_api.groups.group import Group
from ....service_api.types import MemberId
from .configuration import (
    Configuration,
    ConfigurationCause,
    ConfigurationHistory,
    ConfiguredMember,
    MemberKind,
)
from .members import ClusterMember, quorum_threshold


class Roster:
    """The members that this one speaks to, and which of them count. Itself is always among them."""

    __slots__ = (
        "_committed_position",
        "_contacts",
        "_leaving",
        "_of_settings",
        "_rumour",
        "_seen_position",
        "change_count",
        "history",
        "ingress_endpoints",
        "member_id",
        "members",
        "on_changed",
        "others",
        "voting_members",
    )

    def __init__(self, member_id: MemberId, first: Configuration) -> None:
        self.member_id = member_id
        self.history = ConfigurationHistory(first)
        """The configurations of the log; the log's own reader and writer tell it."""
        self.members: dict[MemberId, ClusterMember] = {member_id: ClusterMember(member_id)}
        """Everyone that is spoken to, and this member, by id in order."""
        self.voting_members: list[ClusterMember] = []
        """Whose votes and positions make a majority; this member is not among them unless it is one of these."""
        self.others: list[ClusterMember] = []
        """Everyone but this member."""
        self.ingress_endpoints = ""
        """All members' ingress endpoints as `id=host:port,...`: what clients are told."""
        self.on_changed: Callable[[], None] = lambda: None
        """Told when any of that has changed."""
        self._of_settings = {member.member_id: member for member in first.members}
        self._contacts: Configuration | None = None
        """The newest committed configuration that another member spoke of, while it is newer than the own one."""
        self._rumour: Configuration | None = None
        """The newest that one spoke of who is a member by its own word alone, while it is newer than all else."""
        self._leaving: dict[MemberId, ConfiguredMember] = {}
        self.change_count = -1
        """How often the history had changed when this was brought up to date: another number than its own is stale."""
        self._committed_position = -1
        """Of the newest configuration that is known to be committed."""
        self._seen_position = first.log_position
        self.refresh()

    def __repr__(self) -> str:
        return f"<Roster member={self.member_id} {self.current!r} contacts={self._contacts!r}>"

    @property
    def me(self) -> ClusterMember:
        """This member's own record."""
        return self.members[self.member_id]

    @property
    def own_ingress(self) -> str:
        """This member's ingress endpoint; empty while no configuration has it."""
        own = self.addresses.get(self.member_id)
        return "" if own is None else own.ingress

    @property
    def current(self) -> Configuration:
        """What counts: the newest configuration in this member's log."""
        return self.history.current

    @property
    def latest(self) -> Configuration:
        """The newest configuration that is known, from the log or by hearsay that is no rumour."""
        return self.current if self._contacts is None else self._contacts

    @property
    def addresses(self) -> dict[MemberId, ConfiguredMember]:
        """Where everyone is dialled, this member included if it is a member."""
        known = {**self._leaving, **{member.member_id: member for member in self.current.members}}
        if self._contacts is not None:
            known |= {member.member_id: member for member in self._contacts.members}
        if self._rumour is not None:
            known = {**{member.member_id: member for member in self._rumour.members}, **known}
        return {
            member_id: self._of_settings.get(member_id, known[member_id])
            if known[member_id].is_as_formed
            else known[member_id]
            for member_id in sorted(known)
        }

    def address_of(self, member_id: MemberId) -> ConfiguredMember:
        """Find where a member is dialled.

        Raises:
            ClusterError: it is no member any more.
        """
        member = self.addresses.get(member_id)
        if member is None:
            raise ClusterError(f"no member any more: member_id={member_id} members={self.latest.describe()}")
        return member

    def former_address_of(self, member_id: MemberId) -> ConfiguredMember | None:
        """Find where a member was before the newest change, if that is not known to be committed and moved it.

        It may be lost with the end of this member's log. Then the member is where it was, and leads, perhaps. Where a
        cluster was made of another one's log, that one's members are at the addresses before, and may run.
        """
        is_settled = self.current.log_position <= self._committed_position
        if is_settled or len(self.history.entries) < 2 or self.current.cause is ConfigurationCause.RECOVER:
            return None
        former = self.history.entries[-2].find(member_id)
        return None if former == self.current.find(member_id) else former

    def note_committed(self, configuration: Configuration) -> None:
        """A configuration of this member's log is committed."""
        self._committed_position = configuration.log_position

    @property
    def may_lead(self) -> bool:
        """Whether this member may lead: not while it does not know who the members are by its own log.

        One that a change in its log removes may, until that is committed: perhaps it alone has the change, and those
        that are left cannot win without it (Raft dissertation 4.2.2).
        """
        return self.history.is_complete and self._own_kind is MemberKind.VOTER

    @property
    def is_witness(self) -> bool:
        """Whether this member is a witness: where it wins an election, it leads only to hand over. See `transfer`."""
        return self._own_kind is MemberKind.WITNESS

    @property
    def may_stand(self) -> bool:
        """Whether this member may ask for votes: to lead, or as a witness to hand over."""
        return self.history.is_complete and (self.may_lead or self.is_witness)

    @property
    def _own_kind(self) -> MemberKind | None:
        mine = self.current.find(self.member_id)
        if mine is None and len(self.history.entries) > 1:
            mine = self.history.entries[-2].find(self.member_id)
        return None if mine is None else mine.kind

    def check_kind(self, *, runs_services: bool) -> None:
        """Check that this process is what its log says.

        Raises:
            ConfigurationError: it runs services and is a witness, or runs none and is no witness.
        """
        mine = self.current.find(self.member_id)
        if mine is None or (mine.kind is not MemberKind.WITNESS) == runs_services:
            return
        advice = (
            f"start it with `--witnesses {self.member_id}`"
            if runs_services
            else f"start it without {self.member_id} in `witnesses`, with the others' service and an empty directory"
        )
        raise ConfigurationError(
            f"member_id={self.member_id} is a {mine.kind} by the log, its settings say that it is "
            f"{'none' if mine.kind is MemberKind.WITNESS else 'a witness'}: the members are {self.current.describe()}; "
            f"{advice}"
        )

    def check_group(self, group: Group) -> None:
        """Check that the log is that of the group which the settings say.

        Raises:
            ConfigurationError: names both.
        """
        found = self.current.group
        if self.current.log_position > 0 and found != group:
            raise ConfigurationError(
                f"another group: the log is that of {found}, the settings say {group}; the number of groups is fixed "
                "when a cluster forms: correct the settings groups and group, or use another directory"
            )

    def can_lead(self, member_id: MemberId) -> bool:
        """Whether a member is a voter that runs the services."""
        member = self.current.find(member_id)
        return member is not None and member.kind is MemberKind.VOTER

    def is_standby(self, member_id: MemberId) -> bool:
        """Whether a member is a standby, by this member's log."""
        member = self.current.find(member_id)
        return member is not None and member.kind is MemberKind.STANDBY

    @property
    def is_alone(self) -> bool:
        """Whether this member makes every majority by itself."""
        return self.history.is_complete and self.current.voter_ids == {self.member_id}

    def hear(self, configuration: Configuration) -> bool:
        """Take in a committed configuration that another member speaks of. Returns whether it is news."""
        is_news = configuration.log_position > self.latest.log_position
        is_rumour_over = self._rumour is not None and configuration.log_position >= self.current.log_position
        if is_news:
            self._contacts = configuration
        if is_rumour_over:
            self._rumour = None
        if is_news or is_rumour_over:
            self.change_count = -1
            self.refresh()
        return is_news

    def hear_rumour(self, configuration: Configuration) -> None:
        """Take in what a process says that is a member by its own word alone, where this member is cut off.

        While a majority of the members that count is reachable, one of these has the next configuration, if there is
        one, and tells it.
        """
        reachable = sum(one.is_reachable or one.member_id == self.member_id for one in self.voting_members)
        if reachable < quorum_threshold(len(self.voting_members)) and (
            configuration.log_position > (self._rumour or self.latest).log_position
        ):
            self._rumour = configuration
            self.change_count = -1
            self.refresh()

    def vouches_for(self, member_id: MemberId) -> bool:
        """Return whether more than a rumour says that there is such a member, here or at a member that is known."""
        return member_id in self._leaving or any(one.find(member_id) for one in (self.current, self.latest))

    def judge(self, shown: Caller) -> Caller:
        """Return what the holder of a member's certificate is by the configuration in this member's log."""
        member_id, current = MemberId(int(shown.name)), self.current
        if current.find(member_id) is not None:
            return shown
        role = CallerRole.CONTACT if member_id in self.members else CallerRole.OUTSIDER
        is_gone = member_id <= current.high_member_id and current.log_position <= self._committed_position
        advice = (
            f"ids only rise, so that none is used twice: the next free one is {current.high_member_id + 1}"
            if is_gone
            else f"run `trimaran member add --id {member_id}`"
        )
        reason = f"the members are {current.describe()}"
        return replace(shown, role=role, reason=reason, advice=advice, is_gone=is_gone)

    def dismiss(self, member_id: MemberId) -> None:
        """Speak no more to a member that is none any more."""
        if self._leaving.pop(member_id, None) is not None:
            self.change_count = -1
            self.refresh()

    @property
    def leaving(self) -> Iterable[MemberId]:
        """Who is spoken to though it is no member any more."""
        return tuple(self._leaving)

    def refresh(self) -> None:
        """Bring everything up to date with the log; next to nothing where nothing has changed."""
        history = self.history
        if history.change_count == self.change_count:
            return
        self.change_count = history.change_count
        current = history.current
        if self._contacts is not None and self._contacts.log_position <= current.log_position:
            self._contacts = None
        if self._rumour is not None and self._rumour.log_position <= self.latest.log_position:
            self._rumour = None
        if current.log_position > self._seen_position and len(history.entries) > 1:
            self._leaving.update({member.member_id: member for member in history.entries[-2].members})
        self._seen_position = current.log_position
        for member in current.members:
            self._leaving.pop(member.member_id, None)
        addresses = self.addresses
        ids = sorted({*addresses, self.member_id})
        self.members = {one: self.members.get(one) or ClusterMember(one) for one in ids}
        self.voting_members = [self.members[one] for one in ids if one in current.voter_ids]
        self.others = [member for member in self.members.values() if member.member_id != self.member_id]
        self.ingress_endpoints = ",".join(
            f"{member.member_id}={addresses[member.member_id].ingress}" for member in self.latest.members
        )
        self.on_changed()
