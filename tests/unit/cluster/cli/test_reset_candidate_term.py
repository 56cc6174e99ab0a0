"""`trimaran reset-candidate-term` on a member whose term on disk an older version believed of a stranger."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.unit.archive.streams import extract_sample
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.tool.output import EXIT_UNHEALTHY
from trimaran.cluster.cli.app import build_app
from trimaran.cluster.cli.reset_candidate_term import RESET_MARGIN
from trimaran.cluster.core.vocabulary.terms import FAILED_TERM_LIMIT
from trimaran.cluster.runtime.files.mark_file import MARK_FILE_NAME
from trimaran.cluster.runtime.files.node_state_file import NODE_STATE_FILE_NAME, NodeStateFile, parse_node_state

ALMOST_LAST = (1 << 63) - 2


def run(name: str, *arguments: str, answer: str | None = None) -> Result:
    runner = CliRunner(env={"COLUMNS": "200"})
    return runner.invoke(build_app([name]), [name, *arguments], catch_exceptions=False, input=answer)


@pytest.fixture
def poisoned(tmp_path: Path) -> Path:
    """A member's directory, with the term of the issue."""
    directory = extract_sample("single-node", tmp_path) / "node0"
    file = NodeStateFile.open(directory / "cluster")
    file.propose_max_candidate_term_id(ALMOST_LAST, 64, 5)
    file.close()
    return directory


def term_of(directory: Path) -> int:
    return parse_node_state((directory / "cluster" / NODE_STATE_FILE_NAME).read_bytes())[0].candidate_term_id


def test_recovery_plan_names_the_state_and_the_command(poisoned: Path) -> None:
    """The issue: it said "can start" while the cluster canvassed for ever."""
    result = run("recovery-plan", str(poisoned))

    assert result.exit_code == EXIT_UNHEALTHY
    assert "can start" not in result.stdout
    assert f"candidate_term_id={ALMOST_LAST}" in result.stderr
    assert f"trimaran reset-candidate-term {poisoned}" in result.stderr


def test_recovery_plan_names_a_vote_state_that_is_missing(poisoned: Path) -> None:
    path = poisoned / "cluster" / NODE_STATE_FILE_NAME
    path.unlink()

    result = run("recovery-plan", str(poisoned))

    assert result.exit_code == EXIT_UNHEALTHY
    assert f"vote state: path={path}" in result.stderr
    assert "neither votes nor" in result.stderr


def test_term_is_lowered_to_above_the_log_and_the_old_file_is_kept(poisoned: Path) -> None:
    before = (poisoned / "cluster" / NODE_STATE_FILE_NAME).read_bytes()

    result = run("reset-candidate-term", str(poisoned), "--yes")

    assert result.exit_code == 0
    assert RESET_MARGIN <= term_of(poisoned) <= RESET_MARGIN + 10
    kept = poisoned / "cluster" / f"{NODE_STATE_FILE_NAME}.term-{ALMOST_LAST}"
    assert kept.read_bytes() == before
    assert str(kept) in result.stdout
    NodeStateFile.open(poisoned / "cluster").close()  # its checksum is valid
    assert "vote state" not in run("recovery-plan", str(poisoned)).stderr


def test_operator_is_asked_whether_every_member_is_stopped(poisoned: Path) -> None:
    result = run("reset-candidate-term", str(poisoned), answer="n\n")

    assert result.exit_code != 0
    assert term_of(poisoned) == ALMOST_LAST


def test_usable_term_is_not_lowered(poisoned: Path) -> None:
    run("reset-candidate-term", str(poisoned), "--yes")
    before = term_of(poisoned)

    result = CliRunner().invoke(build_app(["reset-candidate-term"]), ["reset-candidate-term", str(poisoned), "--yes"])

    assert result.exit_code != 0
    assert "not safe" in str(result.exception)
    assert term_of(poisoned) == before


@pytest.mark.parametrize("term_id", [0, FAILED_TERM_LIMIT + 100])
def test_term_that_is_not_just_above_the_log_is_refused(poisoned: Path, term_id: int) -> None:
    arguments = ["reset-candidate-term", str(poisoned), "--yes", "--to", str(term_id)]

    result = CliRunner().invoke(build_app(["reset-candidate-term"]), arguments)

    assert result.exit_code != 0
    assert term_of(poisoned) == ALMOST_LAST


def test_running_member_is_refused(poisoned: Path) -> None:
    disk = OsFileSystem()
    handle = disk.open_file(poisoned / "cluster" / MARK_FILE_NAME)
    try:
        assert disk.try_lock(handle)
        result = CliRunner().invoke(
            build_app(["reset-candidate-term"]), ["reset-candidate-term", str(poisoned), "--yes"]
        )
    finally:
        disk.close_file(handle)

    assert "in use" in str(result.exception)
    assert term_of(poisoned) == ALMOST_LAST
