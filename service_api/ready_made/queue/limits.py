"""What is checked of arguments. All raise QueueError, which names the argument, what it was and what was expected."""

from __future__ import annotations

from typing import Final

from .messages import (
    BODY_LIMIT_BYTES,
    DEDUPLICATION_KEY_LIMIT_BYTES,
    HEADER_LIMIT,
    HEADERS_LIMIT_BYTES,
    PRIORITY_LIMIT,
    QUEUE_NAME_LIMIT_BYTES,
    QUEUE_PAGE_LIMIT,
    QueueError,
    QueueSettings,
)

_MESSAGE_BYTES: Final = 256
"""What a message counts beside what its sender wrote."""
_LEASE_MIN_S: Final = 0.1
_LEASE_LIMIT_S: Final = 7 * 86_400
_DELIVERY_LIMIT: Final = 1_000
_BACKOFF_LIMIT_S: Final = 7 * 86_400
_MESSAGE_LIMIT: Final = 10_000_000
_KEY_WINDOW_LIMIT_S: Final = 30 * 86_400
_WAITER_LIMIT: Final = 1 << 31


def check_range(name: str, value: float, low: float, high: float) -> None:
    """Refuse a number that is out of its bounds, or none."""
    if not low <= value <= high:
        raise QueueError(f"{name}={value} expected {low} to {high}")


def check_name(what: str, name: str) -> None:
    """Refuse a name that is empty or too long."""
    size_bytes = len(name.encode())
    if not 1 <= size_bytes <= QUEUE_NAME_LIMIT_BYTES:
        raise QueueError(f"the name of the {what} has {size_bytes} bytes, expected 1 to {QUEUE_NAME_LIMIT_BYTES}")


def check_page(limit: int) -> None:
    """Refuse a page that is empty or too long."""
    check_range("limit", limit, 1, QUEUE_PAGE_LIMIT)


def check_lease(lease_s: float) -> None:
    """Refuse a lease that is too short or too long."""
    check_range("lease_s", lease_s, _LEASE_MIN_S, _LEASE_LIMIT_S)


def check_waiter(waiter: int) -> None:
    """Refuse a waiter's number that is none."""
    check_range("waiter", waiter, 0, _WAITER_LIMIT - 1)


def check_queue_settings(settings: QueueSettings, store_limit_bytes: int) -> None:
    """Refuse settings that a queue cannot have."""
    check_range("max_deliveries", settings.max_deliveries, 1, _DELIVERY_LIMIT)
    check_range("backoff_s", settings.backoff_s, 0, _BACKOFF_LIMIT_S)
    check_range("backoff_limit_s", settings.backoff_limit_s, settings.backoff_s, _BACKOFF_LIMIT_S)
    check_range("message_limit", settings.message_limit, 1, _MESSAGE_LIMIT)
    check_range("size_limit_bytes", settings.size_limit_bytes, 1, store_limit_bytes)
    check_range("key_window_s", settings.key_window_s, 0, _KEY_WINDOW_LIMIT_S)


def message_size(body: bytes, headers: dict[str, str], priority: int, key: str) -> int:
    """Check what a message is made of; gives what it counts, in bytes."""
    if len(body) > BODY_LIMIT_BYTES:
        raise QueueError(f"body has {len(body)} bytes, expected at most {BODY_LIMIT_BYTES}")
    if len(headers) > HEADER_LIMIT:
        raise QueueError(f"headers={len(headers)} expected at most {HEADER_LIMIT}")
    headers_bytes = 0
    for name, value in headers.items():
        headers_bytes += len(name.encode()) + len(value.encode())
    if headers_bytes > HEADERS_LIMIT_BYTES:
        raise QueueError(f"headers have {headers_bytes} bytes, expected at most {HEADERS_LIMIT_BYTES}")
    check_range("priority", priority, 0, PRIORITY_LIMIT)
    key_bytes = len(key.encode())
    if key_bytes > DEDUPLICATION_KEY_LIMIT_BYTES:
        raise QueueError(f"key has {key_bytes} bytes, expected at most {DEDUPLICATION_KEY_LIMIT_BYTES}")
    return _MESSAGE_BYTES + len(body) + headers_bytes + key_bytes
