"""The declared state in a snapshot: a header, then each field in pieces, then an end that counts them.

    message 0      JSON: {"format", "version", "service", "fields": [[name, schema], ...]}
    then           2 bytes: which field; then MessagePack: of a dict an array of [key, value] pairs, of any other
                   field the value. A value longer than a piece goes on in the next ones: byte 2 says whether it does.
    last           JSON: {"pieces": n}

A field that a snapshot does not have begins as declared. One that it has and the service has not must be named in
`removed`. One whose type has changed is read by names, if its values can be, or by a method `migrate_NAME`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from ..cluster import SnapshotImage
from ..errors import ConfigurationError, RemoteProtocolError
from .codec import READ_ANY
from .declared_state import DeclaredField, StatePlan, journal_of
from .schema import find_change, show_type
from .state_dicts import plain_items

FORMAT: Final = "trimaran-declared-state"
VERSION: Final = 1
PIECE_BYTES: Final = 32_768
_PAIRS: Final = 256
"""Pairs of a dict that are written at once."""
_GOES_ON, _ENDS = 1, 0
END_BEGIN: Final = b'{"pieces": '
"""The begin of the end: no piece begins so, since it would be of field 8,827."""


def declared_messages(plan: StatePlan, service: Any) -> Iterator[bytes]:
    """Yield the declared fields of a service.

    Raises:
        LocalProtocolError: a value could not be read again; says of which field.
    """
    header = {
        "format": FORMAT,
        "version": VERSION,
        "service": plan.owner.__name__,
        "fields": [[name, field.codec.schema] for name, field in plan.fields.items()],
    }
    yield json.dumps(header).encode()
    piece_count = 0
    for index, (name, field) in enumerate(plan.fields.items()):
        for piece in _pieces(index, field, service.__dict__[name]):
            yield piece
            piece_count += 1
    yield json.dumps({"pieces": piece_count}).encode()


def _pieces(index: int, field: DeclaredField, value: Any) -> Iterator[bytes]:
    prefix = index.to_bytes(2, "little")
    for body in _bodies(field, value):
        field.check_bytes(body)
        while len(body) > PIECE_BYTES:
            yield prefix + bytes((_GOES_ON,)) + body[:PIECE_BYTES]
            body = body[PIECE_BYTES:]
        yield prefix + bytes((_ENDS,)) + body


def _bodies(field: DeclaredField, value: Any) -> Iterator[bytes]:
    if not field.is_dict:
        yield field.encode(value)
        return
    pairs = iter(plain_items(value))
    while some := list(islice(pairs, _PAIRS)):
        yield field.encode(some)


async def read_declared(plan: StatePlan, service: Any, snapshot: SnapshotImage) -> None:
    """Load the declared fields of a service, and leave in the snapshot what its author wrote after them.

    Raises:
        RemoteProtocolError: the snapshot is no such one, or is not whole.
        ConfigurationError: it has a field that the service cannot take; says which, and what to do.
    """
    messages = aiter(snapshot)
    header = _read_json(await anext(messages, b""), "fields")
    if header.get("format") != FORMAT or header.get("version") != VERSION:
        raise RemoteProtocolError(
            f"the snapshot is not of declared state: format={header.get('format')!r} version={header.get('version')!r} "
            f"expected {FORMAT!r} {VERSION}; override on_start to read what an earlier version of the service wrote"
        )
    loaders = [_loader(plan, service, name, schema) for name, schema in header["fields"]]
    pieces: list[bytes] = []
    piece_count, end = 0, b""
    async for message in messages:
        if message.startswith(END_BEGIN):
            end = message
            break
        piece_count += 1
        pieces.append(message[3:])
        if message[2] == _ENDS:
            loaders[int.from_bytes(message[:2], "little")].take(b"".join(pieces))
            pieces.clear()
    if _read_json(end, "pieces")["pieces"] != piece_count or pieces:
        raise RemoteProtocolError(f"the snapshot is not whole: pieces={piece_count}")
    for loader in loaders:
        loader.finish()


SNAPSHOT_BEGIN: Final = f'{{"format": "{FORMAT}", '.encode()
"""What message 0 of a snapshot of declared state begins with."""


def field_number(header: bytes, name: str) -> int | None:
    """Which number a field has in the pieces of a snapshot, by its message 0; None if it has no such field.

    Raises:
        RemoteProtocolError: it is none.
    """
    names = [each[0] for each in _read_json(header, "fields")["fields"]]
    return names.index(name) if name in names else None


def read_pairs(pieces: Iterable[bytes]) -> Iterator[tuple[Any, Any]]:
    """Read the keys and values of a dict from its pieces in a snapshot, without the class that declares it.

    Raises:
        RemoteProtocolError: they are not those of a dict.
    """
    body = b""
    for piece in pieces:
        body += piece[3:]
        if piece[2:3] != bytes((_ENDS,)):
            continue
        try:
            yield from ((key, value) for key, value in READ_ANY.decode(body))
        except (msgspec.MsgspecError, ValueError, TypeError) as error:
            raise RemoteProtocolError(f"the pieces of a snapshot are not those of a dict: {error}") from error
        body = b""


def read_known_schemas(messages: Iterable[bytes]) -> Iterator[bytes]:
    """Read the schemas that a typed service knew, as its clients announced them, from the messages of its snapshot.

    No message after the last schema is read. A snapshot of another service has none.

    Raises:
        RemoteProtocolError: it begins as one of a typed service does, and is none.
    """
    number: bytes | None = None
    pieces: list[bytes] = []
    for message in messages:
        if number is not None:
            if message[:2] == number:
                pieces.append(message)
            elif pieces:
                break
        elif message.startswith(SNAPSHOT_BEGIN):
            found = field_number(message, "known_schemas")
            if found is None:
                return
            number = found.to_bytes(2, "little")
    yield from (bytes(schema) for _, schema in read_pairs(pieces))


def _read_json(message: bytes, key: str) -> dict[str, Any]:
    try:
        found = json.loads(message)
        if isinstance(found, dict) and key in found:
            return found
    except ValueError:
        pass
    raise RemoteProtocolError(f"the snapshot has no {key!r} where declared state has it: {bytes(message[:40])!r}")


class _Loader:
    """Takes the values of one field of a snapshot."""

    def __init__(self, field: DeclaredField | None, service: Any, schema: Any, migrate: Any) -> None:
        self._field = field
        self._service = service
        self._migrate = migrate
        self._schema = schema
        self._is_dict = isinstance(schema, list) and schema[0] == "dict"
        self._content: dict[Any, Any] = {}
        self._value: Any = None

    def take(self, body: bytes) -> None:
        """Take the bytes of a value, or of some pairs of a dict.

        Raises:
            RemoteProtocolError: they are no such values; says of which field, and what to do.
        """
        field = self._field
        if field is None:
            return
        if self._migrate is not None:
            read = READ_ANY.decode(body)
        else:
            read = field.decode(body, self._schema)
        if self._is_dict:
            # A tuple that is a key is read as a list where no type says what it is.
            self._content.update((tuple(key) if isinstance(key, list) else key, value) for key, value in read)
        else:
            self._value = read

    def finish(self) -> None:
        """Set the field.

        Raises:
            LocalProtocolError: what `migrate_NAME` gave is of another type.
        """
        if self._field is None:
            return
        read = self._content if self._is_dict else self._value
        value = read if self._migrate is None else self._migrate(read)
        attributes = self._service.__dict__
        attributes[self._field.name] = self._field.stored(value, journal_of(self._service))


def _loader(plan: StatePlan, service: Any, name: str, schema: Any) -> _Loader:
    owner = plan.owner
    migrate = getattr(owner, f"migrate_{name}", None)
    field = plan.fields.get(name)
    if field is None:
        if name not in getattr(owner, "removed", ()):
            raise ConfigurationError(
                f"{owner.__qualname__} has no {name}: {show_type(schema)}, which the snapshot has; expected it, or "
                f"removed = ({name!r},) if it is meant to be gone"
            )
        return _Loader(None, service, schema, None)
    if field.codec.schema == schema:
        return _Loader(field, service, schema, None)
    change = find_change(schema, field.codec.schema, field.where)
    if migrate is not None:
        return _Loader(field, service, schema, migrate)
    if change is not None:
        raise ConfigurationError(
            f"{change}; expected a type that reads it, or a static method migrate_{name}(old) that gives the new value"
        )
    return _Loader(field, service, schema, None)
