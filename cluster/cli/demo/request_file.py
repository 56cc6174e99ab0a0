"""The demo's input: web requests from a table of tab separated values, plain or gzipped.

The first line names the columns; host, time (epoch seconds) and url are read, others are passed over.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from ....service_api.errors import ConfigurationError

COLUMNS: Final = ("host", "time", "url")
_GZIP_MAGIC: Final = b"\x1f\x8b"

EncodeRequest = Callable[[str, int, str], bytes]
"""(host, time_s, url) to a request to the service."""


def load_messages(file: Path, encode: EncodeRequest) -> list[bytes]:
    """Read every request and encode it.

    Raises:
        ConfigurationError: the user's: the file cannot be read, or a line is not of that form.
    """
    messages = [encode(host, time_s, url) for host, time_s, url in _rows(file)]
    if not messages:
        raise ConfigurationError(f"requests file has no requests: file={file}")
    return messages


def _rows(file: Path) -> Iterator[tuple[str, int, str]]:
    lines = _text(file).split("\n")
    names = lines[0].rstrip("\r").split("\t")
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise ConfigurationError(
            f"requests file lacks columns: file={file} missing={missing} expected a first line of names"
        )
    host_at, time_at, url_at = (names.index(name) for name in COLUMNS)
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        values = line.rstrip("\r").split("\t")
        try:
            yield values[host_at], int(values[time_at]), values[url_at]
        except (IndexError, ValueError) as error:
            raise ConfigurationError(
                f"requests file has a bad line: file={file} line={number} expected {len(names)} columns, "
                f"time in epoch seconds"
            ) from error


def _text(file: Path) -> str:
    try:
        data = file.read_bytes()
        if data.startswith(_GZIP_MAGIC):
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigurationError(f"requests file cannot be read: file={file} reason={error}") from error
    return data.decode("utf-8", errors="replace")
