"""What `trimaran recover` prints: what was found, decided and done, as one object, and as a table for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ....archive.tool.output import OutputFormat, make_console, print_rows
from ....service_api.cluster_id import ClusterId, format_cluster_id
from ...operating.salvage.choice import SalvageChoice
from ...operating.salvage.holding import Holding
from ...operating.salvage.living import OldMember
from ...operating.salvage.writing import RecoveryRecord

_SHOWN: Final = {
    "directory": "directory",
    "member_id": "member",
    "last_leadership_term_id": "term",
    "start_position": "log from",
    "end_position": "to",
    "commit_position": "committed",
    "snapshot_positions": "snapshots",
}


def describe_choice(choice: SalvageChoice) -> dict[str, Any]:
    """What was found and decided, as one object. Positions are bytes of the log."""
    configuration = choice.configuration
    return {
        "directories": [_describe_holding(holding) for holding in choice.holdings],
        "chosen": None if choice.chosen is None else choice.chosen.name,
        "old_cluster_id": format_cluster_id(choice.cluster_id),
        "old_members": None if configuration is None else configuration.describe(),
        "known_commit_position": choice.known_commit_position,
        "reasons": choice.reasons,
        "losses": choice.losses,
        "problems": choice.problems,
        "steps": []
        if choice.problems
        else [
            "the new cluster has a new cluster id; with TLS, make its certificates first, and give `trimaran recover "
            "apply` their id with --cluster-id"
        ],
    }


def _describe_holding(holding: Holding) -> dict[str, Any]:
    survey = holding.survey if holding.is_usable else None
    return {
        "directory": holding.name,
        "member_id": holding.member_id,
        "cluster_id": format_cluster_id(holding.cluster_id),
        "written_by": "trimaran" if holding.is_ours else "Aeron",
        "is_usable": holding.is_usable,
        "start_position": None if survey is None else survey.log.start_position,
        "end_position": None if survey is None else survey.stop_position,
        "last_leadership_term_id": None if survey is None else survey.last_leadership_term_id,
        "terms": [] if survey is None else [[t.leadership_term_id, t.term_base_log_position] for t in survey.terms],
        "candidate_term_id": None if holding.source is None else holding.source.candidate_term_id,
        "commit_position": None if holding.claim is None else holding.claim.position,
        "snapshot_positions": [] if survey is None else [found.log_position for found in survey.snapshots],
        "members": None if holding.configuration is None else holding.configuration.describe(),
        "running": holding.running,
        "damage": holding.damage,
        "notes": holding.notes,
        "problems": holding.problems,
    }


def describe_result(
    record: RecoveryRecord, asked: list[OldMember], written: Sequence[Path], kept: Sequence[Path]
) -> dict[str, Any]:
    """What was written, as one object."""
    return {
        "cluster_id": format_cluster_id(record.cluster_id),
        "leadership_term_id": record.leadership_term_id,
        "term_base_log_position": record.term_base_log_position,
        "end_position": record.end_position,
        "asked": [f"member {member.member_id} at {member.endpoint}: {member.found}" for member in asked],
        "written": [str(path) for path in written],
        "kept": [str(path) for path in kept],
        "steps": steps_to_new_id(record.cluster_id),
    }


def steps_to_new_id(cluster_id: ClusterId) -> list[str]:
    """Say what names the cluster besides its directories, and has to name the new one."""
    new_id = format_cluster_id(cluster_id)
    return [
        f"with TLS, every certificate has to name the new cluster: those of cluster_id={new_id} are made with "
        f"`trimaran certs init DIR --cluster-id {new_id}`, or by your own authority; members do not start with others",
        f"correct cluster_id where a setting or a client demands the old one: {new_id}",
    ]


def print_recovery(document: dict[str, Any], output: OutputFormat) -> None:
    """Print one object, or its table and lines for people."""
    if output is not OutputFormat.TABLE:
        print_rows([document], output)
        return
    console = make_console(120)
    rows = document.get("directories", [])
    if rows:
        print_rows([{name: row[name] for name in _SHOWN} for row in rows], output, columns=_SHOWN)
    for row in rows:
        for what in (*row["damage"], *row["notes"], *row["problems"]):
            console.print(f"{row['directory']}: {what}", markup=False)
    for name, heading in (("reasons", "why"), ("losses", "lost or kept"), ("asked", "asked"), ("steps", "to do")):
        for text in document.get(name, []):
            console.print(f"{heading}: {text}", markup=False)
    if "written" in document:
        console.print(f"new cluster_id={document['cluster_id']}", markup=False)
    for path in document.get("written", []):
        console.print(f"written: {path}", markup=False)
    for path in document.get("kept", []):
        console.print(f"kept: {path}; remove it when the new cluster is well", markup=False)
