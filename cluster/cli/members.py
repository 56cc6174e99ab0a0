"""`trimaran member list`: the members of a cluster, as one of them sees them."""

from __future__ import annotations

from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from ...archive.tool.output import ABSENT, OutputFormat, OutputOption, format_duration, format_number, new_table
from ..documents.inspection import MembersView
from .shared.every_group import of_every_group
from .shared.inspection import DOWN_STYLE, LEADER_STYLE, Inspection, MemberOption, heading
from .shared.setting_flags import with_member_flags
from .shared.watching import TimeoutOption, WatchOption

_ROLES: Final = {"voter": "FOLLOWER", "learner": "LEARNER", "witness": "WITNESS", "standby": "STANDBY"}


@with_member_flags
@of_every_group
def list_members(
    output: OutputOption = OutputFormat.TABLE,
    watch_every: WatchOption = None,
    timeout: TimeoutOption = 1.0,
    ask: MemberOption = None,
    **settings: Any,
) -> None:
    """Show the members as their leader sees them: roles, links, positions, lag, endpoints.

    `trimaran status` asks each member about itself; this command shows one member's view of all.

    -o json prints one object, -o jsonl a member per line, --watch an object per line.
    """
    asked = Inspection(settings, output, watch_every, timeout, ask)
    asked.show(MembersView, members_table, lambda view: view.members)


def members_table(view: MembersView) -> RenderableType:
    """Draw the members as the one that answered sees them."""
    table = new_table(
        *("member", "role", "link", "append", "lag", "heard", "ingress", "archive"),
        numbers=["member", "append", "lag", "heard"],
        folding=["ingress", "archive"],
    )
    for member in view.members:
        link = Text("self" if member.member_id == view.answered_by else "up" if member.is_connected else "down")
        link.stylize("" if member.is_connected else DOWN_STYLE)
        table.add_row(
            str(member.member_id),
            Text("LEADER", style=LEADER_STYLE) if member.is_leader else Text(_ROLES.get(member.kind, member.kind)),
            link,
            format_number(member.append_position),
            format_number(member.lag_bytes) + (" catching up" if member.is_catching_up else ""),
            ABSENT if member.silent_s is None else format_duration(member.silent_s),
            Text(member.ingress),
            Text(member.archive),
        )
    leader = "no leader" if view.leader_member_id is None else f"leader {view.leader_member_id}"
    return Group(heading(view, f"{leader}, commit {view.commit_position:,}", len(view.members), "members"), "", table)
