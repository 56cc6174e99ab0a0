"""The commands `backup` and `restore`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..options import DirectoryOption, JsonOption, KeepOption, PayloadOption
from ..statistics.report import finish
from .following import BackupParameters
from .following import run as run_backup
from .restoring import RestoreParameters
from .restoring import run as run_restore

StoreOption = Annotated[
    str, typer.Option(help="none, file, s3 (an S3 server in memory that the run starts), or the URL of a store.")
]


def backup(
    rate: Annotated[float, typer.Option(help="Messages a second, open loop.")] = 100_000,
    seconds: Annotated[float, typer.Option(help="For how long.")] = 10.0,
    payload: PayloadOption = 32,
    store: StoreOption = "none",
    interval: Annotated[float, typer.Option(help="Seconds from one copy to the store to the next.")] = 1.0,
    directory: DirectoryOption = None,
    keep: KeepOption = False,
    json: JsonOption = None,
) -> None:
    """A backup follows a busy cluster: the age of the newest message that could be restored, there and in a store."""
    parameters = BackupParameters(rate=rate, seconds=seconds, payload=payload, store=store, interval_s=interval)
    report = run_backup(parameters, directory=directory, keep=keep)
    finish(report, json, f"backup: 3 members, {rate:,g} messages a second of {payload} B, store {store}")


def restore(
    log_mib: Annotated[int, typer.Option(help="Length of the log, in MiB; 10240 for 10 GiB.")] = 256,
    payload: PayloadOption = 1_024,
    store: StoreOption = "none",
    directory: DirectoryOption = None,
    keep: KeepOption = False,
    json: JsonOption = None,
) -> None:
    """From a backup to a cluster that serves: restore, start, replay of the whole log."""
    parameters = RestoreParameters(log_mib=log_mib, payload=payload, store=store)
    report = run_restore(parameters, directory=directory, keep=keep)
    finish(report, json, f"restore: a log of {log_mib} MiB, messages of {payload} B, store {store}")
