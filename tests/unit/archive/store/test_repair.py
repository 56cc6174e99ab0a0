"""Repairing the tail of a recording at start: 36 kinds of damage made on a recording of a real Aeron archive.

`stop` is what this archive decides: the stop position, or None when it refuses to start. Where that is not
what the real archive's start decides, `why` says why it is safer.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.unit.archive.streams import extract_sample, launch, load_truth, small_config
from trimaran.archive import Archive, CorruptionError
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.files.catalog import read_catalog
from trimaran.archive.reading.verify import verify_recording


class Verdict(NamedTuple):
    stop: int | None
    why: str = ""


TORN = "the checksum proves the last frame torn; the real start does not look inside a page"
EXPECTED = {
    "plain-01-clean": Verdict(40544),
    "plain-02-mid-message": Verdict(18304),
    "plain-03-straddle-second-page-empty": Verdict(None),
    "plain-04-straddle-second-page-partly-written": Verdict(24896),
    "plain-05-straddle-damaged-byte": Verdict(24896),
    "plain-06-straddle-complete": Verdict(24896),
    "plain-07-straddle-second-page-legitimately-zero": Verdict(None),
    "plain-08-in-page-payload-missing": Verdict(39584),
    "plain-09-in-page-payload-cut": Verdict(39584),
    "plain-10-negative-length-after-last": Verdict(39584),
    "plain-11-next-segment-empty": Verdict(40544, "the real start leaves a hole of zeros up to the empty segment"),
    "plain-12-file-shorter-at-frame-boundary": Verdict(39584),
    "plain-13-file-cut-inside-last-frame": Verdict(38624, "the real start keeps a frame the file does not hold"),
    "plain-14-no-segment-file": Verdict(0),
    "plain-15-nothing-written": Verdict(0),
    "plain-16-damaged-byte-in-the-middle": Verdict(40544),
    "plain-17-wrong-length-in-the-middle": Verdict(None, "valid frames follow; the real start cuts them off"),
    "plain-18-wrong-term-id-in-the-middle": Verdict(None, "valid frames follow; the real start does not look"),
    "crc-01-clean": Verdict(36224),
    "crc-02-mid-message": Verdict(20256),
    "crc-03-straddle-second-page-empty": Verdict(16256, "the checksum decides; the real start refuses"),
    "crc-04-straddle-second-page-partly-written": Verdict(16256, TORN),
    "crc-05-straddle-damaged-byte": Verdict(16256, TORN),
    "crc-06-straddle-complete": Verdict(16704),
    "crc-07-straddle-second-page-legitimately-zero": Verdict(25184),
    "crc-08-in-page-payload-missing": Verdict(35584, TORN),
    "crc-09-in-page-payload-cut": Verdict(35584, TORN),
    "crc-10-negative-length-after-last": Verdict(35840),
    "crc-11-next-segment-empty": Verdict(36224, "the real start leaves a hole of zeros up to the empty segment"),
    "crc-12-file-shorter-at-frame-boundary": Verdict(35840),
    "crc-13-file-cut-inside-last-frame": Verdict(35584, "the real start keeps a frame the file does not hold"),
    "crc-14-no-segment-file": Verdict(0),
    "crc-15-nothing-written": Verdict(0),
    "crc-16-damaged-byte-in-the-middle": Verdict(None, "valid frames follow; the real start does not look"),
    "crc-17-wrong-length-in-the-middle": Verdict(None, "no truth: the real tool ended with a memory fault"),
    "crc-18-wrong-term-id-in-the-middle": Verdict(None, "valid frames follow; the real start does not look"),
}  # fmt: skip


@pytest.fixture(scope="module")
def variants(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extract_sample("torn-variants", tmp_path_factory.mktemp("variants"))


@pytest.fixture(params=list(EXPECTED))
def variant(variants: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return Path(shutil.copytree(variants / request.param, tmp_path / request.param))


async def start(directory: Path) -> Archive:
    config = small_config(checksums=directory.name.startswith("crc"))
    return await launch(OsFileSystem(), directory, config=config)


def segments_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*.rec")}


def test_every_variant_has_a_verdict() -> None:
    assert set(EXPECTED) == set(load_truth("torn-variants"))


async def test_start_ends_the_recording_where_it_should(variant: Path) -> None:
    expected = EXPECTED[variant.name]
    before = segments_of(variant)

    if expected.stop is None:
        with pytest.raises(CorruptionError, match="recording_id=0 position="):
            await start(variant)
        assert segments_of(variant) == before
        return
    archive = await start(variant)
    await archive.aclose()

    entry = read_catalog(OsFileSystem(), variant).entries[0]
    assert entry.descriptor is not None
    assert entry.descriptor.stop_position == expected.stop
    assert not entry.stale_checksum
    assert verify_recording(OsFileSystem(), variant, entry).problems == []
    assert all(len(data) in (0, 65536) for data in segments_of(variant).values())


def test_verdicts_differ_from_the_real_start_only_with_a_reason() -> None:
    for name, truth in load_truth("torn-variants").items():
        if "archive_start" not in truth:
            continue
        started = truth["archive_start"]["result"] == "started"
        entry = truth["archive_start"]["after"]["catalog"]["entries"][0]
        real = entry["descriptor"]["stopPosition"] if started else None
        ours = EXPECTED[name]
        assert ours.stop == real or ours.why, name
        if ours.stop is not None and real is not None:
            assert ours.stop <= real, name


async def test_refusal_is_the_same_at_the_next_start(variants: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(variants / "crc-16-damaged-byte-in-the-middle", tmp_path / "crc-x"))

    for _ in range(2):
        with pytest.raises(CorruptionError, match=r"wrong checksum.*follows.*position="):
            await start(directory)


async def test_a_missing_segment_in_the_middle_is_corruption(tmp_path: Path) -> None:
    directory = extract_sample("torn", tmp_path) / "node0" / "archive"
    (directory / "0-131072.rec").unlink()

    with pytest.raises(CorruptionError, match=r"expected=0-131072\.rec"):
        await launch(OsFileSystem(), directory, config=small_config(checksums=False))


async def test_the_killed_member_ends_where_the_real_archive_ended_it(tmp_path: Path) -> None:
    directory = extract_sample("torn", tmp_path) / "node0" / "archive"

    archive = await launch(OsFileSystem(), directory, config=small_config(checksums=False))

    truth = load_truth("torn-node0")["after_archive_start"]
    assert [d.stop_position for d in archive.descriptors()] == [r["stopPosition"] for r in truth]
    await archive.aclose()
