"""examples/bank.py on real processes, from asyncio and from a script; and the code of docs/typed-services.md."""

from __future__ import annotations

import asyncio
import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.places import ROOT
from tests.system.cluster_process import SystemCluster
from tests.system.commands import run_trimaran_blocking
from tests.waiting import patient
from trimaran.client import ClientConfig


@pytest.mark.slow
async def test_the_bank_of_the_examples_survives_its_leader(data_dir: Path) -> None:
    bank: Any = runpy.run_path(str(ROOT / "examples" / "bank.py"))
    cluster = SystemCluster(data_dir, service="bank:Bank", settings={"service_dir": str(ROOT / "examples")})
    async with cluster:
        leader_id = (await cluster.wait_for_leader()).leader_member_id
        config = ClientConfig(
            endpoints=tuple(cluster.endpoints), connect_timeout_s=patient(60), new_leader_timeout_s=patient(60)
        )
        async with bank["BankClient"].connect(config=config) as client:
            assert (await client.deposit("alice", amount=100)).amount == 100
            await client.promise_interest("alice", percent=10, after_s=0.1)
            cluster.members[leader_id].kill()
            with pytest.raises(bank["Overdrawn"], match="balance=1"):
                await client.transfer("alice", "bob", 10_000)
            assert (await client.balance("bob")).amount == 0

        def use_from_a_script() -> list[int]:
            with bank["SyncBankClient"].connect(config=config) as client:
                return [client.transfer("alice", "bob", 30).amount, client.balance("bob").amount]

        left, bobs = await asyncio.to_thread(use_from_a_script)
        assert bobs == 30
        assert left in (70, 80)
        cluster.start(leader_id)
        await cluster.wait_for_equal_logs()
    typed = typed_messages(cluster.directory_of(leader_id))
    assert [one["message"] for one in typed if "schema" in one] == ["Deposit", "PromiseInterest", "Transfer"]
    assert [one["values"] for one in typed if one["message"] == "Deposit" and "values" in one] == [
        {"account": "alice", "amount": 100}
    ]


def typed_messages(directory: Path) -> list[dict[str, Any]]:
    """The typed messages of a member's log, as `trimaran archive dump` shows them: by the log alone."""
    printed = run_trimaran_blocking("archive", "dump", str(directory), "-o", "jsonl", "--messages")
    assert printed.exit_status == 0, printed.errors
    return [line["typed"] for line in map(json.loads, printed.output.splitlines()) if "typed" in line]


def test_the_code_of_the_page_is_whole(tmp_path: Path) -> None:
    code = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "typed-services.md").read_text(), flags=re.DOTALL)
    (tmp_path / "page.py").write_text("\n\n".join(code))

    names = runpy.run_path(str(tmp_path / "page.py"))

    assert {"Bank", "BankClient", "SyncBankClient"} <= names.keys()
