"""`trimaran serve`: a cluster for development on this machine with a service that is ready to run.

Exit statuses are those of `trimaran up`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from trimaran.archive.tool.output import OutputFormat, OutputOption
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.ready_made import READY_MADE

from ..shared.setting_flags import with_shared_setting_flags
from ..up.up import (
    OWN_SETTINGS,
    DirectoryOption,
    MembersOption,
    OnceOption,
    PortOption,
    TimeoutOption,
    TlsOption,
    run_cluster,
)

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help=f"What to serve: {', '.join(READY_MADE)}.", show_default=False)
]


@with_shared_setting_flags((*OWN_SETTINGS, "service", "service_dir"))
def serve_ready_made(
    name: NameArgument,
    members: MembersOption = None,
    directory: DirectoryOption = Path("trimaran-data"),
    port: PortOption = None,
    once: OnceOption = False,
    timeout: TimeoutOption = 60.0,
    tls: TlsOption = False,
    output: OutputOption = OutputFormat.TABLE,
    **settings: Any,
) -> None:
    """Start a cluster on this machine that serves what you name, and show its status until Ctrl-C.

    It is `trimaran up` with a service that is ready to run. In production, name the service to `trimaran node`, as
    `--service` of this command's status says it.
    """
    if name not in READY_MADE:
        raise ConfigurationError(f"NAME={name} expected one of {', '.join(READY_MADE)}")
    settings["service"] = READY_MADE[name].target
    run_cluster(settings, directory, members=members, port=port, once=once, timeout_s=timeout, tls=tls, output=output)
