"""The generator of clients on a small simulated cluster: lanes, limits, ends of sessions, rows of tables."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random

from tests.unit.cluster.testing.simulation.small_cluster import SmallCluster, small_cluster
from tests.unit.cluster.testing.simulation.small_world import SECOND
from trimaran.cluster.testing.simulation.clients.application import Application, Lane, OperationRow, Pace, Session
from trimaran.cluster.testing.simulation.clients.history import History
from trimaran.cluster.testing.simulation.clients.linearizability import check_log_order
from trimaran.cluster.testing.simulation.clients.register_model import RegisterModel, explained
from trimaran.cluster.testing.simulation.clients.register_operations import OPERATIONS
from trimaran.cluster.testing.simulation.clients.register_work import RegisterWork
from trimaran.cluster.testing.simulation.clients.stale_reads import check_stale_reads
from trimaran.cluster.testing.simulation.services.registers import Registers, RequestKind

QUICK = Pace(think_mean_s=0.002, idle_rate=0.0, close_rate=0.0)


class HeldWork:
    """Two lanes: operations of the first never end, those of the second at once."""

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        rows = [OperationRow("held", 1.0, self._hold), OperationRow("quick", 1.0, self._do)]
        self.lanes = [Lane([row], QUICK, Random(1)) for row in rows]

    def make_session(self, number: int) -> Session:
        return Session(number)

    def abandon(self) -> None:
        pass

    def _hold(self, session: Session, random: Random) -> asyncio.Future[None]:
        self.begun["held"] += 1
        return asyncio.get_running_loop().create_future()

    async def _do(self, session: Session, random: Random) -> None:
        self.begun["quick"] += 1


def run(small: SmallCluster, work: HeldWork | RegisterWork, is_done: Callable[[Application], bool]) -> Application:
    """Run an application until something holds, and let it end, unless what is under way never does."""
    small.start()
    config = small.client_config(close_timeout_s=0.2)
    application = Application(config, 1, work, random=Random(1))
    small.cluster.add_client("client", application.run)
    small.wait(lambda: is_done(application))
    return application


def stop(small: SmallCluster, application: Application) -> None:
    application.stop()
    small.wait(lambda: not small.cluster.clients["client"].is_running)


def make_registers(small: SmallCluster, history: History) -> RegisterWork:
    return RegisterWork(
        1, histories=[history], now_ns=lambda: small.cluster.now_ns, keys=range(4), timer_keys=[4], unit_s=0.2
    )


def test_every_request_of_the_service_has_a_row() -> None:
    assert {row.request_kind for row in OPERATIONS.values()} - {None} == set(RequestKind)


def test_every_row_is_drawn_and_answered_as_the_model_says() -> None:
    with small_cluster(make_service=Registers) as small:
        history = History()
        work = make_registers(small, history)
        work.lanes = [Lane(work.messages(), QUICK, Random(1)), Lane(work.queries(), QUICK, Random(2))]
        wanted = OPERATIONS.keys() - {"fire"}
        stop(small, run(small, work, lambda _: {some.kind for some in history if some.is_acknowledged} == wanted))

        operations = explained(history)
        assert history.faults == []
        assert history.pending_count == 0
        assert history.query_count > 0
        assert len(history.stale_reads) > 0
        assert check_log_order(operations, RegisterModel()) == []
        assert check_stale_reads(operations, history.stale_reads, RegisterModel()) == []


def test_requests_that_are_left_at_the_end_of_a_session_stay_unknown() -> None:
    with small_cluster(make_service=Registers) as small:
        history = History()
        work = make_registers(small, history)
        work.lanes = [Lane(work.requests(), replace(QUICK, close_rate=0.3), Random(1))]
        stop(small, run(small, work, lambda application: application.session_count > 40))

        assert history.faults == []
        assert history.pending_count == 0
        assert history.unknown_count > 5
        assert history.acknowledged_count > 20


def test_a_lane_has_its_own_limit_and_holds_up_no_other() -> None:
    with small_cluster() as small:
        work = HeldWork()
        run(small, work, lambda _: work.begun["quick"] > 100)

        assert work.begun["held"] == QUICK.in_flight_limit


def test_a_process_that_died_notes_nothing_more() -> None:
    with small_cluster(make_service=Registers) as small:
        history = History()
        work = make_registers(small, history)
        work.lanes = [Lane(work.messages(), QUICK, Random(1)), Lane(work.queries(), QUICK, Random(2))]
        application = run(small, work, lambda _: history.acknowledged_count > 20)
        small.wait(lambda: history.pending_count > 1)
        pending_count, unknown_count = history.pending_count, history.unknown_count
        small.cluster.clients["client"].kill()
        application.abandon()
        small.cluster.run_for(SECOND)

        assert (history.pending_count, history.unknown_count) == (0, unknown_count + pending_count)
