"""Two archives and their clients on virtual time, while links break and stall, processes die and disks forget.

A publisher records into the source archive and extends its recording after every break. Readers follow it by
replay-merge, a second archive copies it. A nemesis resets and blocks connections, kills processes, stops machines with
only some of what was not synced left, and has disks hang. Then it rests, everybody comes to an end, and this must hold:

    acknowledged   every message that the publisher was told is durable lies in the source's recording, at its place
    no gap         every reader got every message of the recording, at its position, once, in order
    equal          the copy is the recording, byte for byte

One seed is one run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import structlog

from trimaran.archive import (
    Archive,
    ArchiveClient,
    ArchiveConfig,
    ArchiveError,
    ArchiveServer,
    CorruptionError,
    ServedArchive,
)
from trimaran.archive.files.catalog import read_catalog
from trimaran.archive.files.reader import Frame, FrameReader, MessageReader
from trimaran.cluster.testing.simulation.world.machine import Machine
from trimaran.cluster.testing.simulation.world.network import Network
from trimaran.cluster.testing.simulation.world.scheduler import Scheduler
from trimaran.service_api.authorisation import AllowAll
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.errors import ClusterError

SOURCE: Final = "source"
TARGET: Final = "target"
PUBLISHER: Final = "publisher"
OPERATOR: Final = "operator"
PORT: Final = 8010
STREAM_ID: Final = 7
DIRECTORY: Final = Path("/archive")
CONFIG: Final = ArchiveConfig(
    term_length_bytes=64 << 10, segment_length_bytes=64 << 10, mtu_length_bytes=1408, low_space_threshold_bytes=0
)
SECOND: Final = 1_000_000_000
CALM_LIMIT_S: Final = 60
SLOW_DISK_NS: Final = 4_000_000
"""A sync takes this long on average: when the power fails there is something to lose."""


Main = Callable[[], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class Record:
    """What happened, as those who took part saw it; outlives every process."""

    recording_id: int | None = None
    sent_count: int = 0
    acknowledged: list[tuple[int, bytes]] = field(default_factory=list)
    """Where a message ends that is durable, and the message."""
    end_position: int | None = None
    """Where the recording ends, once everything is published and the recording has been stopped in order."""
    read: dict[str, list[tuple[int, bytes]]] = field(default_factory=dict)
    """What each reader got: where a message ends, and the message."""
    live_count: int = 0
    """How often a reader joined the live stream."""
    copy_end: int | None = None
    faults: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class ArchiveWorld:
    """The machines, what runs on them, and what goes wrong."""

    def __init__(self, seed: int, *, reader_count: int = 2, fault_time_s: float = 6.0) -> None:
        self.seed, self.fault_time_s = seed, fault_time_s
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, Random(f"{seed} network"))
        self.random = Random(f"{seed} faults")
        self.load = Random(f"{seed} load")
        self.record = Record()
        self.is_calm = False
        self._mains: dict[str, Main] = {
            SOURCE: lambda: self._serve(SOURCE),
            TARGET: lambda: self._serve(TARGET),
            PUBLISHER: self._publish,
            OPERATOR: self._copy,
        }
        for number in range(reader_count):
            self._mains[f"reader-{number}"] = self._reader(f"reader-{number}")
        self.machines = {name: self._make_machine(name) for name in self._mains}

    def __repr__(self) -> str:
        return f"<ArchiveWorld seed={self.seed} now={self.scheduler.now_ns / 1e9:.3f}s faults={self.record.faults}>"

    def _make_machine(self, name: str) -> Machine:
        machine = Machine(self.scheduler, self.network, Random(f"{self.seed} {name}"), name)
        machine.timing.mean_ns = SLOW_DISK_NS
        machine.on_exit = lambda error: self._on_exit(name, error)
        machine.on_error = lambda context: self.record.failures.append(f"{name}: {context}")
        return machine

    def _on_exit(self, name: str, error: BaseException | None) -> None:
        if error is not None:
            self.record.failures.append(f"{name} ended: {error!r}")

    # --- the run

    def run(self) -> Record:
        """Let everything happen; give what was seen, with everything that should not have been."""
        with _silent():
            for name in self.machines:
                self._start(name)
            self.scheduler.call_after(SECOND, self._do_harm)
            self.scheduler.run_until(self.scheduler.now_ns + int(self.fault_time_s * SECOND))
            self._calm_down()
            is_over = self.scheduler.run_until(
                self.scheduler.now_ns + CALM_LIMIT_S * SECOND,
                is_done=lambda: bool(self.record.failures) or self._is_over(),
            )
            if not is_over:
                self.record.failures.append(f"not over after {CALM_LIMIT_S} s without faults: {self._missing()}")
            self.record.failures += self._check()
            for machine in self.machines.values():
                machine.kill()
                machine.bury()
        return self.record

    def _is_over(self) -> bool:
        record = self.record
        end = record.end_position
        if end is None:
            return False
        return record.copy_end == end and all(read and read[-1][0] == end for read in record.read.values())

    def _missing(self) -> str:
        record = self.record
        ends = {name: read[-1][0] if read else None for name, read in record.read.items()}
        return f"end={record.end_position} copy={record.copy_end} readers={ends}"

    def _start(self, name: str) -> None:
        machine = self.machines[name]
        if machine.is_running:
            return
        if not machine.has_power:
            machine.regain_power()
        machine.start(self._mains[name])

    # --- what goes wrong

    def _do_harm(self) -> None:
        if self.is_calm:
            return
        harm = self.random.choice(
            [self._reset, self._reset, self._block, self._kill, self._lose_power, self._lose_power, self._hang]
        )
        harm()
        self.scheduler.call_after(int(self.random.uniform(0.02, 0.7) * SECOND), self._do_harm)

    def _reset(self) -> None:
        if self.network.transports:
            transport = self.random.choice([*self.network.transports])
            self.record.faults.append(f"reset {transport.address[0]}-{transport.peer_address[0]}")
            self.network.reset(transport)

    def _block(self) -> None:
        one, other = self.random.sample([*self.machines], 2)
        duration_ns = int(self.random.choice([0.1, 0.5, 12.0]) * SECOND)
        both = self.random.random() < 0.5
        self.record.faults.append(f"block {one}-{other} {duration_ns / 1e9} both={both}")
        for source, target in ((one, other), (other, one))[: 2 if both else 1]:
            self.network.block(source, target)
            self.scheduler.call_after(duration_ns, self.network.unblock, source, target)

    def _kill(self) -> None:
        name = self.random.choice([*self.machines])
        self.record.faults.append(f"kill {name}")
        self.machines[name].kill()
        self.scheduler.call_after(int(self.random.uniform(0.01, 0.8) * SECOND), self._start, name)

    def _lose_power(self) -> None:
        name = self.random.choice([SOURCE, TARGET])
        self.record.faults.append(f"lose power {name}")
        share = self.random.choice([0.0, 0.5, 1.0])
        self.machines[name].lose_power(lambda: self.random.random() < share)
        self.scheduler.call_after(int(self.random.uniform(0.01, 0.8) * SECOND), self._start, name)

    def _hang(self) -> None:
        name = self.random.choice([SOURCE, TARGET])
        self.record.faults.append(f"disk hangs {name}")
        self.machines[name].timing.stall_until_ns = self.scheduler.now_ns + int(self.random.uniform(0, 0.5) * SECOND)

    def _calm_down(self) -> None:
        self.is_calm = True
        self.network.unblock_all()
        for name in self.machines:
            self._start(name)

    # --- who takes part

    async def _serve(self, name: str) -> None:
        host = self.machines[name].host()
        archive = await Archive.launch(
            DIRECTORY,
            CONFIG,
            clock_ms=host.clock.epoch_time,
            file_system=host.file_system,
            make_worker=host.make_worker,
            monotonic_ns=host.clock.monotonic_ns,
            is_power_loss_possible=True,
        )
        archive.damage.on_failed_read = (  # type: ignore[method-assign]  # nothing damages these disks
            lambda error, *_: self.record.failures.append(f"{name}: {error!r}")
        )
        server = ArchiveServer(ServedArchive(archive, authorisation=AllowAll(), network=self.network))
        await server.start(Endpoint(name, PORT))
        await asyncio.get_running_loop().create_future()

    async def _again(self, attempt: Callable[[], Awaitable[bool]]) -> None:
        """Try until it is done; what breaks meanwhile is what all of this is about."""
        while True:
            try:
                if await attempt():
                    return
            except CorruptionError:
                raise
            except (ArchiveError, ClusterError, OSError):
                pass
            await asyncio.sleep(0.2)

    async def _publish(self) -> None:
        await self._again(self._publish_once)

    async def _publish_once(self) -> bool:
        record = self.record
        if record.end_position is not None:
            return True
        async with ArchiveClient.connect(f"{SOURCE}:{PORT}", network=self.network) as archive:
            if record.recording_id is None:
                found = await archive.list_recordings(stream_id=STREAM_ID)
                record.recording_id = found[0].recording_id if found else None
            opening = (
                archive.record("stream", stream_id=STREAM_ID)
                if record.recording_id is None
                else archive.extend(record.recording_id)
            )
            async with opening as publication:
                record.recording_id = publication.recording_id
                offered: deque[tuple[int, bytes]] = deque()
                while not self.is_calm or not record.acknowledged:
                    for _ in range(self.load.randrange(1, 6)):
                        message = self._next_message()
                        offered.append((await publication.offer(message), message))
                    await asyncio.sleep(self.load.expovariate(1 / 0.003))
                    self._note_acknowledged(offered, publication.recorded_position)
                self._note_acknowledged(offered, await publication.recorded())
        record.end_position = publication.position
        return True

    def _note_acknowledged(self, offered: deque[tuple[int, bytes]], recorded_position: int) -> None:
        while offered and offered[0][0] <= recorded_position:
            self.record.acknowledged.append(offered.popleft())

    def _next_message(self) -> bytes:
        """A message that says which it is; one in ten is longer than a frame."""
        number = self.record.sent_count
        self.record.sent_count += 1
        length = self.load.randrange(8, 5000 if self.load.random() < 0.1 else 400)
        return number.to_bytes(8, "little") * (length // 8)

    def _reader(self, name: str) -> Main:
        read = self.record.read.setdefault(name, [])

        def note_live(position: int) -> None:
            self.record.live_count += 1

        async def follow() -> bool:
            recording_id = self.record.recording_id
            if recording_id is None:
                return False
            async with ArchiveClient.connect(f"{SOURCE}:{PORT}", network=self.network) as archive:
                replay = archive.replay_merge(
                    recording_id, position=read[-1][0] if read else 0, on_live=note_live, reconnect_timeout_s=20
                )
                async for message in replay:
                    read.append((message.end_position, message.payload))
            return self._is_over()

        return lambda: self._again(follow)

    async def _copy(self) -> None:
        await self._again(self._copy_once)

    async def _copy_once(self) -> bool:
        recording_id = self.record.recording_id
        if recording_id is None:
            return False
        async with ArchiveClient.connect(f"{TARGET}:{PORT}", network=self.network) as archive:
            found = await archive.list_recordings(stream_id=STREAM_ID)
            copy = await archive.replicate(
                f"{SOURCE}:{PORT}",
                recording_id,
                dst_recording_id=found[0].recording_id if found else None,
                live=self.load.random() < 0.5,
            )
            self.record.copy_end = await copy.wait()
        return self._is_over()

    # --- what must hold

    def _check(self) -> list[str]:
        source, copy = self._content(SOURCE), self._content(TARGET)
        failures = []
        if source != copy:
            at = next((n for n, (a, b) in enumerate(zip(source, copy, strict=False)) if a != b), -1)
            failures.append(f"copy differs: lengths={len(source)},{len(copy)} first difference at {at}")
        recorded = self._messages(SOURCE)
        there = dict(recorded)
        lost = [end for end, message in self.record.acknowledged if there.get(end) != message]
        if lost:
            failures.append(f"acknowledged and not recorded: ends={lost[:3]} count={len(lost)}")
        for name, read in self.record.read.items():
            if read != recorded:
                at = next((n for n, (a, b) in enumerate(zip(read, recorded, strict=False)) if a != b), -1)
                failures.append(
                    f"{name} has read otherwise: {len(read)} of {len(recorded)} messages, different at {at}"
                )
        return failures

    def _reading(self, name: str) -> Iterator[Frame]:
        disk = self.machines[name].disk
        for entry in read_catalog(disk, DIRECTORY).entries:
            assert entry.descriptor is not None
            yield from FrameReader(DIRECTORY, entry.descriptor, file_system=disk)

    def _content(self, name: str) -> bytes:
        """Everything about every frame, header and payload."""
        return b"".join(repr(frame).encode() for frame in self._reading(name))

    def _messages(self, name: str) -> list[tuple[int, bytes]]:
        return [(message.end_position, message.payload) for message in MessageReader(self._reading(name))]


@contextmanager
def _silent() -> Iterator[None]:
    kept = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    try:
        yield
    finally:
        structlog.configure(**kept)


def run_seed(seed: int, **options: Any) -> Record:  # of the world
    """Run one seed."""
    return ArchiveWorld(seed, **options).run()


def main() -> None:
    """Run seeds from the command line: `python -m tests.simulation.archive_streams FIRST LAST`."""
    import sys

    first, last = (int(argument) for argument in sys.argv[1:3])
    for seed in range(first, last):
        record = run_seed(seed)
        print(
            f"seed={seed} faults={len(record.faults)} acknowledged={len(record.acknowledged)} sent={record.sent_count} "
            f"live={record.live_count} failures={record.failures}"
        )


if __name__ == "__main__":
    main()
