"""The command line: its help, its options, what it says without a package, and a small run of each command."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import pytest

from tests.waiting import patient
from trimaran.benchmarks.app import COMMANDS, main
from trimaran.benchmarks.options import parse_list, parse_settings
from trimaran.benchmarks.scenarios.failover import FaultKind
from trimaran.service_api.errors import ConfigurationError

TINY: Final = {
    "echo": "--messages 2000 --warmup 100 --inflight 64 --clients 2 --setting keep-all=false",
    "request": "--requests 500 --warmup 50 --inflight 16 --members 1",
    "typed": "--requests 200 --rounds 1 --depths 16",
    "tails": "--runs 1 --seconds 1 --rate 300 --members 1 --only open-loop",
    "stops": "--orders 20000 --sessions 4 --rate 200 --only copy",
    "memory": "--sessions 1,4 --keys 100,200 --jobs 50 --messages 500 --members 1",
    "fairness": "--messages 40 --warmup 5 --sessions 4 --depths 16 --members 1 --kinds watches --seconds 0.3",
    "encryption": "--rounds 1 --depths 8 --messages 400 --missed-mib 2 --file-sync-level 0",
    "flood": "--kinds half-handshake --connections 4 --seconds 0.5 --after 0.1 --members 1 --tls",
    "scan": "--only payload,sessions,shared,log --payloads 32 --sessions 4 --log-mibs 0,2 --seconds 0.2",
    "opening": "--sessions 8 --connections shared --passwords 0,1 --rest 0.1",
    "groups": "--counts 1,2 --messages 1000 --inflight 16 --rounds 1",
    "replay": "--log-mib 2 --runs 1",
    "catchup": "--missed-mib 4 --rate 300 --seconds 1",
    "snapshots": "--orders 20000 --ways copy --runs 1 --rate 200",
    "backup": "--rate 300 --seconds 2 --store file",
    "restore": "--log-mib 2 --store file",
    "failover": "--runs 1 --kinds kill9,hand_over --request-rate 500",
    "spark": "--mib 16 --rounds 1 --only count",
    "stream": "--rates 200 --seconds 2 --warmup-seconds 2 --members 1",
    "table": "--rounds 1 --compare-rounds 0 --log-mib 2 --scale 0.02",
    "compare": "--rounds 1 --depths 1 --peers trimaran",
    "profile": "--seconds 0.5",
}
"""Options of a small run of each command that writes a report; of `chaos` see tests/system/test_chaos.py."""

SAMPLE: Final = ("fairness",)
"""What also runs in the suite, besides `echo`."""


@pytest.fixture(autouse=True)
def _this_process_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    monkeypatch.setattr("structlog.configure", lambda **settings: None)


def run(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command line as a user does, after some Python."""
    code = f"import sys\n{before}\nfrom trimaran.benchmarks.app import main\nmain(sys.argv[1:])"
    command = (sys.executable, "-c", code, *arguments)
    return subprocess.run(command, capture_output=True, text=True, timeout=patient(600), check=False)


def test_help_names_every_command_in_its_group_and_where_to_begin(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["-h"])

    printed = " ".join(capsys.readouterr().out.split())
    assert raised.value.code == 0
    assert "Begin with" in printed
    assert all(command.panel in printed and name in printed for name, command in COMMANDS.items())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_its_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main([name, "-h"])

    assert raised.value.code == 0
    assert "--help" in capsys.readouterr().out


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.parameters])
def test_every_parameter_is_an_option_or_has_a_default(name: str) -> None:
    """A parameter without an option is for other benchmarks; one with an option says what it is."""
    command = COMMANDS[name]
    module = __import__(f"trimaran.benchmarks.{command.module}", fromlist=[command.parameters])
    hints = get_type_hints(getattr(module, command.parameters), include_extras=True)
    options = {field.name: hints[field.name] for field in fields(getattr(module, command.parameters))}

    for hint in options.values():
        if get_origin(hint) is Annotated:
            assert get_args(hint)[1].help
    assert getattr(module, command.parameters)() is not None


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        ("echo --payload 3", ["--payload", "8"]),
        ("echo --tls --endpoints 127.0.0.1:1", ["endpoints", "tls"]),
        ("echo --setting level", ["setting='level'"]),
        ("failover --kinds kill9,fire", ["kinds='kill9,fire'", "kill9", "sigterm"]),
        ("scan --payloads 32,4", ["payloads='32,4'", "8"]),
        ("scan --only depth", ["only='depth'", "payload"]),
        ("scan --only=", ["only=''"]),
        ("groups --counts 65", ["counts=(65,)", "64"]),
        ("tails --only lunch", ["lunch", "open-loop"]),
        ("stops --only lunch", ["lunch", "pieces"]),
        ("stops --members 1", ["members=1", "2"]),
        ("compare --depths 7", ["depths=(7,)", "1024"]),
        ("flood --kinds unknown", ["unknown", "silent"]),
        ("chaos --modes fun", ["modes='fun'", "careless"]),
        ("guard --update --only egest", ["egest", "codec_encode"]),
    ],
)
def test_a_wrong_value_is_refused_with_the_value_and_what_is_expected(
    arguments: str, facts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:

    with pytest.raises(SystemExit) as raised:
        main(arguments.split())

    printed = capsys.readouterr().err
    assert raised.value.code == 2
    assert all(fact in printed for fact in facts), printed


def test_a_build_of_aeron_is_named_or_nothing_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "agrona.jar").touch()

    for named, facts in (("", ["is not set"]), (str(tmp_path), ["lacks lib/aeron.jar", str(tmp_path)])):
        monkeypatch.setenv("AERON_RIG", named)
        with pytest.raises(SystemExit) as raised:
            main(["aeron"])

        printed = capsys.readouterr().err
        assert raised.value.code == 2
        assert all(fact in printed for fact in ["AERON_RIG=", "lib/rig.jar", *facts]), printed


def test_lists_have_commas_and_settings_a_name_and_a_value() -> None:
    assert parse_list("depths", int, "1, 64") == (1, 64)
    assert parse_list("kinds", FaultKind, "sigstop") == (FaultKind.SIGSTOP,)
    assert parse_list("peers", str, "", may_be_empty=True) == ()
    assert parse_settings(["keep-all=false", "mtu_length_bytes=1408"]) == {
        "keep_all": "false",
        "mtu_length_bytes": "1408",
    }
    for text in ("", "0", "one"):
        with pytest.raises(ConfigurationError):
            parse_list("depths", int, text, least=1)


def test_a_directory_with_files_in_it_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(SystemExit) as raised:
        main(["echo", "--endpoints", "127.0.0.1:1", "--dir", str(tmp_path)])

    assert raised.value.code == 2
    assert str(tmp_path) in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        ("performance", "duckdb"),
        ("chaos --html page.html", "jinja2"),
        ("spark", "pyspark"),
        ("stream", "pyspark"),
        ("backup --store s3", "moto"),
        pytest.param("performance", "matplotlib", marks=pytest.mark.campaign),
        pytest.param("spark", "numpy", marks=pytest.mark.campaign),
        pytest.param("stream", "pyarrow", marks=pytest.mark.campaign),
        pytest.param("restore --store s3", "s3fs", marks=pytest.mark.campaign),
    ],
)
def test_a_missing_package_is_one_line_that_says_what_to_install(arguments: str, missing: str) -> None:
    done = run(*arguments.split(), before=f"sys.modules[{missing!r}] = None")

    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert missing in line
    assert "pip install" in line


@pytest.mark.parametrize(
    ("arguments", "missing"), [("guard", "valgrind"), ("profile", "perf"), ("compare --peers etcd", "etcd")]
)
def test_a_missing_program_is_one_line_that_names_it(
    arguments: str, missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("sys.executable", "/nowhere/python")

    with pytest.raises(SystemExit) as raised:
        main([*arguments.split(), *(["--update"] if arguments == "guard" else [])])

    (line,) = capsys.readouterr().err.strip().splitlines()
    assert raised.value.code == 2
    assert missing in line


@pytest.mark.slow
def test_a_real_cluster_is_started_measured_and_ended(tmp_path: Path) -> None:
    """As a user starts it: nothing is forked."""
    done = run("echo", *TINY["echo"].split(), "--dir", str(tmp_path / "data"), "--json", str(tmp_path / "r.json"))

    report = json.loads((tmp_path / "r.json").read_text())
    assert (done.returncode, done.stderr.strip()) == (0, "")
    assert "throughput_msgs_per_s" in done.stdout
    assert report["messages"] == 2000
    assert set(report["usage"]) == {"member-0", "member-1", "member-2", "client-0", "client-1"}
    assert report["environment"]["segment_length_bytes"] == 128 << 20
    assert (tmp_path / "data" / "member-0").is_dir()


@pytest.mark.slow
@pytest.mark.usefixtures("processes_are_forked")
@pytest.mark.parametrize(
    "name", [name if name in SAMPLE else pytest.param(name, marks=pytest.mark.campaign) for name in TINY]
)
def test_every_command_measures_and_writes_a_report(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report.json"

    with pytest.raises(SystemExit) as raised:
        main([name, *TINY[name].split(), "--dir", str(tmp_path / "data"), "--json", str(path)])

    printed = capsys.readouterr()
    if raised.value.code == 2 and " install" in printed.err:
        pytest.skip(printed.err)
    assert raised.value.code == 0, printed.err
    report: dict[str, Any] = json.loads(path.read_text())
    assert report["scenario"] == name
    assert not report.get("failures")
    assert {"parameters", "environment"} <= report.keys()
    assert len(printed.out.splitlines()) > 1
