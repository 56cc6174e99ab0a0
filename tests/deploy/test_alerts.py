"""The alert rules are rules to Prometheus, and fire when they should.

`test_metrics` holds their names against a scrape. The tests of the rules themselves are in `alerts_test.yml`, in the
form of `promtool test rules`.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.checks import DEPLOY
from tests.waiting import patient

RULES: Final = DEPLOY / "alerts.yml"
RULE_TESTS: Final = Path(__file__).with_name("alerts_test.yml")

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not on this machine: apt-get install prometheus"
)


def promtool(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["promtool", *arguments], cwd=folder, capture_output=True, text=True, timeout=patient(120), check=False
    )


def test_prometheus_takes_the_alert_rules(tmp_path: Path) -> None:
    done = promtool("check", "rules", str(RULES), folder=tmp_path)

    assert (done.returncode, "SUCCESS" in done.stdout) == (0, True), done.stdout + done.stderr


def test_alerts_fire_for_what_they_are_named_for_and_for_nothing_else() -> None:
    done = promtool("test", "rules", RULE_TESTS.name, folder=RULE_TESTS.parent)

    assert done.returncode == 0, done.stdout + done.stderr


def test_a_rule_that_never_fires_fails_the_tests_of_the_rules(tmp_path: Path) -> None:
    rules = RULES.read_text()
    assert "trimaran_certificate_expires_seconds < 14 * 86400" in rules
    (tmp_path / "alerts.yml").write_text(rules.replace("expires_seconds < 14 * 86400", "expires_seconds < 0"))
    (tmp_path / "alerts_test.yml").write_text(RULE_TESTS.read_text().replace("../../deploy/alerts.yml", "alerts.yml"))

    done = promtool("test", "rules", "alerts_test.yml", folder=tmp_path)

    assert done.returncode != 0
    assert "TrimaranCertificateExpires" in done.stdout + done.stderr
