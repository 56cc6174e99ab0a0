"""The guard of the hot paths: their counts may not grow, and what is counted is what nodes and clients do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trimaran.benchmarks.guard import guard
from trimaran.benchmarks.guard.paths import make_paths
from trimaran.benchmarks.guard.stand_ins import CHUNK_MESSAGES
from trimaran.client.protocol.protocol import ClientProtocol
from trimaran.cluster.core.log.log_buffer import LogBuffer
from trimaran.service_api import ConfigurationError

PAYLOAD = 32
FRAME = 96
"""A payload of 32 bytes with its session header in a frame."""


def test_a_path_that_takes_more_instructions_fails_the_guard() -> None:
    stored = {"ingest": 1000, "deliver": 1000}

    assert list(guard.check({"ingest": 1050, "deliver": 900}, stored)) == ["ingest", "deliver"]
    for counted in ({"ingest": 1051, "deliver": 900}, {"egress": 7}):
        with pytest.raises(guard.SlowerError):
            guard.check(counted, stored)


def test_counts_of_another_interpreter_are_not_compared(tmp_path: Path) -> None:
    path = tmp_path / "counts.json"
    path.write_text(json.dumps({"another": {"ingest": 1}}))

    with pytest.raises(ConfigurationError):
        guard.run(update=False, path=path)


def test_counts_are_stored_for_the_paths_that_there_are() -> None:
    for interpreter, counts in json.loads(guard.STORED_COUNTS.read_text()).items():
        assert counts.keys() == make_paths(PAYLOAD).keys(), interpreter


@pytest.mark.parametrize("name", make_paths(PAYLOAD))
def test_every_path_takes_chunk_after_chunk(name: str) -> None:
    run = make_paths(PAYLOAD)[name]()

    for _ in range(30):  # more than a writer of snapshots holds before it hands them on
        run()


def test_a_chunk_goes_through_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes are counted where they come out."""
    appended: list[int] = []
    sent: list[int] = []
    log_append, take = LogBuffer.append, ClientProtocol.data_to_send

    def append(self: LogBuffer, chunk: bytes) -> None:
        appended.append(len(chunk))
        log_append(self, chunk)

    def data_to_send(self: ClientProtocol, connection_id: int) -> bytearray | None:
        data = take(self, connection_id)
        sent.append(len(data or b""))
        return data

    monkeypatch.setattr(LogBuffer, "append", append)
    monkeypatch.setattr(ClientProtocol, "data_to_send", data_to_send)
    names = ("ingest", "follower_accept", "deliver", "deliver_and_egress", "sessions_ingest", "shared_ingest")
    paths = {name: make_paths(PAYLOAD)[name]() for name in (*names, "client_offer")}

    for name in names:
        appended.clear()
        paths[name]()
        assert sum(appended) == CHUNK_MESSAGES * FRAME, name
    sent.clear()
    paths["client_offer"]()
    assert sent == [CHUNK_MESSAGES * FRAME]
