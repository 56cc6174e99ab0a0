"""The code of docs/shared-connections.md on clients of services and on a pool runs as it is printed."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from tests.places import ROOT
from tests.unit.cluster.testing.counting import Counter
from trimaran.client.ready_made import KvClient
from trimaran.cluster.testing import MemoryCluster
from trimaran.service_api.ready_made.counters import CounterService
from trimaran.service_api.ready_made.kv import KvService
from trimaran.service_api.ready_made.locks import LockService
from trimaran.service_api.ready_made.queue import QueueService


def code_of(heading: str, memory: MemoryCluster) -> dict[str, Any]:
    """Run the code of a section of the page, which connects to a cluster in memory."""
    page = (ROOT / "docs" / "shared-connections.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    found: dict[str, Any] = {}
    exec(compile(block, "shared-connections.md", "exec"), found)
    found["SharedConnection"] = SimpleNamespace(connect=lambda endpoints: memory.share())
    found["SessionPool"] = SimpleNamespace(connect=lambda endpoints, **settings: memory.pool(**settings))
    return found


def test_clients_of_several_services_use_one_connection(capsys: pytest.CaptureFixture[str]) -> None:
    with MemoryCluster([KvService, LockService, QueueService, CounterService], members=1) as memory:
        memory.run(code_of("Clients of services", memory)["use_services"]())

    assert capsys.readouterr().out == "b'begun'\n"


def test_callers_that_come_and_go_use_a_pool() -> None:
    async def test() -> None:
        shop = code_of("A pool", memory)["Shop"]()
        await shop.start()
        assert shop.pool.size == 16
        assert await shop.buy(b"1") == b"1"
        assert await shop.follow(b"2") == b"3"
        await shop.remember("a", "1")
        async with shop.pool.client(KvClient) as kv:
            assert await kv.get("a") == b"1"
        await shop.stop()
        assert shop.pool.shared.session_count == 0

    with MemoryCluster([Counter, KvService], members=1) as memory:
        memory.run(test())
