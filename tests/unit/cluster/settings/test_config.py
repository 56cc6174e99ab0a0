"""One node's settings: where they come from, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.facts import has_facts
from trimaran.cluster.settings.config import NodeConfig
from trimaran.cluster.settings.config_layers import flag_name, load_node_config, setting_kind
from trimaran.cluster.settings.fields import HEADINGS, setting_heading
from trimaran.cluster.settings.member_endpoints import parse_members
from trimaran.cluster.settings.variables import clean_environment
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.errors import ConfigurationError

MEMBERS = "0=127.0.0.1:9000,1=127.0.0.1:9010,2=127.0.0.1:9020"
FILE_TEXT = f"""
member_id = 1
members = "{MEMBERS}"
directory = "/var/lib/node-1"
service = "quota:AccessQuota"
"""


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of whoever runs the tests must not matter."""
    for variable in os.environ.keys() - clean_environment().keys():
        monkeypatch.delenv(variable)


def write(directory: Path, text: str) -> Path:
    file = directory / "node.toml"
    file.write_text(text)
    return file


def refusal(file: Path | None = None, **flags: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_node_config(file, flags)
    return str(caught.value)


def make(**changes: Any) -> NodeConfig:
    values: dict[str, Any] = {
        "member_id": 0,
        "members": parse_members(MEMBERS),
        "directory": Path("/data"),
        "service": "quota:AccessQuota",
    }
    return NodeConfig(**(values | changes))


def test_a_file_gives_typed_values_and_the_rest_are_defaults(tmp_path: Path) -> None:
    file = write(tmp_path, FILE_TEXT + 'term_length_bytes = "1MiB"\nelection_timeout_ms = "1s"\nchecksums = false\n')

    loaded = load_node_config(file)

    assert loaded.config.member_id == 1
    assert loaded.config.me.ingress == "127.0.0.1:9010"
    assert loaded.config.directory == Path("/var/lib/node-1")
    assert loaded.config.term_length_bytes == 1 << 20
    assert loaded.config.election_timeout_ms == 1_000
    assert loaded.config.checksums is False
    assert loaded.config.file_sync_level == 1
    assert loaded.origins["term_length_bytes"] == f"{file}:6"
    assert loaded.origins["file_sync_level"] == "default"


def test_a_flag_beats_the_environment_which_beats_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, FILE_TEXT + "session_limit = 1\nsession_timeout_ms = 3000\nfile_sync_level = 2\n")
    monkeypatch.setenv("TRIMARAN_SESSION_LIMIT", "2")
    monkeypatch.setenv("TRIMARAN_SESSION_TIMEOUT_MS", "4s")

    loaded = load_node_config(file, {"session_limit": "3", "directory": None})

    assert (loaded.config.session_limit, loaded.origins["session_limit"]) == (3, "--session-limit")
    assert loaded.config.session_timeout_ms == 4_000
    assert loaded.origins["session_timeout_ms"] == "TRIMARAN_SESSION_TIMEOUT_MS"
    assert (loaded.config.file_sync_level, loaded.origins["file_sync_level"]) == (2, f"{file}:8")
    assert loaded.origins["directory"] == f"{file}:4"


def test_making_a_config_reads_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMARAN_MEMBER_ID", "2")

    assert make(member_id=0).member_id == 0


def test_an_unknown_key_in_the_file_is_an_error_with_a_suggestion(tmp_path: Path) -> None:
    file = write(tmp_path, FILE_TEXT + "electon_timeout_ms = 5\n")

    message = refusal(file)

    assert has_facts(message, f"electon_timeout_ms in {file}:6:", "election_timeout_ms?")


def test_an_unknown_variable_is_an_error_with_a_suggestion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMARAN_MEMBERID", "1")

    assert has_facts(refusal(), "TRIMARAN_MEMBERID:", "TRIMARAN_MEMBER_ID?")


SERVICE_LINKS = {
    "TRIMARAN_PORT": "tcp://10.0.0.1:9000",
    "TRIMARAN_SERVICE_HOST": "10.0.0.1",
    "TRIMARAN_SERVICE_PORT": "9000",
    "TRIMARAN_SERVICE_PORT_INGRESS": "9000",
    "TRIMARAN_PORT_9000_TCP": "tcp://10.0.0.1:9000",
    "TRIMARAN_PORT_9000_TCP_PROTO": "tcp",
    "TRIMARAN_PORT_9000_TCP_PORT": "9000",
    "TRIMARAN_PORT_9000_TCP_ADDR": "10.0.0.1",
    "TRIMARAN_CLIENTS_PORT": "tcp://10.0.0.2:9000",
    "TRIMARAN_CLIENTS_SERVICE_HOST": "10.0.0.2",
}
"""What Kubernetes sets in a pod beside services called trimaran and trimaran-clients."""


def test_service_links_of_kubernetes_are_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command refused in the pods of a namespace with a service called trimaran."""
    for name, text in SERVICE_LINKS.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setenv("TRIMARAN_SERVICE_DIR", "/srv")

    assert load_node_config(write(tmp_path, FILE_TEXT)).config.service_dir == Path("/srv")


@pytest.mark.parametrize("name", ["TRIMARAN_PORT", "TRIMARAN_SERVICE_PORT", "TRIMARAN_CLIENTS_SERVICE_HOST"])
def test_a_name_like_a_service_link_alone_is_a_mistake(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "9000")

    assert has_facts(refusal(), f"{name}:")


@pytest.mark.parametrize(
    ("line", "found", "expected"),
    [
        ("election_timeout_ms = true", "election_timeout_ms=True", "milliseconds"),
        ("election_timeout_ms = 0.5", "election_timeout_ms=0.5", "milliseconds"),
        ('election_timeout_ms = "soon"', "election_timeout_ms='soon'", "milliseconds"),
        ("election_timeout_ms = -1", "election_timeout_ms=-1", "0"),
        ('session_limit = "7"', "session_limit='7'", "whole number"),
        ('checksums = "yes"', "checksums='yes'", "false"),
        ("checksums = 1", "checksums=1", "false"),
        ("service_dir = 1", "service_dir=1", "path"),
        ("file_sync_level = 3", "file_sync_level=3", "2"),
        ('log_format = "xml"', "log_format='xml'", "'auto', 'console' or 'json'"),
        ('metrics_endpoint = "9464"', "metrics_endpoint='9464'", "host:port"),
        ('metrics_endpoint = "a:99999"', "metrics_endpoint='a:99999'", "host:port"),
        ("stall_threshold_ms = 0", "stall_threshold_ms=0", "0"),
        ('app_version = "1.2"', "app_version='1.2'", "1.0.0"),
    ],
)
def test_a_bad_value_is_one_line_with_name_value_origin_and_what_was_expected(
    tmp_path: Path, line: str, found: str, expected: str
) -> None:
    file = write(tmp_path, FILE_TEXT + line)

    message = refusal(file)

    assert has_facts(message, f"{found} from {file}:6", expected)
    assert "\n" not in message


def test_every_missing_setting_is_named_with_the_ways_to_give_it() -> None:
    lines = refusal().splitlines()

    assert [line.split(":")[1] for line in lines] == [" member_id", " members", " service", " directory"]
    assert "--member-id, TRIMARAN_MEMBER_ID or member_id in the config file" in lines[0]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("member_id = \n", 1),
        ("member_id = ", 1),
        ("standby = true\r\nmember_id = 1 2\r\n", 2),
        ("standby = true\nstandby = true", 2),
        ("[tls]\n\n[tls]\n", 3),
        ('standby = true\nmembers = "0=a:1\n', 2),
        ('standby = true\n\nmembers = """\n0=a:1\nmember_id = 2\n', 3),
        (f"\nmember_id = {'1' * 5_000}\n", 2),
    ],
)
def test_a_file_that_is_not_toml_names_the_line(tmp_path: Path, text: str, line: int) -> None:
    file = write(tmp_path, text)

    assert f"TOML: {file}:{line}: " in refusal(file)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("# first\n\nelection_timeout_ms = true\n", 3),
        ("standby = true\r\nelection_timeout_ms = true\r\n", 2),
        ('authenticator = """\nlog_format = 1\n"""\nlog_format = "xml"', 4),
        ('authenticator = """\nlog_format = 1\n"""\n[tls]\nverify = 1', 5),
        ("standby = [\n  [1],\n  [2],\n]\n", 1),
        ("# first\n[tls] # of TLS\n\n# the key\nkey = 5\n", 5),
        ("standby = true\n[tls]\nkeys = 5\n", 3),
        ("tls.verify = 3\n", 1),
        ("standby = true\n\n[cluster]\nmember_id = 1\n", 3),
        ('\ntls_verify = "name"\n[tls]\nverify = "name"\n', 4),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    """A text of several lines may look like settings; it counts where it begins."""
    file = write(tmp_path, text)
    message = refusal(file, member_id="1", members=MEMBERS, directory="d", service="m:C")

    assert f" {file}:{line}: " in message
    assert "\n" not in message


def test_settings_that_do_not_fit_together_are_named_with_where_they_come_from(tmp_path: Path) -> None:
    file = write(tmp_path, FILE_TEXT + "session_timeout_ms = 1000\n")

    message = refusal(file, leader_heartbeat_timeout_ms="3s")

    facts = f"session_timeout_ms from {file}:6", "leader_heartbeat_timeout_ms from --leader-heartbeat-timeout-ms"
    assert has_facts(message, "session_timeout_ms=1000", *facts)
    assert "leader_heartbeat_interval_ms" not in message


def test_a_file_that_is_not_text_or_not_there_is_refused(tmp_path: Path) -> None:
    binary = tmp_path / "node.toml"
    binary.write_bytes(b"standby = true\n# \xff\xfe\x00")

    assert f"is not UTF-8 text: {binary}:2" in refusal(binary)
    assert "reason=No such" in refusal(tmp_path / "absent.toml")
    assert "reason=Is a directory" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"member_id": 7}, r"member_id=7 .*\[0, 1, 2\]"),
        ({"witnesses": "3"}, "witnesses='3': .*3"),
        ({"witnesses": "0,1"}, "witnesses='0,1': .*witnesses=2 of 3"),
        ({"service": ""}, "service='': .*module:Class.*witnesses"),
        ({"startup_canvass_timeout_ms": 3_000}, "startup_canvass_timeout_ms=3000: .* 4000"),
        ({"leader_heartbeat_interval_ms": 1_500}, "leader_heartbeat_timeout_ms=2000: .* 3000"),
        ({"election_timeout_ms": 100}, "election_timeout_ms=100: .* 200"),
        ({"session_timeout_ms": 1_000}, "session_timeout_ms=1000: .* 2000"),
        ({"term_length_bytes": 100_000}, "term_length_bytes=100000: .*power of two"),
        (
            {"term_length_bytes": 32_768},
            "term_length_bytes=32768: .*64KiB to 1GiB",
        ),
        ({"segment_length_bytes": 1 << 20}, "segment_length_bytes=1048576: .*power of two"),
        ({"mtu_length_bytes": 1_400}, "mtu_length_bytes=1400: .*multiple of 32"),
        ({"mtu_length_bytes": 65_536}, "mtu_length_bytes=65536: .*64 to 65504"),
        ({"ingress_window_bytes": 65_536}, "ingress_window_bytes=65536: .*two"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        make(**changes)


def test_a_witness_needs_no_service() -> None:
    given: dict[str, Any] = {"member_id": "2", "members": MEMBERS, "directory": "d"}

    assert has_facts(refusal(**given), "missing", "service")
    config = load_node_config(None, {**given, "witnesses": "2"}).config

    assert (config.is_witness, config.services) == (True, ())
    assert not load_node_config(None, {**given, "member_id": "1", "service": "m:C", "witnesses": "2"}).config.is_witness


def test_every_relation_that_is_broken_gets_its_own_line() -> None:
    lines = refusal(
        member_id="9",
        members=MEMBERS,
        directory="d",
        service="m:C",
        mtu_length_bytes="33",
    ).splitlines()

    assert len(lines) == 2
    assert all(line.startswith("invalid settings: ") for line in lines)


def test_service_names_up_to_ten_services_by_id() -> None:
    assert make(service="m:C").services == ("m:C",)
    assert make(service="shop.a:A,shop.b:B").services == ("shop.a:A", "shop.b:B")
    assert len(make(service=",".join(["m:C"] * 10)).services) == 10


@pytest.mark.parametrize("service", ["", "m", "m:C,", "m:C, n:D", ",".join(["m:C"] * 11)])
def test_service_that_names_none_or_too_many_is_refused(service: str) -> None:
    assert "service" in refusal(member_id="0", members=MEMBERS, directory="d", service=service)


def test_members_of_one_host_may_not_overlap_in_ports() -> None:
    message = refusal(member_id="0", members="0=h:9000,1=h:9004", directory="d", service="m:C")

    assert "endpoint=h:9004 members=0,1" in message


def test_every_setting_has_a_kind_a_description_and_a_flag() -> None:
    for name, field in NodeConfig.model_fields.items():
        assert setting_kind(name).expected
        assert field.description
        assert flag_name(name).startswith("--")


def test_every_setting_stands_once_under_one_of_five_headings_and_in_their_order() -> None:
    """So a file, the help and the page of the settings show the same order."""
    under_headings = [name for settings in HEADINGS.values() for name in settings.model_fields]

    assert list(HEADINGS) == ["cluster", "sessions", "disk", "limits", "watching"]
    assert list(NodeConfig.model_fields) == under_headings
    assert len(under_headings) == len(set(under_headings))
    assert (setting_heading("members"), setting_heading("keep_all")) == ("cluster", "disk")


def test_spare_followers_sync_late_where_all_members_share_a_machine_or_it_says_so() -> None:
    apart = parse_members("0=one:9000,1=two:9000,2=three:9000")

    assert make().is_disk_shared
    assert not make(members=apart).is_disk_shared
    assert make(members=apart, shared_machine="on").is_disk_shared
    assert not make(shared_machine="off").is_disk_shared
    assert not make(shared_machine="on", file_sync_level=0).is_disk_shared
    assert "shared_machine='yes'" in refusal(
        member_id="0", members=MEMBERS, directory="d", service="m:C", shared_machine="yes"
    )


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("term_length_bytes", "64KiB", 65_536),
        ("term_length_bytes", "64 mib", 64 << 20),
        ("term_length_bytes", "1GiB", 1 << 30),
        ("election_timeout_ms", "750 ms", 750),
        ("election_timeout_ms", "2m", 120_000),
        ("app_version", "1.2.3", 0x010203),
        ("checksums", "No", False),
    ],
)
def test_text_is_read_with_its_unit(name: str, text: str, value: object) -> None:
    assert setting_kind(name).parse(text) == value


def test_a_shown_value_reads_back_as_itself() -> None:
    config = make()

    for name in NodeConfig.model_fields:
        kind, value = setting_kind(name), getattr(config, name)
        assert kind.parse(kind.show(value)) == value


@pytest.mark.parametrize("settings", [{"authenticator": "password"}, {"secrets_file": "/etc/trimaran/secrets"}])
def test_a_secrets_file_and_the_authenticator_that_reads_it_come_together(settings: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match=r"authenticator=password.*file"):
        make(**settings)


@pytest.mark.parametrize(
    ("near", "window", "expected"), [(1 << 20, 16 << 20, 1 << 20), (8 << 20, 16 << 20, 8 << 20), (8 << 20, 256, 128)]
)
def test_a_catchup_never_joins_where_the_leaders_memory_may_not_reach(near: int, window: int, expected: int) -> None:
    config = make(catchup_near_bytes=near, ingress_window_bytes=window, mtu_length_bytes=64)

    assert config.join_near_bytes == expected


def test_metrics_are_served_where_the_setting_says_for_this_member() -> None:
    """One file of settings does for all members, as it does with the names of certificates."""
    assert make(member_id=2, metrics_endpoint="node-{member_id}:946{member_id}").metrics == Endpoint("node-2", 9462)
    assert make(metrics_endpoint="127.0.0.1:0").metrics == Endpoint("127.0.0.1", 0)
    assert make().metrics is None


def test_metrics_that_no_port_is_left_for_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"metrics_endpoint='h:6553\{member_id\}'.*h:65537"):
        make(member_id=7, members=parse_members("7=127.0.0.1:9000"), metrics_endpoint="h:6553{member_id}")


def test_a_standby_follows_only_a_member_with_a_lower_id() -> None:
    """So that two never wait for each other."""
    standby = {
        "member_id": 3,
        "members": parse_members("3=localhost:9000"),
        "join": "0=localhost:9010",
        "standby": True,
    }

    assert make(**standby, log_source="2").log_source_id == 2
    assert make(**standby).log_source_id is None
    with pytest.raises(ValidationError, match=r"log_source='3'.*, 3"):
        make(**standby, log_source="3")
    with pytest.raises(ValidationError, match="log_source"):
        make(**standby, log_source="first")
