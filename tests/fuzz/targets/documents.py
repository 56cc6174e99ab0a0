"""The JSON documents that one process asks another for, and the pages of the metrics endpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.fuzz.loops import on_loop
from tests.fuzz.target import expect, target
from tests.unit.cluster.runtime.fake_gate import let_in, quiet_gate
from tests.unit.cluster.runtime.fake_transport import FakeTransport
from trimaran.cluster.auth.metrics_access import MetricsAccess
from trimaran.cluster.documents.inspection import (
    InspectionRefusal,
    InspectionRequest,
    MembersView,
    SessionsView,
    TimersView,
)
from trimaran.cluster.documents.operations import OperationProgress, OperationRequest
from trimaran.cluster.runtime.answering.metrics_server import REQUEST_LIMIT_BYTES, MetricsServer, _Connection
from trimaran.service_api.documents.document import Document, Refusal, printable_line, read_document
from trimaran.service_api.documents.member_status import MemberStatus
from trimaran.service_api.errors import RemoteProtocolError
from trimaran.service_api.net.transport import Purpose

DOCUMENTS: tuple[type[Document], ...] = (
    MemberStatus,
    InspectionRequest,
    InspectionRefusal,
    MembersView,
    SessionsView,
    TimersView,
    OperationRequest,
    OperationProgress,
    Refusal,
)


def _document_seeds() -> Iterator[bytes]:
    for index, document in enumerate(DOCUMENTS):
        schema = document.model_json_schema()
        yield bytes([index]) + json.dumps(_example(schema, schema.get("$defs", {}))).encode()
        yield bytes([index]) + b'{"schema_version": 2, "topic": "members"}'


def _example(schema: object, definitions: dict[str, object]) -> object:
    """Make a value that a JSON schema allows, as simple as there is."""
    assert isinstance(schema, dict)
    if "$ref" in schema:
        return _example(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    for several in ("anyOf", "allOf", "oneOf"):
        if several in schema:
            return _example(schema[several][0], definitions)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            parts = schema.get("properties", {})
            return {name: _example(part, definitions) for name, part in parts.items()}
        case "array":
            return [_example(schema["items"], definitions)] if isinstance(schema.get("items"), dict) else []
        case "integer" | "number":
            return max(1, schema.get("minimum", 1))
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return "3f9a0c12d45e77b1" if "pattern" in schema and "0-7" in schema["pattern"] else "a"


@target(_document_seeds, length_limit=8192)
def documents(data: bytes) -> None:
    """Status, inspection and operation documents: refused, or written and read again."""
    if not data:
        return
    kind = DOCUMENTS[data[0] % len(DOCUMENTS)]
    try:
        found = read_document(kind, data[1:])
    except RemoteProtocolError as error:
        printable_line(str(error)).encode()
        return
    again = read_document(kind, found.model_dump_json().encode())
    expect(again == found, "a document is read as it was written", found=found, again=again)


def _request_seeds() -> Iterator[bytes]:
    yield b"\x05GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"
    yield b"\x20GET /metrics HTTP/1.1\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n"
    yield b"\xffGET /readyz?x=1 HTTP/1.0\n\n"


@target(_request_seeds, length_limit=9000)
def metrics_request(data: bytes) -> None:
    """What a scraper sends to the metrics endpoint: one answer, and the end of the connection."""
    if data:
        on_loop(lambda: _scrape(1 + data[0], data[1:]))


class _Pages:
    """A page that is always the same."""

    def render(self) -> bytes:
        return b"up 1\n"

    def why_not_ready(self) -> None:
        return None


def _scrape(piece_length: int, request: bytes) -> None:
    server = MetricsServer(
        _Pages(),
        content_type="text/plain",
        monotonic_ns=lambda: 1,
        access=MetricsAccess(lambda: b"0123456789abcdef"),
    )
    connection, transport = _Connection(server, let_in(quiet_gate(), Purpose.METRICS)), FakeTransport()
    connection.connection_made(transport)
    for start in range(0, len(request), piece_length):
        connection.data_received(request[start : start + piece_length])
    expect(len(connection._received) <= REQUEST_LIMIT_BYTES + piece_length, "a request is bounded")
    expect(transport.written.startswith(b"HTTP/1.1 ") or not transport.written, "an answer is HTTP")
    connection.connection_lost(None)
