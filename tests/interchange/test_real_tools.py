"""What the real ArchiveTool and ClusterTool printed of each directory, fact by fact against what our commands say."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.interchange.samples import Sample, run
from tests.interchange.test_real_directories import OUR_NAMES

Facts = dict[str, Any]

_FACT = re.compile(r"(\w+)=('[^']*'|-?\w+)")


def facts_of(text: str) -> Facts:
    """Read `name=value` pairs: whole numbers, words, texts in quotes."""
    found: Facts = {}
    for name, value in _FACT.findall(text):
        is_number = value.lstrip("-").isdecimal()
        found[name] = int(value) if is_number else value.strip("'")
    return found


def elements(text: str, name: str) -> list[Facts]:
    """Read every `Name{...}` or `Name[...]` that holds facts only."""
    return [facts_of(inside) for inside in re.findall(rf"\b{name}[\[{{]([^\[\]{{}}]*)[\]}}]", text)]


def rows_of(*arguments: object) -> list[Facts]:
    result = run(*arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    rows: list[Facts] = json.loads(result.stdout)
    return rows


def descriptors_in(text: str) -> list[Facts]:
    """Read every recording descriptor, with its state."""
    lines = [line for line in text.splitlines() if line.startswith("[RecordingDescriptor]")]
    return [facts_of(line.partition(":")[2]) | {"state": line.rpartition("|")[2]} for line in lines]


def our_descriptor(row: Facts) -> Facts:
    fields = {theirs: row[ours] for theirs, ours in OUR_NAMES.items()}
    for name in ("stopTimestamp", "stopPosition"):
        fields[name] = -1 if fields[name] is None else fields[name]
    return {**fields, "state": row["state"]}


def test_describe_all_says_what_archive_tool_says(sample: Sample) -> None:
    said = sample.said("archive-describe-all")

    rows = rows_of("archive", "describe", sample.directory, "--all")

    assert [our_descriptor(row) for row in rows] == descriptors_in(said)
    assert len(rows) == said.count("[RecordingDescriptor]")


def test_state_says_of_the_archive_what_archive_tool_says(sample: Sample) -> None:
    (line,) = (line for line in sample.said("archive-describe-all").splitlines() if line.startswith("[MarkFileHeader]"))

    row = next(row for row in rows_of("state", sample.directory) if row["file"] == "archive-mark.dat")

    header = facts_of(line.partition(":")[0])
    assert header == {
        "sbeTemplateId": row["template_id"],
        "sbeSchemaId": row["schema_id"],
        "sbeSchemaVersion": row["schema_version"],
        "sbeBlockLength": row["block_length"],
    }
    assert row["fields"] == facts_of(line.partition(":")[2])


def test_verify_says_what_archive_tool_says(sample: Sample) -> None:
    said = re.findall(r"\(recordingId=(\d+)\) (OK|skipping: DELETED)", sample.said("archive-verify"))

    rows = rows_of("archive", "verify", sample.directory)

    names = {"OK": "ok", "skipping: DELETED": "skipped"}
    assert [(row["recording_id"], row["verdict"]) for row in rows] == [(int(i), names[text]) for i, text in said]


def test_verify_finds_the_end_that_archive_tool_then_wrote(sample: Sample) -> None:
    """Theirs writes a stop position that is missing into the catalog; ours says it and changes nothing."""
    after = descriptors_in(sample.said("archive-describe-all-after-verify"))

    rows = rows_of("archive", "verify", sample.directory)

    assert [row["stop_position"] for row in rows if row["verdict"] == "ok"] == [
        descriptor["stopPosition"] for descriptor in after if descriptor["state"] != "DELETED"
    ]


def test_recording_log_says_what_cluster_tool_says(member: Sample) -> None:
    said = elements(member.said("cluster-recording-log"), "Entry")

    rows = rows_of("recording-log", member.directory)

    shared = (
        "recordingId",
        "leadershipTermId",
        "termBaseLogPosition",
        "logPosition",
        "timestamp",
        "serviceId",
        "entryIndex",
    )
    ours = [
        {name: row[name] for name in shared} | {"type": row["typeName"], "isValid": str(row["isValid"]).lower()}
        for row in rows
    ]
    assert ours == said
    assert ours


def plan_of(member: Sample) -> Facts:
    result = run("recovery-plan", member.directory, "-o", "json")
    assert result.exit_code == 0, result.output
    plan: Facts = json.loads(result.stdout)
    return plan


def test_recovery_plan_says_what_cluster_tool_says(member: Sample) -> None:
    said = member.said("cluster-recovery-plan")
    whole, (log,), snapshots = facts_of(said), elements(said, "Log"), elements(said, "Snapshot")

    plan = plan_of(member)

    assert plan["last_leadership_term_id"] == whole["lastLeadershipTermId"]
    assert plan["last_term_base_log_position"] == whole["lastTermBaseLogPosition"]
    assert plan["append_position"] == whole["appendedLogPosition"] == log["stopPosition"]
    assert plan["log_recording_id"] == log["recordingId"]
    assert plan["replay_position"] == log["startPosition"]
    assert plan["last_term_end_position"] == (None if log["logPosition"] == -1 else log["logPosition"])
    shared = {"service_id": "serviceId", "recording_id": "recordingId", "leadership_term_id": "leadershipTermId"}
    shared["log_position"] = "logPosition"
    assert [{theirs: s[ours] for ours, theirs in shared.items()} for s in plan["snapshots"]] == [
        {theirs: snapshot[theirs] for theirs in shared.values()} for snapshot in snapshots
    ]


def snapshot_lines(said: str, beginning: str) -> list[Facts]:
    """Read the facts of every line with this beginning."""
    return [facts_of(line) | texts_of(line) for line in said.splitlines() if line.startswith(f"{beginning}: ")]


def texts_of(line: str) -> Facts:
    channel = line.partition(" responseChannel=")[2]
    return {"responseChannel": channel} if channel else {}


SNAPSHOT_PARTS = {
    "Consensus Module State": "ConsensusModule",
    "Cluster Session": "ClusterSession",
    "Timer": "Timer",
    "Pending Message Tracker": "PendingMessageTracker",
}
"""How ClusterTool names the messages of a snapshot."""


def test_the_snapshot_of_the_plan_holds_what_cluster_tool_describes(member: Sample) -> None:
    said = member.said("cluster-describe-latest-cm-snapshot")
    snapshots = plan_of(member)["snapshots"]
    if "Snapshot not found" in said:
        assert snapshots == []
        return
    recording_id = snapshots[0]["recording_id"]

    rows = rows_of("archive", "dump", member.directory, "--messages", "--recording-id", recording_id)

    for their_name, our_name in SNAPSHOT_PARTS.items():
        ours = [row["fields"] for row in rows if row["name"] == our_name]
        assert ours == [
            {name: fields[name] for name in row}
            for row, fields in zip(ours, snapshot_lines(said, their_name), strict=True)
        ]
    pending = [row for row in rows if row["name"] == "SessionMessageHeader"]
    assert [
        {"length": row["length"], "clusterSessionId": row["fields"]["clusterSessionId"]} for row in pending
    ] == snapshot_lines(said, "Pending Message")
    begin, end = rows[0], rows[-1]
    assert (begin["name"], begin["fields"]["mark"], end["fields"]["mark"]) == ("SnapshotMarker", "BEGIN", "END")
    assert facts_of(said.splitlines()[1])["appVersion"] == begin["fields"]["appVersion"]
    (last,) = (line for line in said.splitlines() if line.startswith("End Snapshot, "))
    assert facts_of(last) == {"offset": end["position"] + 32, "length": end["length"]}
    (whole,) = (line for line in said.splitlines() if line.startswith("Consensus Module Snapshot End: "))
    assert facts_of(whole)["recordingId"] == recording_id
    assert facts_of(whole)["length"] == end["end_position"] == snapshots[0]["length_bytes"]


def test_the_samples_have_what_both_tools_said(member: Sample) -> None:
    """The tests above compare nothing where a text is empty."""
    assert "exit code 0" in member.said("archive-describe-all")
    assert "exit code 0" in member.said("cluster-recovery-plan")
    assert member.said("cluster-recording-log").count("Entry{") == len(member.truth["recording_log"]["entries"])
