"""The job scheduler of the examples: who runs what, a worker that dies, and the page over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer

import httpx
import pytest

from examples.job_page import JobPage
from examples.job_scheduler import LEASE_S, AddJob, FinishRun, Job, ListJobs, Scheduler, TakeRun
from trimaran.client.typed import TypedClient
from trimaran.cluster.testing import MemoryCluster, TypedHarness


@pytest.fixture
def scheduler() -> TypedHarness[Scheduler]:
    made = TypedHarness(Scheduler)
    assert made.call(AddJob("space", "disk", 5))
    return made


def test_a_job_comes_due_is_run_once_and_comes_due_again(scheduler: TypedHarness[Scheduler]) -> None:
    assert scheduler.call(TakeRun()) is None
    scheduler.advance(5)
    taken = scheduler.call(TakeRun())
    assert taken is not None
    assert scheduler.call(TakeRun()) is None

    assert scheduler.call(FinishRun("space", taken.run_id, "7 GiB free"))
    assert not scheduler.call(FinishRun("space", taken.run_id, "again"))

    (job,) = scheduler.ask(ListJobs())
    assert (job.stage, job.run_count, job.result) == ("waits", 1, "7 GiB free")
    scheduler.restart()
    scheduler.advance(5)
    assert scheduler.call(TakeRun()) is not None


def test_a_run_whose_worker_has_died_goes_to_another_one(scheduler: TypedHarness[Scheduler]) -> None:
    scheduler.advance(5)
    assert scheduler.call(TakeRun()) is not None

    scheduler.advance(LEASE_S)

    assert scheduler.call(TakeRun()) is not None


@pytest.mark.parametrize("message", [AddJob("space", "disk", 5), AddJob("new", "format", 5), AddJob("new", "disk", 0)])
def test_what_cannot_be_is_not_added(scheduler: TypedHarness[Scheduler], message: AddJob) -> None:
    assert scheduler.call(message) is False
    assert len(scheduler.ask(ListJobs())) == 1


def test_jobs_survive_their_leader() -> None:
    with MemoryCluster(Scheduler) as cluster:

        async def test() -> None:
            client = TypedClient(await cluster.connect())
            assert await client.call(AddJob("space", "disk", 5))
            cluster.kill_leader()
            await cluster.advance(6)
            taken = await client.call(TakeRun())
            assert taken is not None
            assert await client.call(FinishRun("space", taken.run_id, "done"))
            await cluster.restart()
            await cluster.assert_identical()

        cluster.run(test())


class FakeClient:
    """What the page asks of a cluster, from one service in this process."""

    def __init__(self) -> None:
        self._scheduler = TypedHarness(Scheduler)

    def add(self, name: str, task: str, every_s: float) -> bool:
        return self._scheduler.call(AddJob(name, task, every_s))

    def list_jobs(self) -> list[Job]:
        return self._scheduler.ask(ListJobs())


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(JobPage, "client", FakeClient(), raising=False)
    monkeypatch.setattr(JobPage, "log_message", lambda *_: None)
    with ThreadingHTTPServer(("127.0.0.1", 0), JobPage) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_page_lists_jobs_takes_new_ones_and_escapes_their_names(page: str) -> None:
    added = httpx.post(page, data={"name": "<b>space</b>", "task": "disk", "every_s": "5"})
    refused = httpx.post(page, data={"name": "x", "task": "disk", "every_s": "soon"})
    listed = httpx.get(page)

    assert (added.status_code, refused.status_code, listed.status_code) == (303, 400, 200)
    assert "&lt;b&gt;space&lt;/b&gt;<td>disk<td>5.0 s<td>waits<td>0" in listed.text
