"""Whatever a command writes is for its user alone: directories 0700, files 0600, also where the umask allows more.

What a member writes while it runs, and what it makes of a directory that others could read, is in `test_damage`.
"""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.places import ROOT
from tests.system.forked_command import commands_on_path
from tests.system.guide import SHORT_LOGS
from tests.unit.archive.streams import extract_sample
from tests.waiting import patient
from trimaran.archive.net.client import ArchiveClient
from trimaran.cluster.settings.variables import clean_environment

pytestmark = pytest.mark.slow

TIMEOUT_S = 170.0
UMASK: Final = 0o022
"""What most systems give their users: everybody may read."""


class Row(NamedTuple):
    """One command, and what it writes."""

    command: str
    writes: tuple[str, ...]


SERVICE: Final = f"access_quota:AccessQuota --service-dir {ROOT / 'examples'}"

ROWS: Final = (
    Row("up --once --tls --members 1 --dir up", ("up",)),
    Row("demo --no-kill-leader --requests requests.tsv --dir demo --json demo.json", ("demo", "demo.json")),
    Row("certs init certs", ("certs",)),
    Row("certs issue certs client/importer", ("certs",)),
    Row("secrets add secrets ops", ("secrets",)),
    Row("archive export up/node-0 --to frames --format jsonl", ("frames",)),
    Row("archive export up/node-0 --to messages --messages", ("messages",)),
    Row("archive export-aeron up/node-0 aeron", ("aeron",)),
    Row("archive import single-node/node0 --to imported", ("imported",)),
    Row("replay demo/node-0 --service SERVICE --outputs outputs --state state", ("outputs", "state")),
    Row("report up/node-0 -o page.html", ("page.html",)),
    Row("sim --seeds 1 --length 1 --operations 5 --trace-file trace", ("trace",)),
)
GIVEN: Final = ("requests.tsv", "single-node", "run")
"""What the test itself makes."""


def modes_in(path: Path) -> dict[str, int]:
    """The permissions of a path and of all that is in it; links have none of their own."""
    found = (path, *path.rglob("*"))
    return {
        str(one.relative_to(path.parent)): stat.S_IMODE(one.stat().st_mode) for one in found if not one.is_symlink()
    }


def open_to_others(path: Path) -> dict[str, str]:
    """What is not as it should be, with its mode."""
    return {
        name: f"{mode:04o}"
        for name, mode in modes_in(path).items()
        if mode != (0o700 if (path.parent / name).is_dir() else 0o600)
    }


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An empty directory that everybody may read."""
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(0o755)
    return place


@pytest.fixture
def environment(place: Path) -> dict[str, str]:
    (place / "run").mkdir(mode=0o700)
    own = clean_environment()
    return {**own, "XDG_RUNTIME_DIR": str(place / "run")}


def test_what_commands_write_is_for_their_user_alone(place: Path, environment: dict[str, str]) -> None:
    extract_sample("single-node", place)
    (place / "requests.tsv").write_text(
        "host\ttime\turl\n" + "".join(f"host-{i % 7}\t{807256800 + i}\t/{i}\n" for i in range(200))
    )

    for row in ROWS:
        words = row.command.replace("SERVICE", SERVICE).split()
        result = subprocess.run(
            [commands_on_path() / "trimaran", *words],
            cwd=place,
            env={**environment, **SHORT_LOGS},
            umask=UMASK,
            input="a secret of somebody\n",
            capture_output=True,
            text=True,
            timeout=patient(TIMEOUT_S),
            check=False,
        )
        assert result.returncode == 0, f"{row.command}\n{result.stdout}{result.stderr}"
        assert {name: open_to_others(place / name) for name in row.writes} == {name: {} for name in row.writes}

    # Every command is in the table with all that it writes.
    assert {path.name for path in place.iterdir()} == {*GIVEN, *(name for row in ROWS for name in row.writes)}
    assert open_to_others(place / "run") == {}


@contextmanager
def serving(module: str, place: Path, environment: dict[str, str]) -> Iterator[str]:
    """An archive that is served by a process: its endpoint."""
    command = [sys.executable, "-m", *module.split(), "serve", "served", "--port=0", "--term-length=65536"]
    with subprocess.Popen(
        command, cwd=place, env=environment, umask=UMASK, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().removeprefix("serving on ").split()[0]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(patient(30))


@pytest.mark.parametrize("module", ["trimaran archive", "trimaran.archive"])
async def test_what_a_served_archive_writes_is_for_its_user_alone(
    place: Path, environment: dict[str, str], module: str
) -> None:
    with serving(module, place, environment) as endpoint:
        async with ArchiveClient.connect(endpoint) as client, client.record("c", stream_id=7) as publication:
            await publication.offer(b"what a client sent")
            await publication.recorded()

            assert open_to_others(place / "served") == {}
            assert len(modes_in(place / "served")) > 2

    assert open_to_others(place / "served") == {}


def test_the_test_itself_sees_what_others_may_read(place: Path) -> None:
    (place / "sub").mkdir()
    (place / "sub").chmod(0o750)
    (place / "sub" / "file").touch()
    (place / "sub" / "file").chmod(0o644)

    assert open_to_others(place / "sub") == {"sub": "0750", "sub/file": "0644"}
