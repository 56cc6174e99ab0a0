"""The contents of an object store: names, and the manifests of backups and of cold storage."""

from __future__ import annotations

import os
from collections.abc import Iterator

from tests.fuzz.target import expect, target
from trimaran.archive.cold.manifest import ColdManifest, ColdSegment
from trimaran.archive.format.stored_names import NameKind, StoredName, take_name
from trimaran.cluster.operating.backup.manifest import (
    CATALOG_NAME,
    CLUSTER_ID_NAME,
    RECORDING_LOG_NAME,
    Manifest,
    StoredObject,
    decode_manifest,
    encode_file,
)
from trimaran.service_api.documents.document import read_document, seal_text
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
    for name in ("0-65536.rec", "archive.catalog"):
        yield f"archive/{name}".encode()
    for name in ("cluster/recording.log", "cluster/cluster-id", "member-2.json", "../../x", "archive/../x", "/etc/x"):
        yield name.encode()


@target(_name_seeds, length_limit=300)
def stored_names(data: bytes) -> None:
    """Names in manifests and listings of a store: refused, or below the place that they are joined to."""
    text = data.decode(errors="surrogateescape")
    try:
        name = take_name(text, *NameKind)
    except RemoteProtocolError as error:
        expect(str(error).isprintable() and str(error).isascii(), "a refusal can be shown", error=str(error))
        return
    _expect_inside(name)
    expect(sum(kind.fits(text) for kind in NameKind) == 1, "a name has one kind", name=name)


def _manifest_seeds() -> Iterator[bytes]:
    parts = [
        StoredObject(name=name, length=96, file_length=128, sha256=DIGEST, is_final=True)
        for name in map(StoredName, ("archive/0-0.rec", "archive/1-131072.rec"))
    ]
    files = {name: encode_file(b"x") for name in (CATALOG_NAME, RECORDING_LOG_NAME, CLUSTER_ID_NAME)}
    found = Manifest(
        cluster_id="3f9a0c12d45e77b1",
        log_started_ms=1,
        log_start_position=0,
        log_stop_position=224,
        snapshot_positions=[96],
        written_ms=2,
        objects=parts,
        files=files,
    )
    yield found.model_dump_json().encode()
    yield found.model_copy(update={"files": {"../../x": encode_file(b"x")}}).model_dump_json().encode()


@target(_manifest_seeds, length_limit=4096)
def backup_manifest(data: bytes) -> None:
    """The manifest of a backup: refused, or each file that it names lies below the backup, once, and is bounded."""
    try:
        found = decode_manifest(seal_text(data), "manifest.json")
    except RemoteProtocolError as error:
        expect(str(error).isprintable(), "a refusal can be shown", error=str(error))
        return
    names = [*(each.name for each in found.objects), *found.files]
    for name in names:
        _expect_inside(name)
    expect(len(names) == len({*names}), "each file is named once", names=names)
    expect(all(0 <= each.length <= each.file_length <= 1 << 30 for each in found.objects), "lengths are bounded")
    expect(decode_manifest(found.seal(), "") == found, "a manifest is read as it was written")


def _cold_seeds() -> Iterator[bytes]:
    segment = ColdSegment(base_position=65536, start_position=65536, length=65536, sha256=DIGEST)
    found = ColdManifest(cluster_id="3f9a0c12d45e77b1", member_id=1, segments=[segment])
    yield found.model_dump_json().encode()


@target(_cold_seeds, length_limit=4096)
def cold_manifest(data: bytes) -> None:
    """A member's manifest of cold storage: refused, or each object that it names lies below the cluster's place."""
    try:
        found = read_document(ColdManifest, seal_text(data))
    except RemoteProtocolError as error:
        expect(str(error).isprintable(), "a refusal can be shown", error=str(error))
        return
    for segment in found.segments:
        _expect_inside(segment.name)
