import itertools

from trimaran import ClusteredService

CACHE = {}
NUMBERS = itertools.count()
total = 0


class Service(ClusteredService):
    def on_request(self, session, timestamp, payload):
        global total
        total += 1  # expect: module-state
        CACHE[bytes(payload)] = timestamp  # expect: module-state
        CACHE.clear()  # expect: module-state
        return str(next(NUMBERS)).encode()  # expect: module-state
