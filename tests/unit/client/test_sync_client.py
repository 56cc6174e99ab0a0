"""The blocking client: its members run on a loop in another thread, as if they were other processes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import linecache
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

import pytest

from tests.facts import has_facts
from tests.places import ROOT
from tests.unit.client.client_threads import client_threads
from tests.unit.client.fake_member import DEADLINE_S, FakeCluster, fake_cluster, session_event, session_message
from tests.waiting import patient, until, wait_blocking
from trimaran.client import (
    ClientConfig,
    ConnectRejectedError,
    ConnectTimeoutError,
    Disconnected,
    LeaderLost,
    NewLeader,
    SessionClosed,
    SessionOpened,
    SyncClusterClient,
    loop_thread,
)
from trimaran.client.blocking import facade
from trimaran.client.loop_thread import LoopThread
from trimaran.service_api.errors import ClusterTimeoutError, LocalProtocolError, SessionClosedError
from trimaran.service_api.types import ClusterSessionId
from trimaran.service_api.wire.session import Challenge, EventCode, SessionCloseRequest, SessionConnectRequest

_T = TypeVar("_T")


class RemoteCluster:
    """Fake members on a loop in another thread."""

    def __init__(self) -> None:
        self.fake: FakeCluster
        self._loop: asyncio.AbstractEventLoop
        self._end: asyncio.Event
        self._ready = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self._main()))

    def __enter__(self) -> RemoteCluster:
        self.thread.start()
        assert self._ready.wait(patient(DEADLINE_S))
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self.thread.join()

    async def _main(self) -> None:
        async with fake_cluster(3) as self.fake:
            self._loop = asyncio.get_running_loop()
            self._end = asyncio.Event()
            self._ready.set()
            await self._end.wait()

    @property
    def endpoints(self) -> list[str]:
        return self.fake.endpoints

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(patient(2 * DEADLINE_S))

    def do(self, action: Callable[[], _T]) -> _T:
        async def act() -> _T:
            return action()

        return self.run(act())

    def until(self, condition: Callable[[], bool]) -> None:
        self.run(self.fake.until(condition))

    def is_deserted(self) -> bool:
        return not any(member.connections for member in self.fake.members)


@contextmanager
def connected(**settings: Any) -> Iterator[tuple[RemoteCluster, SyncClusterClient]]:
    with RemoteCluster() as cluster:
        config = ClientConfig(endpoints=tuple(cluster.endpoints), **settings)
        with SyncClusterClient.connect(config=config) as client:
            yield cluster, client


def test_messages_come_back_in_order() -> None:
    with connected() as (_, client):
        for index in range(3000):
            client.offer(b"%d" % index)
        messages = client.egress(timeout_s=patient(DEADLINE_S))
        received = [next(messages).payload for _ in range(3000)]

    assert received == [b"%d" % index for index in range(3000)]


def test_it_tells_where_it_stands() -> None:
    with connected() as (_, client):
        assert (client.cluster_session_id, client.leadership_term_id, client.leader_member_id) == (7, 0, 0)
        assert client.has_leader
        assert not client.is_closed
        assert repr(client) == "<SyncClusterClient <ClusterClient OPEN session=7 term=0 leader=0>>"
    assert client.is_closed


def test_an_iteration_ends_when_nothing_comes_and_may_be_begun_again() -> None:
    with connected() as (_, client):
        silence = list(client.egress(timeout_s=0))
        client.offer(b"x")
        client.drain(timeout_s=patient(DEADLINE_S))
        first = client.receive(timeout_s=patient(DEADLINE_S))

        assert silence == []
        assert first.payload == b"x"
        with pytest.raises(ClusterTimeoutError, match="no message"):
            client.receive(timeout_s=0)


async def test_it_works_where_a_loop_runs_already() -> None:
    """As in a notebook: the call blocks that loop, and does not need it."""
    with connected() as (_, client):
        client.offer(b"x")

        assert client.receive(timeout_s=patient(DEADLINE_S)).payload == b"x"


def test_errors_of_connecting_are_those_of_the_asyncio_client_and_leave_no_thread() -> None:
    with RemoteCluster() as cluster:

        def reject() -> None:
            for member in cluster.fake.members:
                member.connect_answer = session_event(EventCode.ERROR, detail="no")

        cluster.do(reject)
        with pytest.raises(ConnectRejectedError, match="detail='no'"):
            SyncClusterClient.connect(cluster.endpoints)
        with pytest.raises(ConnectTimeoutError):
            SyncClusterClient.connect("127.0.0.1:1", connect_timeout_s=0.01)

        assert client_threads() == []


def test_an_offer_without_a_leader_times_out_and_was_not_made() -> None:
    with connected() as (cluster, client):
        cluster.run(cluster.fake.members[0].stop())
        for event in client.connection_events(timeout_s=patient(DEADLINE_S)):
            if isinstance(event, LeaderLost):
                break

        with pytest.raises(ClusterTimeoutError, match=r"timeout_s=0\.01"):
            client.offer(b"x", timeout_s=0.01)
        cluster.run(cluster.fake.elect(1))
        client.offer(b"y", timeout_s=patient(DEADLINE_S))
        assert client.receive(patient(DEADLINE_S)).payload == b"y"
        assert cluster.fake.members[1].payloads == [b"y"]


def test_connection_events_are_told_from_the_beginning_and_end_when_nothing_happens() -> None:
    with connected() as (cluster, client):
        cluster.until(lambda: all(member.keep_alives for member in cluster.fake.members))
        told = [type(event) for event in client.connection_events(timeout_s=0)]
        cluster.run(cluster.fake.members[0].stop())
        cluster.run(cluster.fake.elect(1))
        for event in client.connection_events(timeout_s=patient(DEADLINE_S)):
            if isinstance(event, NewLeader):
                break

    assert SessionOpened in told
    assert isinstance(event, NewLeader)
    assert event.leader_member_id == 1


def test_a_session_that_the_cluster_closes_says_so_after_its_last_messages() -> None:
    with connected() as (cluster, client):

        def close() -> None:
            (connection,) = cluster.fake.members[0].connections
            connection.send(session_message(b"last", term=0, session_id=7))
            connection.send(session_event(EventCode.CLOSED, correlation_id=-1, detail="TIMEOUT"))

        cluster.do(close)
        messages = client.egress(timeout_s=patient(DEADLINE_S))

        assert next(messages).payload == b"last"
        with pytest.raises(SessionClosedError, match="reason=TIMEOUT"):
            next(messages)
        with pytest.raises(SessionClosedError, match="reason=TIMEOUT"):
            client.offer(b"x")
        assert client.is_closed
        events = list(client.connection_events(timeout_s=patient(DEADLINE_S)))
        assert isinstance(events[-2], Disconnected)
        assert events[-1] == SessionClosed("TIMEOUT", is_confirmed=True)


def test_after_close_every_use_says_that_it_is_closed() -> None:
    with connected() as (cluster, client):
        messages, events = client.egress(), client.connection_events()
        client.close()
        client.close()

        for use in (
            lambda: client.offer(b"x"),
            client.drain,
            client.receive,
            client.egress,
        ):
            with pytest.raises(SessionClosedError, match="this client"):
                use()
        assert list(messages) == []
        assert list(events)[-1] == SessionClosed("closed by this client", is_confirmed=True)
        assert list(client.connection_events())[-1] == SessionClosed("closed by this client", is_confirmed=True)
        cluster.until(cluster.is_deserted)
        assert isinstance(cluster.fake.members[0].messages[-1], SessionCloseRequest)
        assert client_threads() == []


def test_a_close_ends_what_waits_in_other_threads() -> None:
    with connected() as (cluster, client), ThreadPoolExecutor(4) as pool:
        cluster.run(cluster.fake.members[0].stop())
        next(event for event in client.connection_events() if isinstance(event, LeaderLost))
        iterating = pool.submit(lambda: list(client.egress()))
        receiving = pool.submit(client.receive)
        offering = pool.submit(client.offer, b"x")
        watching = pool.submit(lambda: list(client.connection_events()))
        wait_blocking(
            lambda: len(client._owner.thread._calls) >= 4 or None, timeout_s=DEADLINE_S, what="calls in other threads"
        )
        client.close()

        assert iterating.result(patient(DEADLINE_S)) == []
        assert isinstance(receiving.exception(patient(DEADLINE_S)), SessionClosedError)
        assert isinstance(offering.exception(patient(DEADLINE_S)), SessionClosedError)
        assert watching.result(patient(DEADLINE_S))[-1] == SessionClosed("closed by this client", is_confirmed=False)


def test_threads_may_share_it_and_each_message_goes_to_one() -> None:
    each, thread_count = 200, 4

    def offer(client: SyncClusterClient, name: int) -> None:
        for index in range(each):
            client.offer(b"%d %d" % (name, index))

    def receive(client: SyncClusterClient) -> list[bytes]:
        return [client.receive(patient(DEADLINE_S)).payload for _ in range(each)]

    with connected() as (_, client), ThreadPoolExecutor(2 * thread_count) as pool:
        receivers = [pool.submit(receive, client) for _ in range(thread_count)]
        offerers = [pool.submit(offer, client, name) for name in range(thread_count)]
        for offerer in offerers:
            offerer.result(patient(2 * DEADLINE_S))
        received = [payload for receiver in receivers for payload in receiver.result(patient(2 * DEADLINE_S))]

    assert sorted(received) == sorted(b"%d %d" % (name, index) for name in range(thread_count) for index in range(each))


def test_a_full_egress_queue_holds_the_member_back() -> None:
    with connected(egress_queue_limit=10) as (cluster, client):

        def flood() -> None:
            (connection,) = cluster.fake.members[0].connections
            for _ in range(500):
                connection.send(session_message(bytes(50_000), term=0, session_id=7))

        cluster.do(flood)
        first = client.receive(patient(DEADLINE_S))
        unsent_bytes = cluster.do(lambda: cluster.fake.members[0].connections[0].unsent_bytes)
        rest = [client.receive(patient(DEADLINE_S)) for _ in range(499)]

        assert unsent_bytes > 0
        assert {len(message.payload) for message in (first, *rest)} == {50_000}


def test_a_refused_connection_is_the_message_without_a_traceback_through_the_library() -> None:
    try:
        SyncClusterClient.connect("127.0.0.1:1", connect_timeout_s=0.1)
    except ConnectTimeoutError as error:
        lines = "".join(traceback.format_exception(error)).splitlines()
        frames = traceback.extract_tb(error.__traceback__)
    else:
        pytest.fail("nothing listens there")

    assert len(frames) <= 3  # where it was called, and one line of the library; there were 31 lines in all
    assert "During handling" not in "".join(lines)
    assert "127.0.0.1:1: connection refused" in lines[-1]


def test_its_own_loop_is_refused_instead_of_waiting_for_itself() -> None:
    said: list[str] = []
    client: SyncClusterClient

    async def use_inside() -> None:
        for use in (lambda: client.offer(b"x"), client.receive, client.egress, client.drain, client.close):
            try:
                use()
            except LocalProtocolError as error:
                said.append(str(error))

    with connected() as (_, client):
        client._owner.thread.call(use_inside)

        assert said == ["called on this client's own event loop, where it would wait for itself"] * 5
        assert not client.is_closed


def test_a_challenge_is_answered_in_the_clients_thread() -> None:
    names: list[str] = []

    def answer(challenge: bytes) -> bytes:
        names.append(threading.current_thread().name)
        return challenge[::-1]

    with RemoteCluster() as cluster:

        def fall_silent() -> None:
            cluster.fake.members[0].is_answering = False

        cluster.do(fall_silent)

        def ask() -> None:
            (connection,) = cluster.fake.members[0].connections
            request = cluster.fake.members[0].messages[0]
            assert isinstance(request, SessionConnectRequest)
            challenge = Challenge(
                correlation_id=request.correlation_id,
                cluster_session_id=ClusterSessionId(7),
                encoded_challenge=b"abc",
            )
            connection.send(challenge)

        with ThreadPoolExecutor(1) as pool:
            connecting = pool.submit(
                SyncClusterClient.connect, [cluster.endpoints[0]], on_challenge=answer, connect_timeout_s=0.3
            )
            cluster.until(lambda: bool(cluster.fake.members[0].messages))
            cluster.do(ask)
            cluster.until(lambda: len(cluster.fake.members[0].messages) > 1)
            assert isinstance(connecting.exception(patient(DEADLINE_S)), ConnectTimeoutError)

    assert names == ["trimaran-client"]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_is_refused_and_its_close_leaves_the_session_alone() -> None:
    with connected() as (_, client):
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            said = "accepted"
            try:
                client.offer(b"x")
            except LocalProtocolError as error:
                said = str(error)
            client.close()
            os.write(write_end, said.encode())
            os._exit(0)
        os.close(write_end)
        said = os.read(read_end, 1000).decode()
        os.close(read_end)
        os.waitpid(child, 0)
        client.offer(b"still open")

        assert has_facts(said, f"process_id={os.getpid()}", "fork")
        assert client.receive(patient(DEADLINE_S)).payload == b"still open"


def test_a_client_that_is_forgotten_closes_its_session() -> None:
    with RemoteCluster() as cluster:
        client = SyncClusterClient.connect(cluster.endpoints)
        client.offer(b"x")
        del client
        gc.collect()

        cluster.until(cluster.is_deserted)
        assert isinstance(cluster.fake.members[0].messages[-1], SessionCloseRequest)
        assert client_threads() == []


PROGRAM = """
import sys, threading
from trimaran import SyncClusterClient
client = SyncClusterClient.connect(sys.argv[1].split(","))
client.offer(b"x")
waiting = threading.Thread(target=lambda: list(client.egress()), daemon=True)
waiting.start()
print(client.cluster_session_id, flush=True)
{end}
"""


@pytest.mark.parametrize(("end", "status"), [("", 0), ("sys.exit(3)", 3), ("raise ValueError", 1)])
def test_an_interpreter_that_exits_closes_the_session_and_does_not_hang(end: str, status: int) -> None:
    with RemoteCluster() as cluster:
        result = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(end=end), ",".join(cluster.endpoints)],
            cwd=ROOT,
            timeout=patient(3 * DEADLINE_S),
            capture_output=True,
            text=True,
            check=False,
        )
        cluster.until(cluster.is_deserted)

        assert (result.returncode, result.stdout) == (status, "7\n")
        assert result.stderr == "" or status == 1
        assert isinstance(cluster.fake.members[0].messages[-1], SessionCloseRequest)


def test_the_example_script_prints_an_answer_for_each_line() -> None:
    with RemoteCluster() as cluster:
        script = [sys.executable, str(ROOT / "examples" / "send_lines.py")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}

        def run(endpoints: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [*script, endpoints],
                input="one\ntwo\n",
                env=environment,
                timeout=patient(3 * DEADLINE_S),
                capture_output=True,
                text=True,
                check=False,
            )

        done = run(",".join(cluster.endpoints))
        refused = run("nonsense")

        assert (done.returncode, done.stdout) == (0, "one\ntwo\n")
        assert done.stderr == "SessionOpened(cluster_session_id=7, leadership_term_id=0, leader_member_id=0)\n"
        assert (refused.returncode, refused.stdout) == (1, "")
        assert has_facts(refused.stderr, "endpoint='nonsense':", "host:port")


def test_an_exit_does_not_hang_when_the_members_are_frozen() -> None:
    with RemoteCluster() as cluster:
        program = PROGRAM.format(end="sys.stdin.readline()")
        with subprocess.Popen(
            [sys.executable, "-c", program, ",".join(cluster.endpoints)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "7\n"

            def freeze() -> None:
                for member in cluster.fake.members:
                    member.is_answering = False

            cluster.do(freeze)
            process.communicate("\n", timeout=patient(3 * DEADLINE_S))

        assert process.returncode == 0


def test_a_call_that_is_interrupted_is_cancelled_and_loses_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    with connected() as (cluster, client):
        cluster.until(lambda: all(member.keep_alives for member in cluster.fake.members))

        async def wait() -> None:
            await asyncio.Event().wait()

        async def count_tasks() -> int:
            await until(lambda: len(asyncio.all_tasks()) <= 2)
            return len(asyncio.all_tasks())

        class Interrupted(BaseException):
            pass

        def interrupt() -> None:
            raise Interrupted

        with monkeypatch.context() as patched:
            patched.setattr("trimaran.client.loop_thread.Future.result", lambda self, timeout=None: interrupt())
            with pytest.raises(Interrupted):
                client._owner.thread.call(wait)
            with pytest.raises(Interrupted):
                client.receive()
        assert client._owner.thread.call(count_tasks) == 2  # the loop's own, and this
        client.offer(b"x")

        assert client.receive(patient(DEADLINE_S)).payload == b"x"
        assert client._owner.thread._calls == {}


def test_a_client_whose_making_is_interrupted_leaves_no_thread() -> None:
    """By Ctrl-C, which raises before any line: each line in its turn."""
    starting = threading.Thread.start.__code__
    line_count = 0

    def interrupt_at(line: int) -> None:
        nonlocal line_count
        line_count = 0

        def trace(frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
            nonlocal line_count
            if frame.f_code.co_filename not in (loop_thread.__file__, facade.__file__) and frame.f_code is not starting:
                return None
            # The end of a `with` is a line, too, but no place where a signal is handled.
            text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
            if event == "line" and not text.startswith("with "):
                line_count += 1
                if line_count == line:
                    raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            made = SyncClusterClient.connect(config=config)
        finally:
            sys.settrace(before)
        made.close()

    with RemoteCluster() as cluster:
        config = ClientConfig(endpoints=tuple(cluster.endpoints))
        line = 1
        while True:
            with contextlib.suppress(KeyboardInterrupt):
                interrupt_at(line)
            if line_count < line:
                break
            gc.collect()
            wait_blocking(
                lambda: not client_threads() or None,
                timeout_s=DEADLINE_S,
                what=f"the thread of line {line}",
            )
            line += 1
        cluster.run(until_deserted(cluster))
    assert line > 50


async def until_deserted(cluster: RemoteCluster) -> None:
    await until(cluster.is_deserted, timeout_s=DEADLINE_S)


def test_a_thread_whose_end_fails_answers_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda arguments: raised.append(arguments.exc_value))

    async def fail() -> None:
        raise ZeroDivisionError

    async def wait() -> None:
        await asyncio.Event().wait()

    thread = LoopThread(on_end=fail, end_timeout_s=patient(DEADLINE_S))
    thread.start()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(thread.call, wait)
        wait_blocking(lambda: thread._calls or None, timeout_s=DEADLINE_S, what="a call in another thread")
        thread.end()

        assert isinstance(waiting.exception(patient(DEADLINE_S)), SessionClosedError)
    assert [type(error) for error in raised] == [ExceptionGroup]
