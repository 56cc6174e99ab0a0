"""Commands that ask a cluster to do something: whom they ask, what they print, and the status that they end with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner, Result

from tests.facts import has_facts
from tests.unit.cluster.cli.answers import member_status
from tests.unit.cluster.cli.fake_member import FakeMember
from tests.unit.cluster.cli.shared.test_inspection import members_view
from trimaran.archive.tool.output import EXIT_FAILED, EXIT_NO_LEADER, EXIT_REFUSED, EXIT_UNREACHABLE, EXIT_USAGE
from trimaran.benchmarks.rig.processes import find_base_ports
from trimaran.cluster.cli.app import build_app
from trimaran.cluster.core.vocabulary.control_toggle import ActionStep
from trimaran.cluster.documents.operations import Operation, OperationProgress
from trimaran.service_api import ConfigurationError
from trimaran.service_api.documents.member_status import MemberStatus
from trimaran.service_api.types import INSPECTION_STREAM_ID, OPERATION_STREAM_ID, STATUS_STREAM_ID

POSITION = 123_456
CLUSTER_ID = "3f9a0c12d45e77b1"
GONE = "7,127.0.0.1:5,127.0.0.1:6,127.0.0.1:2,127.0.0.1:3,127.0.0.1:4"
"""A member whose consensus endpoint nothing listens on."""
FREE = "127.0.0.1:1"
"""Where no member is."""
COMMANDS = {
    "suspend": Operation.SUSPEND,
    "resume": Operation.RESUME,
    "snapshot take": Operation.SNAPSHOT,
    "snapshot take --standby": Operation.STANDBY_SNAPSHOT,
    "leader transfer --to 1": Operation.TRANSFER,
    "feature-level raise": Operation.RAISE_FEATURE_LEVEL,
    "log skip --log-position 123456 --confirm": Operation.SKIP_ENTRY,
    "member remove --id 1": Operation.CHANGE_MEMBERS,
    "sessions close 17": Operation.CLOSE_SESSIONS,
    "sessions close --principal importer": Operation.CLOSE_SESSIONS,
}


def answer(
    operation: Operation, step: ActionStep = ActionStep.DONE, detail: str = "as asked", position: int | None = POSITION
) -> OperationProgress:
    return OperationProgress(
        operation=operation, step=step, member_id=0, log_position=position, detail=detail, is_final=True
    )


def with_snapshot(status: MemberStatus) -> MemberStatus:
    return status.model_copy(update={"snapshot_position": POSITION})


@contextmanager
def cluster(progress: OperationProgress, *followers: MemberStatus, cluster_id: str = CLUSTER_ID) -> Iterator[str]:
    """Member 0 leads and answers with a step; give the members as for --members."""
    leader = with_snapshot(member_status(0, state="LEADER", leader=0)).model_copy(update={"cluster_id": cluster_id})
    statuses = (leader, *(followers or (with_snapshot(member_status(1, leader=0)),)))
    with ExitStack() as stack:
        members = [
            stack.enter_context(
                FakeMember(
                    status.member_id,
                    {
                        STATUS_STREAM_ID: status,
                        OPERATION_STREAM_ID: progress,
                        INSPECTION_STREAM_ID: members_view(status.member_id, status.role),
                    },
                )
            )
            for status in statuses
        ]
        yield "|".join(member.members for member in members)


@contextmanager
def grouped(operation: Operation, *high_member_ids: int) -> Iterator[list[FakeMember]]:
    """Member 0 leads each of several groups; in each another id is the highest that there was."""
    [base_port] = find_base_ports(1, group_count=len(high_member_ids))
    leader = with_snapshot(member_status(0, state="LEADER", leader=0))
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                FakeMember(
                    0,
                    {
                        STATUS_STREAM_ID: leader,
                        OPERATION_STREAM_ID: answer(operation),
                        INSPECTION_STREAM_ID: members_view(0, "LEADER").model_copy(
                            update={"high_member_id": high_member_id}
                        ),
                    },
                    base_port + 1 + 100 * group_index,
                )
            )
            for group_index, high_member_id in enumerate(high_member_ids)
        ]


def run(command: str, members: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Result:
    words = command.split()
    return CliRunner(env={"COLUMNS": "200", **(environment or {})}).invoke(
        build_app(words), [*words, "--members", members, *arguments]
    )


@pytest.mark.parametrize(("command", "operation"), COMMANDS.items(), ids=COMMANDS)
def test_what_the_leader_and_every_member_have_done_is_success(command: str, operation: Operation) -> None:
    with cluster(answer(operation)) as members:
        result = run(command, members, "-o", "json")

    report = json.loads(result.stdout)
    assert result.exit_code == 0, result.stderr
    assert (report["operation"], report["outcome"], report["leader_member_id"]) == (operation.value, "done", 0)
    assert (report["log_position"], report["schema_version"]) == (POSITION, 1)
    # A hand-over has no part for the others: who leads then has done it.
    expected = {} if operation is Operation.TRANSFER else {0: "done", 1: "done"}
    assert {part["member_id"]: part["part"] for part in report["members"]} == expected


@pytest.mark.parametrize(("command", "operation"), COMMANDS.items(), ids=COMMANDS)
@pytest.mark.parametrize(
    ("step", "status"),
    [
        (ActionStep.REFUSED, EXIT_REFUSED),
        (ActionStep.FAILED, EXIT_FAILED),
        (ActionStep.UNKNOWN, EXIT_FAILED),
    ],
)
def test_what_the_leader_did_not_do_ends_the_command_with_the_leaders_reason(
    command: str, operation: Operation, step: ActionStep, status: int
) -> None:
    with cluster(answer(operation, step, "disk=full", None)) as members:
        result = run(command, members)

    assert result.exit_code == status
    assert has_facts(result.stderr, f"{operation} {step}", "disk=full")
    assert len(result.stderr.splitlines()) == 1


def test_a_member_that_has_moved_is_asked_where_the_cluster_says_it_is() -> None:
    """Issue 44 §2: it answered there, and was called unreachable at the address of the settings."""
    leader = with_snapshot(member_status(0, state="LEADER", leader=0, members="0 1"))
    with FakeMember(1, {STATUS_STREAM_ID: with_snapshot(member_status(1, leader=0))}) as moved:
        _, _, consensus, *_ = moved.members.split(",")
        places = [one.model_copy(update={"consensus": consensus}) for one in leader.members]
        answers = {
            STATUS_STREAM_ID: leader.model_copy(update={"members": places}),
            OPERATION_STREAM_ID: answer(Operation.CHANGE_MEMBERS),
            INSPECTION_STREAM_ID: members_view(0, "LEADER"),
        }
        with FakeMember(0, answers) as asked:
            of_old = GONE.replace("7,", "1,", 1)
            result = run("member remove --id 5", f"{asked.members}|{of_old}", "-o", "json")

    report = json.loads(result.stdout)
    assert result.exit_code == 0, result.stderr
    assert {part["member_id"]: part["part"] for part in report["members"]} == {0: "done", 1: "done"}


def test_id_of_a_new_member_is_told_once_it_is_that_members() -> None:
    """The id of an addition that was refused is that of the member that is added next."""
    command = f"member replace --id 0 --endpoint {FREE}"
    with cluster(answer(Operation.CHANGE_MEMBERS, ActionStep.REFUSED, "ask again", None)) as members:
        refused = run(command, members)
    with cluster(answer(Operation.CHANGE_MEMBERS)) as members:
        added = run(command, members, "--timeout", "0.2")

    assert refused.exit_code == EXIT_REFUSED
    assert "member 1" not in refused.stdout
    assert has_facts(added.stdout, "member 1", "member 0", FREE)
    assert added.stdout.index("change-members done") < added.stdout.index("member 1 ")


def test_nobody_is_added_for_a_member_that_there_is_not() -> None:
    with cluster(answer(Operation.CHANGE_MEMBERS)) as members:
        result = run(f"member replace --id 99 --endpoint {FREE}", members)

    assert result.exit_code == EXIT_USAGE
    assert "done" not in result.stdout
    assert has_facts(result.stderr, "member_id=99", "members are 0")


def test_a_step_and_each_part_are_a_line_as_they_are_told() -> None:
    with cluster(answer(Operation.SUSPEND)) as members:
        table, lines = run("suspend", members), run("suspend", members, "-o", "jsonl")

    first, *parts = table.stdout.splitlines()
    assert has_facts(first, "suspend done", "member_id=0", f"log_position={POSITION}", "as asked")
    assert sorted(part.split(" delivered")[0] for part in parts) == [f"suspend done: member_id={i}" for i in (0, 1)]
    rows = [json.loads(line) for line in lines.stdout.splitlines()]
    assert rows[0]["step"] == "done"
    assert {row["schema_version"] for row in rows} == {1}
    assert sorted((row["member_id"], row["part"]) for row in rows[1:]) == [(0, "done"), (1, "done")]


def test_a_member_that_is_down_is_named_and_not_waited_for() -> None:
    with cluster(answer(Operation.SUSPEND)) as members:
        result = run("suspend", f"{members}|{GONE}", "-o", "json")

    parts = {part["member_id"]: part["part"] for part in json.loads(result.stdout)["members"]}
    assert (result.exit_code, parts) == (0, {0: "done", 1: "done", 7: "unreachable"})


@pytest.mark.parametrize("command", ["resume", "snapshot take"])
def test_a_member_without_its_part_at_the_timeout_is_late(command: str) -> None:
    """It has not delivered the log so far, and has no snapshot of there."""
    with cluster(answer(COMMANDS[command]), member_status(1, leader=0, append=POSITION - 64)) as members:
        result = run(command, members, "--timeout", "0.3", "-o", "json")

    parts = {part["member_id"]: part for part in json.loads(result.stdout)["members"]}
    assert result.exit_code == EXIT_FAILED
    assert (parts[0]["part"], parts[1]["part"]) == ("done", "late")
    assert f"delivered_position={POSITION - 64}" in parts[1]["detail"]
    assert has_facts(result.stderr, COMMANDS[command].value, "[1]", "0.3 s")


@pytest.mark.parametrize("command", ["shutdown", "abort"])
def test_a_stop_waits_until_members_are_gone(command: str) -> None:
    with cluster(answer(Operation(command))) as members:
        result = run(command, f"{members}|{GONE}", "--timeout", "0.3", "-o", "json")

    parts = {part["member_id"]: part["part"] for part in json.loads(result.stdout)["members"]}
    assert (result.exit_code, parts) == (EXIT_FAILED, {0: "late", 1: "late", 7: "done"})


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_leader_nothing_is_asked(command: str) -> None:
    follower = member_status(0, leader=None)
    with FakeMember(0, {STATUS_STREAM_ID: follower}) as member:
        result = run(command.replace("--to 1", "").replace("--id 1", "--id 0"), member.members)

    assert (result.exit_code, result.stdout) == (EXIT_NO_LEADER, "")


@pytest.mark.parametrize("command", [*COMMANDS, "shutdown", "abort"])
def test_without_members_that_answer_the_command_says_why(command: str) -> None:
    result = run(command.replace("--to 1", "--to 7"), GONE)

    assert (result.exit_code, result.stdout) == (EXIT_UNREACHABLE, "")
    assert has_facts(result.stderr, "member 7: ")


def test_members_of_two_clusters_are_refused_before_one_is_asked() -> None:
    with cluster(answer(Operation.ABORT), cluster_id="0000000000000001") as members:
        result = run("abort", members)

    assert (result.exit_code, result.stdout) == (EXIT_REFUSED, "")
    assert has_facts(result.stderr, "cluster 0000000000000001: members [0]", "cluster 3f9a0c12d45e77b1: members [1]")


def test_a_cluster_that_is_not_the_one_meant_is_refused() -> None:
    with cluster(answer(Operation.SUSPEND)) as members:
        result = run("suspend", members, "--cluster-id", "0000000000000001")

    assert result.exit_code == EXIT_REFUSED
    assert has_facts(result.stderr, "3f9a0c12d45e77b1", "0000000000000001")


@pytest.mark.parametrize("command", ["leader transfer --to 5", "shutdown --member 5"])
def test_a_member_that_is_none_is_wrong_usage(command: str) -> None:
    with cluster(answer(Operation.TRANSFER)) as members:
        result = run(command, members)

    assert result.exit_code == EXIT_USAGE
    assert "member_id=5 expected one of [0, 1]" in result.stderr


@pytest.mark.parametrize(
    "command",
    [
        "log skip --log-position 64",
        "member add --endpoint h:9000 --witness --promote",
        "member add --endpoint h:9000 --standby --witness",
        "member add --endpoint h:9000 --standby --promote",
        "member remove",
        "suspend --timeout 0",
        "leader transfer --to -1",
        "leader transfer --at 02:00",
        "feature-level raise --to 0",
        "suspend -o yaml",
    ],
)
def test_wrong_usage_asks_nobody(command: str) -> None:
    result = run(command, GONE)

    assert (result.exit_code, result.stdout) == (EXIT_USAGE, "")


@pytest.mark.parametrize("endpoint", ["h", "h:x", "h:70000", "h:1,h:2"])
def test_a_new_member_needs_an_endpoint_that_can_be_dialled(endpoint: str) -> None:
    with cluster(answer(Operation.CHANGE_MEMBERS)) as members:
        result = run(f"member move --id 1 --endpoint {endpoint}", members)

    assert isinstance(result.exception, ConfigurationError)
    assert result.stdout == ""


def test_a_new_member_gets_the_next_free_id() -> None:
    with cluster(answer(Operation.CHANGE_MEMBERS)) as members:
        added = run("member add --endpoint 127.0.0.1:1", members)
        promoted = run("member promote --id 5", members)

    assert added.exit_code == 0
    assert "change-members done" in added.stdout
    assert promoted.exit_code == EXIT_USAGE
    assert "member_id=5" in promoted.stderr


@pytest.mark.parametrize(("step", "status"), [(ActionStep.DONE, 0), (ActionStep.REFUSED, EXIT_FAILED)])
def test_log_trust_tells_every_member_whose_log_is_valid(step: ActionStep, status: int) -> None:
    with cluster(answer(Operation.TRUST_LOG, step, "it holds", position=None)) as members:
        result = run("log trust --member 1 --confirm", members)

    assert result.exit_code == status, result.output
    assert has_facts(result.output, f"member 0: {step}", f"member 1: {step}")


@pytest.mark.parametrize("arguments", ["--member 1", "--member 7 --confirm"])
def test_log_trust_wants_a_member_of_the_cluster_and_a_confirmation(arguments: str) -> None:
    with cluster(answer(Operation.TRUST_LOG)) as members:
        result = run(f"log trust {arguments}", members)

    assert result.exit_code == EXIT_USAGE


@pytest.mark.parametrize("named", ["", "17 --principal a", "--principal a --address 10.0.0.7", "--principal="])
def test_sessions_to_close_are_named_in_one_way(named: str) -> None:
    """A name out of an empty variable closes nothing, least of all the sessions of clients without a principal."""
    result = run(f"sessions close {named}", "0=127.0.0.1:1")

    assert result.exit_code == EXIT_USAGE
    assert has_facts(result.stderr, "ID", "--principal NAME", "--address ADDRESS")


@pytest.mark.parametrize("command", ["member add", "member move --id 0", "member replace --id 0"])
def test_a_member_has_one_id_and_its_own_ports_in_every_group(command: str) -> None:
    """The ports of a group are 100 above those of the group before, which nobody has to work out."""
    with grouped(Operation.CHANGE_MEMBERS, 4, 6) as members:
        result = run(f"{command} --endpoint {FREE}", members[0].members, "--groups", "2", "--timeout", "0.5")

    [first, second] = [member.requests[OPERATION_STREAM_ID][0]["change"] for member in members]
    assert result.stdout.startswith("group 0 of 2\n")
    assert "\ngroup 1 of 2\n" in result.stdout
    assert first["member_id"] == second["member_id"] == (0 if "move" in command else 7)
    assert (first["endpoints"][0], second["endpoints"][4]) == ("127.0.0.1:1", "127.0.0.1:105")


def test_a_group_that_is_named_is_changed_alone() -> None:
    """So an operator ends what was done in some groups only; the endpoint is that of group 0, as in all settings."""
    with grouped(Operation.CHANGE_MEMBERS, 4, 6) as members:
        result = run(f"member add --endpoint {FREE}", members[0].members, "--groups", "2", "--group", "1", "-o", "json")

    [change] = [each["change"] for each in members[1].requests[OPERATION_STREAM_ID]]
    assert members[0].requests == {}
    assert (change["member_id"], change["endpoints"][0]) == (7, "127.0.0.1:101")
    assert json.loads(result.stdout)["group"] == "1/2"


@pytest.mark.parametrize("flags", [("--to", "0"), ("--from", "1")])
def test_a_hand_over_leaves_a_leader_that_is_the_right_one(flags: tuple[str, str]) -> None:
    """Of several groups some are led by it already."""
    follower = member_status(1, leader=0)
    with cluster(answer(Operation.TRANSFER, ActionStep.FAILED), follower) as members:
        result = run("leader transfer", members, *flags)

    assert result.exit_code == 0, result.stderr
    assert has_facts(result.stdout, "transfer done", "member 0 leads already")


def test_a_hand_over_from_the_leader_is_asked_for() -> None:
    with cluster(answer(Operation.TRANSFER)) as members:
        result = run("leader transfer", members, "--from", "0")

    assert (result.exit_code, "as asked" in result.stdout) == (0, True)


def test_a_planned_hand_over_says_who_leads_and_looks_at_its_members_first() -> None:
    """A slip shows now, and not at night; the time has come when the command looks for it."""
    soon, later = ((datetime.now(UTC) + timedelta(seconds=left_s)).isoformat() for left_s in (1, 3_600))
    with cluster(answer(Operation.TRANSFER)) as members:
        result = run("leader transfer", members, "--at", soon)
        unknown = run("leader transfer --to 5", members, "--at", later)
    gone = run("leader transfer", GONE, "--at", later)

    assert (result.exit_code, "as asked" in result.stdout) == (0, True)
    assert has_facts(result.stderr, "member 0 leads now", "waits until")
    assert unknown.exit_code == EXIT_USAGE
    assert gone.exit_code == EXIT_UNREACHABLE
