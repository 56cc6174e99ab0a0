import os
import threading
import time

from trimaran import ClusteredService, Role


def unreached():
    return time.time(), os.urandom(8)


class Exporter(ClusteredService):
    def __init__(self):
        self.total = 0

    def on_session_message(self, session, timestamp, payload):
        self.total += 1

    def on_role_change(self, role):
        if role is Role.LEADER:
            threading.Thread(target=self.export).start()

    def export(self):
        print(time.time(), os.getpid())

    def on_terminate(self, cluster):
        with open("/tmp/ended", "w") as file:
            file.write(str(time.time()))
