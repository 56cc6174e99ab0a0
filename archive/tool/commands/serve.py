"""`trimaran archive serve DIR`: an archive by itself, over TCP, until SIGTERM or SIGINT.

The first line on standard output says where it listens, once it does. What happens is logged on standard error, one
line each. With TLS and a cluster the caller's certificate says what it may do. Otherwise everybody who can reach the
port may record, replay and edit, unless `--authenticator` decides who may have a session, or `--read-only` lets nobody
change anything. To other machines it is served only where callers are known, or with `--insecure-plaintext`.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Final, NoReturn

import structlog
import typer

from ....service_api.access.rights import Rights
from ....service_api.authenticator import AcceptAll, Authenticator
from ....service_api.authorisation import AllowAll
from ....service_api.cluster_id import parse_cluster_id
from ....service_api.endpoint import Endpoint
from ....service_api.errors import ConfigurationError
from ....service_api.net.connection_gate import ConnectionGate, GateLimits
from ....service_api.net.descriptors import DescriptorBudget
from ....service_api.net.transport import NetworkStack, Purpose
from ....service_api.operating_system import expect_member_system
from ....service_api.stop_signals import on_stop_signal
from ....service_api.tls import TlsSettings, TlsStack, serving_network
from ....service_api.tls.watch import TlsWatch
from ...config import ArchiveConfig
from ...errors import ArchiveError
from ...files.mark_file import ArchiveInUseError
from ...log.group_directories import refuse_groups
from ...net.server.archive_server import CONNECTION_LIMIT, ArchiveServer
from ...net.server.policy import ReadOnly
from ...net.server.served_archive import ServedArchive
from ...store.conductor import Archive
from ..log_writer import new_log_writer
from ..output import EXIT_REFUSED, EXIT_UNHEALTHY, EXIT_USAGE

DEFAULT_PORT: Final = 8010
"""That of an Aeron archive's control channel in its examples."""

_DEFAULTS: Final = ArchiveConfig()
_FILES: Final = 64
"""Descriptors that connections never have."""
TERM_LENGTH_MIN_BYTES: Final = 64 << 10
TERM_LENGTH_MAX_BYTES: Final = 1 << 30

PortOption = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")]
TermLengthOption = Annotated[int, typer.Option(help="Term length of new recordings, in bytes, a power of two.")]
SegmentLengthOption = Annotated[int, typer.Option(help="Segment file length of new recordings, in bytes.")]
RateOption = Annotated[int | None, typer.Option(min=1, help="The most bytes per second for each replay.")]


def serve(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The archive directory; created if it does not exist.")
    ],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: PortOption = DEFAULT_PORT,
    term_length: TermLengthOption = _DEFAULTS.term_length_bytes,
    segment_length: SegmentLengthOption = _DEFAULTS.segment_length_bytes,
    file_sync_level: Annotated[int, typer.Option(min=0, max=2, help="0 kernel, 1 fdatasync, 2 fsync.")] = 1,
    read_only: Annotated[bool, typer.Option(help="Refuse requests to record or edit.")] = False,
    authenticator: Annotated[str, typer.Option(help="module:Class that decides who may open a session.")] = "",
    tls_authorities: Annotated[
        str, typer.Option(envvar="TRIMARAN_TLS_AUTHORITIES", help="Certificates of authorities; turns TLS on.")
    ] = "",
    tls_certificate: Annotated[
        str, typer.Option(envvar="TRIMARAN_TLS_CERTIFICATE", help="The certificate to show, in PEM.")
    ] = "",
    tls_key: Annotated[str, typer.Option(envvar="TRIMARAN_TLS_KEY", help="Its private key, in PEM.")] = "",
    tls_spiffe_prefix: Annotated[
        str,
        typer.Option(
            envvar="TRIMARAN_TLS_SPIFFE_PREFIX",
            help="Trust domain and path with which a URI of SPIFFE is an identity: spiffe://example.org/ns/prod.",
        ),
    ] = "",
    cluster_id: Annotated[
        str,
        typer.Option(
            envvar="TRIMARAN_CLUSTER_ID",
            help="The cluster whose certificates count; else the one that the own certificate names.",
        ),
    ] = "",
    insecure_plaintext: Annotated[
        bool, typer.Option("--insecure-plaintext", help="Serve other machines without TLS.")
    ] = False,
    replay_rate_limit: RateOption = None,
    connection_limit: Annotated[int, typer.Option(min=1, help="The most connections at the same time.")] = 4
    * CONNECTION_LIMIT,
) -> None:
    """Serve an archive over TCP: record, replay, edit, copy. Stops in order on SIGTERM, SIGINT and SIGHUP."""
    try:
        expect_member_system("trimaran archive serve")
    except ConfigurationError as error:
        _fail(str(error), EXIT_USAGE)
    config = _make_config(term_length, segment_length, file_sync_level)
    tls = {
        "authorities": tls_authorities,
        "certificate": tls_certificate,
        "key": tls_key,
        "spiffe_prefix": tls_spiffe_prefix,
    }
    network = _make_network(tls, cluster_id, is_plaintext_allowed=insecure_plaintext)
    _expect_known_callers(Endpoint(host, port), network, authenticator)
    own_cluster_id = parse_cluster_id(cluster_id) or network.cluster_id
    make_state = partial(
        ServedArchive,
        network=network,
        cluster_id=lambda: own_cluster_id,
        authenticator=_load_authenticator(authenticator),
        authorisation=ReadOnly() if read_only else AllowAll(),
        replay_rate_limit_bytes_per_s=replay_rate_limit,
        replay_limit=connection_limit,
        recording_limit=connection_limit,
    )
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(20), logger_factory=new_log_writer())
    try:
        asyncio.run(_serve(directory, config, Endpoint(host, port), make_state, connection_limit))
    except ArchiveInUseError as error:
        _fail(str(error), EXIT_REFUSED)
    except ArchiveError as error:
        _fail(str(error), EXIT_UNHEALTHY)
    except ConfigurationError as error:
        _fail(str(error), EXIT_USAGE)
    except OSError as error:
        _fail(f"cannot serve: directory={directory} endpoint={host}:{port} {error}", EXIT_USAGE)


async def _serve(
    directory: Path,
    config: ArchiveConfig,
    endpoint: Endpoint,
    make_state: Callable[[Archive], ServedArchive],
    connection_limit: int,
) -> None:
    """Open, listen, say where, wait for a signal, stop in order."""
    refuse_groups(directory)
    stopped = asyncio.Event()
    on_stop_signal(stopped.set)
    # Nobody notes whether the machine went down since: in doubt it did, and a torn last batch is cut off.
    archive = await Archive.launch(
        directory, config, clock_ms=lambda: time.time_ns() // 1_000_000, is_power_loss_possible=True
    )
    try:
        budget = DescriptorBudget.of_process(reserved=_FILES)
        state = make_state(archive)
        gate = ConnectionGate(
            {Purpose.ARCHIVE: GateLimits.of_count(min(connection_limit, budget.client_limit))},
            descriptors=budget,
            rights=Rights(state.audit),
            warn=structlog.get_logger().warning,
        )
        server = ArchiveServer(state, gate=gate)
        await server.start(endpoint)
        async with _watching(state.network, gate):
            try:
                typer.echo(f"serving on {server.endpoint} directory={directory} pid={os.getpid()}")
                sys.stdout.flush()
                await stopped.wait()
            finally:
                await server.aclose()
    finally:
        await archive.aclose()


@asynccontextmanager
async def _watching(network: NetworkStack, gate: ConnectionGate) -> AsyncIterator[None]:
    """Have the files of TLS read again when they change, and connections end with their certificates."""
    async with asyncio.TaskGroup() as tasks:
        watching: asyncio.Task[None] | None = None
        if isinstance(network, TlsStack):
            logger = structlog.get_logger()
            watching = tasks.create_task(TlsWatch(network, gate, info=logger.info, error=logger.error).run())
        try:
            yield
        finally:
            if watching is not None:
                watching.cancel()


def _make_config(term_length: int, segment_length: int, file_sync_level: int) -> ArchiveConfig:
    if term_length & (term_length - 1) or not TERM_LENGTH_MIN_BYTES <= term_length <= TERM_LENGTH_MAX_BYTES:
        _fail(
            f"--term-length={term_length} expected a power of two, {TERM_LENGTH_MIN_BYTES} to {TERM_LENGTH_MAX_BYTES}",
            EXIT_USAGE,
        )
    if segment_length % term_length or not term_length <= segment_length <= TERM_LENGTH_MAX_BYTES:
        _fail(
            f"--segment-length={segment_length} expected a multiple of --term-length={term_length}, "
            f"at most {TERM_LENGTH_MAX_BYTES}",
            EXIT_USAGE,
        )
    return ArchiveConfig(
        term_length_bytes=term_length,
        segment_length_bytes=segment_length,
        mtu_length_bytes=min(_DEFAULTS.mtu_length_bytes, term_length // 8),
        file_sync_level=file_sync_level,
    )


def _make_network(values: dict[str, str], cluster_id: str, *, is_plaintext_allowed: bool) -> NetworkStack:
    def tell(exposed: str) -> None:
        typer.echo(f"trimaran archive serve: insecure: {exposed} in plain text, no caller is known", err=True)

    try:
        tls = TlsSettings.of_values(values)
        if tls is not None and not tls.certificate:
            raise ConfigurationError("--tls-authorities without --tls-certificate and --tls-key: expected all three")
        return serving_network(
            tls,
            cluster_id=parse_cluster_id(cluster_id),
            danger="record and edit",
            remedy="--tls-authorities, --tls-certificate and --tls-key",
            on_plaintext=tell if is_plaintext_allowed else None,
        )
    except ConfigurationError as error:
        _fail(str(error), EXIT_USAGE)


def _expect_known_callers(endpoint: Endpoint, network: NetworkStack, authenticator: str) -> None:
    """Refuse to let other machines do everything over TLS: it hides what they send, and does not say who they are."""
    if isinstance(network, TlsStack) and not (network.cluster_id or authenticator or endpoint.is_loopback):
        _fail(
            f"--host {endpoint.host} is no loopback address, and no caller could be known: any process that can "
            "connect could record and edit; give --cluster-id, whose certificates then count, or --authenticator",
            EXIT_USAGE,
        )


def _load_authenticator(name: str) -> Authenticator:
    """Make the authenticator of a name, `module:Class`; everybody is let in without one."""
    if not name:
        return AcceptAll()
    module, _, attribute = name.partition(":")
    try:
        sys.path.insert(0, "")
        made: Authenticator = getattr(importlib.import_module(module), attribute)()
    except Exception as error:
        _fail(f"--authenticator={name} expected module:Class, made without arguments: {error!r}", EXIT_USAGE)
    return made


def _fail(message: str, status: int) -> NoReturn:
    typer.echo(f"trimaran archive serve: {message}", err=True)
    raise typer.Exit(status)
