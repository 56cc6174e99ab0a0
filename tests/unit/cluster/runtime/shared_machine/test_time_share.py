"""A replay of a recording that grows leaves most of its loop's time to those whose messages are recorded."""

from __future__ import annotations

import asyncio
from itertools import count

from tests.unit.archive.streams import StreamBuilder, launch, small_config
from trimaran.archive.store.replay import ReplaySession
from trimaran.cluster.runtime.shared_machine.time_share import CREDIT_NS, GROWING_NS, LONGEST_PAUSE_NS, TimeShare

MS = 1_000_000
CHUNK = 1000


def test_a_chunk_takes_its_share_of_the_time_while_the_recording_grows() -> None:
    share = TimeShare(0.25, append_position=0)

    pauses = [
        share.pause_ns(CHUNK, 32, begin_ns=100 * MS, end_ns=102 * MS),
        share.pause_ns(CHUNK, 64, begin_ns=106 * MS, end_ns=107 * MS),
    ]

    assert pauses == [6 * MS - CREDIT_NS, 3 * MS]


def test_what_a_timer_was_late_is_made_up_for_as_far_as_there_is_credit() -> None:
    share = TimeShare(0.5, append_position=0)
    share.pause_ns(CHUNK, 32, begin_ns=0, end_ns=10 * MS)

    a_little_late = share.pause_ns(CHUNK, 64, begin_ns=21 * MS, end_ns=31 * MS)
    very_late = share.pause_ns(CHUNK, 96, begin_ns=500 * MS, end_ns=510 * MS)

    assert a_little_late == 9 * MS
    assert very_late == 10 * MS - CREDIT_NS


def test_nobody_is_waited_for_where_nothing_is_appended() -> None:
    share = TimeShare(0.25, append_position=32)

    at_rest = share.pause_ns(CHUNK, 32, begin_ns=0, end_ns=2 * MS)
    growing = share.pause_ns(CHUNK, 64, begin_ns=2 * MS, end_ns=4 * MS)
    just_after = share.pause_ns(CHUNK, 64, begin_ns=20 * MS, end_ns=22 * MS)
    long_after = share.pause_ns(CHUNK, 64, begin_ns=4 * MS + GROWING_NS, end_ns=6 * MS + GROWING_NS)

    assert (at_rest, long_after) == (0, 0)
    assert growing > 0
    assert just_after > 0


def test_a_replay_that_hardly_gains_on_the_recording_waits_for_nobody() -> None:
    share = TimeShare(0.25, append_position=0)

    assert share.pause_ns(CHUNK, CHUNK // 2 + 32, begin_ns=0, end_ns=2 * MS) == 0
    assert share.pause_ns(CHUNK, CHUNK + 32, begin_ns=2 * MS, end_ns=4 * MS) > 0
    assert repr(share) == "<TimeShare share=0.25 append_position=1032>"


async def test_replay_keeps_to_its_share_and_sends_all_the_same() -> None:
    """The clock goes on by 2 ms whenever it is read, so that each chunk takes so long."""
    ticks = count(0, 2 * MS)
    archive = await launch(config=small_config(), monotonic_ns=lambda: next(ticks))
    shared_until_ns: list[int] = []
    archive.make_replay_pace = lambda position: TimeShare(0.2, position, on_shared=shared_until_ns.append)
    recording = await archive.start_recording(
        stream_id=100, session_id=7, channel="trimaran:log", source_identity="member-0", preallocate=False
    )
    stream = StreamBuilder()
    written = b"".join(chunk for _ in range(50) for chunk in stream.message(1000))
    recording.append(written)
    recording.flush()
    await recording.wait_recorded(len(written))

    class GrowingSink:
        data = b""

        def write(self, data: bytes) -> None:
            self.data += data
            recording.append(stream.message(1)[0])

        async def drain(self) -> None:
            pass

    sink, loop = GrowingSink(), asyncio.get_running_loop()
    session = ReplaySession(
        archive, 0, position=0, stop_position=len(written), sink=sink, chunk_length_bytes=len(written) // 5
    )
    begin_s = loop.time()
    await session.run()

    assert sink.data == written
    assert loop.time() - begin_s > 0.03  # 5 chunks of 2 ms or more each, a fifth of the time
    assert shared_until_ns[-1] > archive.monotonic_ns() > shared_until_ns[-1] - 2 * GROWING_NS
    await recording.stop()


def test_chunk_that_stood_still_with_its_disk_is_not_made_up_for() -> None:
    """A copy that heard nothing for so long would begin again."""
    share = TimeShare(0.4, 0)

    assert share.pause_ns(1 << 20, 32, begin_ns=1_000 * MS, end_ns=2_500 * MS) == LONGEST_PAUSE_NS
