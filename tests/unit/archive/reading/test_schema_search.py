"""The schemas that a log has are found, also those that it gets while it is read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.archive.streams import launch, small_config
from trimaran.archive import Archive
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.errors import ArchiveError
from trimaran.archive.reading.schema_search import SchemaSearch, search_on
from trimaran.archive.store.recording import Recording
from trimaran.service_api.typed import Command
from trimaran.service_api.typed.codec import MessageCodec
from trimaran.service_api.types import LOG_STREAM_ID
from trimaran.service_api.wire.frame import encode_message
from trimaran.service_api.wire.log.messages import encode_session_message


class First(Command[int]):
    owner: str


class Second(Command[int]):
    owner: str
    a_field_with_a_name_that_is_long_enough_to_make_the_schema_a_message_of_several_frames: int


MTU_LENGTH = 96
"""So short that each schema is a message of several frames."""


class Growing:
    """A log that is being recorded."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._position = 0

    def add(self, payload: bytes) -> None:
        frames = encode_message(
            encode_session_message(1, 5, 1_700_000_000_000, payload),
            stream_id=LOG_STREAM_ID,
            mtu_length=MTU_LENGTH,
            term_id=0,
            term_offset=self._position,
        )
        self._position += len(frames)
        self._recording.append(frames)
        self._recording.flush()


@pytest.fixture
async def archive(tmp_path: Path) -> AsyncIterator[Archive]:
    archive = await launch(OsFileSystem(), tmp_path, config=small_config(checksums=False))
    yield archive
    await archive.aclose()


@pytest.fixture
async def log(archive: Archive) -> Growing:
    recording = await archive.start_recording(
        stream_id=LOG_STREAM_ID, session_id=7, channel="trimaran:test", source_identity="member-0", preallocate=False
    )
    log = Growing(recording)
    log.add(b'an untyped message with "fields"')
    log.add(MessageCodec(First).announcement())
    return log


def names_in(search: SchemaSearch) -> list[str]:
    return [schema["name"] for schema in search.schemas.of_class().values()]


async def test_a_search_finds_what_the_log_has_and_then_what_it_gets(log: Growing, tmp_path: Path) -> None:
    search = SchemaSearch.open(tmp_path)
    before = names_in(search)

    log.add(b"x")
    log.add(MessageCodec(Second).announcement())
    search.read_on()

    assert before == ["First"]
    assert names_in(search) == ["First", "Second"]
    assert len(search_on(search, MessageCodec(Second).fingerprint)) == 2


async def test_a_search_in_this_process_reads_on_only_for_a_schema_that_is_not_known(
    log: Growing, tmp_path: Path
) -> None:
    search = SchemaSearch.open(tmp_path)
    log.add(MessageCodec(Second).announcement())

    known = search_on(search, MessageCodec(First).fingerprint)
    found = search_on(search, MessageCodec(Second).fingerprint)
    missed = search_on(search, bytes(8))

    assert [len(each) for each in (known, found, missed)] == [1, 2, 2]


async def test_a_log_that_is_gone_is_an_error(log: Growing, tmp_path: Path) -> None:
    search = SchemaSearch.open(tmp_path)
    for path in tmp_path.glob("*.catalog"):
        path.unlink()

    with pytest.raises(ArchiveError):
        search.read_on()
