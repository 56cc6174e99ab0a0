"""The connections that the protocol keeps to members: one link for each endpoint, dialled again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from ...service_api.types import MemberId
from ..config import ClientConfig, back_off_s
from ..connection_events import Connected, ConnectionEventLog, Disconnected
from .effects import Dial, Disconnect, Effect
from .egress_adapter import EgressAdapter
from .ingress_publisher import IngressPublisher
from .keep_alives import KeepAliveWatch
from .neighbours import Neighbours

_FOLLOWER_KEEP_ALIVES: Final = 4
"""While the session has a leader, one in so many goes to members that do not lead."""

_MANY_FAILURES: Final = 32
"""So many that the next dial backs off as long as any does."""

_SPARED_S: Final = 0.5
"""How long a member that is gone is not dialled, less a random half, while another one is connected."""


@dataclass(slots=True, eq=False)
class MemberLink:
    """One endpoint and the connection to it: wanted always, up most of the time."""

    endpoint: str
    dial_at_ns: int
    """When to dial next, while there is no connection."""

    member_id: MemberId | None = None
    """None until the cluster told whose endpoint it is."""

    connection_id: int | None = None
    """The connection being dialled or up; a new number for each dial, so that late news is known as such."""

    publisher: IngressPublisher | None = None
    adapter: EgressAdapter | None = None
    """Both are set exactly while the connection is up."""

    is_spared: bool = False
    """Whether it is left for later: the session is expected to need its leader alone until then."""

    is_proven: bool = False
    """Whether the session's secret was sent on this connection."""

    closing_reason: str = ""
    """Why the member is about to close the connection, where it has said so."""

    wrong_port: str = ""
    """The reason why clients have no sessions at this port, once it has said so; empty for an ingress."""

    watch: KeepAliveWatch = field(default_factory=KeepAliveWatch)
    """Of the connection that is up."""

    failure_count: int = 0
    """Dials and connections lost since the last connection that carried something."""

    outcome: str = "not dialled"
    """The last thing that happened here, for the error that a failed connect raises."""

    def __repr__(self) -> str:
        state = "up" if self.is_up else "down" if self.connection_id is None else "dialling"
        return f"<MemberLink {self.endpoint} member={self.member_id} {state}>"

    @property
    def is_up(self) -> bool:
        """Whether bytes can be sent."""
        return self.publisher is not None

    def on_up(self, publisher: IngressPublisher, adapter: EgressAdapter) -> None:
        """Take the connection into use."""
        self.publisher = publisher
        self.adapter = adapter
        self.is_proven = False
        self.watch = KeepAliveWatch()
        self.closing_reason = ""
        before = f"; before that {self.outcome}" if self.failure_count else ""
        self.outcome = f"connected, no answer{before}"

    def on_wrong_port(self, reason: str) -> None:
        """Note that this is no ingress: it is dialled as seldom as a member that does not answer for long."""
        self.wrong_port = reason
        self.failure_count = _MANY_FAILURES

    def ask(self, keep_alive: bytes, now_ns: int) -> None:
        """Send a keep-alive, and expect an answer where one came before."""
        publisher = self.publisher
        if publisher is not None:
            self.watch.on_asked(now_ns, sent_bytes=publisher.taken_bytes, is_backed_up=bool(publisher.outgoing))
            publisher.publish(keep_alive)

    def on_down(self, reason: str, *, dial_at_ns: int) -> None:
        """Forget the connection and what was not sent on it; plan the next dial."""
        self.connection_id = None
        self.publisher = None
        self.adapter = None
        self.outcome = reason
        self.failure_count += 1
        self.dial_at_ns = dial_at_ns


class ClientLinks:
    """The links of one client. Bounded by the number of members that a cluster may list."""

    def __init__(
        self, config: ClientConfig, *, random: Callable[[], float], neighbours: Neighbours | None = None
    ) -> None:
        """Without `neighbours` the dials wait for nobody."""
        self._neighbours = neighbours
        self.on_hurry: Callable[[], None] = lambda: None
        """Called when a dial is due earlier than was known."""
        self._config = config
        self._random = random
        self._links: list[MemberLink] = []
        self._by_connection: dict[int, MemberLink] = {}
        self._next_connection_id = 0
        self._keep_alive_count = 0
        self.events = ConnectionEventLog(config.connection_event_limit)
        self.effects: list[Effect] = []
        """What the shell is to do next, in order; shared with the protocol."""

    def __iter__(self) -> Iterator[MemberLink]:
        return iter(self._links)

    def of_connection(self, connection_id: int) -> MemberLink | None:
        """Find the link that a connection belongs to, unless it was given up."""
        return self._by_connection.get(connection_id)

    def of_member(self, member_id: int) -> MemberLink | None:
        """Find the link of a member."""
        for link in self._links:
            if link.member_id == member_id:
                return link
        return None

    def add(self, endpoint: str, now_ns: int, member_id: MemberId | None = None) -> MemberLink:
        """Want a connection to one more endpoint, and dial it."""
        link = MemberLink(endpoint, dial_at_ns=now_ns, member_id=member_id)
        self._links.append(link)
        self._dial(link)
        return link

    def begin(self, now_ns: int, *, leader_endpoint: str | None) -> MemberLink | None:
        """Want a connection to each endpoint of the configuration; returns the leader's, if a neighbour knows it.

        Then the others are spared: dialled a little later, or as soon as somebody else than that leader is wanted.
        """
        neighbours, endpoints = self._neighbours, dict.fromkeys(self._config.endpoints)
        if neighbours is None or leader_endpoint not in endpoints:
            links = [self.add(endpoint, now_ns) for endpoint in endpoints]
            return next((link for link in links if link.endpoint == leader_endpoint), None)
        dial_at_ns = neighbours.spare(self._config.endpoints, self, now_ns)
        for endpoint in endpoints:
            if endpoint == leader_endpoint:
                leader = self.add(endpoint, now_ns)
            else:
                self._links.append(MemberLink(endpoint, dial_at_ns=dial_at_ns, is_spared=True))
        return leader

    def dial_spared(self, dial_at_ns: int) -> None:
        """Dial what was left for later: at this time, in the next `poll`."""
        spared = [link for link in self._links if link.is_spared]
        if spared:
            for link in spared:
                link.is_spared = False
                link.dial_at_ns = min(link.dial_at_ns, dial_at_ns)
            if self._neighbours is not None:
                self._neighbours.spare_no_longer(self)
            self.on_hurry()

    def adopt(self, endpoints: Mapping[MemberId, str], now_ns: int) -> None:
        """Learn which member listens where, and dial those that are new.

        A link that is known by its member keeps its connection when the cluster writes the endpoint in
        another way.
        """
        for member_id, endpoint in endpoints.items():
            link = self.of_member(member_id) or self._unclaimed(endpoint)
            if link is None:
                self.add(endpoint, now_ns, member_id)
            else:
                link.member_id = member_id
                link.endpoint = endpoint

    def drop_others(self, endpoints: Mapping[MemberId, str]) -> None:
        """Close the links that belong to none of these members."""
        for link in [link for link in self._links if link.member_id not in endpoints]:
            self._links.remove(link)
            self.disconnect(link, "not a member of the cluster")

    def disconnect(self, link: MemberLink, reason: str) -> None:
        """Close the connection of a link, if there is one."""
        if link.connection_id is not None:
            del self._by_connection[link.connection_id]
            self.effects.append(Disconnect(link.connection_id, reason))
            self._note_down(link, reason)
            link.on_down(reason, dial_at_ns=link.dial_at_ns)

    def on_down(self, connection_id: int, now_ns: int, reason: str) -> MemberLink | None:
        """Note that a dial failed or a connection was lost; the next dial backs off."""
        link = self._by_connection.pop(connection_id, None)
        if link is not None:
            if self._neighbours is not None:
                self._neighbours.note_lost(link.endpoint, now_ns)
            self._note_down(link, reason)
            link.on_down(reason, dial_at_ns=now_ns + self._back_off_ns(link.failure_count))
        return link

    def on_up(self, link: MemberLink, publisher: IngressPublisher, adapter: EgressAdapter, now_ns: int) -> None:
        """Take a connection into use."""
        if self._neighbours is not None:
            self._neighbours.note_reached(link.endpoint, now_ns)
        link.on_up(publisher, adapter)
        self.events.append(Connected(link.endpoint, link.member_id))

    def poll(self, now_ns: int) -> None:
        """Dial what is due; where neighbours cannot reach a member either, in turn with them."""
        for link in self._links:
            if link.connection_id is None and now_ns >= link.dial_at_ns:
                if self._neighbours is not None:
                    link.dial_at_ns = self._neighbours.turn_ns(link.endpoint, self, now_ns)
                if now_ns >= link.dial_at_ns:
                    self.dial_spared(now_ns)
                    self._dial(link)

    def hurry(self, endpoint: str, dial_at_ns: int) -> None:
        """Dial a member that can be reached again."""
        for link in self._links:
            if link.endpoint == endpoint and link.connection_id is None:
                link.dial_at_ns = min(link.dial_at_ns, dial_at_ns)
                self.on_hurry()
                return

    def end(self) -> None:
        """Dial no more."""
        if self._neighbours is not None:
            self._neighbours.forget(self)

    def keep_alive(self, message: bytes, leading: IngressPublisher | None, now_ns: int) -> None:
        """Send a keep-alive to the leader, whose connection is given; without one to every member.

        Members that do not lead have been told whose the connection is, and forget nobody: they hear it again once in
        a while, to have it where it was lost, and to say so if they know a newer term. That is most of what sessions at
        rest cost: 1,000 of them took 0.72 s of processor time in 4 s, of all processes together, and take 0.44 s.
        """
        self._keep_alive_count += 1
        is_for_all = leading is None or not self._keep_alive_count % _FOLLOWER_KEEP_ALIVES
        for link in self._links:
            if is_for_all or link.publisher is leading:
                link.ask(message, now_ns)

    def outgoing(self) -> list[tuple[int, IngressPublisher]]:
        """Return the connections for which bytes wait, each with the publisher to take them from."""
        return [
            (link.connection_id, link.publisher)
            for link in self._links
            if link.publisher is not None and link.publisher.outgoing and link.connection_id is not None
        ]

    def next_deadline_ns(self) -> int | None:
        """When the next dial is due."""
        deadline_ns: int | None = None
        for link in self._links:
            if link.connection_id is None and (deadline_ns is None or link.dial_at_ns < deadline_ns):
                deadline_ns = link.dial_at_ns
        return deadline_ns

    def _unclaimed(self, endpoint: str) -> MemberLink | None:
        return next((link for link in self._links if link.member_id is None and link.endpoint == endpoint), None)

    def _note_down(self, link: MemberLink, reason: str) -> None:
        if link.is_up:
            self.events.append(Disconnected(link.endpoint, link.member_id, reason))

    def _dial(self, link: MemberLink) -> None:
        connection_id = self._next_connection_id
        self._next_connection_id += 1
        link.connection_id = connection_id
        link.outcome = "no connection yet" if link.outcome == "not dialled" else link.outcome
        self._by_connection[connection_id] = link
        self.effects.append(Dial(connection_id, link.endpoint))

    def _back_off_ns(self, failure_count: int) -> int:
        """Return how long not to dial after a failure.

        A lost connection is dialled again soon, for it may have been the network. Once that has failed too, its member
        is gone, and the news come from others while one of them is connected: then there is time. When a leader dies,
        each of a thousand sessions of a process would dial it four times before it heard of the next one.
        """
        config = self._config
        is_spared = failure_count and any(link.is_up for link in self._links)
        wait_s = back_off_s(
            failure_count,
            first_s=config.reconnect_min_s,
            limit_s=config.reconnect_max_s,
            random=self._random,
            least_s=min(_SPARED_S, config.reconnect_max_s) if is_spared else 0.0,
        )
        return int(wait_s * 1e9)
