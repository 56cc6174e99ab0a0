from trimaran import ClusteredService, Role


class Service(ClusteredService):
    def __init__(self):
        self.sent = 0
        self.leader = False
        self.pending = iter(())  # expect: kept-iterator

    def on_start(self, cluster, snapshot):
        self.cluster = cluster

    def on_session_message(self, session, timestamp, payload):
        self.pending = (part for part in bytes(payload).split())  # expect: kept-iterator
        if self.cluster.role is Role.LEADER:
            self.sent += 1  # expect: role-state

    def on_role_change(self, role):
        self.leader = role is Role.LEADER  # expect: role-state

    async def on_take_snapshot(self, snapshot):
        await snapshot.offer(b"%d %d" % (self.sent, self.leader))
