"""The demo's input files."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from examples.access_quota import Request
from trimaran.cluster.cli.demo.request_file import load_messages
from trimaran.cluster.cli.shared.examples import REQUESTS_FILE, examples_directory
from trimaran.service_api.errors import ConfigurationError

TABLE = "host\tlogname\ttime\turl\na.example\t-\t807256800\t/x\nb.example\t-\t807256801\t/y\n"


def encode(host: str, time_s: int, url: str) -> bytes:
    return Request(host, time_s, url).encode()


@pytest.mark.parametrize("compressed", [False, True])
def test_requests_are_read_plain_or_gzipped(tmp_path: Path, compressed: bool) -> None:
    file = tmp_path / "requests"
    file.write_bytes(gzip.compress(TABLE.encode()) if compressed else TABLE.encode())

    assert load_messages(file, encode) == [b"a.example\t807256800\t/x", b"b.example\t807256801\t/y"]


def test_the_example_data_is_a_day_of_real_requests() -> None:
    messages = load_messages(examples_directory() / "data" / REQUESTS_FILE, encode)

    assert len(messages) == 30_969
    assert messages[0] == b"pppa006.compuserve.com\t807256800\t/images/launch-logo.gif"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "lacks columns"),
        (b"host\turl\n", "missing=['time']"),
        (b"host\ttime\turl\n", "has no requests"),
        (b"host\ttime\turl\nh\tnoon\t/\n", "bad line: file=FILE line=2"),
        (b"host\ttime\turl\nh\t1\t/\nh\n", "bad line: file=FILE line=3"),
        (b"\x1f\x8b\x08cut short", "cannot be read"),
    ],
)
def test_another_form_is_one_clear_line(tmp_path: Path, data: bytes, expected: str) -> None:
    file = tmp_path / "requests.tsv"
    file.write_bytes(data)

    with pytest.raises(ConfigurationError) as caught:
        load_messages(file, encode)

    assert expected.replace("FILE", str(file)) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"requests file.*read"):
        load_messages(tmp_path / "absent.tsv", encode)
