import random
import uuid

from trimaran import ClusteredService


class Lottery(ClusteredService):
    def __init__(self):
        self.tickets: set[str] = set()

    def on_start(self, cluster, snapshot):
        self.cluster = cluster

    def on_request(self, session, timestamp, payload):
        self.tickets.add(str(payload, "utf-8"))
        seeded = random.Random(timestamp)
        winner = self.cluster.random.choice(sorted(self.tickets))
        return f"{winner} {self.cluster.uuid()} {seeded.random()} {uuid.uuid5(uuid.NAMESPACE_DNS, winner)}".encode()
