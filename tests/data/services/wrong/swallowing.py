from trimaran import ClusteredService


class Service(ClusteredService):
    def __init__(self):
        self.bad = 0

    def on_request(self, session, timestamp, payload):
        try:
            return bytes(payload).decode().upper().encode()
        except Exception:  # expect: broad-except
            self.bad += 1
            return b"bad"

    def on_session_message(self, session, timestamp, payload):
        try:
            self.bad += len(bytes(payload) * 1_000_000)
        except MemoryError:  # expect: broad-except
            pass
