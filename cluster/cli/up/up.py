"""`trimaran up`: start a cluster on this machine, show its state, stop it at Ctrl-C.

Exit status: 0 ended by Ctrl-C, SIGTERM or `trimaran shutdown`, or with --once when there was a leader; 1 the members
could not go on; 2 wrong usage; 11 no leader in time. No process is left behind, however the command ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ....archive.tool.output import EXIT_FAILED, EXIT_NO_LEADER, EXIT_OK, OutputFormat, OutputOption, fail
from ....service_api.errors import ClusterError, ConfigurationError
from ....service_api.operating_system import expect_member_system
from ....service_api.quantities import format_size_bytes, parse_size_bytes
from ....service_api.ready_made import READY_MADE
from ....service_api.stop_signals import on_stop_signal
from ....service_api.tls import client_network
from ...runtime.ground.activities import ActivityScope
from ...settings.config import TLS_PREFIX, NodeConfig
from ...settings.config_layers import check_settings
from ...settings.groups import group_members
from ...settings.member_endpoints import MemberEndpoints, parse_members
from ...settings.service_loading import load_service_classes
from ..app import report_error
from ..shared.cluster_report import ask_cluster
from ..shared.event_loop import run_command_loop
from ..shared.examples import SERVICE_MODULE, examples_directory
from ..shared.local_nodes import LocalNodes
from ..shared.setting_flags import load_shared_from_flags, with_setting_flags
from .place import CONFIG_FILE_NAME, Place, open_place
from .supervisor import Supervisor
from .up_view import UpView

REFRESH_INTERVAL_S: Final = 0.5
STATUS_TIMEOUT_S: Final = 1.0
EXAMPLE_SERVICE: Final = f"{SERVICE_MODULE}:AccessQuota"
DEVELOPMENT_LENGTH_BYTES: Final = 16 << 20
"""Of terms and segments, shorter than the defaults: a cluster in development should not take much room."""
OWN_SETTINGS: Final = (
    *("member_id", "members", "join", "listen", "directory", "metrics_endpoint", "log_format", "insecure_plaintext"),
    "group",
    *(name for name in NodeConfig.model_fields if name.startswith(TLS_PREFIX)),
)
"""What this command decides for each member."""

MembersOption = Annotated[
    int | None,
    typer.Option(
        "--members",
        min=1,
        max=9,
        help="Number of members. [default: 3, or as many as the directory has]",
        show_default=False,
    ),
]
DirectoryOption = Annotated[
    Path, typer.Option("--dir", metavar="DIR", help="The directory for data, logs and cluster.toml.")
]
PortOption = Annotated[
    int | None,
    typer.Option("--port", min=1, max=65_000, help="The first base port. [default: free ports]", show_default=False),
]
TlsOption = Annotated[
    bool, typer.Option("--tls", help="Use TLS: make certificates in DIR/certs, unless they are there.")
]
OnceOption = Annotated[bool, typer.Option("--once", help="Exit as soon as every member is in the leader's term.")]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="How long to wait for a leader.")
]


ServicesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SERVICE",
        help=f"A service to run: module:Class, or one that is ready to run: {', '.join(READY_MADE)}.",
        show_default=False,
    ),
]


@with_setting_flags(OWN_SETTINGS)
def up(
    services: ServicesArgument = None,
    members: MembersOption = None,
    directory: DirectoryOption = Path("trimaran-data"),
    port: PortOption = None,
    once: OnceOption = False,
    timeout: TimeoutOption = 60.0,
    tls: TlsOption = False,
    output: OutputOption = OutputFormat.TABLE,
    **settings: Any,
) -> None:
    """Start a cluster for development on this machine, and show its status until Ctrl-C.

    A member that you kill starts again after two seconds. The next start on the same directory uses the same data and
    the same endpoints; DIR/cluster.toml has the endpoints for other commands.

    Members get the settings of flags, TRIMARAN_* variables and a TOML file, by default DIR/cluster.toml; this command
    chooses ids, endpoints and directories. Without a service it runs an example. Several services get ids in the order
    in which you name them. For a service of yours terms and segments are 16MiB long, and a query that changes the state
    fails; services that are ready to run have the defaults of `trimaran node`.
    """
    expect_member_system("trimaran up")
    if services:
        if settings["service"] is not None:
            raise ConfigurationError(
                f"SERVICE={' '.join(services)} --service={settings['service']}: expected one of them"
            )
        settings["service"] = ",".join(map(_target_of, services))
    shared = choose_settings(settings, directory / CONFIG_FILE_NAME)
    service = shared["service"]
    load_service_classes(service.split(","), Path(shared["service_dir"]))
    group_count = int(shared["groups"]) if "groups" in shared else None
    place = open_place(directory, member_count=members, base_port=port, group_count=group_count, with_tls=tls)
    shared["groups"] = str(place.group_count)
    if place.certificates is not None:
        shared |= place.certificates.node_settings
    try:
        with UpView(place, service, output) as view:
            has_led = run_command_loop(_run(place, shared, view, is_once=once, timeout_s=timeout))
    except ConfigurationError:
        raise
    except (ClusterError, OSError, ExceptionGroup) as error:
        report_error(error)
        raise typer.Exit(EXIT_FAILED) from None
    if not has_led:
        fail(f"no leader within {timeout:g} s: the logs are in {place.directory}", EXIT_NO_LEADER)
    raise typer.Exit(EXIT_OK)


def _target_of(service: str) -> str:
    """Return the class of a service that is ready to run, by its name; any other text as it is."""
    if ":" in service:
        return service
    if service not in READY_MADE:
        raise ConfigurationError(f"SERVICE={service} expected module:Class or one of {', '.join(READY_MADE)}")
    return READY_MADE[service].target


def choose_settings(flags: dict[str, Any], config_file: Path) -> dict[str, str]:
    """Return the settings that all members get, as text by name, checked as each member will check them.

    Services that are ready to run get what they get in production; others get what helps to develop them.

    Raises:
        ConfigurationError: the user's: an unknown setting, a value that cannot be read, settings that do not fit.
    """
    shared = load_shared_from_flags(flags, file=config_file, own=OWN_SETTINGS)
    if "service" not in shared:
        shared |= {"service": EXAMPLE_SERVICE, "service_dir": str(examples_directory())}
    shared["service_dir"] = str(Path(shared.get("service_dir", ".")).absolute())
    if not {ready_made.target for ready_made in READY_MADE.values()}.issuperset(shared["service"].split(",")):
        shared.setdefault("check_queries", "true")
        term_length = shared.setdefault("term_length_bytes", format_size_bytes(DEVELOPMENT_LENGTH_BYTES))
        segment_length_bytes = max(parse_size_bytes(term_length), DEVELOPMENT_LENGTH_BYTES)
        shared.setdefault("segment_length_bytes", format_size_bytes(segment_length_bytes))
    me = {"member_id": 0, "members": parse_members("0=127.0.0.1:1"), "directory": config_file.parent}
    check_settings(me, shared)
    return shared


async def _run(place: Place, settings: Mapping[str, str], view: UpView, *, is_once: bool, timeout_s: float) -> bool:
    """Run the cluster until it is told to end; tells whether it was one."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[bool] = loop.create_future()

    def end(has_led: bool) -> None:
        if not ended.done():
            ended.set_result(has_led)

    async def supervise() -> None:
        await supervisor.run()
        end(True)

    async def watch() -> None:
        end(await _watch(place, view, is_once=is_once, timeout_s=timeout_s))

    on_stop_signal(end, True)
    supervisor = Supervisor(LocalNodes(place.directory, place.endpoints, settings), view.say)
    try:
        await supervisor.start()
        async with ActivityScope() as tasks:
            tasks.create_task(supervise(), name="supervisor")
            tasks.create_task(watch(), name="watch")
            return await ended
    finally:
        view.say("stopping", "every member, in order")
        await supervisor.stop()


async def _watch(place: Place, view: UpView, *, is_once: bool, timeout_s: float) -> bool:
    """Show how the cluster is, again and again; with `is_once` until it is complete. False: no leader in time."""
    members = tuple(
        MemberEndpoints.from_base(member_id, endpoint) for member_id, endpoint in enumerate(place.endpoints)
    )
    groups = [
        {member.member_id: member.consensus for member in group_members(members, group_index)}
        for group_index in range(place.group_count)
    ]
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    has_led = False
    network = client_network(None if place.certificates is None else place.certificates.operator)
    while True:
        reports = [await ask_cluster(endpoints, STATUS_TIMEOUT_S, network=network) for endpoints in groups]
        view.show(reports)
        has_led = has_led or all(report.has_quorum for report in reports)
        if is_once and all(report.in_term_count == report.member_count for report in reports):
            return True
        if not has_led and loop.time() > deadline_s:
            return False
        await asyncio.sleep(REFRESH_INTERVAL_S)
