"""What campaigns write down, and what is stored of their corpora."""

from __future__ import annotations

from pathlib import Path

import pytest

import tests.fuzz.corpus
from tests.fuzz.corpus import minimise, store, stored_inputs
from tests.fuzz.findings import Findings
from tests.fuzz.target import Target
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.wire.link_frames import SetupFrame


def parse(data: bytes) -> None:
    """Parse an endpoint."""
    Endpoint.parse(data.decode("latin-1"))


TARGET = Target("endpoint", parse, lambda: [b"a:1"], 100)


def test_each_place_that_raises_is_written_down_once_with_its_input(tmp_path: Path) -> None:
    findings = Findings(tmp_path, "endpoint")
    for data in (b"a", b"b", b"c"):
        try:
            parse(data)
        except ConfigurationError as error:
            findings.note(error, data)
    try:
        SetupFrame.decode(b"")
    except Exception as error:
        findings.note(error, b"other")

    inputs = sorted(path.read_bytes() for path in tmp_path.glob("endpoint-*.bin"))
    assert inputs == [b"a", b"other"]
    traces = "".join(path.read_text() for path in tmp_path.glob("endpoint-*.txt"))
    assert "ConfigurationError at trimaran/service_api/endpoint.py:" in traces


def test_corpus_keeps_the_shortest_inputs_that_take_every_step() -> None:
    kept = minimise(TARGET, [b"host.example:65535", b"a:1", b"b:22", b"[::1]:9", b"a:1"])

    assert kept == [b"a:1", b"[::1]:9", b"host.example:65535"]


def test_corpus_is_stored_with_the_same_bytes_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tests.fuzz.corpus, "STORED", tmp_path)
    store("endpoint", [b"long input", b"a"])
    first = (tmp_path / "endpoint.zip").read_bytes()
    store("endpoint", [b"a", b"long input"])

    assert (tmp_path / "endpoint.zip").read_bytes() == first
    assert [*stored_inputs("endpoint")] == [b"a", b"long input"]
