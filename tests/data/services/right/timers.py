from trimaran import ClusteredService


class Leases(ClusteredService):
    def __init__(self):
        self.holders: dict[int, int] = {}

    def on_start(self, cluster, snapshot):
        self.cluster = cluster

    def on_request(self, session, timestamp, payload):
        lease = len(self.holders)
        self.holders[lease] = session.id
        self.cluster.schedule_timer(lease, timestamp + 1_000)
        if self.cluster.time > timestamp:
            self.cluster.logger.info("lease.late", lease=lease)
        return b"%d" % lease

    def on_timer_event(self, correlation_id, timestamp):
        del self.holders[correlation_id]

    def state_hash(self):
        return self.holders

    def on_take_snapshot(self, snapshot):
        return self._write(snapshot)

    async def _write(self, snapshot):
        for lease, holder in self.holders.items():
            await snapshot.offer(b"%d %d" % (lease, holder))
