"""Rosters for tests of the core: members of a cluster whose log says already who they are, or not yet."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from trimaran.cluster.core.vocabulary.configuration import Configuration, ConfiguredMember, MemberKind
from trimaran.cluster.core.vocabulary.roster import Roster
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.types import MemberId


def configured(member_id: int, kind: MemberKind = MemberKind.VOTER) -> ConfiguredMember:
    """A member at endpoints that nobody dials."""
    host = f"host{member_id}"
    return ConfiguredMember(
        MemberId(member_id), kind, (f"{host}:9000", f"{host}:9001", f"{host}:9002", f"{host}:9003", f"{host}:9004")
    )


def roster(member_id: int, member_count: int, *, is_formed: bool = True, witness_ids: Collection[int] = ()) -> Roster:
    """Voters from 0 on. Of a formed cluster the log has said so, before anything that a test looks at."""
    members = tuple(
        configured(each, MemberKind.WITNESS if each in witness_ids else MemberKind.VOTER)
        for each in range(member_count)
    )
    return Roster(
        MemberId(member_id),
        Configuration(members=members, high_member_id=member_count - 1, log_position=1 if is_formed else 0),
    )


def roster_at(member_id: int, peers: Mapping[MemberId, Endpoint]) -> Roster:
    """A member, and others at these consensus endpoints."""
    others = (replace(configured(each), endpoints=("-:1", str(peers[each]), "-:3", "-:4", "-:5")) for each in peers)
    members = tuple(sorted((configured(member_id), *others), key=lambda member: member.member_id))
    return Roster(
        MemberId(member_id),
        Configuration(members=members, high_member_id=members[-1].member_id, log_position=1),
    )
