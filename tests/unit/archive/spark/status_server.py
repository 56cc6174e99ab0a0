"""A member that answers one question: how far the log is committed."""

from __future__ import annotations

import json
import socket
import threading
from typing import Self

from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.types import STATUS_STREAM_ID
from trimaran.service_api.wire.frame import encode_frame


class StatusServer:
    """Answers on an ephemeral loopback port with the fields below, or with `answer` as it is."""

    def __init__(
        self,
        *,
        leadership_term_id: int | None = 0,
        commit_position: int = 0,
        role: str = "LEADER",
        answer: bytes | None = None,
    ) -> None:
        self.leadership_term_id = leadership_term_id
        self.commit_position = commit_position
        self.role = role
        self.answer = answer
        self.more: dict[str, object] = {}
        """Fields beside those, or in their place."""
        self.asked_count = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.endpoint = Endpoint(*self._socket.getsockname())
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                connection.recv(4096)
                self.asked_count += 1
                connection.sendall(self._make_answer() if self.answer is None else self.answer)

    def _make_answer(self) -> bytes:
        document = {
            "member_id": 0,
            "version": "0.1.0",
            "pid": 1,
            "uptime_s": 1.0,
            "role": self.role,
            "state": self.role,
            "leader_member_id": 0,
            "leadership_term_id": self.leadership_term_id,
            "append_position": self.commit_position,
            "commit_position": self.commit_position,
            "delivered_position": self.commit_position,
            "session_count": 0,
            "connection_count": 0,
            "last_election": None,
        }
        return encode_frame(json.dumps(document | self.more).encode(), stream_id=STATUS_STREAM_ID)
