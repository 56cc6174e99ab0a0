"""`trimaran log tail --members`: what is committed, from the archive of the leader, also while the log grows."""

from __future__ import annotations

import asyncio
from itertools import islice

import pytest
import typer

from tests.unit.archive.net.server.test_archive_server import append, serving, start
from tests.unit.archive.streams import TERM_LENGTH, StreamBuilder, launch
from tests.unit.cluster.cli.shared.test_inspection import members_that_answer, members_view
from trimaran.archive import Archive
from trimaran.archive.files.reader import RecordedMessage
from trimaran.cluster.cli.shared.cluster_log import ClusterLog
from trimaran.cluster.documents.inspection import InspectionRequest
from trimaran.cluster.settings.member_endpoints import MemberEndpoints

LENGTHS = [100, 5_000, 33, 1_400, 9_000] * 9
"""Some in one frame, some in fragments; more than one term buffer in all."""


class Leader:
    """A leader whose log is committed as far as the test says."""

    def __init__(self, archive: Archive, commit_positions: list[int]) -> None:
        self.archive = archive
        self.commit_positions = commit_positions
        """The answers to the next questions; the last one is given again and again."""

    def answer(self, request: InspectionRequest) -> bytes:
        position = self.commit_positions.pop(0) if len(self.commit_positions) > 1 else self.commit_positions[0]
        return members_view(0).model_copy(update={"commit_position": position}).model_dump_json().encode()

    async def batches(
        self, count: int, batch_count: int, *, is_followed: bool, begin: int | None = None
    ) -> list[list[RecordedMessage]]:
        """Read the log as the command does: in a thread, which has no loop."""
        async with serving(self.archive) as server, members_that_answer(m0=self.answer) as members:
            _, ingress, consensus, log, catchup, _ = members.split(",")
            endpoints = MemberEndpoints(
                member_id=0,
                ingress=ingress,
                consensus=consensus,
                log=log,
                catchup=catchup,
                archive=str(server.endpoint),
            )
            found = ClusterLog([endpoints], 20).batches(count, is_followed=is_followed, begin=begin)
            return await asyncio.to_thread(lambda: [batch for _, batch in islice(found, batch_count)])


async def written() -> tuple[Archive, list[int]]:
    """An archive with a log, and where its messages end."""
    archive, stream, ends = await launch(), StreamBuilder(), list[int]()
    recording = await start(archive)
    for length in LENGTHS:
        append(recording, stream, [length])
        ends.append(stream.position)
    assert stream.position > 2 * TERM_LENGTH
    return archive, ends


@pytest.mark.parametrize("committed_count", [3, 20, len(LENGTHS)])
async def test_the_last_committed_entries_are_given_whole(committed_count: int) -> None:
    archive, ends = await written()

    (last,) = await Leader(archive, [ends[committed_count - 1]]).batches(2, 1, is_followed=False)

    assert [entry.end_position for entry in last] == ends[committed_count - 2 : committed_count]
    assert [len(entry.payload) for entry in last] == LENGTHS[committed_count - 2 : committed_count]


async def test_what_is_committed_later_is_given_later_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimaran.cluster.cli.shared.cluster_log.pause", lambda interval_s: None)
    archive, ends = await written()

    commits = [ends[9], ends[9], ends[11], ends[-1]]
    batches = await Leader(archive, commits).batches(1, 4, is_followed=True)

    assert [[entry.end_position for entry in batch] for batch in batches] == [
        [ends[9]],
        [],
        ends[10:12],
        ends[12:],
    ]


async def test_a_long_log_is_given_from_a_position_on_a_bounded_number_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimaran.cluster.cli.shared.cluster_log.BATCH_LIMIT", 10)
    archive, ends = await written()

    commits = [ends[24], ends[24], ends[-1]]
    batches = await Leader(archive, commits).batches(1, 9, is_followed=False, begin=ends[1])

    assert [[entry.end_position for entry in batch] for batch in batches] == [ends[2:12], ends[12:22], ends[22:32]]


async def test_a_position_below_the_log_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    archive, ends = await written()
    await archive.purge_segments(0, TERM_LENGTH)

    with pytest.raises(typer.Exit):
        await Leader(archive, [ends[-1]]).batches(1, 1, is_followed=False, begin=0)
    assert f"asked=0 oldest_position={TERM_LENGTH}" in capsys.readouterr().err
