from trimaran import ClusteredService


def collect(name, *, into={}):
    into[name] = len(into)  # expect: mutable-default
    return into[name]


class Service(ClusteredService):
    def __init__(self):
        self.count = 0

    def on_request(self, session, timestamp, payload):
        self.count = self.remember(bytes(payload)) + collect(bytes(payload))
        return str(self.count).encode()

    def remember(self, name: bytes, seen: list[bytes] = []) -> int:
        seen.append(name)  # expect: mutable-default
        return len(seen)
