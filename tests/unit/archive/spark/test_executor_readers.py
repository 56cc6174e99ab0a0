"""What travels to executors reads there without pydantic, which they need not have."""

from __future__ import annotations

import base64
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from trimaran.archive.reading.schema_search import SchemaSearch
from trimaran.archive.reading.vector.message_columns import read_messages
from trimaran.archive.reading.vector.message_plan import MessagePlan
from trimaran.archive.reading.vector.struct_columns import StructPlan, read_structs
from trimaran.archive.spark.executor_readers import MessageMapper, make_body_decoder, plan_reader
from trimaran.archive.spark.typed_readers import FieldReader
from trimaran.service_api.typed import Command
from trimaran.service_api.typed.codec import MessageCodec
from trimaran.service_api.types import CorrelationId, TermId, TimeUnit
from trimaran.service_api.wire.log.messages import TimerEvent
from trimaran.service_api.wire.payload_header import PayloadKind


class Draw(Command[int]):
    count: int


EXECUTOR = """
import base64, pickle, sys
sys.modules["pydantic"] = sys.modules["pydantic_settings"] = None
import pyarrow as pa
function, column = pickle.loads(base64.b64decode(sys.argv[1]))
given = pa.array(column, pa.binary())
if type(function).__name__ == "MessageMapper":
    numbers = pa.array(range(len(column)), pa.int64())
    given = [pa.RecordBatch.from_arrays([numbers, numbers, given], ["recording_id", "position", "payload"])]
    print([row for batch in function(given) for row in batch.to_pylist()])
else:
    print(function(given).to_pylist())
"""


def run_there(function: Any, column: list[bytes]) -> str:
    sent = base64.b64encode(cloudpickle.dumps((function, column))).decode()  # type: ignore[no-untyped-call]
    done = subprocess.run([sys.executable, "-c", EXECUTOR, sent], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_struct_format_is_decoded_without_pydantic() -> None:
    decoder = make_body_decoder(plan_reader(read_structs, StructPlan.of("<hq", ("a", "b"))))

    found = run_there(decoder, [b"\x01\x00" + bytes(8), b"\x02"])

    assert "{'value': {'a': 1, 'b': 0}, 'problem': None}" in found
    assert "{'value': None, 'problem': " in found


@pytest.mark.parametrize("way", ["messages", "payloads"])
def test_messages_are_decoded_without_pydantic(way: str) -> None:
    plan = MessagePlan.of(TimerEvent, TimeUnit.MILLIS)
    message = TimerEvent(leadership_term_id=TermId(3), correlation_id=CorrelationId(77), timestamp=5).encode()
    function = (
        MessageMapper(plan, "FAILFAST") if way == "messages" else make_body_decoder(plan_reader(read_messages, plan))
    )

    assert "'correlation_id': 77" in run_there(function, [message])


def test_a_schema_that_the_log_lacks_is_searched_once_for_an_array() -> None:
    class Counting(SchemaSearch):
        count = 0

        def read_on(self) -> None:
            self.count += 1

    search = Counting([])
    reader = FieldReader({}, None, search=search)
    payload = MessageCodec(Draw).header(PayloadKind.COMMAND) + b"\x91\x05"

    found = [reader(pa.array([payload] * 3, pa.binary())).to_pylist() for _ in range(2)]

    assert search.count == 2
    assert found == [[{"value": None, "problem": None, "message": None}] * 3] * 2


def test_fields_of_typed_messages_are_read_without_pydantic() -> None:
    codec = MessageCodec(Draw)
    reader = FieldReader({codec.fingerprint: codec.schema}, None)

    found = run_there(reader, [codec.header(PayloadKind.COMMAND) + codec.encode(Draw(5)), b"\xc1"])

    assert found == (
        "[{'value': '{\"count\":5}', 'problem': None, 'message': 'Draw'}, "
        "{'value': None, 'problem': None, 'message': None}]"
    )
