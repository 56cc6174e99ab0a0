"""Metrics: what a scrape holds, that members in one process do not meet, and that documents name what exists."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.facts import has_facts
from tests.places import ROOT
from tests.unit.cluster.core.sessions.test_pending_sessions import Doorman, admit, connect, refuse
from tests.unit.cluster.core.sessions.test_pending_sessions import leader as leading
from tests.unit.cluster.core.sessions.test_sessions import appended, deliver, keep_alive, show
from tests.unit.cluster.core.solo import of
from tests.unit.cluster.testing.simulation.small_cluster import (
    Counter,
    SmallCluster,
    running_cluster,
    small_cluster,
)
from tests.unit.cluster.testing.simulation.small_world import SECOND
from tests.unit.cluster.testing.simulation.test_snapshots import Keeper, ask, service_of, take
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.vocabulary.reluctance import Reluctance
from trimaran.cluster.operating.backup.metrics import BACKUP_METRICS
from trimaran.cluster.runtime.answering.metrics import METRICS, MetricsPage, metrics_as_markdown
from trimaran.cluster.runtime.answering.status import describe_unreadiness
from trimaran.cluster.runtime.answering.vitals import EffectCounts
from trimaran.cluster.runtime.watching.disk_space import LOOK_INTERVAL_S
from trimaran.cluster.runtime.watching.snapshot_counts import SnapshotCounts
from trimaran.cluster.testing.simulation.cluster import Member
from trimaran.service_api import ClientSession, Cluster, SnapshotImage
from trimaran.service_api.authenticator import CREDENTIALS_LIMIT_BYTES, SessionProxy
from trimaran.service_api.groups.group import ONLY_GROUP, Group
from trimaran.service_api.outbox import Outbox
from trimaran.service_api.outbox.outbox import OutboxCounts
from trimaran.service_api.types import MemberId

DASHBOARD = ROOT / "deploy" / "grafana-dashboard.json"
ALERTS = ROOT / "deploy" / "alerts.yml"

LAG = "trimaran_follower_lag_bytes"

Scrape = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""Values by name and labels."""


@pytest.fixture
def small() -> Iterator[SmallCluster]:
    """Three members in one process, at rest after 20 messages."""
    with running_cluster() as running:
        running.wait(lambda: all(not number for (name, _), number in scrape(running.leader).items() if name == LAG))
        yield running


def page_of(member: Member) -> str:
    assert member.node is not None
    return MetricsPage(member.node.parts.answers.vitals).render().decode()


def scrape(member: Member) -> Scrape:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page_of(member))
        for sample in family.samples
    }


def value(found: Scrape, name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


def test_a_leader_tells_of_its_log_its_followers_and_its_clients(small: SmallCluster) -> None:
    leader = small.leader
    assert leader.node is not None
    ctx = leader.node.module.ctx

    found = scrape(leader)

    assert value(found, "trimaran_node_role") == 2
    assert value(found, "trimaran_election_state") == 17
    assert value(found, "trimaran_ready") == 1
    assert value(found, "trimaran_leader_member_id") == ctx.config.member_id
    assert value(found, "trimaran_elections_total") == value(found, "trimaran_elections_won_total") == 1
    for name in ("append", "recorded", "commit", "delivered"):
        assert value(found, f"trimaran_{name}_position_bytes") == ctx.append_position > 0
    assert value(found, "trimaran_committed_bytes_total") == ctx.commit_position
    assert value(found, "trimaran_sessions_opened_total") == 1
    for follower in small.followers:
        assert follower.node is not None
        other = str(follower.node.module.ctx.config.member_id)
        assert value(found, "trimaran_follower_lag_bytes", follower_member_id=other) == 0
        assert value(found, "trimaran_follower_active", follower_member_id=other) == 1
        assert value(found, "trimaran_member_link_up", peer_member_id=other) == 1


def test_the_space_on_the_disk_of_a_member_is_read_now_and_then() -> None:
    """Issue 20 §5: a disk that is nearly full is seen before it is full."""
    with running_cluster() as small:
        member = small.leader
        member.machine.disk.capacity_bytes = 10**9
        small.cluster.run_for(int(1.5 * LOOK_INTERVAL_S * SECOND))
        all_bytes = value(scrape(member), "trimaran_disk_space_bytes", what="all")
        free_bytes = value(scrape(member), "trimaran_disk_space_bytes", what="free")

    assert all_bytes == 10**9
    assert 0 < free_bytes < 10**9


def test_a_member_whose_disk_is_nearly_full_is_reluctant_to_lead_until_there_is_room() -> None:
    with running_cluster() as small:
        member = small.followers[0]
        assert member.node is not None
        reluctance = member.node.module.ctx.reluctance

        member.machine.disk.capacity_bytes = member.machine.disk.used_bytes * 100 // 96
        small.cluster.run_for(int(1.5 * LOOK_INTERVAL_S * SECOND))
        full = [*reluctance]
        member.machine.disk.capacity_bytes = None
        small.cluster.run_for(int(1.5 * LOOK_INTERVAL_S * SECOND))

    assert full == [Reluctance.DISK_NEARLY_FULL]
    assert reluctance == {}


@pytest.mark.parametrize(("limit_ms", "is_off"), [(1_000, 1), (5_000, 0)])
def test_a_clock_is_off_from_the_limit_of_the_setting_on(limit_ms: int, is_off: int) -> None:
    with small_cluster() as small:
        for member in small.cluster.members.values():
            member.config = member.config.model_copy(update={"clock_skew_limit_ms": limit_ms})
        small.cluster.members[MemberId(1)].machine.clock.epoch_offset_ns += 2 * SECOND
        small.start()
        small.cluster.run_for(5 * SECOND)
        found = scrape(small.cluster.members[MemberId(1)])

    assert value(found, "trimaran_clock_off") == is_off
    assert -2.1 < value(found, "trimaran_clock_difference_seconds") < -1.9


def test_snapshots_are_counted_with_how_long_they_took_and_how_long_they_are() -> None:
    """ClusterTest.shouldTrackSnapshotDuration; and one that a service could not write."""
    with small_cluster(make_service=Keeper) as small:
        small.start()
        small.send(20)
        before = scrape(small.leader)
        position = take(small)
        taken = scrape(small.leader)
        service_of(small.leader).can_take = False
        ask(small)
        small.wait(lambda: scrape(small.leader)["trimaran_snapshots_failed_total", ()] == 1)
        after = scrape(small.leader)

    assert value(before, "trimaran_snapshot_position_bytes") == -1
    assert value(before, "trimaran_snapshots_taken_total") == value(before, "trimaran_snapshot_last_bytes") == 0
    assert value(taken, "trimaran_snapshots_taken_total") == value(after, "trimaran_snapshots_taken_total") == 1
    assert value(taken, "trimaran_snapshot_position_bytes") == position
    assert value(taken, "trimaran_snapshot_last_bytes") > 0
    assert 0 < value(taken, "trimaran_snapshot_last_seconds") == value(taken, "trimaran_snapshot_max_seconds") < 20
    assert value(taken, "trimaran_log_start_position_bytes") == 0


@pytest.mark.parametrize(
    ("reason", "at_first", "events"),
    [
        ("version", admit, [connect(version=1 << 16)]),
        ("limit", admit, [connect(7), connect(8), connect(9)]),
        ("malformed", admit, [connect(credentials=bytes(CREDENTIALS_LIMIT_BYTES + 1))]),
        ("authentication", refuse, [connect()]),
        ("timeout", None, [connect()]),
        ("token", admit, [connect(), show(1, connection_id=9, secret=b"no"), keep_alive(1, connection_id=9)]),
    ],
)
def test_clients_that_are_turned_away_are_counted_by_why(
    reason: str, at_first: Callable[[SessionProxy], object] | None, events: list[object]
) -> None:
    solo, counts = leading(Doorman(at_first), session_limit=2), EffectCounts(SnapshotCounts())

    for event in events:
        solo.feed(event)
        deliver(solo, *appended(solo))
    if at_first is None:
        solo.wait(2 * solo.ctx.config.session_timeout_ns)
    for effect in of(solo.effects, fx.SessionChanged):
        counts._on_session_changed(effect)

    assert {name: count for name, count in counts.sessions_refused.items() if count} == {reason: 1}


def test_members_in_one_process_each_tell_of_themselves(small: SmallCluster) -> None:
    scrapes = [scrape(member) for member in small.cluster.running()]

    ids = [dict(labels)["member_id"] for found in scrapes for name, labels in found if name == "trimaran_member_info"]
    assert sorted(ids) == ["0", "1", "2"]
    assert sorted(value(found, "trimaran_node_role") for found in scrapes) == [0, 0, 2]


@pytest.mark.parametrize(("group", "label"), [(ONLY_GROUP, ""), (Group(0, 4), "0/4"), (Group(3, 4), "3/4")])
def test_a_member_tells_of_its_group(small: SmallCluster, group: Group, label: str) -> None:
    assert small.leader.node is not None
    small.leader.node.module.ctx.config = replace(small.leader.node.module.ctx.config, group=group)

    found = scrape(small.leader)

    assert [dict(labels)["group"] for name, labels in found if name == "trimaran_member_info"] == [label]


def test_a_follower_tells_of_no_followers(small: SmallCluster) -> None:
    assert not [name for name, _ in scrape(small.follower) if name.startswith("trimaran_follower")]


def test_a_member_without_a_leader_is_not_ready_and_says_why(small: SmallCluster) -> None:
    first, second = small.followers
    small.leader.machine.kill()
    second.machine.kill()
    assert first.node is not None
    vitals = first.node.parts.answers.vitals
    small.wait(lambda: describe_unreadiness(vitals) is not None)

    found = scrape(first)

    assert value(found, "trimaran_ready") == 0
    assert value(found, "trimaran_leader_member_id") == -1
    assert value(found, "trimaran_election_state") < 17
    assert value(found, "trimaran_elections_total") >= 2
    assert value(found, "trimaran_elections_by_fault_total") >= 1
    assert "election: state=" in str(describe_unreadiness(vitals))


def test_an_election_for_a_hand_over_is_by_no_fault(small: SmallCluster) -> None:
    """Issue 44 §2: an upgrade of all members, one at a time, was an alert."""
    before = small.leader
    assert before.node is not None
    before.node.agent.post(ev.TransferRequested(1, None))
    small.wait(lambda: small.cluster.leader() not in (None, before))
    small.wait(small.is_at_rest)

    leader = small.cluster.leader()
    assert leader is not None
    for member in small.cluster.members.values():
        found = scrape(member)
        assert value(found, "trimaran_elections_total") == 2
        # The third one may see the old leader close its links before it hears of the new one.
        assert value(found, "trimaran_elections_by_fault_total") <= (member not in (before, leader))


def test_a_member_whose_service_has_not_started_is_not_ready(small: SmallCluster) -> None:
    assert small.leader.node is not None
    vitals = small.leader.node.parts.answers.vitals
    vitals.is_service_started = False

    assert has_facts(describe_unreadiness(vitals), "service", "not started")


def test_reading_changes_nothing(small: SmallCluster) -> None:
    """What is collected comes from what is there: two scrapes at one moment are equal but for the process."""
    first, second = (
        {key: number for key, number in scrape(small.leader).items() if key[0].startswith("trimaran_")}
        for _ in range(2)
    )

    assert first == second


def test_a_simulated_member_does_not_touch_the_process(small: SmallCluster) -> None:
    """Several in one process would count each other's garbage collections."""
    assert not [callback for callback in gc.callbacks if "StallTracker" in repr(callback)]


def exported_names(small: SmallCluster) -> set[str]:
    """Every name of a sample that some member of a cluster exports."""
    leader = small.leader
    assert leader.node is not None
    parts = leader.node.parts
    certificate = SimpleNamespace(file="node.pem", subject="member 0", expires_at_ms=1 << 50)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(parts.ground.host.network), "expires", certificate)
        return {name for name, _ in scrape(leader)}


def test_every_metric_of_the_table_is_in_a_scrape_of_a_leader(small: SmallCluster) -> None:
    names = exported_names(small)

    missing = [row.name for row in METRICS if not names & {row.name, f"{row.name}_bucket"}]
    assert missing == ["trimaran_outbox_effects"], "the service of this cluster has no outbox"


def test_names_say_what_they_are() -> None:
    for row in METRICS:
        assert row.name.startswith("trimaran_")
        assert row.name.endswith("_total") == (row.kind == "counter"), row.name
    assert len({row.name for row in METRICS}) == len(METRICS)


def test_the_table_of_the_documentation_is_the_codes() -> None:
    """Regenerate the table with `print(metrics_as_markdown())`."""
    assert metrics_as_markdown() in (ROOT / "docs" / "metrics.md").read_text()


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\b(?:trimaran|process)_\w+", text))


def targets(node: Any) -> Iterator[dict[str, Any]]:
    """Every query of a dashboard, wherever it hangs."""
    if isinstance(node, dict):
        if "expr" in node:
            yield node
        for child in node.values():
            yield from targets(child)
    elif isinstance(node, list):
        for child in node:
            yield from targets(child)


def test_the_dashboard_asks_for_nothing_that_is_not_there(small: SmallCluster) -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    asked = names_in(" ".join(target["expr"] for target in targets(dashboard)))
    asked |= names_in(json.dumps(dashboard["templating"]))
    panels = dashboard["panels"]

    assert asked - exported_names(small) == set()
    assert len(asked) > 20
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


def test_the_alerts_watch_nothing_that_is_not_there(small: SmallCluster) -> None:
    text = ALERTS.read_text()
    expressions = re.findall(r"expr: (?:\|\n\s+)?(.+)", text)
    alerts = re.findall(r"alert: (\w+)", text)

    of_backups = {row.name for row in BACKUP_METRICS}
    assert names_in(" ".join(expressions)) - exported_names(small) - of_backups == set()
    assert len(expressions) == len(alerts) == len(set(alerts)) == len(re.findall("severity:", text))


def test_every_alert_of_the_documentation_exists() -> None:
    named = set(re.findall(r"\bTrimaran[A-Z]\w+", (ROOT / "docs" / "metrics.md").read_text()))

    assert named <= set(re.findall(r"alert: (\w+)", ALERTS.read_text()))


def test_links_of_the_documentation_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "docs" / "metrics.md").read_text())

    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []


class Invoicing(Counter):
    """Wants an invoice sent for each message."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox = Outbox("invoices")

    def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        self.outbox.attach(cluster)

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        super().on_session_message(session, timestamp, payload)
        self.outbox.add(bytes(payload))

    def outbox_counts(self) -> list[OutboxCounts]:
        return [self.outbox.counts]


def test_a_member_counts_the_effects_in_its_outboxes() -> None:
    with small_cluster(make_service=Invoicing) as small:
        small.start()
        small.send(3)

        for member in small.cluster.members.values():
            found = scrape(member)
            counts = {
                state: value(found, "trimaran_outbox_effects", service_id="0", outbox="invoices", state=state)
                for state in ("pending", "given_up")
            }
            assert counts == {"pending": 3, "given_up": 0}
