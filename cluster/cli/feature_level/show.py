"""`trimaran feature-level show`: the level that is in force, and what each member can."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ....archive.tool.output import ABSENT, OutputFormat, OutputOption, format_number, new_table
from ...documents.inspection import MembersView
from ..shared.every_group import of_every_group
from ..shared.inspection import Inspection, MemberOption, heading
from ..shared.setting_flags import with_member_flags
from ..shared.watching import TimeoutOption, WatchOption


@with_member_flags
@of_every_group
def show_level(
    output: OutputOption = OutputFormat.TABLE,
    watch_every: WatchOption = None,
    timeout: TimeoutOption = 1.0,
    ask: MemberOption = None,
    **settings: Any,
) -> None:
    """Show the feature level that is in force, and the highest that the services of each member know.

    -o json prints the view that `trimaran member list` prints, -o jsonl a member per line.
    """
    asked = Inspection(settings, output, watch_every, timeout, ask)
    asked.show(MembersView, levels_table, lambda view: view.members)


def levels_table(view: MembersView) -> RenderableType:
    """Draw what is in force, and what each member can."""
    table = new_table("member", "kind", "link", "can", "limited by", numbers=["member", "can"])
    for member in view.members:
        link = "self" if member.member_id == view.answered_by else "up" if member.is_connected else "down"
        because = Text(member.limiting_service or ABSENT)
        table.add_row(str(member.member_id), Text(member.kind), link, format_number(member.feature_level), because)
    title = f"feature level {view.feature_level}, commit {view.commit_position:,}"
    return Group(heading(view, title, len(view.members), "members"), "", table)
