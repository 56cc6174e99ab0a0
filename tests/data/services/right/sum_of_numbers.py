import math

from trimaran import ClusteredService


class Sums(ClusteredService):
    def __init__(self):
        self.rates: set[float] = set()
        self.counts: dict[str, float] = {}

    def on_request(self, session, timestamp, payload):
        lengths = sum(len(str(rate)) for rate in self.rates)
        total = math.fsum(self.rates) + sum(sorted(self.rates)) + sum(self.counts.values())
        return f"{lengths} {total}".encode()
