import time

from trimaran import ClusteredService


class Service(ClusteredService):
    def on_request(self, session, timestamp, payload):
        begun = time.time()  # trimaran: ignore[wall-clock] # expect: ignore-without-reason
        ended = time.time()  # trimaran: ignore[clock] only measured # expect: wall-clock, unknown-rule
        return str(ended - begun).encode()
