"""What ingress needs of the agent, without one: a real pen on a real window, and a list of what was posted."""

from __future__ import annotations

from trimaran.cluster.core.log.log_buffer import LogBuffer
from trimaran.cluster.core.log.log_publisher import LogPublisher
from trimaran.service_api.types import ClusterSessionId
from trimaran.service_api.wire.queries import AskedQuery


class FakeIngressOwner:
    """Implements `IngressOwner`. The window counts as full beyond `window_bytes` appended."""

    def __init__(
        self, *, window_bytes: int = 1 << 20, term_length_bytes: int = 64 << 10, mtu_length_bytes: int = 1408
    ) -> None:
        self.log_buffer = LogBuffer(position=0, retained_bytes=1 << 20)
        self.publisher: LogPublisher | None
        self.term_length_bytes, self.mtu_length_bytes = term_length_bytes, mtu_length_bytes
        self.make_publisher()
        self.window_bytes = window_bytes
        self.posted: list[object] = []
        self.queries: list[tuple[int, AskedQuery]] = []
        self.flush_count = 0
        self.now_ns = 1_000
        self.disconnected: list[ClusterSessionId] = []
        self.holders: set[int] = set()
        """Connections whose clients have shown that a session is theirs."""
        self.known_keep_alive: tuple[int, int, int] | None = None
        """Connection, term and session of keep-alives that tell nothing new."""

    def make_publisher(self, *, refused_ingress: int = 0) -> None:
        self.publisher = LogPublisher(
            self.log_buffer,
            log_session_id=7,
            initial_term_id=0,
            term_length_bytes=self.term_length_bytes,
            mtu_length_bytes=self.mtu_length_bytes,
            checksums=True,
            refused_ingress=refused_ingress,
        )

    def post(self, event: object) -> None:
        self.posted.append(event)

    def post_soon(self, event: object) -> None:
        self.post(event)

    def take_soon(self) -> None:
        pass

    def is_keep_alive_known(self, connection_id: int, leadership_term_id: int, session_id: ClusterSessionId) -> bool:
        return (connection_id, leadership_term_id, session_id) == self.known_keep_alive

    def holds_session(self, connection_id: int) -> bool:
        return connection_id in self.holders

    def disconnect_egress(self, session_id: ClusterSessionId) -> None:
        self.disconnected.append(session_id)

    def on_query(self, connection_id: int, question: AskedQuery) -> None:
        self.queries.append((connection_id, question))

    def schedule_flush(self) -> None:
        self.flush_count += 1

    def monotonic_ns(self) -> int:
        return self.now_ns

    def stamp(self) -> int:
        return 42

    def is_window_full(self) -> bool:
        return self.log_buffer.append_position > self.window_bytes
