"""The rules of the lint: their names, why each holds, and the deterministic way."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple


class Severity(StrEnum):
    """How sure it is that members come to differ."""

    ERROR = "error"
    """Members may differ: the command fails."""
    HINT = "hint"
    """Look at it: it may be right."""


class LintRule(NamedTuple):
    """One rule, by its example, the reason and the deterministic way."""

    example: str
    why: str
    instead: str


RULES: Final[dict[str, LintRule]] = {
    "wall-clock": LintRule(
        "time.time()",
        "the clock of this machine differs between members and in a replay",
        "self.cluster.time, or the timestamp of the callback; self.cluster.schedule_timer to wait",
    ),
    "random": LintRule(
        "random.random()",
        "each member and each replay draws other numbers",
        "self.cluster.random.random(), self.cluster.uuid(): the log entry seeds them",
    ),
    "environment": LintRule(
        'os.environ["REGION"]',
        "the process, the machine and its settings differ between members",
        "let a client send the value, so that it is in the log",
    ),
    "file": LintRule(
        'open("prices")',
        "files differ between members and change over time",
        "let a client send what the service needs",
    ),
    "network": LintRule(
        'socket.create_connection(("prices", 80))',
        "other members get another answer, or none",
        "let a client call outside and send the result",
    ),
    "process": LintRule(
        'subprocess.run(["date"])',
        "another process runs in its own time on each member",
        "let a client run it and send the result",
    ),
    "thread": LintRule(
        "threading.Thread(target=int).start()",
        "a thread runs in its own time on each member",
        "self.cluster.schedule_timer, or plain code",
    ),
    "event-loop": LintRule(
        "asyncio.get_running_loop().call_later(1, int)",
        "callbacks run at a log position: what a task does later has none",
        "self.cluster.schedule_timer, or self.cluster.offer and on_service_message",
    ),
    "set-order": LintRule(
        "[name for name in self.names]",
        "the order of a set depends on the hash seed of the process and on what was in the set before",
        "sorted(the_set), or a dict with None as values, which keeps its order",
    ),
    "sum-order": LintRule(
        "sum(self.rates)",
        "each addition of floats rounds, so the sum depends on the order, and a set has another one on each member",
        "math.fsum(the_set), sum(sorted(the_set)), or whole numbers",
    ),
    "hash": LintRule(
        'hash("key")', "hash() of text and objects differs from process to process", "zlib.crc32(data), or hashlib"
    ),
    "object-identity": LintRule(
        "id(session)", "id() is an address, which differs between members", "a key of your own, such as a number"
    ),
    "float-libm": LintRule(
        "math.sin(self.rate)",
        "the last digit depends on the C library, so members on different builds may differ",
        "whole numbers or decimal.Decimal; the same image on every member; round() before you compare or keep it",
    ),
    "module-state": LintRule(
        "CACHE.clear()",
        "state outside of the service is in no snapshot, and services of one process share it",
        "a field of the service, in its snapshot: cache: dict[str, int] = state() in a typed one",
    ),
    "class-state": LintRule(
        "Service.shared.clear()",
        "a value of the class is shared by all services of the process, and stays when one is made again",
        "a field of the service, in its snapshot: items: list[int] = state() in a typed one",
    ),
    "mutable-default": LintRule(
        "names: list[str] = state(default=[])",
        "the default is one object for the whole process: no snapshot has it, and all services change the same one",
        "the annotation alone, which begins empty, or state(factory=...); for a parameter None, and a field instead",
    ),
    "undeclared-state": LintRule(
        "self.newest = message.number, without newest: int = state()",
        "only declared fields are in snapshots, and are put back when a handler raises",
        "declare it in the class body: total: int = state(), or derived(make) for what is made of the state",
    ),
    "broad-except": LintRule(
        "except Exception: self.value = None",
        "it also catches what this member alone met, such as MemoryError, and goes on with another state",
        "the exceptions that are meant: except (ValueError, KeyError)",
    ),
    "kept-iterator": LintRule(
        "self.value = map(str, self.log)",
        "an iterator cannot be written to a snapshot",
        "a list or a counter: self.next_id += 1",
    ),
    "kept-payload": LintRule(
        "self.value = payload",
        "the payload is a view of the log, and its bytes are others once the callback is over",
        "bytes(payload)",
    ),
    "query-writes": LintRule(
        "self.value = 1 in on_query",
        "a query runs on one member only, so what it changes, the others do not have",
        "change the state in on_request or on_session_message",
    ),
    "coroutine-callback": LintRule(
        "async def on_request(self, session, timestamp, payload)",
        "a callback that suspends never runs, or runs at no log position",
        "def, without yield",
    ),
    "role-state": LintRule(
        "if self.cluster.role is Role.LEADER: self.value = 1",
        "the role and the member differ, so members come to different states",
        "the same on every member; only what acts outside the cluster may look at the role",
    ),
    "garbage-collection": LintRule(
        "weakref.ref(session)", "objects are collected at another time on each member", "delete what is no longer used"
    ),
    "pickle": LintRule(
        "pickle.dumps(self.log)",
        "pickle writes equal objects differently, so snapshots of equal members differ",
        "json.dumps(state, sort_keys=True), msgpack, or struct",
    ),
    "ignore-without-reason": LintRule(
        "# trimaran: ignore[hash]",
        "nobody can tell later why it is right",
        "# trimaran: ignore[rule] the reason, in a few words",
    ),
    "unknown-rule": LintRule(
        "# trimaran: ignore[clock] the reason",
        "the comment ignores nothing",
        "one of the names that `trimaran check --rules` lists",
    ),
    "unused-ignore": LintRule(
        "# trimaran: ignore[hash] where nothing is found", "nothing is found on this line", "delete the comment"
    ),
}


class RuledFinding:
    """What was found by a rule."""

    __slots__ = ()
    rule: str

    @property
    def why(self) -> str:
        """Why members may differ."""
        return RULES[self.rule].why

    @property
    def instead(self) -> str:
        """The deterministic way."""
        return RULES[self.rule].instead


@dataclass(slots=True, frozen=True, order=True)
class Finding(RuledFinding):
    """One place in the source."""

    path: Path
    line: int
    """From 1."""
    column: int
    """From 1."""
    rule: str
    severity: Severity
    what: str
    """What stands there, such as `time.time()`."""
    source: str
    """The line, without spaces around it."""
    reached_from: tuple[str, ...] = ()
    """The callback, and the functions on the way from it."""
