"""Archives that are served on loopback, and clients of them: shared by the tests of the archive's protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.unit.archive.streams import launch
from trimaran.archive import Archive
from trimaran.archive.net.client import ArchiveClient
from trimaran.archive.net.server.archive_server import ArchiveServer
from trimaran.archive.net.server.served_archive import ServedArchive
from trimaran.service_api.authorisation import AllowAll
from trimaran.service_api.endpoint import Endpoint

HOST = "127.0.0.1"


@asynccontextmanager
async def serving(archive: Archive | None = None, **options: Any) -> AsyncIterator[ArchiveServer]:  # of its state
    """An archive that everybody may change, on a free port."""
    server = ArchiveServer(ServedArchive(archive or await launch(), **{"authorisation": AllowAll(), **options}))
    await server.start(Endpoint(HOST, 0))
    try:
        yield server
    finally:
        await server.aclose()


@asynccontextmanager
async def client_of(server: ArchiveServer, **options: Any) -> AsyncIterator[ArchiveClient]:  # of the client
    """A client of a served archive."""
    async with ArchiveClient.connect(str(server.endpoint), **options) as archive:
        yield archive


@asynccontextmanager
async def served_client(archive: Archive | None = None) -> AsyncIterator[tuple[ArchiveServer, ArchiveClient]]:
    """A served archive and a client of it."""
    async with serving(archive) as server, client_of(server) as client:
        yield server, client


def numbered(count: int, *, length: int = 200, first: int = 0) -> list[bytes]:
    """Messages that say which they are."""
    return [number.to_bytes(8, "little").ljust(length, b".") for number in range(first, first + count)]
