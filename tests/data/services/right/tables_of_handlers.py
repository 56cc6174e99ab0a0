from trimaran import ClusteredService

PRICES = {"a": 3}
LIMIT = 10


class Dispatcher(ClusteredService):
    handlers = {}
    names = ("a", "b")

    def __init__(self):
        self.handlers = {b"a": self.on_a}
        self.calls = []

    def on_request(self, session, timestamp, payload):
        local = dict(PRICES)
        local["b"] = LIMIT
        self.handlers[bytes(payload[:1])](payload)
        return repr(local).encode()

    def on_a(self, payload):
        self.calls.append(bytes(payload))
        self.handlers.update()
