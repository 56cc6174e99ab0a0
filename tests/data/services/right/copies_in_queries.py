from trimaran import ClusteredService


class Book(ClusteredService):
    def __init__(self):
        self.prices: list[int] = []
        self.names: dict[str, list[int]] = {}

    def on_request(self, session, timestamp, payload):
        self.prices.append(timestamp)
        return b""

    def on_query(self, payload):
        newest = self.prices[-10:]
        newest.append(0)
        names = dict(self.names)
        names["all"] = newest
        ordered = sorted(self.prices)
        ordered += newest
        count = len(self.prices)
        count += 1
        for price in self.prices:
            price += 1
        return repr((ordered, count, names.copy().popitem())).encode()
