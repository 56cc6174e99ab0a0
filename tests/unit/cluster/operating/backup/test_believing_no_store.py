"""A store that others can write: its index names files outside, is not an index, or promises too much."""

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
from tests.unit.cluster.operating.backup.backed_up import LOG_SETTINGS, backed_up
from trimaran.archive.format.stored_names import NameKind
from trimaran.archive.log.member_directory import MemberDirectory
from trimaran.cluster.cli import main
from trimaran.cluster.operating.backup.fetching import fetch_backup
from trimaran.cluster.operating.backup.shipping import ship_backup
from trimaran.cluster.operating.backup.verification import verify_backup
from trimaran.service_api import ConfigurationError, RemoteProtocolError
from trimaran.service_api.documents.document import seal_text

NOW_MS = 1_800_000_000_000
Document = dict[str, Any]  # the index as its writer may have it


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
    ship_backup(backup, f"file://{place}", clock_ms=lambda: NOW_MS)
    (tmp_path / "outside").write_text("mine")
    return place


def index_of(store: Path) -> Path:
    """The file of the only index."""
    (path,) = store.glob("*/indexes/backup-*.json")
    return path


def rewrite(store: Path, change: Callable[[Document], object]) -> None:
    """Change the index as an attacker does who can write to the store: it is no secret how the digest is made."""
    path = index_of(store)
    found = json.loads(path.read_bytes())
    change(found)
    path.write_bytes(seal_text(json.dumps({name: value for name, value in found.items() if name != "sha256"}).encode()))


def add_file(name: str) -> Callable[[Document], object]:
    return lambda index: index["backup"]["files"].update({name: base64.b64encode(b"theirs").decode()})


def with_part(**changes: object) -> Callable[[Document], object]:
    return lambda index: index["backup"]["parts"][0].update(changes)


NAMES = ("../../outside", "{outside}", "archive/../../../outside", "archive/\x1b]0;x\x07.rec", "cluster/service.py", "")


@pytest.mark.parametrize("name", NAMES)
def test_name_that_no_backup_has_is_refused_by_all_who_read_the_index(
    name: str, store: Path, backup: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    rewrite(store, add_file(name.replace("{outside}", str(outside))))
    url, target = f"file://{store}", tmp_path / "back"

    for read in (
        lambda: fetch_backup(url, target),
        lambda: [*verify_backup(url)],
        lambda: MemberDirectory.find(url),
        lambda: ship_backup(backup, url, clock_ms=lambda: NOW_MS),
    ):
        with pytest.raises(RemoteProtocolError) as refused:
            read()
        assert str(refused.value).isprintable()
        assert has_facts(str(refused.value), str(store))

    assert outside.read_text() == "mine"
    assert not target.exists()
    assert {path.name for path in tmp_path.iterdir()} == {"a", "outside"}


def test_planted_belief_in_names_is_found(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plant of the rule: what the tests here look at is what the names would do."""
    rewrite(store, add_file("../outside"))
    monkeypatch.setattr(NameKind, "fits", lambda kind, text: True)

    fetch_backup(f"file://{store}", tmp_path / "back")

    assert (tmp_path / "outside").read_text() == "theirs"


@pytest.mark.parametrize(
    "change",
    [
        with_part(file_length=1 << 40),
        with_part(length=1 << 30),
        with_part(sha256="\x1b[2J"),
        with_part(recording_id=-1),
        with_part(kind="other"),
        lambda index: index["backup"]["parts"].append(index["backup"]["parts"][0]),
        lambda index: index["backup"]["files"].update({"cluster/cluster-id": "no base64!"}),
        lambda index: index.update(writer="../../outside"),
        lambda index: index.update(writer="member-1"),
        lambda index: index.update(cluster_id="0000000000000001"),
    ],
    ids=["file_length", "length", "sha256", "id", "kind", "twice", "base64", "writer", "other writer", "other cluster"],
)
def test_index_that_no_copy_writes_is_refused(
    change: Callable[[Document], object], store: Path, tmp_path: Path
) -> None:
    rewrite(store, change)
    url = f"file://{store}"

    for read in (lambda: fetch_backup(url, tmp_path / "back"), lambda: [*verify_backup(url)]):
        with pytest.raises(RemoteProtocolError) as refused:
            read()
        assert str(refused.value).isprintable()
        assert has_facts(str(refused.value), str(index_of(store)))


def test_store_without_an_index_is_no_backup_to_verify_either(store: Path, tmp_path: Path) -> None:
    """An attacker that changes an object can remove the index, too."""
    index_of(store).unlink()
    url = f"file://{store}"

    for read in (lambda: fetch_backup(url, tmp_path / "back"), lambda: [*verify_backup(url)]):
        with pytest.raises(ConfigurationError, match="no backup"):
            read()


def test_of_an_object_that_is_longer_than_its_file_only_what_is_named_is_fetched(store: Path, tmp_path: Path) -> None:
    (tail,) = store.glob("*/backup-*/0-0.rec")
    with tail.open("r+b") as file:
        file.truncate(1 << 40)

    fetch_backup(f"file://{store}", tmp_path / "back")

    assert (tmp_path / "back" / "archive" / "0-0.rec").stat().st_size == LOG_SETTINGS.segment_length_bytes


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
