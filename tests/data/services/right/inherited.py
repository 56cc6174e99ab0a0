from trimaran import ClusteredService


class Base(ClusteredService):
    def __init__(self):
        self.total = 0

    def on_request(self, session, timestamp, payload):
        self.total = self.add(len(payload))
        return str(self.total).encode()

    def add(self, count):
        return self.total + count

    async def on_take_snapshot(self, snapshot):
        await snapshot.offer(self.encoded())

    def encoded(self):
        return str(self.total).encode()


class Doubled(Base):
    def add(self, count):
        return super().add(2 * count)
