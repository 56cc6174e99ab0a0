"""Random numbers that are a function of the log: the same on every member, in every replay, and after a snapshot.

The generator starts again at each log entry, with a seed made of the entry's position, its time and the service's id.
So it has no state to put into a snapshot, and it cannot get out of step: a member that started from a snapshot draws
what the others drew. Rejected: one generator for the whole log, whose state each snapshot would have to carry, and
which one draw too many on one member would spoil for ever.

The numbers are no secret: who knows the log can compute them.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from random import Random
from typing import Final, NoReturn, Protocol
from uuid import UUID

from ...service_api import LocalProtocolError

_SEED: Final = struct.Struct("<qqq")
_UUID_BITS: Final = 128
_NO_ENTRY: Final = -1


class EntryContext(Protocol):
    """The entry that is being processed."""

    @property
    def log_position(self) -> int:
        """Where it ends."""

    @property
    def time(self) -> int:
        """Its cluster time."""

    def check_drawing(self) -> None:
        """Raise where no entry is being processed."""


class EntryRandom(Random):
    """A `random.Random` that starts again at each log entry; a service may keep it.

    Every method of `random.Random` draws by `random`, `getrandbits` or `gauss`, so these three look at the entry.
    """

    def __init__(self, entry: EntryContext, service_id: int) -> None:
        self._entry = entry
        self._service_id = service_id
        self._position = _NO_ENTRY
        self._is_made = False
        super().__init__(0)
        self._is_made = True

    def __repr__(self) -> str:
        return f"<EntryRandom service={self._service_id} position={self._position}>"

    def __reduce__(self) -> NoReturn:
        raise LocalProtocolError("cluster.random cannot be copied or pickled: it belongs to the entry being processed")

    def random(self) -> float:
        """Return the next number, 0.0 <= x < 1.0."""
        self._begin_entry()
        return super().random()

    def getrandbits(self, k: int, /) -> int:
        """Return an int of `k` random bits."""
        self._begin_entry()
        return super().getrandbits(k)

    def gauss(self, mu: float = 0.0, sigma: float = 1.0) -> float:
        """Return a number of the normal distribution; the one that is kept for the next call ends with the entry."""
        self._begin_entry()
        return super().gauss(mu, sigma)

    def seed(self, *args: object, **kwargs: object) -> None:
        """Refuse: the log seeds it.

        Raises:
            LocalProtocolError: a service called it.
        """
        if self._is_made:
            self._refuse("seed")

    def setstate(self, state: object) -> NoReturn:
        """Refuse: the log seeds it.

        Raises:
            LocalProtocolError: always.
        """
        self._refuse("setstate")

    def uuid(self) -> UUID:
        """Return a random UUID."""
        return UUID(int=self.getrandbits(_UUID_BITS), version=4)

    def _begin_entry(self) -> None:
        entry = self._entry
        entry.check_drawing()
        if entry.log_position == self._position:
            return
        self._position = entry.log_position
        seed = blake2b(_SEED.pack(entry.log_position, entry.time, self._service_id), digest_size=32).digest()
        super().seed(int.from_bytes(seed, "little"))

    def _refuse(self, call: str) -> NoReturn:
        raise LocalProtocolError(f"cluster.random.{call} is refused: the log entry seeds it, the same on every member")
