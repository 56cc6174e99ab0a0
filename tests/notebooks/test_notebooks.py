"""Every notebook runs top to bottom, and what it finds is what is known from elsewhere.

The suite runs the one that needs no cluster; `make campaign` runs them all.

What is known: the story of the recording, written down without reading any log; what `trimaran` commands say; a run of
the service without a cluster; and of the Aeron recording what Aeron's own programs said of it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from examples.access_quota import AccessQuota
from notebooks.demo import RecordedMorning
from notebooks.demo.groups import GROUP_COUNT, grouped_requests
from notebooks.demo.shop import SHOP_SETTINGS, STOCK
from notebooks.demo.traffic import MIDNIGHT_S, web_requests
from notebooks.execute import DIRECTORY, scripts
from tests.interchange.samples import run as trimaran
from tests.notebooks.conftest import Run
from tests.unit.archive.streams import load_truth
from trimaran import archive
from trimaran.cluster.testing import ServiceHarness
from trimaran.service_api.groups import GroupTable

ABSOLUTE_PATH = re.compile(r"(?<![\w.:<])/[\w.-]+(?:/[\w.-]+)+")
"""A place of a machine in what a cell has printed; neither the end of a tag nor the path of a URL."""

SNAPSHOT_COUNT = 2
SHOP_SERVICE = SHOP_SETTINGS["service"]
TERM_COUNT = 3


def frame_count(morning: RecordedMorning) -> int:
    """How many frames the log of a survivor has, by the command that reads without Spark and numpy."""
    dumped = trimaran(
        "archive", "dump", morning.member(morning.survivor_member_id), "--recording-id", 0, "--output", "jsonl"
    )
    assert dumped.exit_code == 0, dumped.stderr
    return len(dumped.stdout.splitlines())


def refused_requests() -> list[tuple[str, int]]:
    """Host and hour of every request that is refused in a run without a cluster."""
    requests = web_requests()
    alone = ServiceHarness(AccessQuota)
    replies = [alone.request(request.encode()) for request in requests]
    return [
        (request.host, (request.time_s - MIDNIGHT_S) // 3600)
        for request, reply in zip(requests, replies, strict=True)
        if reply == b"denied\t0"
    ]


@pytest.mark.campaign
def test_01_first_look(run: Run, morning: RecordedMorning) -> None:
    executed = run("01", frames="table.num_rows", spark_frames="log.count()", sizes="sizes.to_dict('records')")

    messages = {row["message"]: row["messages"] for row in executed.values["sizes"]}
    assert executed.values["frames"] == executed.values["spark_frames"] == frame_count(morning)
    assert messages["NewLeadershipTermEvent"] == TERM_COUNT
    assert messages["ClusterActionRequest"] == SNAPSHOT_COUNT
    assert messages["SessionOpenEvent"] == messages["SessionCloseEvent"]
    assert messages["SessionMessageHeader"] >= morning.request_count


@pytest.mark.campaign
def test_02_elections_and_terms(run: Run, morning: RecordedMorning) -> None:
    executed = run("02", terms="terms.to_dict('records')", changes="changes.to_dict('records')")

    terms, changes = executed.values["terms"], executed.values["changes"]
    rows = json.loads(trimaran("recording-log", morning.member(morning.survivor_member_id), "-o", "json").stdout)
    base_positions = sorted({row["termBaseLogPosition"] for row in rows if row["typeName"] == "TERM"})
    killed = next(event.member_ids[0] for event in morning.events if event.what == "leader killed")
    assert len(terms) == 3
    assert [term["start_position"] for term in terms] == base_positions
    assert [term["leader_member_id"] for term in terms[:2]] == [killed, morning.lost_member_id]
    assert [change["start_reason"] for change in changes] == ["node_started", "log_link_closed", "node_started"]


@pytest.mark.campaign
def test_03_sessions_and_traffic(run: Run, morning: RecordedMorning) -> None:
    executed = run(
        "03",
        lives="lives.assign(name=lives['encoded_principal'].str.decode('utf-8'))[['cluster_session_id', 'name', "
        "'close_reason']].to_dict('records')",
        decisions="{row['decision']: row['count'] for row in decided.groupBy('decision').count().collect()}",
        hours="{row['hour']: row['count'] for row in decided.where(\"decision = 'denied'\").groupBy('hour').count()"
        ".collect()}",
        hosts="by_host[['host', 'denied']].to_dict('records')",
        states="watched['state'].value_counts().to_dict()",
        fired="int((watched['state'] == 'fired').sum())",
        timer_events="log.where('template_id = 20').count()",
        by_group="{int(row.group): int(row.messages) for row in by_group.groupby('group', as_index=False).sum("
        "numeric_only=True).itertuples()}",
    )

    values = executed.values
    refused = refused_requests()
    names = {session_id: name for name, ids in morning.session_ids.items() for session_id in ids}
    lives = {life["cluster_session_id"]: life for life in values["lives"]}
    assert values["decisions"] == morning.decisions
    assert values["hours"] == {str(hour): count for hour, count in Counter(hour for _, hour in refused).items()}
    worst = Counter(host for host, _ in refused)
    assert all(worst[row["host"]] == row["denied"] for row in values["hosts"])
    assert values["hosts"][0]["denied"] == max(worst.values())
    assert {session_id: lives[session_id]["name"] for session_id in names} == names
    assert {lives[i]["close_reason"] for i in morning.session_ids["silent"]} == {"TIMEOUT"}
    assert {lives[i]["close_reason"] for i in morning.session_ids["com"]} == {"CLIENT_ACTION"}
    assert values["fired"] == values["timer_events"] > 0
    owned = Counter(GroupTable(GROUP_COUNT).group_of(request.host) for request in grouped_requests())
    assert values["by_group"] == {str(group): count for group, count in owned.items()}


@pytest.mark.campaign
def test_04_comparing_members(run: Run, morning: RecordedMorning) -> None:
    executed = run(
        "04",
        pairs="pairs.astype(object).where(pairs.notna(), None).to_dict('records')",
        found="found[['position', 'first_byte', 'checksum_a', 'checksum_b']].to_dict('records')",
        copy="copy._asdict()",
    )

    lost = f"member {morning.lost_member_id}"
    astray = next(pair for pair in executed.values["pairs"] if lost in (pair["member_a"], pair["member_b"]))
    others = [pair for pair in executed.values["pairs"] if lost not in (pair["member_a"], pair["member_b"])]
    said = trimaran(
        "archive",
        "diff",
        morning.member(morning.survivor_member_id),
        morning.member(morning.lost_member_id),
        "-o",
        "json",
    )
    (found,) = executed.values["found"]
    assert [pair["verdict"] for pair in others] == ["equal"]
    assert astray["verdict"] == "different"
    assert f'"position": {int(astray["diverges_at"])}' in said.stdout
    assert found["position"] == executed.values["copy"]["position"]
    assert found["first_byte"] == executed.values["copy"]["payload_offset"]
    assert (found["checksum_a"], found["checksum_b"]) == ("right", "right")


@pytest.mark.campaign
def test_05_time_travel(run: Run, morning: RecordedMorning) -> None:
    executed = run(
        "05",
        states="along.to_dict('records')",
        end="(end_position, replay_service(member, QuotaWatch, bound='recorded').service.refused_count)",
        verdicts="snapshot_verdicts(spark, member, QuotaWatch).toPandas().astype(object).to_dict('records')",
        changes="{str(change): count for (kind, change), count in comparison.changes.items() if str(kind) == 'reply'}",
        refused="{name: int(found['count'].sum()) for name, found in by_hour.items()}",
    )

    values = executed.values
    of_government = sum(host.endswith(".gov") for host, _ in refused_requests())
    positions = [event.log_position for event in morning.events if event.what == "snapshot"]
    counts = [state["refused"] for state in values["states"]]
    assert values["end"][1] == morning.decisions["denied"]
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert [verdict["to_position"] for verdict in values["verdicts"]] == positions
    assert [verdict["problem"] for verdict in values["verdicts"]] == [None] * SNAPSHOT_COUNT
    assert [*values["changes"]] == ["changed"]
    assert values["changes"]["changed"] >= of_government  # what was sent again to a new leader is answered again
    assert [*values["refused"].values()] == [morning.decisions["denied"], morning.decisions["denied"] - of_government]


@pytest.mark.campaign
def test_06_live(run: Run, environment: dict[str, str]) -> None:
    executed = run(
        "06",
        answered="answered",
        batches="len(batches)",
        got="(len(got), int(got['position'].nunique()), int(got['position'].max()))",
        leaders="(killed.member_id, live.leader_member_id)",
        templates="{int(k): int(v) for k, v in got['template_id'].value_counts().items()}",
    )

    values = executed.values
    killed, leader = values["leaders"]
    log = Path(environment["TRIMARAN_NOTEBOOK_DATA"]) / "live" / f"node-{leader}" / "archive"
    table = archive.frames(log, recording_id=0, columns=["position", "type"], reassemble=True).read_all()
    last_position = values["got"][2]
    recorded = [row["position"] for row in table.to_pylist() if row["type"] == 1 and row["position"] <= last_position]
    assert killed != leader
    assert values["answered"] == len(web_requests())
    assert values["batches"] >= 3
    assert values["got"][:2] == [len(recorded), len(recorded)]
    assert values["templates"]["1"] >= values["answered"]
    assert values["templates"]["24"] == TERM_COUNT - 1


@pytest.mark.slow
def test_07_a_real_aeron_recording(run: Run) -> None:
    executed = run(
        "07",
        sizes="sizes.to_dict('records')",
        terms="terms[['leader_member_id', 'start_position']].to_dict('records')",
        sessions="sessions.astype(str).to_dict('records')",
        problems="problems(spark, str(member)).count()",
    )

    truth = load_truth("three-node-failover-node0")
    (log,) = (recording for recording in truth["recordings"] if recording["kind"] == "log")
    expected = Counter(message["name"] for message in log["messages"])
    got = {row["message"]: row["messages"] for row in executed.values["sizes"] if row["messages"]}
    base_positions = [row["termBaseLogPosition"] for row in terms_of(truth)]
    assert sum(got.values()) == len(log["messages"])
    assert got["NewLeadershipTermEvent"] == expected["NewLeadershipTermEvent"]
    assert got["ClusterActionRequest"] == expected["ClusterActionRequest"]
    assert [term["start_position"] for term in executed.values["terms"]] == base_positions
    assert [term["leader_member_id"] for term in executed.values["terms"]] == [0, 2, 1]
    assert len(executed.values["sessions"]) == sum(
        message["name"] == "ClusterSession" for recording in truth["recordings"] for message in recording["messages"]
    )
    assert executed.values["problems"] == 0


@pytest.mark.campaign
def test_08_a_recovered_morning(run: Run, environment: dict[str, str]) -> None:
    executed = run(
        "08",
        right="right",
        wrong="wrong",
        recovered="recovered",
        position="wrong_position",
        sold="(len(sold), len(sold_after))",
        rows="[(int(row.position), int(row.pieces)) for row in along.itertuples()]",
    )

    values = executed.values
    backup = Path(environment["TRIMARAN_NOTEBOOK_DATA"]) / "shop" / "backup"
    at = ("--position", values["position"], "--bound", "recorded")
    found = trimaran("replay", backup, "--service", SHOP_SERVICE, *at, "--output", "json")
    assert found.exit_code == 0, found.stderr
    assert json.loads(found.stdout)["outputs"]["reply"] >= len(STOCK) + values["sold"][0]
    assert values["recovered"] == values["right"] != values["wrong"]
    assert sum(values["right"].values()) == sum(STOCK.values()) - sum(values["sold"])
    pieces_before = dict(values["rows"])[values["position"]]
    assert pieces_before == sum(STOCK.values()) - values["sold"][0]


def terms_of(truth: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in truth["recording_log"]["entries"] if row["typeName"] == "TERM"]


@pytest.mark.parametrize("script", scripts(), ids=lambda script: script.stem)
def test_the_committed_notebook_is_that_of_its_text(script: Path) -> None:
    """Cell by cell; it was run, shows its pictures, and names no place of the machine that it ran on."""
    import jupytext  # not by every worker that collects this file: see `notebooks.execute`
    import nbformat

    text = script.with_suffix(".ipynb").read_text(encoding="utf-8")
    notebook = nbformat.reads(text, as_version=4)
    source = jupytext.read(script)

    cells = [(cell.cell_type, cell.source) for cell in notebook.cells]
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert cells == [(cell.cell_type, cell.source) for cell in source.cells], "run: python -m notebooks.execute"
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 1
    assert [output for output in outputs if output.get("name") == "stderr"] == []
    assert str(DIRECTORY.parent) not in text
    said = [
        json.dumps({kind: data for kind, data in output.get("data", output).items() if kind != "image/png"})
        for output in outputs
    ]
    assert [place for line in said for place in ABSOLUTE_PATH.findall(line)] == []


def test_cells_are_short_and_every_figure_says_what_to_see() -> None:
    """At most eight lines of code, and the text before a cell that draws begins with what there is to see."""
    import jupytext

    for script in scripts():
        cells = jupytext.read(script).cells
        for before, cell in pairwise(cells):
            if cell.cell_type != "code":
                continue
            lines = [line for line in cell.source.splitlines() if line.strip()]
            assert len(lines) <= 16, (script.name, cell.source)
            if "figures." in cell.source:
                assert "**What to see:**" in before.source, (script.name, cell.source)
