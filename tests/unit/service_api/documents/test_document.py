"""Documents of other processes: read strictly where known, tolerantly where newer, refused with what to do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.cluster.cli.answers import member_status
from trimaran.service_api import RemoteProtocolError
from trimaran.service_api.documents.document import (
    LINE_LENGTH_LIMIT,
    DocumentVersionError,
    SealedDocument,
    printable_line,
    read_document,
    seal_text,
)
from trimaran.service_api.documents.member_status import MemberStatus

STATUS = member_status(1, state="LEADER")
TEXT = STATUS.model_dump_json()


def with_unknown_fields(part: Any) -> Any:
    """What a newer version may write: something new at every level."""
    if isinstance(part, list):
        return [with_unknown_fields(item) for item in part]
    if isinstance(part, dict):
        return {name: with_unknown_fields(value) for name, value in part.items()} | {"added_later": [{"x": None}]}
    return part


def test_a_document_is_written_with_its_version_first() -> None:
    assert TEXT.startswith('{"schema_version":1,"member_id":1,')
    assert read_document(MemberStatus, TEXT.encode()) == STATUS


class Kept(SealedDocument):
    KIND = "kept document"

    position: int


def test_a_kept_document_has_the_digest_of_its_text() -> None:
    text = Kept(position=64).seal()

    assert read_document(Kept, text).position == 64
    assert read_document(Kept, seal_text(b'{"position":64,"added_later":1}')).position == 64
    for other in (text.replace(b"64}", b"65}"), b'{"position":64}', text + b" ", b"{}", b""):
        with pytest.raises(RemoteProtocolError, match=r"kept document.* expected sha256="):
            read_document(Kept, other)


def test_fields_that_a_newer_member_adds_are_ignored() -> None:
    newer = with_unknown_fields(json.loads(TEXT))
    assert "added_later" in newer["last_election"]

    assert read_document(MemberStatus, json.dumps(newer).encode()) == STATUS


def test_fields_that_an_older_member_does_not_know_have_their_defaults() -> None:
    older = json.loads(TEXT)
    for name in ("schema_version", "error_count", "differing_members", "snapshot_fetch"):
        del older[name]

    assert read_document(MemberStatus, json.dumps(older).encode()) == STATUS


@pytest.mark.parametrize(
    ("version", "advice"),
    [
        (2, "a newer Trimaran wrote it; upgrade the one that reads it"),
        (0, "an older Trimaran wrote it; upgrade that one"),
    ],
)
def test_another_schema_version_says_what_to_do_and_nothing_else(version: int, advice: str) -> None:
    """Whatever else is wrong with the document follows from its version."""
    document = json.dumps({"schema_version": version, "member_id": "one"}).encode()

    with pytest.raises(DocumentVersionError) as raised:
        read_document(MemberStatus, document)

    assert str(raised.value) == f"status of schema_version={version} expected=1: {advice}"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (('"schema_version":1', '"schema_version":"2"'), "schema_version"),
        (('"append_position":123456', '"append_position":-32'), "append_position"),
        (('"append_position":123456', '"append_position":1e400'), "append_position"),
        (('"append_position":123456', '"append_position":"123456"'), "append_position"),
        (('"role":"LEADER"', '"role":"KING"'), "role"),
        (('"state":"LEADER"', r'"state":"\u001b[2J"'), "state"),
        (('"uptime_s":12.5', '"uptime_s":NaN'), "uptime_s"),
        (('"pid":4712,', ""), "pid"),
        (('"reason":"link', '"reason":"' + "x" * 300), r"last_election\.reason"),
    ],
)
def test_a_document_that_is_not_quite_a_status_is_refused(change: tuple[str, str], expected: str) -> None:
    """A liar's: nothing of it gets onto a terminal."""
    assert change[0] in TEXT

    with pytest.raises(RemoteProtocolError, match=rf"status.*{expected}") as raised:
        read_document(MemberStatus, TEXT.replace(*change).encode())

    assert not isinstance(raised.value, DocumentVersionError)


@pytest.mark.parametrize("payload", [b"", b"\xff\xfe", b"[" * 10_000, b"[]", b"null"])
def test_bytes_that_are_no_document_are_refused(payload: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match=r"status"):
        read_document(MemberStatus, payload)


def test_text_of_others_becomes_one_printable_line() -> None:
    assert printable_line("a\nb \x1b[31mred\x07") == "a b ?[31mred?"
    assert len(printable_line("x" * 1000)) == LINE_LENGTH_LIMIT
