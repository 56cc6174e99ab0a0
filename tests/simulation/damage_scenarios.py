"""Directed scenarios of a disk that changes a bit of the log: of what was said, and of what kind of frame it is."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from trimaran.cluster.simulation.rules import expect
from trimaran.service_api.wire.frame import HEADER_LENGTH, TYPE_DATA, unpack_header

if TYPE_CHECKING:
    from .scenarios import Scene

_TYPE_OFFSET = 6
"""Of the type in a frame's header."""


def a_flipped_bit(scene: Scene) -> None:
    """A bit of an old entry flips while its member is down: it starts with what another member has there."""
    _flip_in_old_entry(scene, HEADER_LENGTH + 40)


def data_that_turned_into_padding(scene: Scene) -> None:
    """The same with the bit that says that a frame is no padding: a frame of padding is valid, and says nothing."""
    _flip_in_old_entry(scene, _TYPE_OFFSET)


def _flip_in_old_entry(scene: Scene, offset: int) -> None:
    scene.start()
    scene.add_flood("flood", 1_000)
    scene.run(0.3)
    scene.cluster.clients["flood"].kill()
    victim = scene.followers()[0]
    assert victim.node is not None
    path = victim.config.directory / "archive" / f"{victim.node.module.ctx.log_recording_id}-0.rec"
    scene.cluster.kill(victim.member_id)
    ends = sorted(scene.referee.delivered)
    begin = next(
        begin for begin, end in pairwise(ends) if begin > 70_000 and scene.referee.delivered[end][0] == "message"
    )
    header = unpack_header(victim.machine.disk.durable_read(path, HEADER_LENGTH, begin))
    expect(header.type == TYPE_DATA, "an entry begins where the one before it ends", header=header)
    byte = victim.machine.disk.durable_read(path, 1, begin + offset)[0]
    victim.machine.disk.damage(path, begin + offset, bytes([byte ^ 1]))
    scene.referee.damaged[victim.member_id] = None
    scene.cluster.start(victim.member_id)
    scene.run(5)
    expect(victim.is_running, "a member whose log is damaged gets what it has lost", member=victim)
    mended = victim.machine.disk.durable_read(path, 1, begin + offset)[0]
    expect(mended == byte, "what is mended is what was there", expected=byte, actual=mended)
