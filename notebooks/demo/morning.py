"""A morning of web traffic, recorded by three members: what most notebooks look at.

Real processes on this machine run the service of `examples/quota_watch.py`; thirteen hours pass in some ten seconds.

    00:00  six front ends send 30,969 requests; a monitor comes every hour and asks how many were refused
    01:00  a client opens a session and is never heard of again
    03:00  a snapshot
    06:24  the leader is killed; another carries on
    06:54  the killed member is started again, and catches up
    09:00  a snapshot
    10:30  a power cut: first both followers are gone, then the leader, which by then has recorded requests that nobody
           else has; the clock stands still; the two followers come back and carry on without it

So the member that led at 10:30 has a tail in its log that never committed, and lacks all that came after.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Thread
from typing import Final, Self

from trimaran.cluster.settings.variables import NOTEBOOK_DATA_VARIABLE

from .cluster import MEMBER_COUNT, DemoCluster
from .traffic import MorningClock, Traffic, web_requests

LENGTH_S: Final = 10.0
"""How long the morning takes, beside starting, stopping and the power cut."""

BLACKOUT_S: Final = 0.25
"""How long the leader goes on alone: shorter than the heartbeat timeout, after which it would no longer lead."""

STORY_FILE: Final = "story.json"

Say = Callable[[str], None]


@dataclass(slots=True)
class Event:
    """Something that was done to the cluster."""

    what: str
    since_midnight_s: float
    """The time of the morning, in seconds."""
    member_ids: list[int]
    """To whom."""
    log_position: int | None = None
    """Of a snapshot: where in the log it was taken."""


@dataclass(slots=True)
class RecordedMorning:
    """Where the recording lies, and what its recorder knows of it without having read it."""

    directory: Path
    request_count: int = 0
    decisions: dict[str, int] = field(default_factory=dict)
    """What the clients were told: how often `allowed`, how often `denied`."""
    session_ids: dict[str, list[int]] = field(default_factory=dict)
    """By the name of the client."""
    events: list[Event] = field(default_factory=list)

    def member(self, member_id: int) -> Path:
        """A member's directory, with `archive` and `cluster` in it."""
        return self.directory / f"node-{member_id}"

    @property
    def members(self) -> dict[int, Path]:
        """Every member's directory."""
        return {member_id: self.member(member_id) for member_id in range(MEMBER_COUNT)}

    @property
    def lost_member_id(self) -> int:
        """Who led when the power was cut, and never came back."""
        return self.events[-1].member_ids[-1]

    @property
    def survivor_member_id(self) -> int:
        """The first of the two that have the whole morning."""
        return min(set(range(MEMBER_COUNT)) - {self.lost_member_id})

    def tell(self) -> str:
        """What happened, a line for each event."""
        return "\n".join(
            f"{int(event.since_midnight_s) // 3600:02}:{int(event.since_midnight_s) // 60 % 60:02}  {event.what}"
            for event in self.events
        )

    def save(self) -> None:
        """Write the story beside the recordings."""
        story = {name: value for name, value in asdict(self).items() if name != "directory"}
        (self.directory / STORY_FILE).write_text(json.dumps(story, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` wrote."""
        story = json.loads((directory / STORY_FILE).read_text(encoding="utf-8"))
        events = [Event(**event) for event in story.pop("events")]
        return cls(directory, events=events, **story)


def recorded_morning(directory: Path | None = None) -> RecordedMorning:
    """The recorded morning; it is made first, in about fifteen seconds, if it is not there.

    It lies in `notebooks/data/morning`, unless told otherwise. Delete that to have it made again.

    Raises:
        ClusterError: it could not be made; also TimeoutError, or a group of these.
    """
    directory = directory or data_directory() / "morning"
    if not (directory / STORY_FILE).is_file():
        in_thread(lambda: asyncio.run(_record(directory, _say)))
    return RecordedMorning.load(directory)


def data_directory() -> Path:
    """Where data of notebooks is kept: `notebooks/data`, or where the variable TRIMARAN_NOTEBOOK_DATA says."""
    return Path(os.environ.get(NOTEBOOK_DATA_VARIABLE) or Path(__file__).resolve().parents[1] / "data")


def in_thread(run: Callable[[], object]) -> None:
    """Run something that needs an event loop of its own: a notebook's thread has one already.

    Raises:
        BaseException: what it raised.
    """
    errors: list[BaseException] = []

    def carry_out() -> None:
        try:
            run()
        except BaseException as error:
            errors.append(error)

    thread = Thread(target=carry_out, name="trimaran-demo")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def _record(directory: Path, say: Say) -> None:
    """Record a morning into a directory beside, and put it into its place when it is whole."""
    unfinished = directory.with_name(f"{directory.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    cluster = DemoCluster(unfinished)
    try:
        say("starting three members ...")
        await cluster.start()
        morning = await _Recorder(unfinished, cluster, say).run()
        await cluster.wait_for_closed_sessions()
        await cluster.stop()
    finally:
        await cluster.close()
    morning.save()
    shutil.rmtree(directory, ignore_errors=True)
    unfinished.rename(directory)


class _Recorder:
    """Lets the morning pass."""

    def __init__(self, directory: Path, cluster: DemoCluster, say: Say) -> None:
        requests = web_requests()
        self._cluster = cluster
        self._say = say
        self._clock = MorningClock(asyncio.get_running_loop(), length_s=LENGTH_S)
        self._clock.limit_s = 3 * 3600
        self._traffic = Traffic(cluster.endpoints, self._clock, requests)
        self._morning = RecordedMorning(directory, request_count=len(requests))

    async def run(self) -> RecordedMorning:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._traffic.run(monitor_hours=range(13), silent_hour=1))
            group.create_task(self._act())
        self._morning.decisions = dict(self._traffic.decisions)
        self._morning.session_ids = self._traffic.session_ids
        self._say(f"{self._traffic.answered_count:,} requests answered, {self._traffic.decisions['denied']:,} refused")
        return self._morning

    async def _act(self) -> None:
        everybody = list(range(MEMBER_COUNT))
        await self._at(3, until=6.4)
        self._note("snapshot", everybody, await self._cluster.take_snapshot())
        await self._at(6.4, until=6.9)
        leader = await self._cluster.leader()
        await self._cluster.kill([leader])
        self._note("leader killed", [leader])
        await self._at(6.9, until=9)
        await self._cluster.restart([leader])
        self._note("member started again", [leader])
        await self._at(9, until=10.5)
        self._note("snapshot", everybody, await self._cluster.take_snapshot())
        await self._at(10.5, until=13)
        await self._cut_power()

    async def _cut_power(self) -> None:
        self._clock.stop()  # on a busy machine the member that was killed may not be back yet
        leader = await self._cluster.leader()
        self._clock.go_on()
        await asyncio.sleep(BLACKOUT_S)
        followers = [member_id for member_id in range(MEMBER_COUNT) if member_id != leader]
        await self._cluster.kill(followers)
        await asyncio.sleep(BLACKOUT_S)
        await self._cluster.kill([leader])
        self._clock.stop()
        self._note("power cut", [*followers, leader])
        await self._cluster.restart(followers)
        await self._cluster.leader(member_count=len(followers))
        self._clock.go_on()

    async def _at(self, hour: float, *, until: float) -> None:
        """Wait for a time; then let the morning go on, `until` the next thing is to be done."""
        await self._clock.wait_until(hour * 3600)
        self._clock.limit_s = until * 3600

    def _note(self, what: str, member_ids: list[int], log_position: int | None = None) -> None:
        event = Event(what, self._clock.since_midnight_s(), member_ids, log_position)
        self._morning.events.append(event)
        whom = "" if len(member_ids) == MEMBER_COUNT else f", member {member_ids[0]}"
        self._say(f"{self._traffic.answered_count:>6,} requests answered: {what}{whom}")
