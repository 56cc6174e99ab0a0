import os

from trimaran import ClusteredService

SALT = os.urandom(8)  # expect: random
UNUSED = os.urandom(8)


class Service(ClusteredService):
    def on_request(self, session, timestamp, payload):
        return SALT + bytes(payload)
