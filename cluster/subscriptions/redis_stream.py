"""A sink that adds entries to a stream of a Redis server (5 or newer), each exactly once.

The problem: a sink and a file of the position beside it change one after the other, and a kill in between has a batch
delivered twice. The idea: the position is in the stream. An entry of the log has the id `END_POSITION-0` there, so
the stream's last id says where to go on, and the server refuses an id that it has had, also one that was trimmed.

A batch is one script on the server. It passes over what the stream has, and ends at the first entry that cannot be
added: what is in the stream is always a beginning of what there is to deliver. A batch whose reply is lost is sent
again. So it does not matter at which step this process, the connection or the server dies.

If the server comes back without its newest entries, because it does not sync each one or another replica took over,
the script sees that the stream ends before what was delivered, and `RedisStreamBehindError` is raised; the next start
goes on where the stream ends.

Two processes on one stream do no harm if they deliver the same entries: the second one finds them there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

import structlog

from ...service_api.errors import ClusterError
from ...service_api.net.transport import PeerRefusedError
from .entries import LogEntry
from .resp import RedisAddress, RedisConnection, RedisError, Reply, RespError

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 10.0
_TEMPORARY: Final = frozenset(
    ("LOADING", "BUSY", "OOM", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "MISCONF")
)
"""What a server answers while it starts, is full, or is no leader just now."""
_BEHIND: Final = "TRIMARANBEHIND"

_SCRIPT: Final = b"""
local last = 0
if redis.call('EXISTS', KEYS[1]) == 1 then
  local info = redis.call('XINFO', 'STREAM', KEYS[1])
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then last = tonumber(string.match(info[i + 1], '^%d+')) end
  end
end
if last < tonumber(ARGV[1]) then return redis.error_reply('TRIMARANBEHIND ' .. string.format('%.0f', last)) end
local at = 3
while at <= #ARGV do
  local count = tonumber(ARGV[at + 1])
  if tonumber(ARGV[at]) > last then
    local fields = {}
    for i = 1, count do fields[i] = ARGV[at + 1 + i] end
    local added
    if ARGV[2] == '' then
      added = redis.pcall('XADD', KEYS[1], ARGV[at] .. '-0', unpack(fields))
    else
      added = redis.pcall('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], ARGV[at] .. '-0', unpack(fields))
    end
    if type(added) == 'table' and added.err then return added end
  end
  at = at + 2 + count
end
return redis.status_reply('OK')
"""
"""KEYS: the stream. ARGV: up to where it must reach, its limit or nothing, then of each entry: id, count, fields."""

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class RedisRefusedError(ClusterError):
    """The server refuses for good: it does not let us in, or the stream is none of ours."""


class RedisStreamBehindError(ClusterError):
    """The stream has lost entries that had been delivered; a new start delivers them again."""


class RedisStreamSink:
    """Adds entries to the stream that a URL names; use it in `async with`. `timeout_s` bounds each command.

    `redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]?stream=NAME`; see `RedisAddress.parse`. Fields of an entry in the
    stream are those of `LogEntry` that are not None, the payload as it is.
    """

    def __init__(self, url: str, *, timeout_s: float = 10.0) -> None:
        """Take the URL of the stream.

        Raises:
            ConfigurationError: it is none.
            OSError: the file of the password cannot be read.
        """
        self._address: Final = RedisAddress.parse(url)
        self._timeout_s = timeout_s
        self._connection: RedisConnection | None = None
        self._delivered = 0
        """Where the stream ends at least; the server may only be further."""

    def __repr__(self) -> str:
        return f"<RedisStreamSink {self._address!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._disconnect()

    async def load_position(self) -> int | None:
        """Return the position after the last entry that was added to the stream; None for a new stream.

        Asks until the server answers.

        Raises:
            RedisRefusedError: it refuses, or the stream's last entry is none of a log.
        """
        position = await self._until_done(self._find_position)
        self._delivered = position or 0
        return position

    async def deliver(self, entries: Sequence[LogEntry]) -> None:
        """Add entries that the stream does not have; again and again until the server has taken them.

        Raises:
            RedisRefusedError: the server answered with an error that trying again does not change.
            RedisStreamBehindError: the stream ends before what was delivered.
        """
        limit = b"" if self._address.stream_limit is None else b"%d" % self._address.stream_limit
        arguments = [b"%d" % self._delivered, limit]
        for entry in entries:
            fields = _fields_of(entry)
            arguments += [b"%d" % entry.end_position, b"%d" % len(fields), *fields]
        await self._until_done(lambda: self._call(b"EVAL", _SCRIPT, b"1", self._address.stream, *arguments))
        self._delivered = max(self._delivered, entries[-1].end_position)

    async def _find_position(self) -> int | None:
        stream = self._address.stream
        if not await self._call(b"EXISTS", stream):
            return None
        newest = await self._call(b"XREVRANGE", stream, b"+", b"-", b"COUNT", b"1")
        if isinstance(newest, list) and newest and not _is_ours(newest[0]):
            raise RedisRefusedError(
                f"stream={stream!r} has entries that are not of a log; choose another stream, or delete this one"
            )
        info = await self._call(b"XINFO", b"STREAM", stream)
        assert isinstance(info, list)
        last = info[info.index(b"last-generated-id") + 1]
        assert isinstance(last, bytes)
        return int(last.partition(b"-")[0]) or None

    async def _call(self, *words: bytes) -> Reply:
        if self._connection is None:
            self._connection = await RedisConnection.open(self._address)
        return await self._connection.call(*words)

    async def _until_done(self, step: Callable[[], Awaitable[T]]) -> T:
        """Do a step until the server has done it."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                async with asyncio.timeout(self._timeout_s):
                    return await step()
            except RedisError as error:
                self._disconnect()
                if error.code not in _TEMPORARY:
                    raise self._refusal(error) from error
                reason = str(error)
            except PeerRefusedError as error:
                raise RedisRefusedError(f"{self._address!r}: {error}") from error
            except (OSError, TimeoutError) as error:
                self._disconnect()
                reason = repr(error)
            except asyncio.CancelledError:
                self._disconnect()  # a reply may be under way
                raise
            _log.warning("redis.command_failed", stream=repr(self._address), reason=reason)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _refusal(self, error: RedisError) -> ClusterError:
        if error.code == _BEHIND:
            return RedisStreamBehindError(
                f"the stream has lost entries: delivered up to position={self._delivered}, it ends at "
                f"{str(error).rpartition(' ')[2]}; start again to deliver what is missing. See that the server syncs "
                "each entry: appendonly yes, appendfsync always"
            )
        return RedisRefusedError(f"{error}; server and stream: {self._address!r}")

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.abort()
            self._connection = None


def _fields_of(entry: LogEntry) -> list[bytes]:
    """Return the names and values of an entry that is not None; a typed message is JSON."""
    fields = []
    for name, value in entry._asdict().items():
        if isinstance(value, Mapping):
            fields += [name.encode(), json.dumps(value, ensure_ascii=False).encode()]
        elif value is not None:
            fields += [name.encode(), value if isinstance(value, bytes) else str(value).encode()]
    return fields


def _is_ours(found: Reply) -> bool:
    """Whether an entry of a stream has the id that this sink gives it."""
    if not isinstance(found, list) or len(found) != 2 or not isinstance(found[1], list):
        raise RespError(f"not an entry of a stream: {found!r}")
    names, values = found[1][::2], found[1][1::2]
    position = dict(zip(map(str, names), values, strict=True)).get(str(b"end_position"))
    return isinstance(position, bytes) and found[0] == position + b"-0"
