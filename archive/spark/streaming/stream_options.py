"""The options of a stream: those of a batch read that make sense for one, and three of its own.

`startingPosition`, `maxBytesPerTrigger` and `commitFrom` are a stream's, and `tlsAuthorities`, `tlsCertificate`,
`tlsKey`, `tlsVerify`, `tlsSpiffePrefix` and `clusterId` for the members that `commitFrom` names; `path` may be a
comma-separated list of members' directories; `committed` is true unless told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ....service_api.cluster_id import parse_cluster_id
from ....service_api.endpoint import Endpoint
from ....service_api.errors import ConfigurationError
from ....service_api.tls import TlsSettings
from ...log.member_directory import locate
from ..source.options import (
    STREAM_OPTIONS,
    Committed,
    ReadMode,
    ReadOptions,
    parse_options,
    parse_position,
    parse_size,
)
from .stream_planner import DEFAULT_SPLIT_BYTES, EARLIEST, LATEST, UNBOUNDED, StreamSettings

DEFAULT_MAX_BATCH_BYTES: Final = 256 << 20
"""How much of the log is in a batch at most, unless `maxBytesPerTrigger` says otherwise."""

FRAME_ALIGNMENT: Final = 32

_REFUSED: Final[Mapping[str, str]] = {
    "startposition": "startingPosition, which holds for a new query only",
    "stopposition": "committed=POSITION, or a trigger of availableNow",
    "exceptpositions": "a batch read: it is for what read_log has from Parquet",
    "parquet": "a batch read: a stream follows what is being recorded",
}
"""Options of a batch read that a stream does not have, in lower case, and what to use instead."""


@dataclass(slots=True, frozen=True, kw_only=True)
class StreamOptions:
    """What a stream is asked for: how it is planned, and how its rows are read."""

    settings: StreamSettings
    read: ReadOptions
    max_batch_bytes: int


def parse_stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Read the options of a stream; keys in any case.

    Raises:
        ConfigurationError: an option is unknown, wrong, or none of a stream's; or options contradict each other.
    """
    given = {key.lower(): text.strip() for key, text in options.items()}
    for name, instead in _REFUSED.items():
        if name in given:
            raise ConfigurationError(f"no option of a stream: option={name!r} expected {instead}")
    read = parse_options(options, also=STREAM_OPTIONS)
    if "mode" in given and read.mode is not ReadMode.FAILFAST:
        raise ConfigurationError(f"mode={read.mode}: a stream leaves no frames out, expected FAILFAST")
    if read.all_recordings:
        raise ConfigurationError(
            "recordingId=all: a stream follows one recording, expected its id, or none for the log"
        )
    directories = _parse_path(read.path)
    if read.recording_id is not None and len(directories) > 1:
        raise ConfigurationError(
            f"recordingId={read.recording_id} with {len(directories)} directories: members give the log different ids, "
            "expected one directory, or no recordingId"
        )
    settings = StreamSettings(
        directories=directories,
        recording_id=read.recording_id,
        committed_position=_committed_position(read, is_given="committed" in given),
        commit_from=_parse_commit_from(given.get("commitfrom", "")),
        tls=_parse_tls(given),
        cluster_id=parse_cluster_id(given.get("clusterid", "")),
        starting_position=_starting_position(given.get("startingposition", EARLIEST)),
        is_by_message=read.messages,
        checksums=read.checksums,
        split_bytes=read.split_bytes or DEFAULT_SPLIT_BYTES,
    )
    if settings.commit_from and settings.committed_position is not None:
        raise ConfigurationError(
            f"committed={given['committed']} with commitFrom: commitFrom asks members for the commit "
            "position, expected committed=true"
        )
    limit = given.get("maxbytespertrigger")
    max_batch_bytes = DEFAULT_MAX_BATCH_BYTES if limit is None else parse_size("maxBytesPerTrigger", limit)
    return StreamOptions(settings=settings, read=read, max_batch_bytes=max_batch_bytes)


def _parse_path(text: str) -> tuple[Path, ...]:
    directories = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        if "://" in part and not part.startswith("file:"):
            raise ConfigurationError(
                f"path={part!r}: a log is followed where it is recorded, expected a local directory"
            )
        directories.append(locate(part).directory)
    if len(set(directories)) < len(directories):
        raise ConfigurationError(f"path={text!r} names a directory twice")
    return tuple(directories)


def _parse_commit_from(text: str) -> tuple[Endpoint, ...]:
    try:
        return tuple(Endpoint.parse(part.strip()) for part in text.split(",") if part.strip())
    except ConfigurationError as error:
        raise ConfigurationError(f"option commitFrom: {error}: the consensus endpoints of members") from None


def _parse_tls(given: Mapping[str, str]) -> TlsSettings | None:
    """Read the options of TLS; without any the environment's `TRIMARAN_TLS_*` count."""
    values = {name: given.get(f"tls{name}", "") for name in ("authorities", "certificate", "key", "verify")}
    values["spiffe_prefix"] = given.get("tlsspiffeprefix", "")
    return TlsSettings.of_values(values) or TlsSettings.of_environment()


def _committed_position(read: ReadOptions, *, is_given: bool) -> int | None:
    if not is_given or read.committed is Committed.BY_RECORDING_LOG:
        return None
    return UNBOUNDED if isinstance(read.committed, Committed) else read.committed


def _starting_position(text: str) -> int | str:
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    if not text.isascii() or not text.isdigit():
        raise ConfigurationError(f"option startingPosition: {text!r} expected earliest, latest or a position")
    position = parse_position("startingPosition", text)
    if position % FRAME_ALIGNMENT:
        raise ConfigurationError(f"option startingPosition: {text!r} expected a multiple of {FRAME_ALIGNMENT}")
    return position
