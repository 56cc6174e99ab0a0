"""The members of a cluster as state: what each configuration is, how it lies in the log, and what may follow it.

Members are an entry of the log, a MembershipChangeEvent of Aeron's with a text of ours in it. A member goes by the
newest configuration *in its log*, committed or not (Raft dissertation, 4.1): so any two majorities that count at the
same time have a member in common, as long as three rules hold, which the leader keeps before it appends one:

1. *One voter at a time*: two configurations that follow each other differ in one voter at most.
2. *One change at a time*: the one before is committed.
3. *Not before an entry of its own term is committed* by this leader, or an older change that nobody had committed may
   still come back (Ongaro, raft-dev 2015-07).

When the log is cut back, so is the configuration. A member that comes in begins as a learner, which is counted nowhere,
and has a higher id than any member before, so that nobody takes it for one that is gone.

How it is found: the log is the only place where a configuration is kept, besides snapshots. What is received is
searched for a mark of 24 bytes, 15 ns for a frame of 128 bytes; where it is found, the frames are walked over, for a
payload may hold it, too. A member that starts searches its log from the snapshot on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from ....service_api import ClusterError, ConfigurationError, RemoteProtocolError
from ....service_api.endpoint import PORT_MAX, Endpoint
from ....service_api.groups.group import ONLY_GROUP, Group
from ....service_api.member_id import MEMBER_ID_MAX
from ....service_api.types import MemberId
from ....service_api.wire.frame import iter_whole_messages
from ....service_api.wire.log.messages import ChangeType, MembershipChangeEvent
from ....service_api.wire.message import message_header
from ....service_api.wire.sbe import MESSAGE_HEADER
from .members import quorum_threshold

CONFIGURATION_MARK: Final = "trimaran-members/Zq7kX4w "
"""What the text of a configuration begins with; Aeron's begins with a member's id."""

_MARK: Final = CONFIGURATION_MARK.encode()
_BEGIN: Final = MESSAGE_HEADER.pack(*message_header(MembershipChangeEvent))

MEMBER_LIMIT: Final = 64
"""A configuration has no more members, of all kinds: it must lie in one frame."""

_ID_LEAP_LIMIT: Final = 1_000_000
"""How far a new member's id may be above the next free one: a slip must not use up the ids that there are."""
_REMEMBERED_COUNT: Final = 64
"""Configurations that are kept: more than can come between a snapshot's position and its being taken."""

PORTS_PER_MEMBER: Final = 5
"""Ingress is the base port; consensus, log, catchup and archive are the next four."""

_BASE_PORT_MAX: Final = PORT_MAX - (PORTS_PER_MEMBER - 1)
_FRAME_REST_BYTES: Final = 128
"""More than a frame of the log has besides the text of a configuration, padding included."""
_ENDPOINT_LENGTH_LIMIT: Final = 261
"""A host name of 253 characters, brackets, a colon and a port."""


class ChangeRefusedError(ClusterError):
    """A change of the members that is not made, as things are; the message says why, and what to do."""


class MemberKind(StrEnum):
    """What a member is to the cluster."""

    VOTER = "voter"
    """Votes, counts in every majority, runs the services, and may lead."""
    LEARNER = "learner"
    """Has the log and runs the services; it is counted nowhere and never leads."""
    WITNESS = "witness"
    """Votes and counts, and has the log; it runs no service and never leads."""
    STANDBY = "standby"
    """A learner that takes snapshots, so that the members that vote need not."""

    @property
    def votes(self) -> bool:
        """Whether it counts in a majority."""
        return self in (MemberKind.VOTER, MemberKind.WITNESS)

    @property
    def is_promotable(self) -> bool:
        """Whether it may become a voter."""
        return self in (MemberKind.LEARNER, MemberKind.STANDBY)


class ConfigurationCause(StrEnum):
    """Why a configuration is as it is."""

    FORM = "form"
    """The cluster begins with it: what its members' settings say."""
    ADD = "add"
    PROMOTE = "promote"
    REMOVE = "remove"
    MOVE = "move"
    RECOVER = "recover"
    """An operator made a cluster of what was left of another one."""


@dataclass(slots=True, frozen=True)
class ConfiguredMember:
    """One member of a configuration."""

    member_id: MemberId
    kind: MemberKind
    endpoints: tuple[str, str, str, str, str]
    """Ingress, consensus, log, catch-up, archive: what others dial, `host:port` each."""
    is_as_formed: bool = False
    """Whether these are the endpoints that the cluster formed with. A member whose settings name others for it dials
    those: it may see it through a NAT or a proxy."""

    @property
    def ingress(self) -> str:
        """Where clients dial it."""
        return self.endpoints[0]

    @property
    def consensus(self) -> str:
        """Where members and operators dial it."""
        return self.endpoints[1]

    @property
    def log(self) -> str:
        """Where it takes the live log."""
        return self.endpoints[2]

    @property
    def catchup(self) -> str:
        """Where it takes a replay of the log."""
        return self.endpoints[3]

    @property
    def archive(self) -> str:
        """Where it serves its archive."""
        return self.endpoints[4]


@dataclass(slots=True, frozen=True, kw_only=True)
class Configuration:
    """The members of a cluster from a position of the log on, in order of id."""

    members: tuple[ConfiguredMember, ...]
    high_member_id: int
    """The highest id that a member has, or ever had."""
    cause: ConfigurationCause = ConfigurationCause.FORM
    log_position: int = 0
    """Where its entry ends; 0 of what settings say, which is in no log."""
    previous_log_position: int = 0
    """Where the entry of the configuration before ends."""
    group: Group = ONLY_GROUP
    """Which of the cluster's groups has this log: it never changes."""
    note: str = ""
    """What else there is to say of it, for people: of a recovery, where it came from."""

    @classmethod
    def of_settings(cls, members: Iterable[ConfiguredMember], group: Group = ONLY_GROUP) -> Configuration:
        """Make the configuration that a cluster begins with, from its members' settings."""
        ordered = tuple(sorted(members, key=lambda member: member.member_id))
        return cls(members=ordered, high_member_id=max(member.member_id for member in ordered), group=group)

    def __repr__(self) -> str:
        return f"<Configuration {self.cause} at={self.log_position} members={self.describe()}>"

    @property
    def voter_ids(self) -> frozenset[MemberId]:
        """Who votes and counts."""
        return frozenset(member.member_id for member in self.members if member.kind.votes)

    def find(self, member_id: int) -> ConfiguredMember | None:
        """Find a member; None if it is none, or no more."""
        return next((member for member in self.members if member.member_id == member_id), None)

    def describe(self) -> str:
        """Return the members in one line: `0, 1, 2, 3 (learner)`."""
        return ", ".join(
            f"{member.member_id}" if member.kind is MemberKind.VOTER else f"{member.member_id} ({member.kind})"
            for member in self.members
        )

    def encode_text(self, *, is_placed: bool = False) -> str:
        """Write it as the text of a MembershipChangeEvent, in US-ASCII.

        `is_placed` where no log entry says its position, so that the text has to.
        """
        told = {
            "cause": self.cause,
            "previous": self.previous_log_position,
            "high": self.high_member_id,
            "members": [
                [member.member_id, member.kind, int(member.is_as_formed), *_shorten(member.endpoints)]
                for member in self.members
            ],
            **({"group": self.group.label} if self.group.label else {}),
            **({"note": self.note} if self.note else {}),
            **({"at": self.log_position} if is_placed else {}),
        }
        return CONFIGURATION_MARK + json.dumps(told, separators=(",", ":"), ensure_ascii=True)

    def to_event(
        self, *, leadership_term_id: int, timestamp: int, leader_member_id: int, before: Configuration | None
    ) -> MembershipChangeEvent:
        """Make the log entry; its position is filled in where it is appended."""
        ids, ids_before = ({m.member_id for m in c.members} if c else set() for c in (self, before))
        joined, left = ids - ids_before, ids_before - ids
        about = joined or left
        return MembershipChangeEvent.model_validate(
            {
                "leadership_term_id": leadership_term_id,
                "log_position": 0,
                "timestamp": timestamp,
                "leader_member_id": leader_member_id,
                "cluster_size": len(self.members),
                "change_type": ChangeType.QUIT if left and not joined else ChangeType.JOIN,
                "member_id": next(iter(about)) if len(about) == 1 else -1,
                "cluster_members": self.encode_text(),
            }
        )


def text_room(mtu_length_bytes: int) -> int:
    """Return how long the text of a configuration may be, so that its entry is one frame: only there it is found."""
    return mtu_length_bytes - _FRAME_REST_BYTES


def decode_text(text: str, log_position: int | None) -> Configuration | None:
    """Read the text of a membership change that ends at a position; None if the text is none of ours.

    Without a position the text says it.

    What a later version added is passed over.

    Raises:
        RemoteProtocolError: it begins as one of ours and cannot be read.
    """
    if not text.startswith(CONFIGURATION_MARK):
        return None
    try:
        told = json.loads(text[len(CONFIGURATION_MARK) :])
        members = tuple(_read_member(each) for each in told["members"])
        found = Configuration(
            members=members,
            high_member_id=_read_int(told["high"]),
            cause=ConfigurationCause(told["cause"]),
            log_position=_read_int(told["at"]) if log_position is None else log_position,
            previous_log_position=_read_int(told["previous"]),
            group=Group.parse(_read_text(told.get("group", ""))),
            note=str(told.get("note", "")),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ConfigurationError) as error:
        raise RemoteProtocolError(f"configuration at log_position={log_position}: {error!r}") from error
    fault = find_configuration_fault(found)
    if fault is not None:
        raise RemoteProtocolError(f"configuration at log_position={log_position}: {fault}")
    return found


def find_configuration_fault(configuration: Configuration, *, changed_id: int | None = None) -> str | None:
    """Return what makes a configuration none that a cluster can have; None if nothing does.

    The member that a change is about, if there is one, is what is wrong.
    """
    ids = [member.member_id for member in configuration.members]
    if not 1 <= len(ids) <= MEMBER_LIMIT:
        return f"members={len(ids)} expected 1 to {MEMBER_LIMIT}"
    if ids != sorted(set(ids)) or ids[0] < 0:
        return f"member ids {ids} expected different ones from 0 on, in order"
    if configuration.high_member_id < ids[-1]:
        return f"high_member_id={configuration.high_member_id} expected at least {ids[-1]}"
    if configuration.high_member_id > MEMBER_ID_MAX:
        return f"member_id={configuration.high_member_id} expected at most {MEMBER_ID_MAX}"
    if not any(member.kind is MemberKind.VOTER for member in configuration.members):
        return "no voter: expected one at least"
    if (
        fault := find_witness_fault(
            sum(member.kind is MemberKind.WITNESS for member in configuration.members), len(configuration.voter_ids)
        )
    ) is not None:
        return fault
    taken: dict[str, int] = {}
    for member in sorted(configuration.members, key=lambda one: one.member_id == changed_id):
        for endpoint in member.endpoints:
            if len(endpoint) > _ENDPOINT_LENGTH_LIMIT:
                return f"an endpoint of member {member.member_id} has {len(endpoint)} characters"
            try:
                Endpoint.parse(endpoint)
            except ConfigurationError as error:
                return f"member {member.member_id}: {error}"
            if endpoint in taken:
                return f"endpoint={endpoint} of member {member.member_id} is taken by member {taken[endpoint]}"
            taken[endpoint] = member.member_id
    return None


def find_witness_fault(witness_count: int, voting_count: int) -> str | None:
    """Return why so many of the members that vote may not be witnesses; None if they may.

    A majority of witnesses alone would commit what no service has, and would have nobody to hand over to.
    """
    needed = quorum_threshold(voting_count)
    if witness_count < needed:
        return None
    return (
        f"witnesses={witness_count} of {voting_count} members that vote would be a majority: expected at most "
        f"{needed - 1}: a majority needs a member that runs the service"
    )


def _read_member(told: Sequence[Any]) -> ConfiguredMember:
    member_id, kind, is_as_formed, *endpoints = told
    if len(endpoints) == 1:
        endpoints = [*derive_endpoints(endpoints[0])]
    if len(endpoints) != PORTS_PER_MEMBER or not all(isinstance(endpoint, str) for endpoint in endpoints):
        raise ValueError(f"endpoints={endpoints} expected 1 or {PORTS_PER_MEMBER} texts")
    ingress, consensus, log, catchup, archive = endpoints
    return ConfiguredMember(
        MemberId(_read_int(member_id)),
        MemberKind(kind),
        (ingress, consensus, log, catchup, archive),
        is_as_formed=bool(is_as_formed),
    )


def derive_endpoints(base: str) -> tuple[str, str, str, str, str]:
    """Return the five endpoints of a member by the first: consensus is one port up, then log, catchup, archive.

    Raises:
        ConfigurationError: the endpoint is bad, or its port too high for four more.
    """
    first = Endpoint.parse(base)
    if first.port > _BASE_PORT_MAX:
        raise ConfigurationError(f"bad base port: endpoint={base!r} expected at most {_BASE_PORT_MAX}")
    ingress, consensus, log, catchup, archive = (
        str(Endpoint(first.host, first.port + i)) for i in range(PORTS_PER_MEMBER)
    )
    return ingress, consensus, log, catchup, archive


def are_derived(endpoints: Sequence[str]) -> bool:
    """Return whether a member's endpoints are those that follow from the first."""
    return Endpoint.parse(endpoints[0]).port <= _BASE_PORT_MAX and tuple(endpoints) == derive_endpoints(endpoints[0])


def _shorten(endpoints: tuple[str, ...]) -> tuple[str, ...]:
    return endpoints[:1] if are_derived(endpoints) else endpoints


def _read_int(told: object) -> int:
    if not isinstance(told, int) or isinstance(told, bool):
        raise TypeError(f"{told!r} expected a whole number")
    return told


def _read_text(told: object) -> str:
    if not isinstance(told, str):
        raise TypeError(f"{told!r} expected text")
    return told


def find_configurations(frames: bytes, position: int) -> Iterator[Configuration]:
    """Yield the configurations in whole frames, which begin at `position` of the log, in order.

    Raises:
        RemoteProtocolError: an entry that is one and cannot be read: this member cannot tell who the members are.
    """
    if _MARK not in frames:
        return
    for end, encoded in iter_whole_messages(frames):
        if encoded.startswith(_BEGIN) and _MARK in encoded:
            found = decode_text(MembershipChangeEvent.decode(encoded).cluster_members, position + end)
            if found is not None:
                yield found


class ConfigurationHistory:
    """The newest configurations that this member's log has.

    It changes with the log: `append` as entries come in, `truncate` as the log is cut back. Where a part of the log
    could not be read at start, nobody knows what it says of the members: then `is_complete` is false, until the service
    was given that part after all, or the log has a configuration after it, or no longer has that part.
    """

    __slots__ = ("_entries", "_unread", "change_count")

    def __init__(self, first: Configuration) -> None:
        self._entries = [first]
        self._unread: tuple[int, int] | None = None
        """From where to where the log may have configurations that are not among these."""
        self.change_count = 0
        """Goes up with each change: who has seen this number knows what there is to know."""

    def __repr__(self) -> str:
        return f"<ConfigurationHistory current={self.current!r} count={len(self._entries)}>"

    @property
    def current(self) -> Configuration:
        """The newest in the log, committed or not: what counts."""
        return self._entries[-1]

    @property
    def is_complete(self) -> bool:
        """Whether `current` surely is the newest that the log has."""
        return self._unread is None

    def note_unread(self, position: int, end_position: int) -> None:
        """The log could not be searched from a position to its end."""
        self._unread = position, end_position

    def note_delivered(self, position: int) -> None:
        """The service was given the log up to here: what it says of the members was found on the way."""
        if self._unread is not None and position >= self._unread[1]:
            self._unread = None

    @property
    def entries(self) -> tuple[Configuration, ...]:
        """Every configuration that is remembered, oldest first."""
        return tuple(self._entries)

    def committed(self, commit_position: int) -> Configuration:
        """Find the newest that is committed."""
        return next(
            (each for each in reversed(self._entries) if each.log_position <= commit_position), self._entries[0]
        )

    def start_from(self, configuration: Configuration) -> None:
        """The log begins, for this member, with a snapshot in which the members are these."""
        self._entries = [configuration]
        self.change_count += 1

    def append(self, configuration: Configuration) -> None:
        """The log has one more; one that it has already is passed over."""
        if configuration.log_position > self.current.log_position:
            self._entries = [*self._entries[1 - _REMEMBERED_COUNT :], configuration]
            self.change_count += 1
            self.note_delivered(configuration.log_position - 1)  # one that lies after the part makes up for it

    def note_frames(self, frames: bytes, position: int) -> None:
        """Whole frames came into the log at a position.

        Raises:
            RemoteProtocolError: a configuration that cannot be read.
        """
        if _MARK in frames:
            for found in find_configurations(frames, position):
                self.append(found)

    def truncate(self, position: int) -> None:
        """The log ends at a position now."""
        while len(self._entries) > 1 and self.current.log_position > position:
            del self._entries[-1]
            self.change_count += 1
        if self._unread is not None:
            begin, end = self._unread
            self._unread = (begin, min(end, position)) if position > begin else None


# --- changes: each makes the next configuration, or says why not


def with_member(
    current: Configuration,
    member_id: int | None,
    kind: MemberKind,
    endpoints: tuple[str, str, str, str, str],
) -> Configuration:
    """Add a member, with the next free id unless one is given. A witness counts at once, a learner and a standby never.

    Raises:
        ChangeRefusedError: the id is not higher than every id before, or an endpoint is another member's.
    """
    free_id = current.high_member_id + 1
    new_id = free_id if member_id is None else member_id
    if current.find(new_id) is not None:
        raise ChangeRefusedError(f"member_id={new_id} is a member already: the next free id is {free_id}")
    last_id = free_id + _ID_LEAP_LIMIT
    if new_id > last_id:
        raise ChangeRefusedError(
            f"member_id={new_id} expected {free_id} to {last_id}: ids between are lost, for they only rise"
        )
    if new_id < free_id:
        raise ChangeRefusedError(
            f"member_id={new_id} expected {free_id} or more: ids only rise, so that none is used twice"
        )
    member = ConfiguredMember(MemberId(new_id), kind, endpoints)
    return _next(current, (*current.members, member), ConfigurationCause.ADD, high_member_id=new_id)


def with_promoted(current: Configuration, member_id: int) -> Configuration:
    """Make a learner or a standby a voter.

    Raises:
        ChangeRefusedError: it votes already.
    """
    member = _expect(current, member_id)
    if not member.kind.is_promotable:
        raise ChangeRefusedError(f"member_id={member_id} is a {member.kind} already")
    promoted = replace(member, kind=MemberKind.VOTER)
    return _next(current, _with(current, promoted), ConfigurationCause.PROMOTE)


def without_member(current: Configuration, member_id: int) -> Configuration:
    """Remove a member.

    Raises:
        ChangeRefusedError: it is none, or the last that may lead.
    """
    member = _expect(current, member_id)
    left = tuple(each for each in current.members if each.member_id != member_id)
    if not any(each.kind is MemberKind.VOTER for each in left):
        raise ChangeRefusedError(
            f"member_id={member.member_id} is the last voter: add and promote another first, or stop the cluster"
        )
    return _next(current, left, ConfigurationCause.REMOVE)


def with_moved(current: Configuration, member_id: int, endpoints: tuple[str, str, str, str, str]) -> Configuration:
    """Give a member other endpoints.

    Raises:
        ChangeRefusedError: it is no member, has these endpoints already, or one of them is another member's.
    """
    member = _expect(current, member_id)
    if member.endpoints == endpoints:
        raise ChangeRefusedError(f"member_id={member_id} has these endpoints already: {', '.join(endpoints)}")
    moved = replace(member, endpoints=endpoints, is_as_formed=False)
    return _next(current, _with(current, moved), ConfigurationCause.MOVE, changed_id=member_id)


def _expect(current: Configuration, member_id: int) -> ConfiguredMember:
    member = current.find(member_id)
    if member is None:
        raise ChangeRefusedError(f"member_id={member_id} is no member: the members are {current.describe()}")
    return member


def _with(current: Configuration, changed: ConfiguredMember) -> tuple[ConfiguredMember, ...]:
    return tuple(changed if each.member_id == changed.member_id else each for each in current.members)


def _next(
    current: Configuration,
    members: tuple[ConfiguredMember, ...],
    cause: ConfigurationCause,
    *,
    high_member_id: int | None = None,
    changed_id: int | None = None,
) -> Configuration:
    made = Configuration(
        members=tuple(sorted(members, key=lambda member: member.member_id)),
        high_member_id=current.high_member_id if high_member_id is None else high_member_id,
        cause=cause,
        previous_log_position=current.log_position,
        group=current.group,
    )
    fault = find_configuration_fault(made, changed_id=changed_id)
    if fault is not None:
        raise ChangeRefusedError(fault)
    return made
