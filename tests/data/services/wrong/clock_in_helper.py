from datetime import datetime

from trimaran import ClusteredService

now = datetime.now


def stamp():
    return now().isoformat()  # expect: wall-clock


class Service(ClusteredService):
    def on_request(self, session, timestamp, payload):
        return self._answer()

    def _answer(self):
        return stamp().encode()
