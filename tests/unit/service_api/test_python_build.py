"""A slow build of Python is named where figures and versions are."""

from __future__ import annotations

import sys
import sysconfig

import pytest

from trimaran.service_api.python_build import describe_python, is_slow_build


@pytest.mark.parametrize(
    ("options", "prefix", "expected"),
    [
        ("'--prefix=/home/me/.pyenv/versions/3.13.0' '--enable-shared'", "/home/me/.pyenv/versions/3.13.0", True),
        ("", "/usr/local", True),
        (None, "C:\\Python313", False),
        ("'--enable-optimizations' '--with-lto'", "/usr/local", False),
        ("'--enable-shared' '--prefix=/usr'", "/usr", False),
    ],
    ids=["pyenv", "configure alone", "windows", "official image", "debian"],
)
def test_a_build_without_a_profile_is_slow(
    monkeypatch: pytest.MonkeyPatch, options: str | None, prefix: str, expected: bool
) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", {"CONFIG_ARGS": options}.get)
    monkeypatch.setattr(sys, "base_prefix", prefix)

    assert is_slow_build() == expected
    assert describe_python().endswith("compiled without a profile") == expected
