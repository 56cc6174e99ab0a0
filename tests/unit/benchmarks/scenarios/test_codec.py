"""The hot paths one by one: what they do is what nodes and clients do, and their counts are guarded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trimaran.benchmarks.guard import guard
from trimaran.benchmarks.guard.paths import make_paths
from trimaran.benchmarks.guard.stand_ins import CHUNK_MESSAGES, AnsweringTransport, DroppingTransport
from trimaran.benchmarks.scenarios.codec import CodecParameters, run
from trimaran.client.protocol import ClientProtocol
from trimaran.cluster.core.log.log_buffer import LogBuffer
from trimaran.cluster.service.client_session import ContainerClientSession
from trimaran.service_api import ConfigurationError

PAYLOAD = 32
FRAME = 96
"""A payload of 32 bytes with its session header in a frame."""


def test_every_path_takes_whole_chunks_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages are counted where they come out."""
    appended: list[int] = []
    offered: list[bytes] = []
    sent: list[int] = []
    log_append, session_offer, take = LogBuffer.append, ContainerClientSession.offer, ClientProtocol.data_to_send

    def append(self: LogBuffer, chunk: bytes) -> None:
        appended.append(len(chunk))
        log_append(self, chunk)

    def offer(self: ContainerClientSession, payload: bytes) -> bool:
        offered.append(bytes(payload))
        return session_offer(self, payload)

    def data_to_send(self: ClientProtocol, connection_id: int) -> bytearray | None:
        data = take(self, connection_id)
        sent.append(len(data or b""))
        return data

    monkeypatch.setattr(LogBuffer, "append", append)
    monkeypatch.setattr(ContainerClientSession, "offer", offer)
    monkeypatch.setattr(ClientProtocol, "data_to_send", data_to_send)
    paths = {name: make() for name, make in make_paths(PAYLOAD).items()}
    chunk_bytes = CHUNK_MESSAGES * FRAME

    for name in ("ingest", "follower_accept", "deliver", "deliver_and_egress"):
        appended.clear()
        for _ in range(3):
            paths[name]()
        assert appended == [chunk_bytes] * 3, name
    sent.clear()
    paths["client_offer"]()
    assert sent == [chunk_bytes]
    assert len(offered) == 3 * CHUNK_MESSAGES
    assert len(set(offered)) == CHUNK_MESSAGES


def test_every_path_of_many_sessions_takes_a_message_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections of their own are appended together, and written one by one; shared ones are written together."""
    appended: list[int] = []
    written: list[int] = []
    monkeypatch.setattr(LogBuffer, "append", lambda self, chunk: appended.append(len(chunk)))
    paths = {name: make_paths(PAYLOAD)[name]() for name in ("sessions_ingest", "sessions_ingest_mixed")}
    for path in paths.values():
        path()
    half = CHUNK_MESSAGES // 2
    assert appended == [CHUNK_MESSAGES * FRAME, half * FRAME, half * (FRAME + 64)]
    appended.clear()
    make_paths(PAYLOAD)["shared_ingest"]()()
    assert appended == [CHUNK_MESSAGES * FRAME]
    monkeypatch.undo()

    for name, transport in (("deliver_and_egress", DroppingTransport), ("client_round", AnsweringTransport)):
        for kind, writes in (("sessions", [FRAME] * CHUNK_MESSAGES), ("shared", [CHUNK_MESSAGES * FRAME])):
            path = make_paths(PAYLOAD)[f"{kind}_{name}"]()
            monkeypatch.setattr(transport, "write", lambda self, data: written.append(len(data)))
            for _ in range(3):
                written.clear()
                path()
                assert written == writes, (kind, name)
            monkeypatch.undo()


def test_the_report_has_a_figure_for_each_path() -> None:
    report = run(CodecParameters(payload=PAYLOAD, messages=CHUNK_MESSAGES, rounds=2))

    assert all(report[f"{name}_ns"] > 0 for name in make_paths(PAYLOAD))
    with pytest.raises(ConfigurationError, match="rounds=0"):
        CodecParameters(rounds=0)


def test_a_path_that_takes_more_instructions_fails_the_guard() -> None:
    stored = {"ingest": 1000, "deliver": 1000}

    assert list(guard.check({"ingest": 1050, "deliver": 900}, stored)) == ["ingest", "deliver"]
    with pytest.raises(guard.SlowerError, match=r"ingest: 1,051 instructions a message, \+5\.1% to 1,000"):
        guard.check({"ingest": 1051, "deliver": 900}, stored)
    with pytest.raises(guard.SlowerError, match="egress: 7, not stored"):
        guard.check({"egress": 7}, stored)


def test_counts_of_another_interpreter_are_not_compared(tmp_path: Path) -> None:
    path = tmp_path / "counts.json"
    path.write_text(json.dumps({"another": {"ingest": 1}}))

    with pytest.raises(ConfigurationError, match="'another'"):
        guard.run(update=False, path=path)
    with pytest.raises(ConfigurationError, match="only=egest expected some of codec_encode,"):
        guard.run(update=True, only=("egest",), path=path)


def test_counts_are_stored_for_the_paths_that_there_are() -> None:
    for interpreter, counts in json.loads(guard.STORED_COUNTS.read_text()).items():
        assert counts.keys() == make_paths(PAYLOAD).keys(), interpreter
