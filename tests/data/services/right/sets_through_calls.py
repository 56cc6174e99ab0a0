from trimaran import ClusteredService


def shard_of(number):
    return hash(number) % 16


def first_of(names):
    return min(names)


def ordered(names):
    return sorted(names)


class Members:
    def __init__(self):
        self._names = set()

    @property
    def names(self):
        return self._names

    def add(self, name):
        self._names.add(name)
        return self.names

    def upper(self):
        return (name.upper() for name in self.names)


class Groups(ClusteredService):
    def __init__(self):
        self.members = Members()

    def on_session_message(self, session, timestamp, payload):
        names = self.members.add(str(payload, "utf-8"))
        session.offer(first_of(names).encode())
        session.offer(b"%d" % shard_of(len(names)))
        session.offer(",".join(ordered(self.members.upper())).encode())
        for name in ordered(names):
            session.offer(name.encode())
