"""The recording that the notebooks look at is what its story says, by tools that know neither Spark nor notebooks.

Here the morning is a short one, with every fifth request. The campaign's notebooks look at the whole.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from examples.access_quota import AccessQuota, Request
from notebooks.demo import RecordedMorning, recorded_morning
from notebooks.demo import morning as recorder
from notebooks.demo.cluster import DemoCluster
from notebooks.demo.traffic import FRONT_ENDS, front_end_of, web_requests
from tests.interchange.samples import run as trimaran
from trimaran import archive
from trimaran.client import ClusterClient
from trimaran.cluster.testing import ServiceHarness
from trimaran.service_api.wire.log.layout import SESSION_CLOSE_EVENT, SESSION_OPEN_EVENT

pytestmark = pytest.mark.slow

LENGTH_S = 5.0


def some_requests() -> Sequence[Request]:
    """Every fifth request of the morning."""
    return web_requests()[::5]


@pytest.fixture(scope="module")
def morning(tmp_path_factory: pytest.TempPathFactory) -> RecordedMorning:
    """A morning of these requests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder, "web_requests", some_requests)
        patch.setattr(recorder, "LENGTH_S", LENGTH_S)
        return recorded_morning(tmp_path_factory.mktemp("notebooks") / "morning")


def frames(morning: RecordedMorning, member_id: int) -> dict[int, dict[str, Any]]:
    """The frames of a member's log by position."""
    columns = ["recording_id", "position", "frame_length", "template_id", "cluster_session_id", "payload"]
    table = archive.frames(morning.member(member_id) / "archive", recording_id=0, columns=columns).read_all()
    return {row["position"]: row for row in table.to_pylist()}


def recording_log(morning: RecordedMorning) -> list[dict[str, Any]]:
    """The recording log of a member that has everything, as the command prints it."""
    rows: list[dict[str, Any]] = json.loads(
        trimaran("recording-log", morning.member(morning.survivor_member_id), "-o", "json").stdout
    )
    return rows


def terms(morning: RecordedMorning) -> list[dict[str, Any]]:
    return [row for row in recording_log(morning) if row["typeName"] == "TERM"]


def test_the_clients_were_told_what_a_run_without_a_cluster_says(morning: RecordedMorning) -> None:
    requests = some_requests()
    alone = ServiceHarness(AccessQuota)
    replies = [alone.request(request.encode()) for request in requests]

    expected = Counter(reply.partition(b"\t")[0].decode() for reply in replies)

    assert morning.decisions == dict(expected)
    assert morning.request_count == len(requests)
    assert len(web_requests()) == 30_969


def test_every_client_had_its_sessions(morning: RecordedMorning) -> None:
    counts = {name: len(session_ids) for name, session_ids in morning.session_ids.items()}

    assert counts == {**dict.fromkeys(FRONT_ENDS, 1), "monitor": 13, "silent": 1}


def test_the_survivors_have_the_same_log_and_the_lost_member_a_tail_of_its_own(morning: RecordedMorning) -> None:
    lost = frames(morning, morning.lost_member_id)
    one, other = (frames(morning, member) for member in morning.members if member != morning.lost_member_id)

    assert one == other
    own = [position for position in lost if lost[position] != one.get(position)]
    assert len(own) > 100
    assert min(own) == terms(morning)[-1]["termBaseLogPosition"]


def test_there_are_three_terms_and_the_snapshots_of_the_story(morning: RecordedMorning) -> None:
    """Terms in which a vote was split are marked, too, empty, where the next one begins."""
    snapshots = [row for row in recording_log(morning) if row["typeName"] == "SNAPSHOT"]
    told = [event.log_position for event in morning.events if event.what == "snapshot"]

    assert [row["leadershipTermId"] for row in terms(morning)] == list(range(len(terms(morning))))
    assert len({row["termBaseLogPosition"] for row in terms(morning)}) == 3
    assert [row["logPosition"] for row in snapshots] == [told[0], told[0], told[1], told[1]]


def test_a_session_whose_close_was_lost_is_closed_before_the_recording_ends(tmp_path: Path) -> None:
    """On a busy machine a monitor left in the power cut: the log had 20 SessionOpenEvents and 19 SessionCloseEvents."""

    async def record() -> None:
        cluster = DemoCluster(tmp_path)
        try:
            await cluster.start()
            client = await ClusterClient.connect(cluster.endpoints)
            client._conductor.abort()  # without a word, as if the word had died with the leader
            await cluster.wait_for_closed_sessions()
            await cluster.stop()
        finally:
            await cluster.close()

    asyncio.run(record())

    table = archive.frames(tmp_path / "node-0" / "archive", recording_id=0, columns=["template_id"]).read_all()
    counts = Counter(table.column("template_id").to_pylist())
    assert (counts[SESSION_OPEN_EVENT], counts[SESSION_CLOSE_EVENT]) == (1, 1)


@pytest.mark.parametrize(
    ("host", "front_end"),
    [("a.example.com", "com"), ("10.0.0.1", "unnamed"), ("x.ac.uk", "abroad"), ("localhost", "abroad")],
)
def test_a_host_has_its_front_end(host: str, front_end: str) -> None:
    assert front_end_of(host) == front_end
