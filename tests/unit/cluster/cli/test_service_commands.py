"""Commands of ready-made services, made from their messages: what is sent, what is shown, what is refused before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from trimaran.archive.tool.output import EXIT_FAILED
from trimaran.cluster.cli.app import build_app
from trimaran.cluster.cli.ready_made import service_commands
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.ready_made.counters import AdmissionAnswer, AskAdmission, Counted, CountUp
from trimaran.service_api.ready_made.kv import KvEntry, PutKey, ReadKey
from trimaran.service_api.ready_made.queue import QueueSchedule, ScheduleMessages, SendMessage, SentMessage
from trimaran.service_api.typed import Command


class FakeClient:
    """Answers every message with the same reply, and keeps what was sent."""

    def __init__(self, reply: object) -> None:
        self.reply = reply
        self.sent: list[object] = []

    def call(self, command: object) -> object:
        assert isinstance(command, Command)
        self.sent.append(command)
        return self.reply

    def ask(self, query: object) -> object:
        assert not isinstance(query, Command)
        self.sent.append(query)
        return self.reply


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    fake = FakeClient(None)

    @contextmanager
    def connected(*_: object) -> Iterator[FakeClient]:
        yield fake

    monkeypatch.setattr(service_commands, "connected", connected)
    return fake


def run(*words: str, stdin: bytes | None = None) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(build_app(words), [*words], input=stdin)


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        (["kv", "put", "k\udcff", "v\udcfe"], PutKey(b"k\xff", b"v\xfe")),
        (["queue", "send", "q", "\udcff"], SendMessage("q", b"\xff")),
    ],
)
def test_bytes_arrive_as_the_shell_passed_them(client: FakeClient, words: list[str], sent: object) -> None:
    """Python has each byte of an argument that is no UTF-8 as half a surrogate; this was a traceback."""
    client.reply = 7 if words[0] == "kv" else SentMessage(7, is_duplicate=False)

    result = run(*words)

    assert (result.exit_code, client.sent) == (0, [sent])


@pytest.mark.parametrize(
    "words",
    [
        ["counters", "add", "c\udcff"],
        ["queue", "send", "q\udcff", "m"],
        ["queue", "send", "q", "m", "--key", "x\udcff"],
        ["queue", "send", "q", "m", "--header", "a=\udcff"],
        ["locks", "list", "l\udcff"],
        ["locks", "run", "l\udcff", "--", "true"],
        ["locks", "run", "l", "--value", "v\udcff", "--", "true"],
    ],
    ids=" ".join,
)
def test_text_that_is_no_utf_8_is_refused(client: FakeClient, words: list[str]) -> None:
    result = run(*words)

    assert isinstance(result.exception, ConfigurationError)
    assert "\\udcff" in str(result.exception)
    assert client.sent == []


@pytest.mark.parametrize(
    ("words", "reply", "sent", "shown"),
    [
        ("counters add visits", Counted("visits", 6), CountUp("visits"), "6"),
        ("counters add visits 5 --maximum 9", Counted("visits", 6), CountUp("visits", 5, maximum=9), "6"),
        ("kv put a b", 7, PutKey(b"a", b"b"), "7"),
        ("kv put a b --expected 0 --ttl 1.5", 7, PutKey(b"a", b"b", 0, 1.5), "7"),
        ("kv get a", KvEntry(b"a", b"b", 1, 1, 1), ReadKey(b"a"), "b"),
        (
            "queue send q m --header a=1 --header b= --priority 3",
            SentMessage(4, is_duplicate=False),
            SendMessage("q", b"m", priority=3, headers={"a": "1", "b": ""}),
            "4",
        ),
    ],
)
def test_a_message_is_made_of_arguments_and_options(
    client: FakeClient, words: str, reply: object, sent: object, shown: str
) -> None:
    client.reply = reply

    result = run(*words.split())

    assert (result.exit_code, result.stdout) == (0, f"{shown}\n"), result.output
    assert client.sent == [sent]


def test_a_value_may_come_from_standard_input(client: FakeClient) -> None:
    client.reply = 1

    run("kv", "put", "a", "-", stdin=b"\xff\n")

    assert client.sent == [PutKey(b"a", b"\xff\n")]


def test_a_reply_is_an_object_of_its_fields_and_a_no_is_status_1(client: FakeClient) -> None:
    client.reply = AdmissionAnswer(is_admitted=False, remaining=0, retry_after_s=1 / 3)

    result = run("counters", "admit", "login", "ann", "--cost", "2")

    assert client.sent == [AskAdmission("login", "ann", 2)]
    assert json.loads(result.stdout) == {"is_admitted": False, "remaining": 0, "retry_after_s": 0.333333}
    assert result.exit_code == EXIT_FAILED


def test_a_time_is_seconds_since_1970_and_bytes_are_text_where_they_can_be(client: FakeClient) -> None:
    client.reply = QueueSchedule("s", "q", b"\xffm", {}, 0, "", 1798761600.0, 0, 0)

    result = run("queue", "schedule", "s", "q", "m", "--at", "2027-01-01T00:00")

    assert client.sent == [ScheduleMessages("s", "q", b"m", at_s=1798761600.0)]
    assert json.loads(result.stdout)["body"] == "\\xffm"


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--header", "a"], "--header=a expected NAME=VALUE"), (["--at", "soon"], "--at=soon expected a time")],
)
def test_what_cannot_be_read_is_refused_before_anything_is_sent(
    client: FakeClient, options: list[str], said: str
) -> None:
    result: Any = run("queue", "schedule", "s", "q", "m", *options)

    assert isinstance(result.exception, ConfigurationError)
    assert said in str(result.exception)
    assert client.sent == []
