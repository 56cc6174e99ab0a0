"""The report of a directory with groups: a row for each, the whole beside it, and the logs of those that are chosen."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from matplotlib.patches import StepPatch
from typer.testing import CliRunner

from tests.facts import has_facts
from tests.unit.archive.report import frames
from tests.unit.archive.streams import SAMPLES_OF_GROUPS, load_truth, make_member_of_samples
from trimaran.archive.errors import ArchiveError
from trimaran.archive.log.group_directories import settle_group_count
from trimaran.archive.report import captions, figures
from trimaran.archive.report.building import ReportRequest
from trimaran.archive.report.engine.frames import SqlDatabase
from trimaran.archive.report.engine.log_tables import scan_log
from trimaran.archive.report.group_report import (
    SHOWN_GROUP_LIMIT,
    build_groups_report,
    check_group_sources,
    find_groups,
)
from trimaran.archive.report.page import Page, Section
from trimaran.archive.report.theme import REST
from trimaran.archive.spark import analyses
from trimaran.archive.spark.analyses.sql import sql
from trimaran.cluster.cli.app import build_app
from trimaran.service_api.errors import ConfigurationError


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_member_of_samples(tmp_path_factory.mktemp("groups"))


def request_for(*directories: Path, **options: str) -> ReportRequest:
    return ReportRequest(directories={path.name: str(path) for path in directories}, options=options)


def page_of(member: Path, *chosen: int) -> Page:
    groups = find_groups(request_for(member), chosen)
    assert groups is not None
    return build_groups_report(groups, lambda step: None).page


def rows_of(section: Section) -> list[dict[str, str]]:
    assert section.table is not None
    return [dict(zip(section.table.headings, row, strict=True)) for row in section.table.rows]


def message_counts() -> list[int]:
    """How many messages of the newest log of each sample the decoders of the real Aeron found."""
    counts = []
    for scenario, node in SAMPLES_OF_GROUPS:
        logs = [each for each in load_truth(f"{scenario}-{node}")["recordings"] if each["messages"]]
        counts.append(max(len(each["messages"]) for each in logs))
    return counts


def test_the_overview_has_a_row_for_each_group_and_the_whole_beside_it(member: Path) -> None:
    page = page_of(member, 1)

    overview = page.sections[0]
    rows = rows_of(overview)
    counts = message_counts()
    assert [row["group"] for row in rows] == ["0", "1", "all"]
    assert [row["messages"] for row in rows] == [f"{count:,}" for count in (*counts, sum(counts))]
    assert [row["problems"] for row in rows] == ["0", "0", "0"]
    assert rows[2]["share"] == "100 %"
    assert [fact.value for fact in page.facts if fact.name in ("groups", "messages")] == ["2", f"{sum(counts):,}"]
    assert overview.chart is not None
    assert "analyses.group_traffic(log, interval=" in overview.snippet


def test_the_logs_of_the_chosen_groups_are_below(member: Path) -> None:
    sections = page_of(member, 1).sections

    assert [section.title for section in sections[:2]] == ["Groups", "Group 1: Leaders and terms"]
    assert {section.anchor.split("-")[1] for section in sections[1:]} == {"1"}
    assert all(f"load('{member}/group-1')" in section.snippet for section in sections[1:])
    assert len({section.anchor for section in sections}) == len(sections) == 9


def test_all_groups_of_a_small_cluster_are_shown_without_a_choice(member: Path, tmp_path: Path) -> None:
    settle_group_count(tmp_path, SHOWN_GROUP_LIMIT + 1)
    few, many = find_groups(request_for(member)), find_groups(request_for(tmp_path))

    assert few is not None
    assert many is not None
    assert (few.shown, many.shown) == ((0, 1), ())


def test_every_group_is_read_by_its_own_name_in_every_directory(tmp_path: Path) -> None:
    members = [tmp_path / "node-0", tmp_path / "node-1"]
    for member in members:
        settle_group_count(member, 2)
    groups = find_groups(request_for(*members))

    assert groups is not None
    assert [*groups.of_group(1).directories.values()] == [f"{member}/group-1" for member in members]


def test_a_group_that_is_missing_is_told_before_anything_is_read(member: Path, tmp_path: Path) -> None:
    """Planted: a group is left out; the others' logs would make a page that looks whole."""
    shutil.copytree(member, tmp_path / "node-0")
    shutil.rmtree(tmp_path / "node-0" / "group-1")
    groups = find_groups(request_for(tmp_path / "node-0"), (0,))
    assert groups is not None

    with pytest.raises(ArchiveError, match=rf"archive directory.*{tmp_path}/node-0/group-1"):
        check_group_sources(groups)


def test_damage_of_a_group_that_is_not_shown_is_on_the_page(member: Path, tmp_path: Path) -> None:
    shutil.copytree(member, tmp_path / "node-0")
    with (tmp_path / "node-0" / "group-1" / "archive" / "0-131072.rec").open("r+b") as segment:
        segment.write(b"\xee" * 32)

    page = page_of(tmp_path / "node-0", 0)

    assert page.damage is not None
    assert [row[0] for row in page.damage.table.rows] == ["node-0, group 1"] * len(page.damage.table.rows)
    assert [row["problems"] != "0" for row in rows_of(page.sections[0])] == [False, True, True]


@pytest.mark.parametrize(
    ("chosen", "options", "said"),
    [
        ((2,), {}, r"--group 2 .*0 to 1: .*node-0"),
        (
            (1,),
            {"recordingId": "0"},
            r"--recording-id.*one log.*node-0/group-1$",
        ),
    ],
)
def test_what_cannot_be_shown_says_what_to_type(
    member: Path, chosen: tuple[int, ...], options: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        find_groups(request_for(member, **options), chosen)


def test_a_directory_of_one_log_has_no_group_to_choose(member: Path) -> None:
    assert find_groups(request_for(member / "group-0")) is None
    with pytest.raises(ConfigurationError, match=r"--group 0.*group-0"):
        find_groups(request_for(member / "group-0"), (0,))


def test_the_command_makes_the_page(member: Path, tmp_path: Path) -> None:
    arguments = ["report", str(member), "--group", "0", "-o", str(tmp_path / "page.html")]

    ended = CliRunner().invoke(build_app(arguments), arguments)

    assert (ended.exit_code, "9 sections" in ended.output) == (0, True), ended.output
    assert has_facts((tmp_path / "page.html").read_text(encoding="utf-8"), "2 groups", "node-0")


# --- the analysis, the figure and its sentence


def test_group_traffic_counts_what_each_group_logged(member: Path, tmp_path: Path) -> None:
    """As the traffic of sessions does of each log, added up."""
    database = SqlDatabase(tmp_path)
    for index in range(2):
        log = scan_log(database, str(member / f"group-{index}"), {})
        of_group = sql(f"SELECT *, {index} AS `group` FROM log", log=log)
        counted = analyses.group_traffic(of_group, interval="1 second").toPandas()
        sessions = analyses.session_traffic(log, interval="1 second").toPandas()

        by_interval = sessions.groupby("from_timestamp")["messages"].sum()
        assert list(counted["group"].unique()) == [index]
        assert list(zip(counted["from_timestamp"], counted["messages"], strict=True)) == list(by_interval.items())
    database.close()


def test_an_analysis_of_one_log_refuses_those_of_groups(member: Path, tmp_path: Path) -> None:
    """Planted: the logs of two groups as one, whose positions and recording ids are the same."""
    database = SqlDatabase(tmp_path)
    log = sql("SELECT *, 0 AS `group` FROM log", log=scan_log(database, str(member / "group-0"), {}))
    for analysis in (analyses.summary, analyses.session_traffic, analyses.term_timeline, analyses.bursts):
        with pytest.raises(ConfigurationError, match=re.escape('log.where("group = 0").drop("group")')):
            analysis(log)
    database.close()


def test_groups_are_stacked_in_their_order_and_those_with_the_fewest_messages_are_one() -> None:
    few = figures.group_throughput(frames.group_traffic(2))
    many = figures.group_throughput(frames.group_traffic(9))

    drawn = [[patch for patch in each.axes[0].patches if isinstance(patch, StepPatch)] for each in (few, many)]
    assert [patch.get_label() for patch in drawn[0]] == ["group 0", "group 1"]
    assert [patch.get_label() for patch in drawn[1]] == [*(f"group {index}" for index in range(4, 9)), "other groups"]
    assert figures.to_svg(many, "m", "m").count(REST) > 0


def test_the_sentence_says_how_much_and_whose() -> None:
    said = captions.group_throughput(frames.group_traffic(2))
    assert has_facts(said, "60 messages", "2 groups", "30 messages/s", "Group 1", "67 %", "group 0", "33 %")
    assert captions.group_throughput(frames.group_traffic(2).head(0)).startswith("No group logged")
