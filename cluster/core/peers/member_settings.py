"""The settings that must be equal on every member, and their comparison.

A message that one service offers would be refused on one member and taken on another; a member with one service more
gives each entry to something that the others do not have; a leader's terms would not end where a follower's do, or its
frames be longer than a follower's recording takes, as where one member has an imported log. Nobody would notice before
a snapshot differs, or a client is told two things. So members say these settings when they meet, and one that differs
is not heard: it cannot lead, nor vote, nor count in a quorum. Both sides say why. So they do where one log begins with
the state of a snapshot and the other with nothing.
"""

from __future__ import annotations

from ....service_api.cluster_id import format_cluster_id, is_other_cluster
from ....service_api.types import MemberId
from ...messages.settings import MemberSettings
from ..context import ConsensusContext
from ..vocabulary.roster import Roster

_COMPARED_WITH_WITNESS = ("term_length_bytes", "mtu_length_bytes", "checksums", "checksum_kind", "aeron_messages_only")
"""A witness has no services, whose settings could differ."""

_COMPARED = (*_COMPARED_WITH_WITNESS, "service_count", "service_queue_limit_bytes", "shared_timer_ids")


def settings_of(ctx: ConsensusContext) -> MemberSettings:
    """Return what this member tells the others."""
    config = ctx.config
    return MemberSettings(
        member_id=config.member_id,
        member_count=0 if ctx.roster.latest.log_position else len(ctx.roster.current.members),
        service_count=config.service_count,
        service_queue_limit_bytes=config.service_queue_limit_bytes,
        term_length_bytes=config.term_length_bytes,
        mtu_length_bytes=config.mtu_length_bytes,
        checksums=config.checksums,
        checksum_kind=config.checksum_kind,
        shared_timer_ids=config.shared_timer_ids,
        aeron_messages_only=config.aeron_messages_only,
        app_version=config.app_version,
        cluster_id=ctx.cluster_id,
        group_index=config.group.index,
        group_count=config.group.count,
        feature_level=config.known_level.feature_level,
        limiting_service=config.known_level.limiting_service,
    )


def find_seeded(ctx: ConsensusContext, log_start_position: int) -> bool | None:
    """Find what this member tells the others of its log's begin, which is nothing as long as the log is empty."""
    if ctx.recording_log.is_seeded:
        return True
    return None if ctx.is_log_empty or log_start_position > 0 else False


def difference(mine: MemberSettings, theirs: MemberSettings) -> str | None:
    """Name every setting that differs, with both values; None if these members can be of one cluster."""
    has_witness = 0 in (mine.service_count, theirs.service_count)
    found = [
        f"{name}={getattr(mine, name)!s} here, {getattr(theirs, name)!s} at member {theirs.member_id}"
        for name in (_COMPARED_WITH_WITNESS if has_witness else _COMPARED)
        if getattr(mine, name) != getattr(theirs, name)
    ]
    if mine.member_count and theirs.member_count and mine.member_count != theirs.member_count:
        found.insert(0, f"member_count={mine.member_count} here, {theirs.member_count} at member {theirs.member_id}")
    if not has_witness and mine.app_version >> 16 != theirs.app_version >> 16:
        major, other = mine.app_version >> 16, theirs.app_version >> 16
        found.append(f"app_version: major={major} here, {other} at member {theirs.member_id}")
    # As numbers: what a member says need be no group.
    here_group, there_group = ((one.group_index or 0, one.group_count or 1) for one in (mine, theirs))
    if here_group != there_group:
        (index, count), (other_index, other_count) = here_group, there_group
        found.append(
            f"another group: group {index} of {count} here, "
            f"group {other_index} of {other_count} at member {theirs.member_id}"
        )
    if mine.cluster_id and theirs.cluster_id and mine.cluster_id != theirs.cluster_id:
        here, other_id = (format_cluster_id(member.cluster_id) for member in (mine, theirs))
        found.append(f"another cluster: cluster_id={here} here, {other_id} at member {theirs.member_id}")
    if {mine.is_log_seeded, theirs.is_log_seeded} == {True, False}:
        begin, begin_there = ("the state of a snapshot" if one.is_log_seeded else "nothing" for one in (mine, theirs))
        found.append(f"another log: it begins with {begin} here, with {begin_there} at member {theirs.member_id}")
    return "; ".join(found) or None


def remedy(mine: MemberSettings, theirs: MemberSettings, roster: Roster) -> str:
    """Say what an operator does about a difference.

    Two clusters of members that know each other are mostly one: a founder that lost its directory knows only the first
    members by its settings, and may have begun with them again. Nobody here can tell which of the two it was.
    """
    if not is_other_cluster(theirs.cluster_id, mine.cluster_id):
        return "this member ignores it until their settings are equal: correct them and restart it"
    other_id = MemberId(theirs.member_id)
    other, known = roster.addresses.get(other_id), roster.latest.members
    place = "HOST:PORT" if other is None else other.ingress
    seeds = ",".join(f"{one.member_id}={one.ingress}" for one in known if one.member_id != other_id)
    return (
        f"this member ignores it; if member {other_id} lost its directory and began a cluster of its own, stop it, "
        f"rename its directory, and run `trimaran node --member-id {other_id} --members {other_id}={place} --join "
        f"{seeds}`; if this member did, do so here, with the members of the other cluster"
    )
