"""`trimaran code`: what `accept_code` wants, before a member is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.facts import has_facts
from trimaran.cluster.cli.app import build_app
from trimaran.cluster.service.service_code import CodeGuard, format_code

SOURCE = """
from trimaran import ClusteredService

class Adding(ClusteredService):
    def on_request(self, session, timestamp, payload):
        return payload
"""


@pytest.fixture
def service_dir(tmp_path: Path) -> Path:
    (tmp_path / "adding_of_test_code.py").write_text(SOURCE)
    return tmp_path


def test_the_digits_that_are_printed_are_those_that_a_member_with_this_code_takes(service_dir: Path) -> None:
    arguments = ["code", "--service", "adding_of_test_code:Adding", "--service-dir", str(service_dir)]

    printed = CliRunner().invoke(build_app(["code"]), [*arguments, "-o", "json"])

    said = json.loads(printed.stdout)
    digest = int(said["code"], 16)
    assert said["services"] == ["adding_of_test_code:Adding"]
    assert said["code"] == format_code(digest)
    assert CodeGuard(digest, 256, said["accept_code"], service_dir).accepted == said["accept_code"]
    line = CliRunner().invoke(build_app(["code"]), arguments).stdout
    assert said["code"] in line
    assert f"--accept-code {said['accept_code']}" in line


def test_a_service_that_is_not_named_is_asked_for() -> None:
    refused = CliRunner().invoke(build_app(["code"]), ["code"], env={"TRIMARAN_SERVICE": None})

    assert refused.exit_code != 0
    assert has_facts(str(refused.exception), "--service", "TRIMARAN_SERVICE")
