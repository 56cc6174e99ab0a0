"""A job scheduler: jobs come due by cluster time, and workers on any machine run them.

trimaran up --service job_scheduler:Scheduler --service-dir examples --port 9000   # in one terminal
python examples/job_scheduler.py   # in others: a worker
python -m examples.job_page   # in one more: a web page, http://127.0.0.1:8000
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace

from trimaran import Command, Context, Query, Reply, TimerMessage, TypedService, answers, handles, on_timer, state
from trimaran.client.typed import SyncTypedClient, asks, calls

TASK_NAMES = ("disk", "load")
LEASE_S = 30.0  # a worker that needs longer, or has died, loses its run to another one


class Job(Reply):
    name: str
    task: str
    every_s: float
    run_id: int = 0
    stage: str = "waits"  # waits, is due, runs
    run_count: int = 0
    result: str = ""


class AddJob(Command[bool]):  # False: there is a job of that name, or the rest cannot be
    name: str
    task: str
    every_s: float


class TakeRun(Command[Job | None]):
    """Give a worker what is due."""


class FinishRun(Command[bool]):  # False: another worker has done it
    name: str
    run_id: int
    result: str


class ListJobs(Query[list[Job]]):
    """All jobs by name."""


class Due(TimerMessage):
    name: str
    run_id: int


class Scheduler(TypedService):
    """Jobs, and which of them are due or with a worker."""

    jobs: dict[str, Job] = state()

    @handles(AddJob)
    def add(self, ctx: Context, message: AddJob) -> bool:
        is_good = message.name not in self.jobs and message.task in TASK_NAMES and message.every_s >= 1
        return is_good and self._plan(ctx, Job(message.name, message.task, message.every_s))

    @on_timer(Due)
    def on_due(self, ctx: Context, message: Due) -> None:  # the time has come, or its worker has had its time
        job = self.jobs.get(message.name)
        if job is not None and job.run_id == message.run_id:
            self.jobs[job.name] = replace(job, stage="is due")

    @handles(TakeRun)
    def take(self, ctx: Context, message: TakeRun) -> Job | None:
        job = next((job for job in self.jobs.values() if job.stage == "is due"), None)
        if job is not None:
            self.jobs[job.name] = replace(job, stage="runs")
            ctx.schedule(Due(job.name, job.run_id), after=LEASE_S)
        return job

    @handles(FinishRun)
    def finish(self, ctx: Context, message: FinishRun) -> bool:
        job = self.jobs.get(message.name)
        if job is None or job.run_id != message.run_id:
            return False
        return self._plan(ctx, replace(job, run_count=job.run_count + 1, result=message.result))

    @answers(ListJobs)
    def list_jobs(self, ctx: Context, message: ListJobs) -> list[Job]:
        return sorted(self.jobs.values(), key=lambda job: job.name)

    def _plan(self, ctx: Context, job: Job) -> bool:
        self.jobs[job.name] = replace(job, run_id=ctx.position, stage="waits")
        ctx.schedule(Due(job.name, ctx.position), after=job.every_s)
        return True


class SchedulerClient(SyncTypedClient):
    add, take, finish, list_jobs = calls(AddJob), calls(TakeRun), calls(FinishRun), asks(ListJobs)


TASKS = {"disk": lambda: f"{shutil.disk_usage('/').free >> 30} GiB free", "load": lambda: str(os.getloadavg())}


def work(client: SchedulerClient) -> None:
    """Run what is due, for ever."""
    while True:  # a run whose worker dies is run again: a task must bear that
        if (job := client.take()) is None:
            time.sleep(0.5)
        else:
            client.finish(job.name, job.run_id, TASKS[job.task]())


if __name__ == "__main__":
    with SchedulerClient.connect(["127.0.0.1:9000", "127.0.0.1:9010", "127.0.0.1:9020"]) as made:
        work(made)
