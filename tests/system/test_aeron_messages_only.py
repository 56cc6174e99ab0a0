"""A cluster that keeps its log in Aeron's own messages refuses requests, with a word that names the setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.cluster_process import SystemCluster
from tests.waiting import within
from trimaran.client import ClusterClient, RejectedError
from trimaran.service_api.wire.request import REQUEST_BLOCK_LENGTH
from trimaran.service_api.wire.session import SessionMessageHeader

pytestmark = pytest.mark.slow

SERVICE = "tests.system.aeron_sample:AeronSampleService"


async def test_requests_are_refused_messages_are_not_and_the_log_has_no_request(data_dir: Path) -> None:
    settings = {"aeron_messages_only": "true"}
    async with SystemCluster(data_dir, member_count=1, settings=settings, service=SERVICE) as cluster:
        await cluster.wait_for_leader()

        async with await ClusterClient.connect(cluster.endpoints) as client, within(60):
            with pytest.raises(RejectedError, match="aeron_messages_only = true"):
                await client.request(b"refused")
            await client.offer(b"taken")

        await cluster.stop()
        (report,) = cluster.check()
    entries = [message.encoded for message in report.log.messages()]
    assert any(encoded.endswith(b"taken") for encoded in entries)
    request = REQUEST_BLOCK_LENGTH.to_bytes(2, "little") + SessionMessageHeader.TEMPLATE_ID.to_bytes(2, "little")
    assert request not in {bytes(encoded[:4]) for encoded in entries}
