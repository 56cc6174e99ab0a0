from collections import defaultdict
from typing import Final, Optional

from trimaran import ClusteredService


class Group:
    def __init__(self, names: "set[str]", parent: "Group | None" = None) -> None:
        self.names: Final[set[str]] = names
        self.parent = parent


class Service(ClusteredService):
    def __init__(self):
        self.groups: dict[str, Group] = {}
        self.tags = defaultdict(set)
        self.newest: Optional[Group] = None
        self.pairs: list[tuple[int, set[str]]] = []

    def on_session_message(self, session, timestamp, payload):
        for name, group in self.groups.items():
            session.offer(f"{name} {[*group.names]}".encode())  # expect: set-order
        session.offer(",".join(self.tags["all"]).encode())  # expect: set-order
        session.offer(",".join(self.newest.parent.names).encode())  # expect: set-order
        for number, names in self.pairs:
            session.offer(b"%d %d" % (number, len(list(names))))  # expect: set-order
        both = self.groups.keys() & self.tags.keys()
        session.offer(list(both)[0].encode())  # expect: set-order
        some = self.newest.names.union(both) if both else set()
        first, *_ = some  # expect: set-order
        session.offer(first.encode())
