"""`replay_log`: recorded traffic is held against a file or against older code, and differences say where they are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from trimaran import ClientSession, ConfigurationError
from trimaran.cluster.settings.variables import RECORD_VARIABLE
from trimaran.cluster.testing import MemoryCluster, replay_log

from .counting import Counter


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a member that has added 1 to 30, each by a request."""
    directory = tmp_path_factory.mktemp("recorded") / "node-0"
    with MemoryCluster(Counter, members=1) as cluster:

        async def use() -> None:
            client = await cluster.connect()
            for number in range(1, 31):
                await client.request(b"%d" % number)
            await client.request(b"later 5")
            await cluster.advance(6)

        cluster.run(use())
        cluster.save_directory(0, directory)
    return directory


class Rounding(Counter):
    """Gives another answer from 100 on; its state is the same."""

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        reply = super().on_request(session, timestamp, payload)
        return b"many" if self.total > 100 else reply


class Forgetful(Counter):
    """Gives the same answers; its state is another one in the end."""

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        """Nothing is added."""


def test_the_same_code_gives_what_was_recorded(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "counter.json"
    with pytest.raises(ConfigurationError, match=f"{RECORD_VARIABLE}=1 pytest"):
        replay_log(log, Counter, expected=file)
    monkeypatch.setenv(RECORD_VARIABLE, "1")
    replay_log(log, Counter, expected=file)
    monkeypatch.delenv(RECORD_VARIABLE)

    replayed = replay_log(log, Counter, expected=file)

    assert replayed.service.total == sum(range(31)) + 5  # type: ignore[attr-defined]
    assert json.loads(file.read_text())["output_counts"] == {"reply": 31, "timer_scheduled": 1}


@pytest.fixture
def expected(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "counter.json"
    with monkeypatch.context() as patch:
        patch.setenv(RECORD_VARIABLE, "1")
        replay_log(log, Counter, expected=file)
    return file


def test_an_answer_that_changed_is_told_with_its_place(log: Path, expected: Path) -> None:
    with pytest.raises(AssertionError) as raised:
        replay_log(log, Rounding, expected=expected)

    told = str(raised.value)
    assert "log_position=" in told
    assert told.count("payload=b'many'") == 5, told
    assert "state:" not in told
    assert f"{RECORD_VARIABLE}=1 pytest writes {expected} again" in told


def test_a_state_that_changed_is_told(log: Path, expected: Path) -> None:
    with pytest.raises(AssertionError, match="state: digest="):
        replay_log(log, Forgetful, expected=expected)


def test_older_code_is_compared_output_by_output(log: Path) -> None:
    assert replay_log(log, Counter, old=Counter).error_count == 0
    with pytest.raises(AssertionError, match=r"(?s)differences=18.*old: reply .*b'105'.*new: reply .*b'many'"):
        replay_log(log, Rounding, old=Counter)


def test_another_log_is_told(log: Path, expected: Path, tmp_path: Path) -> None:
    with MemoryCluster(Counter, members=1) as cluster:
        cluster.run(cluster.wait_for_leader())
        cluster.save_directory(0, tmp_path / "other")

    with pytest.raises(AssertionError, match="another log"):
        replay_log(tmp_path / "other", Counter, expected=expected)


def test_wrong_use_says_what_to_do(log: Path, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("[1]")
    with pytest.raises(ConfigurationError, match="name one of"):
        replay_log(log, Counter)
    with pytest.raises(ConfigurationError, match="not what replay_log wrote"):
        replay_log(log, Counter, expected=tmp_path / "other.json")
    with pytest.raises(ConfigurationError, match="nowhere"):
        replay_log(tmp_path / "nowhere", Counter, old=Counter)


def test_a_log_that_moved_gives_the_same(log: Path, expected: Path, tmp_path: Path) -> None:
    shutil.copytree(log, tmp_path / "copy")

    assert replay_log(tmp_path / "copy", Counter, expected=expected).log_position > 0
