import struct

from trimaran import ClusteredService


class Store(ClusteredService):
    def __init__(self):
        self.values = {}

    def on_session_message(self, session, timestamp, payload):
        key, length = struct.unpack_from("<QI", payload)
        value = payload[12 : 12 + length]
        self.values[key] = bytes(value), payload[0], payload.tobytes()
        session.offer(payload)
