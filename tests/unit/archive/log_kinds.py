"""A log of each kind that readers meet: where it lies, how it was written, and in which state it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import fsspec

from tests.interchange.samples import NODES
from tests.s3_server import BUCKET
from tests.unit.archive.spark.member_logs import TERM_LENGTH, Log, MemberFiles, make_log
from tests.unit.archive.streams import extract_sample, make_member_of_samples
from tests.unit.cluster.operating.backup.backed_up import backed_up
from tests.unit.cluster.operating.backup.test_pruning import NOW_MS
from tests.unit.cluster.runtime.snapshots.cold_rig import member
from tests.unit.cluster.testing.simulation.test_snapshots import take
from trimaran.cluster.operating.backup.retention import KEEP_EVERYTHING
from trimaran.cluster.operating.backup.shipping import ship_backup
from trimaran.service_api.typed import Command
from trimaran.service_api.typed.codec import MessageCodec
from trimaran.service_api.wire.payload_header import PayloadKind
from trimaran.service_api.wire.request import REQUEST_HEADER, REQUEST_MESSAGE


@dataclass
class Pay(Command[int]):
    """A command of a typed log."""

    account: str
    amount: int


@dataclass(slots=True, kw_only=True)
class KindOfLog:
    """A log that was made."""

    place: str
    """A path or a URL."""
    grow: Callable[[], object] | None = None
    """Lets it grow, where it is of a member that runs."""


def _cold(directory: Path, url: str) -> KindOfLog:
    async def ship() -> None:
        async with member(directory / "node-0" / "archive", url) as rig:
            await rig.purge()

    asyncio.run(ship())
    return KindOfLog(place=str(directory / "node-0"))


def _backup(directory: Path, url: str) -> KindOfLog:
    with backed_up() as (small, backup):
        backup.start(retention=KEEP_EVERYTHING)
        for _ in range(2):
            small.send(25, length=3_200)
            position = take(small)
            backup.catch_up(snapshot_position=position)
        backup.write_to(directory / "backup")
    ship_backup(directory / "backup", url, clock_ms=lambda: NOW_MS)
    return KindOfLog(place=url)


def _in_a_store(directory: Path, url: str) -> KindOfLog:
    sample = extract_sample("checksummed", directory) / "node0"
    store, root = fsspec.url_to_fs(url)
    store.put(str(sample), root, recursive=True)
    return KindOfLog(place=url)


def _typed(directory: Path) -> KindOfLog:
    codec, log = MessageCodec(Pay), Log()
    log.begin_term(0)
    header = codec.header(PayloadKind.COMMAND, 0)
    payloads = [codec.announcement(), *(header + codec.encode(Pay("ann", amount)) for amount in range(300))]
    for number, payload in enumerate(payloads):
        log.message(REQUEST_HEADER.pack(*REQUEST_MESSAGE, 1, 1, 1, number + 1, number) + payload)
    return KindOfLog(place=str(MemberFiles(directory=directory / "node-0", log=log).write()))


def _purged(directory: Path) -> KindOfLog:
    files = MemberFiles(directory=directory / "node-0", log=make_log(), start_position=TERM_LENGTH)
    return KindOfLog(place=str(files.write()))


def _growing(directory: Path) -> KindOfLog:
    log = make_log()
    ends = [end for end in log.frame_ends if TERM_LENGTH < end < 2 * TERM_LENGTH]
    # The last frame is being written: its header is there, and half of it.
    files = MemberFiles(directory=directory / "node-0", log=log, stop_position=ends[5] + 48)
    files.write()

    def grow() -> None:
        files.stop_position = None
        files.write()

    return KindOfLog(place=str(files.directory), grow=grow)


def _damaged(directory: Path) -> KindOfLog:
    sample = extract_sample("checksummed", directory) / "node0"
    segment = sample / "archive" / "0-65536.rec"
    data = bytearray(segment.read_bytes())
    data[30_000] ^= 1
    segment.write_bytes(data)
    return KindOfLog(place=str(sample))


def _stopped(directory: Path) -> KindOfLog:
    return KindOfLog(place=str(MemberFiles(directory=directory / "node-0", log=make_log(), is_stopped=True).write()))


def _sample(name: str) -> Callable[[Path], KindOfLog]:
    scenario, _, node = name.rpartition("-")

    def make(directory: Path) -> KindOfLog:
        return KindOfLog(place=str(extract_sample(scenario, directory) / node))

    return make


OURS: Final[dict[str, Callable[[Path], KindOfLog]]] = {
    "typed": _typed,
    "groups": lambda directory: KindOfLog(place=str(make_member_of_samples(directory))),
    "cold": lambda directory: _cold(directory, f"file://{directory}/store"),
    "cold in S3": lambda directory: _cold(directory, f"s3://{BUCKET}/{directory.name}/cold"),
    "backup in S3": lambda directory: _backup(directory, f"s3://{BUCKET}/{directory.name}/backup"),
    "directory in S3": lambda directory: _in_a_store(directory, f"s3://{BUCKET}/{directory.name}/node-0"),
    "purged": _purged,
    "growing": _growing,
    "stopped": _stopped,
    "damaged": _damaged,
}
"""Those that Trimaran writes, and one with a wrong byte. An S3 server is expected where the name says so."""
OF_AERON: Final = {name: _sample(name) for name in NODES}
"""Those of real members and archives, of each version and checksum."""
