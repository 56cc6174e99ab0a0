import time as clock

from trimaran import ClusteredService


class Service(ClusteredService):
    def __init__(self):
        self.opened = {}

    def on_session_open(self, session, timestamp):
        self.opened[session.id] = clock.time()  # expect: wall-clock
