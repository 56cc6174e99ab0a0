from trimaran import ClusteredService


class Service(ClusteredService):
    def __init__(self):
        self.names: set[str] = set()
        self.groups: dict[str, set[str]] = {}

    def on_session_message(self, session, timestamp, payload):
        self.names.add(bytes(payload).decode())
        for name in self.names:  # expect: set-order
            session.offer(name.encode())
        session.offer(",".join(self.names).encode())  # expect: set-order
        self.names.pop()  # expect: set-order

    def on_request(self, session, timestamp, payload):
        members = self.groups.setdefault("all", set())
        first = [*members]  # expect: set-order
        return list(members | {str(payload)})[0].encode() + str(first).encode()  # expect: set-order

    async def on_take_snapshot(self, snapshot):
        for name in self.names:  # expect: set-order
            await snapshot.offer(name.encode())
        await snapshot.offer(repr(sorted(self.groups)).encode())
