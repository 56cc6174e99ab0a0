"""`trimaran archive grep --log DIR` and `archive tail DIR`, held against logs that a real Aeron Cluster wrote."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.facts import has_facts
from tests.unit.archive.streams import extract_sample, load_truth
from trimaran.archive.format.catalog import CATALOG_FILE_NAME
from trimaran.archive.log.log_file import LogFile
from trimaran.archive.log.member_directory import MemberDirectory
from trimaran.archive.tool.output import EXIT_UNHEALTHY, EXIT_USAGE
from trimaran.cluster.cli.app import build_app, main
from trimaran.service_api.payloads import encode_payload

SAMPLES = [("single-node", "node0"), ("three-node-failover", "node1"), ("checksummed", "node0"), ("torn", "node0")]


def run(*arguments: str) -> Result:
    words = ["archive", *arguments]
    return CliRunner(env={"COLUMNS": "160"}).invoke(build_app(words), words, catch_exceptions=False)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    names = {name for name, _ in SAMPLES}
    return {name: extract_sample(name, tmp_path_factory.mktemp(name)) for name in names}


def entries(*arguments: str) -> list[dict[str, Any]]:
    result = run(*arguments, "-o", "jsonl")
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def log_messages(name: str, node: str) -> list[dict[str, Any]]:
    """What a real Aeron read there."""
    log = next(r for r in load_truth(f"{name}-{node}")["recordings"] if r["kind"] == "log")
    messages: list[dict[str, Any]] = log["messages"]
    return messages


@pytest.mark.parametrize(("name", "node"), SAMPLES)
def test_grep_of_the_log_gives_what_aeron_reads(samples: dict[str, Path], name: str, node: str) -> None:
    truth = log_messages(name, node)

    found = entries("grep", "--log", str(samples[name] / node))

    assert [(e["position"], e["end_position"]) for e in found] == [(m["position"], m["end_position"]) for m in truth]
    for entry, message in zip(found, truth, strict=True):
        assert entry == entry | message  # the rows of `archive dump --messages`, with more
        if entry["payload"] is not None:
            check_payload(entry, message)


def check_payload(entry: dict[str, Any], message: dict[str, Any]) -> None:
    text = entry["payload"]
    payload = text.encode() if entry["payload_encoding"] == "utf-8" else base64.b64decode(text)
    assert entry["payload_length"] == message["payload_length"] == len(payload)
    if "payload_hex" in message:
        assert payload.hex() == message["payload_hex"]
    else:
        assert hashlib.sha256(payload).hexdigest() == message["payload_sha256"]


@pytest.mark.parametrize(("name", "node"), SAMPLES)
@pytest.mark.parametrize("count", [0, 1, 7, 10_000])
def test_tail_is_the_end_of_the_log(samples: dict[str, Path], name: str, node: str, count: int) -> None:
    directory = str(samples[name] / node)

    assert entries("tail", directory, "-n", str(count)) == (
        entries("grep", "--log", directory)[-count:] if count else []
    )


def test_the_table_is_a_line_for_each_entry(samples: dict[str, Path]) -> None:
    result = run("grep", "--log", str(samples["single-node"] / "node0"), "--limit", "2")

    heading, first, second = result.stdout.splitlines()
    assert heading.split()[:6] == ["rec", "position", "term", "type", "session", "time"]
    assert first.split()[:6] == ["0", "0", "0", "NewLeadershipTermEvent", "-", "2026-11-21T04:01:22.961Z"]
    assert second.split()[:5] == ["0", "96", "0", "SessionOpenEvent", "1"]
    assert max(map(len, (heading, first, second))) <= 160


def test_the_log_can_be_narrowed_down(samples: dict[str, Path]) -> None:
    directory = str(samples["single-node"] / "node0")
    everything = entries("grep", "--log", directory)
    middle = everything[500]

    assert (
        entries("grep", "--log", directory, "--from-position", str(middle["position"]), "--limit", "3")
        == everything[500:503]
    )
    assert entries("grep", "--log", directory, "--to-position", str(middle["position"])) == everything[:500]
    opened = entries("grep", "--log", directory, "--type", "SessionOpenEvent", "--session", "2")
    assert [(e["name"], e["fields"]["clusterSessionId"]) for e in opened] == [("SessionOpenEvent", 2)]


def test_an_archive_without_a_recording_log_can_be_read_too(samples: dict[str, Path]) -> None:
    directory = samples["single-node"] / "node0"

    assert entries("tail", str(directory / "archive")) == entries("tail", str(directory))


def live_copy(source: Path, target: Path, *, segment_count: int) -> Path:
    """The directory of a member that runs: its recording has no stop position yet, and its log ends here."""
    shutil.copytree(source, target)
    archive = target / "archive"
    catalog = bytearray((archive / CATALOG_FILE_NAME).read_bytes())
    catalog[32 + 32 + 48 : 32 + 32 + 56] = (-1).to_bytes(8, "little", signed=True)
    (archive / CATALOG_FILE_NAME).write_bytes(catalog)
    for path in archive.glob("0-*.rec"):
        if int(path.stem.split("-")[1]) >= segment_count * 65536:
            path.unlink()
    return target


def test_a_log_that_grows_ends_where_nothing_is_written_yet(samples: dict[str, Path], tmp_path: Path) -> None:
    directory = live_copy(samples["single-node"] / "node0", tmp_path / "live", segment_count=3)
    last = directory / "archive" / "0-131072.rec"
    everything = entries("grep", "--log", str(directory))
    cut = everything[-5]
    begin = cut["position"] - 131072
    last.write_bytes(last.read_bytes()[:begin].ljust(65536, b"\0"))

    assert entries("grep", "--log", str(directory)) == everything[:-5]


@pytest.mark.parametrize("written", [4, 32, 40])
def test_what_is_half_written_is_the_end_and_no_error(samples: dict[str, Path], tmp_path: Path, written: int) -> None:
    directory = live_copy(samples["single-node"] / "node0", tmp_path / "live", segment_count=3)
    last = directory / "archive" / "0-131072.rec"
    everything = entries("grep", "--log", str(directory))
    begin = everything[-1]["position"] - 131072
    last.write_bytes(last.read_bytes()[: begin + written])  # the file, too, may not have its length yet

    assert entries("tail", str(directory), "-n", "3") == everything[-4:-1]


def test_following_goes_on_where_it_stopped(
    samples: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end moves from one file into the next; an entry is shown once, and only when it is whole."""
    source = samples["single-node"] / "node0"
    directory = live_copy(source, tmp_path / "live", segment_count=2)
    everything = entries("grep", "--log", str(live_copy(source, tmp_path / "whole", segment_count=4)))
    archive = directory / "archive"
    whole = {base: (source / "archive" / f"0-{base}.rec").read_bytes() for base in (65536, 131072, 196608)}
    begins = [entry["position"] - 65536 for entry in everything if 65536 < entry["position"] < 131072]
    steps: Iterator[tuple[int, int]] = iter(
        [
            (65536, begins[20] + 4),  # half a header
            (65536, begins[20] + 16),
            (65536, 65536),
            (131072, 0),
            (131072, 65536),
            (196608, 65536),
        ]
    )
    (archive / "0-65536.rec").write_bytes(whole[65536][: begins[10]].ljust(65536, b"\0"))

    def grow(interval_s: float) -> None:
        base, length = next(steps, (0, 0))
        if not base:
            raise KeyboardInterrupt
        (archive / f"0-{base}.rec").write_bytes(whole[base][:length].ljust(65536, b"\0"))

    monkeypatch.setattr("trimaran.archive.tool.commands.tail.pause", grow)
    found = entries("tail", str(directory), "-f", "-n", "2")

    first = next(n for n, entry in enumerate(everything) if entry["position"] == found[0]["position"])
    assert found == everything[first:]
    assert len(found) > 100


def test_damage_in_the_middle_is_named_by_file_recording_and_position(samples: dict[str, Path], tmp_path: Path) -> None:
    directory = live_copy(samples["single-node"] / "node0", tmp_path / "live", segment_count=4)
    before = entries("grep", "--log", str(directory))
    hit = next(entry for entry in before if entry["position"] >= 70_000)
    path = directory / "archive" / "0-65536.rec"
    data = bytearray(path.read_bytes())
    data[hit["position"] - 65536 + 20] ^= 0xFF  # the term id of a frame
    path.write_bytes(data)

    result = run("grep", "--log", str(directory), "-o", "jsonl")

    assert result.exit_code == EXIT_UNHEALTHY
    assert f"recording_id=0 position={hit['position']}: bad frame" in result.stderr
    assert f"position={hit['end_position']}; file={path}" in result.stderr
    shown = [json.loads(line) for line in result.stdout.splitlines()]
    assert shown == list(itertools.takewhile(lambda entry: entry != hit, before))


def test_a_stopped_log_that_lacks_its_end_is_damaged(samples: dict[str, Path], tmp_path: Path) -> None:
    directory = tmp_path / "node0"
    shutil.copytree(samples["single-node"] / "node0", directory)
    (directory / "archive" / "0-1179648.rec").unlink()

    result = run("tail", str(directory))

    assert result.exit_code == EXIT_UNHEALTHY
    assert has_facts(result.stderr, "position=1179648:", "segment")


def test_reading_changes_nothing(samples: dict[str, Path]) -> None:
    directory = samples["single-node"] / "node0"
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    before = [(path, path.stat().st_mtime_ns, path.stat().st_size) for path in files]

    run("grep", "--log", str(directory))
    run("tail", str(directory))

    assert [(path, path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(files)] == before


@pytest.mark.parametrize(
    "arguments", [["archive", "grep", "--log"], ["archive", "tail"], ["recording-log"], ["recovery-plan"]]
)
def test_a_directory_that_is_none_is_one_line_and_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, str(tmp_path / "absent")])

    errors = capsys.readouterr().err
    assert ended.value.code == EXIT_USAGE
    assert errors.startswith("trimaran: no")
    assert len(errors.splitlines()) == 1


def test_a_catalog_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / CATALOG_FILE_NAME).write_bytes(b"\xff" * 4096)

    result = run("grep", "--log", str(tmp_path))

    assert result.exit_code == EXIT_UNHEALTHY
    assert f"path={tmp_path / 'archive' / CATALOG_FILE_NAME}" in result.stderr


def test_following_as_one_document_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["log", "tail", "-f", "-o", "json"])

    assert ended.value.code == EXIT_USAGE
    assert "use -o jsonl" in capsys.readouterr().err


def test_payloads_are_text_where_they_can_be_shown() -> None:
    assert encode_payload("grüß".encode()) == ("grüß", "utf-8")
    assert encode_payload(b"") == ("", "utf-8")
    assert encode_payload(b"a\n") == ("YQo=", "base64")
    assert encode_payload(b"\xff\x00") == ("/wA=", "base64")


def test_the_end_of_a_log_is_found_without_its_stop_position(samples: dict[str, Path], tmp_path: Path) -> None:
    directory = live_copy(samples["three-node-failover"] / "node1", tmp_path / "live", segment_count=100)

    log = LogFile.find(MemberDirectory.find(directory))
    assert log.find_reach() == log.ending().position == 436416


def test_tail_begins_at_a_position_that_is_named(samples: dict[str, Path]) -> None:
    truth = log_messages("single-node", "node0")

    found = entries("tail", "--from", str(truth[3]["position"]), str(samples["single-node"] / "node0"))

    assert [e["position"] for e in found] == [m["position"] for m in truth[3:]]
