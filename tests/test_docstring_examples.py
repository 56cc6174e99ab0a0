"""The examples in public docstrings run.

An example is a block of Python that is set in, below an empty line. Each is in one of the tables here: a part of a
service runs on members, a client's lines run against them, anything else is run or called with the names that its
reader would have. The example of the outbox ended a node at its first start, and nobody had run it.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import math
import re
import textwrap
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import cache, partial
from hmac import compare_digest
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

import msgspec
import pydantic
import pytest

import trimaran.client
from trimaran.client import (
    ClusterClient,
    GroupedClient,
    SyncClusterClient,
    SyncGroupedClient,
    SyncSessionPool,
    SyncSharedConnection,
)
from trimaran.client.outbox_worker import OutboxWorker
from trimaran.cluster.subscriptions import subscribe_blocking
from trimaran.cluster.testing import MemoryCluster, ServiceHarness, TypedHarness, replay_log, strategy_for
from trimaran.cluster.testing.machines import ServiceModel, service_machine
from trimaran.service_api import ClusteredService
from trimaran.service_api.connecting import Connecting
from trimaran.service_api.outbox.outbox import Outbox
from trimaran.service_api.snapshots.pieces import encode_pieces, read_pieces
from trimaran.service_api.typed import (
    Command,
    Context,
    Effect,
    Reply,
    ServiceError,
    TypedService,
    derived,
    handles,
    outbox,
    state,
)
from trimaran.service_api.wire.session import EventCode

ROOT = Path(__file__).parent.parent
FOLDERS = ("service_api", "client", "cluster", "archive")

Example = tuple[str, str]
"""The module and the function or class in it."""


class Counter(ClusteredService):
    """The service of examples: adds the numbers that it is sent; text counts as 1."""

    def __init__(self) -> None:
        self.total = 0
        self.tickets = {1, 2}
        self.balances = {b"5": 7}
        self.orders = {1: "apples"}

    async def on_start(self, cluster: Any, snapshot: Any) -> None:
        self.cluster = cluster
        if snapshot is not None:
            async for message in snapshot:
                text = bytes(message)
                self.total = int(text) if text.isdigit() else 0

    def on_request(self, session: Any, timestamp: int, payload: memoryview) -> bytes:
        text = bytes(payload).decode()
        self.total += int(text) if text.isdigit() else 1
        return b"%d" % self.total

    def on_session_message(self, session: Any, timestamp: int, payload: memoryview) -> None:
        session.offer(payload)

    def on_query(self, payload: memoryview) -> bytes:
        return b"%d" % self.total


class Kept(Counter):
    """Writes snapshots, where the example does not."""

    async def on_take_snapshot(self, snapshot: Any) -> None:
        await snapshot.offer(b"%d" % self.total)


class Balance(Reply):
    amount: int


class Deposit(Command[Balance]):
    account: str
    amount: int


class Withdraw(Command[Balance]):
    account: str
    amount: int


class Overdrawn(ServiceError):
    balance: int


class Bank(TypedService):
    accounts: dict[str, int] = state()

    @handles(Deposit)
    def deposit(self, ctx: Context, message: Deposit) -> Balance:
        self.accounts[message.account] = self.accounts.get(message.account, 0) + message.amount
        return Balance(self.accounts[message.account])

    @handles(Withdraw)
    def withdraw(self, ctx: Context, message: Withdraw) -> Balance:
        raise Overdrawn(balance=self.accounts[message.account])


# --- finding them


@cache
def examples() -> Mapping[Example, str]:
    """The code of all examples; several of one docstring are one."""
    found: dict[Example, str] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for name, docstring in docstrings_of(path):
                blocks = [block for block in blocks_of(docstring) if is_example(block)]
                if blocks:
                    found[path.relative_to(ROOT).as_posix(), name] = "\n".join(blocks)
    return found


def docstrings_of(path: Path) -> Iterator[tuple[str, str]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = "" if isinstance(node, ast.Module) else node.name
            docstring = ast.get_docstring(node)
            if docstring and not name.startswith("_"):
                yield name, docstring


def blocks_of(docstring: str) -> Iterator[str]:
    block: list[str] = []
    before = ""
    for line in [*docstring.splitlines(), "end"]:
        if line.startswith("    ") and (block or not before.strip()):
            block.append(line)
        elif block and not line.strip():
            block.append("")
        elif block:
            yield textwrap.dedent("\n".join(block))
            block = []
        before = line


def is_example(block: str) -> bool:
    """Return whether a block is Python that does or defines something."""
    try:
        tree = ast.parse(block)
    except SyntaxError:
        return False
    does = ast.Call | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.With | ast.AsyncWith
    return any(isinstance(node, does) for node in ast.walk(tree))


# --- running them


def names(**more: Any) -> dict[str, Any]:
    """The names that a reader has imported."""
    return {
        **{name: getattr(trimaran.client, name) for name in dir(trimaran.client) if name[0].isupper()},
        **{value.__name__: value for value in (asyncio, math, msgspec, pydantic, pytest)},
        **{value.__name__: value for value in (compare_digest, encode_pieces, read_pieces, derived, handles, state)},
        **{value.__name__: value for value in (Balance, Deposit, Withdraw, Overdrawn, Bank, Outbox, EventCode)},
        **{value.__name__: value for value in (Command, Context, Reply, ServiceError, TypedService)},
        **{value.__name__: value for value in (ServiceHarness, TypedHarness)},
        "Counter": Kept,
        **more,
    }


def define(code: str, **more: Any) -> dict[str, Any]:
    """Run an example that defines something; return its names."""
    found = names(**more)
    exec(compile(code, "<example>", "exec", dont_inherit=True), found)
    return found


def as_coroutine(code: str, **more: Any) -> Callable[[], Coroutine[Any, Any, None]]:
    """Make a coroutine function of an example that awaits."""
    function: Callable[[], Coroutine[Any, Any, None]] = define(
        "async def example():\n" + textwrap.indent(code, "    "), **more
    )["example"]
    return function


def run_service(code: str) -> None:
    """Run methods of a service on members: from nothing, with a request and a query, and from a snapshot."""
    base = Counter if "snapshot" in code else Kept
    found = define("class Example(Base):\n" + textwrap.indent(code, "    "), Base=base, account_id=17)
    with MemoryCluster(found["Example"]) as cluster:

        async def use() -> None:
            client = await cluster.connect()
            await client.request(b"5")
            await client.query(b"5")
            await cluster.snapshot_and_restart()
            await client.request(b"5")

        cluster.run(use())
        cluster.run(cluster.assert_identical())


def run_in_callback(code: str) -> None:
    """Run lines of a callback."""
    run_service(
        "def on_request(self, session, timestamp, payload):\n" + textwrap.indent(code, "    ") + "\n    return b''"
    )


def run_client(code: str, service: Any = Kept) -> None:
    """Run a client's lines against members; the addresses in them are those of this cluster.

    A loop over what comes has no end: it is left after a while, which takes no time.
    """
    with MemoryCluster(service) as members:

        def dial(*arguments: Any, config: Any = None, **settings: Any) -> Connecting[ClusterClient]:
            """Dial the members that there are."""
            return Connecting(lambda: members.connect(**settings))

        async def use() -> None:
            cluster = await members.connect()
            if "transfer_leadership(2)" in code:
                await cluster.transfer_leadership(0)
            done = as_coroutine(
                code,
                cluster=cluster,
                ClusterClient=SimpleNamespace(connect=dial),
                SharedConnection=SimpleNamespace(connect=lambda endpoints: members.share()),
                SessionPool=SimpleNamespace(
                    connect=lambda endpoints, size: Connecting(lambda: members.pool(size=size))
                ),
                endpoints=[],
                skipped=0,
                file=[b"1", b"2"],
                secret="open sesame",
                subscribe=lambda endpoints, *, from_position: members.subscribe(from_position=from_position),
                stored_position=0,
                store=int,
                payments=SimpleNamespace(post=post),
                OutboxWorker=OutboxWorker,
            )
            with contextlib.nullcontext() if is_finite(code) else pytest.raises(TimeoutError):
                async with asyncio.timeout(20):
                    await done()

        members.run(use())


async def post(payload: bytes, *, headers: dict[str, str]) -> None:
    """Stand for what is outside."""


def is_finite(code: str) -> bool:
    return "async for" not in code and ".run()" not in code


def run_worker(code: str) -> None:
    """Run the worker beside the service of the outbox's example."""
    found = define("class Example(Base):\n" + textwrap.indent(examples()[_OUTBOX], "    "), Base=Counter)
    run_client(code, found["Example"])


def run_raising(code: str) -> None:
    with pytest.raises(ServiceError):
        define(code)


def run_awaiting(code: str) -> None:
    """Run lines that await what stands beside them."""

    async def resolve() -> bytes:
        return b"17"

    async def snapshot() -> Any:
        for message in encode_pieces("orders", {1: "apples"}.items()):
            yield message

    owner = SimpleNamespace(orders={})
    more = {"error": SimpleNamespace(resolve=resolve), "snapshot": snapshot(), "self": owner, "Order": str}
    asyncio.run(as_coroutine(code, **more)())
    assert owner.orders in ({}, {1: "apples"})


def run_test(code: str) -> None:
    """Run the test of a service, which is given a cluster."""
    with MemoryCluster(Kept) as cluster:
        cluster.run(define(code)["test_total_survives_a_leader"](cluster))


def run_blocking(code: str) -> None:
    """Call what takes threads, sockets or a recorded log: names and arguments have to be those that there are."""
    cluster = create_autospec(SyncClusterClient, instance=True)
    cluster.receive.return_value = SimpleNamespace(payload=b"17")
    called = {
        value.__name__: create_autospec(value)
        for value in (
            SyncClusterClient,
            SyncGroupedClient,
            SyncSharedConnection,
            SyncSessionPool,
            subscribe_blocking,
            replay_log,
            service_machine,
            strategy_for,
        )
    }
    entered = called["SyncClusterClient"].return_value.__enter__
    entered.return_value = cluster
    found = define(
        code, cluster=cluster, stored_position=0, BankModel=ServiceModel, names=None, OrderBook=Bank, **called
    )
    for name in re.findall(r"^def (test_\w+)", code, re.MULTILINE):
        found[name]()


def run_grouped(code: str) -> None:
    groups = create_autospec(GroupedClient, instance=True)
    asyncio.run(as_coroutine(code, GroupedClient=create_autospec(GroupedClient), groups=groups)())


def compile_alone(code: str) -> None:
    """Compile what needs a server, Spark or matplotlib: tests of these run the like."""
    as_coroutine(code)


_OUTBOX: Example = ("service_api/outbox/outbox.py", "Outbox")
_CLIENT, _SYNC, _TYPED = "client/cluster_client.py", "client/sync_clients.py", "service_api/typed"

RUN: dict[Example, Callable[[str], Any]] = {
    _OUTBOX: run_service,
    ("archive/net/client.py", ""): compile_alone,
    ("archive/report/figures.py", ""): compile_alone,
    ("archive/spark/source/data_source.py", ""): compile_alone,
    ("client/config.py", "ClientConfig"): define,
    ("service_api/access/credentials.py", ""): partial(define, endpoints=["10.0.0.1:9000"]),
    ("service_api/access/credentials.py", "PasswordCredentials"): partial(
        define, endpoints=["10.0.0.1:9000"], secret="sesame"
    ),
    ("client/egress.py", "EgressListener"): partial(define, endpoints=["10.0.0.1:9000"]),
    ("client/errors.py", "resolve"): run_awaiting,
    ("client/groups/grouped_client.py", "GroupedClient"): run_grouped,
    ("client/groups/grouped_client.py", "request_many"): run_grouped,
    ("client/outbox_worker.py", "OutboxWorker"): run_worker,
    ("client/shared/session_pool.py", "SessionPool"): run_client,
    ("client/shared/shared_connection.py", "SharedConnection"): run_client,
    ("cluster/subscriptions/blocking.py", "subscribe_blocking"): run_blocking,
    ("cluster/subscriptions/subscription.py", "subscribe"): run_client,
    ("cluster/testing/harness.py", "ServiceHarness"): define,
    ("cluster/testing/machines.py", "ServiceModel"): define,
    ("cluster/testing/machines.py", "service_machine"): run_blocking,
    ("cluster/testing/memory_cluster.py", "MemoryCluster"): run_test,
    ("cluster/testing/replaying.py", "replay_log"): run_blocking,
    ("cluster/testing/simulating.py", "ClientWorkload"): define,
    ("cluster/testing/typed_harness.py", "TypedHarness"): define,
    ("service_api/authenticator.py", "Authenticator"): define,
    ("service_api/authorisation.py", "AuthorisationService"): define,
    ("service_api/cluster.py", "group"): run_in_callback,
    ("service_api/cluster.py", "random"): run_in_callback,
    ("service_api/service.py", "on_query"): run_service,
    ("service_api/service.py", "snapshot_messages"): run_service,
    ("service_api/snapshots/pieces.py", "read_pieces"): run_awaiting,
    (f"{_TYPED}/declared_state.py", ""): define,
    (f"{_TYPED}/declared_state.py", "derived"): define,
    (f"{_TYPED}/messages.py", ""): define,
    (f"{_TYPED}/messages.py", "ServiceError"): run_raising,
    (f"{_TYPED}/outboxes.py", ""): partial(define, outbox=outbox, Charge=type("Charge", (Effect,), {})),
    (f"{_TYPED}/outboxes.py", "outbox"): partial(define, outbox=outbox, Effect=Effect),
    (f"{_TYPED}/service.py", ""): define,
    **{
        (_CLIENT, name): run_client
        for name in (
            *("ClusterClient", "connect", "try_offer", "offer", "query", "request", "request_many"),
            *("take_snapshot", "transfer_leadership", "egress", "connection_events", "drain", "aclose"),
        )
    },
    **{
        (_SYNC, name): run_blocking
        for name in ("SyncClusterClient", "SyncSharedConnection", "SyncSessionPool", "SyncGroupedClient")
    },
    **{("client/blocking/session.py", name): run_blocking for name in ("receive", "egress", "connection_events")},
}


def test_each_example_is_run_and_no_other() -> None:
    assert set(examples()) == set(RUN)


@pytest.mark.parametrize("example", RUN, ids=lambda example: "-".join(filter(None, example)))
def test_an_example_does_what_it_shows(example: Example) -> None:
    RUN[example](examples()[example])
