"""Tests wait by `tests/waiting.py` alone: what each kind of waiting by luck looks like, and who may do it."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Final

import pytest

from tests.modules import tree_of
from tests.places import ROOT

TESTS: Final = ROOT / "tests"

VIRTUAL_TIME: Final = (
    "simulation",
    "unit/client/outbox",
    "unit/client/shared/test_pool_page.py",
    "unit/client/shared/test_session_pool.py",
    "unit/client/shared/test_shared_connection.py",
    "unit/client/test_reopening.py",
    "unit/client/typed/test_call_many.py",
    "unit/client/test_silent_cluster.py",
    "unit/client/test_total_restart.py",
    "unit/client/typed/test_typed_client.py",
    "unit/cluster/operating/backup/test_agent.py",
    "unit/cluster/testing/simulation",
    "unit/cluster/subscriptions/test_subscription.py",
    "unit/cluster/testing/test_memory_cluster.py",
    "unit/examples/test_workers.py",
    "unit/service_api/ready_made/test_kv_simulation.py",
    "unit/service_api/ready_made/test_locks_clients.py",
    "unit/service_api/ready_made/test_queue_clients.py",
)
"""Folders and files whose loops are the simulator's, where a machine may be as slow as it likes."""

ELSEWHERE: Final = ("data", "waiting.py")
"""Programs that tests read, and what waits for all others."""

EXCEPTIONS: Final[dict[str, dict[str, str]]] = {
    "a fixed limit": {
        "fuzz/targets/archive_links.py:_follow": "nothing is connected: the fuzzer hands the bytes over",
        "fuzz/targets/archive_links.py:_serve": "nothing is connected: the fuzzer hands the bytes over",
        "fuzz/targets/archive_links.py:_replay": "nothing is connected: the fuzzer hands the bytes over",
        "fuzz/test_findings.py:test_archive_that_answers_with_another_kind_of_message_is_given_up": "as there",
        "upgrade/counting_client.py:run": "it runs with an older version, which has no tests/waiting.py",
        "test_docstring_examples.py:run_client": "virtual time: the members are in memory",
        "unit/cluster/cli/shared/test_cluster_log.py:batches_of": "virtual time: the members are in memory",
        "unit/client/groups/test_grouped_client.py:"
        "test_the_limit_of_a_call_holds_for_the_session_that_it_opens": "the subject: it must be spent",
        "unit/client/protocol/test_protocol.py:test_failed_dials_are_repeated_with_a_bounded_back_off": "a fake clock",
        "unit/service_api/net/test_connection_gate.py:__init__": "a fake clock",
        "runner/limit.py:_interrupt": "a test whose limit is spent is interrupted so often",
        "s3_server.py:__call__": "how slow the store is",
        "set_up.py:reports": "how often a step is reported",
        "system/test_hostile_input.py:test_log_links_that_nobody_wants_do_not_displace_the_one_that_flows": "a pace",
        "system/test_hostile_input.py:test_members_outlive_noise_and_damaged_conversations": "a pace",
        "system/test_paused_cluster.py:"
        "test_calls_and_leases_end_while_every_member_stands_still": "the subject: it must be spent",
        "system/test_status.py:test_a_leader_that_stands_still_is_a_row_and_costs_no_more_than_its_time": "the subject",
    },
    "a sleep": {
        "s3_server.py:__call__": "how slow the store is",
        "spark/test_stream_cluster.py:write": "the pace of a load",
        "system/requester.py:_keep_loaded": "the pace of a load",
        "system/standing_still.py:_wait_while": "the subject",
        "system/standing_still.py:on_request": "the subject",
        "system/test_requests.py:_ask": "the pace of a load",
        "system/test_stream_follows_members.py:follow": "the pace of a reader",
        "unit/cluster/service/test_query_check.py:on_take_snapshot": "what a service may not do",
        "unit/cluster/testing/test_harness.py:on_start": "what a service may not do",
    },
    "turns": {
        "fuzz/targets/archive_links.py:_follow": "nothing is connected: passes of the loop are all that takes part"
    },
    "a port that was drawn and released": {
        "unit/client/test_cluster_client.py:test_a_connect_error_lists_what_was_tried": "dialled while it is held",
        "unit/client/test_cluster_client.py:test_a_dial_that_nobody_answers_is_begun_again": "dialled while it is held",
        "unit/cluster/runtime/links/test_dialling.py:"
        "test_a_member_that_may_not_have_moved_is_dialled_where_it_was_too": "dialled while it is held",
        "unit/cluster/cli/shared/test_local_nodes.py:"
        "test_base_ports_have_five_free_ports_each_and_do_not_overlap": "the subject",
    },
    "a kill without a wait": {
        "system/fork_server.py:send_signal": "a method of `Popen`",
        "unit/archive/tool/commands/test_serve.py:"
        "test_recordings_outlast_the_process_and_are_stopped_in_order": "`running` waits for the end",
    },
    "a time that is too long": {
        "fuzz/campaign.py:run_target": "how long a campaign shall take",
        "system/fork_server.py:wait": "a method of `Popen`",
    },
}
"""By kind: `file:function`, and why it may."""

WAITERS: Final = frozenset(
    {
        "patient",
        "within",
        "Deadline",
        "wait_for",
        "wait_until",
        "wait_blocking",
        "until",
        "ask_until",
        "wait_for_leader",
        "wait_for_event",
        "wait_exit",
        "wait_answered",
        "wait_for_log_end",
        "wait_for_equal_logs",
        "wait_for_equal_states",
    }
)
"""Functions of tests whose limit is that of a `Deadline`."""
FAKES: Final = frozenset({"dialogue", "dialled", "leader", "solo", "victim"})
"""Names of what is told to let time pass, and does nothing else."""
SUBJECT_S: Final = 5
"""A shorter timeout of the product is what a test is about; a longer one is a limit of the test."""
FIXED: Final = frozenset({"asyncio.timeout", "asyncio.timeout_at", "asyncio.wait_for", "signal.alarm"})
LIMITS: Final = frozenset({"TIMEOUT_S", "DEADLINE_S"})
ENDINGS: Final = frozenset({"wait", "communicate", "join", "result", "exception"})
"""Methods that wait for somebody else, and take a limit."""
WAITS: Final = ENDINGS | frozenset({"waitpid", "wait_exit", "wait_blocking", "wait_until", "end_of"})
"""Calls that wait for the end of a process."""
HARMLESS: Final = frozenset({"0", "signal.SIGSTOP", "signal.SIGCONT"})
"""Signals that end nobody."""
WHO_WAIT: Final = frozenset({"self", "member", "members", "nodes"})
"""What has a `kill` of its own that waits."""
CLOCKS: Final = frozenset(
    {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "process_time_ns"}
)

Kind = Callable[[ast.AST], Iterator[ast.AST]]


def name_of(node: ast.AST) -> str:
    """Return the dotted name of a call's function, or of a name; empty for another expression."""
    if isinstance(node, ast.Call):
        return name_of(node.func)
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}".removeprefix(".")
    return node.id if isinstance(node, ast.Name) else ""


def last_name_of(node: ast.AST) -> str:
    return name_of(node).rpartition(".")[2]


def calls_in(node: ast.AST) -> Iterator[ast.Call]:
    return (each for each in ast.walk(node) if isinstance(each, ast.Call))


def is_fixed(node: ast.AST, *, at_least: float = 0) -> bool:
    """Return whether an expression is a number, a constant by name, or made of these."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and node.value >= at_least
    if isinstance(node, ast.BinOp):
        return is_fixed(node.left) and is_fixed(node.right)
    return isinstance(node, ast.Name) and node.id.isupper()


def sleeps_in(node: ast.AST) -> Iterator[ast.Call]:
    return (call for call in calls_in(node) if name_of(call) in ("time.sleep", "asyncio.sleep"))


def fixed_limits(tree: ast.AST) -> Iterator[ast.AST]:
    """Find limits that are not `patient`, `within` or a `Deadline`."""
    for call in calls_in(tree):
        name = last_name_of(call)
        is_named = any(isinstance(each, ast.Name) and each.id in LIMITS for each in call.args)
        is_waited_for = len(call.args) == 1 and is_fixed(call.args[0]) and _is_waited_for(call.func)
        if name_of(call) in FIXED:
            yield call
        elif name in WAITERS:
            continue
        elif is_named or (name in ENDINGS and is_waited_for):
            yield call
        for keyword in call.keywords:
            is_ours = keyword.arg == "time_limit_s" or (keyword.arg or "").endswith("timeout_s")
            if is_fixed(keyword.value, at_least=SUBJECT_S if is_ours else 0) and (is_ours or keyword.arg == "timeout"):
                yield call


def _is_waited_for(function: ast.expr) -> bool:
    """Return whether a method is of somebody to wait for: not of a text, which joins, nor of a fake."""
    return (
        isinstance(function, ast.Attribute)
        and not isinstance(function.value, ast.Constant)
        and last_name_of(function.value) not in FAKES
    )


def sleeps(tree: ast.AST) -> Iterator[ast.AST]:
    """Find sleeps that hope that something has happened afterwards."""
    for call in sleeps_in(tree):
        if not (isinstance(call.args[0], ast.Constant) and call.args[0].value == 0):
            yield call
    for call in calls_in(tree):
        if call.args and name_of(call) in ("threading.Event.wait", "Event.wait", "asyncio.Event.wait"):
            yield call


def turns(tree: ast.AST) -> Iterator[ast.AST]:
    """Find a number of passes of the loop, and conditions that are looked at in each pass without a limit."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        if isinstance(node, ast.For | ast.While) and len(body) == 1 and _is_sleep(body[0]):
            yield body[0]
        yield from (second for first, second in itertools.pairwise(body) if _is_sleep(first) and _is_sleep(second))


def _is_sleep(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Await)
        and name_of(node.value.value) in ("asyncio.sleep", "passes")
    )


def drawn_ports(tree: ast.AST) -> Iterator[ast.AST]:
    """Find ports that were free once: asked for by a socket that is closed before the port is used."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and last_name_of(node) == "free_base_ports":
            yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for block in ast.walk(node):
            if isinstance(block, ast.With) and any(last_name_of(item.context_expr) in SOCKETS for item in block.items):
                yield from _ports_used_after(block, node)


SOCKETS: Final = frozenset({"socket", "create_server"})


def _ports_used_after(block: ast.With, function: ast.AST) -> Iterator[ast.AST]:
    """Find what asks a socket of the block for its port, if it is used when the block has closed the socket."""
    for statement in ast.walk(block):
        asks = [call for call in calls_in(statement) if last_name_of(call) == "getsockname"]
        if not asks:
            continue
        if isinstance(statement, ast.Return):
            yield statement
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names = {ast.unparse(target) for target in targets}
            used = (each for each in ast.walk(function) if isinstance(each, ast.Name | ast.Attribute))
            if any(isinstance(target, ast.Attribute) for target in targets) or any(
                ast.unparse(each) in names and each.lineno > (block.end_lineno or 0) for each in used
            ):
                yield statement


def kills(tree: ast.AST) -> Iterator[ast.AST]:
    """Find signals that end a process in a function that does not wait for its end."""
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    if not modules & {"subprocess", "multiprocessing"}:
        return  # no process of its own: what it kills has a method that waits
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            last_wait = max((call.lineno for call in calls_in(function) if last_name_of(call) in WAITS), default=0)
            for call in calls_in(function):
                if _ends_a_process(call) and call.lineno > last_wait and not _is_left_to_a_block(call, function):
                    yield call


def _ends_a_process(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute) or {ast.unparse(each) for each in call.args} & HARMLESS:
        return False
    if name_of(call) in ("os.kill", "os.killpg"):
        return True
    receiver = ast.unparse(call.func.value).split(".")[-1].split("[")[0]
    return call.func.attr in ("kill", "terminate", "send_signal") and receiver not in WHO_WAIT


def _is_left_to_a_block(call: ast.Call, function: ast.AST) -> bool:
    """Return whether a `with` of the process is around the call: `Popen` waits for the end when the block ends."""
    receiver = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    for block in ast.walk(function):
        if isinstance(block, ast.With) and block.lineno <= call.lineno <= (block.end_lineno or 0):
            for item in block.items:
                bound = item.optional_vars or item.context_expr
                if ast.unparse(bound) == receiver:
                    return True
    return False


def elapsed(tree: ast.AST) -> Iterator[ast.AST]:
    """Find times that may not be longer than a number, and deadlines of one's own."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        timed = {
            target.id
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and _reads_a_clock(node.value, set())
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(function):
            if isinstance(node, ast.While) and _reads_a_clock(node.test, set()):
                yield node
            if isinstance(node, ast.Compare):
                for (left, right), operator in zip(
                    itertools.pairwise([node.left, *node.comparators]), node.ops, strict=True
                ):
                    low, high = (left, right) if isinstance(operator, ast.Lt | ast.LtE) else (right, left)
                    if _reads_a_clock(low, timed) and (is_fixed(high) or _reads_a_clock(high, timed)):
                        yield node


def _reads_a_clock(node: ast.AST, timed: set[str]) -> bool:
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    called = {last_name_of(call) for call in calls_in(node) if isinstance(call.func, ast.Attribute)}
    loops = {last_name_of(call.func.value) for call in calls_in(node) if isinstance(call.func, ast.Attribute)}
    return bool(names & timed or called & CLOCKS or ("time" in called and loops & {"loop", "get_running_loop"}))


KINDS: Final[dict[str, Kind]] = {
    "a fixed limit": fixed_limits,
    "a sleep": sleeps,
    "turns": turns,
    "a port that was drawn and released": drawn_ports,
    "a kill without a wait": kills,
    "a time that is too long": elapsed,
}


WORDS: Final = {
    "a fixed limit": re.compile(
        r"timeout|time_limit_s|TIMEOUT_S|DEADLINE_S|wait_for|\.(wait|join|result|exception)\([\dA-Z]"
    ),
    "a sleep": re.compile(r"sleep|Event\(\)\.wait"),
    "turns": re.compile(r"sleep|passes"),
    "a port that was drawn and released": re.compile(r"getsockname|free_base_ports"),
    "a kill without a wait": re.compile(r"subprocess|multiprocessing"),
    "a time that is too long": re.compile(rf"{'|'.join(CLOCKS)}|\.time\(\)"),
}
"""Without one of these a file has nothing of the kind, and need not be parsed."""


def function_around(tree: ast.AST, found: ast.AST) -> str:
    """Return the name of the outermost function or method around a node; `module` outside of any."""
    line = getattr(found, "lineno", 0)
    for node in ast.walk(tree):  # by breadth: the outermost first
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= line <= (node.end_lineno or 0):
            return node.name
    return "module"


def is_below(name: str, places: Iterable[str]) -> bool:
    return any(name == place or name.startswith(f"{place}/") for place in places)


@cache
def texts() -> dict[str, str]:
    """Return the text of each file that is held to the rules, by its name."""
    names = {str(file.relative_to(TESTS)): file for file in sorted(TESTS.rglob("*.py"))}
    return {name: file.read_text() for name, file in names.items() if not is_below(name, (*VIRTUAL_TIME, *ELSEWHERE))}


def places_of(kind: str) -> dict[str, list[int]]:
    """Return where tests wait in a way, by `file:function`, with the lines."""
    found: dict[str, list[int]] = {}
    for name, text in texts().items():
        if not WORDS[kind].search(text):
            continue
        for node in KINDS[kind](tree_of(TESTS / name)):
            found.setdefault(f"{name}:{function_around(tree_of(TESTS / name), node)}", []).append(
                getattr(node, "lineno", 0)
            )
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_tests_wait_by_tests_waiting_alone(kind: str) -> None:
    """An exception that is not needed any more fails, too."""
    found = places_of(kind)

    unknown = {place: lines for place, lines in found.items() if place not in EXCEPTIONS[kind]}
    assert not unknown, f"{kind}: wait by tests/waiting.py"
    assert EXCEPTIONS[kind].keys() <= found.keys(), f"{kind}: exceptions that nothing needs"


@pytest.mark.parametrize("place", [*VIRTUAL_TIME, *ELSEWHERE])
def test_places_that_are_left_out_exist(place: str) -> None:
    assert (TESTS / place).exists()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("a fixed limit", "async with asyncio.timeout(60): ..."),
        ("a fixed limit", "asyncio.wait_for(task, limit_s)"),
        ("a fixed limit", "subprocess.run(command, timeout=60)"),
        ("a fixed limit", "ClusterClient.connect(there, connect_timeout_s=60.0)"),
        ("a fixed limit", "wait_for_status(cluster, 0, is_so, time_limit_s=TIMEOUT_S)"),
        ("a fixed limit", "process.wait(2 * DEADLINE_S)"),
        ("a fixed limit", "asyncio.to_thread(process.wait, TIMEOUT_S)"),
        ("a sleep", "time.sleep(0.1)"),
        ("a sleep", "await asyncio.sleep(PAUSE_S)"),
        ("a sleep", "threading.Event().wait(1)"),
        ("turns", "for _ in range(3):\n    await asyncio.sleep(0)"),
        ("turns", "while not is_so():\n    await asyncio.sleep(0)"),
        ("turns", "async def test():\n    await asyncio.sleep(0)\n    await asyncio.sleep(0)"),
        ("a port that was drawn and released", "free_base_ports(3)"),
        (
            "a port that was drawn and released",
            "def draw():\n    with socket.socket() as probe:\n        return probe.getsockname()[1]",
        ),
        (
            "a port that was drawn and released",
            "def test():\n    with socket.socket() as probe:\n        port = probe.getsockname()[1]\n    use(port)",
        ),
        ("a kill without a wait", "import subprocess\ndef test():\n    process.kill()"),
        ("a kill without a wait", "import subprocess\ndef test():\n    process.wait()\n    os.killpg(pid, SIGKILL)"),
        (
            "a time that is too long",
            "def test():\n    begin = time.monotonic()\n    assert time.monotonic() - begin < 3",
        ),
        (
            "a time that is too long",
            "def test():\n    took_s = loop.time() - begin_s\n    assert 1 < took_s <= LIMIT_S",
        ),
        ("a time that is too long", "def test():\n    while time.monotonic() < deadline_s: ..."),
    ],
)
def test_each_way_to_wait_by_luck_is_found(kind: str, text: str) -> None:
    assert [*KINDS[kind](ast.parse(text))] != []


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("a fixed limit", "subprocess.run(command, timeout=patient(60))"),
        ("a fixed limit", "wait_until(is_so, timeout_s=TIMEOUT_S)"),
        ("a fixed limit", "client.request(b'', timeout_s=0.02)"),
        ("a sleep", "asyncio.Event().wait()"),
        ("turns", "await asyncio.sleep(0)"),
        (
            "a port that was drawn and released",
            "def test():\n    with socket.socket() as held:\n        port = held.getsockname()[1]\n        use(port)",
        ),
        ("a kill without a wait", "import subprocess\ndef test():\n    process.kill()\n    process.wait()"),
        ("a kill without a wait", "import subprocess\ndef test():\n    os.kill(pid, signal.SIGSTOP)"),
        ("a time that is too long", "def test():\n    assert loop.time() - begin_s > 0.03"),
        ("a time that is too long", "def test():\n    assert loop.time() - begin_s < patient(3)"),
    ],
)
def test_what_waits_for_something_is_not_found(kind: str, text: str) -> None:
    assert [*KINDS[kind](ast.parse(text))] == []
