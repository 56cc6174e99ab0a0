from trimaran import ClusteredService


def shard_of(key):
    return hash(key) % 16  # expect: hash


def first_of(names):
    for name in names:  # expect: set-order
        return name


def made_of(names):
    return set(names)


class Members:
    def __init__(self):
        self._names = set()

    @property
    def names(self):
        return self._names

    def joined(self):
        return self.names

    def upper(self):
        return (name.upper() for name in self.names)


class Service(ClusteredService):
    def __init__(self):
        self.members = Members()

    def on_session_message(self, session, timestamp, payload):
        text = str(payload, "utf-8")
        session.offer(first_of(self.members.joined()).encode())
        session.offer(b"%d" % shard_of(text))
        session.offer(",".join(made_of([text])).encode())  # expect: set-order
        session.offer(",".join(self.members.upper()).encode())  # expect: set-order
        self.each(list, self.members)

    def each(self, make, members):
        return make(members.names), [*members.names]  # expect: set-order
