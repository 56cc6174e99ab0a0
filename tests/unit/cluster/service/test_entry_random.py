"""What a service may draw by chance: the same on every member, in every replay, and after a snapshot."""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random

import pytest

from tests.unit.cluster.service.log_writer import Rig
from trimaran.cluster.service.entry_random import EntryRandom
from trimaran.service_api import Cluster, LocalProtocolError
from trimaran.service_api.session import ClientSession

Draw = Callable[[Cluster], object]


def drawn(payloads: list[bytes], draw: Draw, *, only_last: bool = False) -> list[object]:
    """What a new member draws at each of these messages, or at the last one alone."""
    rig, found = Rig(), list[object]()
    rig.open()

    def on_message(session: ClientSession, payload: bytes) -> None:
        if not only_last or payload == payloads[-1]:
            found.append(draw(rig.agent.views[0]))

    rig.service.on_message = on_message
    for payload in payloads:
        rig.message(payload)
    rig.deliver()
    return found


@pytest.mark.parametrize(
    "draw",
    [
        lambda cluster: cluster.random.random(),
        lambda cluster: cluster.random.randbytes(8),
        lambda cluster: cluster.random.gauss(),
        lambda cluster: cluster.random.sample(range(1000), 10),
        lambda cluster: (cluster.uuid(), cluster.uuid()),
    ],
    ids=["random", "randbytes", "gauss", "sample", "uuid"],
)
def test_members_draw_the_same_at_an_entry_wherever_they_began(draw: Draw) -> None:
    """A member that starts from a snapshot has not drawn what the others drew before it."""
    payloads = [b"%d" % number for number in range(9)]

    expected = drawn(payloads, draw)

    assert len(set(map(repr, expected))) == len(payloads)
    assert drawn(payloads, draw) == expected
    assert drawn(payloads, draw, only_last=True) == expected[-1:]


def test_a_generator_that_was_kept_draws_what_the_entry_decides() -> None:
    """`self.random = cluster.random` would otherwise draw from where it stood at the entry before."""
    payloads, kept = [b"1", b"2", b"3"], list[Random]()

    def keep_and_draw(cluster: Cluster) -> float:
        kept.append(cluster.random)
        return kept[0].random()

    assert drawn(payloads, keep_and_draw) == drawn(payloads, lambda cluster: cluster.random.random())


def test_two_services_of_a_node_draw_different_numbers() -> None:
    class Entry:
        log_position, time = 96, 1_000

        def check_drawing(self) -> None:
            """Always legal."""

    assert EntryRandom(Entry(), 0).random() != EntryRandom(Entry(), 1).random()


def test_uuids_are_of_version_4() -> None:
    (found,) = drawn([b"one"], lambda cluster: cluster.uuid())

    assert getattr(found, "version", None) == 4


def test_drawing_outside_of_entries_is_refused_and_names_where_it_is_legal() -> None:
    view = Rig().agent.views[0]

    for draw in (view.random.random, view.random.gauss, view.uuid, lambda: view.random.choice("ab")):
        with pytest.raises(LocalProtocolError, match=r"log-ordered.*on_start"):
            draw()


@pytest.mark.parametrize("call", [lambda rng: rng.seed(1), lambda rng: rng.setstate(Random(1).getstate()), copy.copy])
def test_a_service_cannot_seed_or_copy_what_the_entry_seeds(call: Callable[[Random], object]) -> None:
    with pytest.raises(LocalProtocolError, match=r"cluster\.random"):
        call(Rig().agent.views[0].random)
