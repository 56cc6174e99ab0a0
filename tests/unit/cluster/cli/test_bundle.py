"""`trimaran bundle`: everything of every member in one archive, what is missing, and no secret."""

from __future__ import annotations

import json
import stat
import tarfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from typer.testing import CliRunner, Result

from tests.facts import has_facts
from tests.unit.cluster.cli.answers import member_status
from tests.unit.cluster.cli.fake_member import FakeMember
from tests.unit.cluster.cli.shared.test_inspection import sessions_view
from tests.unit.cluster.cli.test_member_log import error_row, line_row
from tests.unit.cluster.cli.test_operations import GONE
from trimaran.archive.tool.output import EXIT_UNHEALTHY, EXIT_UNREACHABLE, EXIT_USAGE
from trimaran.cluster.cli.app import build_app
from trimaran.cluster.documents.diagnosis import Diagnosis
from trimaran.service_api.documents.document import Refusal
from trimaran.service_api.documents.member_status import ColdStorageStatus, MemberStatus
from trimaran.service_api.types import (
    DIAGNOSIS_STREAM_ID,
    INSPECTION_STREAM_ID,
    STATUS_STREAM_ID,
)

T0 = 1_700_000_000_000
PARTS = {"status.json", "errors.json", "log.jsonl", "settings.json", "metrics.txt"}
PLANTED = "planted-secret"


def answers(status: MemberStatus, **parts: object) -> dict[int, BaseModel]:
    document = {
        "answered_by": status.member_id,
        "errors": [error_row("service.failed", T0)],
        "lines": [line_row("session.opened", T0)],
        "settings": {"term_length_bytes": "64MiB"},
        "metrics": "trimaran_uptime 1\n",
        **parts,
    }
    return {
        STATUS_STREAM_ID: status,
        DIAGNOSIS_STREAM_ID: Diagnosis.model_validate(document),
        INSPECTION_STREAM_ID: sessions_view(4, 5).model_copy(update={"answered_by": status.member_id}),
    }


def bundle(file: Path, *members: Mapping[int, BaseModel], gone: bool = False) -> Result:
    with ExitStack() as stack:
        found = [stack.enter_context(FakeMember(number, each)).members for number, each in enumerate(members)]
        arguments = ["bundle", str(file), "--members", "|".join([*found, *([GONE] if gone else [])])]
        return CliRunner(env={"COLUMNS": "200"}).invoke(build_app(["bundle"]), arguments)


def files_of(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as archive:
        entries = {entry.name.partition("/")[2]: archive.extractfile(entry) for entry in archive.getmembers()}
        return {name: content.read() for name, content in entries.items() if content is not None}


LEADER = member_status(0, state="LEADER", leader=0)
FOLLOWER = member_status(1, leader=0)


def test_everything_of_every_member_is_in_the_archive(tmp_path: Path) -> None:
    result = bundle(tmp_path / "incident.tar.gz", answers(LEADER), answers(FOLLOWER))

    files = files_of(tmp_path / "incident.tar.gz")
    assert result.exit_code == 0, result.output
    assert set(files) == {
        *("summary.txt", "status.json", "health.json", "sessions.json"),
        *(f"member-{number}/{part}" for number in (0, 1) for part in PARTS),
    }
    assert has_facts(files["summary.txt"].decode(), "trimaran ", "commit ", "missing:\n  nothing", "member-1/log.jsonl")
    assert json.loads(files["status.json"])["leader_member_id"] == 0
    assert json.loads(files["member-1/errors.json"])[0]["event"] == "service.failed"
    assert json.loads(files["member-0/log.jsonl"])["event"] == "session.opened"
    assert json.loads(files["member-0/settings.json"]) == {"term_length_bytes": "64MiB"}
    assert files["member-0/metrics.txt"] == b"trimaran_uptime 1\n"
    assert len(json.loads(files["sessions.json"])["sessions"]) == 2
    assert stat.S_IMODE((tmp_path / "incident.tar.gz").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["incident.tar.gz"]


def test_what_a_member_does_not_give_is_named(tmp_path: Path) -> None:
    result = bundle(tmp_path / "b.tgz", answers(LEADER), answers(FOLLOWER), gone=True)

    summary = files_of(tmp_path / "b.tgz")["summary.txt"].decode()
    assert result.exit_code == EXIT_UNHEALTHY
    for part in ("status", "errors", "lines", "settings", "metrics"):
        assert f"member-7: {part}: refused:" in summary
        assert f"member-7: {part}: refused:" in result.stderr


def test_a_member_that_refuses_is_no_reason_to_have_nothing(tmp_path: Path) -> None:
    refusal = Refusal(refused="diagnosis needs the role operator", advice="ask an operator")
    with FakeMember(0, answers(LEADER)) as member:
        real = member.document

        def document(stream_id: int) -> dict[str, Any]:
            return json.loads(refusal.model_dump_json()) if stream_id == DIAGNOSIS_STREAM_ID else real(stream_id)

        member.document = document  # type: ignore[method-assign]
        result = CliRunner().invoke(
            build_app(["bundle"]), ["bundle", str(tmp_path / "b.tgz"), "--members", member.members]
        )

    files = files_of(tmp_path / "b.tgz")
    assert result.exit_code == EXIT_UNHEALTHY
    assert {"status.json", "health.json", "member-0/status.json"} <= set(files)
    assert "member-0: errors: " in files["summary.txt"].decode()


def test_a_cluster_that_does_not_answer_leaves_an_archive_that_says_so(tmp_path: Path) -> None:
    result = bundle(tmp_path / "b.tgz", gone=True)

    assert result.exit_code == EXIT_UNREACHABLE
    assert "member-7: status: refused:" in files_of(tmp_path / "b.tgz")["summary.txt"].decode()


def test_a_file_that_exists_is_kept(tmp_path: Path) -> None:
    (tmp_path / "b.tgz").write_text("mine")

    assert bundle(tmp_path / "b.tgz", answers(LEADER)).exit_code == EXIT_USAGE
    assert (tmp_path / "b.tgz").read_text() == "mine"


def test_no_secret_is_in_the_archive_wherever_it_stood(tmp_path: Path) -> None:
    """One secret in each place that a text comes from: settings, errors with traces, lines, status, metrics."""
    url = f"s3://user:{PLANTED}@bucket/logs"
    cold = ColdStorageStatus(
        pending_bytes=0, shipped_count=0, failing_s=1.0, failure=f"cannot write {url}", catchup_start_position=0
    )
    error = error_row("cold.failed", T0).model_copy(
        update={"message": f"url={url} token={PLANTED}", "trace": f"ValueError: password='{PLANTED}'"}
    )
    key = f"-----BEGIN PRIVATE KEY-----\n{PLANTED}\n-----END PRIVATE KEY-----"
    member = answers(
        LEADER.model_copy(update={"cold_storage": cold}),
        errors=[error],
        lines=[line_row("a", T0, secret_key=PLANTED, text=f"https://h/?sig={PLANTED}", key=key)],
        settings={"cold_storage_url": url, "api_token": PLANTED, "secrets_file": "/etc/trimaran/secrets"},
        metrics=f'trimaran_x{{url="{url}"}} 1\n',
    )

    result = bundle(tmp_path / "b.tgz", member)

    files = files_of(tmp_path / "b.tgz")
    assert result.exit_code == 0, result.output
    assert [name for name, content in files.items() if PLANTED.encode() in content] == []
    assert b"/etc/trimaran/secrets" in files["member-0/settings.json"]
    assert b"s3://***@bucket/logs" in files["member-0/errors.json"]
