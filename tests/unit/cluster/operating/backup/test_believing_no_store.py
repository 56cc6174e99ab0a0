"""A store that others can write: its manifest names files outside, is not a manifest, or promises too much."""

from __future__ import annotations

import base64
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.facts import has_facts
from tests.unit.cluster.operating.backup.backed_up import backed_up
from trimaran.archive.format.stored_names import NameKind
from trimaran.cluster.cli import main
from trimaran.cluster.operating.backup.fetching import fetch_backup
from trimaran.cluster.operating.backup.manifest import DRAFT_NAME, MANIFEST_NAME
from trimaran.cluster.operating.backup.shipping import ship_backup
from trimaran.cluster.operating.backup.stored_files import locate_backup
from trimaran.cluster.operating.backup.verification import verify_backup
from trimaran.service_api import ClusterError, ConfigurationError, RemoteProtocolError
from trimaran.service_api.documents.document import seal_text

NOW_MS = 1_800_000_000_000
Document = dict[str, Any]  # the manifest as its writer may have it


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of one segment."""
    directory = tmp_path_factory.mktemp("believing") / "backup"
    with backed_up() as (small, agent):
        agent.start()
        small.send(5)
        agent.catch_up()
        agent.write_to(directory)
    return directory


@pytest.fixture
def store(backup: Path, tmp_path: Path) -> Path:
    """A store with that backup, in a directory of its own: `outside` is beside it."""
    place = tmp_path / "a" / "store"
    ship_backup(backup, f"file://{place}", now_ms=NOW_MS)
    (tmp_path / "outside").write_text("mine")
    return place


def reseal(manifest: Document) -> bytes:
    """Write a manifest with the digest of what it says now: it is no secret how."""
    return seal_text(json.dumps({name: value for name, value in manifest.items() if name != "sha256"}).encode())


def rewrite(store: Path, change: Callable[[Document], object], name: str = MANIFEST_NAME) -> None:
    """Change the manifest as an attacker does who can write to the store."""
    found = json.loads((store / MANIFEST_NAME).read_bytes())
    change(found)
    (store / name).write_bytes(reseal(found))


def add_object(name: str) -> Callable[[Document], object]:
    return lambda manifest: manifest["objects"].append({**manifest["objects"][0], "name": name})


def add_file(name: str) -> Callable[[Document], object]:
    return lambda manifest: manifest["files"].update({name: base64.b64encode(b"theirs").decode()})


def with_first(**changes: object) -> Callable[[Document], object]:
    return lambda manifest: manifest["objects"][0].update(changes)


NAMES = ("../../outside", "{outside}", "archive/../../../outside", "archive/\x1b]0;x\x07.rec", "cluster/service.py", "")
CHANGES = {
    **{f"object {name!r}": (add_object, name) for name in NAMES},
    **{f"file {name!r}": (add_file, name) for name in NAMES},
}


@pytest.mark.parametrize(("kind", "name"), CHANGES.values(), ids=CHANGES)
def test_name_that_no_backup_has_is_refused_by_all_who_read_the_manifest(
    kind: Callable[[str], Callable[[Document], object]], name: str, store: Path, backup: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    rewrite(store, kind(name.replace("{outside}", str(outside))))
    url, target = f"file://{store}", tmp_path / "back"

    for read in (
        lambda: fetch_backup(url, target),
        lambda: [*verify_backup(url)],
        lambda: locate_backup(url),
        lambda: ship_backup(backup, url, now_ms=NOW_MS),
    ):
        with pytest.raises(RemoteProtocolError) as refused:
            read()
        assert str(refused.value).isprintable()
        assert has_facts(str(refused.value), str(store), "archive/RECORDING-POSITION.rec" if kind is add_object else "")

    assert outside.read_text() == "mine"
    assert not target.exists()
    assert {path.name for path in tmp_path.iterdir()} == {"a", "outside"}


def test_planted_belief_in_names_is_found(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plant of the rule: what the tests here look at is what the names would do."""
    rewrite(store, add_file("../outside"))
    monkeypatch.setattr(NameKind, "fits", lambda kind, text: True)

    fetch_backup(f"file://{store}", tmp_path / "back")

    assert (tmp_path / "outside").read_text() == "theirs"


@pytest.mark.parametrize("name", [MANIFEST_NAME, DRAFT_NAME])
def test_copy_removes_nothing_outside_of_the_store_that_a_manifest_names(
    name: str, store: Path, backup: Path, tmp_path: Path
) -> None:
    """Objects of the manifest before that the new one does not name are removed after a copy."""
    rewrite(store, add_object("../../outside"), name)

    with pytest.raises(RemoteProtocolError, match="name="):
        ship_backup(backup, f"file://{store}", now_ms=NOW_MS)

    assert (tmp_path / "outside").read_text() == "mine"


@pytest.mark.parametrize(
    "change",
    [
        with_first(file_length=1 << 40),
        with_first(length=1 << 30),
        with_first(sha256="\x1b[2J"),
        lambda manifest: manifest["objects"].append(manifest["objects"][0]),
        lambda manifest: manifest["files"].update({"cluster/cluster-id": "no base64!"}),
    ],
    ids=["file_length", "length", "sha256", "twice", "base64"],
)
def test_manifest_that_no_copy_writes_is_refused(
    change: Callable[[Document], object], store: Path, tmp_path: Path
) -> None:
    rewrite(store, change)

    for read in (lambda: fetch_backup(f"file://{store}", tmp_path / "back"), lambda: [*verify_backup(str(store))]):
        with pytest.raises(RemoteProtocolError) as refused:
            read()
        assert str(refused.value).isprintable()
        assert has_facts(str(refused.value), str(store / MANIFEST_NAME))


def test_store_without_a_manifest_is_no_backup_to_verify_either(store: Path, tmp_path: Path) -> None:
    """An attacker that changes an object can remove the manifest, too."""
    (store / MANIFEST_NAME).unlink()

    for read in (
        lambda: fetch_backup(f"file://{store}", tmp_path / "back"),
        lambda: [*verify_backup(f"file://{store}")],
    ):
        with pytest.raises(ConfigurationError, match=MANIFEST_NAME):
            read()


def test_object_that_is_longer_than_its_file_is_not_fetched(store: Path, tmp_path: Path) -> None:
    name = json.loads((store / MANIFEST_NAME).read_bytes())["objects"][0]["name"]
    with (store / name).open("r+b") as file:
        file.truncate(1 << 40)

    with pytest.raises(ClusterError) as refused:
        fetch_backup(f"file://{store}", tmp_path / "back")

    assert has_facts(str(refused.value), name, f"{1 << 40} bytes")
    assert not (tmp_path / "back").exists()


def test_commands_read_and_write_a_store_in_a_directory_without_fsspec(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    url, copied = f"file://{tmp_path}/store", tmp_path / "copied"
    shutil.copytree(backup, copied)

    for arguments in (
        ["ship", str(copied), url],
        ["ship", str(copied), url],
        ["verify", url],
        ["restore", "--from", url, "--members", "0=127.0.0.1:29500", "--directory", str(tmp_path / "new")],
    ):
        with pytest.raises(SystemExit) as ended:
            main(["backup", *arguments])
        assert not ended.value.code, (arguments, capsys.readouterr())

    assert (tmp_path / "new" / "node-0" / "archive" / "archive.catalog").exists()
