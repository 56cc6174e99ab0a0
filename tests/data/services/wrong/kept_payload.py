from trimaran import ClusteredService


class Service(ClusteredService):
    def __init__(self):
        self.last = b""
        self.queue = []
        self.seen = {}

    def on_session_message(self, session, timestamp, payload):
        self.last = payload  # expect: kept-payload
        body = payload[4:]
        self.queue.append(body)  # expect: kept-payload
        self.keep(payload[:4])

    def keep(self, key):
        self.seen[key] = 1  # expect: kept-payload
