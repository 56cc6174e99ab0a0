from trimaran import ClusteredService


class Service(ClusteredService):
    items = []  # expect: class-state
    count = 0

    def on_session_message(self, session, timestamp, payload):
        self.items.append(bytes(payload))
        Service.count += 1  # expect: class-state
