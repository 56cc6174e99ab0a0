"""Cold storage and scrubs are actors of the simulator, and what must hold of them is looked at."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import pytest

from trimaran.archive.stored.index import StoredSegment, WriterIndex
from trimaran.cluster.testing.simulation.backups.scrubs import SCRUB, has_scrubs
from trimaran.cluster.testing.simulation.rules.store_rules import COLD, STORE_URL, StoreRules
from trimaran.cluster.testing.simulation.run import Options, draw_settings, run_seed
from trimaran.cluster.testing.simulation.world.expect import RuleBroken

LOG = bytearray(b"log of the cluster, as far as it is committed")
PLACE = f"{STORE_URL}/00000000000000c1"
INDEX = f"{PLACE}/indexes/member-0.json"
SEGMENT = StoredSegment(base_position=0, start_position=0, length=16, sha256=sha256(LOG[:16]).hexdigest())
OBJECT = f"{PLACE}/{SEGMENT.name}"


def index_of(*segments: StoredSegment) -> bytes:
    found = WriterIndex(cluster_id="00000000000000c1", writer="member-0", segments=[*segments])
    return found.seal()


def test_segment_that_is_there_may_be_named() -> None:
    rules, objects = StoreRules(LOG), {OBJECT: bytes(LOG[:16]), INDEX: index_of(SEGMENT)}

    rules.on_object(INDEX, objects)

    assert rules.segment_count == 1


@pytest.mark.parametrize("content", [None, LOG[:8], bytes(16)])
def test_segment_that_is_not_there_whole_must_not_be_named(content: bytes | None) -> None:
    objects = {INDEX: index_of(SEGMENT)} | ({} if content is None else {OBJECT: bytes(content)})

    with pytest.raises(RuleBroken, match="the committed log"):
        StoreRules(LOG).on_object(INDEX, objects)


def test_segment_of_another_log_must_not_be_named() -> None:
    other = replace_digest(b"log of another one")

    with pytest.raises(RuleBroken, match="the committed log"):
        StoreRules(LOG).on_object(INDEX, {f"{PLACE}/{other.name}": b"log of another o", INDEX: index_of(other)})


def replace_digest(content: bytes) -> StoredSegment:
    return SEGMENT.model_copy(update={"sha256": sha256(content[:16]).hexdigest()})


def test_index_that_forgets_a_segment_breaks_a_rule() -> None:
    rules = StoreRules(LOG)
    rules.on_object(INDEX, {OBJECT: bytes(LOG[:16]), INDEX: index_of(SEGMENT)})

    with pytest.raises(RuleBroken, match="cold storage stays"):
        rules.on_object(INDEX, {INDEX: index_of()})


def test_object_that_is_named_must_not_go() -> None:
    rules = StoreRules(LOG)
    rules.on_object(INDEX, {OBJECT: bytes(LOG[:16]), INDEX: index_of(SEGMENT)})

    with pytest.raises(RuleBroken, match="the committed log"):
        rules.on_object(OBJECT, {INDEX: index_of(SEGMENT)})


def test_backup_may_go_with_what_it_alone_named() -> None:
    """What a member's index names stays, whoever named it, too."""
    rules, of_backup = StoreRules(LOG), INDEX.replace("member-0", "backup-1")
    index = WriterIndex(cluster_id="00000000000000c1", writer="backup-1", segments=[SEGMENT]).seal()
    rules.on_object(of_backup, {OBJECT: bytes(LOG[:16]), of_backup: index})

    rules.on_object(of_backup, {OBJECT: bytes(LOG[:16])})
    rules.on_object(OBJECT, {})

    rules.on_object(INDEX, {OBJECT: bytes(LOG[:16]), INDEX: index_of(SEGMENT)})
    with pytest.raises(RuleBroken, match="cold storage stays"):
        rules.on_object(INDEX, {OBJECT: bytes(LOG[:16])})


def test_seed_without_cold_storage_has_none() -> None:
    seed = next(seed for seed in range(100) if draw_settings(seed, None).cold_storage_url)

    with_cold, without = draw_settings(seed, None), draw_settings(seed, None, without=frozenset({COLD}))

    assert without == replace(with_cold, cold_storage_url="")


def test_scrubs_are_asked_for() -> None:
    seed = next(seed for seed in range(100) if has_scrubs(seed))
    options = Options(member_count=3, safety_timeouts=4)

    outcome = run_seed(seed, options)
    without = run_seed(seed, replace(options, without=frozenset({SCRUB})))

    assert (outcome.failure, without.failure) == (None, None)
    assert outcome.fired[SCRUB] > without.fired[SCRUB] == 0
