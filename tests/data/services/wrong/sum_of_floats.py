from trimaran import ClusteredService


class Rate:
    def __init__(self, value):
        self.value: float = value


class Service(ClusteredService):
    def __init__(self):
        self.rates: set[Rate] = set()

    def on_request(self, session, timestamp, payload):
        total = sum(rate.value for rate in self.rates)  # expect: sum-order
        return str(total).encode()
