"""`trimaran sim` on a few real seeds: what it prints, how it ends, and that its replay command replays."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.facts import has_facts
from tests.places import ROOT
from tests.sampling import sampled
from tests.waiting import patient
from trimaran.cluster.cli.app import main
from trimaran.cluster.cli.sim.campaign_report import SimulationReport, as_json, print_campaign_report
from trimaran.cluster.cli.sim.flags import parse_seeds
from trimaran.cluster.cli.sim.seed_job import SeedJob
from trimaran.cluster.testing.simulation.campaign import kinds_left_out, parse_kinds
from trimaran.cluster.testing.simulation.faults.nemesis import KIND_NAMES
from trimaran.cluster.testing.simulation.run import Failure, Options, RunOutcome
from trimaran.cluster.testing.simulation.shrink import Attempt, Shrunk
from trimaran.service_api.errors import ConfigurationError

SHORT = ("--members", "3", "--length", "1", "--operations", "20")

SERVICES = '''
from random import Random

from trimaran import ClusteredService


class Counter(ClusteredService):
    """Adds up numbers."""

    def __init__(self):
        self.total = 0

    def on_session_message(self, session, timestamp, payload):
        self.total += int(bytes(payload))
        session.offer(b"%d" % self.total)

    def state_hash(self):
        return self.total

    @staticmethod
    def simulation_request(random: Random, number: int) -> bytes:
        return b"%d" % random.randint(1, 9)


class Own(Counter):
    """Every member begins with another total."""

    made = 0

    def __init__(self):
        Own.made += 1
        self.total = Own.made


class Picky(Counter):
    """Raises when it is sent an 8."""

    def on_session_message(self, session, timestamp, payload):
        assert bytes(payload) != b"8"
'''


def run(*arguments: str) -> int:
    """Run the command in this process; the result is its exit status."""
    with pytest.raises(SystemExit) as caught:
        main(["sim", *arguments])
    assert isinstance(caught.value.code, int | None)
    return caught.value.code or 0


@pytest.fixture
def services(tmp_path: Path) -> tuple[str, ...]:
    """Flags for the services above; the name of the module is another one in every test."""
    (tmp_path / f"services_of_{tmp_path.name}.py").write_text(SERVICES)
    return ("--service-dir", str(tmp_path), "--service", f"services_of_{tmp_path.name}")


def test_seeds_are_run_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    status = run("--seeds", "0:2", *SHORT, "--jobs", "1", "--check-determinism", "-o", "json")

    report = json.loads(capsys.readouterr().out)
    assert status == 0
    assert (report["seed_count"], report["failures"], report["interrupted"]) == (2, [], False)
    assert report["elections"] >= 2
    assert report["acknowledged_count"] > 0
    assert report["committed_bytes"] > 0
    assert set(report["fired"]) == set(KIND_NAMES)
    assert sorted(seed["seed"] for seed in report["seeds"]) == [0, 1]
    assert len({seed["trace_hash"] for seed in report["seeds"]}) == 2


def test_a_failure_ends_in_a_command_that_replays_it(
    services: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    status = run("--seeds", "0:1", *SHORT, *services[:-1], f"{services[-1]}:Own", "-o", "json")
    failure: dict[str, Any] = json.loads(capsys.readouterr().out)["failures"][0]
    command = shlex.split(failure["command"])
    replay_status = run(*command[2:], "--no-shrink")
    printed = capsys.readouterr().out

    assert status == replay_status == 1
    assert failure["rule"] == "every service is given the same, and becomes the same"
    assert failure["shrink_attempts"] > 0
    assert command[:4] == ["trimaran", "sim", "--seeds", "0:1"]
    assert command[command.index("--without") + 1] == "all"
    assert "seed 0 at" in printed
    assert failure["rule"] in printed
    assert "1 of 1 seed failed" in printed


@pytest.mark.parametrize(
    ("names", "status"),
    [("{0}:Counter,{0}:Counter", 0), ("{0}:Counter,{0}:Own", 1)],
    ids=["equal", "the second differs"],
)
def test_several_services_run_as_on_a_node(
    services: tuple[str, ...], capsys: pytest.CaptureFixture[str], names: str, status: int
) -> None:
    flags = (*services[:-1], names.format(services[-1]))

    assert run("--seeds", "0:1", *SHORT, "--no-shrink", *flags, "-o", "json") == status

    failures = json.loads(capsys.readouterr().out)["failures"]
    assert {failure["rule"] for failure in failures} == (
        {"every service is given the same, and becomes the same"} if status else set()
    )


def test_a_service_that_raises_is_at_fault(services: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--length", "4", "--no-shrink", *services[:-1], f"{services[-1]}:Picky", "-o", "json")
    status = run("--seeds", "0:1", *arguments)

    (failure,) = json.loads(capsys.readouterr().out)["failures"]
    assert status == 1
    assert failure["rule"] == "no callback of a service raises"
    assert "AssertionError" in failure["message"]


def test_a_trace_is_the_same_text_each_time(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first = run("--seeds", "1", *SHORT, "--trace")
    printed = capsys.readouterr()
    second = run("--seeds", "1", *SHORT, "--trace", "--trace-file", str(tmp_path / "trace.txt"))

    assert (first, second) == (0, 0)
    assert "FOLLOWER  CANVASS" in printed.out
    assert "election.state_changed" in printed.out
    assert "trace=" in printed.err
    assert (tmp_path / "trace.txt").read_text() == printed.out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--groups", "0"), "--groups"),
        (("--groups", "65"), "--groups"),
        (("--sessions", "-1"), "--sessions"),
        (("--groups", "2", "--requester-sessions", "3"), "--requester-sessions=3"),
        (("--sessions", "60", "--service", "services:Counter"), "--sessions=60"),
    ],
)
def test_groups_and_sessions_that_cannot_be_are_refused(
    arguments: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--seeds", "0:1", *arguments) == 2
    assert named in capsys.readouterr().err


@pytest.mark.parametrize("number", sampled([signal.SIGINT, signal.SIGTERM], [signal.SIGTERM]))
def test_a_signal_ends_with_the_counts_so_far(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "trimaran", "sim", "--seeds", "0:100000", *SHORT, "--jobs", "1", "-v"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        first_line = process.stderr.readline()
        blocked = [_blocked_signals(child) for child in _children(process.pid) if "spawn_main" in _command_line(child)]
        os.killpg(process.pid, number)  # as a terminal does
        output, rest = process.communicate(timeout=patient(60))

    assert first_line.startswith("seed 0  trace=")
    assert process.returncode == 130, rest
    assert "interrupted: " in output
    assert "Traceback" not in rest
    assert [signal.SIGINT in signals for signals in blocked] == [True], "the worker leaves Ctrl-C to the command"


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def _blocked_signals(pid: int) -> set[int]:
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigBlk:"))
    mask = int(line.split()[1], 16)
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--seeds", "5:5"), "no seeds: seeds='5:5'"),
        (("--seeds", "a:b"), "bad seeds: seeds='a:b'"),
        (("--seeds", "0:"), "seeds without an end need --until-failure"),
        (("--seeds", "0:2", "--trace"), "a trace needs exactly one seed"),
        (("--without", "bad_luck"), "no such kind of fault: bad_luck"),
        (("--without", "kill", "--only", "wipe"), "use --without or --only, not both"),
        (("--service", "absent:Service"), "service module not found"),
    ],
)
def test_a_mistake_is_one_line_and_exit_status_2(
    arguments: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = run(*arguments)

    (line,) = capsys.readouterr().err.splitlines()
    assert status == 2
    assert line.startswith(f"trimaran: {expected}")


@pytest.mark.parametrize(("text", "expected"), [("3:7", (3, 7)), ("17", (17, 18)), ("4:", (4, None))])
def test_seeds_are_a_range_an_open_range_or_one(text: str, expected: tuple[int, int | None]) -> None:
    assert parse_seeds(text) == expected


def test_kinds_are_left_out_by_name_or_by_keeping_the_others() -> None:
    assert parse_kinds("kill, wipe", "--without") == {"kill", "wipe"}
    assert kinds_left_out("all", "") == frozenset(KIND_NAMES)
    assert frozenset(KIND_NAMES) - kinds_left_out("", "kill") == {"kill"}
    with pytest.raises(ConfigurationError):
        parse_kinds("kill,all", "--without")


# --- the report


def make_report() -> SimulationReport:
    """A campaign of two seeds, one of which failed and was made smaller."""
    report = SimulationReport(SeedJob(), Options(without=frozenset({"wipe"})), 2, "abc123", elapsed_s=4.0)
    failed = RunOutcome(17, report.options, failure=Failure("one leader per term", "one leader per term: term=3", 2.5))
    smaller = RunOutcome(17, Options(member_count=2, operation_limit=0), failure=failed.failure, fired={"kill": 1})
    for outcome in (RunOutcome(16, report.options, simulated_ns=8 * 10**9, fired={"kill": 3}), failed):
        report.add(outcome)
    report.shrunk[17] = Shrunk(smaller, [Attempt("members 3 to 2", smaller.options, True)])
    return report


def test_a_report_names_the_failure_and_one_command() -> None:
    out = io.StringIO()
    print_campaign_report(make_report(), Console(file=out, width=80))
    text = out.getvalue()

    assert text.count("trimaran sim --seeds") == 1
    assert has_facts(text, "trimaran sim --seeds 17:18 --members 2 --operations 0", "abc123\n")
    assert has_facts(text, "seed 17 at 2.500000 s:", "\n    term=3\n")
    assert "1 of 2 seeds failed" in text


def test_a_report_shows_faults_that_never_struck_and_those_left_out() -> None:
    out = io.StringIO()
    print_campaign_report(make_report(), Console(file=out, width=100, force_terminal=True, color_system="standard"))
    text = out.getvalue()

    assert "\x1b[1;33m" in text.partition("pause")[2].partition("clock_jump")[0]
    assert text.partition("wipe")[2].split()[0].endswith("2m-\x1b[0m")
    assert "(-: left out)" in text


def test_the_json_of_a_report_has_the_rate_and_the_command() -> None:
    report = json.loads(as_json(make_report(), indent=None))

    assert report["rate"] == 2.0
    assert report["fired"]["kill"] == 3
    assert report["failures"][0]["command"] == "trimaran sim --seeds 17:18 --members 2 --operations 0"
    assert report["failures"][0]["shrink_changes"] == ["members 3 to 2"]


def test_help_does_not_import_the_simulator() -> None:
    program = (
        "import sys; from trimaran.cluster.cli.app import build_app; build_app(['--help'])\n"
        "print([name for name in sys.modules if name.startswith('trimaran.cluster.sim')])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=True,
        timeout=patient(60),
    )

    assert result.stdout.strip() == "[]"


# --- the page about it


PAGE = ROOT / "docs" / "simulation.md"


def test_the_page_names_every_kind_of_fault() -> None:
    rows = [line.split("|")[1].strip().strip("`") for line in PAGE.read_text().splitlines() if line.startswith("| `")]

    assert rows == [*KIND_NAMES]


def test_the_service_of_the_page_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "counter_of_the_page.py").write_text(PAGE.read_text().partition("```python\n")[2].partition("```")[0])

    status = run(
        *("--seeds", "0:1", *SHORT, "--service-dir", str(tmp_path), "--service", "counter_of_the_page:Counter", "-o"),
        "json",
    )

    assert status == 0
    assert json.loads(capsys.readouterr().out)["acknowledged_count"] > 0
