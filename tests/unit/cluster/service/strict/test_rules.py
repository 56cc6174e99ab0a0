"""The rules of the lint one by one: a line that a rule finds, and the near one that it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.cluster.testing.check import RULES, Finding, Severity, check_targets

HEAD = """\
import asyncio
import gc
import itertools
import math
import multiprocessing
import os
import pickle
import random
import socket
import struct
import subprocess
import threading
import time
import uuid
import weakref
from datetime import UTC, date, datetime
from pathlib import Path

from trimaran import ClusteredService

CACHE: dict[str, int] = {}
LIMITS = {"a": 1}
NUMBERS = itertools.count()


class Service(ClusteredService):
    shared: list[str] = []

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.ids: set[int] = set()
        self.totals: dict[str, int] = {}
        self.log: list[object] = []
        self.rate = 1.5
        self.rates: set[float] = set()
        self.things: set[object] = set()
        self.value: object = None
"""
CALLBACK = "    def on_request(self, session, request, payload, time_ms):\n"
QUERY = "    def on_query(self, query):\n"


def check(tmp_path: Path, text: str) -> list[Finding]:
    (tmp_path / "service.py").write_text(text)
    return check_targets([str(tmp_path / "service.py")], tmp_path)[0]


def found_in(tmp_path: Path, *lines: str, callback: str = CALLBACK) -> list[tuple[str, Severity, int]]:
    """The rule, how sure it is and the line, from 1, of each finding in the body of a callback."""
    first = HEAD.count("\n") + 3
    body = "".join(f"        {line}\n" for line in lines)
    findings = check(tmp_path, f"{HEAD}\n{callback}{body}")
    return [(each.rule, each.severity, each.line - first + 1) for each in findings]


PAIRS = [
    ("wall-clock", "self.value = time.time_ns()", "self.value = self.cluster.time"),
    ("wall-clock", "self.value = date.today()", "self.value = date(2026, 11, 28)"),
    ("wall-clock", "self.value = datetime.now(UTC)", "self.value = datetime.fromtimestamp(time_ms / 1000, UTC)"),
    ("wall-clock", "self.value = time.strftime('%H')", "self.value = time.strftime('%H', time.gmtime(7))"),
    ("wall-clock", "self.value = time.gmtime()", "self.value = time.gmtime(time_ms)"),
    ("random", "self.value = random.random()", "self.value = self.cluster.random.random()"),
    ("random", "self.value = random.Random()", "self.value = random.Random(7).random()"),
    ("random", "self.value = uuid.uuid4()", "self.value = uuid.uuid5(uuid.NAMESPACE_DNS, 'a')"),
    ("random", "self.value = os.urandom(8)", "self.value = self.cluster.uuid()"),
    ("environment", "self.value = os.environ['HOME']", "self.value = os.sep"),
    ("environment", "self.value = os.getpid()", "self.value = os.path.join('a', 'b')"),
    ("file", "self.value = open('list').read()", "self.value = bytes(payload).decode()"),
    ("file", "self.value = Path('list').read_text()", "self.value = str(Path('list').with_suffix('.txt'))"),
    ("file", "self.value = os.path.exists('list')", "self.value = os.path.basename('a/list')"),
    ("network", "socket.create_connection(('h', 1))", "self.value = socket.AF_INET"),
    ("process", "subprocess.run(['ls'])", "self.cluster.schedule_timer(1, 2)"),
    ("process", "multiprocessing.Process(target=int).start()", "self.value = int('1')"),
    ("thread", "threading.Thread(target=int).start()", "self.cluster.offer(b'later')"),
    ("event-loop", "asyncio.create_task(self.later())", "self.cluster.schedule_timer(1, 2)"),
    ("event-loop", "self.value = asyncio.get_event_loop()", "self.value = asyncio.CancelledError"),
    ("set-order", "self.log = list(self.names)", "self.log = sorted(self.names)"),
    ("set-order", "self.value = [name for name in self.names]", "self.value = {name for name in self.names}"),
    ("set-order", "self.value = ','.join(self.names)", "self.value = ','.join(sorted(self.names))"),
    ("set-order", "self.value = self.names.pop()", "self.names.discard('a')"),
    ("set-order", "self.log.extend(self.names)", "self.log.extend(self.totals)"),
    ("set-order", "self.value = dict.fromkeys(self.names)", "self.value = dict.fromkeys(self.totals)"),
    ("set-order", "self.value = [*self.names]", "self.value = [*self.totals]"),
    ("set-order", "self.value = tuple(self.names | {'a'})", "self.value = len(self.names | {'a'})"),
    ("set-order", "first, *rest = [*self.names]", "self.value = max(self.names)"),
    ("sum-order", "self.value = sum(self.rates)", "self.value = math.fsum(self.rates)"),
    ("sum-order", "self.value = sum(rate * 2 for rate in self.rates)", "self.value = sum(sorted(self.rates))"),
    ("sum-order", "self.value = sum(each / 2 for each in self.ids)", "self.value = sum(each * 2 for each in self.ids)"),
    ("hash", "self.value = hash('a')", "self.value = hash(7)"),
    ("object-identity", "self.value = id(session)", "self.value = session.id"),
    ("module-state", "CACHE['a'] = 1", "self.totals['a'] = LIMITS['a']"),
    ("module-state", "CACHE.update(a=1)", "self.totals.update(LIMITS)"),
    ("module-state", "del CACHE['a']", "del self.totals['a']"),
    ("module-state", "self.value = next(NUMBERS)", "self.value = next(iter(self.totals))"),
    ("class-state", "Service.shared = ['a']", "self.log = ['a']"),
    ("kept-iterator", "self.value = map(str, self.log)", "self.value = [*map(str, self.log)]"),
    ("kept-iterator", "self.value = itertools.count()", "self.value = list(zip(self.totals, self.log))"),
    ("kept-payload", "self.value = payload", "self.value = bytes(payload)"),
    ("kept-payload", "self.value = payload[4:]", "self.value = payload[4]"),
    ("kept-payload", "self.log.append(payload)", "self.log.append(len(payload))"),
    ("kept-payload", "self.log.append((1, payload))", "self.log.append((1, bytes(payload)))"),
    ("garbage-collection", "gc.collect()", "self.log.clear()"),
    ("garbage-collection", "self.value = weakref.ref(session)", "self.value = session.id"),
]


@pytest.mark.parametrize(("rule", "wrong", "right"), PAIRS, ids=[f"{rule}: {wrong}" for rule, wrong, _ in PAIRS])
def test_a_rule_finds_the_wrong_line_and_leaves_the_right_one_alone(
    tmp_path: Path, rule: str, wrong: str, right: str
) -> None:
    assert found_in(tmp_path, wrong) == [(rule, Severity.ERROR, 1)]
    assert found_in(tmp_path, right) == []


@pytest.mark.parametrize(
    ("rule", "wrong", "right"),
    [
        ("float-libm", "self.value = math.sin(self.rate)", "self.value = math.isqrt(16)"),
        ("float-libm", "self.value = self.rate ** 2", "self.value = 3 ** 2"),
        ("float-libm", "self.rate **= 2", "self.rate *= 2"),
        ("pickle", "self.value = pickle.dumps(self.log)", "self.value = struct.pack('<q', 7)"),
        ("set-order", "self.value = list(self.ids)", "self.value = sum(self.ids)"),
        ("set-order", "self.value = min(self.names, key=len)", "self.value = min(self.names)"),
        ("sum-order", "self.value = sum(self.things)", "self.value = sum(len(name) for name in self.names)"),
    ],
)
def test_what_may_be_right_is_a_hint(tmp_path: Path, rule: str, wrong: str, right: str) -> None:
    assert found_in(tmp_path, wrong) == [(rule, Severity.HINT, 1)]
    assert found_in(tmp_path, right) == []


@pytest.mark.parametrize("caught", ["Exception", "BaseException", "(ValueError, OSError)", "MemoryError", ""])
def test_an_exception_that_one_member_alone_may_meet_is_not_swallowed(tmp_path: Path, caught: str) -> None:
    swallowing = ("try:", "    self.value = int(bytes(payload))", f"except {caught}:".replace(" :", ":"))

    assert found_in(tmp_path, *swallowing, "    self.value = None") == [("broad-except", Severity.ERROR, 3)]
    assert found_in(tmp_path, *swallowing, "    raise") == []


def test_what_a_member_alone_meets_may_be_passed_on_first(tmp_path: Path) -> None:
    lines = (
        "try:",
        "    self.value = 1",
        "except (MemoryError, OSError):",
        "    raise",
        "except Exception:",
        "    pass",
    )

    assert found_in(tmp_path, *lines) == []


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("self.totals['a'] = 1", "return bytes(self.totals['a'])"),
        ("self.log.append(1)", "return bytes(self.log[-1])"),
        ("self.cluster.schedule_timer(1, 2)", "return bytes(self.cluster.time)"),
        ("del self.totals['a']", "totals = dict(self.totals); del totals['a']"),
    ],
)
def test_a_query_changes_nothing(tmp_path: Path, wrong: str, right: str) -> None:
    assert found_in(tmp_path, wrong, callback=QUERY) == [("query-writes", Severity.ERROR, 1)]
    assert found_in(tmp_path, right, callback=QUERY) == []


def test_a_clock_in_a_query_is_a_hint_since_no_state_comes_of_it(tmp_path: Path) -> None:
    assert found_in(tmp_path, "return bytes(time.time_ns())", callback=QUERY) == [("wall-clock", Severity.HINT, 1)]


@pytest.mark.parametrize(
    "callback", ["on_session_message(self, session, time_ms, payload)", "on_request(self, a, b, c)"]
)
def test_a_callback_does_not_suspend(tmp_path: Path, callback: str) -> None:
    assert found_in(tmp_path, "pass", callback=f"    async def {callback}:\n") == [
        ("coroutine-callback", Severity.ERROR, 0)
    ]
    assert found_in(tmp_path, "yield 1", callback=f"    def {callback}:\n") == [
        ("coroutine-callback", Severity.ERROR, 1)
    ]
    assert found_in(tmp_path, "def inner(): yield 1", callback=f"    def {callback}:\n") == []


@pytest.mark.parametrize("fact", ["self.cluster.role", "self.cluster.member_id == 0", "not self.cluster.is_replaying"])
@pytest.mark.parametrize("change", ["self.value = 1", "self.log.append(1)", "self.cluster.offer(b'x')"])
def test_the_state_does_not_depend_on_the_member(tmp_path: Path, fact: str, change: str) -> None:
    assert ("role-state", Severity.ERROR, 2) in found_in(tmp_path, f"if {fact}:", f"    {change}")
    assert found_in(tmp_path, "if self.cluster.time > 7:", f"    {change}") == []


def test_a_field_that_the_role_changes_is_not_one_of_the_state(tmp_path: Path) -> None:
    kept = "    def on_role_change(self, role):\n        self.value = role\n"

    alone = check(tmp_path, f"{HEAD}\n{kept}")
    both = check(tmp_path, f"{HEAD}\n{kept}\n{CALLBACK}        self.value = 1\n")

    assert alone == []
    assert [(each.rule, each.severity) for each in both] == [("role-state", Severity.ERROR)]


def test_a_list_of_the_class_is_shared_unless_each_object_has_its_own(tmp_path: Path) -> None:
    change = f"\n{CALLBACK}        self.shared.append('a')\n"

    shared = check(tmp_path, HEAD + change)
    own = check(tmp_path, f"{HEAD}        self.shared = []\n{change}")

    assert [(each.rule, each.severity) for each in shared] == [("class-state", Severity.ERROR)]
    assert own == []


def test_a_value_that_was_drawn_at_import_is_found_where_a_callback_uses_it(tmp_path: Path) -> None:
    salted = HEAD.replace('LIMITS = {"a": 1}', "LIMITS = random.random()")

    used = check(tmp_path, f"{salted}\n{CALLBACK}        self.value = LIMITS\n")

    assert [(each.rule, each.reached_from) for each in used] == [("random", ("on_request", "LIMITS"))]
    assert check(tmp_path, f"{salted}\n{CALLBACK}        self.value = 1\n") == []


def test_a_finding_in_a_helper_names_the_way_from_the_callback(tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text("from time import time as now\n\n\ndef stamp():\n    return now()\n")
    text = HEAD.replace("import asyncio", "import helpers")

    (finding,) = check(
        tmp_path,
        f"{text}\n{CALLBACK}        self.value = self.mark()\n\n    def mark(self):\n        return helpers.stamp()\n",
    )

    assert (finding.rule, finding.path.name, finding.line) == ("wall-clock", "helpers.py", 5)
    assert finding.reached_from == ("on_request", "Service.mark", "stamp")


def test_a_long_way_is_followed_to_its_end(tmp_path: Path) -> None:
    steps = [f"def step_{number}():\n    return step_{number + 1}()\n\n\n" for number in range(60)]
    helpers = f"{''.join(steps)}def step_60():\n    return time.time()\n"

    (finding,) = check(tmp_path, f"{HEAD}\n{CALLBACK}        self.value = step_0()\n\n\n{helpers}")

    assert (finding.rule, finding.what) == ("wall-clock", "time.time()")
    assert finding.reached_from[:3] == ("on_request", "step_0", "step_1")


def test_a_name_of_a_module_may_stand_for_a_part_of_itself(tmp_path: Path) -> None:
    text = HEAD.replace("NUMBERS = itertools", "limits = limits.all\nNUMBERS = itertools")

    assert check(tmp_path, f"{text}\n{CALLBACK}        self.value = limits.first\n") == []


def test_functions_that_call_each_other_are_followed_once(tmp_path: Path) -> None:
    helpers = (
        "def first(each):\n    return second([each])\n\n\ndef second(each):\n    return [hash('a'), first([each])]\n"
    )

    findings = check(tmp_path, f"{HEAD}\n{CALLBACK}        self.value = first(1)\n\n\n{helpers}")

    assert [(each.rule, each.reached_from) for each in findings] == [("hash", ("on_request", "first", "second"))]


def test_outside_of_the_logs_order_a_service_is_free(tmp_path: Path) -> None:
    lines = ("self.started = time.time()", "threading.Thread(target=int).start()", "random.random()")

    for callback in ("on_role_change(self, role)", "on_terminate(self, cluster)"):
        assert found_in(tmp_path, *lines, callback=f"    def {callback}:\n") == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("limits = open('limits').read()", [("file", Severity.HINT)]),
        ("self.value = time.time()", [("wall-clock", Severity.ERROR)]),
        ("self.value = random.random()", [("random", Severity.ERROR)]),
        ("threading.Thread(target=int).start()", [("thread", Severity.HINT)]),
    ],
)
def test_a_start_may_read_what_a_node_is_given_and_keeps_no_clock(
    tmp_path: Path, line: str, expected: list[tuple[str, Severity]]
) -> None:
    start = "    def on_start(self, cluster, snapshot):\n"

    findings = check(tmp_path, f"{HEAD}\n{start}        {line}\n")

    assert [(each.rule, each.severity) for each in findings] == expected


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("# trimaran: ignore[wall-clock] only for a log line", []),
        ("# trimaran: ignore[wall-clock, random] both are right", []),
        (
            "# trimaran: ignore[random] the wrong rule",
            [("wall-clock", Severity.ERROR), ("unused-ignore", Severity.HINT)],
        ),
        ("# trimaran: ignore[wall-clock]", [("ignore-without-reason", Severity.ERROR)]),
        ("# trimaran: ignore[clock] no such rule", [("wall-clock", Severity.ERROR), ("unknown-rule", Severity.ERROR)]),
        ("# trimaran: ignore everything", [("wall-clock", Severity.ERROR), ("unknown-rule", Severity.ERROR)]),
        ("# trimaran has no comment here", [("wall-clock", Severity.ERROR)]),
    ],
)
def test_a_comment_ignores_the_rules_that_it_names_with_a_reason(
    tmp_path: Path, comment: str, expected: list[tuple[str, Severity]]
) -> None:
    beside = found_in(tmp_path, f"self.value = time.time()  {comment}")
    above = found_in(tmp_path, comment, "self.value = time.time()")

    assert sorted((rule, severity) for rule, severity, _ in beside) == sorted(expected)
    assert sorted((rule, severity) for rule, severity, _ in above) == sorted(expected)


def test_a_comment_that_nothing_needs_is_a_hint(tmp_path: Path) -> None:
    found = found_in(tmp_path, "self.value = 1  # trimaran: ignore[wall-clock] no longer needed")

    assert found == [("unused-ignore", Severity.HINT, 1)]


SHOWN_ELSEWHERE = {
    *("mutable-default", "undeclared-state"),  # of typed services: tests/data/services/wrong/undeclared_state.py
    *("broad-except", "query-writes", "coroutine-callback", "role-state"),
    *("ignore-without-reason", "unknown-rule", "unused-ignore"),
}


@pytest.mark.parametrize("rule", sorted(RULES.keys() - SHOWN_ELSEWHERE))
def test_the_example_of_a_rule_is_found_by_it(tmp_path: Path, rule: str) -> None:
    assert {found for found, _, _ in found_in(tmp_path, RULES[rule].example)} == {rule}


def test_every_rule_has_a_reason_and_another_way() -> None:
    assert all(rule.why and rule.instead for rule in RULES.values())
