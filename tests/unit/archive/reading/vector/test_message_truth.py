"""Messages of logs and snapshots that a real Aeron wrote, read by columns, are those of the truth beside them."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import trimaran.cluster.messages
from tests.interchange.samples import CLUSTER_NODES, SCENARIOS, sample_of
from tests.unit.archive.spark.expected import wire_fields
from tests.unit.archive.streams import extract_sample
from trimaran import archive
from trimaran.archive.reading.vector.message_columns import find_messages, read_messages
from trimaran.archive.reading.vector.message_plan import MessagePlan
from trimaran.archive.reading.vector.payloads import Payloads
from trimaran.service_api.types import TimeUnit
from trimaran.service_api.wire.log.fields import NOT_YET_APPENDED
from trimaran.service_api.wire.message import MESSAGES, Message, registry_key

MODULES = (trimaran.cluster.messages,)  # imported for their registration


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("samples")
    for scenario in SCENARIOS:
        extract_sample(scenario, target)
    return target


def messages_of(recording: dict[str, Any]) -> dict[type[Message], dict[int, dict[str, Any]]]:
    """The truth: by class and position the fields; templates that no class has are the application's."""
    found: dict[type[Message], dict[int, dict[str, Any]]] = defaultdict(dict)
    for message in recording["messages"]:
        key = registry_key(message.get("schema_id", 0), message.get("template_id", 0))
        if key in MESSAGES:
            found[MESSAGES[key]][message["position"]] = message["fields"]
    return found


@pytest.mark.parametrize("name", CLUSTER_NODES)
def test_every_message_of_every_recording_is_as_the_real_decoder_says(root: Path, name: str) -> None:
    sample = sample_of(root, name)
    counts: Counter[str] = Counter()
    for recording in sample.truth["recordings"]:
        frames = archive.frames(
            sample.directory, recording_id=recording["recording_id"], columns=["position", "payload"], reassemble=True
        ).read_all()
        positions, payloads = frames.column("position").to_pylist(), frames.column("payload").combine_chunks()
        for message, expected in messages_of(recording).items():
            plan = MessagePlan.of(message, TimeUnit.MICROS)
            is_found = find_messages(Payloads.of(payloads), plan)

            columns, faults = read_messages(Payloads.of(payloads.filter(pa.array(is_found))), plan)

            rows = pa.table(columns, schema=plan.schema).cast(numbers(plan.schema)).to_pylist()
            places = [position for position, is_one in zip(positions, is_found, strict=True) if is_one]
            assert faults.first() is None
            found = {place: wire_fields(message, row) for place, row in zip(places, rows, strict=True)}
            wanted = {
                place: {name: without_pending(value) for name, value in fields.items() if name in known_names(message)}
                for place, fields in expected.items()
            }
            assert {place: found[place] for place in wanted} == wanted
            # An application's own bytes may look like a message; in these samples they do not.
            assert found.keys() == wanted.keys()
            counts[message.__name__] += len(rows)
    assert counts["SessionMessageHeader"] > 100
    assert {"NewLeadershipTermEvent", "SessionOpenEvent"} <= counts.keys()


def without_pending(value: Any) -> Any:
    """The time of a message that is not in the log yet is none."""
    return -1 if value == NOT_YET_APPENDED else value


def known_names(message: type[Message]) -> set[str]:
    return {f.wire_name for f in message.LAYOUT.block} | {var.wire_name for var in message.LAYOUT.var_data}


def numbers(schema: Any) -> Any:
    return pa.schema([f.with_type(pa.int64()) if pa.types.is_timestamp(f.type) else f for f in schema])
