"""A bit flipped in each kind of file of a running three-member cluster, and what happened to each: a table.

    python -m tests.system.flipped_bits [--directory DIR]

Real processes. A bit of a follower's file is flipped while the member runs; then every member scrubs. A file that a
member reads only when it starts is looked at by stopping the member and starting it again. `docs/durability.md` shows
the table.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.system.cluster_process import SystemCluster
from tests.waiting import wait_until, within

_MEMBER: Final = "follower"


@dataclass(slots=True, frozen=True)
class Flip:
    """One kind of file, and which bit of it is flipped."""

    what: str
    name: Callable[[Path], str]
    """Gives the file's name in a member's directory."""
    offset: int
    needs_start: bool = False
    """Whether a member reads it only when it starts."""


@dataclass(slots=True, frozen=True)
class FlipOutcome:
    """What became of one flipped bit."""

    what: str
    file: str
    found_by: str
    happened: str
    is_whole: bool
    """Whether the member serves and the file says again what it said."""


def _segments(directory: Path, recording_id: int | None = None) -> list[str]:
    names = [path.name for path in (directory / "archive").glob("*.rec")]
    wanted = [name for name in names if recording_id is None or name.startswith(f"{recording_id}-")]
    return sorted(wanted, key=lambda name: [int(part) for part in name.removesuffix(".rec").split("-")])


FLIPS: Final = (
    Flip("the log, a closed segment", lambda directory: f"archive/{_segments(directory, 0)[0]}", 4_136),
    Flip("the log, the segment that is written", lambda directory: f"archive/{_last_written(directory)}", 40),
    Flip("a snapshot of the service", lambda directory: f"archive/{_segments(directory, 1)[0]}", 40),
    Flip("a snapshot of the consensus module", lambda directory: f"archive/{_segments(directory, 2)[0]}", 40),
    Flip("the log, above the snapshot, at a start", lambda directory: f"archive/{_last_written(directory)}", 40, True),
    Flip("the vote", lambda directory: "cluster/node-state.dat", 32, True),
    Flip("terms and snapshots", lambda directory: "cluster/recording.log", 16, True),
    Flip("the catalog, its newest entry", lambda directory: "archive/archive.catalog", 72, True),
    Flip("the catalog, its header", lambda directory: "archive/archive.catalog", 16, True),
)
"""Each kind of file. The service's snapshot is the recording 1, the consensus module's 2."""


def _last_written(directory: Path) -> str:
    """The newest segment of the log that holds a frame."""
    names = [name for name in _segments(directory, 0) if any((directory / "archive" / name).read_bytes()[:64])]
    return names[-1]


def flip_bit(path: Path, offset: int) -> None:
    """Flip the lowest bit of a byte of a file."""
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


async def flip_each(cluster: SystemCluster) -> list[FlipOutcome]:
    """Flip a bit in each kind of file of a running cluster, one after the other; say what happened to each."""
    leader = (await cluster.wait_for_leader()).leader_member_id
    follower = next(member_id for member_id in cluster.members if member_id != leader)
    async with cluster.requester() as requester:
        await requester.request(600)
        status, said = await cluster.run_command("snapshot", "take")
        assert status == 0, said
        await requester.request(600)
        outcomes = []
        for flip in FLIPS:
            outcomes.append(await _flip_one(cluster, follower, flip))
            await requester.request(20)
    return outcomes


async def _flip_one(cluster: SystemCluster, member_id: int, flip: Flip) -> FlipOutcome:
    directory = cluster.directory_of(member_id)
    name = flip.name(directory)
    path = directory / name
    before = path.read_bytes()
    if not flip.needs_start:
        flip_bit(path, flip.offset)
        status, said = await cluster.run_command("scrub", "--start", "--wait", "60", "--member", str(member_id))
        assert status == 0, said
        told = cluster.members[member_id].events("recording.repaired")[-1]
        happened = f"mended from another member, {told['end_position'] - told['position']} bytes; the member serves on"
        return FlipOutcome(flip.what, name, "the scrub", happened, path.read_bytes()[: len(before)] == before)
    cluster.members[member_id].terminate()
    await cluster.members[member_id].wait_exit()
    kept = path.read_bytes()
    flip_bit(path, flip.offset)
    member = cluster.start(member_id)
    return await _look_at_start(cluster, member_id, flip, name, kept, member.process.is_running)


async def _look_at_start(
    cluster: SystemCluster, member_id: int, flip: Flip, name: str, kept: bytes, is_running: bool
) -> FlipOutcome:
    """Wait until the member serves, or has stopped with a reason."""
    assert is_running
    member, path = cluster.members[member_id], cluster.directory_of(member_id) / name
    await wait_until(
        lambda: bool(member.events("election.closed")) or not member.process.is_running,
        timeout_s=60,
        what=lambda: f"a start of {member!r}",
    )
    if member.process.is_running:
        if mended := member.events("recording.repaired"):
            length = mended[-1]["end_position"] - mended[-1]["position"]
            happened = f"mended from another member before it took part, {length} bytes"
            return FlipOutcome(
                flip.what, name, "the start", happened, path.read_bytes()[: len(kept) // 2] == kept[: len(kept) // 2]
            )
        if aside := member.events("node_state.set_aside"):
            happened = f"set aside as `{Path(aside[0]['kept_path']).name}`; no vote until the member had caught up"
            return FlipOutcome(flip.what, name, "the start", happened, True)
        if member.events("member.came_back_without_vote"):
            happened = "set aside with the archive; it copied everything, and had no vote until then"
            return FlipOutcome(flip.what, name, "the start", happened, path.with_name(path.name + ".aside").exists())
        is_whole = path.read_bytes()[flip.offset] == kept[flip.offset]
        return FlipOutcome(flip.what, name, "the start", "put right from the record of the last change", is_whole)
    (failed,) = member.events("node.failed")
    return FlipOutcome(flip.what, name, "the start", f"it refused to start: {failed['reason']}", False)


def format_table(outcomes: list[FlipOutcome]) -> str:
    """Write the outcomes as a Markdown table."""
    rows = [f"| {each.what} | `{each.file}` | {each.found_by} | {each.happened} |" for each in outcomes]
    return "\n".join(("| what was in the file | file | found by | what happened |", "|---|---|---|---|", *rows))


async def _run(directory: Path) -> list[FlipOutcome]:
    cluster = SystemCluster(directory)
    with cluster.processes.group:
        async with within(300):
            cluster.processes.data_dir.mkdir(parents=True, exist_ok=True)
            await cluster._start_first()
            return await flip_each(cluster)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--directory", type=Path, help="where the members keep their files; by default a new one")
    told = parser.parse_args().directory
    directory = Path(tempfile.mkdtemp(prefix="flipped-bits-")) if told is None else told
    print(format_table(asyncio.run(_run(directory))))


if __name__ == "__main__":
    main()
