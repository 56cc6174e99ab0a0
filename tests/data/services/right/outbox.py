from trimaran import ClusteredService
from trimaran.service_api.outbox.outbox import Outbox


class Service(ClusteredService):
    """An outbox copies what is added to it, and no default of an argument is changed."""

    def __init__(self):
        self.outbox = Outbox()
        self.named: Outbox = Outbox(effect_limit=10)
        self.names = []

    async def on_start(self, cluster, snapshot):
        self.outbox.attach(cluster)
        self.named.attach(cluster)

    def on_request(self, session, timestamp, payload):
        self.outbox.add(payload)
        self.named.add(payload[4:])
        self.collect(bytes(payload), self.names)
        return str(self.count()).encode()

    def collect(self, name, into=[]):
        into.append(name)

    def count(self, among=[]):
        return len(among)
