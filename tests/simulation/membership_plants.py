"""Planted bugs in changes of the members."""

from __future__ import annotations

from typing import Final

from trimaran.cluster.core.context import ConsensusContext
from trimaran.cluster.core.membership.membership_control import MembershipControl
from trimaran.cluster.core.roles.actions import ActionControl
from trimaran.cluster.core.vocabulary import configuration
from trimaran.cluster.core.vocabulary.configuration import (
    Configuration,
    ConfigurationHistory,
    ConfiguredMember,
    MemberKind,
)
from trimaran.cluster.core.vocabulary.control_toggle import ControlToggle
from trimaran.cluster.core.vocabulary.roster import Roster
from trimaran.service_api.types import MemberId

from .plant import MEMBER_HUNT_OPTIONS, WITNESS_HUNT_OPTIONS, Plant, Planting


def _change_before_an_own_entry(planting: Planting) -> None:
    """Ongaro, raft-dev 2015-07: single-server changes were not safe without this rule."""
    real = MembershipControl._is_own_term_committed

    def is_own_term_committed(self: MembershipControl) -> bool:
        if not real(self):
            planting.ran()
        return True

    planting.replace(MembershipControl, "_is_own_term_committed", is_own_term_committed)


def _change_twice_at_once(planting: Planting) -> None:
    real, real_refusal = MembershipControl._is_committed, ActionControl.find_refusal

    def find_refusal(self: ActionControl, action: ControlToggle) -> str | None:
        return None if action is self.toggle is ControlToggle.CHANGE_MEMBERS else real_refusal(self, action)

    def is_committed(self: MembershipControl, position: int) -> bool:
        if not real(self, position):
            planting.ran()
        return True

    planting.replace(MembershipControl, "_is_committed", is_committed)
    planting.replace(ActionControl, "find_refusal", find_refusal)


def _count_the_old_members(planting: Planting) -> None:
    """Those of the newest configuration count once it is committed."""
    real = Roster.refresh

    def refresh(self: Roster) -> None:
        changed = self.history.change_count != self.change_count
        real(self)
        entries = self.history.entries
        if changed and len(entries) > 1:
            planting.ran()
            old_ids = entries[-2].voter_ids
            self.voting_members = [member for one, member in self.members.items() if one in old_ids]

    planting.replace(Roster, "refresh", refresh)


def _count_learners(planting: Planting) -> None:
    real = Roster.refresh

    def refresh(self: Roster) -> None:
        changed = self.history.change_count != self.change_count
        real(self)
        if changed and len(self.current.members) > len(self.current.voter_ids):
            planting.ran()
            self.voting_members = [self.members[member.member_id] for member in self.current.members]

    planting.replace(Roster, "refresh", refresh)


def _let_anybody_stand(planting: Planting) -> None:
    """Learners too, and who was removed."""
    real = vars(Roster)["may_lead"].fget

    def may_lead(self: Roster) -> bool:
        if not real(self):
            planting.ran()
        return True

    planting.replace(Roster, "may_lead", property(may_lead))


def _let_a_witness_lead(planting: Planting) -> None:
    """Like any other member, though it has no service."""
    real = vars(Roster)["is_witness"].fget

    def may_lead(self: Roster) -> bool:
        if real(self):
            planting.ran()
        return self._own_kind in (MemberKind.VOTER, MemberKind.WITNESS)

    planting.replace(Roster, "is_witness", property(lambda self: False))
    planting.replace(Roster, "may_lead", property(may_lead))


def _go_on_when_removed(planting: Planting) -> None:
    def stop(self: MembershipControl, reason: str) -> None:
        planting.ran()

    planting.replace(MembershipControl, "_stop", stop)


def _keep_what_was_cut_off(planting: Planting) -> None:
    real = ConfigurationHistory.truncate

    def truncate(self: ConfigurationHistory, position: int) -> None:
        if self.current.log_position > position:
            planting.ran()
        else:
            real(self, position)

    planting.replace(ConfigurationHistory, "truncate", truncate)


def _believe_older_members(planting: Planting) -> None:
    """A member goes by what it hears last, and stops if that has not got it."""
    real = MembershipControl.hear

    def hear(self: MembershipControl, configuration: Configuration, *, is_trusted: bool) -> None:
        real(self, configuration, is_trusted=is_trusted)
        is_old = configuration.log_position < self._ctx.roster.latest.log_position
        if is_trusted and is_old and configuration.find(self._ctx.config.member_id) is None:
            planting.ran()
            self._stop("an older configuration says so")

    planting.replace(MembershipControl, "hear", hear)


def _take_ids_again(planting: Planting) -> None:
    """A new member gets the lowest id that is free, so that a replaced one comes back with its old memory."""
    real = configuration.with_member

    def with_member(
        current: Configuration,
        member_id: int | None,
        kind: MemberKind,
        endpoints: tuple[str, str, str, str, str],
    ) -> Configuration:
        free = [one for one in range(current.high_member_id) if current.find(one) is None]
        if not free:
            return real(current, member_id, kind, endpoints)
        planting.ran()
        member = ConfiguredMember(MemberId(free[0]), kind, endpoints)
        return configuration._next(current, (*current.members, member), configuration.ConfigurationCause.ADD)

    planting.replace(configuration, "with_member", with_member)


def _come_in_as_voter(planting: Planting) -> None:
    real = configuration.with_member

    def with_member(
        current: Configuration,
        member_id: int | None,
        kind: MemberKind,
        endpoints: tuple[str, str, str, str, str],
    ) -> Configuration:
        planting.ran()
        return real(current, member_id, MemberKind.VOTER, endpoints)

    planting.replace(configuration, "with_member", with_member)


def _remember_no_configurations(planting: Planting) -> None:
    """Frames that are received are not searched: a follower goes by what its settings said."""

    def note_frames(self: ConfigurationHistory, frames: bytes, position: int) -> None:
        if any(configuration.find_configurations(frames, position)):
            planting.ran()

    planting.replace(ConfigurationHistory, "note_frames", note_frames)


def _believe_to_be_alone(planting: Planting) -> None:
    """A member that has forgotten its vote stands if its log, as far as it has that again, calls it the only one."""
    real = vars(ConsensusContext)["is_barred"].fget

    def is_barred(self: ConsensusContext) -> bool:
        if not real(self) or not self.roster.is_alone:
            return bool(real(self))
        planting.ran()
        return False

    planting.replace(ConsensusContext, "is_barred", property(is_barred))


def _stand_by_what_was_read(planting: Planting) -> None:
    """A part of the log that cannot be searched for configurations is taken to have none."""

    def note_unread(self: ConfigurationHistory, position: int, end_position: int) -> None:
        planting.ran()

    planting.replace(ConfigurationHistory, "note_unread", note_unread)


_OF_CHANGES: Final = tuple(
    Plant(name, class_number, rule, break_it, options=MEMBER_HUNT_OPTIONS)
    for name, class_number, rule, break_it in (
        (
            "old-members-count",
            13,
            "who counts is what the newest configuration in the log says, committed or not",
            _count_the_old_members,
        ),
        (
            "cut-off-and-in-force",
            13,
            "a configuration that is cut off with the log counts no more",
            _keep_what_was_cut_off,
        ),
        (
            "received-not-searched",
            13,
            "a follower goes by the newest configuration in its log",
            _remember_no_configurations,
        ),
        (
            "change-before-own-entry",
            14,
            "a change waits until its leader has committed an entry of its own term",
            _change_before_an_own_entry,
        ),
        ("two-changes-at-once", 14, "a change waits until the one before is committed", _change_twice_at_once),
        ("removed-goes-on", 15, "a member that was removed stops when it is told", _go_on_when_removed),
        ("learner-counts", 16, "a learner is counted nowhere", _count_learners),
        ("learner-stands", 16, "a learner, or a member that was removed, does not stand", _let_anybody_stand),
        ("voter-at-once", 16, "a new member comes in as a learner", _come_in_as_voter),
        ("id-taken-again", 17, "a member id is used once", _take_ids_again),
        ("older-members-believed", 18, "members that are older than what is known are no news", _believe_older_members),
    )
)

PLANTS: Final = (
    *_OF_CHANGES,
    Plant(
        "was-alone-stands",
        17,
        "a member that lost its directory does not stand, though its log calls it the only one",
        _believe_to_be_alone,
        scenario="was-alone",
    ),
    Plant(
        "unread-members-stand",
        18,
        "a member that cannot read who the members are does not stand",
        _stand_by_what_was_read,
        scenario="members-unread",
    ),
    Plant(
        "witness-leads-on",
        16,
        "a witness leads only to hand over, and takes no input",
        _let_a_witness_lead,
        options=WITNESS_HUNT_OPTIONS,
    ),
)
