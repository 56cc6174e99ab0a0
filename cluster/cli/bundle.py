"""`trimaran bundle FILE`: what all members say of themselves, in one archive for a report of a fault.

It has the status, errors, newest log lines, settings and metrics of each member, the status and health of the cluster,
the sessions that send the most, and the versions. `summary.txt` says what is missing, and why. Each text is written
without secrets: members leave them out of settings, and what looks like one is left out of everything here
(`documents.diagnosis.without_secrets`).

Exit status: 0 everything is there; 2 wrong usage; 3 no member answered; 10 something is missing. The file is written in
each case but 2.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ...archive.tool.output import EXIT_OK, EXIT_UNHEALTHY, EXIT_UNREACHABLE, fail, format_time, print_error
from ..documents.diagnosis import (
    ROW_LIMIT,
    SECRET,
    Diagnosis,
    DiagnosisRequest,
    DiagnosisTopic,
    is_secret_name,
    without_secrets,
)
from ..documents.inspection import SessionOrder, SessionsView
from ..settings.health_limits import HealthLimits
from .health import diagnose
from .shared.cluster_report import ClusterReport, ask_cluster
from .shared.diagnosing import diagnose_all
from .shared.inspection import UnreachableError, ask_for_best
from .shared.setting_flags import (
    AskedCluster,
    load_asked_cluster,
    load_groups_from_flags,
    load_health_limits_from_flags,
    with_health_flags,
)
from .shared.watching import TimeoutOption
from .version import version_lines

_MS_PER_S: Final = 1_000
_SESSION_LIMIT: Final = 100
"""Sessions that are told, those that send the most."""


@dataclass(slots=True)
class Bundle:
    """The files of an archive, and what is missing in it."""

    made_at_ms: int = 0
    files: dict[str, str] = field(default_factory=dict)
    """The text of each, by its name."""
    missing: list[str] = field(default_factory=list)
    """A line for each part that a member did not give."""
    answered_count: int = 0
    """Members that gave their status."""

    def add(self, name: str, document: object) -> None:
        """Add a document as JSON, without secrets."""
        self.files[name] = json.dumps(redact(document), indent=2) + "\n"

    def add_report(self, folder: str, report: ClusterReport, limits: HealthLimits) -> None:
        """Add what members say of the cluster, and what is wrong with it."""
        self.made_at_ms = report.asked_at_ms
        self.answered_count += report.answered_count
        self.add(f"{folder}status.json", report.model_dump(mode="json"))
        self.add(f"{folder}health.json", diagnose(report, limits).model_dump(mode="json"))
        for member in report.members:
            if member.status is None:
                self.missing.append(f"{folder}member-{member.member_id}: status: {member.outcome}: {member.detail}")
            else:
                self.add(f"{folder}member-{member.member_id}/status.json", member.status.model_dump(mode="json"))

    def add_part(self, folder: str, topic: DiagnosisTopic, answer: Diagnosis) -> None:
        """Add what one member says to one question."""
        parts = answer.model_dump(mode="json")
        if topic is DiagnosisTopic.METRICS:
            self.files[f"{folder}metrics.txt"] = without_secrets(answer.metrics)
        elif topic is DiagnosisTopic.LINES:
            self.files[f"{folder}log.jsonl"] = "".join(f"{json.dumps(redact(row))}\n" for row in parts["lines"])
        else:
            self.add(f"{folder}{topic.value}.json", parts[topic.value])

    def summary(self) -> str:
        """Say what is in the archive, and what is not."""
        missing = self.missing or ["nothing"]
        lines = [
            f"made at {format_time(self.made_at_ms)}",
            *version_lines(),
            "",
            "missing:",
            *(f"  {line}" for line in missing),
            "",
            "files:",
            *(f"  {name}" for name in self.files),
        ]
        return without_secrets("\n".join(lines)) + "\n"

    def write(self, path: Path) -> None:
        """Write the archive, whole or not at all, for the user alone."""
        buffer = io.BytesIO()
        root = path.name.removesuffix(".gz").removesuffix(".tar")
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for name, text in {"summary.txt": self.summary(), **self.files}.items():
                data = text.encode("utf-8", "backslashreplace")
                entry = tarfile.TarInfo(f"{root}/{name}")
                entry.size, entry.mode, entry.mtime = len(data), 0o600, self.made_at_ms // _MS_PER_S
                archive.addfile(entry, io.BytesIO(data))
        part = path.with_name(f"{path.name}.part")
        with open(part, "wb", opener=_open_for_user) as file:
            file.write(buffer.getvalue())
        part.replace(path)


@with_health_flags
def bundle(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The archive to write, such as incident.tar.gz.")],
    timeout: TimeoutOption = 2.0,
    **settings: Any,
) -> None:
    """Write what all members say of themselves into one archive: for a report of a fault, or to look at later.

    It has status, health, errors, newest log lines, settings and metrics. Asking takes an operator's role. Secrets are
    left out; read it before you give it away all the same, for log lines may hold what clients sent.

    Exit status 0: everything is there; 3: no member answered; 10: something is missing, as its summary.txt says.
    """
    if file.exists():
        fail(f"file={file}: exists already: expected a new file")
    found, limits = Bundle(), load_health_limits_from_flags(settings)
    for folder, cluster in _clusters(settings):
        asyncio.run(_collect(found, folder, cluster, limits, timeout))
    found.write(file)
    for line in found.missing:
        print_error(f"missing: {line}")
    typer.echo(f"written: {file}: {len(found.files) + 1} files, {len(found.missing)} parts missing")
    status = EXIT_UNREACHABLE if not found.answered_count else EXIT_UNHEALTHY if found.missing else EXIT_OK
    raise typer.Exit(status)


def redact(value: Any) -> Any:  # whatever JSON knows
    """Return a value of JSON without what is a secret by its name, or looks like one."""
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, Mapping):
        return {
            name: SECRET if isinstance(each, str) and each and is_secret_name(name) else redact(each)
            for name, each in value.items()
        }
    return [redact(each) for each in value] if isinstance(value, list | tuple) else value


def _clusters(settings: dict[str, Any]) -> Iterator[tuple[str, AskedCluster]]:
    """Give each group of the cluster with the folder of its files; the only one has none."""
    group_count, group_index = load_groups_from_flags(settings)
    if group_count == 1 or group_index is not None:
        yield "", load_asked_cluster(settings)
        return
    for index in range(group_count):
        yield f"group-{index}/", load_asked_cluster(settings | {"group": str(index)})


async def _collect(found: Bundle, folder: str, cluster: AskedCluster, limits: HealthLimits, timeout_s: float) -> None:
    """Ask every member of one group for everything; one question at a time, of all members at once."""
    report = await ask_cluster(cluster.endpoints, timeout_s, cluster_id=cluster.cluster_id, network=cluster.network)
    found.add_report(folder, report, limits)
    members = cluster._replace(endpoints={each.member_id: each.endpoint for each in report.members})
    try:
        sessions = await ask_for_best(members, SessionsView, timeout_s, limit=_SESSION_LIMIT, order=SessionOrder.BYTES)
        found.add(f"{folder}sessions.json", sessions.model_dump(mode="json"))
    except UnreachableError as error:
        found.missing.append(f"{folder}sessions: {error}")
    for topic in DiagnosisTopic:
        answers = await diagnose_all(members, DiagnosisRequest(topic=topic, limit=ROW_LIMIT), timeout_s)
        for member_id, answer in answers.items():
            name = f"{folder}member-{member_id}"
            if isinstance(answer, Diagnosis):
                found.add_part(f"{name}/", topic, answer)
            else:
                found.missing.append(f"{name}: {topic.value}: {answer.outcome}: {answer.detail}")


def _open_for_user(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
