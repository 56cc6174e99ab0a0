"""A member for the tests of commands: a thread with a socket, which answers each stream with a document of its own."""

from __future__ import annotations

import json
import socket
import threading
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel

from trimaran.service_api.types import STATUS_STREAM_ID
from trimaran.service_api.wire.frame import HEADER_LENGTH, encode_frame, unpack_header

SETUP_LENGTH = 64


class FakeMember:
    """Answers with the document of the stream that it is asked on, until it is closed; on any port, or on `port`."""

    def __init__(self, member_id: int, answers: Mapping[int, BaseModel], port: int = 0) -> None:
        self.answers = answers
        self.requests: dict[int, list[dict[str, Any]]] = defaultdict(list)
        """What it was asked, by stream."""
        self._socket = socket.create_server(("127.0.0.1", port))
        port = self._socket.getsockname()[1]
        self.members = f"{member_id},127.0.0.1:1,127.0.0.1:{port},127.0.0.1:2,127.0.0.1:3,127.0.0.1:4"
        """As in --members."""
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def document(self, stream_id: int) -> dict[str, Any]:
        """The document that is sent on a stream."""
        document: dict[str, Any] = json.loads(self.answers[stream_id].model_dump_json())
        return document

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as stream, suppress(OSError):
                setup = stream.read(SETUP_LENGTH)
                stream_id = int.from_bytes(setup[16:20], "little")
                if stream_id != STATUS_STREAM_ID:  # the others come with a request, which is read before the answer
                    header = stream.read(HEADER_LENGTH)
                    if len(header) < HEADER_LENGTH:  # the command has given up, on a slow machine
                        continue
                    length = unpack_header(header).frame_length
                    body = stream.read((length + 31 & -32) - HEADER_LENGTH)
                    self.requests[stream_id].append(json.loads(body[: length - HEADER_LENGTH]))
                connection.sendall(encode_frame(json.dumps(self.document(stream_id)).encode(), stream_id=stream_id))
