import random
import time

from trimaran import ClusteredService


class Shadow(ClusteredService):
    def on_request(self, session, time, payload):
        random = self.draw(time)
        return random.random() + str(time.time).encode()

    def draw(self, seed):
        return Seeded(seed)

    def open(self):
        return None

    def id(self):
        self.open()
        return 3


class Seeded:
    def __init__(self, seed):
        self.seed = seed

    def random(self):
        return b"%d" % self.seed
