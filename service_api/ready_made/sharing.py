"""Services whose limits are shared: one client may take a part of each limit, and the rest stays for the others.

A client is a principal where clients are authenticated, with all its sessions; otherwise each session is a client. The
log says both, so every member decides equally. What is kept longer than its session, such as a key with a TTL, counts
for the client that made it until it is gone; so it is kept together with its client.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from ..session import ClientSession
from ..shares import SHARE_DIVISOR, share_of
from ..typed import ServiceError, TypedService, state

_SHOWN_BYTES: Final = 64
_PRINCIPAL, _SESSION = b"p", b"s"


class SharingService(TypedService):
    """A service that counts what each client has of its limits. A limit is named by its attribute."""

    share_divisor: ClassVar[int] = SHARE_DIVISOR
    """One client may take a limit divided by this; 1: all of it."""

    shares: dict[tuple[str, bytes], int] = state()
    """By limit and client: how much of the limit the client has. A client that has nothing is absent."""

    def share_of(self, limit_name: str) -> int:
        """Return how much of a limit one client may take."""
        return share_of(getattr(self, limit_name), self.share_divisor)

    def refuse_share(self, client: bytes, limit_name: str, amount: int, remedy: str) -> str | None:
        """Return why a client cannot have so much more of a limit; None if it can."""
        return self.refuse_part(client, limit_name, self.shares.get((limit_name, client), 0) + amount, remedy)

    def refuse_part(self, client: bytes, limit_name: str, wanted: int, remedy: str) -> str | None:
        """Return why a client cannot have so much in all of a limit; None if it can."""
        share = self.share_of(limit_name)
        if wanted <= share:
            return None
        whole = f"{limit_name}={getattr(self, limit_name)}"
        return f"{_show(client)} would have {wanted} of {whole}, expected at most its share={share}; {remedy}"

    def take_share(self, client: bytes, limit_name: str, remedy: str, error: Callable[[str], ServiceError]) -> None:
        """Count one more for a client, or raise `error`."""
        held = self.shares.get((limit_name, client), 0) + 1
        refusal = self.refuse_part(client, limit_name, held, remedy)
        if refusal is not None:
            raise error(refusal)
        self.shares[limit_name, client] = held

    def count_share(self, client: bytes, limit_name: str, amount: int) -> None:
        """Count more, or less, for a client, without a check."""
        key = (limit_name, client)
        held = self.shares.get(key, 0) + amount
        if held:
            self.shares[key] = held
        else:
            del self.shares[key]


def client_of(session: ClientSession) -> bytes:
    """Return who has a share: the principal of a session, or the session itself where clients have no principal."""
    principal = session.encoded_principal
    return _PRINCIPAL + principal if principal else _SESSION + b"%d" % session.id


def _show(client: bytes) -> str:
    kind, name = client[:1], client[1:]
    return f"session={name.decode()}" if kind == _SESSION else f"principal={name[:_SHOWN_BYTES]!r}"
