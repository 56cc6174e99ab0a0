"""Lists of names, page by page."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest


def name_page(names: Iterable[str], prefix: str, after: str, limit: int) -> list[str]:
    """Give the first `limit` names of a prefix after `after`, in order; "" as `after` begins at the first."""
    return nsmallest(limit, (name for name in names if name > after and name.startswith(prefix)))
