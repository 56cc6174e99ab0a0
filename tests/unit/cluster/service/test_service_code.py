"""The digest of the services' code: what changes it, what does not, and which replays it refuses."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trimaran.cluster.service import service_code
from trimaran.cluster.service.service_code import CodeGuard, digest_of_code, format_code
from trimaran.service_api import ConfigurationError
from trimaran.service_api.types import MemberId, TermId
from trimaran.service_api.wire.log.code_digest import UNKNOWN_CODE
from trimaran.service_api.wire.log.messages import NewLeadershipTermEvent

PLAIN = """
from __future__ import annotations
from trimaran.service_api import ClusteredService

LIMIT = 7

class Quota(ClusteredService):
    def on_request(self, session, timestamp, payload):
        return str(LIMIT).encode()
"""

Digest = Callable[..., int]


@pytest.fixture
def digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Digest]:
    """Write files, import one of them anew, and compute the digest of its class `Quota`."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(service_code, "_digest_of_code", service_code._digest_of_code.__wrapped__)

    def write_and_digest(module: str = "quota_service", **sources: str) -> int:
        for name, source in sources.items():
            path = tmp_path / (re.sub("(?<=[a-z])__(?=[a-z])", "/", name) + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)
        for name in [name for name in sys.modules if name.partition(".")[0] in {"quota_service", "bank", "rates"}]:
            del sys.modules[name]
        importlib.invalidate_caches()
        return digest_of_code(importlib.import_module(module).Quota)

    yield write_and_digest
    for name in [name for name in sys.modules if name.partition(".")[0] in {"quota_service", "bank", "rates"}]:
        del sys.modules[name]


def test_comments_docstrings_and_layout_do_not_change_the_digest(digest: Digest) -> None:
    before = digest(quota_service=PLAIN)

    commented = PLAIN.replace("LIMIT = 7", "# how much\nLIMIT  =  (7)  # seven").replace(
        "        return", '        """Answer."""\n\n        return'
    )
    assert digest(quota_service=f'"""A module."""{commented}') == before


TEXTS = """
def show(x, width):
    return [f"", f"{x:}", f"{x:{width}}", f"{x:{width}.2f}", f"a{x!r:>{width}}b" f"{x=}", "a" f"{x}" "b", f"{{{x}}}"]
"""


def test_an_empty_text_that_some_versions_of_python_put_into_a_tree_changes_nothing() -> None:
    """Python 3.12 has one after a nested format: a member refused the log that it had written on 3.11."""
    plain, other = ast.parse(TEXTS), ast.parse(TEXTS)
    for node in ast.walk(other):
        if isinstance(node, ast.JoinedStr):
            node.values.append(ast.Constant(""))

    assert "".join(service_code._canonical(other)) == "".join(service_code._canonical(plain))


def other_interpreters() -> list[str]:
    """Find the other versions of Python on the path that run."""
    found = [shutil.which(f"python3.{minor}") for minor in range(11, 20) if minor != sys.version_info.minor]
    return [path for path in found if path and not subprocess.run([path, "-c", ""], capture_output=True).returncode]


def test_every_version_of_python_on_the_path_has_the_same_digest() -> None:
    """Compared over all modules of this package and the texts above; the functions run there without the package."""
    others = other_interpreters()
    if not others:
        pytest.skip("no other version of Python is on the path: install one, such as python3.12")
    functions = "\n".join(
        inspect.getsource(part)
        for part in (
            service_code._canonical,
            service_code._Leaf,
            service_code._is_empty_text,
            service_code._without_texts,
        )
    )
    program = f"""from __future__ import annotations
import ast, hashlib, json, pathlib, sys
from collections.abc import Iterator
{functions}
texts = [pathlib.Path(path).read_text() for path in sys.argv[2:]] + [sys.argv[1]]
print(json.dumps([hashlib.sha256("".join(_canonical(ast.parse(text))).encode()).hexdigest() for text in texts]))
"""
    package = Path(service_code.__file__).parents[1]
    command = ["-c", program, TEXTS, *map(str, sorted(package.rglob("*.py")))]

    expected, *found = [
        json.loads(subprocess.run([path, *command], check=True, capture_output=True).stdout)
        for path in (sys.executable, *others)
    ]

    assert found == [expected] * len(others)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 7", "LIMIT = 52"),
        ("LIMIT = 7", "LIMIT = 7.0"),
        ("LIMIT = 7", "LIMIT = '7'"),
        ("encode()", "encode('utf-16')"),
        ("return str", "return repr"),
        ("class Quota", "class _Quota(ClusteredService): pass\nclass Quota"),
    ],
)
def test_what_may_behave_otherwise_changes_the_digest(digest: Digest, old: str, new: str) -> None:
    before = digest(quota_service=PLAIN)

    after = digest(quota_service=PLAIN.replace(old, new))

    assert after != before


@pytest.mark.parametrize(
    "statement",
    ["import rates", "from rates import RATE", "def later():\n    import rates"],
    ids=["module", "name", "late"],
)
def test_a_module_that_the_service_imports_counts(digest: Digest, statement: str) -> None:
    source = PLAIN.replace("LIMIT = 7", f"LIMIT = 7\n{statement}")
    before = digest(quota_service=source, rates="RATE = 1\n")

    after = digest(quota_service=source, rates="RATE = 2\n")

    assert after != before


def test_the_modules_of_its_own_package_count_also_by_relative_imports(digest: Digest) -> None:
    service = PLAIN.replace("LIMIT = 7", "from .limits import LIMIT")
    sources = {"bank/__init__": "", "bank__service": service, "bank__limits": "from . import deep\nLIMIT = 1\n"}
    before = digest("bank.service", **sources, bank__deep="DEPTH = 1\n")

    after = digest("bank.service", **sources, bank__deep="DEPTH = 2\n")

    assert after != before


def test_installed_packages_and_the_standard_library_do_not_count(digest: Digest, tmp_path: Path) -> None:
    found: dict[str, str] = {}
    source = PLAIN.replace("LIMIT = 7", "import json, pydantic\nLIMIT = 7")
    digest(quota_service=source)

    service_code._collect("quota_service", tmp_path / "quota_service.py", found)

    assert [*found] == ["quota_service"]


def test_code_without_a_source_file_is_unknown() -> None:
    made = type("Made", (), {"__module__": "no.such.module"})

    assert digest_of_code(made) == UNKNOWN_CODE
    assert format_code(UNKNOWN_CODE) == "unknown"


def term(*, app_version: int = 256) -> NewLeadershipTermEvent:
    return NewLeadershipTermEvent(
        leadership_term_id=TermId(3),
        log_position=960,
        timestamp=5,
        term_base_log_position=864,
        leader_member_id=MemberId(2),
        log_session_id=1,
        app_version=app_version,
    )


def guard(accepted: str = "", digest: int = 0xABCD_EF01_2345) -> CodeGuard:
    return CodeGuard(digest=digest, app_version=256, accepted=accepted, directory=Path("data/node-1"))


class TestGuard:
    def test_entries_of_the_same_code_are_replayed(self) -> None:
        guard().check(term(), 0xABCD_EF01_2345)

    @pytest.mark.parametrize(("digest", "app_version"), [(77, 256), (0xABCD_EF01_2345, 257)], ids=["code", "version"])
    def test_entries_of_other_code_are_refused_by_name(self, digest: int, app_version: int) -> None:
        with pytest.raises(ConfigurationError) as refused:
            guard().check(term(app_version=app_version), digest)

        text = str(refused.value)
        assert f"leadership_term_id=3 log_position=960 code={digest:016x}" in text
        assert "here code=0000abcdef012345 app_version=0.1.0 directory=data/node-1" in text
        assert "--accept-code 0000abcd." in text

    @pytest.mark.parametrize("accepted", ["any", "0000", "0000abcdef012345"])
    def test_an_explicit_word_lets_this_code_replay_them(self, accepted: str) -> None:
        guard(accepted).check(term(), 77)

    def test_the_word_is_for_one_code(self) -> None:
        with pytest.raises(ConfigurationError, match="accept_code=1234 code=0000abcdef012345"):
            guard("1234")

    @pytest.mark.parametrize(("mine", "theirs"), [(UNKNOWN_CODE, 77), (77, UNKNOWN_CODE)])
    def test_unknown_code_is_let_pass(self, mine: int, theirs: int) -> None:
        guard(digest=mine).check(term(app_version=9), theirs)
