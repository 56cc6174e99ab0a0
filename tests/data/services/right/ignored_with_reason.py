import time

from trimaran import ClusteredService


class Measured(ClusteredService):
    def on_request(self, session, timestamp, payload):
        begun = time.perf_counter()  # trimaran: ignore[wall-clock] only logged, never kept or answered
        answer = bytes(payload)
        # trimaran: ignore[wall-clock] only logged, never kept or answered
        print(time.perf_counter() - begun)
        return answer
