"""Posting entries to a real HTTP server that fails, is busy, and refuses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trimaran import ConfigurationError
from trimaran.cluster.subscriptions import EntryKind, LogEntry
from trimaran.cluster.subscriptions.webhook import WebhookRefusedError, WebhookSink

from .receiver import Receiver, received


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with received([503, 429, 500]) as server:
        yield server


def entry(position: int, payload: bytes) -> LogEntry:
    return LogEntry(position, position + 96, EntryKind.REQUEST, 3, 1_000, 7, payload)


async def test_a_batch_is_posted_until_it_is_taken_in_order(receiver: Receiver) -> None:
    async with WebhookSink(receiver.url) as sink:
        await sink.deliver([entry(96, b"one"), entry(192, b"\xff")])
        await sink.deliver([entry(288, b"three")])

    assert [key for key, _ in receiver.taken] == ["96-192", "288-288"]
    rows = [row for _, batch in receiver.taken for row in batch]
    assert [(row["position"], row["payload"], row["payload_encoding"]) for row in rows] == [
        (96, "one", "utf-8"),
        (192, "/w==", "base64"),
        (288, "three", "utf-8"),
    ]


async def test_a_receiver_that_refuses_ends_it_and_is_named(receiver: Receiver) -> None:
    receiver.statuses[:] = [404]
    async with WebhookSink(receiver.url) as sink:
        with pytest.raises(WebhookRefusedError, match=r"url=http.*status=404 answer='no such hook'"):
            await sink.deliver([entry(96, b"one")])

    assert receiver.taken == []


def test_an_url_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="url='ftp://x' expected http"):
        WebhookSink("ftp://x")
