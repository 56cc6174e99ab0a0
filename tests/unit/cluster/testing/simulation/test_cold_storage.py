"""Cold storage and scrubs are actors of the simulator, and what must hold of them is looked at."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import pytest

from trimaran.archive.cold.manifest import ColdManifest, ColdSegment
from trimaran.cluster.testing.simulation.backups.scrubs import SCRUB, has_scrubs
from trimaran.cluster.testing.simulation.rules.cold_rules import COLD, COLD_URL, ColdRules
from trimaran.cluster.testing.simulation.run import Options, draw_settings, run_seed
from trimaran.cluster.testing.simulation.world.expect import RuleBroken

LOG = bytearray(b"log of the cluster, as far as it is committed")
PLACE = f"{COLD_URL}/00000000000000c1"
MANIFEST = f"{PLACE}/manifests/member-0.json"
SEGMENT = ColdSegment(base_position=0, start_position=0, length=16, sha256=sha256(LOG[:16]).hexdigest())
OBJECT = f"{PLACE}/{SEGMENT.name}"


def manifest_of(*segments: ColdSegment) -> bytes:
    found = ColdManifest(cluster_id="00000000000000c1", member_id=0, segments=[*segments])
    return found.seal()


def test_segment_that_is_there_may_be_named() -> None:
    rules, objects = ColdRules(LOG), {OBJECT: bytes(LOG[:16]), MANIFEST: manifest_of(SEGMENT)}

    rules.on_object(MANIFEST, objects)

    assert rules.segment_count == 1


@pytest.mark.parametrize("content", [None, LOG[:8], bytes(16)])
def test_segment_that_is_not_there_whole_must_not_be_named(content: bytes | None) -> None:
    objects = {MANIFEST: manifest_of(SEGMENT)} | ({} if content is None else {OBJECT: bytes(content)})

    with pytest.raises(RuleBroken, match="the committed log"):
        ColdRules(LOG).on_object(MANIFEST, objects)


def test_segment_of_another_log_must_not_be_named() -> None:
    other = replace_digest(b"log of another one")

    with pytest.raises(RuleBroken, match="the committed log"):
        ColdRules(LOG).on_object(MANIFEST, {f"{PLACE}/{other.name}": b"log of another o", MANIFEST: manifest_of(other)})


def replace_digest(content: bytes) -> ColdSegment:
    return SEGMENT.model_copy(update={"sha256": sha256(content[:16]).hexdigest()})


def test_manifest_that_forgets_a_segment_breaks_a_rule() -> None:
    rules = ColdRules(LOG)
    rules.on_object(MANIFEST, {OBJECT: bytes(LOG[:16]), MANIFEST: manifest_of(SEGMENT)})

    with pytest.raises(RuleBroken, match="cold storage stays"):
        rules.on_object(MANIFEST, {MANIFEST: manifest_of()})


def test_object_that_is_named_must_not_go() -> None:
    rules = ColdRules(LOG)
    rules.on_object(MANIFEST, {OBJECT: bytes(LOG[:16]), MANIFEST: manifest_of(SEGMENT)})

    with pytest.raises(RuleBroken, match="the committed log"):
        rules.on_object(OBJECT, {MANIFEST: manifest_of(SEGMENT)})


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
