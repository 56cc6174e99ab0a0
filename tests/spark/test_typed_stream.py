"""Typed messages as a stream, while the service and its clients are upgraded to newer versions of their classes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.log_rows import CLIENT, TIME
from tests.spark.sessions import SLOW_START
from tests.unit.archive.streams import launch, small_config
from tests.waiting import wait_until
from trimaran.archive import Archive
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.spark import register, typed_messages, typed_schemas
from trimaran.archive.store.recording import Recording
from trimaran.service_api.typed import Command, Event
from trimaran.service_api.typed.codec import MessageCodec
from trimaran.service_api.types import LOG_STREAM_ID
from trimaran.service_api.wire.frame import encode_message
from trimaran.service_api.wire.log.messages import encode_session_message
from trimaran.service_api.wire.payload_header import PayloadKind
from trimaran.service_api.wire.topics import SCHEMA_TOPIC, encode_topic_message

pytestmark = pytest.mark.slow

TIMEOUT_S = 90.0
OF_SERVICE_0 = -(1 << 63) + 1


class OldOrder(Command[int], name="Order"):
    owner: str
    price: int


class Order(Command[int]):
    owner: str
    price: int
    note: str = ""


class Shorter(Command[int], name="Order"):
    price: int


class Filled(Event):
    owner: str


class GrowingLog:
    """A log that is being recorded."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._position = 0

    def add(self, *payloads: bytes, session_id: int = CLIENT) -> None:
        """Record messages of a client, or of a service."""
        for payload in payloads:
            message = encode_session_message(1, session_id, TIME, payload)
            frames = encode_message(
                message, stream_id=LOG_STREAM_ID, mtu_length=1408, term_id=0, term_offset=self._position
            )
            self._position += len(frames)
            self._recording.append(frames)
        self._recording.flush()


def written(*sent: Command[int]) -> list[bytes]:
    """The payloads of a client's commands: the schema of their class first."""
    codec: MessageCodec[Any] = MessageCodec(type(sent[0]))
    return [codec.announcement(), *(codec.header(PayloadKind.COMMAND) + codec.encode(each) for each in sent)]


@pytest.fixture
async def archive(tmp_path: Path) -> AsyncIterator[Archive]:
    archive = await launch(OsFileSystem(), tmp_path / "archive", config=small_config(checksums=False))
    yield archive
    await archive.aclose()


@pytest.fixture
async def log(archive: Archive) -> GrowingLog:
    """A log that has commands of the first version of a class."""
    recording = await archive.start_recording(
        stream_id=LOG_STREAM_ID, session_id=7, channel="trimaran:test", source_identity="member-0", preallocate=False
    )
    log = GrowingLog(recording)
    log.add(*written(*(OldOrder("ann", price) for price in range(3))))
    return log


class Query:
    """A query over the log, run after run from one checkpoint; `rows` are those of all batches that were finished."""

    def __init__(self, make: Callable[[], DataFrame], checkpoint: Path) -> None:
        self.rows: list[Row] = []
        self._make = make
        self._checkpoint = checkpoint
        self._run: StreamingQuery | None = None

    def start(self) -> None:
        def sink(batch: DataFrame, batch_id: int) -> None:
            self.rows += batch.collect()

        writer = self._make().writeStream.option("checkpointLocation", str(self._checkpoint))
        self._run = writer.foreachBatch(sink).start()

    async def wait_for(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until something holds of the rows; a run that Spark started too slowly is started again."""

        def is_done() -> bool:
            error = self.error
            if error is not None and SLOW_START in error:
                self.start()
            elif error is not None:
                pytest.fail(error)
            return holds()

        await wait_until(is_done, timeout_s=TIMEOUT_S, what=lambda: f"{what}: {self.rows}")

    async def wait_for_failure(self) -> str:
        """Wait until the query has ended with an error; return what it says."""
        assert self._run is not None
        run = self._run
        await wait_until(lambda: not run.isActive, timeout_s=TIMEOUT_S, what="the end of the query")
        assert self.error is not None
        return self.error

    @property
    def error(self) -> str | None:
        found: StreamingQueryException | None = None if self._run is None else self._run.exception()
        return None if found is None else str(found)

    def stop(self) -> None:
        if self._run is not None:
            self._run.stop()


Start = Callable[..., Query]


@pytest.fixture
def start(spark: SparkSession, archive: Archive, tmp_path: Path) -> Any:
    """Start a query for the messages of a class, or all of them; with the schemas of the log, or fixed ones."""
    register(spark)
    queries: list[Query] = []
    directory = str(tmp_path / "archive")

    def start_query(name: str | None, *, columns: Sequence[str], is_fixed: bool = False) -> Query:
        batch = spark.read.format("aeron_archive").option("messages", "true").load(directory)
        given: dict[str, Any] = {"schemas": typed_schemas(batch)} if is_fixed else {"log": directory}

        def make() -> DataFrame:
            reader = spark.readStream.format("aeron_archive").options(messages="true", committed="false")
            shown = typed_messages(reader.load(directory), name, **given)
            return shown.where("kind <> 'schema'").select("position", "message", "problem", *columns)

        queries.append(Query(make, tmp_path / "checkpoint"))
        queries[-1].start()
        return queries[-1]

    yield start_query
    for query in queries:
        query.stop()


async def test_a_stream_without_a_name_reads_schemas_as_they_come(log: GrowingLog, start: Start) -> None:
    query = start(None, columns=["fields"])
    await query.wait_for(lambda: len(query.rows) == 3, "the rows of the first version")

    event = MessageCodec(Filled)
    log.add(*written(Order("bob", 7, "new")))
    log.add(encode_topic_message(SCHEMA_TOPIC, event.announcement()), session_id=OF_SERVICE_0)
    filled = event.header(PayloadKind.EVENT) + event.encode(Filled("bob"))
    log.add(encode_topic_message("fills", filled), session_id=OF_SERVICE_0)
    await query.wait_for(lambda: len(query.rows) == 5, "the rows of the new version")

    assert [(row.message, json.loads(row.fields), row.problem) for row in query.rows[3:]] == [
        ("Order", {"owner": "bob", "price": 7, "note": "new"}, None),
        ("Filled", {"owner": "bob"}, None),
    ]


async def test_a_stream_of_a_class_ends_at_a_version_with_more_fields_and_a_restart_goes_on_there(
    log: GrowingLog, start: Start
) -> None:
    query = start("Order", columns=["fields.*"])
    await query.wait_for(lambda: len(query.rows) == 3, "the rows of the first version")

    log.add(*written(Order("bob", 7, "new"), Order("cid", 8)))
    error = await query.wait_for_failure()
    query.start()
    await query.wait_for(lambda: len(query.rows) == 5, "the rows of the new version")

    assert "newer version of the class has other columns than this query: note (string)" in error
    assert len({row.position for row in query.rows}) == 5
    assert [(row.owner, row.price, row.note) for row in query.rows[3:]] == [("bob", 7, "new"), ("cid", 8, "")]


async def test_a_stream_of_a_class_reads_a_version_that_has_no_other_columns(log: GrowingLog, start: Start) -> None:
    query = start("Order", columns=["fields.*"])
    await query.wait_for(lambda: len(query.rows) == 3, "the rows of the first version")

    log.add(*written(Shorter(7)))
    await query.wait_for(lambda: len(query.rows) == 4, "the row of the new version")

    assert (query.rows[3].owner, query.rows[3].price, query.rows[3].problem) == (None, 7, None)


@pytest.mark.parametrize("name", ["Order", None])
async def test_a_stream_with_fixed_schemas_shows_what_it_cannot_read_with_the_problem(
    log: GrowingLog, start: Start, name: str | None
) -> None:
    query = start(name, columns=["fields"], is_fixed=True)
    await query.wait_for(lambda: len(query.rows) == 3, "the rows of the first version")

    log.add(*written(Order("bob", 7, "new")))
    await query.wait_for(lambda: len(query.rows) == 4, "the row of the new version")

    assert (query.rows[3].message, query.rows[3].fields) == (None, None)
    assert MessageCodec(Order).fingerprint.hex() in query.rows[3].problem
