"""The client of a typed service for code without asyncio."""

from __future__ import annotations

from .blocking import BlockingTyped
from .typed_client import TypedClient


class SyncTypedClient(BlockingTyped, of=TypedClient):
    """A session with a typed service, for code without asyncio.

    with SyncBankClient.connect(["127.0.0.1:9000"]) as bank:
        print(bank.deposit(account="a", amount=5))

    Its services are those of `TypedClient`.
    """
