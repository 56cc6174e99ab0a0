from trimaran import ClusteredService


class Groups(ClusteredService):
    def __init__(self):
        self.members: dict[str, set[str]] = {}

    def on_session_message(self, session, timestamp, payload):
        group, name = str(payload, "utf-8").split(" ")
        names = self.members.setdefault(group, set())
        names.add(name)
        names = sorted(names)
        for each in names:
            session.offer(each.encode())
        if any(each.startswith("x") for each in self.members[group]):
            session.offer(max(self.members[group]).encode())
        upper = {each.upper() for each in self.members[group]}
        session.offer(b"%d" % len(upper))

    async def on_take_snapshot(self, snapshot):
        for group, names in sorted(self.members.items()):
            await snapshot.offer(f"{group} {sorted(names)}".encode())
