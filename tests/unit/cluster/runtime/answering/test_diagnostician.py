"""What a member says of its errors, log lines, settings and metrics, and to whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cluster.core.solo import Solo
from tests.unit.cluster.settings.test_config import make as node_config
from trimaran.cluster.documents.diagnosis import (
    ANSWER_LIMIT_BYTES,
    Diagnosis,
    DiagnosisRequest,
    DiagnosisTopic,
    Level,
    is_secret_name,
    without_secrets,
)
from trimaran.cluster.runtime.answering.diagnostician import Diagnostician
from trimaran.cluster.runtime.files.error_log import ErrorLog, ErrorObservation
from trimaran.cluster.runtime.files.mark_file import ClusterMarkFile
from trimaran.cluster.runtime.files.process_log import ProcessLog
from trimaran.service_api import RemoteProtocolError
from trimaran.service_api.access.permissions import Permission


def diagnostician(mark: ClusterMarkFile | None = None, **settings: object) -> Diagnostician:
    return Diagnostician(
        Solo(is_started=False).module,
        node_config(**settings),
        read_error_area=lambda: b"" if mark is None else mark.read_error_area(),
        render_metrics=lambda: b"trimaran_uptime 1\n",
    )


async def ask(of: Diagnostician, topic: DiagnosisTopic, **request: object) -> Diagnosis:
    asked = DiagnosisRequest.model_validate({"topic": topic, **request}, strict=False)
    return Diagnosis.model_validate_json(await of.answer(asked.model_dump_json().encode()))


async def test_errors_are_those_in_the_mark_file_from_a_time_and_a_level_on(tmp_path: Path) -> None:
    mark = ClusterMarkFile.open(tmp_path, member_id=0, now_ms=1)
    times = iter((10, 20, 30, 40))
    log = ErrorLog(mark, lambda: next(times))
    for level, event in (("error", "a"), ("warning", "b"), ("error", "c"), ("error", "a")):
        log.observe(ErrorObservation(level, event, "ValueError", "quota.py:1 f", "why", "Traceback"))
    member = diagnostician(mark)

    found = await ask(member, DiagnosisTopic.ERRORS)
    newer = await ask(member, DiagnosisTopic.ERRORS, since_ms=30)
    worse = await ask(member, DiagnosisTopic.ERRORS, level=Level.ERROR, limit=1)

    assert [(row.event, row.count, row.first_ms, row.last_ms) for row in found.errors] == [
        ("b", 1, 20, 20),
        ("c", 1, 30, 30),
        ("a", 2, 10, 40),
    ]
    assert [row.event for row in newer.errors] == ["c", "a"]
    assert ([row.event for row in worse.errors], worse.total_count) == (["a"], 2)
    mark.close()


async def test_lines_are_the_newest_of_the_process() -> None:
    member = diagnostician()
    assert (await ask(member, DiagnosisTopic.LINES)).log_level is None
    log = member.process_log = ProcessLog()
    log.lines._epoch_ms = iter((10, 20, 30)).__next__
    for level, event in (("info", "a"), ("warning", "b"), ("info", "c")):
        log.lines(None, level, {"event": event, "number": 1})

    found = await ask(member, DiagnosisTopic.LINES, limit=2)
    worse = await ask(member, DiagnosisTopic.LINES, level=Level.WARNING)
    newer = await ask(member, DiagnosisTopic.LINES, since_ms=25)

    assert [(row.time_ms, row.event, row.fields) for row in found.lines] == [
        (20, "b", {"number": "1"}),
        (30, "c", {"number": "1"}),
    ]
    assert (found.total_count, found.log_level) == (3, "info")
    assert ([row.event for row in worse.lines], [row.event for row in newer.lines]) == (["b"], ["c"])


async def test_an_answer_of_the_longest_rows_is_cut_to_what_callers_take(tmp_path: Path) -> None:
    member = diagnostician()
    log = member.process_log = ProcessLog()
    fields = {f"field_{number}": "\N{GRINNING FACE}" * 300 for number in range(32)}
    for number in range(1_000):
        log.lines(None, "info", {"event": f"e{number}", **fields})

    payload = await member.answer(DiagnosisRequest(topic=DiagnosisTopic.LINES, limit=1_000).model_dump_json().encode())

    found = Diagnosis.model_validate_json(payload)
    assert len(payload) < ANSWER_LIMIT_BYTES
    assert (found.lines[-1].event, found.total_count) == ("e999", 1_000)


async def test_settings_are_as_in_a_file_and_without_secrets() -> None:
    member = diagnostician(cold_storage_url="s3://AKIA:plantedkey@bucket/logs?secret_key=plantedtoo")

    settings = (await ask(member, DiagnosisTopic.SETTINGS)).settings

    assert settings["term_length_bytes"] == "64MiB"
    assert settings["cold_storage_url"] == "s3://***@bucket/logs?secret_key=***"


async def test_metrics_are_the_page() -> None:
    assert (await ask(diagnostician(), DiagnosisTopic.METRICS)).metrics == "trimaran_uptime 1\n"


def test_only_operators_and_members_may_ask() -> None:
    find_permission = diagnostician().row.permission

    assert find_permission(b'{"topic": "lines"}') is Permission.DIAGNOSIS
    with pytest.raises(RemoteProtocolError):
        find_permission(b'{"topic": "everything"}')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cannot read s3://user:planted@host/x", "cannot read s3://***@host/x"),
        ("https://h/x?a=1&token=planted&b=2", "https://h/x?a=1&token=***&b=2"),
        ("password='planted one' retries=3", "password=*** retries=3"),
        ('{"secret_key": "planted", "n": 1}', '{"secret_key": ***, "n": 1}'),
        ("encoded_credentials=b'planted' n=1", "encoded_credentials=*** n=1"),
        ("Authorization: Bearer planted.planted-planted", "Authorization: Bearer ***"),
        ("-----BEGIN EC PRIVATE KEY-----\nplanted\n-----END EC PRIVATE KEY-----\nend", "***\nend"),
        ("secrets_file=/etc/trimaran/secrets", "secrets_file=/etc/trimaran/secrets"),
        ('trimaran_sessions_refused_total{reason="token"} 3.0', 'trimaran_sessions_refused_total{reason="token"} 3.0'),
        ("member 0 at http://10.0.0.1:9000 did not answer", "member 0 at http://10.0.0.1:9000 did not answer"),
    ],
)
def test_what_looks_like_a_secret_is_left_out(text: str, expected: str) -> None:
    assert without_secrets(text) == expected


def test_names_of_files_with_secrets_are_no_secrets() -> None:
    assert [is_secret_name(name) for name in ("token", "api_key", "secrets_file", "metrics_token_file")] == [
        True,
        True,
        False,
        False,
    ]
