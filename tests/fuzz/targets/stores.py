"""The contents of an object store: names, and the indexes of those who write there."""

from __future__ import annotations

import os
from collections.abc import Iterator

from tests.fuzz.target import expect, target
from trimaran.archive.format.stored_names import NameKind, take_name
from trimaran.archive.stored.index import (
    CATALOG_NAME,
    CLUSTER_ID_NAME,
    RECORDING_LOG_NAME,
    BackupContents,
    StoredPart,
    StoredSegment,
    WriterIndex,
    encode_file,
    read_index,
)
from trimaran.service_api.documents.document import seal_text
from trimaran.service_api.errors import RemoteProtocolError

ROOT = "/root-of-a-store"
DIGEST = "0123456789abcdef" * 4


def _expect_inside(name: str) -> None:
    """Hold what each user of a name needs: joined to a place it is a file in it, and people can read it."""
    joined = os.path.join(ROOT, name)
    expect(os.path.normpath(joined) == joined != ROOT, "a name stays below its place", name=name)
    expect(joined.count("/") <= 3 and not name.startswith("/"), "a name has at most one folder", name=name)
    expect(name.isascii() and name.isprintable(), "a name can be shown", name=name)


def _name_seeds() -> Iterator[bytes]:
    for name in ("0-65536.rec", f"{65_536:019d}-{DIGEST}.rec", "member-2.json", "writing-backup-1.json", "member-2"):
        yield name.encode()
    for name in ("archive/archive.catalog", "cluster/recording.log", "cluster/cluster-id", "3f9a0c12d45e77b1"):
        yield name.encode()
    for name in ("pruning-0123456789abcdef.json", "../../x", "archive/../x", "/etc/x"):
        yield name.encode()


@target(_name_seeds, length_limit=300)
def stored_names(data: bytes) -> None:
    """Names in indexes and listings of a store: refused, or below the place that they are joined to."""
    text = data.decode(errors="surrogateescape")
    try:
        name = take_name(text, *NameKind)
    except RemoteProtocolError as error:
        expect(str(error).isprintable() and str(error).isascii(), "a refusal can be shown", error=str(error))
        return
    _expect_inside(name)
    expect(sum(kind.fits(text) for kind in NameKind) == 1, "a name has one kind", name=name)


def _index_seeds() -> Iterator[bytes]:
    segment = StoredSegment(base_position=0, start_position=0, length=65536, sha256=DIGEST)
    tail = StoredPart(
        kind="log", recording_id=0, base_position=65536, length=96, file_length=65536, sha256=DIGEST, cuts=(32, 64)
    )
    snapshot = tail.model_copy(update={"kind": "snapshot", "recording_id": 1, "base_position": 0, "cuts": ()})
    contents = BackupContents(
        log_recording_id=0,
        log_start_position=0,
        log_stop_position=65632,
        snapshot_positions=[96],
        written_ms=2,
        parts=[tail, snapshot],
        files={name: encode_file(b"x") for name in (CATALOG_NAME, RECORDING_LOG_NAME, CLUSTER_ID_NAME)},
    )
    of_member = WriterIndex(cluster_id="3f9a0c12d45e77b1", writer="member-1", segments=[segment])
    found = of_member.model_copy(update={"writer": "backup-1800000000000", "backup": contents})
    outside = contents.model_copy(update={"files": {"../../x": encode_file(b"x")}})
    for index in (of_member, found, found.model_copy(update={"backup": outside})):
        yield index.model_dump_json().encode()


@target(_index_seeds, length_limit=4096)
def store_index(data: bytes) -> None:
    """The index of a writer: refused, or what it names lies below the cluster's place, once, and is bounded."""
    try:
        found = read_index(seal_text(data), "indexes/member-1.json")
    except RemoteProtocolError as error:
        expect(str(error).isprintable(), "a refusal can be shown", error=str(error))
        return
    for segment in found.segments:
        _expect_inside(segment.name)
    paths = [*(file.path for file in found.files), *([] if found.backup is None else found.backup.files)]
    for name in (*paths, *(each.name for file in found.files for each in file.objects)):
        _expect_inside(name)
    expect(len(paths) == len({*paths}), "each file is named once", paths=paths)
    expect(all(0 <= file.length <= file.file_length <= 1 << 30 for file in found.files), "lengths are bounded")
    for file in found.files:
        lengths = [each.length for each in file.objects]
        expect(min(lengths) >= 0 and sum(lengths) == file.length, "objects are a file", file=file)
    expect(NameKind.WRITER.fits(found.writer), "a writer has the name of one", writer=found.writer)
    expect(read_index(found.seal(), "") == found, "an index is read as it was written")
