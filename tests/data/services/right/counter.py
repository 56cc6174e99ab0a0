from trimaran import ClusteredService


class Counter(ClusteredService):
    def __init__(self):
        self.count = 0

    async def on_start(self, cluster, snapshot):
        if snapshot is not None:
            async for message in snapshot:
                self.count = int(message)

    def on_request(self, session, timestamp, payload):
        self.count += 1
        return str(self.count).encode()

    async def on_take_snapshot(self, snapshot):
        await snapshot.offer(str(self.count).encode())
