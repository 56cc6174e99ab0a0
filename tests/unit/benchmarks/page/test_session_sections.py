"""The sections about many sessions, groups, big states and Aeron say what the stored results say."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.unit.benchmarks.page import samples, session_samples
from trimaran.benchmarks.page.aeron_section import aeron_section
from trimaran.benchmarks.page.files import NEEDED, read_sources
from trimaran.benchmarks.page.groups_section import groups_section, modelled_rate
from trimaran.benchmarks.page.performance_page import make_page
from trimaran.benchmarks.page.session_sections import (
    fairness_section,
    growth_plot,
    growth_section,
    opening_section,
    profiles_section,
    session_bytes,
)
from trimaran.benchmarks.page.state_section import state_section
from trimaran.benchmarks.page.summary import anchor_of, summary


def test_growth_has_a_row_for_each_number_of_sessions_with_cost_efficiency_and_memory() -> None:
    page = growth_section(session_samples.sessions(), lambda plots: "".join(plot.name for plot in plots))

    assert (
        "| 1 | their own | 20,000 | 25.0 ms | 50.0 ms | 5.0 µs | 1.2 µs | 2.5 µs | 10.0 µs | 100 % |  |  |  |  |"
        in page
    )
    # 4 MiB more of a member and 1 MiB more of the client, for 999 more sessions; half of the efficiency of one.
    assert "| 1,000 | their own | 20,000 |" in page
    assert "| 20.0 µs | 50 % | 60 %: **not reached** | 4.1 | 4.1 | 1.0 |" in page
    assert "| 12.5 µs | 80 % | 60 %: reached | 2.1 | 2.1 | 1.0 |" in page
    assert "| 20.0 µs | 50 % | 40 %: reached | 2.0 | 2.0 | 2.0 |" in page
    assert "Not measured: 10,000 sessions, sessions: not enough open files." in page
    assert "at commit abc on 2026-01-31, with a load average of 0.5 on 2 cores" in page
    assert page.endswith("sessions")


def test_each_client_process_counts_with_what_it_takes_for_one_session() -> None:
    one, _, _, _, most = session_samples.sessions()["points"]

    added = session_bytes(most, one)

    # Two processes of 50 MiB, less two of 40 MiB.
    assert round(added["clients"]) == round(20 * session_samples.MIB / 9_999)
    assert session_bytes(one, one) == {}


def test_the_growth_plot_draws_what_there_is() -> None:
    plot = growth_plot(session_samples.sessions())

    assert ElementTree.fromstring(plot.svg()).tag == "{http://www.w3.org/2000/svg}svg"
    assert "From one session to 10,000" in plot.caption
    empty = growth_plot({**session_samples.sessions(), "points": []})
    assert ElementTree.fromstring(empty.svg()).tag.endswith("svg")


def test_openings_are_held_against_their_targets() -> None:
    page = opening_section(session_samples.openings())

    assert (
        "| 1,000 | their own | no | 1.5 s (1.0 to 2.5) |  | 400 µs | 600 µs | 2.5 µs/s | 3.5 µs/s | 501 ms | 900 ms |"
        in page
    )
    assert "| 2,999 ms | p50 500 ms: **not reached** |" in page
    assert "| 10,000 | their own | no | 5.5 s | 5 s: **not reached** |" in page
    assert "| 10,000 | shared | yes | 5.5 s | 30 s: reached |" in page
    assert "max 3,000 ms: reached |" in page
    assert "Not measured: 10,000 sessions, connections: their own, password: the time was up." in page
    assert "of at most 0.75 before a case" in page


def test_fairness_says_how_many_times_longer_modest_sessions_wait() -> None:
    page = fairness_section(session_samples.fairness())

    assert "| none |  | 60.0 ms | 80.0 ms | 90.0 ms |  |  |" in page
    assert "| 64 in flight | 5,000 | 60.0 ms | 80.0 ms | 90.0 ms | 1.5 | 3: reached |" in page
    assert "| 4,096 in flight | 90,000 | 60.0 ms | 80.0 ms | 90.0 ms | 3.25 | 3: **not reached** |" in page


def test_profiles_stand_beside_each_other_by_stage() -> None:
    found = session_samples.everything()
    page = profiles_section({1: found["profile.json"], 1_000: found["profile-1000.json"]})

    assert "| | 1 session | 1,000 sessions |" in page
    assert "#### The leader" in page
    assert "#### The follower" in page
    assert "#### The client" in page
    assert "| append: stamp and place | 1.20 | 3.50 |" in page
    assert "| kernel: fdatasync | 0.70 | 0.70 |" in page
    assert "| smaller ones | 0.01 | 0.01 |" in page
    assert "| **all** | 2.00 | 4.30 |" in page
    assert "| `core/log_publisher.py:_stamp` | append: stamp and place | 1.10 |" in page


@pytest.mark.parametrize(
    ("cores", "groups", "rate"),
    [
        (16, 1, 500_000),  # one leader's thread
        (16, 2, 1_000_000),
        (16, 32, 2_666_667),  # all cores
        (2, 1, 333_333),
    ],
)
def test_the_model_is_bound_by_the_leaders_thread_or_by_all_cores(cores: int, groups: int, rate: int) -> None:
    assert round(modelled_rate(cores, groups, leader_us=2.0, others_us=4.0)) == rate


def test_groups_have_rates_and_a_model_that_is_marked_as_one() -> None:
    page = groups_section(session_samples.groups())

    assert "| 2 | 275,000 | 275,000 to 275,000 | 110% | 4.0 ms | 8.0 ms | 2.00 µs | 1.00 µs | 2.00 µs |" in page
    assert "### A model of 16 cores, not a measurement" in page
    assert "u = 0.75: how much of the first formula the 2 cores here reach" in page
    assert "| groups | 1 | 2 | 4 | 8 | 16 | 32 |" in page
    assert "| 375,000 | 750,000 | 1,500,000 | 2,000,000 | 2,000,000 | 2,000,000 |" in page
    assert "| 375,000 | 750,000 | 1,500,000 | 3,000,000 | 6,000,000 | 9,000,000 |" in page


def test_snapshots_of_a_big_state_are_held_against_their_targets() -> None:
    page = state_section(session_samples.snapshots())

    assert (
        "| each order a message of its own, encoded in Python | 17,000 ms |  | 17,001 ms | 20 ms | 9.5 s | 13.5 s |  |"
        in page
    )
    assert "| 1,900 ms | 2,000 ms: reached | 1,901 ms | 20 ms | 9.5 s | 4.0 s | 5 s: reached |" in page
    assert "| 150 ms | 100 ms: **not reached** | 151 ms | 20 ms | 9.5 s | 5.5 s | 5 s: **not reached** |" in page
    assert "a copy of the process writes: no memory." in page
    smaller = session_samples.snapshots() | {"parameters": {"orders": 20_000, "runs": 1}}
    assert "reached" not in state_section(smaller)


def test_aeron_is_beside_ours_and_says_that_nothing_repeats_it() -> None:
    page = aeron_section(session_samples.aeron())

    assert "| 1 | 1 | 2,060 | 480 µs | 2,000 | 490 µs | 1.03 | 1: reached |" in page
    assert "| 0 | 64 | 207,000 | not measured | 349,000 | 142 µs | 0.59 | 1: **not reached** |" in page
    assert "no command of the project repeats them" in page
    assert "Aeron Cluster 1.52.2" in page
    assert "on 2026-02-01, with a load average of 0.25 on 2 cores" in page


def test_the_page_begins_with_a_summary_whose_links_lead_to_its_sections(tmp_path: Path) -> None:
    everything = {**samples.everything(), **session_samples.everything()}
    for name, report in everything.items():
        (tmp_path / name).write_text(json.dumps(report))

    page, plots = make_page(tmp_path)

    rows = [line for line in page.splitlines() if line.startswith("| [")]
    assert rows[0].startswith("| [Beside Aeron's own Java](#beside-aerons-own-java) | 0.59 to 1.03 times the rate")
    assert rows[1].startswith(
        "| [Many sessions](#many-sessions) | **A thousand clients**: 20,000 messages/s with p99 50 ms, connections: "
        "their own; 20,000 messages/s"
    )
    assert rows[1].endswith("| 2026-01-31 |")
    assert rows[-1].endswith("| commit abc |")
    headings = {anchor_of(line.lstrip("# ")) for line in page.splitlines() if line.startswith("#")}
    assert {row.partition("(#")[2].partition(")")[0] for row in rows} <= headings
    assert len(rows) == len({*everything} - {"echo.json", "replay.json", "profile-10000.json"})
    assert "sessions" in [plot.name for plot in plots]
    # What `sessions.json` says is not said again of the older scan.
    assert "growth-sessions" not in [plot.name for plot in plots]
    assert "Not measured: sessions 10,000" not in page


def test_the_summary_has_only_what_was_measured() -> None:
    assert summary({"table.json": samples.table()}).count("| [") == 1


def test_every_file_can_be_read_for_the_report(tmp_path: Path) -> None:
    paths = []
    for name, report in session_samples.everything().items():
        paths.append(tmp_path / name)
        paths[-1].write_text(json.dumps(report))

    assert {source.scenario for source in read_sources(paths)} <= set(NEEDED)
