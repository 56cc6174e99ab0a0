from random import choice
from uuid import uuid4

from trimaran import ClusteredService


class Lottery(ClusteredService):
    def __init__(self):
        self.tickets = []
        self.salt = uuid4().hex  # expect: random

    def on_request(self, session, timestamp, payload):
        self.tickets.append(bytes(payload))
        return choice(self.tickets)  # expect: random
