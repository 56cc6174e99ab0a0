from trimaran import ClusteredService


class Queue(ClusteredService):
    def __init__(self):
        self.jobs: dict[bytes, int] = {}

    def on_request(self, session, timestamp, payload):
        self.jobs[bytes(payload)] = timestamp
        for job in self.jobs:
            return job
        return b",".join(self.jobs)

    def on_timer_event(self, correlation_id, timestamp):
        self.jobs.popitem()

    async def on_take_snapshot(self, snapshot):
        for job, time in self.jobs.items():
            await snapshot.offer(b"%d %b" % (time, job))
