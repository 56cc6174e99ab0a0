"""Metrics of a backup: a scrape over HTTP while an agent runs and after it was cut off, and the table of the page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.places import ROOT
from tests.unit.cluster.operating.backup.backed_up import backed_up
from tests.unit.cluster.operating.backup.test_store_follower import agent_status, store_status
from tests.unit.cluster.testing.simulation.test_snapshots import take
from tests.waiting import ask_until, within
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.cluster.operating.backup.metrics import BACKUP_METRICS, BackupMetrics, backup_metrics_as_markdown
from trimaran.cluster.operating.backup.states import BackupState
from trimaran.cluster.operating.backup.status import BackupStatus, write_status
from trimaran.cluster.operating.backup.store_status import write_store_status
from trimaran.cluster.runtime.ground.host import Host
from trimaran.service_api import ConfigurationError
from trimaran.service_api.endpoint import Endpoint

DEADLINE_S = 60


def values(page: bytes) -> dict[str, float]:
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
        if sample.name.startswith("trimaran_")
    }


def metrics_of(status: BackupStatus | None, directory: Path) -> BackupMetrics:
    return BackupMetrics(lambda: status, directory, Host.of_operating_system())


async def scrape(
    metrics: BackupMetrics, path: str, *, expected_status: int, is_enough: Callable[[bytes], bool] = lambda page: True
) -> bytes:
    """Ask for a page over HTTP until it is enough: what lies on the disk is looked at once a second."""
    listening = asyncio.Queue[Endpoint]()
    async with within(DEADLINE_S), asyncio.TaskGroup() as group:
        serving = group.create_task(metrics.serve(Endpoint("127.0.0.1", 0), on_listening=listening.put_nowait))
        endpoint = await listening.get()

        async def ask() -> bytes | None:
            reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: backup\r\n\r\n".encode())
            head, _, page = (await reader.read()).partition(b"\r\n\r\n")
            writer.close()
            assert head.split()[1] == str(expected_status).encode(), page
            return page if is_enough(page) else None

        page = await ask_until(ask, timeout_s=DEADLINE_S, what=f"enough of {path}")
        serving.cancel()
    return page


def test_metrics_are_what_the_agent_says(tmp_path: Path) -> None:
    with backed_up() as (small, backup):
        backup.start()
        small.send(20)
        position = take(small)
        status = backup.catch_up(snapshot_position=position)

        found = values(metrics_of(status, tmp_path).render())

    assert found["trimaran_backup_state"] == BackupState.BACKING_UP
    assert found["trimaran_backup_recorded_position"] == status.recorded_position == status.commit_position
    assert found["trimaran_backup_lag_bytes"] == found["trimaran_backup_behind_seconds"] == 0
    assert (found["trimaran_backup_snapshots"], found["trimaran_backup_snapshot_position"]) == (1, position)


def test_lag_and_its_age_are_what_a_loss_would_cost(tmp_path: Path) -> None:
    status = agent_status(320).model_copy(update={"commit_position": 1_280, "behind_s": 12.5})

    found = values(metrics_of(status, tmp_path).render())

    assert (found["trimaran_backup_lag_bytes"], found["trimaran_backup_behind_seconds"]) == (960, 12.5)


async def test_every_metric_of_the_table_is_in_a_scrape_over_http(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    write_status(OsFileSystem(), tmp_path / "cluster", agent_status(1_280))
    write_store_status(OsFileSystem(), tmp_path, store_status(1_000, 640))
    metrics = metrics_of(agent_status(1_280), tmp_path)

    page = await scrape(metrics, "/metrics", expected_status=200, is_enough=lambda page: b"_store_position" in page)

    names = values(page).keys()
    assert [row.name for row in BACKUP_METRICS if row.name not in names] == []
    assert values(page)["trimaran_backup_store_lag_bytes"] == 640
    assert b'url="s3://bucket/shop"' in page
    assert b"ok" in await scrape(metrics, "/readyz", expected_status=200)


async def test_agent_without_a_source_is_not_ready(tmp_path: Path) -> None:
    waiting = agent_status(0).model_copy(
        update={"source_member_id": None, "state": "RESET_BACKUP", "reason": "no answer"}
    )

    page = await scrape(metrics_of(waiting, tmp_path), "/readyz", expected_status=503)

    assert b"RESET_BACKUP: no answer" in page


async def test_endpoint_that_is_taken_is_named(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(ConfigurationError, match=f"metrics_endpoint=127.0.0.1:{port}"):
            await metrics_of(None, tmp_path).serve(Endpoint("127.0.0.1", port))


def test_the_table_of_the_documentation_is_the_codes() -> None:
    """Regenerate the table with `print(backup_metrics_as_markdown())`."""
    assert backup_metrics_as_markdown() in (ROOT / "docs" / "metrics.md").read_text()


def test_names_say_what_they_are() -> None:
    for row in BACKUP_METRICS:
        assert row.name.startswith("trimaran_backup_")
        assert row.name.endswith("_total") == (row.kind == "counter"), row.name
    assert len({row.name for row in BACKUP_METRICS}) == len(BACKUP_METRICS)
