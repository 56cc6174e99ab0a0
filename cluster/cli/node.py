"""`trimaran node`: run one member until it is told to stop, with all its groups or one of them."""

from __future__ import annotations

from typing import Any

import typer

from ...archive.log.group_directories import settle_group_count
from ...service_api.operating_system import expect_member_system
from ..node.member_process import run_node
from ..runtime.files.process_log import ProcessLog
from ..settings.config import NodeConfig
from ..settings.groups import of_group
from .app import exit_status_of
from .groups.supervisor import GroupSupervisor
from .shared.event_loop import run_command_loop
from .shared.logging import configure_logging
from .shared.setting_flags import load_from_flags, with_setting_flags


@with_setting_flags()
def node(**settings: Any) -> None:
    """Run one member of a cluster until SIGTERM or SIGINT.

    Settings come from flags, TRIMARAN_* variables and a TOML file, in this order; `trimaran config show` prints
    them.

    If the cluster has groups, this command starts a process for each and keeps it running; with the setting group it
    is that group itself.
    """
    expect_member_system("trimaran node")
    config = load_from_flags(settings).config
    settle_group_count(config.directory, config.groups)
    if config.groups > 1 and not config.group:
        _run_groups(config)
        return
    group_index = int(config.group or 0)
    config = of_group(config, group_index)
    process_log = ProcessLog(config.log_level)
    configure_logging(
        config.log_format,
        member_id=config.member_id,
        group_index=group_index if config.groups > 1 else None,
        process_log=process_log,
    )
    try:
        run_command_loop(run_node(config, process_log=process_log))
    except Exception as error:  # the log has it
        raise typer.Exit(exit_status_of(error)) from None


def _run_groups(config: NodeConfig) -> None:
    for group_index in range(config.groups):
        of_group(config, group_index)  # refused here, once, rather than by each group
    configure_logging(config.log_format, member_id=config.member_id)

    async def run() -> int:
        return await GroupSupervisor(config).run()

    raise typer.Exit(run_command_loop(run()))
