"""`replay_log`: recorded traffic is held against a file or against older code, and differences say where they are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.facts import has_facts
from trimaran import ClientSession, Command, ConfigurationError, Context, Reply, TypedService, handles, state
from trimaran.client.typed import TypedClient
from trimaran.cluster.settings.variables import RECORD_VARIABLE
from trimaran.cluster.testing import MemoryCluster, UncomparedFieldWarning, replay_log

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


class Stored(Reply):
    amount: int


class Put(Command[Stored]):
    key: str
    amount: int


class Shelf(TypedService, name="shelf"):
    amounts: dict[str, int] = state()

    @handles(Put)
    def put(self, ctx: Context, message: Put) -> Stored:
        self.amounts[message.key] = self.amounts.get(message.key, 0) + message.amount
        return Stored(self.amounts[message.key])


class NotedShelf(Shelf, name="shelf"):
    """The same with a field more, which nothing uses yet."""

    notes: dict[str, str] = state()


class DoublingShelf(NotedShelf, name="shelf"):
    """Gives another answer, and keeps another amount."""

    @handles(Put)
    def put(self, ctx: Context, message: Put) -> Stored:
        self.amounts[message.key] = 2 * message.amount
        return Stored(self.amounts[message.key])


@pytest.fixture(scope="module")
def typed_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a member that ran two services, of which one is typed."""
    directory = tmp_path_factory.mktemp("typed") / "node-0"
    with MemoryCluster([Shelf, Counter], members=1) as cluster:
        cluster.run(_put(cluster))
        cluster.save_directory(0, directory)
    return directory


async def _put(cluster: MemoryCluster) -> None:
    client = TypedClient(await cluster.connect())
    for number in range(5):
        await client.call(Put(f"key-{number}", number))


def test_several_services_are_replayed_together(typed_log: Path) -> None:
    replayed = replay_log(typed_log, [Shelf, Counter], old=[Shelf, Counter])

    shelf, counter = replayed.services
    assert isinstance(shelf, Shelf)
    assert len(shelf.amounts) == 5
    assert isinstance(counter, Counter)
    with pytest.raises(ConfigurationError, match="as many as"):
        replay_log(typed_log, [Shelf, Counter], old=Shelf)


def test_a_field_that_only_the_new_code_has_is_said_and_is_no_difference(typed_log: Path) -> None:
    with pytest.warns(UncomparedFieldWarning, match="notes: .* new") as told:
        replay_log(typed_log, [NotedShelf, Counter], old=[Shelf, Counter])
    with pytest.warns(UncomparedFieldWarning, match="notes: .* old"):
        replay_log(typed_log, [Shelf, Counter], old=[NotedShelf, Counter])

    assert told[0].filename == __file__


def test_a_field_that_a_file_does_not_have_is_said_and_is_no_difference(
    typed_log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "shelf.json"
    with monkeypatch.context() as patch:
        patch.setenv(RECORD_VARIABLE, "1")
        replay_log(typed_log, [Shelf, Counter], expected=file)

    replay_log(typed_log, [Shelf, Counter], expected=file)
    with pytest.warns(UncomparedFieldWarning, match="notes: .* this") as told:
        replay_log(typed_log, [NotedShelf, Counter], expected=file)
    with (
        pytest.warns(UncomparedFieldWarning),
        pytest.raises(AssertionError, match=r"state of service 0: amounts: .*'key-2': 4"),
    ):
        replay_log(typed_log, [DoublingShelf, Counter], expected=file)

    assert told[0].filename == __file__


def test_typed_answers_that_differ_are_told_by_name_and_field_with_the_handler(typed_log: Path) -> None:
    with pytest.warns(UncomparedFieldWarning), pytest.raises(AssertionError) as raised:
        replay_log(typed_log, [DoublingShelf, Counter], old=[Shelf, Counter])

    told = str(raised.value)
    assert has_facts(told, "payload=Stored(amount=1)", "payload=Stored(amount=2)", "Stored.amount: expected=1 actual=2")
    assert f"handler=DoublingShelf.put ({__file__}:{DoublingShelf.put.__code__.co_firstlineno})" in told
    assert "amounts['key-4']: old=4 new=8" in told
    assert "\\x" not in told


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
