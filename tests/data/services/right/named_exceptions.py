from trimaran import ClusteredService


class Parser(ClusteredService):
    def on_request(self, session, timestamp, payload):
        try:
            return str(int(bytes(payload))).encode()
        except ValueError:
            return b"no number"

    def on_session_message(self, session, timestamp, payload):
        try:
            session.offer(bytes(payload))
        except (MemoryError, OSError):
            raise
        except Exception:
            session.close()
