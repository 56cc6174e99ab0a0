"""`trimaran serve`: a cluster for development on this machine with services that are ready to run.

Exit statuses are those of `trimaran up`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ....archive.tool.output import OutputFormat, OutputOption
from ....service_api.errors import ConfigurationError
from ....service_api.ready_made import READY_MADE
from ..shared.setting_flags import with_setting_flags
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

NamesArgument = Annotated[
    list[str],
    typer.Argument(metavar="NAME", help=f"What to serve: any of {', '.join(READY_MADE)}.", show_default=False),
]


@with_setting_flags((*OWN_SETTINGS, "service", "service_dir"))
def serve_ready_made(
    names: NamesArgument,
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

    It is `trimaran up` with services that are ready to run. Start the same directory with the same names in the same
    order. In production, name the services to `trimaran node`, as the line `service` of this command shows them.
    """
    for number, name in enumerate(names):
        if name not in READY_MADE:
            raise ConfigurationError(f"NAME={name} expected one of {', '.join(READY_MADE)}")
        if name in names[:number]:
            raise ConfigurationError(f"NAME={name} is given twice, expected each once")
    settings["service"] = ",".join(READY_MADE[name].target for name in names)
    run_cluster(settings, directory, members=members, port=port, once=once, timeout_s=timeout, tls=tls, output=output)
