"""The alert rules are rules to Prometheus. `test_metrics` holds their names against what a member exports."""

from __future__ import annotations

from tests.deploy.checks import DEPLOY, run_tool


def test_prometheus_takes_the_alert_rules() -> None:
    said = run_tool("promtool", "check", "rules", str(DEPLOY / "alerts.yml"))

    assert said is None or "SUCCESS" in said
